//! `struct vcpu_guest_context` of arch-x86/xen.h, as a 64-bit hypervisor fills it.

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Registers and address space of one vCPU.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VcpuGuestContext {
    fpu: [u8; 512],
    /// `VGCF_*`.
    pub flags: u64,
    /// General registers and the interrupt frame.
    pub user_regs: UserRegs,
    trap_table: [[u64; 2]; 256],
    descriptor_tables: [u64; 2 + 16 + 1],
    kernel_stack: [u64; 2],
    /// CR0 to CR7; which of them are valid depends on the kind of guest.
    pub control: [u64; 8],
    debug: [u64; 8],
    callbacks: [u64; 3],
    vm_assist: u64,
    /// FS base.
    pub fs_base: u64,
    /// GS base of the kernel.
    pub gs_base_kernel: u64,
    /// GS base of user mode.
    pub gs_base_user: u64,
}
const _: () = assert!(size_of::<VcpuGuestContext>() == 5168);
const _: () = assert!(std::mem::offset_of!(VcpuGuestContext, user_regs) == 520);
const _: () = assert!(std::mem::offset_of!(VcpuGuestContext, control) == 4984);
const _: () = assert!(std::mem::offset_of!(VcpuGuestContext, fs_base) == 5144);

/// `struct cpu_user_regs` of arch-x86/xen-x86_64.h.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs)]
pub struct UserRegs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    error_and_vector: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
    segments: [u64; 4],
}
const _: () = assert!(std::mem::offset_of!(UserRegs, rip) == 648 - 520);
const _: () = assert!(size_of::<UserRegs>() == 200);
