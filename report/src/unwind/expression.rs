//! DWARF expressions of unwind rules (DWARF 5 section 2.5). Input: operations, registers and memory. Output: one
//! value. Steps and depth are limited, because a branch may go backwards; nothing is allocated. Operations that make
//! no sense in a frame (pieces, calls, objects, threads) are refused.

use super::memory::Memory;
use super::registers::Registers;
use crate::work;
use gimli::{Encoding, EndianSlice, Format, LittleEndian, Operation, UnitOffset};

/// Most operations of one evaluation; real ones have fewer than 20.
const STEPS_MAX: u64 = 512;
/// Most values on the stack; real expressions need four.
const DEPTH_MAX: usize = 32;
/// How operands are written.
const ENCODING: Encoding = Encoding {
    format: Format::Dwarf32,
    version: 5,
    address_size: 8,
};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

struct Values {
    slots: [u64; DEPTH_MAX],
    depth: usize,
}

impl Values {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.slots.get_mut(self.depth)? = value;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.depth = self.depth.checked_sub(1)?;
        Some(self.slots[self.depth])
    }

    /// The value `below` the top one.
    fn peek(&self, below: usize) -> Option<u64> {
        Some(self.slots[self.depth.checked_sub(below.checked_add(1)?)?])
    }
}

/// The value of `expression`, or `None` if it is damaged, needs an unknown register or word, or takes too many steps.
/// `initial` is pushed first: the CFA, for a register's place.
pub(super) fn evaluate(
    expression: &[u8],
    initial: Option<u64>,
    registers: &Registers,
    memory: &(impl Memory + ?Sized),
) -> Option<u64> {
    let mut steps = 0;
    let value = run(expression, initial, registers, memory, &mut steps);
    work::take(steps);
    value
}

/// As [`evaluate`]; counts `steps`.
fn run(
    expression: &[u8],
    initial: Option<u64>,
    registers: &Registers,
    memory: &(impl Memory + ?Sized),
    steps: &mut u64,
) -> Option<u64> {
    let mut values = Values {
        slots: [0; DEPTH_MAX],
        depth: 0,
    };
    if let Some(value) = initial {
        values.push(value)?;
    }
    let mut rest = Bytes::new(expression, LittleEndian);
    while *steps < STEPS_MAX {
        *steps += 1;
        if rest.is_empty() {
            return values.pop();
        }
        let operation = Operation::parse(&mut rest, ENCODING).ok()?;
        let by = match operation {
            Operation::Skip { target } => target,
            Operation::Bra { target } if values.pop()? != 0 => target,
            Operation::Bra { .. } => 0,
            Operation::RegisterOffset {
                register,
                offset,
                base_type: UnitOffset(0),
            } => {
                let register = registers.get(u8::try_from(register.0).ok()?)?;
                values.push(register.wrapping_add(offset.cast_unsigned()))?;
                0
            }
            Operation::Deref {
                size: size @ 1..=8,
                space: false,
                base_type: UnitOffset(0),
            } => {
                let unused_bits = 64 - 8 * u32::from(size);
                let word = memory.word(values.pop()?)?;
                values.push(word << unused_bits >> unused_bits)?;
                0
            }
            other => {
                compute(other, &mut values)?;
                0
            }
        };
        let at = expression.len() - rest.len();
        let at = at.checked_add_signed(isize::from(by))?;
        rest = Bytes::new(expression.get(at..)?, LittleEndian);
    }
    None
}

/// Operations on the stack alone.
fn compute(operation: Operation<Bytes<'_>>, values: &mut Values) -> Option<()> {
    let value = match operation {
        Operation::Nop => return Some(()),
        Operation::Drop => return values.pop().map(drop),
        Operation::Swap => {
            let (top, next) = (values.pop()?, values.pop()?);
            values.push(top)?;
            next
        }
        Operation::Rot => {
            let (top, second, third) = (values.pop()?, values.pop()?, values.pop()?);
            values.push(top)?;
            values.push(third)?;
            second
        }
        Operation::Pick { index } => values.peek(index.into())?,
        Operation::UnsignedConstant { value } | Operation::Address { address: value } => value,
        Operation::SignedConstant { value } => value.cast_unsigned(),
        Operation::Abs => values.pop()?.cast_signed().unsigned_abs(),
        Operation::Neg => values.pop()?.wrapping_neg(),
        Operation::Not => !values.pop()?,
        Operation::PlusConstant { value } => values.pop()?.wrapping_add(value),
        binary => {
            let (right, left) = (values.pop()?, values.pop()?);
            combine(binary, left, right)?
        }
    };
    values.push(value)
}

