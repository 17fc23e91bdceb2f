//! aarch64 (DWARF for the Arm 64-bit Architecture, "DWARF register names").

use super::cpu::Cpu;
use uprof::Arch;
use uprof::calls::call_before;

/// See the module.
pub(super) struct Aarch64;

/// Bits of an address that select memory; above them a signature may be, except bit 55, which selects the kernel's
/// half of the address space (Arm ARM, "Pointer authentication").
const ADDRESS_BITS: u32 = 48;

impl Cpu for Aarch64 {
    const ARCH: Arch = Arch::Aarch64;
    const STACK_POINTER: u8 = 31;
    const FRAME_POINTER: u8 = 29;
    const RETURN_ADDRESS: u8 = 30;
    const PROGRAM_COUNTER: u8 = 32;
    const RECORD_ENDS_FRAME: bool = false;

    #[inline]
    fn strip(address: u64) -> u64 {
        let signature = u64::MAX << ADDRESS_BITS;
        if address >> 55 & 1 == 1 {
            address | signature
        } else {
            address & !signature
        }
    }

    fn is_begun_by_return(before: &[u8], behind: &[u8]) -> bool {
        // mov x8, #139; svc #0: rt_sigreturn.
        const SIGNAL: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
        // mov x0, x0 and nop.
        const NOTHING: [[u8; 4]; 2] = [[0xe0, 0x03, 0, 0xaa], [0x1f, 0x20, 0x03, 0xd5]];
        let is_nothing = NOTHING.iter().any(|code| before.ends_with(code));
        let call = |code| call_before(Arch::Aarch64, 0, code);
        let is_call = behind.get(..4).and_then(call).is_some();
        behind.starts_with(&SIGNAL) || is_nothing && is_call
    }

    fn ends_context(_: &[u8]) -> bool {
        false // glibc's has call frame information that says so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_stripped_in_both_halves() {
        assert_eq!(Aarch64::strip(0x002a_aaaa_dead_beef), 0x0000_aaaa_dead_beef);
        assert_eq!(Aarch64::strip(0xff80_8000_1008_1234), 0xffff_8000_1008_1234);
        assert_eq!(Aarch64::strip(0x1280_8000_1008_1234), 0xffff_8000_1008_1234);
        assert_eq!(Aarch64::strip(0xffff_8000_1008_1234), 0xffff_8000_1008_1234);
        assert_eq!(Aarch64::strip(0x40_0000), 0x40_0000);
    }
}
