//! Decides which functions changed. Each function is one question, and the rate of false discoveries among them is
//! limited as in the diff: each has the part of the error rate that is proportional to how much its share can change.
//! The most significant is accepted first, and the n-th is tested at n times its part (Benjamini and Hochberg, Journal
//! of the Royal Statistical Society B 57, 1995).
//!
//! Shares sum to one, so where one function grows all others shrink. A function changed only if its share did, both of
//! all samples and of those outside the other functions that changed. One that only made room is `pushed`.
//!
//! What Student's t finds is compared with what it finds in shuffled recordings (`shuffles`).
//!
//! Recordings that are near each other in time are often alike, because of the machine or the load. The largest
//! functions show how much, and variances grow by that. So a series that wanders has few certain changes.

use super::TrendOptions;
use super::chance::Chance;
use super::shares::{self, Shares};
use super::shuffles;
use super::steps::{Best, Search};
use crate::diff::ErrorRate;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Functions that show whether neighbouring recordings are alike: the largest.
const LOOKED_AT: usize = 6;
/// Most functions that are found to change, step by step.
const FOUND_MAX: usize = 64;
/// The largest autocorrelation that is reckoned with.
const ALIKE_MAX: f64 = 0.9;

/// The samples of all functions in all recordings, and what is asked of them.
pub(super) struct Judge<'t> {
    /// Samples of each recording.
    pub wholes: &'t [f64],
    /// Samples of each function, by recording.
    pub counts: &'t [Vec<f64>],
    /// The weight of the question about each function.
    pub weights: &'t [f64],
    /// For each recording, whether a level may begin with it.
    pub may_begin: &'t [bool],
    pub options: &'t TrendOptions,
}

/// The verdict on a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Verdict {
    /// First recordings of new levels, if it certainly changed.
    pub steps: Vec<usize>,
    /// Whether its share changed only because others did.
    pub pushed: bool,
    /// The probability that chance alone finds as much in its share of all samples.
    pub p: f64,
    /// The probability at which it was tested.
    pub allowed: f64,
}

/// All verdicts.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub functions: Vec<Verdict>,
    /// The factor of variances by which successive recordings are alike.
    pub inflation: f64,
}

