//! The change of each item: the difference of two shares, and its error. The distribution is a mixture,
//! because it is not known which of several spreads an item's runs have (`runs`). Probabilities and intervals
//! come from the same mixture, so they can't contradict each other.

use super::load::{BySpread, SPREADS};
use super::runs::{Prior, Runs};
use super::series::{Quantity, Series};
use super::spread;
use super::student;
use super::tally::{Scope, Tally};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// A difference of shares, and its certainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Share in A, 0 to 1.
    pub a: f64,
    /// Share in B, 0 to 1.
    pub b: f64,
    /// The part of `b - a` that the runs' numbers of samples explain: the load of the machine.
    pub shift: f64,
    /// Samples of A and of B.
    pub samples: [f64; 2],
    /// Possible standard errors of `b - a`.
    pub errors: BySpread,
    /// Their probabilities; the sum is 1.
    pub chances: BySpread,
    /// Their degrees of freedom.
    pub df: f64,
    /// The probability of a difference at least this large if the true one is too small to report.
    pub p: f64,
    /// The variance within runs, relative to that of independent samples.
    pub design_effect: f64,
}

impl Estimate {
    /// The difference of shares, without the part explained by the runs' numbers of samples.
    pub fn change(&self) -> f64 {
        self.b - self.a - self.shift
    }

    /// Shares of A and B that differ by the change alone; the rest is split evenly between them.
    fn alike(&self) -> [f64; 2] {
        [self.a + self.shift / 2.0, self.b - self.shift / 2.0]
    }

    /// The relative change; `None` if A has no sample.
    pub(crate) fn relative(&self) -> Option<f64> {
        let [a, b] = match self.alike() {
            [a, b] if a > 0.0 && b > 0.0 => [a, b],
            _ => [self.a, self.b],
        };
        (self.a > 0.0).then(|| b / a - 1.0)
    }

    /// The standard error of the mixture.
    pub(crate) fn error(&self) -> f64 {
        let squares = self.chances.iter().zip(&self.errors);
        squares
            .map(|(chance, error)| chance * error * error)
            .sum::<f64>()
            .sqrt()
    }

    /// The probability of an error of at least this size, in either direction.
    pub(super) fn beyond(&self, distance: f64) -> f64 {
        let parts = self.chances.iter().zip(&self.errors);
        let parts = parts.filter(|(chance, _)| **chance > 0.0);
        let beyond = |(chance, error): (&f64, &f64)| {
            if *error > 0.0 {
                chance * 2.0 * student::above(distance / error, self.df)
            } else if distance > 0.0 {
                0.0
            } else {
                *chance
            }
        };
        parts.map(beyond).sum::<f64>().clamp(0.0, 1.0)
    }

    /// Half the width of the interval with this confidence.
    pub(super) fn half(&self, confidence: f64) -> f64 {
        let alpha = 1.0 - confidence;
        let (mut low, mut high) = (0.0, self.error().max(1e-12));
        while self.beyond(high) > alpha && high < 1e6 {
            high *= 2.0;
        }
        for _ in 0..48 {
            let middle = (low + high) / 2.0;
            if self.beyond(middle) > alpha {
                low = middle
            } else {
                high = middle
            }
        }
        high
    }

    /// The interval of the difference with this confidence.
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let half = self.half(confidence);
        (self.change() - half, self.change() + half)
    }

    /// The interval of the relative change; `None` if a side has no sample.
    pub(crate) fn relative_interval(&self, confidence: f64) -> Option<(f64, f64)> {
        let [a, b] = self.alike();
        if self.a <= 0.0 || self.b <= 0.0 || a <= 0.0 || b <= 0.0 {
            return None;
        }
        Some(relative_interval(self.interval(confidence), (a + b) / 2.0))
    }
}

/// The interval of the relative change of shares with this mean, above 0, whose difference lies in `points`. Its ends
/// have the signs of those of `points`: -1 where nothing may be left, infinite where nothing may have been before.
pub(crate) fn relative_interval(points: (f64, f64), mean: f64) -> (f64, f64) {
    let relative = |difference: f64| {
        let half = difference.clamp(-1.0, 1.0) / 2.0;
        // Both shares are between 0 and 1.
        let middle = mean.max(half.abs()).min(1.0 - half.abs());
        (middle + half) / (middle - half) - 1.0
    };
    (relative(points.0), relative(points.1))
}

/// What all estimates of a comparison have in common.
pub(super) struct Whole {
    pub known: Vec<Prior>,
    /// Samples of each run.
    samples: [Vec<f64>; 2],
    least_change: f64,
}

impl Whole {
    /// Sums the samples of `series`. A true change of up to `least_change` is too small to report.
    pub(crate) fn new(series: &Series, tally: &Tally, least_change: f64) -> Whole {
        let known = series.items.iter().enumerate().map(|(item, what)| Prior {
            leeway: variance(tally.share(item)).max(f64::MIN_POSITIVE),
            is_witness: what.counted != Quantity::Path,
        });
        let samples = tally.sides.each_ref().map(|runs| {
            let totals = runs.iter().map(super::tally::Run::total);
            totals.collect()
        });
        Whole {
            known: known.collect(),
            samples,
            least_change,
        }
    }

    /// The changes of all items, as shares of all samples.
    pub(crate) fn estimates(&self, tally: &Tally) -> (Vec<Estimate>, Runs) {
        self.compare(tally, 1.0)
    }

