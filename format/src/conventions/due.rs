//! Compares the samples taken with those that were due. Each stands for a period of processor time, which the kernel
//! counts, too.

use crate::cold::{COUNTED_TIME_NS, LossReason, ProcessTime, SAMPLED_TIME_NS, TargetKind};

/// The number of samples, and the processor time that the kernel counted for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    /// Samples of running vCPUs or threads.
    pub samples: u64,
    /// Processor time that the kernel counted.
    pub counted_ns: u64,
    /// Samples per second of processor time, in thousandths.
    pub rate_millihertz: u64,
}

/// A gap below this share of the processor time is not reported.
const LEAST_GAP: f64 = 0.05;
/// Number of usual errors that make a gap. Samples fall at random, so the usual error is the square root of their
/// number; three times that is unusual.
const ERRORS: f64 = 3.0;

/// Up to this share of all deadlines may be missed without an effect on the exit status. A busy machine misses as many,
/// and the sampling error of most shares is larger.
pub const MISSED_SHARE_MAX: f64 = 0.05;

/// A sample is late if it was taken more than this many nanoseconds after its deadline. It may show what the guest did
/// after that deadline.
pub const LATE_NS: u64 = 1_000_000;

/// Whether a sample is late; `false` if its lateness is unknown.
pub fn is_late(late_ns: Option<u64>) -> bool {
    late_ns.is_some_and(|late_ns| late_ns > LATE_NS)
}

/// Up to this share of all samples, late ones are not reported: their effect is smaller than the sampling error of most
/// shares.
pub const LATE_SHARE_MAX: f64 = 0.01;

/// Whether `late` of `samples` are enough to be reported.
pub fn are_many_late(late: u64, samples: u64) -> bool {
    late as f64 > samples as f64 * LATE_SHARE_MAX
}

/// Number of samples that are due in `seconds` at `rate_hz`, as missed deadlines count: one of each of a guest's vCPUs
/// at a time, and of a process one at least.
pub fn deadlines(kind: TargetKind, vcpus: u32, seconds: f64, rate_hz: f64) -> f64 {
    let at_once = if kind.is_guest() { vcpus.max(1) } else { 1 };
    seconds * rate_hz * f64::from(at_once)
}

/// Whether a loss of `count` for `reason` makes the exit status 1 in a recording of `deadlines` deadlines. Any loss
/// does, except for a few missed deadlines.
pub fn is_loss(reason: LossReason, count: u64, deadlines: f64) -> bool {
    match reason {
        LossReason::Deadline => count as f64 > deadlines * MISSED_SHARE_MAX,
        _ => count > 0,
    }
}

impl Due {
    /// For a guest whose hypervisor or kernel counts its vCPUs' processor time, by the totals of its recording:
    /// `samples` of running vCPUs, at a nominal rate of `rate_millihertz`. `None` if nothing was counted.
    pub fn of_guest(totals: &[(String, u64)], samples: u64, rate_millihertz: u64) -> Option<Due> {
        let total = |wanted: &str| {
            let mut found = totals.iter().filter(|(name, _)| name == wanted);
            found.next().map(|(_, value)| *value)
        };
        let (counted_ns, sampled_ns) = (total(COUNTED_TIME_NS)?, total(SAMPLED_TIME_NS)?);
        // The rate at which they were really taken. Missed deadlines and lowered rates are reported elsewhere.
        let rate = (u128::from(samples) * 1_000_000_000_000).checked_div(u128::from(sampled_ns));
        let rate = rate.and_then(|rate| u64::try_from(rate).ok());
        Some(Due {
            samples,
            counted_ns,
            rate_millihertz: rate.filter(|rate| *rate > 0).unwrap_or(rate_millihertz),
        })
    }

    /// Number of samples that were due, with its fraction.
    pub fn samples_due(&self) -> f64 {
        self.counted_ns as f64 / 1e12 * self.rate_millihertz as f64
    }

