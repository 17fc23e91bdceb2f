//! Decides which changes are certain: those that are too large to be chance. The test is not whether a share
//! changed at all, because it always does a little between two runs. The test is whether it changed by more
//! than the smallest change to report.
//!
//! Each question has its part of the error rate (`questions`). Questions are accepted step by step, the most
//! significant first. The n-th is tested at n times its part, as in the procedure of Benjamini and Hochberg
//! (Journal of the Royal Statistical Society B 57, 1995).
//!
//! Shares sum to one, so where one function grows all others shrink. Each step therefore tests shares of the
//! samples outside the changes found so far. A change is certain if it is significant among all samples, and
//! also among those outside all changes that were found (`tally`). An item that only makes room for others is
//! `pushed`. A caller or callee of a changed function is certain too, because its time did change. Functions that
//! weren't asked about push as well: those whose own time changed are outside the reference from the start.
//!
//! An interval has the confidence of its item's own test. So the intervals of certain changes exclude zero,
//! and others may not.

use super::DiffOptions;
use super::estimate::{Estimate, Whole, variance};
use super::inquiry::{ASIDE, Inquiry};
use super::plan::{self, POWER, Plan};
use super::questions::Questions;
use super::series::{Quantity, Series};
use super::tally::{Scope, Tally};
use std::collections::BTreeSet;

/// One item's comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Index into [`Series::items`].
    pub item: usize,
    /// Its change.
    pub estimate: Estimate,
    /// Its change relative to the samples outside the changes that were found; `None` if nothing was, or hardly any
    /// sample is outside.
    pub outside: Option<Estimate>,
    /// Whether the change is certainly larger than the smallest one to report, and not `pushed`.
    pub certain: bool,
    /// Whether its share changed only because those of other functions did.
    pub pushed: bool,
    /// Interval of the change of the share, with the confidence below.
    pub interval: (f64, f64),
    /// Interval of the relative change; `None` if a side has no sample.
    pub relative: Option<(f64, f64)>,
    /// Confidence of both intervals.
    pub confidence: f64,
    /// The change that would have been found with a probability of 80 %.
    pub detectable: f64,
}

/// All comparisons: the certain ones first, then by the size that is certain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdicts {
    /// One for each item.
    pub changes: Vec<Change>,
    /// Whether differences between runs were measured.
    pub runs_measured: bool,
    /// The change that these recordings could have shown, for shares of 1 %, 10 % and 50 %.
    pub detectable: [f64; 3],
    /// The numbers of recordings that would show a change.
    pub plans: Vec<Plan>,
}

/// Shares for which the sensitivity is shown.
pub(crate) const DETECTABLE_AT: [f64; 3] = [0.01, 0.1, 0.5];
/// Most changes that are found step by step.
const STEPS_MAX: usize = 64;

/// Judges all items of `series`.
pub fn judge(series: &Series, options: &DiffOptions) -> Verdicts {
    let tally = Tally::new(series, &BTreeSet::new(), Scope::Item);
    let whole = Whole::new(series, &tally, options.least_change);
    let (estimates, runs) = whole.estimates(&tally);
    let weight = |item: usize| options.asked.weight(series, &series.items[item]);
    let leeways = (0..estimates.len()).map(|item| weight(item) * whole.known[item].leeway);
    let leeways: Vec<f64> = leeways.collect();
    let is_path = |item: usize| series.items[item].counted == Quantity::Path;
    let base = not_asked(series, &tally, &whole, &estimates, options);
    let [functions, paths] = [false, true].map(|paths| {
        let members = (0..estimates.len()).filter(|item| is_path(*item) == paths);
        let members: Vec<usize> = members
            .filter(|item| series.is_matched(&series.items[*item]) && weight(*item) > 0.0)
            .collect();
        let rate = options.false_discoveries;
        let questions = Questions::new(&tally, &members, &|item| leeways[item], rate);
        let mut family = Family::new(questions);
        family.judge(series, &whole, &estimates, &leeways, &base);
        family
    });
    let change = |item: usize| {
        let family = if is_path(item) { &paths } else { &functions };
        family.change(item, &estimates[item], leeways[item], options)
    };
    let mut changes: Vec<Change> = (0..estimates.len()).map(change).collect();
    sort(&mut changes, series);
    let typical = plan::TypicalFunction::new(series, &estimates, &runs);
    let detectable = DETECTABLE_AT.map(|share| {
        let leeway = variance(share);
        let allowed = functions.allowed(leeway, 1);
        options.least_change + typical.detectable(leeway, allowed)
    });
    let plans = if changes.is_empty() {
        Vec::new()
    } else {
        typical.plans(options.least_change, |leeway| functions.allowed(leeway, 1))
    };
    Verdicts {
        runs_measured: runs.is_measured,
        detectable,
        plans,
        changes,
    }
}

