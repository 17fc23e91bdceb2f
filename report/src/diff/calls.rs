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
mod verdict;
pub mod table;
pub mod json;
pub mod forms;

pub use counts::{Blocks, CallCell, CallRun, CallSeries, Measure};
pub use verdict::{CallChange, CallVerdicts, judge_calls};

use super::{DiffOptions, notes, turns};
use crate::images::library::Library;
use crate::recording::Recording;
use crate::recording::account::Account;
use std::collections::HashSet;

/// A finished comparison of calls.
#[derive(Debug)]
pub struct CallDiff {
    /// Calls by function and block.
    pub series: CallSeries,
    /// What changed.
    pub verdicts: CallVerdicts,
    /// The calls and losses of each side.
    pub accounts: [Account; 2],
    /// Descriptions of the compared recordings: A's, then B's.
    pub names: [Vec<String>; 2],
    /// Warnings: what makes the comparison weaker than it looks.
    pub warnings: Vec<String>,
    /// Whether recordings were made alternately: one of A, one of B, and so on.
    pub in_turns: bool,
    /// Its options; the least change is a part of the time per call, or of the calls a second.
    pub options: DiffOptions,
}

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
    let (series, accounts, mut warnings) = counts::gather(a, b, library, options, progress);
    let verdicts = judge_calls(&series, options);
    warnings.extend(notes::warnings(a, b, &accounts, options.identify));
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let describe = |one: &&Recording| notes::describe(one, options.identify);
    CallDiff {
        series,
        verdicts,
        accounts,
        names: [a, b].map(|side| side.iter().map(describe).collect()),
        warnings,
        in_turns: turns::in_turns(a, b),
        options: options.clone(),
    }
}

impl CallDiff {
    /// The name of a change's function.
    pub fn name(&self, change: &CallChange) -> &str {
        &self.series.functions[change.function as usize].name
    }

    /// How many changes are certain.
    pub fn certain(&self) -> usize {
        let changes = self.verdicts.changes.iter();
        changes.filter(|change| change.certain).count()
    }

    /// What isn't comparable about the sides, and what would make it so.
    pub(crate) fn advice(&self) -> Vec<String> {
        let mut lines = vec![self.basis().to_owned()];
        lines.extend(self.common_lines());
        let verdicts = &self.verdicts;
        if verdicts.changes.is_empty() {
            lines.push(
                "Too few calls to tell: no function has 16 on each side, in several blocks. Trace for longer."
                    .to_owned(),
            );
            return lines;
        }
        lines.extend(self.could_have_shown());
        if verdicts.too_few != [0, 0] {
            let [time, rate] = verdicts.too_few;
            let all = self.series.functions.len();
            lines.push(format!(
                "Too few calls to tell: the time per call of {time} of {all} functions, and of {rate} how often."
            ));
        }
        if !verdicts.runs_measured {
            lines.push(
                "Next: how much runs of this program differ isn't known from one recording of each side, so only \
                 large changes are certain. Trace two or more a side, in turns: A B A B."
                    .to_owned(),
            );
        }
        lines
    }

    /// What blocks and rates are.
    fn basis(&self) -> &'static str {
        match self.series.by {
            Blocks::Time => "Compared: time per call, and calls a second.",
            Blocks::Order => {
                "Compared: time per call, and how many of a thousand calls are of which function: not all of these \
                 traces say when calls began, so there are no calls a second, and blocks are of calls in their order."
            }
        }
    }

    /// What is no change of each function.
    fn common_lines(&self) -> Vec<String> {
        let (rate, why) = match self.series.by {
            Blocks::Time => (
                "Calls a second",
                "where one function takes longer, or on a busier machine, all are called less often",
            ),
            Blocks::Order => (
                "Parts of all calls",
                "where some functions are called more often, all others are a smaller part",
            ),
        };
        let time = ("Time per call", "a busier or slower machine does that");
        let all = [time, (rate, why)].into_iter().zip(self.verdicts.common);
        let told = all.filter(|(_, common)| common.abs() >= TOLD);
        told.map(|((what, why), common)| {
            let by = percent(common);
            format!("{what} of most functions changed together, by {by} ({why}); 'apart' leaves that out.")
        })
        .collect()
    }

    fn could_have_shown(&self) -> Option<String> {
        let parts: Vec<String> = [Measure::Own, Measure::Rate]
            .into_iter()
            .filter_map(|of| {
                let changes = self.verdicts.changes.iter();
                let mine = changes.filter(|change| change.of == of);
                let busiest = mine.max_by(|x, y| x.share.total_cmp(&y.share))?;
                let what = match (of, self.series.by) {
                    (Measure::Rate, Blocks::Time) => "calls a second",
                    (Measure::Rate, Blocks::Order) => "part of all calls",
                    _ => "time per call",
                };
                Some(format!("{} of its {what}", percent(busiest.detectable)))
            })
            .collect();
        (!parts.is_empty()).then(|| {
            format!(
                "Changes that these recordings would have shown with a probability of 80%, of the function with the \
                 most time: {}.",
                parts.join(", ")
            )
        })
    }
}

/// What most functions changed by is told from here on.
const TOLD: f64 = 0.01;

/// A relative change for people.
pub(crate) fn percent(change: f64) -> String {
    // Eleven times as many are easier to read than a thousand percent more.
    match change {
        99.0.. => format!("×{:.0}", change + 1.0),
        9.0.. => format!("×{:.1}", change + 1.0),
        _ => format!("{:+.1}%", change * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_changes_are_factors() {
        let told = [-0.998, 0.0, 8.99, 10.04, 233.9].map(percent);
        assert_eq!(told, ["-99.8%", "+0.0%", "+899.0%", "×11.0", "×235"]);
    }
}
