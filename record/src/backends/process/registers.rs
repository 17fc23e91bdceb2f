//! The registers that an unwinder needs, by kernel and DWARF number.

/// Registers requested from perf: kernel number (`asm/perf_regs.h`) and DWARF number.
///
/// The callee-saved ones, instruction and stack pointer, and r10, in which code that realigns its stack saves the old
/// one. The others can't be recovered for callers, and may contain private data.
#[cfg(target_arch = "x86_64")]
pub const WANTED: &[(u8, u8)] = &[
    (1, 3),   // rbx
    (6, 6),   // rbp
    (7, 7),   // rsp
    (8, 16),  // rip
    (18, 10), // r10
    (20, 12), // r12
    (21, 13), // r13
    (22, 14), // r14
    (23, 15), // r15
];

/// Registers requested from perf: on AArch64 the kernel's numbers are DWARF's.
#[cfg(target_arch = "aarch64")]
pub const WANTED: &[(u8, u8)] = &[
    (19, 19),
    (20, 20),
    (21, 21),
    (22, 22),
    (23, 23),
    (24, 24),
    (25, 25),
    (26, 26),
    (27, 27),
    (28, 28),
    (29, 29),
    (30, 30),
    (31, 31), // sp
    (32, 32), // pc
];

/// The architecture that we run on, and so that of every process.
#[cfg(target_arch = "x86_64")]
pub const ARCH: uprof::Arch = uprof::Arch::X86_64;
/// The architecture that we run on, and so that of every process.
#[cfg(target_arch = "aarch64")]
pub const ARCH: uprof::Arch = uprof::Arch::Aarch64;

/// The mask of [`WANTED`] in the kernel's numbers.
pub fn kernel_mask() -> u64 {
    WANTED
        .iter()
        .fold(0, |mask, (kernel, _)| mask | 1 << kernel)
}
