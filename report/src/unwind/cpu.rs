//! Differences between architectures in unwinding. One file for each architecture implements this; what the recorder
//! needs to know of a processor, too, is in [`uprof::cpu`].

use uprof::Arch;

/// A processor's registers by DWARF number, and the form of its addresses.
pub(super) trait Cpu {
    /// Its name in recordings.
    const ARCH: Arch;
    /// The stack pointer.
    const STACK_POINTER: u8;
    /// The frame pointer. It points to the caller's saved one, followed by the return address.
    const FRAME_POINTER: u8;
    /// The register with the return address after a call; the program counter where calls push it.
    const RETURN_ADDRESS: u8;
    /// The slot of the program counter.
    const PROGRAM_COUNTER: u8;
    /// Whether the frame pointer's record is directly below the caller's frame, so that it gives the caller's stack
    /// pointer.
    const RECORD_ENDS_FRAME: bool;

    /// Whether code that isn't called begins between `before` and `behind`: the return from a signal, or the end of a
    /// goroutine, after a NOP in place of its call.
    fn is_begun_by_return(before: &[u8], behind: &[u8]) -> bool;

    /// Whether a function with this `code` is what a context (makecontext(3)) ends in: it takes its stack pointer from
    /// a register that calls preserve, for nobody called it.
    fn ends_context(code: &[u8]) -> bool;

    /// The address that the instruction at `address`, the first of `code`, computes relative to itself.
    fn address_taken(address: u64, code: &[u8]) -> Option<u64>;
}