fn combine(operation: Operation<Bytes<'_>>, left: u64, right: u64) -> Option<u64> {
    let (signed_left, signed_right) = (left.cast_signed(), right.cast_signed());
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    Some(match operation {
        Operation::And => left & right,
        Operation::Or => left | right,
        Operation::Xor => left ^ right,
        Operation::Plus => left.wrapping_add(right),
        Operation::Minus => left.wrapping_sub(right),
        Operation::Mul => left.wrapping_mul(right),
        Operation::Div if right == 0 => return None,
        Operation::Div => signed_left.wrapping_div(signed_right).cast_unsigned(),
        Operation::Mod => left.checked_rem(right)?,
        Operation::Shl => left.checked_shl(shift).unwrap_or(0),
        Operation::Shr => left.checked_shr(shift).unwrap_or(0),
        Operation::Shra => (signed_left >> shift.min(63)).cast_unsigned(),
        Operation::Eq => u64::from(left == right),
        Operation::Ne => u64::from(left != right),
        Operation::Lt => u64::from(signed_left < signed_right),
        Operation::Le => u64::from(signed_left <= signed_right),
        Operation::Gt => u64::from(signed_left > signed_right),
        Operation::Ge => u64::from(signed_left >= signed_right),
        _ => return None,
    })
}

/// The registers that `expression` reads, as a bit set; all of them if it isn't understood. Branches are not followed:
/// both paths are read in sequence.
pub(super) fn registers_read(expression: &[u8]) -> u64 {
    let mut rest = Bytes::new(expression, LittleEndian);
    let mut read = 0;
    while !rest.is_empty() {
        match Operation::parse(&mut rest, ENCODING) {
            Ok(Operation::RegisterOffset { register, .. }) => {
                read |= 1u64.checked_shl(register.0.into()).unwrap_or(0);
            }
            Ok(_) => {}
            Err(_) => return u64::MAX,
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::memory::{NoMemory, Stack};
    use proptest::prelude::*;

    fn value(expression: &[u8]) -> Option<u64> {
        let mut registers = Registers::default();
        registers.set(7, 0xffff_8000_0000_1000);
        registers.set(16, 0x40_100b);
        let bytes: Vec<u8> = (1..=16).collect();
        let stack = Stack {
            base: 0xffff_8000_0000_1000,
            bytes: &bytes,
        };
        evaluate(expression, None, &registers, &stack)
    }

    /// What GNU ld writes for .plt: CFA is rsp + 8, and 8 more from the 11th byte of an entry on.
    #[test]
    fn the_expression_of_a_plt_gives_both_frame_sizes() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(value(&plt), Some(0xffff_8000_0000_1010));
        assert_eq!(registers_read(&plt), 1 << 7 | 1 << 16);
    }

    #[test]
    fn memory_arithmetic_and_branches_work() {
        assert_eq!(value(&[0x77, 0, 0x06]), Some(0x0807_0605_0403_0201));
        assert_eq!(value(&[0x77, 0, 0x94, 2]), Some(0x0201));
        assert_eq!(value(&[0x31, 0x28, 1, 0, 0x96, 0x35]), Some(5));
        assert_eq!(value(&[0x09, 0xff, 0x31, 0x2d]), Some(1));
        assert_eq!(value(&[0x11, 0x7f, 0x23, 3]), Some(2));
        assert_eq!(value(&[0x31, 0x30, 0x1b]), None);
        assert_eq!(value(&[0x76, 0]), None);
        assert_eq!(value(&[]), None);
    }

    #[test]
    fn an_endless_loop_ends() {
        assert_eq!(value(&[0x2f, 0xfd, 0xff]), None);
        assert_eq!(value(&[0x31, 0x2f, 0xfc, 0xff]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut registers = Registers::default();
            for number in 0..33 {
                registers.set(number, u64::MAX - u64::from(number));
            }
            let _ = evaluate(&bytes, Some(1), &registers, &NoMemory);
            let _ = registers_read(&bytes);
        }
    }
}
