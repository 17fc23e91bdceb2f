//! The interface between a stub and a monitor that knows where guest memory is.

use crate::guest::page_tables::FrameAddress;

/// Guest memory that is read without the stub.
pub trait GuestRam: Send {
    /// Sets how the vCPU with index `place` translates addresses: by the control registers of its `g` reply (x86-64) or
    /// its system registers (AArch64).
    fn set_translation(&mut self, place: usize, registers: [u64; 4]);

    /// Reads memory as the vCPU with index `place` sees it; returns the number of bytes before the first missing one.
    fn read(&mut self, place: usize, address: u64, into: &mut [u8]) -> usize;

    /// The position in the guest's memory of `address`, as the vCPU with index `place` sees it.
    fn frame_of(&mut self, place: usize, address: u64) -> Option<FrameAddress>;

    /// The address at which the vCPU with index `place` sees the page tables of the kernel's half; see
    /// [`Paging::own_address`].
    ///
    /// [`Paging::own_address`]: crate::guest::page_tables::Paging::own_address
    fn kernel_tables(&mut self, place: usize) -> Option<u64>;
}
