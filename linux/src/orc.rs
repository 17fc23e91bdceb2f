//! ORC: the unwind rules in a Linux kernel for x86-64. Input: its two tables. Output: the rule at an address, or all
//! rules in the form of recordings.
//!
//! One table holds ascending addresses, each an i32 relative to its own address. The other holds, for each address, the
//! rule that is valid from there on, in 6 bytes: i16 for the stack pointer, i16 for the frame pointer, and 16 bits for
//! registers (4 each) and the type. Source: arch/x86/include/asm/orc_types.h and arch/x86/kernel/unwind_orc.c of
//! Linux; the last bits changed in 6.3 and in 6.4.

use super::{KernelMemory, behind};
use std::collections::BTreeMap;
use std::ops::Range;
use uprof::image::{Cfa, Place, RuleRow, RuleSet, Save};

/// Most rules of a kernel; Debian's has 400,000.
const RULES_MAX: u64 = 4 << 20;
const PLACE_BYTES: u64 = 4;
const RULE_BYTES: u64 = 6;

/// DWARF's numbers of registers (System V ABI AMD64, figure 3.36).
const RDX: u8 = 1;
const RDI: u8 = 5;
const RBP: u8 = 6;
const RSP: u8 = 7;
const R10: u8 = 10;
const R13: u8 = 13;
const RIP: u8 = 16;

/// Offsets in bytes of registers (DWARF numbers) in `struct pt_regs`.
pub const SAVED: [(u8, i32); 7] = [
    (R13, 16),
    (RBP, 32),
    (R10, 56),
    (RDX, 96),
    (RDI, 112),
    (RSP, 152),
    (RIP, 128),
];
/// Offsets in bytes of registers in the frame that the processor saves.
pub const SAVED_BY_PROCESSOR: [(u8, i32); 2] = [(RSP, 24), (RIP, 0)];

/// The unwind rules of a kernel.
#[derive(Debug)]
pub struct Orc {
    /// Address of the first entry in the table of addresses.
    places_at: u64,
    places: Vec<u8>,
    rules: Vec<u8>,
    layout: Layout,
}

/// The meaning of a rule's last bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Two bits of type, and this bit for the end of a stack.
    EndAt(u16),
    /// Three bits of type, one of them the end of a stack; since 6.4.
    EndIsType,
}

/// A decoded rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// There is no caller.
    End,
    /// There is a caller.
    Frame {
        /// The stack pointer before the call, or the address of the saved registers.
        base: Base,
        /// Where the caller's frame pointer is, unless registers were saved.
        frame_pointer: FramePointer,
        /// Contents of the stack at the base.
        kind: Kind,
    },
}

/// An address: a register plus an offset, or a word in memory plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Register (DWARF number) plus an offset.
    Register(u8, i16),
    /// The word in memory at register plus the first offset, plus the second offset.
    Memory(u8, i16, i16),
}

/// Where the caller's frame pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FramePointer {
    /// In its register.
    Kept,
    /// In memory at the base plus this offset.
    AtBase(i16),
    /// In memory at the frame pointer plus this offset.
    AtItself(i16),
}

/// Contents of the stack at the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The return address, right below the base.
    Call,
    /// All registers of the interrupted code ([`SAVED`]).
    Registers,
    /// The registers that the processor itself saves ([`SAVED_BY_PROCESSOR`]).
    ProcessorFrame,
}

impl Orc {
    /// Reads the tables; `None` if they are not valid.
    #[cold]
    pub fn read(
        memory: &mut dyn KernelMemory,
        places: Range<u64>,
        rules: Range<u64>,
    ) -> Option<Orc> {
        let bytes = |range: &Range<u64>| range.end.checked_sub(range.start);
        let count = bytes(&places)? / PLACE_BYTES;
        if count == 0 || count > RULES_MAX || bytes(&rules)? / RULE_BYTES != count {
            return None;
        }
        let at = places.start;
        let places = memory.bytes(at, (count * PLACE_BYTES) as usize)?;
        let rules = memory.bytes(rules.start, (count * RULE_BYTES) as usize)?;
        Orc::new(at, places, rules)
    }

