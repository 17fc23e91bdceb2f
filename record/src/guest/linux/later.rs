//! Reads the kernels of a guest's later boots, between samples. The first kernel was read before all samples.
//!
//! Input: the boots of the samples. Output: kernels, for the encoder. A booting kernel has few processes, so a kernel
//! that was read early is read again.

use super::{KERNEL_ATTEMPTS_BETWEEN, Linux, NotRead, read_with};
use crate::source::StopWorld;
use std::sync::mpsc::Sender;

/// Delay of the first look after the boot's first sample, in nanoseconds. Each further delay is twice as long.
const FIRST_LOOK_NS: u64 = 500_000_000;
/// Longest delay between looks, in nanoseconds.
const MOST_BETWEEN_NS: u64 = 8_000_000_000;
/// Number of looks with processes after which the search ends.
const LOOKS_WITH_PROCESSES: u32 = 2;
/// Longest search for a boot's kernel, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;

/// Looks for the kernels of later boots.
pub struct LaterKernels {
    found: Sender<Linux>,
    /// The boot, its start, and the delay of the next look.
    boot: u32,
    began_ns: u64,
    next_ns: Option<u64>,
    /// Number of looks in this boot that found processes.
    with_processes: u32,
}

impl LaterKernels {
    /// Sends the kernels of all boots but the first to `found`.
    pub fn new(found: Sender<Linux>) -> Self {
        LaterKernels {
            found,
            boot: 0,
            began_ns: 0,
            next_ns: None,
            with_processes: 0,
        }
    }

    /// Whether to look now, after a sample of `boot`.
    #[inline]
    pub fn is_due(&mut self, boot: u32, now_ns: u64) -> bool {
        if boot != self.boot {
            (self.boot, self.began_ns) = (boot, now_ns);
            self.next_ns = Some(FIRST_LOOK_NS);
            self.with_processes = 0;
        }
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        self.next_ns.is_some_and(|next_ns| passed_ns >= next_ns)
    }

    /// Looks for the kernel of the current boot. If the guest can't be read, the sampler reports that.
    #[cold]
    pub fn look(&mut self, source: &mut dyn StopWorld, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        let read = match read_with(source, KERNEL_ATTEMPTS_BETWEEN) {
            Err(NotRead::Failed(_)) => None,
            read => read.ok().flatten(),
        };
        let mut is_over = passed_ns >= PATIENCE_NS;
        if let Some(kernel) = read {
            self.with_processes += u32::from(kernel.facts.processes > 0);
            // The encoder may have ended, as its output failed.
            let is_sent = self.found.send(kernel.of_boot(self.boot)).is_ok();
            is_over |= self.with_processes >= LOOKS_WITH_PROCESSES || !is_sent;
        }
        let pause_ns = passed_ns.clamp(FIRST_LOOK_NS, MOST_BETWEEN_NS);
        self.next_ns = (!is_over).then(|| passed_ns.saturating_add(pause_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_looked_for_in_each_boot_but_the_first() {
        let (found, _kept) = std::sync::mpsc::channel();
        let mut later = LaterKernels::new(found);
        let second = 1_000_000_000;
        assert!(!later.is_due(0, 0) && !later.is_due(0, 100 * second));
        assert!(!later.is_due(1, 100 * second));
        assert!(later.is_due(1, 101 * second));
        // The next boot begins in the middle of the search.
        assert!(!later.is_due(2, 101 * second) && later.is_due(2, 102 * second));
    }
}
