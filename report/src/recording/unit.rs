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
    pub fn what(self) -> &'static str {
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

    /// Amounts for folded stacks: times in whole microseconds, with a sum that is exact to one, and at least 1 if there
    /// is any time.
    pub(crate) fn folded(self, amounts: &[u64]) -> Vec<u64> {
        match self {
            Unit::Samples => amounts.to_vec(),
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => {
                let mut folded = whole(amounts, 1000);
                let longest = (0..amounts.len()).max_by_key(|number| amounts[*number]);
                let longest = longest.filter(|number| amounts[*number] > 0);
                if let Some(longest) = longest.filter(|_| folded.iter().all(|us| *us == 0)) {
                    folded[longest] = 1;
                }
                folded
            }
        }
    }

    /// Amounts for the widths of boxes: waits in microseconds. Calls and the parts of a vCPU's time, which may be
    /// shorter than one, are in nanoseconds.
    pub(crate) fn widths(self, amounts: &[u64]) -> Vec<u64> {
        match self {
            Unit::Samples | Unit::Sampled | Unit::OffCpu => self.folded(amounts),
            Unit::Calls | Unit::VcpuTime => amounts.to_vec(),
        }
    }

    /// The unit of [`Unit::widths`].
    pub(crate) fn width_name(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Sampled | Unit::OffCpu => "us",
            Unit::Calls | Unit::VcpuTime => "ns",
        }
    }
}

/// `amounts` in whole units of `of`. The units that their remainders make up go to the largest of these, so that the
/// sum is exact to a unit.
pub(crate) fn whole(amounts: &[u64], of: u64) -> Vec<u64> {
    let mut whole: Vec<u64> = amounts.iter().map(|amount| amount / of).collect();
    let rests = amounts.iter().map(|amount| amount % of).enumerate();
    let mut rests: Vec<(usize, u64)> = rests.filter(|(_, rest)| *rest > 0).collect();
    rests.sort_by_key(|(_, rest)| std::cmp::Reverse(*rest));
    let sum: u64 = rests.iter().map(|(_, rest)| rest).sum();
    let shared = (sum + of / 2) / of;
    for (number, _) in rests.iter().take(shared as usize) {
        whole[*number] += 1;
    }
    whole
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
        assert_eq!(Unit::Samples.widths(&[7]), [7]);
        for (ns, us) in [
            (0, 0),
            (1, 1),
            (1_499, 1),
            (1_500, 2),
            (u64::MAX, u64::MAX / 1000 + 1),
        ] {
            assert_eq!(Unit::OffCpu.widths(&[ns]), [us]);
        }
        assert_eq!(Unit::Calls.widths(&[1_499]), [1_499]);
        assert_eq!(Unit::Calls.folded(&[1_499]), [1]);
    }

    #[test]
    fn many_short_times_weigh_no_more_than_they_take() {
        let mut times = vec![60; 1000];
        times.push(60_000);
        let folded = Unit::Calls.folded(&times);
        assert_eq!((folded[1000], folded.iter().sum::<u64>()), (60, 120));
        // The largest remainders are the first to get a whole unit.
        assert_eq!(Unit::OffCpu.folded(&[300, 1_400, 900, 400]), [0, 2, 1, 0]);
        assert_eq!(Unit::Calls.folded(&[0, 3, 30]), [0, 0, 1]);
        assert_eq!(whole(&[3, 3, 3], 10), [1, 0, 0]);
        assert_eq!(whole(&[1, 3], 10), [0, 0]);
        assert!(whole(&[], 10).is_empty());
    }
}