    /// The tables in these bytes; `places_at` is the address of the first entry of `places`.
    pub fn new(places_at: u64, places: Vec<u8>, rules: Vec<u8>) -> Option<Orc> {
        let layout = Layout::of(&rules);
        let orc = Orc {
            places_at,
            places,
            rules,
            layout,
        };
        let places = orc.len();
        let is_sound = orc.rules.len() / RULE_BYTES as usize == places
            && places as u64 <= RULES_MAX
            && (0..places).map(|index| orc.place(index)).is_sorted();
        is_sound.then_some(orc)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.places.len() / PLACE_BYTES as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, index: usize) -> u64 {
        let at = index * PLACE_BYTES as usize;
        let step = self.places[at..]
            .first_chunk()
            .map_or(0, |word| i32::from_le_bytes(*word));
        let own = self.places_at.wrapping_add(at as u64);
        own.wrapping_add_signed(i64::from(step))
    }

    /// The rule that is valid at `address`.
    pub fn find(&self, address: u64) -> Option<Meaning> {
        self.meaning(behind(self.len(), |index| self.place(index) <= address).checked_sub(1)?)
    }

    /// All rules, and the address ranges in which they are valid.
    pub fn rules(&self) -> (RuleSet, Vec<RuleRow>) {
        let mut numbers: BTreeMap<Meaning, u32> = BTreeMap::new();
        let mut rows: Vec<RuleRow> = Vec::new();
        for index in 0..self.len() {
            let start = self.place(index);
            // The last rule ends the table.
            let next = (index + 1 < self.len()).then(|| self.place(index + 1));
            let (Some(end), Some(meaning)) = (next, self.meaning(index)) else {
                continue;
            };
            if end <= start || rows.last().is_some_and(|row| start < row.end) {
                continue;
            }
            let next = numbers.len() as u32;
            let rule = *numbers.entry(meaning).or_insert(next);
            rows.push(RuleRow { start, end, rule });
        }
        let mut meanings: Vec<(u32, Meaning)> = numbers
            .into_iter()
            .map(|(meaning, number)| (number, meaning))
            .collect();
        meanings.sort_unstable();
        let mut set = RuleSet::default();
        let mut known = Expressions::new();
        for (_, meaning) in meanings {
            meaning.push(&mut set, &mut known);
        }
        (set, rows)
    }

    /// Decodes the rule at `index`; `None` if it states that nothing is known.
    fn meaning(&self, index: usize) -> Option<Meaning> {
        let at = index * RULE_BYTES as usize;
        let bytes: &[u8; 6] = self.rules.get(at..)?.first_chunk()?;
        let [a, b, c, d, e, f] = *bytes;
        let (stack, frame) = (i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d]));
        let bits = u16::from_le_bytes([e, f]);
        let kind = match self.layout.kind(bits) {
            None => return None,
            Some(Type::End) => return Some(Meaning::End),
            Some(Type::Frame(kind)) => kind,
        };
        let base = match bits & 15 {
            2 => Base::Register(RDX, stack),
            3 => Base::Register(RDI, stack),
            4 => Base::Register(RBP, stack),
            5 => Base::Register(RSP, stack),
            6 => Base::Register(R10, stack),
            7 => Base::Register(R13, stack),
            8 => Base::Memory(RBP, stack, 0),
            9 => Base::Memory(RSP, 0, stack),
            _ => return None,
        };
        let frame_pointer = match bits >> 4 & 15 {
            1 => FramePointer::AtBase(frame),
            4 => FramePointer::AtItself(frame),
            _ => FramePointer::Kept,
        };
        Some(Meaning::Frame {
            base,
            frame_pointer,
            kind,
        })
    }
}

enum Type {
    End,
    Frame(Kind),
}

impl Layout {
    /// Guesses the layout from frequencies. Most rules are for called functions, with the stack pointer as base.
    /// Rules of interrupts have a base, and ends of stacks have none.
    fn of(rules: &[u8]) -> Layout {
        let (mut calls, mut later_calls, mut signals) = (0u32, 0u32, 0u32);
        let (rules, _) = rules.as_chunks::<6>();
        for [.., e, f] in rules {
            let bits = u16::from_le_bytes([*e, *f]);
            let base = bits & 15;
            calls += u32::from(base == 5 && bits >> 8 & 7 == 0);
            later_calls += u32::from(base == 5 && bits >> 8 & 7 == 2);
            signals += u32::from(base != 0 && bits >> 8 & 3 != 0 && bits >> 10 & 1 != 0);
        }
        match (later_calls > calls, signals > 0) {
            (true, _) => Layout::EndIsType,
            (false, true) => Layout::EndAt(11),
            (false, false) => Layout::EndAt(10),
        }
    }

