//! One unwind rule: how to find the caller's registers from the callee's. The compiler of tables
//! makes rules, the step carries them out. A rule knows no address; many rows share one.

/// Registers are DWARF's numbers (System V ABI AMD64 figure 3.36, AADWARF64 section 4.1); those
/// beyond are never needed to unwind.
pub(super) const REGISTERS_MAX: usize = 33;

/// The canonical frame address: what the stack pointer was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cfa {
    /// A register of the callee plus an offset (bytes).
    Register { register: u8, offset_bytes: i32 },
    /// The value of the expression at this offset of the table's expressions.
    Expression(u32),
}

/// Where a register of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Nowhere. For the return address this says that there is no caller.
    Lost,
    /// In memory at CFA plus this (bytes).
    AtCfa(i32),
    /// It is CFA plus this.
    IsCfa(i32),
    /// In another register of the callee.
    Register(u8),
    /// In memory at the address that the expression gives.
    AtExpression(u32),
    /// It is the expression's value.
    IsExpression(u32),
}

/// One register of the caller. A register that a rule doesn't name kept its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Save {
    pub(super) register: u8,
    pub(super) place: Place,
}

/// A rule without its saves, which lie in the table's common list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) cfa: Cfa,
    /// The frame of a trap, an interrupt or a signal: its caller was interrupted, not calling, so
    /// the caller's pc is an instruction pointer and not a return address (augmentation `S`).
    pub(super) is_trap: bool,
    /// Number of the register that holds the return address.
    pub(super) return_register: u8,
    pub(super) saves_start: u32,
    pub(super) saves_count: u8,
}

// One word for each, which differs where they do: what tables are interned and stored by.

impl Cfa {
    pub(super) fn word(self) -> u64 {
        match self {
            Cfa::Register {
                register,
                offset_bytes,
            } => word(0, register, offset_bytes as u32),
            Cfa::Expression(offset) => word(1, 0, offset),
        }
    }
}

impl Save {
    pub(super) fn word(self) -> u64 {
        let (kind, number) = match self.place {
            Place::Lost => (0, 0),
            Place::AtCfa(offset) => (1, offset as u32),
            Place::IsCfa(offset) => (2, offset as u32),
            Place::Register(register) => (3, u32::from(register)),
            Place::AtExpression(offset) => (4, offset),
            Place::IsExpression(offset) => (5, offset),
        };
        word(kind, self.register, number)
    }
}

fn word(kind: u64, register: u8, number: u32) -> u64 {
    kind << 40 | u64::from(register) << 32 | u64::from(number)
}
