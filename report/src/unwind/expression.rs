//! DWARF expressions of unwind rules (DWARF 5 section 2.5). Input: operations, registers and memory. Output: one
//! value. Steps and depth are limited, because a branch may go backwards; nothing is allocated. Operations that make
//! no sense in a frame (pieces, calls, objects, threads) are refused.

use super::memory::Memory;
use super::registers::Registers;
use crate::work;
use gimli::constants as op;

/// Most operations of one evaluation; real ones have fewer than 20.
const STEPS_MAX: u64 = 512;
/// Most values on the stack; real expressions need four.
const DEPTH_MAX: usize = 32;

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

struct Operations<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Operations<'_> {
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(bytes)
    }

    /// LEB128: the value, its number of bits, and its sign bit.
    fn leb128(&mut self) -> Option<(u64, u32, bool)> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.fixed()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value, shift + 7, byte & 0x40 != 0));
            }
        }
        None
    }

    fn unsigned(&mut self) -> Option<u64> {
        self.leb128().map(|(value, ..)| value)
    }

    fn signed(&mut self) -> Option<u64> {
        let (value, bits, is_negative) = self.leb128()?;
        let sign = if is_negative && bits < 64 {
            u64::MAX << bits
        } else {
            0
        };
        Some(value | sign)
    }

    fn branch(&mut self) -> Option<()> {
        let offset = i16::from_le_bytes(self.fixed()?);
        self.at = self.at.checked_add_signed(isize::from(offset))?;
        Some(())
    }

    /// A constant operand, if `code` is an operation that pushes one.
    fn constant(&mut self, code: gimli::DwOp) -> Option<Option<u64>> {
        Some(Some(match code {
            op::DW_OP_addr | op::DW_OP_const8u | op::DW_OP_const8s => {
                u64::from_le_bytes(self.fixed()?)
            }
            op::DW_OP_const1u => u64::from(u8::from_le_bytes(self.fixed()?)),
            op::DW_OP_const1s => i64::from(i8::from_le_bytes(self.fixed()?)).cast_unsigned(),
            op::DW_OP_const2u => u64::from(u16::from_le_bytes(self.fixed()?)),
            op::DW_OP_const2s => i64::from(i16::from_le_bytes(self.fixed()?)).cast_unsigned(),
            op::DW_OP_const4u => u64::from(u32::from_le_bytes(self.fixed()?)),
            op::DW_OP_const4s => i64::from(i32::from_le_bytes(self.fixed()?)).cast_unsigned(),
            op::DW_OP_constu => self.unsigned()?,
            op::DW_OP_consts => self.signed()?,
            _ if (op::DW_OP_lit0..=op::DW_OP_lit31).contains(&code) => {
                u64::from(code.0 - op::DW_OP_lit0.0)
            }
            _ => return Some(None),
        }))
    }

    /// The register that `code` reads, if it is such an operation; its offset follows.
    fn register(&mut self, code: gimli::DwOp) -> Option<Option<u8>> {
        if (op::DW_OP_breg0..=op::DW_OP_breg31).contains(&code) {
            return Some(Some(code.0 - op::DW_OP_breg0.0));
        }
        if code == op::DW_OP_bregx {
            return Some(Some(u8::try_from(self.unsigned()?).ok()?));
        }
        Some(None)
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
    let mut operations = Operations {
        bytes: expression,
        at: 0,
    };
    while *steps < STEPS_MAX {
        *steps += 1;
        if operations.at == expression.len() {
            return values.pop();
        }
        let code = gimli::DwOp(u8::from_le_bytes(operations.fixed()?));
        if let Some(value) = operations.constant(code)? {
            values.push(value)?;
        } else if let Some(register) = operations.register(code)? {
            let offset = operations.signed()?;
            values.push(registers.get(register)?.wrapping_add(offset))?;
        } else if let Some(value) = combine(code, &mut values)? {
            values.push(value)?;
        } else {
            step(code, &mut operations, &mut values, memory)?;
        }
    }
    None
}