/// The functions that nobody asked about whose own time changed. They push those that were asked about.
fn not_asked(
    series: &Series,
    tally: &Tally,
    whole: &Whole,
    estimates: &[Estimate],
    options: &DiffOptions,
) -> BTreeSet<usize> {
    if options.asked == Inquiry::default() {
        return BTreeSet::new();
    }
    let is_asked = |item: usize| options.asked.weight(series, &series.items[item]) > 0.0;
    // Of two that make up for each other, the one that is asked about is to be found.
    let weight = |item: usize| if is_asked(item) { 1.0 } else { ASIDE };
    let leeways = (0..estimates.len()).map(|item| weight(item) * whole.known[item].leeway);
    let leeways: Vec<f64> = leeways.collect();
    let own = (0..estimates.len()).filter(|item| {
        let item = &series.items[*item];
        item.counted == Quantity::Own && series.is_matched(item)
    });
    let own: Vec<usize> = own.collect();
    let rate = options.false_discoveries;
    let questions = Questions::new(tally, &own, &|item| leeways[item], rate);
    let mut family = Family::new(questions);
    family.judge(series, whole, estimates, &leeways, &BTreeSet::new());
    let mut changed = family.apart;
    changed.retain(|item| !is_asked(*item));
    changed
}

fn sort(changes: &mut [Change], series: &Series) {
    changes.sort_by(|x, y| {
        let sure = |change: &Change| match change.interval {
            (low, high) if low > 0.0 || high < 0.0 => low.abs().min(high.abs()),
            _ => 0.0,
        };
        let size = |change: &Change| change.estimate.change().abs();
        let kind = |change: &Change| series.items[change.item].counted;
        y.certain
            .cmp(&x.certain)
            .then(x.pushed.cmp(&y.pushed))
            .then(sure(y).total_cmp(&sure(x)))
            .then(size(y).total_cmp(&size(x)))
            .then(kind(x).cmp(&kind(y)))
            .then(x.item.cmp(&y.item))
    });
}

/// Questions that are tested together: those about functions, or those about call paths. The many paths must
/// not make it harder to be certain of a function.
struct Family {
    /// Items whose change is significant.
    passed: BTreeSet<usize>,
    /// Items whose change is due to other items.
    pushed: BTreeSet<usize>,
    /// The items that steps found to change.
    apart: BTreeSet<usize>,
    /// The changes relative to the samples outside these, and outside those known before.
    outside: Option<Vec<Estimate>>,
    questions: Questions,
}

impl Family {
    fn new(questions: Questions) -> Family {
        Family {
            passed: BTreeSet::new(),
            pushed: BTreeSet::new(),
            apart: BTreeSet::new(),
            outside: None,
            questions,
        }
    }

    /// The probability of a false positive that a share with this leeway is allowed at a step, counted from 1.
    fn allowed(&self, leeway: f64, step: usize) -> f64 {
        self.questions.allowed(leeway, step)
    }

