//! Which changes are certain: of all that were asked about, those that the procedure of Benjamini
//! and Hochberg (Journal of the Royal Statistical Society B 57, 1995) passes, and that are large
//! enough to matter. Their intervals are widened for having been picked (Benjamini and Yekutieli,
//! Journal of the American Statistical Association 100, 2005).

use super::DiffOptions;
use super::bootstrap::{Estimate, block_length, estimate};
use super::series::{BLOCKS, Counted, Series};
use super::student;
use std::collections::HashMap;

/// One item's comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Index into [`Series::items`].
    pub item: usize,
    /// What was found.
    pub estimate: Estimate,
    /// It is no accident, and not too small.
    pub certain: bool,
    /// Interval of the change of the share, at the confidence below.
    pub interval: (f64, f64),
    /// Interval of the relative change; `None` where A has no sample.
    pub relative: Option<(f64, f64)>,
    /// Confidence of both intervals.
    pub confidence: f64,
    /// The change that would have been found with a probability of 80 %.
    pub detectable: f64,
}

/// All comparisons, certain ones first, then by how much is certain of the change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdicts {
    /// One for each item.
    pub changes: Vec<Change>,
    /// How many are certain.
    pub certain: usize,
    /// Blocks of time that were joined to one.
    pub joined_blocks: usize,
    /// For shares of 1 %, 10 % and 50 %: the change that these recordings could have shown.
    pub detectable: [f64; 3],
}

/// Shares for which it is said what could have been found.
pub const DETECTABLE_AT: [f64; 3] = [0.01, 0.1, 0.5];
/// The normal quantile of a power of 80 %.
const POWER: f64 = 0.841_621;

/// Judges all items of `series`.
pub fn judge(series: &Series, options: &DiffOptions) -> Verdicts {
    let estimates = estimate(series, options.method);
    let groups = groups(series);
    let passed = benjamini_hochberg(&estimates, &groups, options.false_discoveries);
    let first = |item: &usize| groups[*item] == *item;
    let picked = (0..passed.len())
        .filter(|item| passed[*item] && first(item))
        .count();
    let asked = (0..passed.len()).filter(first).count().max(1) as f64;
    let confidence = options.method.confidence;
    let picked_confidence = match picked {
        0 => confidence,
        _ => 1.0 - (1.0 - confidence) * picked as f64 / asked,
    };
    // What one of many must reach; the first step of the procedure.
    let strict = options.false_discoveries / asked;
    let mut changes: Vec<Change> = estimates
        .iter()
        .enumerate()
        .map(|(item, estimate)| {
            let certain = passed[item] && estimate.change().abs() >= options.least_change;
            let confidence = if certain {
                picked_confidence
            } else {
                confidence
            };
            Change {
                item,
                estimate: *estimate,
                certain,
                interval: estimate.interval(confidence),
                relative: estimate.relative_interval(confidence),
                confidence,
                detectable: (student::critical(strict, estimate.df) + POWER) * estimate.error,
            }
        })
        .collect();
    changes.sort_by(|x, y| {
        let sure = |change: &Change| match change.interval {
            (low, high) if low > 0.0 || high < 0.0 => low.abs().min(high.abs()),
            _ => 0.0,
        };
        let size = |change: &Change| change.estimate.change().abs();
        let kinds = counted(series, x).cmp(&counted(series, y));
        y.certain
            .cmp(&x.certain)
            .then(sure(y).total_cmp(&sure(x)))
            .then(size(y).total_cmp(&size(x)))
            .then(kinds)
            .then(x.item.cmp(&y.item))
    });
    Verdicts {
        certain: changes.iter().filter(|change| change.certain).count(),
        joined_blocks: block_length(series),
        detectable: detectable(series, &estimates, strict),
        changes,
    }
}

fn counted(series: &Series, change: &Change) -> Counted {
    series.items[change.item].counted
}

/// For each item the first that has the same counts everywhere: a wrapper and what it wraps are
/// one question, asked once.
fn groups(series: &Series) -> Vec<usize> {
    let mut first: HashMap<Vec<u64>, usize> = HashMap::new();
    let numbers = 0..series.items.len();
    let group = |item: usize| {
        let recordings = series.sides.iter().flat_map(|side| &side.recordings);
        let counts = recordings.flat_map(|counts| &counts.items[item]);
        let key: Vec<u64> = counts.map(|count| count.to_bits()).collect();
        *first.entry(key).or_insert(item)
    };
    numbers.map(group).collect()
}

/// Which of the estimates pass at false discovery rate `rate`; of a group only its first is asked
/// about, and answers for all.
fn benjamini_hochberg(estimates: &[Estimate], groups: &[usize], rate: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..estimates.len())
        .filter(|item| groups[*item] == *item)
        .collect();
    order.sort_by(|x, y| estimates[*x].p.total_cmp(&estimates[*y].p).then(x.cmp(y)));
    let asked = order.len() as f64;
    let last = order
        .iter()
        .enumerate()
        .rfind(|(rank, item)| estimates[**item].p <= rate * (*rank as f64 + 1.0) / asked)
        .map(|(rank, _)| rank);
    let mut passed = vec![false; estimates.len()];
    for item in order.iter().take(last.map_or(0, |last| last + 1)) {
        passed[*item] = true;
    }
    groups.iter().map(|first| passed[*first]).collect()
}

/// What could have been found of functions of some typical shares, with the design effect that
/// this workload's own functions show.
fn detectable(series: &Series, estimates: &[Estimate], strict: f64) -> [f64; 3] {
    let mut effects: Vec<f64> = estimates.iter().map(|one| one.design_effect).collect();
    effects.retain(|effect| effect.is_finite());
    effects.sort_by(f64::total_cmp);
    let effect = effects.get(effects.len() / 2).copied().unwrap_or(1.0);
    let t = student::critical(strict, BLOCKS as f64) + POWER;
    let totals = [0, 1].map(|side| series.sides[side].total().max(1.0));
    DETECTABLE_AT.map(|share| {
        let variance = share * (1.0 - share) * (1.0 / totals[0] + 1.0 / totals[1]);
        t * (variance * effect).sqrt()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_up_procedure_passes_what_its_paper_passes() {
        // The example of the paper's section 4.1: 15 hypotheses, four pass at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let estimates = p.map(|p| Estimate {
            a: 0.0,
            b: 0.0,
            error: 1.0,
            log_error: 1.0,
            df: 1.0,
            p,
            design_effect: 1.0,
        });
        let groups: Vec<usize> = (0..p.len()).collect();
        let passed = benjamini_hochberg(&estimates, &groups, 0.05);
        assert_eq!(passed.iter().filter(|passed| **passed).count(), 4);
        assert!(passed[3] && !passed[4]);
    }
}
