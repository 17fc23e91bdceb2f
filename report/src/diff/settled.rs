//! Whether the questions of a comparison are settled: a change is certain, or one of the requested size is excluded.
//! And the verdict on the time of whole runs.

use super::listing::Fragment;
use super::series::Quantity;
use super::times::{TimeRatio, Times};
use super::verdict::Change;
use super::{Diff, Sequence};
use crate::recording::unit::Unit;
use crate::text::{in_percent, percent};

/// A function with a smaller share of the samples is not waited for: its samples would hardly ever be enough. Nor is
/// one that leaves less than this to others: its share hardly changes, and its time is that of whole runs.
const AWAITED_SHARE: f64 = 0.1;

/// The part of the error rate for all functions; wall and processor time have the rest, in equal parts.
const OF_FUNCTIONS: f64 = 0.8;

/// The error rates of one look at all runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookRates {
    /// For all functions together.
    pub functions: f64,
    /// For wall time, and for processor time.
    pub time: f64,
}

impl LookRates {
    /// The rates of each look of `sequence`, which together have `rate`.
    pub fn new(sequence: &Sequence, rate: f64) -> LookRates {
        let spent = sequence.spent(rate);
        LookRates {
            functions: spent * OF_FUNCTIONS,
            time: spent * (1.0 - OF_FUNCTIONS) / 2.0,
        }
    }
}

/// How far a comparison has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The number of certain changes, of functions and of the time of whole runs.
    pub certain: usize,
    /// The functions, and the time of whole runs, of which neither a change is certain nor one of the requested size
    /// excluded.
    pub open: Vec<Fragment>,
    /// Whether the time of whole runs is known.
    pub is_timed: bool,
    /// Whether functions are awaited for their time with callees, too, and not only for their own.
    pub awaits_total: bool,
}

impl Standing {
    /// The standing of `diff` and `times`, if a change by the part `size` of a function's time, or of that of whole
    /// runs, is to be excluded.
    pub fn new(diff: &Diff, times: &Times, size: f64) -> Standing {
        // Wall time depends on what else the machine does. It is awaited only where nothing else is known.
        let (time, ratio) = match times.processor {
            Some(processor) => ("processor time", Some(processor)),
            None => ("wall time", times.wall),
        };
        let of_shares = time_of_shares(diff, times);
        // Once the time has certainly changed, the question is where, and that may be all that a function calls.
        let has_time_changed = ratio.is_some_and(|ratio| ratio.is_certain());
        let awaits_total = has_time_changed || !diff.options.asked.functions.is_empty();
        let changes = || diff.listed(false);
        let is_open = |change: &&Change| {
            let item = &diff.series.items[change.item];
            let [a, b] = [change.estimate.a, change.estimate.b];
            let share = (a + b) / 2.0;
            let is_asked = diff.options.asked.weight(&diff.series, item) > 0.0;
            let is_own = item.counted == Quantity::Own;
            let is_large = a.max(b) >= AWAITED_SHARE && a.min(b) <= 1.0 - AWAITED_SHARE;
            let is_awaited = is_large && (is_own || awaits_total);
            let is_excluded = change.relative.is_some_and(|ends| {
                let by_time = |time: TimeRatio| excludes_of_time(ends, &time, size);
                excludes(ends, share, size) || of_shares.is_some_and(by_time)
            });
            let is_open = !change.certain && !change.pushed && !is_excluded;
            is_awaited && is_asked && diff.series.is_matched(item) && is_open
        };
        let name = |change: &Change| diff.series.item_name(&diff.series.items[change.item]);
        let mut open = Vec::new();
        for name in changes().filter(is_open).map(name) {
            let name = Fragment::Function(name);
            // A function's own time, and its time with callees.
            if !open.contains(&name) {
                open.push(name);
            }
        }
        if ratio.is_some_and(|ratio| !ratio.is_certain() && !ratio.excludes(size)) {
            open.push(Fragment::Words(time.to_owned()));
        }
        let of_whole = [times.processor, times.wall].into_iter().flatten();
        let of_whole = of_whole.filter(|ratio| ratio.is_certain()).count();
        Standing {
            certain: changes().filter(|change| change.certain).count() + of_whole,
            open,
            is_timed: ratio.is_some(),
            awaits_total,
        }
    }
}

