//! How much more runs of one program differ than the blocks of time within them say. The shares of
//! each recording go in, with the variances that the bootstrap found; a factor for the variance of
//! each item comes out, and how well it is known.
//!
//! Two or three runs say little about one function, but all functions together say much. First a
//! trend is fitted: were each function's time another one in each run, by some percent, then large
//! functions would show it more. Then each item's own variance is drawn towards that trend, the more
//! the less the items differ from it: the empirical Bayes estimate of Smyth (Statistical Applications
//! in Genetics and Molecular Biology 3, 2004, sections 4 and 6).

use super::series::Side;
use super::student::{digamma, trigamma};
use super::verdict::variance;

/// With fewer degrees of freedom, that is fewer recordings beyond the first of each side, nothing
/// is said about runs.
pub(super) const LEAST_DF: usize = 2;

/// Degrees of freedom that some recordings of each side give.
pub(super) fn degrees(recordings: [usize; 2]) -> usize {
    recordings.iter().map(|count| count.saturating_sub(1)).sum()
}

/// By what the variances within runs are to be multiplied.
#[derive(Debug, PartialEq)]
pub(super) struct Excess {
    /// For each item; at least 1.
    pub factors: Vec<f64>,
    /// Degrees of freedom of the factors.
    pub df: f64,
}

impl Excess {
    /// Compares the variance between the recordings of `sides` with those `within` them, of each
    /// item on both sides. Where there are too few recordings, all factors are 1.
    pub fn of(sides: &[Side; 2], within: &[[f64; 2]]) -> Excess {
        let recordings = [0, 1].map(|side| sides[side].recordings.len());
        let df = degrees(recordings);
        if df < LEAST_DF {
            return Excess {
                factors: vec![1.0; within.len()],
                df: f64::INFINITY,
            };
        }
        let several = || [0, 1].into_iter().filter(|side| recordings[*side] > 1);
        let runs: f64 = several().map(|side| 1.0 / recordings[side] as f64).sum();
        let seen: Vec<Seen> = within
            .iter()
            .enumerate()
            .map(|(item, within)| Seen {
                between: several().map(|side| between(&sides[side], item)).sum(),
                within: several().map(|side| within[side]).sum(),
                leverage: variance(share(sides, item)).powi(2) * runs,
            })
            .collect();
        let trend = trend(&seen);
        let ratios: Vec<f64> = seen.iter().map(|one| one.between / one.at(trend)).collect();
        let common = Common::of(&ratios, df as f64);
        let factor = |(seen, ratio): (&Seen, &f64)| {
            let factor = common.moderate(*ratio, df as f64) * seen.at(trend) / seen.within;
            // Runs can't be more alike than their parts. (And a number of no sense is none.)
            factor.max(1.0)
        };
        Excess {
            factors: seen.iter().zip(&ratios).map(factor).collect(),
            df: common.df + df as f64,
        }
    }
}

/// An item's variances on all sides that have several recordings.
struct Seen {
    between: f64,
    within: f64,
    /// What `between` grows by for each unit of the trend.
    leverage: f64,
}

impl Seen {
    /// The variance between runs to be expected.
    fn at(&self, trend: f64) -> f64 {
        self.within + trend * self.leverage
    }
}

/// The variance of the functions' times from run to run, as a part of their square, that fits best:
/// least squares, weighted by how well each item's variance is known.
fn trend(seen: &[Seen]) -> f64 {
    const ROUNDS: usize = 8;
    let mut trend = 0.0;
    for _ in 0..ROUNDS {
        let (mut along, mut of) = (0.0, 0.0);
        for one in seen
            .iter()
            .filter(|one| one.within > 0.0 && one.within.is_finite())
        {
            let weight = one.at(trend).powi(-2);
            along += weight * one.leverage * (one.between - one.within);
            of += weight * one.leverage.powi(2);
        }
        trend = if of > 0.0 { (along / of).max(0.0) } else { 0.0 };
    }
    trend
}

/// The share of an item in all recordings.
fn share(sides: &[Side; 2], item: usize) -> f64 {
    let count: f64 = sides.iter().map(|side| side.count(item)).sum();
    count / sides.iter().map(Side::total).sum::<f64>().max(1.0)
}

/// Variance of a side's share as far as its recordings tell, one residual each (the linear form of
/// the variance of a ratio: Cochran, Sampling Techniques, 1977, section 6.3).
fn between(side: &Side, item: usize) -> f64 {
    let count = side.recordings.len() as f64;
    let total = side.total().max(1.0);
    let share = side.count(item) / total;
    let residuals = side.recordings.iter().map(|counts| {
        let [own, all]: [f64; 2] = [&counts.items[item], &counts.totals].map(|it| it.iter().sum());
        (own - share * all).powi(2)
    });
    residuals.sum::<f64>() * count / (count - 1.0) / (total * total)
}