    /// Judges the questions. Items of `base`, which are none of them, are known to change.
    fn judge(
        &mut self,
        series: &Series,
        whole: &Whole,
        estimates: &[Estimate],
        leeways: &[f64],
        base: &BTreeSet<usize>,
    ) {
        let allowed =
            |family: &Family, item: usize, step: usize| family.allowed(leeways[item], step);
        let outside_of = |apart: &BTreeSet<usize>, scope: Scope| {
            let changed: BTreeSet<usize> = base.union(apart).copied().collect();
            if changed.is_empty() {
                return Some(estimates.to_vec());
            }
            whole.against(series, &changed, scope)
        };
        let mut apart = BTreeSet::new();
        let mut outside = outside_of(&apart, Scope::Outside);
        while let Some(found) = outside.as_ref().filter(|_| apart.len() < STEPS_MAX) {
            let step = apart.len() + 1;
            // The first item of a question is tested, and the result applies to all its items.
            let ratio = |item: usize| {
                let p = found[item].p.max(estimates[item].p);
                p / allowed(self, item, step).max(f64::MIN_POSITIVE)
            };
            let open = self.questions.items.iter().map(|items| items[0]);
            let open = open.filter(|item| !apart.contains(item));
            let best = open.map(|item| (ratio(item), item)).min_by(|x, y| {
                // If two parts of a whole change, the one that grew is chosen.
                let grew = |item: usize| estimates[item].change() > 0.0;
                let grown = grew(y.1).cmp(&grew(x.1));
                x.0.total_cmp(&y.0).then(grown).then(x.1.cmp(&y.1))
            });
            let Some((_, item)) = best.filter(|(ratio, _)| *ratio <= 1.0) else {
                break;
            };
            apart.insert(item);
            outside = outside_of(&apart, Scope::Outside);
        }
        let measured = outside_of(&apart, Scope::Item);
        for items in &self.questions.items {
            let first = items[0];
            let limit = allowed(self, first, apart.len());
            if estimates[first].p > limit {
                continue;
            }
            let stays = measured.as_ref().is_none_or(|measured| {
                let same_way = measured[first].change() * estimates[first].change() > 0.0;
                measured[first].p <= limit && same_way
            });
            if apart.contains(&first) || stays {
                self.passed.extend(items)
            } else {
                self.pushed.extend(items)
            }
        }
        let is_outside = !(base.is_empty() && apart.is_empty());
        self.outside = measured.filter(|_| is_outside);
        self.apart = apart;
    }

