//! aarch64: what [`uprof::cpu`] does not say of it.

use super::cpu::Cpu;
use super::signal;
use uprof::Arch;
use uprof::cpu::aarch64;

/// See the module.
pub(super) struct Aarch64;

impl Cpu for Aarch64 {
    const ARCH: Arch = Arch::Aarch64;
    const STACK_POINTER: u8 = aarch64::SP;
    const FRAME_POINTER: u8 = aarch64::FP;
    const RETURN_ADDRESS: u8 = aarch64::LR;
    const PROGRAM_COUNTER: u8 = aarch64::PC;
    const RECORD_ENDS_FRAME: bool = false;

    fn is_begun_by_return(before: &[u8], behind: &[u8]) -> bool {
        // mov x0, x0 and nop.
        const NOTHING: [[u8; 4]; 2] = [[0xe0, 0x03, 0, 0xaa], [0x1f, 0x20, 0x03, 0xd5]];
        let is_nothing = NOTHING.iter().any(|code| before.ends_with(code));
        let call = |code| Arch::Aarch64.call_before(0, code);
        let is_call = behind.get(..4).and_then(call).is_some();
        signal::returns(Arch::Aarch64, behind) || is_nothing && is_call
    }

    /// Two instructions compute it: not looked for.
    fn address_taken(_: u64, _: &[u8]) -> Option<u64> {
        None
    }

    fn ends_context(_: &[u8]) -> bool {
        false // glibc's has call frame information that says so
    }
}
