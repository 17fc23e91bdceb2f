//! Reads the kernels of a guest's boots, between samples. That of a guest that ran already was read before all samples.
//!
//! Input: the boots of the samples. Output: kernels, for the encoder. A booting kernel has few processes, so a kernel
//! that was read early is read again.

use super::decompressor::DecompressorSearch;
use super::{KERNEL_ATTEMPTS_BETWEEN, Linux, NotRead, read_with};
use crate::source::{StopWorld, Vcpu};
use std::sync::mpsc::Sender;
use uprof::cpu::is_kernel_address;

/// Delay of the first look after the boot's first sample, in nanoseconds, unless a vCPU is in a kernel before. Each
/// further look is twice as late.
const FIRST_LOOK_NS: u64 = 500_000_000;
/// Shortest delay between looks, in nanoseconds: each one keeps the sampler busy.
const LEAST_BETWEEN_NS: u64 = 50_000_000;
/// Longest delay between looks, in nanoseconds.
const MOST_BETWEEN_NS: u64 = 8_000_000_000;
/// Number of looks with the first process after which the search ends.
const LOOKS_WITH_PROCESSES: u32 = 2;
/// Most looks when sampling is over: the vCPU may be where its kernel can't be seen.
const LAST_LOOKS: u32 = 3;
/// Longest search for a boot's kernel, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;

/// What is found of a boot.
pub enum Found {
    /// Its kernel.
    Kernel(Box<Linux>),
    /// The code that unpacks its kernel, by the number of the boot and the root of that code's page tables.
    Decompressor {
        /// Number of the boot.
        boot: u32,
        /// Physical address of the root.
        root: u64,
    },
}

impl Found {
    /// Number of the boot.
    pub fn boot(&self) -> u32 {
        match self {
            Found::Kernel(kernel) => kernel.boot(),
            Found::Decompressor { boot, .. } => *boot,
        }
    }
}

/// Looks for the kernels of boots.
pub struct LaterKernels {
    found: Sender<Found>,
    decompressor: DecompressorSearch,
    /// The boot, its start, and the delay of the next look; no boot before the first sample of a guest that has not
    /// begun.
    boot: Option<u32>,
    began_ns: u64,
    next_ns: Option<u64>,
    /// Whether a vCPU of this boot was in a kernel.
    is_in_kernel: bool,
    /// Whether an earlier boot was Linux: a look takes long, and other guests need none.
    was_linux: bool,
    /// Number of looks in this boot that found its first process.
    with_processes: u32,
}

impl LaterKernels {
    /// Sends kernels to `found`: those of all boots, or of all but the first if the guest `has_begun`.
    pub fn new(found: Sender<Found>, has_begun: bool) -> Self {
        LaterKernels {
            found,
            decompressor: DecompressorSearch::default(),
            boot: has_begun.then_some(0),
            is_in_kernel: has_begun,
            was_linux: has_begun,
            began_ns: 0,
            next_ns: None,
            with_processes: 0,
        }
    }

    /// Looks if it is time, after a sample of `vcpu` at address `ip`. Returns whether the kernel was found.
    #[inline]
    pub fn after_sample(
        &mut self,
        source: &mut dyn StopWorld,
        vcpu: &Vcpu,
        ip: Option<u64>,
        now_ns: u64,
    ) -> bool {
        let boot = vcpu.task.space;
        if self.is_due(boot, ip, now_ns) {
            return self.look(source, now_ns);
        }
        if let (Some(root), Some(ip), false) = (vcpu.details.root, ip, self.is_in_kernel)
            && self.decompressor.is_due(ip)
            && self.decompressor.is_at(source, vcpu, ip)
        {
            // The encoder may have ended, as its output failed.
            let _ = self.found.send(Found::Decompressor { boot, root });
        }
        false
    }

    /// Whether to look now, after a sample of `boot` at address `ip`.
    fn is_due(&mut self, boot: u32, ip: Option<u64>, now_ns: u64) -> bool {
        if self.boot != Some(boot) {
            (self.boot, self.began_ns) = (Some(boot), now_ns);
            self.next_ns = Some(FIRST_LOOK_NS);
            self.with_processes = 0;
            self.is_in_kernel = false;
            self.decompressor = DecompressorSearch::default();
        }
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        if !self.is_in_kernel && ip.is_some_and(is_kernel_address) {
            self.is_in_kernel = true;
            self.next_ns = self.next_ns.map(|next_ns| next_ns.min(passed_ns));
        }
        let may_be_linux = self.is_in_kernel || self.was_linux;
        may_be_linux && self.next_ns.is_some_and(|next_ns| passed_ns >= next_ns)
    }

    /// Looks again when sampling is over, unless the search was: what has begun since the last look gets its name.
    #[cold]
    pub fn look_at_last(&mut self, source: &mut dyn StopWorld) {
        let known = self.with_processes;
        for _ in 0..LAST_LOOKS {
            if !self.is_in_kernel || self.next_ns.is_none() || self.with_processes > known {
                return;
            }
            self.look(source, self.began_ns);
        }
    }

    /// Looks for the kernel of the current boot, and returns whether it was found. If the guest can't be read, the
    /// sampler reports that.
    #[cold]
    fn look(&mut self, source: &mut dyn StopWorld, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        let read = match read_with(source, KERNEL_ATTEMPTS_BETWEEN) {
            Err(NotRead::Failed(_)) => None,
            read => read.ok().flatten(),
        };
        let is_found = read.is_some();
        self.was_linux |= is_found;
        let mut is_over = passed_ns >= PATIENCE_NS;
        if let Some(kernel) = read {
            self.with_processes += u32::from(kernel.runs_init());
            // The encoder may have ended, as its output failed.
            let boot = self.boot.unwrap_or(0);
            let found = Found::Kernel(Box::new(kernel.of_boot(boot)));
            let is_sent = self.found.send(found).is_ok();
            is_over |= self.with_processes >= LOOKS_WITH_PROCESSES || !is_sent;
        }
        let pause_ns = passed_ns.clamp(LEAST_BETWEEN_NS, MOST_BETWEEN_NS);
        self.next_ns = (!is_over).then(|| passed_ns.saturating_add(pause_ns));
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_looked_for_in_each_boot_but_the_first() {
        let (found, _kept) = std::sync::mpsc::channel();
        let mut later = LaterKernels::new(found, true);
        let second = 1_000_000_000;
        let mut is_due = |boot, seconds: u64| later.is_due(boot, None, seconds * second);
        assert!(!is_due(0, 0) && !is_due(0, 100));
        assert!(!is_due(1, 100));
        assert!(is_due(1, 101));
        // The next boot begins in the middle of the search.
        assert!(!is_due(2, 101) && is_due(2, 102));
    }

    #[test]
    fn a_kernel_is_looked_for_once_a_vcpu_is_in_one() {
        let (found, _kept) = std::sync::mpsc::channel();
        let mut later = LaterKernels::new(found, false);
        let kernel = Some(!0 << 31);
        assert!(!later.is_due(0, Some(0x1000), 7_000));
        assert!(later.is_due(0, kernel, 8_000));
        // An address of a user's program is no sign of a kernel, however long that runs.
        let mut later = LaterKernels::new(later.found, false);
        assert!(!later.is_due(0, Some(0x1000), 0) && !later.is_due(0, None, 100 * FIRST_LOOK_NS));
    }
}