    fn change(
        &self,
        item: usize,
        estimate: &Estimate,
        leeway: f64,
        options: &DiffOptions,
    ) -> Change {
        let certain = self.passed.contains(&item);
        let confidence = if certain {
            1.0 - self.allowed(leeway, self.apart.len())
        } else {
            options.confidence
        };
        let needed = estimate.half(1.0 - self.allowed(leeway, 1));
        Change {
            item,
            estimate: *estimate,
            outside: self.outside.as_ref().map(|outside| outside[item]),
            certain,
            pushed: self.pushed.contains(&item),
            interval: estimate.interval(confidence),
            relative: estimate.relative_interval(confidence),
            confidence,
            // No share changes by more.
            detectable: (options.least_change + needed + POWER * estimate.error()).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::matching::{Kind, Match};
    use super::super::series::{BLOCKS, Cell, Counts, Item, Side};
    use super::*;
    use crate::profile::tree::ROOT;

    /// Functions with these numbers of samples in each of 120 blocks, plus or minus one.
    fn series(a: &[&[f64]], b: &[&[f64]]) -> Series {
        let functions = a[0].len();
        let recording = |(number, counts): (usize, &&[f64])| Counts {
            cells: (0..BLOCKS)
                .flat_map(|block| (0..functions).map(move |stack| (block, stack)))
                .map(|(block, stack)| Cell {
                    block,
                    stack,
                    count: counts[stack] + ((block * 7 + stack * 3 + number) % 3) as f64 - 1.0,
                })
                .collect(),
        };
        let side = |runs: &[&[f64]]| Side {
            recordings: runs.iter().enumerate().map(recording).collect(),
        };
        Series {
            functions: (0..functions)
                .map(|number| Match {
                    name: format!("function {number}"),
                    module: String::new(),
                    kind: Kind::Same,
                    made: false,
                    own: true,
                })
                .collect(),
            items: (0..functions as u32)
                .map(|function| Item {
                    counted: Quantity::Own,
                    function,
                    node: ROOT,
                })
                .collect(),
            stacks: (0..functions).map(|item| vec![item]).collect(),
            sides: [side(a), side(b)],
            ..Series::default()
        }
    }

    fn certain(verdicts: &Verdicts) -> Vec<usize> {
        let certain = verdicts.changes.iter().filter(|change| change.certain);
        certain.map(|change| change.item).collect()
    }

    #[test]
    fn what_makes_room_for_another_is_not_certain() {
        let before: &[f64] = &[50.0, 40.0, 30.0];
        let after: &[f64] = &[70.0, 40.0, 30.0];
        let series = series(&[before; 3], &[after; 3]);
        let verdicts = judge(&series, &DiffOptions::default());
        assert_eq!(certain(&verdicts), [0]);
        let pushed = verdicts.changes.iter().filter(|change| change.pushed);
        assert_eq!(pushed.map(|change| change.item).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_one_run_alone_does_is_not_certain() {
        let usual: &[f64] = &[50.0, 40.0, 30.0, 1.0];
        let odd: &[f64] = &[50.0, 40.0, 30.0, 60.0];
        for runs in [3, 5, 8] {
            let equal = vec![usual; runs];
            let mut with_odd = equal.clone();
            with_odd[1] = odd;
            let verdicts = judge(&series(&equal, &with_odd), &DiffOptions::default());
            assert_eq!(certain(&verdicts), Vec::<usize>::new(), "{runs} runs");
            let all = judge(&series(&equal, &vec![odd; runs]), &DiffOptions::default());
            assert_eq!(certain(&all), [3], "{runs} runs");
        }
    }

    /// The blocks of a run that stays in one function for half a second on average, and then goes to a random one.
    fn phases(random: &mut fastrand::Rng) -> Counts {
        const SHARES: [f64; 8] = [0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.01, 0.01];
        let (mut stack, mut left) = (0, 0.0);
        let cell = |block| {
            left -= 1.0;
            if left < 0.0 {
                let mut draw = random.f64();
                let found = SHARES.iter().position(|share| {
                    draw -= share;
                    draw < 0.0
                });
                stack = found.unwrap_or(0);
                left = -6.0 * (1.0 - random.f64()).ln();
            }
            Cell {
                block,
                stack,
                count: 10.0,
            }
        };
        Counts {
            cells: (0..BLOCKS).map(cell).collect(),
        }
    }

    #[test]
    fn equal_runs_in_random_phases_hardly_ever_alarm() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut pair = || {
            let mut made = series(&[&[0.0; 8]], &[]);
            made.sides = [(); 2].map(|()| Side {
                recordings: (0..5).map(|_| phases(&mut random)).collect(),
            });
            !certain(&judge(&made, &DiffOptions::default())).is_empty()
        };
        let alarms = (0..40).filter(|_| pair()).count();
        // With a rate of 5 %, more than six of 40 alarm in one of 295 such tests.
        assert!(alarms <= 6, "{alarms} of 40 pairs of equal sides alarm");
    }

    #[test]
    fn who_asks_about_some_functions_sees_that_another_pushed_them() {
        let options = DiffOptions {
            asked: Inquiry {
                functions: vec!["function 1".to_owned(), "function 2".to_owned()],
                own: false,
            },
            ..DiffOptions::default()
        };
        let before: &[f64] = &[60.0, 40.0, 30.0, 50.0];
        // Only the function that isn't asked about became faster.
        let after: &[f64] = &[30.0, 40.0, 30.0, 50.0];
        let verdicts = judge(&series(&[before; 4], &[after; 4]), &options);
        assert_eq!(certain(&verdicts), Vec::<usize>::new());
        let pushed = verdicts.changes.iter().filter(|change| change.pushed);
        assert_eq!(pushed.map(|change| change.item).collect::<Vec<_>>(), [1, 2]);
        // One that is asked about changed as well.
        let after: &[f64] = &[30.0, 48.0, 30.0, 50.0];
        let verdicts = judge(&series(&[before; 4], &[after; 4]), &options);
        assert_eq!(certain(&verdicts), [1]);
        // A library's, which is asked about, grew; the user's own only makes room for it.
        let (before, after): (&[f64], &[f64]) = (&[60.0, 40.0], &[60.0, 60.0]);
        let mut grown = series(&[before; 4], &[after; 4]);
        grown.functions[1].own = false;
        assert_eq!(certain(&judge(&grown, &options)), [1]);
    }

    #[test]
    fn intervals_of_certain_changes_leave_out_zero_and_agree_with_their_probability() {
        let before: &[f64] = &[50.0, 40.0, 30.0, 3.0];
        let after: &[f64] = &[56.0, 40.0, 31.0, 3.0];
        let series = series(&[before; 2], &[after; 2]);
        let verdicts = judge(&series, &DiffOptions::default());
        assert!(!certain(&verdicts).is_empty());
        for change in &verdicts.changes {
            let (low, high) = change.interval;
            let leaves_out_zero = low > 0.0 || high < 0.0;
            assert!(leaves_out_zero || !change.certain, "{change:?}");
            assert!(change.estimate.p <= 1.0 - change.confidence || !change.certain);
        }
    }

    #[test]
    fn what_could_not_be_found_again_is_never_certain() {
        let before: &[f64] = &[50.0, 40.0, 1.0];
        let after: &[f64] = &[50.0, 40.0, 60.0];
        let mut series = series(&[before; 3], &[after; 3]);
        assert!(certain(&judge(&series, &DiffOptions::default())).contains(&2));
        series.functions[2].kind = Kind::Unmatched;
        assert!(!certain(&judge(&series, &DiffOptions::default())).contains(&2));
    }
}