/// The processor time, if shares are parts of it: those of some of the samples, or of time off the processor, aren't.
fn time_of_shares(diff: &Diff, times: &Times) -> Option<TimeRatio> {
    let is_of_samples = matches!(diff.series.unit, Unit::Samples | Unit::Sampled);
    let is_whole = is_of_samples && !diff.options.gather.filter.leaves_out();
    times.processor.filter(|_| is_whole)
}

/// Whether a change of a function's time by the part `size`, in either direction and whatever else changes, is
/// excluded by the interval of the relative change of its share and by that of `whole`, the time that is shared.
fn excludes_of_time((low, high): (f64, f64), whole: &TimeRatio, size: f64) -> bool {
    (1.0 + low) * whole.interval.0 > 1.0 - size && (1.0 + high) * whole.interval.1 < 1.0 + size
}

/// Whether a change of a function's time by the part `size`, in either direction while all else stays, is excluded by
/// the interval of the relative change of its `share`. That changes by less, since the whole changes with it.
fn excludes((low, high): (f64, f64), share: f64, size: f64) -> bool {
    let of_share = |part: f64| part * (1.0 - share) / (1.0 + part * share);
    low > of_share(-size.min(1.0)) && high < of_share(size)
}

/// Why no more runs were made.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Runs of each side.
    pub runs: usize,
    /// How far the comparison has come.
    pub standing: Standing,
    /// The change that was to be excluded, as a part.
    pub size: f64,
}

/// Most names that an ending lists.
const LISTED_MAX: usize = 4;

