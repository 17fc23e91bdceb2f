//! Which changes are certain: of all that were asked about, those that the procedure of Benjamini
//! and Hochberg (Journal of the Royal Statistical Society B 57, 1995) passes, and that are large
//! enough to matter. Their intervals are widened for having been picked (Benjamini and Yekutieli,
//! Journal of the American Statistical Association 100, 2005).

use super::DiffOptions;
use super::bootstrap::{Estimate, block_length, estimate};
use super::series::{BLOCKS, Counted, Series};
use super::student;
use std::collections::{HashMap, HashSet};

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
    let is_path = |item: usize| series.items[item].counted == Counted::Path;
    let [functions, paths] = [false, true].map(|paths| {
        let members: Vec<usize> = (0..estimates.len())
            .filter(|item| is_path(*item) == paths)
            .collect();
        Family::judge(&questions(series, &members), &estimates, options)
    });
    let mut changes: Vec<Change> = estimates
        .iter()
        .enumerate()
        .map(|(item, estimate)| {
            let family = if is_path(item) { &paths } else { &functions };
            let certain =
                family.passed.contains(&item) && estimate.change().abs() >= options.least_change;
            let confidence = match certain {
                true => family.picked_confidence,
                false => options.method.confidence,
            };
            Change {
                item,
                estimate: *estimate,
                certain,
                interval: estimate.interval(confidence),
                relative: estimate.relative_interval(confidence),
                confidence,
                detectable: (student::critical(family.strict, estimate.df) + POWER)
                    * estimate.error,
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
        detectable: detectable(series, &estimates, functions.strict),
        changes,
    }
}

/// Questions that are judged together: those about functions, or those about call paths. The many
/// paths must not make it harder to be certain of a function.
struct Family {
    /// Items whose change is no accident.
    passed: HashSet<usize>,
    /// Confidence of their intervals.
    picked_confidence: f64,
    /// The probability of an accident that one of many must not exceed; the first step of the
    /// procedure.
    strict: f64,
}

impl Family {
    fn judge(questions: &[Vec<usize>], estimates: &[Estimate], options: &DiffOptions) -> Family {
        // The first item of a question is asked about, and answers for all.
        let asked: Vec<usize> = questions.iter().map(|items| items[0]).collect();
        let picked = benjamini_hochberg(estimates, &asked, options.false_discoveries);
        let count = asked.len().max(1) as f64;
        let confidence = options.method.confidence;
        let picked_confidence = match picked.len() {
            0 => confidence,
            some => 1.0 - (1.0 - confidence) * some as f64 / count,
        };
        let passed = questions.iter().filter(|items| picked.contains(&items[0]));
        Family {
            passed: passed.flatten().copied().collect(),
            picked_confidence,
            strict: options.false_discoveries / count,
        }
    }
}

fn counted(series: &Series, change: &Change) -> Counted {
    series.items[change.item].counted
}

/// The items of `members`, those together that have the same counts everywhere: a wrapper and what it
/// wraps are one question, asked once.
fn questions(series: &Series, members: &[usize]) -> Vec<Vec<usize>> {
    let mut questions: Vec<Vec<usize>> = Vec::new();
    let mut numbers: HashMap<Vec<u64>, usize> = HashMap::new();
    for item in members {
        let recordings = series.sides.iter().flat_map(|side| &side.recordings);
        let counts = recordings.flat_map(|counts| &counts.items[*item]);
        let key = counts.map(|count| count.to_bits()).collect();
        let number = *numbers.entry(key).or_insert(questions.len());
        if number == questions.len() {
            questions.push(Vec::new());
        }
        questions[number].push(*item);
    }
    questions
}

/// Which of the items `asked` about pass at false discovery rate `rate`.
fn benjamini_hochberg(estimates: &[Estimate], asked: &[usize], rate: f64) -> HashSet<usize> {
    let mut order = asked.to_vec();
    order.sort_by(|x, y| estimates[*x].p.total_cmp(&estimates[*y].p).then(x.cmp(y)));
    let count = order.len() as f64;
    let last = order
        .iter()
        .enumerate()
        .rfind(|(rank, item)| estimates[**item].p <= rate * (*rank as f64 + 1.0) / count)
        .map(|(rank, _)| rank);
    order.truncate(last.map_or(0, |last| last + 1));
    order.into_iter().collect()
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
        let asked: Vec<usize> = (0..p.len()).collect();
        let passed = benjamini_hochberg(&estimates, &asked, 0.05);
        assert_eq!(passed, HashSet::from([0, 1, 2, 3]));
    }
}
