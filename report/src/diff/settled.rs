//! Whether the questions of a comparison are settled: a change is certain, or one of the requested size is excluded.
//! And the verdict on the time of whole runs.

use super::series::Quantity;
use super::times::Times;
use super::verdict::Change;
use super::{Diff, Sequence};
use crate::recording::unit::Unit;
use crate::text::{percent, printable, short};

/// A function with a smaller share of the samples is not waited for: its samples would hardly ever be enough.
pub const AWAITED_SHARE: f64 = 0.1;

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
    pub open: Vec<String>,
}

impl Standing {
    /// The standing of `diff` and `times`, if a change by the part `size` is to be excluded.
    pub fn new(diff: &Diff, times: &Times, size: f64) -> Standing {
        let changes = || diff.listed(false);
        let is_open = |change: &&Change| {
            let item = &diff.series.items[change.item];
            let share = change.estimate.a.max(change.estimate.b);
            let is_asked = diff.options.asked.weight(&diff.series, item) > 0.0;
            // The time of callees is awaited only of functions that are asked about by name.
            let is_named = !diff.options.asked.functions.is_empty();
            let is_awaited = share >= AWAITED_SHARE && (item.counted == Quantity::Own || is_named);
            let is_open = !change.certain && !change.pushed && !excludes(change, size);
            is_awaited && is_asked && diff.series.is_matched(item) && is_open
        };
        let name = |change: &Change| diff.series.item_name(&diff.series.items[change.item]);
        let mut open = Vec::new();
        for name in changes().filter(is_open).map(name) {
            // A function's own time, and its time with callees.
            if !open.contains(&name) {
                open.push(name);
            }
        }
        // Wall time depends on what else the machine does. It is awaited only where nothing else is known.
        let (time, ratio) = match times.processor {
            Some(processor) => ("processor time", Some(processor)),
            None => ("wall time", times.wall),
        };
        if ratio.is_some_and(|ratio| !ratio.is_certain() && !ratio.excludes(size)) {
            open.push(time.to_owned());
        }
        let of_whole = [times.processor, times.wall].into_iter().flatten();
        let of_whole = of_whole.filter(|ratio| ratio.is_certain()).count();
        Standing {
            certain: changes().filter(|change| change.certain).count() + of_whole,
            open,
        }
    }
}

/// Whether a change of a function by the part `size`, in either direction, is excluded.
fn excludes(change: &Change, size: f64) -> bool {
    change
        .relative
        .is_some_and(|(low, high)| low > -size && high < size)
}

/// The verdict on the time of whole runs, and the functions that account for it: `B takes 0.930 ± 0.010 of A's
/// processor time, certain; parse accounts for 5.1 of the 7.0 points.`
pub(super) fn verdict_on_times(diff: &Diff, times: &Times) -> String {
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
        return "The recordings don't say how long the runs took.".to_owned();
    }
    let mut sentence = format!("B takes {}", parts.join(", and "));
    // Of a part of the samples, or of time off the processor, shares aren't parts of the whole time.
    let is_of_samples = matches!(diff.series.unit, Unit::Samples | Unit::Sampled);
    let is_whole = is_of_samples && !diff.options.gather.filter.leaves_out();
    if let Some(ratio) = times
        .processor
        .filter(|ratio| ratio.is_certain() && is_whole)
    {
        let points = (ratio.ratio - 1.0) * 100.0;
        let own = |change: &&Change| {
            change.certain && diff.series.items[change.item].counted == Quantity::Own
        };
        let parts = diff.listed(false).filter(own).take(ACCOUNTED_MAX);
        let parts = parts.map(|change| {
            let name = diff.series.item_name(&diff.series.items[change.item]);
            let estimate = &change.estimate;
            let own = (estimate.b * ratio.ratio - estimate.a) * 100.0;
            format!(
                "`{}` accounts for {} of the {} points",
                printable(&short(&name)),
                signed(own, points),
                percent(points / 100.0),
            )
        });
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            sentence = format!("{sentence}; {}", parts.join(", "));
        }
    }
    sentence + "."
}

/// Most functions that account for a change of the time.
const ACCOUNTED_MAX: usize = 2;

/// A part of a change; one in the other direction is negative.
fn signed(part: f64, whole: f64) -> String {
    let sign = if part * whole < 0.0 { "-" } else { "" };
    format!("{sign}{}", percent(part / 100.0))
}