/// Binary operations; `Some(None)` for any other.
fn combine(code: gimli::DwOp, values: &mut Values) -> Option<Option<u64>> {
    let is_binary = matches!(
        code,
        op::DW_OP_and
            | op::DW_OP_or
            | op::DW_OP_xor
            | op::DW_OP_plus
            | op::DW_OP_minus
            | op::DW_OP_mul
            | op::DW_OP_div
            | op::DW_OP_mod
            | op::DW_OP_shl
            | op::DW_OP_shr
            | op::DW_OP_shra
            | op::DW_OP_eq
            | op::DW_OP_ne
            | op::DW_OP_lt
            | op::DW_OP_le
            | op::DW_OP_gt
            | op::DW_OP_ge
    );
    if !is_binary {
        return Some(None);
    }
    let right = values.pop()?;
    let left = values.pop()?;
    let (signed_left, signed_right) = (left.cast_signed(), right.cast_signed());
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    Some(Some(match code {
        op::DW_OP_and => left & right,
        op::DW_OP_or => left | right,
        op::DW_OP_xor => left ^ right,
        op::DW_OP_plus => left.wrapping_add(right),
        op::DW_OP_minus => left.wrapping_sub(right),
        op::DW_OP_mul => left.wrapping_mul(right),
        op::DW_OP_div if right == 0 => return None,
        op::DW_OP_div => signed_left.wrapping_div(signed_right).cast_unsigned(),
        op::DW_OP_mod => left.checked_rem(right)?,
        op::DW_OP_shl => left.checked_shl(shift).unwrap_or(0),
        op::DW_OP_shr => left.checked_shr(shift).unwrap_or(0),
        op::DW_OP_shra => (signed_left >> shift.min(63)).cast_unsigned(),
        op::DW_OP_eq => u64::from(left == right),
        op::DW_OP_ne => u64::from(left != right),
        op::DW_OP_lt => u64::from(signed_left < signed_right),
        op::DW_OP_le => u64::from(signed_left <= signed_right),
        op::DW_OP_gt => u64::from(signed_left > signed_right),
        _ => u64::from(signed_left >= signed_right),
    }))
}

/// Everything else: stack shuffling, one-value arithmetic, memory, control flow.
fn step(
    code: gimli::DwOp,
    operations: &mut Operations<'_>,
    values: &mut Values,
    memory: &(impl Memory + ?Sized),
) -> Option<()> {
    match code {
        op::DW_OP_nop => Some(()),
        op::DW_OP_dup => values.push(values.peek(0)?),
        op::DW_OP_over => values.push(values.peek(1)?),
        op::DW_OP_pick => {
            let [below] = operations.fixed()?;
            values.push(values.peek(usize::from(below))?)
        }
        op::DW_OP_drop => values.pop().map(drop),
        op::DW_OP_swap => {
            let (top, next) = (values.pop()?, values.pop()?);
            values.push(top)?;
            values.push(next)
        }
        op::DW_OP_rot => {
            let (top, second, third) = (values.pop()?, values.pop()?, values.pop()?);
            values.push(top)?;
            values.push(third)?;
            values.push(second)
        }
        op::DW_OP_abs => {
            let value = values.pop()?;
            values.push(value.cast_signed().wrapping_abs().cast_unsigned())
        }
        op::DW_OP_neg => {
            let value = values.pop()?;
            values.push(value.wrapping_neg())
        }
        op::DW_OP_not => {
            let value = values.pop()?;
            values.push(!value)
        }
        op::DW_OP_plus_uconst => {
            let value = values.pop()?;
            values.push(value.wrapping_add(operations.unsigned()?))
        }
        op::DW_OP_deref => {
            let address = values.pop()?;
            values.push(memory.word(address)?)
        }
        op::DW_OP_deref_size => {
            let [size_bytes @ 1..=8] = operations.fixed()? else {
                return None;
            };
            let address = values.pop()?;
            let unused_bits = 64 - 8 * u32::from(size_bytes);
            values.push(memory.word(address)? << unused_bits >> unused_bits)
        }
        op::DW_OP_skip => operations.branch(),
        op::DW_OP_bra => match values.pop()? {
            0 => operations.fixed::<2>().map(drop),
            _ => operations.branch(),
        },
        _ => None,
    }
}

/// The registers that `expression` reads, as a bit set; all of them if it isn't understood.
pub(super) fn registers_read(expression: &[u8]) -> u64 {
    let mut operations = Operations {
        bytes: expression,
        at: 0,
    };
    let mut read = 0;
    while operations.at < expression.len() {
        let Some(register) = next_register(&mut operations) else {
            return u64::MAX;
        };
        read |= register.map_or(0, |register| {
            1u64.checked_shl(u32::from(register)).unwrap_or(0)
        });
    }
    read
}

/// Skips one operation. Branches are not followed: both paths are read in sequence.
fn next_register(operations: &mut Operations<'_>) -> Option<Option<u8>> {
    let code = gimli::DwOp(u8::from_le_bytes(operations.fixed()?));
    if operations.constant(code)?.is_some() {
        return Some(None);
    }
    if let Some(register) = operations.register(code)? {
        operations.signed()?;
        return Some(Some(register));
    }
    match code {
        op::DW_OP_pick | op::DW_OP_deref_size => operations.fixed::<1>().map(|_| None),
        op::DW_OP_plus_uconst => operations.unsigned().map(|_| None),
        op::DW_OP_skip | op::DW_OP_bra => operations.fixed::<2>().map(|_| None),
        _ => Some(None),
    }
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
