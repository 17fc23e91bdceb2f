//! Facts about processors that recorder and report share: numbers and names of registers, valid addresses of code,
//! signatures in return addresses, and the call before a return address. Each processor has a file of its own. No other
//! file of the workspace may state such a fact again.

pub mod aarch64;
pub mod x86_64;

use crate::samples::Arch;

/// First address of the upper half of the address space, which is the kernel's on all processors.
pub const KERNEL_HALF: u64 = 1 << 63;
/// Start of the last page. No code is there; small negative numbers look like addresses in it.
pub const LAST_PAGE: u64 = u64::MAX - 0xfff;

/// Number of bytes before a return address that a call may have.
pub const CALL_BYTES: usize = x86_64::CALL_BYTES;

/// Whether `address` is in the upper half, the kernel's.
#[inline]
pub const fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_HALF
}

/// DWARF numbers of the registers that every sample needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialRegisters {
    /// The instruction pointer (program counter).
    pub ip: u8,
    /// The stack pointer.
    pub sp: u8,
    /// The frame pointer.
    pub fp: u8,
}

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// To this address.
    Direct(u64),
    /// Through a register or memory.
    Indirect,
}

impl Arch {
    /// The name of register `number` (a DWARF number), or `None` if the format gives it none.
    pub fn register_name(self, number: u8) -> Option<&'static str> {
        match self {
            Arch::X86_64 => x86_64::register_name(number),
            Arch::Aarch64 => aarch64::register_name(number),
        }
    }

    /// The registers that every sample needs.
    pub const fn special_registers(self) -> SpecialRegisters {
        match self {
            Arch::X86_64 => x86_64::SPECIAL_REGISTERS,
            Arch::Aarch64 => aarch64::SPECIAL_REGISTERS,
        }
    }

    /// Whether a call can return to `address`. Only the image shows which of these addresses are code.
    pub fn can_be_code(self, address: u64) -> bool {
        let is_form = match self {
            Arch::X86_64 => x86_64::is_canonical(address),
            Arch::Aarch64 => address.is_multiple_of(aarch64::INSTRUCTION_BYTES),
        };
        is_form && address < LAST_PAGE
    }

    /// A return address as the processor uses it, without the signature of pointer authentication.
    #[inline]
    pub const fn without_signature(self, address: u64) -> u64 {
        match self {
            Arch::X86_64 => address,
            Arch::Aarch64 => aarch64::without_signature(address),
        }
    }

    /// The call at the end of `code`, the bytes before `return_address`. If the bytes can be the end of a direct call
    /// as well as of an indirect one, the result is the indirect one, whose target is unknown.
    pub fn call_before(self, return_address: u64, code: &[u8]) -> Option<Call> {
        match self {
            Arch::X86_64 => x86_64::call_before(return_address, code),
            Arch::Aarch64 => aarch64::call_before(return_address, code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_registers_have_the_names_of_their_processor() {
        let names = |arch: Arch| {
            let SpecialRegisters { ip, sp, fp } = arch.special_registers();
            [ip, sp, fp].map(|number| arch.register_name(number))
        };
        assert_eq!(names(Arch::X86_64), [Some("rip"), Some("rsp"), Some("rbp")]);
        assert_eq!(names(Arch::Aarch64), [Some("pc"), Some("sp"), Some("x29")]);
        assert_eq!(Arch::Aarch64.register_name(aarch64::LR), Some("x30"));
        assert_eq!(Arch::Aarch64.register_name(aarch64::PSTATE), Some("pstate"));
        assert_eq!(Arch::X86_64.register_name(x86_64::RFLAGS), Some("rflags"));
    }
}
