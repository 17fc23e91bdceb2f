//! Diff. Input: two sets of recordings. Output: which functions and call paths take a larger or smaller share of the
//! on-CPU samples, and how certain that is.
//!
//! Shares are compared, not counts, so that a longer recording doesn't look slower. The error of a share is
//! measured within runs (`spread`) and between runs (`runs`, `load`), and both are combined into one
//! distribution (`estimate`). Because many functions are tested (`questions`), the rate of false discoveries
//! is limited. A share that changes only because another function's did is not called a change (`verdict`,
//! `tally`). `plan` says how many recordings are needed to detect smaller changes. For traces, `calls`
//! compares the time per call and the calls a second instead.

pub(crate) mod modules;
pub(crate) mod matching;
mod series;
pub(crate) mod student;
mod tally;
mod spread;
mod load;
mod runs;
mod estimate;
mod inquiry;
mod questions;
mod plan;
mod verdict;
mod notes;
pub mod listing;
pub mod sentence;
mod sequence;
mod times;
mod settled;
mod shares;
pub mod table;
pub mod flame;
pub mod json;
pub mod markdown;
pub mod html;
pub mod workflow;
pub mod calls;
mod rule;

pub use calls::{CallDiff, Comparable, comparable, diff_calls};
pub use estimate::Estimate;
pub(crate) use estimate::relative_interval;
pub(crate) use inquiry::ASIDE;
pub use inquiry::Inquiry;
pub use matching::{Kind, Match};
pub use plan::Plan;
pub(crate) use questions::ErrorRate;
pub use rule::{Figure, Rule, RuleError, RuleSubject, RuleVerdict};
pub use sequence::{RUNS_MIN, Sequence};
pub use series::{BLOCKS, Cell, Counts, Item, Quantity, Series, Side};
pub use settled::{Ending, LookRates, Standing};
pub(crate) use spread::LEAST_EFFECT;
pub use times::{RunTime, TimeRatio, Times};
pub use verdict::{Change, Verdicts, judge};

use crate::profile::filter::Filter;
use crate::profile::gather::{Each, Options};
use crate::recording::Recording;
use crate::recording::account::Account;
use crate::stacks::Tables;
use std::collections::HashSet;

/// What to compare, and the certainty that is required.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// Filters of samples and frames; grouping is always by function.
    pub gather: Options,
    /// Confidence of intervals, such as 0.95.
    pub confidence: f64,
    /// The largest share of false discoveries among the changes called certain.
    pub false_discoveries: f64,
    /// The smallest change of a share, 0 to 1, that is reported. A change is certain only if it is certainly
    /// larger than this.
    pub least_change: f64,
    /// The smallest share, 0 to 1, of both sides together at which a function is tested.
    pub least_share: f64,
    /// The functions to ask about.
    pub asked: Inquiry,
    /// Whether to show the hosts and folders of recordings.
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
            asked: Inquiry::default(),
            identify: false,
        }
    }
}

/// A finished comparison, of samples or of calls.
#[derive(Debug)]
pub struct Comparison<S, V> {
    /// Samples or calls, by function and block.
    pub series: S,
    /// The verdicts on functions and call paths.
    pub verdicts: V,
    /// The samples or calls, and the losses, of each side.
    pub accounts: [Account; 2],
    /// Descriptions of the compared recordings: A's, then B's.
    pub names: [Vec<String>; 2],
    /// Warnings: what makes the comparison weaker than it looks.
    pub warnings: Vec<String>,
    /// The times of whole runs, if the recordings are runs of a fixed piece of work.
    pub times: Option<Times>,
    /// Why no more runs were made, if it was for the comparison to decide.
    pub ending: Option<Ending>,
    /// The options that it was made with.
    pub options: DiffOptions,
}

/// A comparison of samples.
pub type Diff = Comparison<Series, Verdicts>;

impl<S, V> Comparison<S, V> {
    fn new(
        series: S,
        verdicts: V,
        sides: [&[&Recording]; 2],
        accounts: [Account; 2],
        mut warnings: Vec<String>,
        options: &DiffOptions,
    ) -> Self {
        let of_sides = notes::warnings(sides, &accounts, options.identify);
        warnings.extend(of_sides.iter().map(ToString::to_string));
        if options.gather.filter.unit != Some(crate::recording::unit::Unit::VcpuTime) {
            warnings.extend(notes::wall_times(sides, &options.gather.filter));
        }
        // Each recording has its own warnings; equal ones are listed once.
        let mut seen = HashSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let describe = |one: &&Recording| notes::describe(one, options.identify);
        Comparison {
            series,
            verdicts,
            accounts,
            names: sides.map(|side| side.iter().map(describe).collect()),
            warnings,
            times: None,
            ending: None,
            options: options.clone(),
        }
    }
}

impl Diff {
    /// The changes to list, certain ones first. Changes of call paths are included only if `paths` is set.
    pub(crate) fn listed(&self, paths: bool) -> impl Iterator<Item = &Change> {
        let counted = |change: &Change| self.series.items[change.item].counted;
        let changes = self.verdicts.changes.iter();
        changes.filter(move |change| paths || counted(change) != Quantity::Path)
    }
}

/// Compares `b` with `a`. `each` receives every sample, those of A's recordings first.
pub fn diff(
    a: &[&Recording],
    b: &[&Recording],
    tables: &Tables<'_>,
    options: &DiffOptions,
    progress: &dyn Fn(u64, u64),
    each: Option<&mut Each<'_>>,
) -> Diff {
    let (series, accounts, warnings) = series::gather([a, b], tables, options, progress, each);
    let verdicts = judge(&series, options);
    let unmatched = notes::unmatched(&series);
    let mut found = Comparison::new(series, verdicts, [a, b], accounts, warnings, options);
    found
        .warnings
        .extend(unmatched.map(|warning| warning.to_string()));
    found
}
