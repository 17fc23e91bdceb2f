//! The comparison of calls of traces: the time per call of each function and the number of its calls,
//! separately. Shares of time, as samples have them, mix the two.
//!
//! Both are ratios of sums over blocks (`counts`), and compared as logarithms. Their errors are estimated as
//! in the comparison of samples: within runs from successive blocks (`ratio`), and between runs by the same
//! mixture of spreads (`estimates`). A change that most functions have in common (`level`) is reported once,
//! and not as a change of each function (`verdict`).

mod counts;
mod ratio;
mod level;
mod estimates;
mod verdict;
mod words;

pub use counts::{Blocks, CallCell, CallRun, CallSeries, Measure};
pub(crate) use words::percent;

pub use verdict::{CallChange, CallVerdicts, judge_calls};

use super::{Comparison, DiffOptions};
use crate::images::library::Library;
use crate::recording::Recording;

/// A comparison of calls. The least change of its options is relative to the time per call, or to the calls a
/// second.
pub type CallDiff = Comparison<CallSeries, CallVerdicts>;

/// What can be compared between recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparable {
    /// Samples, or waits.
    Samples,
    /// Calls of a trace.
    Calls,
    /// Neither, because one recording has only samples and another has only calls.
    Neither {
        /// Index of the first recording with only samples, counted over both sides.
        samples: usize,
        /// Index of the first recording with only calls.
        calls: usize,
    },
}

/// What can be compared between all of `recordings`: samples if all have them.
pub fn comparable<'r>(recordings: impl Iterator<Item = &'r Recording>) -> Comparable {
    let holds: Vec<[bool; 2]> = recordings
        .map(|one| [!one.blocks().is_empty(), !one.span_blocks().is_empty()])
        .collect();
    let only = |which: usize| {
        holds
            .iter()
            .position(|held| held[which] && !held[1 - which])
    };
    match (only(0), only(1)) {
        (Some(samples), Some(calls)) => Comparable::Neither { samples, calls },
        (None, Some(_)) => Comparable::Calls,
        (_, None) => Comparable::Samples,
    }
}

/// Compares the calls of `b` with those of `a`.
pub fn diff_calls(
    a: &[&Recording],
    b: &[&Recording],
    library: &Library,
    options: &DiffOptions,
    progress: &dyn Fn(u64, u64),
) -> CallDiff {
    let (series, accounts, warnings) = counts::gather(a, b, library, options, progress);
    let verdicts = judge_calls(&series, options);
    Comparison::new(series, verdicts, [a, b], accounts, warnings, options)
}
