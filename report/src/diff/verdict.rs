//! Which changes are certain: of all that were asked about, those that the procedure of Benjamini
//! and Hochberg (Journal of the Royal Statistical Society B 57, 1995) passes. What it is asked is
//! not whether a share changed at all, which between two runs it always does a little, but whether
//! it changed by more than the least change worth telling. The more a share can change, the more of
//! the probability of error it is given (weights as in Genovese, Roeder and Wasserman, Biometrika
//! 93, 2006): the hundreds of small functions must not hide the large one. Intervals of what passes
//! are widened for having been picked (Benjamini and Yekutieli, Journal of the American Statistical
//! Association 100, 2005).

use super::DiffOptions;
use super::bootstrap::{Estimate, block_length, estimate};
use super::series::{BLOCKS, Counted, Series, Side};
use super::student;
use std::collections::{HashMap, HashSet};

/// One item's comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Index into [`Series::items`].
    pub item: usize,
    /// What was found.
    pub estimate: Estimate,
    /// It is no accident that it looks larger than the least change worth telling.
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
    let estimates = estimate(series, options.method, options.least_change);
    let is_path = |item: usize| series.items[item].counted == Counted::Path;
    let [functions, paths] = [false, true].map(|paths| {
        let members: Vec<usize> = (0..estimates.len())
            .filter(|item| is_path(*item) == paths && series.is_matched(&series.items[*item]))
            .collect();
        Family::judge(series, &questions(series, &members), &estimates, options)
    });
    let mut changes: Vec<Change> = estimates
        .iter()
        .enumerate()
        .map(|(item, estimate)| {
            let family = if is_path(item) { &paths } else { &functions };
            let certain = family.passed.contains(&item);
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
                detectable: options.least_change
                    + family.needed(leeway(series, item), estimate.df) * estimate.error,
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
        detectable: detectable(series, &estimates, &functions, options),
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
    /// The probability of an accident that the first step of the procedure allows a share, for each
    /// unit of its leeway.
    strict: f64,
}

impl Family {
    fn judge(
        series: &Series,
        questions: &[Vec<usize>],
        estimates: &[Estimate],
        options: &DiffOptions,
    ) -> Family {
        // The first item of a question is asked about, and answers for all.
        let leeways = questions.iter().map(|items| leeway(series, items[0]));
        let whole: f64 = leeways.clone().sum();
        let count = questions.len().max(1) as f64;
        let weighted = |(items, leeway): (&Vec<usize>, f64)| {
            let p = estimates[items[0]].p;
            (items[0], p * whole / (leeway * count))
        };
        let asked: Vec<(usize, f64)> = questions.iter().zip(leeways).map(weighted).collect();
        let picked = benjamini_hochberg(asked, options.false_discoveries);
        let confidence = options.method.confidence;
        let picked_confidence = match picked.len() {
            0 => confidence,
            some => 1.0 - (1.0 - confidence) * some as f64 / count,
        };
        let passed = questions.iter().filter(|items| picked.contains(&items[0]));
        Family {
            passed: passed.flatten().copied().collect(),
            picked_confidence,
            strict: options.false_discoveries / whole.max(f64::MIN_POSITIVE),
        }
    }

    /// How many standard errors a share with this leeway must change by, beyond the least change, to
    /// be called certain with a probability of 80 %.
    fn needed(&self, leeway: f64, df: f64) -> f64 {
        student::critical((self.strict * leeway).min(1.0), df) + POWER
    }
}

/// How much the share of an item can change: the variance of a sample's being of it. Both sides
/// together decide it, which says nothing about their difference.
fn leeway(series: &Series, item: usize) -> f64 {
    let count: f64 = series.sides.iter().map(|side| side.count(item)).sum();
    let total: f64 = series.sides.iter().map(Side::total).sum();
    variance(count / total.max(1.0)).max(f64::MIN_POSITIVE)
}

/// The variance of a sample's being of something with this share.
pub(super) fn variance(share: f64) -> f64 {
    share * (1.0 - share)
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

/// Which of the items `asked` about, each with its probability of an accident, pass at false
/// discovery rate `rate`.
fn benjamini_hochberg(mut asked: Vec<(usize, f64)>, rate: f64) -> HashSet<usize> {
    asked.sort_by(|x, y| x.1.total_cmp(&y.1).then(x.0.cmp(&y.0)));
    let count = asked.len() as f64;
    let last = asked
        .iter()
        .enumerate()
        .rfind(|(rank, (_, p))| *p <= rate * (*rank as f64 + 1.0) / count)
        .map(|(rank, _)| rank);
    asked.truncate(last.map_or(0, |last| last + 1));
    asked.into_iter().map(|(item, _)| item).collect()
}

/// What could have been found of functions of some typical shares, with the design effect that
/// this workload's own functions show.
fn detectable(
    series: &Series,
    estimates: &[Estimate],
    functions: &Family,
    options: &DiffOptions,
) -> [f64; 3] {
    let mut effects: Vec<f64> = estimates.iter().map(|one| one.design_effect).collect();
    effects.retain(|effect| effect.is_finite());
    effects.sort_by(f64::total_cmp);
    let effect = effects.get(effects.len() / 2).copied().unwrap_or(1.0);
    let totals = [0, 1].map(|side| series.sides[side].total().max(1.0));
    DETECTABLE_AT.map(|share| {
        let error = variance(share) * (1.0 / totals[0] + 1.0 / totals[1]) * effect;
        options.least_change + functions.needed(variance(share), BLOCKS as f64) * error.sqrt()
    })
}

#[cfg(test)]
mod tests {
    use super::super::series::{Counts, Item};
    use super::*;
    use crate::tree::ROOT;

    /// A large function and many small ones, with the same counts on both sides.
    fn one_among_many(small: usize) -> Series {
        let item = |function| Item {
            counted: Counted::Own,
            function,
            node: ROOT,
        };
        let mut items = vec![vec![4000.0]];
        items.extend((0..small).map(|number| vec![20.0 + number as f64]));
        let counts = Counts {
            totals: vec![10_000.0],
            items,
        };
        let side = Side {
            recordings: vec![counts],
        };
        Series {
            items: (0..=small as u32).map(item).collect(),
            sides: [side.clone(), side],
            ..Series::default()
        }
    }

    fn estimate_with(p: f64) -> Estimate {
        Estimate {
            a: 0.0,
            b: 0.0,
            error: 1.0,
            log_error: 1.0,
            df: 1.0,
            p,
            design_effect: 1.0,
        }
    }

    #[test]
    fn small_functions_do_not_hide_a_large_one() {
        let series = one_among_many(100);
        let items: Vec<usize> = (0..101).collect();
        let questions = questions(&series, &items);
        assert_eq!(questions.len(), 101);
        let passed = |likely: usize| {
            let p = |item| if item == likely { 0.004 } else { 0.9 };
            let estimates: Vec<Estimate> = (0..101).map(|item| estimate_with(p(item))).collect();
            Family::judge(&series, &questions, &estimates, &DiffOptions::default()).passed
        };
        // Without weights both would need 0.05 / 101.
        assert_eq!(passed(0), HashSet::from([0]));
        assert_eq!(passed(7), HashSet::new());
    }

    #[test]
    fn the_step_up_procedure_passes_what_its_paper_passes() {
        // The example of the paper's section 4.1: 15 hypotheses, four pass at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let passed = benjamini_hochberg(p.into_iter().enumerate().collect(), 0.05);
        assert_eq!(passed, HashSet::from([0, 1, 2, 3]));
    }
}