/// What the ratios of all items to the trend have in common.
struct Common {
    factor: f64,
    /// How many degrees of freedom of its own that is worth for each item; infinite where the items
    /// don't differ by more than chance.
    df: f64,
}

impl Common {
    fn of(ratios: &[f64], df: f64) -> Common {
        let logs = ratios.iter().map(|ratio| ratio.ln());
        let logs: Vec<f64> = logs.filter(|log| log.is_finite()).collect();
        let count = logs.len() as f64;
        if count < 2.0 {
            return Common {
                factor: 1.0,
                df: f64::INFINITY,
            };
        }
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let beyond_chance = squares / (count - 1.0) - trigamma(df / 2.0);
        // The logarithm of a variance lies below that of the true one.
        let unbiased = mean - digamma(df / 2.0) + (df / 2.0).ln();
        if beyond_chance <= 0.0 {
            return Common {
                factor: unbiased.exp(),
                df: f64::INFINITY,
            };
        }
        let half = inverse_trigamma(beyond_chance);
        Common {
            factor: (unbiased + digamma(half) - half.ln()).exp(),
            df: 2.0 * half,
        }
    }

    /// The ratio of an item whose own is `ratio`, with `df` degrees of freedom.
    fn moderate(&self, ratio: f64, df: f64) -> f64 {
        let own = if ratio.is_finite() {
            ratio
        } else {
            self.factor
        };
        match self.df.is_finite() {
            true => (self.df * self.factor + df * own) / (self.df + df),
            false => self.factor,
        }
    }
}

/// The x whose [`trigamma`], which falls, is `value`.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6, 1e6);
    for _ in 0..100 {
        let middle = f64::sqrt(low * high);
        match trigamma(middle) > value {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::super::series::Counts;
    use super::*;

    /// A side of runs with 10,000 samples each, of which an item has as many.
    fn side(runs: &[&[f64]]) -> Side {
        let recording = |own: &&[f64]| Counts {
            totals: vec![10_000.0],
            items: own.iter().map(|count| vec![*count]).collect(),
        };
        Side {
            recordings: runs.iter().map(recording).collect(),
        }
    }

    #[test]
    fn single_recordings_say_nothing_about_runs() {
        let sides = [side(&[&[100.0]]), side(&[&[900.0]])];
        let excess = Excess::of(&sides, &[[1e-9, 1e-9]]);
        assert_eq!(excess.factors, [1.0]);
        assert_eq!(excess.df, f64::INFINITY);
    }

    #[test]
    fn the_variance_between_runs_is_that_of_their_mean() {
        // Shares 0.09, 0.10 and 0.11: the mean of three has a variance of 0.01² / 3.
        let runs = side(&[&[900.0], &[1000.0], &[1100.0]]);
        let wanted = 1e-4 / 3.0;
        assert!((between(&runs, 0) - wanted).abs() < 1e-12);
    }

    #[test]
    fn what_all_items_show_is_believed_more_than_what_one_shows() {
        // Ten items whose runs differ about as much, and one whose differ by ten times that.
        let mut low = vec![1000.0; 11];
        let mut high: Vec<f64> = (0..11).map(|item| 1020.0 + f64::from(item)).collect();
        (low[10], high[10]) = (1000.0, 1250.0);
        let sides = [side(&[&low, &high]), side(&[&high, &low])];
        let within = between(&sides[0], 0);
        let excess = Excess::of(&sides, &[[within; 2]; 11]);
        assert!(excess.df > 2.0);
        assert!(excess.factors.iter().all(|factor| *factor >= 1.0));
        let own = between(&sides[0], 10) / within;
        assert!(excess.factors[10] > excess.factors[0]);
        assert!(excess.factors[10] < own, "{} {own}", excess.factors[10]);
    }

    #[test]
    fn runs_no_more_unlike_than_their_parts_change_nothing() {
        let same = side(&[&[1000.0, 2000.0], &[1001.0, 1999.0], &[999.0, 2001.0]]);
        let excess = Excess::of(&[same.clone(), same], &[[1e-5; 2], [1e-5; 2]]);
        assert_eq!(excess.factors, [1.0, 1.0]);
    }

    #[test]
    fn the_inverse_is_one() {
        for x in [0.01, 0.5, 3.0, 200.0] {
            let found = inverse_trigamma(trigamma(x));
            assert!((found / x - 1.0).abs() < 1e-6, "{x}: {found}");
        }
    }
}