    /// The changes of all items, as shares of the samples outside `apart`; `None` if there are hardly any
    /// such samples.
    pub(crate) fn against(
        &self,
        series: &Series,
        apart: &BTreeSet<usize>,
        scope: Scope,
    ) -> Option<Vec<Estimate>> {
        let tally = Tally::new(series, apart, scope);
        let whole: f64 = self.samples.iter().flatten().sum();
        let outside = [tally.total(0), tally.total(1)];
        if outside.iter().any(|total| *total < LEAST_OUTSIDE) {
            return None;
        }
        Some(self.compare(&tally, (outside[0] + outside[1]) / whole).0)
    }

    fn compare(&self, tally: &Tally, scale: f64) -> (Vec<Estimate>, Runs) {
        let runs = Runs::of(tally, &self.known, &self.samples, scale);
        let recordings = self.samples.iter().map(Vec::len).sum::<usize>();
        let df = (spread::degrees(runs.length) * recordings as f64).max(1.0);
        let items: Vec<usize> = (0..self.known.len()).collect();
        let estimate = |item: &usize| self.estimate(tally, &runs, *item, scale, df);
        (items.par_iter().map(estimate).collect(), runs)
    }

    fn estimate(&self, tally: &Tally, runs: &Runs, item: usize, scale: f64, df: f64) -> Estimate {
        let samples = [0, 1].map(|side| tally.count(side, item));
        let share = |side: usize| samples[side] / tally.total(side).max(1.0) * scale;
        let leeway = self.known[item].leeway;
        let totals = self
            .samples
            .each_ref()
            .map(|runs| runs.iter().sum::<f64>().max(1.0));
        // A side without samples of the item might as well have had one.
        let missed: f64 = [0, 1]
            .map(|side| {
                if samples[side] > 0.0 {
                    0.0
                } else {
                    totals[side].powi(-2)
                }
            })
            .iter()
            .sum();
        let within = runs.within[item].max(missed);
        let shift = &runs.shifts[item];
        let mut errors = [0.0; SPREADS.len()];
        for (spread, error) in errors.iter_mut().enumerate() {
            let between = (SPREADS[spread] * leeway).powi(2) * runs.leverage;
            *error = (within + between + shift.variances[spread]).sqrt();
        }
        let mut estimate = Estimate {
            a: share(0),
            b: share(1),
            shift: shift.mean,
            samples,
            errors,
            chances: runs.chances[item],
            df,
            p: 1.0,
            design_effect: within / (leeway * (1.0 / totals[0] + 1.0 / totals[1])),
        };
        let size = estimate.change().abs() - self.least_change;
        if size > 0.0 {
            estimate.p = estimate.beyond(size);
        }
        estimate
    }
}

/// The smallest number of samples outside the changed items that can serve as a reference.
const LEAST_OUTSIDE: f64 = 100.0;

/// The variance of whether one sample belongs to an item with this share.
pub(super) fn variance(share: f64) -> f64 {
    share * (1.0 - share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All spreads are as likely.
    const EVEN: BySpread = [1.0 / SPREADS.len() as f64; SPREADS.len()];

    fn estimate(errors: BySpread, chances: BySpread) -> Estimate {
        Estimate {
            a: 0.2,
            b: 0.23,
            shift: 0.0,
            samples: [2000.0, 2300.0],
            errors,
            chances,
            df: 100.0,
            p: 1.0,
            design_effect: 1.0,
        }
    }

    #[test]
    fn an_interval_holds_what_its_probability_says() {
        let mut chances = [0.0; SPREADS.len()];
        (chances[0], chances[4]) = (0.9, 0.1);
        let mut errors = [0.01; SPREADS.len()];
        errors[4] = 0.05;
        let mixed = estimate(errors, chances);
        for confidence in [0.5, 0.95, 0.999] {
            let half = mixed.half(confidence);
            assert!((mixed.beyond(half) - (1.0 - confidence)).abs() < 1e-6);
        }
        let plain = estimate([0.01; SPREADS.len()], EVEN);
        let wanted = student::critical(0.05, 100.0) * 0.01;
        assert!((plain.half(0.95) - wanted).abs() < 1e-6);
        assert!(mixed.half(0.99) > 2.0 * plain.half(0.99));
        assert_eq!(estimate([0.0; SPREADS.len()], chances).beyond(0.0), 1.0);
    }

    #[test]
    fn an_interval_of_a_relative_change_says_what_that_of_its_points_does() {
        let with = |a: f64, b: f64, error: f64| Estimate {
            a,
            b,
            ..estimate([error; SPREADS.len()], EVEN)
        };
        // From 1.00 to 4.98 %: the difference is certain, and how many times as much it is, is not.
        let steep = with(0.01, 0.0498, 0.015);
        assert!(steep.interval(0.95).0 > 0.0);
        let (low, high) = steep.relative_interval(0.95).unwrap();
        assert!(
            (low - 0.404).abs() < 0.001 && high == f64::INFINITY,
            "{low}"
        );
        let (low, high) = with(0.0498, 0.01, 0.015).relative_interval(0.95).unwrap();
        assert!((high + 0.288).abs() < 0.001 && low == -1.0, "{low} {high}");
        // A small one is the difference as a part of the share.
        let (low, high) = with(0.2, 0.21, 0.001).relative_interval(0.95).unwrap();
        assert!((low - 0.0399).abs() < 1e-4, "{low}");
        assert!((high - 0.0602).abs() < 1e-4, "{high}");
        assert_eq!(with(0.0, 0.01, 0.001).relative_interval(0.95), None);
        // No share is above 1: of all, 9 % may be left, and no more than that.
        let (low, high) = relative_interval((-0.91, -0.63), 0.615);
        assert!((low + 0.91).abs() < 1e-9, "{low}");
        assert!(high < -0.63 && high > -0.7, "{high}");
        assert_eq!(relative_interval((-2.0, 2.0), 0.9), (-1.0, f64::INFINITY));
    }
}