    fn kind(self, bits: u16) -> Option<Type> {
        let has_base = bits & 15 != 0;
        Some(match (self, bits >> 8 & 7) {
            (Layout::EndAt(bit), _) if bits >> bit & 1 != 0 && !has_base => Type::End,
            _ if !has_base && self != Layout::EndIsType => return None,
            (Layout::EndAt(_), kind) => match kind & 3 {
                0 => Type::Frame(Kind::Call),
                1 => Type::Frame(Kind::Registers),
                2 => Type::Frame(Kind::ProcessorFrame),
                _ => return None,
            },
            (Layout::EndIsType, 1) => Type::End,
            (Layout::EndIsType, 2) => Type::Frame(Kind::Call),
            (Layout::EndIsType, 3) => Type::Frame(Kind::Registers),
            (Layout::EndIsType, 4) => Type::Frame(Kind::ProcessorFrame),
            (Layout::EndIsType, _) => return None,
        })
    }
}

/// DWARF operations (DWARF 5, section 7.7.1).
const DW_OP_DEREF: u8 = 0x06;
const DW_OP_CONSTS: u8 = 0x11;
const DW_OP_PLUS: u8 = 0x22;
const DW_OP_BREG0: u8 = 0x70;

/// Numbers of the expressions that a set of rules has.
type Expressions = BTreeMap<Vec<u8>, u32>;

/// The number of the expression `register + number`, or with `then` of `[register + number] + then`.
fn expression(
    set: &mut RuleSet,
    known: &mut Expressions,
    (register, number): (u8, i16),
    then: Option<i16>,
) -> u32 {
    let mut bytes = vec![DW_OP_BREG0 + register];
    put_signed(&mut bytes, number);
    if let Some(then) = then {
        bytes.extend([DW_OP_DEREF, DW_OP_CONSTS]);
        put_signed(&mut bytes, then);
        bytes.push(DW_OP_PLUS);
    }
    if let Some(number) = known.get(&bytes) {
        return *number;
    }
    let number = set.push_expression(&bytes).unwrap_or(0);
    known.insert(bytes, number);
    number
}

/// Appends `number` as signed LEB128 of three bytes: two hold only 14 bits.
fn put_signed(out: &mut Vec<u8>, number: i16) {
    let number = i32::from(number).cast_unsigned();
    out.extend([
        number as u8 | 0x80,
        (number >> 7) as u8 | 0x80,
        (number >> 14) as u8 & 0x7f,
    ]);
}

impl Meaning {
    /// Adds the rule to `set`.
    fn push(self, set: &mut RuleSet, known: &mut Expressions) {
        let Meaning::Frame {
            base,
            frame_pointer,
            kind,
        } = self
        else {
            let cfa = Cfa::Register {
                register: RSP,
                offset_bytes: 0,
            };
            let place = Place::Lost;
            set.push(
                cfa,
                false,
                RIP,
                &[Save {
                    register: RIP,
                    place,
                }],
            );
            return;
        };
        let cfa = match base {
            Base::Register(register, number) => Cfa::Register {
                register,
                offset_bytes: i32::from(number),
            },
            Base::Memory(register, number, then) => {
                Cfa::Expression(expression(set, known, (register, number), Some(then)))
            }
        };
        let saved = match kind {
            Kind::Registers => &SAVED[..],
            Kind::ProcessorFrame => &SAVED_BY_PROCESSOR[..],
            Kind::Call => &[(RIP, -8)][..],
        };
        let mut saves: Vec<Save> = saved
            .iter()
            .map(|&(register, at)| Save {
                register,
                place: Place::AtCfa(at),
            })
            .collect();
        let place = match frame_pointer {
            _ if kind == Kind::Registers => None,
            FramePointer::Kept => None,
            FramePointer::AtBase(at) => Some(Place::AtCfa(i32::from(at))),
            FramePointer::AtItself(at) => {
                Some(Place::AtExpression(expression(set, known, (RBP, at), None)))
            }
        };
        saves.extend(place.map(|place| Save {
            register: RBP,
            place,
        }));
        set.push(cfa, kind != Kind::Call, RIP, &saves);
    }
}
