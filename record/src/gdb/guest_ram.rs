//! The seam between a stub and a monitor that knows where guest memory lies.

use crate::guest::page_tables::FrameAddress;

/// Guest memory by another way than through the stub.
pub trait GuestRam: Send {
    /// Takes over how a vCPU translates addresses, from its `g` reply's control registers (x86-64)
    /// or its system registers (AArch64).
    fn set_translation(&mut self, place: usize, registers: [u64; 4]);

    /// Reads as the vCPU at `place` sees it; returns the bytes before the first that is missing.
    fn read(&mut self, place: usize, address: u64, into: &mut [u8]) -> usize;

    /// Where in the guest's memory `address` is for the vCPU at `place`.
    fn frame_of(&mut self, place: usize, address: u64) -> Option<FrameAddress>;
}
