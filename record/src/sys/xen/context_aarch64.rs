//! `struct vcpu_guest_context` of arch-arm.h, for 64-bit guests.

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The interface version (Xen 4.16) that widened CPSR and SPSR_EL1 to 64 bits.
pub const WIDE_CPSR_VERSION: u32 = 0x14;

/// Registers and address space of one vCPU, Xen 4.16 and later.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VcpuGuestContext {
    flags: u64,
    /// x0 to x30.
    pub x: [u64; 31],
    /// Program counter.
    pub pc: u64,
    /// PSTATE.
    pub cpsr: u64,
    spsr_el1: u64,
    spsr_aarch32: [u32; 4],
    /// The part that both layouts have in common.
    pub tail: Tail,
}
const _: () = assert!(size_of::<VcpuGuestContext>() == 352);

/// The same before Xen 4.16.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NarrowVcpuGuestContext {
    flags: u64,
    /// x0 to x30.
    pub x: [u64; 31],
    /// Program counter.
    pub pc: u64,
    /// PSTATE.
    pub cpsr: u32,
    spsr_el1: u32,
    spsr_aarch32: [u32; 4],
    /// The part that both layouts have in common.
    pub tail: Tail,
}
const _: () = assert!(size_of::<NarrowVcpuGuestContext>() == 344);

/// Stack pointers and translation registers.
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Tail {
    pub sp_el0: u64,
    pub sp_el1: u64,
    elr_el1: u64,
    pub sctlr: u64,
    pub ttbcr: u64,
    pub ttbr0: u64,
    pub ttbr1: u64,
}