    /// Processor time that the samples stand for, in nanoseconds.
    pub fn sampled_ns(&self) -> u64 {
        (self.samples as f64 * 1e12 / self.rate_millihertz.max(1) as f64) as u64
    }

    /// Samples as a share of those that were due; `None` if none was due.
    pub fn share(&self) -> Option<f64> {
        let due = self.samples_due();
        (due > 0.0).then(|| self.samples as f64 / due)
    }

    /// Whether more samples are missing, or in excess, than chance explains.
    pub fn has_gap(&self) -> bool {
        let due = self.samples_due();
        let gap = (self.samples as f64 - due).abs();
        gap > LEAST_GAP * due && gap > ERRORS * due.max(self.samples as f64).sqrt()
    }

    /// Adds processor time.
    pub fn count(&mut self, time: &ProcessTime) {
        let counted_ns = time.own_ns.saturating_add(time.ended_ns);
        self.counted_ns = self.counted_ns.saturating_add(counted_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_samples_are_due_by_the_time_that_they_stand_for() {
        let totals = |counted_ns, sampled_ns| {
            [(COUNTED_TIME_NS, counted_ns), (SAMPLED_TIME_NS, sampled_ns)]
                .map(|(name, ns): (&str, u64)| (name.to_owned(), ns))
        };
        let second = 1_000_000_000;
        let of = |counted_ns, sampled_ns, samples| {
            Due::of_guest(&totals(counted_ns, sampled_ns), samples, 100_000).unwrap()
        };
        // The rate was lowered to 50 Hz.
        let slowed = of(10 * second, 10 * second, 500);
        assert!(!slowed.has_gap() && slowed.sampled_ns() == 10 * second);
        assert!(of(20 * second, 10 * second, 500).has_gap());
        // Samples always find the guest asleep.
        let asleep = of(3 * second, 0, 0);
        assert!(asleep.has_gap() && asleep.share() == Some(0.0));
        assert_eq!(Due::of_guest(&[], 500, 100_000), None);
    }

    #[test]
    fn few_missed_deadlines_are_one_in_twenty() {
        let missed = |count, deadlines| is_loss(LossReason::Deadline, count, deadlines);
        assert!(!missed(0, 0.0) && missed(1, 0.0));
        assert!(!missed(50, 1000.0) && missed(51, 1000.0));
    }

    #[test]
    fn a_deadline_is_of_each_vcpu() {
        let due = |kind, vcpus| deadlines(kind, vcpus, 10.0, 99.0) as u64;
        assert_eq!(due(TargetKind::Kvm, 32), 32 * 990);
        assert_eq!(due(TargetKind::Kvm, 0), 990);
        assert_eq!(due(TargetKind::Process, 32), 990);
    }

    #[test]
    fn of_all_else_one_is_a_loss() {
        let lost = |count| is_loss(LossReason::RingFull, count, 1000.0);
        assert!(!lost(0) && lost(1));
    }

    #[test]
    fn a_gap_is_more_than_a_share_and_more_than_chance() {
        let due = |samples, counted_ns| Due {
            samples,
            counted_ns,
            rate_millihertz: 1_000_000,
        };
        let second = 1_000_000_000;
        assert_eq!(due(500, second).share(), Some(0.5));
        assert_eq!(due(500, second).sampled_ns(), second / 2);
        assert!(due(500, second).has_gap() && due(1500, second).has_gap());
        assert!(
            !due(930, second).has_gap(),
            "chance: 70 of 1000 is 2.2 times the usual error"
        );
        assert!(due(9300, 10 * second).has_gap());
        assert!(
            !due(9600, 10 * second).has_gap(),
            "4 % is none worth telling"
        );
        assert_eq!(due(5, 0).share(), None);
        assert!(!due(5, 0).has_gap() && due(50, 0).has_gap());
        assert!(!Due::default().has_gap());
    }
}