impl Judge<'_> {
    pub(super) fn judge(&self) -> Verdicts {
        let whole: Vec<Shares> = self
            .counts
            .iter()
            .map(|it| Shares::new(it, self.wholes))
            .collect();
        let inflation = self.inflation(&whole);
        let leeways: Vec<f64> = (0..whole.len()).map(|it| self.leeway(it)).collect();
        let rate = ErrorRate::new(self.options.false_discoveries, &leeways);
        let bests = whole.par_iter().enumerate();
        let bests: Vec<Option<Best>> = bests
            .map(|(it, shares)| self.search(it, inflation, None).best(shares))
            .collect();
        let of_student = |it: usize| bests[it].as_ref().map_or(1.0, |best| best.p);
        let open = could_be_certain(whole.len(), |it, count| {
            of_student(it) <= rate.allowed(leeways[it], count)
        });
        // Shuffles take their time.
        let chances = open.par_iter().filter_map(|it| {
            let best = bests[*it].as_ref()?;
            let search = self.search(*it, inflation, None);
            Some((*it, shuffles::chance(&whole[*it], &search, &best.at)))
        });
        let chances: BTreeMap<usize, Chance> = chances.collect();
        let of_all: Vec<f64> = (0..whole.len())
            .map(|it| {
                let student = of_student(it);
                chances.get(&it).map_or(student, |chance| chance.p(student))
            })
            .collect();
        let p = |function: usize, shares: &Shares| {
            let best = self
                .search(function, inflation, chances.get(&function))
                .best(shares);
            best.map_or(1.0, |best| best.p)
        };
        let mut apart: BTreeMap<usize, f64> = BTreeMap::new();
        while apart.len() < FOUND_MAX {
            let step = apart.len() + 1;
            let left = open.iter().filter(|it| !apart.contains_key(*it));
            let ratios = left.map(|it| {
                let p = p(*it, &self.outside(*it, &apart)).max(of_all[*it]);
                (
                    p / rate.allowed(leeways[*it], step).max(f64::MIN_POSITIVE),
                    *it,
                )
            });
            let Some((ratio, function)) = ratios.min_by(|x, y| {
                // If two parts of a whole change, the one that grew is chosen.
                let grown = self.grew(y.1).cmp(&self.grew(x.1));
                x.0.total_cmp(&y.0).then(grown).then(x.1.cmp(&y.1))
            }) else {
                break;
            };
            if ratio > 1.0 {
                break;
            }
            apart.insert(function, ratio);
        }
        let count = apart.len().max(1);
        let verdict = |function: usize| {
            let allowed = rate.allowed(leeways[function], count);
            let mut verdict = Verdict {
                p: of_all[function],
                allowed,
                ..Verdict::default()
            };
            if of_all[function] <= allowed {
                let outside = self.outside(function, &apart);
                let chance = chances.get(&function);
                let search = self.search(function, inflation, chance);
                verdict.steps = self.steps([&whole[function], &outside], search, allowed);
                verdict.pushed = verdict.steps.is_empty();
            }
            verdict
        };
        Verdicts {
            functions: (0..whole.len()).map(verdict).collect(),
            inflation,
        }
    }

    fn search<'s>(
        &'s self,
        function: usize,
        inflation: f64,
        chance: Option<&'s Chance>,
    ) -> Search<'s> {
        let slope = shares::slope(self.share(function));
        Search {
            may_begin: self.may_begin,
            inflation,
            least: self.options.least_change / slope.max(f64::MIN_POSITIVE),
            chance,
        }
    }

    /// The steps of a function outside others that changed, where its share of all samples changed likewise.
    fn steps(
        &self,
        [whole, outside]: [&Shares; 2],
        search: Search<'_>,
        allowed: f64,
    ) -> Vec<usize> {
        let mut steps = search.all(outside, allowed);
        // Again, without the differences at the steps.
        steps = search.all(&outside.clone().without(&steps), allowed);
        let ends: Vec<usize> = steps.iter().copied().chain([self.wholes.len()]).collect();
        let mut first = 0;
        steps.retain(|at| {
            let end = ends.iter().copied().find(|end| end > at).unwrap_or(*at);
            let change = |shares: &Shares| {
                let [before, after] =
                    [first..*at, *at..end].map(|it| shares::mean(&shares.values[it]));
                after - before
            };
            let stays = change(whole) * change(outside) > 0.0;
            if stays {
                first = *at;
            }
            stays
        });
        steps
    }

    /// The shares of a function among the samples outside the functions `apart`.
    fn outside(&self, function: usize, apart: &BTreeMap<usize, f64>) -> Shares {
        let others = apart.keys().filter(|other| **other != function);
        let mut wholes = self.wholes.to_vec();
        for other in others {
            for (whole, count) in wholes.iter_mut().zip(&self.counts[*other]) {
                *whole -= count;
            }
        }
        Shares::new(&self.counts[function], &wholes)
    }

    /// The factor of variances, from the largest functions.
    fn inflation(&self, whole: &[Shares]) -> f64 {
        let mut largest: Vec<usize> = (0..whole.len()).collect();
        largest.sort_by(|a, b| self.share(*b).total_cmp(&self.share(*a)).then(a.cmp(b)));
        largest.truncate(LOOKED_AT);
        let ratios = largest.iter().map(|it| whole[*it].ratio()).collect();
        // Half the standard error of one function's, because many are looked at.
        let margin = (2.0 / self.wholes.len().max(1) as f64).sqrt() / 2.0;
        let alike = (shares::median(ratios) - 1.0 - margin).clamp(0.0, ALIKE_MAX);
        (1.0 + alike) / (1.0 - alike).powi(2)
    }

    /// The share of a function in all recordings.
    fn share(&self, function: usize) -> f64 {
        let whole: f64 = self.wholes.iter().sum();
        self.counts[function].iter().sum::<f64>() / whole.max(1.0)
    }

    /// How much the share of a function can change, times the weight of its question.
    fn leeway(&self, function: usize) -> f64 {
        let share = self.share(function);
        share * (1.0 - share) * self.weights[function]
    }

    /// Whether a function's share is larger in the second half of the recordings.
    fn grew(&self, function: usize) -> bool {
        let middle = self.wholes.len() / 2;
        let share = |range: std::ops::Range<usize>| {
            let count: f64 = self.counts[function][range.clone()].iter().sum();
            count / self.wholes[range].iter().sum::<f64>().max(1.0)
        };
        share(middle..self.wholes.len()) > share(0..middle)
    }
}

/// Those of `all` functions that are significant enough if as many were accepted: no more can be certain.
/// `is_significant` says it of a function, where so many are.
fn could_be_certain(all: usize, is_significant: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut count = FOUND_MAX;
    loop {
        let open: Vec<usize> = (0..all).filter(|it| is_significant(*it, count)).collect();
        if open.len() >= count || open.is_empty() {
            return open;
        }
        count = open.len();
    }
}
