//! The registers that an unwinder needs, by kernel and DWARF number.

#[cfg(target_arch = "aarch64")]
use uprof::cpu::aarch64;
#[cfg(target_arch = "x86_64")]
use uprof::cpu::x86_64;

/// Registers requested from perf: kernel number (`asm/perf_regs.h`) and DWARF number.
///
/// These are the callee-saved ones, the instruction and stack pointer, and r10, in which code that realigns its stack
/// saves the old stack pointer. The others can't be recovered for callers, and may contain private data.
#[cfg(target_arch = "x86_64")]
pub const WANTED: &[(u8, u8)] = &[
    (1, x86_64::RBX),
    (6, x86_64::RBP),
    (7, x86_64::RSP),
    (8, x86_64::RIP),
    (18, x86_64::R10),
    (20, x86_64::R12),
    (21, x86_64::R13),
    (22, x86_64::R14),
    (23, x86_64::R15),
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
    (29, aarch64::FP),
    (30, aarch64::LR),
    (31, aarch64::SP),
    (32, aarch64::PC),
];

/// The architecture that this program runs on, which is also that of every process.
#[cfg(target_arch = "x86_64")]
pub const ARCH: uprof::Arch = uprof::Arch::X86_64;
/// The architecture that this program runs on, which is also that of every process.
#[cfg(target_arch = "aarch64")]
pub const ARCH: uprof::Arch = uprof::Arch::Aarch64;

/// The mask of [`WANTED`] in the kernel's numbers.
pub fn kernel_mask() -> u64 {
    WANTED
        .iter()
        .fold(0, |mask, (kernel, _)| mask | 1 << kernel)
}
