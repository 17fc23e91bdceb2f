//! Recognizes the code that unpacks a Linux kernel (arch/x86/boot/compressed of Linux) while it runs: it has no
//! symbols, and is gone when the kernel runs.
//!
//! Input: a guest's vCPU in a boot, in 64-bit mode and below the kernel's half. Output: whether one of that code's
//! error messages is behind the instruction in memory.

use crate::source::{StopWorld, Vcpu};
use uprof::cpu::is_kernel_address;

/// An error message that every such code has (misc.c).
const MESSAGE: &[u8] = b"Kernel is not a valid ELF file";
/// Bytes that are searched. The messages follow the code, which has some 50 KB.
const MOST_BYTES: usize = 128 << 10;
/// The code is copied behind the packed kernel before it unpacks it, and that takes some time.
const LOOKS_MAX: u32 = 12;
/// Other code of a boot, below: interrupt vectors, the data of firmware.
const LEAST_ADDRESS: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// Looks for it in a boot.
#[derive(Debug, Default)]
pub struct DecompressorSearch {
    /// Number of samples that could have been of it.
    samples: u32,
    /// Number of looks at the memory behind them.
    looks: u32,
}

impl DecompressorSearch {
    /// Whether to look at the memory behind `ip`: after the first such sample, the second, the fourth and so on.
    #[inline]
    pub fn is_due(&mut self, ip: u64) -> bool {
        if self.looks == LOOKS_MAX || ip < LEAST_ADDRESS || is_kernel_address(ip) {
            return false;
        }
        self.samples += 1;
        let is_due = self.samples.is_power_of_two();
        self.looks += u32::from(is_due);
        is_due
    }

    /// Whether `vcpu` runs it. The guest runs meanwhile.
    #[cold]
    pub fn is_at(&mut self, source: &mut dyn StopWorld, vcpu: &Vcpu, ip: u64) -> bool {
        if !source.reads_running() {
            return false;
        }
        let mut bytes = vec![0; MOST_BYTES];
        let got = source.read(vcpu, ip & !(PAGE_BYTES - 1), &mut bytes);
        let mut pieces = bytes[..got].windows(MESSAGE.len());
        let is_found = pieces.any(|piece| piece == MESSAGE);
        if is_found {
            self.looks = LOOKS_MAX;
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_and_end() {
        let mut search = DecompressorSearch::default();
        let due: Vec<u32> = (1..=5000).filter(|_| search.is_due(0x10_0000)).collect();
        let expected: Vec<u32> = (0..LOOKS_MAX).map(|power| 1 << power).collect();
        assert_eq!(due, expected);
        let mut search = DecompressorSearch::default();
        assert!(!search.is_due(0x7c00) && !search.is_due(!0 << 31) && search.is_due(0x10_0000));
    }
}
