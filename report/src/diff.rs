//! Diff: two sets of recordings go in; which functions and call paths take a larger or smaller
//! share of the on-CPU samples, and how sure that is, come out.
//!
//! Shares, not counts, are compared, so that a longer recording is no slower one. How far a share is
//! from the truth is measured within runs (`spread`) and between them (`runs`, `load`), and both are
//! one distribution (`estimate`). Of the many functions asked about (`questions`, `overlap`), the
//! false discoveries are held down, and what only makes room for another function's change is not
//! called a change (`verdict`, `tally`). What to do where that is not enough, `plan` says.

mod modules;
mod matching;
mod turns;
mod series;
mod student;
mod tally;
mod spread;
mod load;
mod runs;
mod estimate;
mod overlap;
mod questions;
mod plan;
mod verdict;
mod rule;
mod notes;
pub mod flame;
pub mod json;
pub mod table;
pub mod markdown;
pub mod workflow;

pub use estimate::Estimate;
pub use matching::{Kind, Match};
pub use plan::Plan;
pub use rule::{Rule, RuleError, RuleVerdict};
pub use series::{BLOCKS, Cell, Counted, Counts, Item, Series, Side};
pub use verdict::{Change, Verdicts, judge};

use crate::images::library::Library;
use crate::profile::filter::Filter;
use crate::profile::gather::Options;
use crate::recording::Recording;
use crate::recording::account::Account;
use std::collections::HashSet;

/// What to compare, and how sure to be.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// Which samples and frames; always by function.
    pub gather: Options,
    /// Confidence of intervals, such as 0.95.
    pub confidence: f64,
    /// Most false discoveries among the changes called certain, as a share.
    pub false_discoveries: f64,
    /// Least change of a share, 0 to 1, that is worth telling: one is certain only if it is certainly
    /// larger.
    pub least_change: f64,
    /// Least share, 0 to 1, of both sides together that a function must have to be asked about.
    pub least_share: f64,
    /// Whether to tell hosts and folders of recordings.
    pub identify: bool,
}

impl Default for DiffOptions {
    fn default() -> Self {
        DiffOptions {
            gather: Options {
                filter: Filter::default(),
                ..Options::default()
            },
            confidence: 0.95,
            false_discoveries: 0.05,
            least_change: 0.0005,
            least_share: 0.001,
            identify: false,
        }
    }
}

/// A finished comparison.
#[derive(Debug)]
pub struct Diff {
    /// Counts by block of time.
    pub series: Series,
    /// What changed.
    pub verdicts: Verdicts,
    /// What each side's counts rest on.
    pub accounts: [Account; 2],
    /// Which recordings are compared, in words: A's, then B's.
    pub names: [Vec<String>; 2],
    /// What makes the comparison weaker than it looks.
    pub warnings: Vec<String>,
    /// The options it was made with.
    pub options: DiffOptions,
}

impl Diff {
    /// The changes that outputs list, those that are certain first; of call paths only if `paths` says so.
    pub(crate) fn listed(&self, paths: bool) -> impl Iterator<Item = &Change> {
        let counted = |change: &Change| self.series.items[change.item].counted;
        let changes = self.verdicts.changes.iter();
        changes.filter(move |change| paths || counted(change) != Counted::Path)
    }
}

/// Compares `b` with `a`.
pub fn diff(
    a: &[&Recording],
    b: &[&Recording],
    library: &Library,
    options: &DiffOptions,
    progress: &dyn Fn(u64, u64),
) -> Diff {
    let (series, accounts, mut warnings) = series::gather(a, b, library, options, progress);
    let verdicts = judge(&series, options);
    warnings.extend(notes::warnings(a, b, &accounts, options.identify));
    warnings.extend(notes::unmatched(&series));
    // Each recording has its own, and they may be the same.
    let mut told = HashSet::new();
    warnings.retain(|warning| told.insert(warning.clone()));
    let describe = |one: &&Recording| notes::describe(one, options.identify);
    let names = [a, b].map(|side| side.iter().map(describe).collect());
    Diff {
        series,
        verdicts,
        accounts,
        names,
        warnings,
        options: options.clone(),
    }
}
