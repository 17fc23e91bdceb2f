//! What differs between processors, as far as unwinding cares. One file per processor carries
//! this out, each with the same names.

/// A processor's registers by DWARF number, and the form of its addresses.
pub(super) trait Cpu {
    /// The stack pointer.
    const STACK_POINTER: u8;
    /// The frame pointer. It points to the caller's, behind which the return address lies.
    const FRAME_POINTER: u8;
    /// The register in which a call leaves the return address; the program counter where calls push it.
    const RETURN_ADDRESS: u8;
    /// The slot of the program counter.
    const PROGRAM_COUNTER: u8;
    /// Whether the frame pointer's record is the last thing below the caller's frame, so that it
    /// tells the caller's stack pointer.
    const RECORD_ENDS_FRAME: bool;

    /// A code address without signature bits.
    fn strip(address: u64) -> u64;

    /// Whether `code`, the bytes before a return address, ends in a call instruction.
    fn ends_in_call(code: &[u8]) -> bool;

    /// Whether something that was not called begins between the code `before` and `behind`: the
    /// return from a signal, or the end of a goroutine, behind a NOP that stands for its call.
    fn is_begun_by_return(before: &[u8], behind: &[u8]) -> bool;
}
