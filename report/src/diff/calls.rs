//! The comparison of calls of traces: what a call of each function takes, and how often it is called, apart. Shares of
//! time, as samples have them, mix the two.
//!
//! Both are quotients of sums over blocks (`counts`), compared as logarithms; their errors are those of the sample
//! diff: within runs from successive blocks (`ratio`), and between them by the same mixture of spreads (`estimates`).
//! What most functions changed by together (`level`) is told once, and is no change of each (`verdict`).

mod counts;
mod ratio;
mod level;
mod estimates;
mod weights;
mod verdict;
mod words;

pub use counts::{Blocks, CallCell, CallRun, CallSeries, Measure};
pub(crate) use words::percent;

pub use verdict::{CallChange, CallVerdicts, judge_calls};

use super::{Comparison, DiffOptions};
use crate::images::library::Library;
use crate::recording::Recording;

/// A comparison of calls; the least change of its options is a part of the time per call, or of the calls a second.
pub type CallDiff = Comparison<CallSeries, CallVerdicts>;

/// What recordings hold that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparable {
    /// Samples, or waits.
    Samples,
    /// Calls of a trace.
    Calls,
    /// Not all of them the same: one with samples alone, and one with calls alone.
    Neither {
        /// The first recording with samples alone, over both sides.
        samples: usize,
        /// The first with calls alone.
        calls: usize,
    },
}

/// What can be compared in all of `recordings`: samples, where all have them.
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
