//! The unit of a profile's weights: samples, the time that samples stand for where their rate changed, time off the
//! processor, time in calls of a trace, or wall time of vCPUs. A
//! profile has one unit. Every view, export and diff takes it from here and states it; none adds weights of two
//! units. Only this module turns a row into a weight, and a weight into text.

use uprof::Row;
use uprof::words::duration;

/// The unit of a profile's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Samples, each of weight one.
    #[default]
    Samples,
    /// Nanoseconds that samples stand for, of recordings whose rate changed.
    Sampled,
    /// Nanoseconds off-CPU, of rows taken when a thread was switched out.
    OffCpu,
    /// Nanoseconds of self time of a trace's calls.
    Calls,
    /// Nanoseconds of a vCPU's wall time.
    VcpuTime,
}

/// A row's weight in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    /// The weight, in the profile's unit.
    pub amount: u64,
    /// The number of samples or waits.
    pub count: u64,
}

impl Weight {
    /// Adds another weight of the same unit.
    pub(crate) fn add(&mut self, other: Weight) {
        self.amount = self.amount.saturating_add(other.amount);
        self.count = self.count.saturating_add(other.count);
    }
}

impl Unit {
    /// The weight of a sample.
    pub(crate) const ONE: Weight = Weight {
        amount: 1,
        count: 1,
    };

    /// The unit that `row` is counted in.
    pub(crate) fn of(row: &Row<'_>) -> Unit {
        match (row.wait, row.details.period_ns) {
            (Some(_), _) => Unit::OffCpu,
            (None, Some(_)) => Unit::Sampled,
            (None, None) => Unit::Samples,
        }
    }

    /// The whole weight of `row` in its own unit.
    pub(crate) fn weigh(row: &Row<'_>) -> Weight {
        match (row.wait, row.details.period_ns) {
            (Some(wait), _) => Weight {
                amount: wait.time_ns,
                count: wait.count,
            },
            (None, Some(amount)) => Weight { amount, count: 1 },
            (None, None) => Unit::ONE,
        }
    }

    /// An amount of this unit for tables: `1234`, or a time with its unit.
    pub(crate) fn amount(self, amount: u64) -> String {
        match self {
            Unit::Samples => amount.to_string(),
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => duration(amount),
        }
    }

    /// Whether its rows are samples: of running vCPUs and threads, unless other states are asked for.
    pub(crate) fn is_sampled(self) -> bool {
        matches!(self, Unit::Samples | Unit::Sampled)
    }

    /// Whether this unit is a time.
    pub fn is_time(self) -> bool {
        self != Unit::Samples
    }

    /// The amount in a sentence: `1234 samples`, `30.1 ms off CPU`.
    pub fn phrase(self, amount: u64) -> String {
        match self {
            Unit::Samples => format!("{amount} samples"),
            Unit::Sampled => format!("{} of samples", duration(amount)),
            Unit::OffCpu => format!("{} off CPU", duration(amount)),
            Unit::Calls => format!("{} in calls", duration(amount)),
            Unit::VcpuTime => format!("{} of wall time", duration(amount)),
        }
    }

    /// The noun: `samples`, `time off CPU`.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Sampled => "time of samples",
            Unit::OffCpu => "time off CPU",
            Unit::Calls => "time in calls",
            Unit::VcpuTime => "wall time of vCPUs",
        }
    }

    /// The comparative for a smaller amount.
    pub(crate) fn fewer(self) -> &'static str {
        match self {
            Unit::Samples => "fewer samples",
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => "less time",
        }
    }

    /// The unit of the bare numbers in exports for scripts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => "nanoseconds",
        }
    }

    /// An amount for folded stacks: time in microseconds, at least 1 if it isn't zero.
    pub(crate) fn folded(self, amount: u64) -> u64 {
        match (self, amount) {
            (Unit::Samples, _) | (_, 0) => amount,
            (Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime, _) => {
                (amount / 1000 + u64::from(amount % 1000 >= 500)).max(1)
            }
        }
    }

    /// An amount for the widths of boxes: waits in microseconds. Calls and the parts of a vCPU's time, which may be
    /// shorter than one, are in nanoseconds.
    pub(crate) fn width(self, amount: u64) -> u64 {
        match self {
            Unit::Samples | Unit::Sampled | Unit::OffCpu => self.folded(amount),
            Unit::Calls | Unit::VcpuTime => amount,
        }
    }

    /// The unit of [`Unit::width`].
    pub(crate) fn width_name(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Sampled | Unit::OffCpu => "us",
            Unit::Calls | Unit::VcpuTime => "ns",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_their_unit() {
        assert_eq!(Unit::Samples.phrase(1234), "1234 samples");
        assert_eq!(Unit::OffCpu.phrase(30_120_000), "30.1 ms off CPU");
        assert_eq!(Unit::OffCpu.amount(7), "7 ns");
        assert_eq!(Unit::OffCpu.amount(61_230_000_000), "61.23 s");
        assert_eq!(Unit::Samples.width(7), 7);
        let widths = [0, 1, 1_499, 1_500, u64::MAX].map(|ns| Unit::OffCpu.width(ns));
        assert_eq!(widths, [0, 1, 1, 2, u64::MAX / 1000 + 1]);
        assert_eq!(Unit::Calls.width(1_499), 1_499);
        assert_eq!(Unit::Calls.folded(1_499), 1);
    }
}
