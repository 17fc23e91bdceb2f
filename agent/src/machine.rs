//! Operations that need `unsafe`: reading a word of a stack, and the processor's counter.
//!
//! Input: ranges that the guest declares readable. Output: words inside them. Must never read anything else.

use crate::walk::Memory;

/// The address range of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Stack {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
}

/// Address ranges of stacks, which must stay mapped for the agent's lifetime.
#[derive(Debug, Clone, Copy)]
pub struct Stacks<'a>(&'a [Stack]);

impl<'a> Stacks<'a> {
    /// Reads from `ranges`, whose bytes are always readable.
    ///
    /// # Safety
    /// All of `ranges` must stay mapped and readable by every vCPU for the lifetime of this value. Their contents may
    /// change during a read: a torn word is reported as read.
    pub const unsafe fn new(ranges: &'a [Stack]) -> Self {
        Stacks(ranges)
    }
}

impl Memory for Stacks<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let is_inside = |range: &Stack| {
            address >= range.start && range.end.checked_sub(8).is_some_and(|last| address <= last)
        };
        if !address.is_multiple_of(8) || !self.0.iter().any(is_inside) {
            return None;
        }
        let place = address as usize as *const u64;
        // SAFETY: aligned, and inside a range that the caller of `new` declared readable.
        Some(unsafe { place.read_volatile() })
    }
}

/// The processor's own counter: the time-stamp counter of x86-64, the virtual counter of AArch64.
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has it; where CR4.TSD forbids it, the agent must run in the kernel.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: reads a register, changes nothing (Arm ARM, CNTVCT_EL0).
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_inside_a_range_are_read() {
        let words = [7u64, 8, 9];
        let start = words.as_ptr() as u64;
        let ranges = [(0, 0), (start, start + 20), (u64::MAX - 3, u64::MAX)];
        let ranges = ranges.map(|(start, end)| Stack { start, end });
        // SAFETY: the words live as long as this test, and nothing else is read.
        let stacks = unsafe { Stacks::new(&ranges) };
        assert_eq!(stacks.word(start), Some(7));
        assert_eq!(stacks.word(start + 8), Some(8));
        for wrong in [
            start + 16,
            start + 1,
            start - 8,
            start + 24,
            0,
            u64::MAX - 7,
            u64::MAX,
        ] {
            assert_eq!(stacks.word(wrong), None);
        }
    }

    #[test]
    fn the_counter_counts() {
        let first = cycles();
        assert!((0..1_000_000).any(|_| cycles() > first));
    }
}