impl Ending {
    /// Why there are no more runs, and what is excluded.
    pub(super) fn sentence(&self) -> Vec<Fragment> {
        let [size, least] = [self.size, AWAITED_SHARE].map(in_percent);
        let most = in_percent(1.0 - AWAITED_SHARE);
        let times = if self.standing.awaits_total {
            "own or total time"
        } else {
            "own time"
        };
        let functions = format!("the functions asked about whose {times} is {least} to {most}%");
        let whole = if self.standing.is_timed {
            "the whole and of "
        } else {
            ""
        };
        let after = format!("After {} runs of each,", self.runs);
        let open = &self.standing.open;
        if open.is_empty() {
            let excluded = if self.standing.certain == 0 {
                format!("a change of {size}% is excluded, of {whole}{functions}.")
            } else {
                format!("another change of {size}% is excluded, of {functions}.")
            };
            return vec![Fragment::Words(format!("{after} {excluded}"))];
        }
        let mut sentence = vec![Fragment::Words(format!(
            "{after} a change of {size}% is neither certain nor excluded for "
        ))];
        for (number, name) in open.iter().take(LISTED_MAX).enumerate() {
            if number > 0 {
                sentence.push(Fragment::Words(", ".to_owned()));
            }
            sentence.push(name.clone());
        }
        let more = match open.len().saturating_sub(LISTED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        sentence.push(Fragment::Words(format!(
            "{more}: more or longer runs (-n) decide it."
        )));
        sentence
    }
}

/// The verdict on the time of whole runs, and the functions that account for it: `B takes 0.930 ± 0.010 of A's
/// processor time (certain); parse accounts for 5.1 of the 7.0 points.` `None` if the recordings don't say how long
/// the runs took.
pub(super) fn verdict_on_times(diff: &Diff, times: &Times) -> Option<Vec<Fragment>> {
    let parts = [
        (times.processor, "processor time"),
        (times.wall, "wall time"),
    ];
    let parts = parts.iter().filter_map(|(ratio, of)| {
        let ratio = (*ratio)?;
        let certain = if ratio.is_certain() {
            "certain"
        } else {
            "not certain"
        };
        Some(format!("{} of A's {of} ({certain})", ratio.words()))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        return None;
    }
    let ratios = format!("B takes {}", parts.join(", and "));
    let mut sentence = vec![Fragment::Words(ratios)];
    if let Some(ratio) = time_of_shares(diff, times).filter(TimeRatio::is_certain) {
        let points = (ratio.ratio - 1.0) * 100.0;
        let own = |change: &&Change| {
            change.certain && diff.series.items[change.item].counted == Quantity::Own
        };
        let parts = diff.listed(false).filter(own).take(ACCOUNTED_MAX);
        for (number, change) in parts.enumerate() {
            let name = diff.series.item_name(&diff.series.items[change.item]);
            let estimate = &change.estimate;
            let own = (estimate.b * ratio.ratio - estimate.a) * 100.0;
            let before = if number == 0 { "; " } else { ", " };
            sentence.push(Fragment::Words(before.to_owned()));
            sentence.push(Fragment::Function(name));
            sentence.push(Fragment::Words(format!(
                " accounts for {} of the {} points",
                signed(own, points),
                percent(points / 100.0),
            )));
        }
    }
    sentence.push(Fragment::Words(".".to_owned()));
    Some(sentence)
}

/// Most functions that account for a change of the time.
const ACCOUNTED_MAX: usize = 2;

/// A part of a change; one in the other direction is negative.
fn signed(part: f64, whole: f64) -> String {
    let sign = if part * whole < 0.0 { "-" } else { "" };
    format!("{sign}{}", percent(part / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_function_is_excluded_by_what_it_does_to_the_share() {
        // 5 % more of 43 % of the time is 2.8 % more of the share; 5 % less is 2.9 % less.
        assert!(!excludes((0.0, 0.03), 0.43, 0.05));
        assert!(!excludes((-0.03, 0.0), 0.43, 0.05));
        assert!(excludes((-0.028, 0.027), 0.43, 0.05));
        assert!(!excludes((-1e-9, 1e-9), 1.0, 0.05));
        assert!(!excludes((-1.0, 0.5), 0.4, 1.0));
    }

    #[test]
    fn a_change_of_a_functions_time_is_excluded_by_its_share_and_the_whole_together() {
        let excludes = |ends: (f64, f64), interval: (f64, f64)| {
            let whole = TimeRatio {
                seconds: [1.0, 1.0],
                ratio: 1.0,
                interval,
                confidence: 0.95,
            };
            excludes_of_time(ends, &whole, 0.05)
        };
        assert!(excludes((-0.01, 0.01), (0.97, 1.03)));
        // Each is within 5 %, and both together may not be.
        assert!(!excludes((-0.03, 0.01), (0.97, 1.03)));
        assert!(!excludes((-0.01, 0.03), (0.97, 1.03)));
        assert!(!excludes((-0.01, 0.01), (1.98, 2.02)));
        assert!(!excludes((-1.0, f64::INFINITY), (0.0, f64::INFINITY)));
    }

    fn told(ending: &Ending) -> String {
        let text = ending
            .sentence()
            .into_iter()
            .map(|fragment| match fragment {
                Fragment::Words(words) => words,
                Fragment::Function(name) => format!("<{name}>"),
            });
        text.collect()
    }

    #[test]
    fn an_ending_lists_some_names_and_counts_the_rest() {
        let name = |name: &str| Fragment::Function(name.to_owned());
        let mut open: Vec<Fragment> = ["a", "b", "c", "d"].map(name).to_vec();
        open.push(Fragment::Words("processor time".to_owned()));
        let ending = Ending {
            runs: 30,
            standing: Standing {
                certain: 0,
                open,
                is_timed: true,
                awaits_total: false,
            },
            size: 0.05,
        };
        assert_eq!(
            told(&ending),
            "After 30 runs of each, a change of 5% is neither certain nor excluded for <a>, <b>, <c>, <d> and 1 more: \
             more or longer runs (-n) decide it."
        );
    }

    #[test]
    fn an_ending_says_nothing_of_times_that_are_not_known() {
        let with = |is_timed: bool, awaits_total: bool| Ending {
            runs: 4,
            standing: Standing {
                certain: 0,
                open: Vec::new(),
                is_timed,
                awaits_total,
            },
            size: 0.05,
        };
        let start = "After 4 runs of each, a change of 5% is excluded, of";
        let functions = "the functions asked about whose own time is 10 to 90%.";
        let expected = format!("{start} the whole and of {functions}");
        assert_eq!(told(&with(true, false)), expected);
        let functions = "the functions asked about whose own or total time is 10 to 90%.";
        assert_eq!(told(&with(false, true)), format!("{start} {functions}"));
    }
}
