//! How far shares would spread if the recordings were made again: the moving-block idea of Künsch
//! (Annals of Statistics 17, 1989) with blocks that don't overlap (Carlstein, 14, 1986). Time is
//! cut into blocks long enough that what happens in one says little about the next; recordings
//! are put together anew from blocks drawn with replacement; the spread of the shares found so is
//! the standard error. What runs differ by beyond that is measured where there are several (`runs`).
//!
//! Intervals use Student's t with Welch's degrees of freedom and the factor sqrt(K/(K-1)): with few
//! blocks the plain bootstrap is too narrow (Hesterberg, American Statistician 69, 2015).

use super::random::Random;
use super::runs::Excess;
use super::series::{Counts, Series, Side};
use super::student;
use rayon::prelude::*;

/// How the spread is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Method {
    /// How often recordings are put together anew.
    pub rounds: usize,
    /// Where the random numbers start.
    pub seed: u64,
    /// Confidence of intervals, such as 0.95.
    pub confidence: f64,
}

impl Default for Method {
    fn default() -> Self {
        Method {
            rounds: 1000,
            seed: 0x0075_6e69_7072_6f66,
            confidence: 0.95,
        }
    }
}

/// A difference of shares, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Share in A, 0 to 1.
    pub a: f64,
    /// Share in B.
    pub b: f64,
    /// Standard error of `b - a`.
    pub error: f64,
    /// Standard error of the logarithm of `b / a`; infinite where one is 0.
    pub log_error: f64,
    /// Degrees of freedom.
    pub df: f64,
    /// The probability of a difference at least as large where the true one is too small to tell.
    pub p: f64,
    /// How many times the variance is that of independent samples.
    pub design_effect: f64,
}

impl Estimate {
    /// The difference of shares.
    pub fn change(&self) -> f64 {
        self.b - self.a
    }

    /// The interval of the difference with this confidence.
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let half = student::critical(1.0 - confidence, self.df) * self.error;
        (self.change() - half, self.change() + half)
    }

    /// The interval of the relative change `b / a - 1`; `None` where A has no sample.
    pub fn relative_interval(&self, confidence: f64) -> Option<(f64, f64)> {
        if self.a <= 0.0 || !self.log_error.is_finite() {
            return None;
        }
        let half = student::critical(1.0 - confidence, self.df) * self.log_error;
        let middle = (self.b / self.a).ln();
        Some(((middle - half).exp() - 1.0, (middle + half).exp() - 1.0))
    }
}

/// Lengths of blocks that are tried, in blocks of the series.
const JOINED: [usize; 4] = [1, 2, 4, 6];
/// Shares looked at for the length: those of the largest functions.
const LOOKED_AT: usize = 12;

/// How many blocks of the series to join, so that what happens in one block says little about the
/// next: the least number for which neighbouring blocks' shares are no longer correlated.
pub fn block_length(series: &Series) -> usize {
    let items = series.items.len();
    let mut largest: Vec<usize> = (0..items).collect();
    let size = |item: &usize| -(series.sides[0].count(*item) + series.sides[1].count(*item));
    largest.sort_by(|a, b| size(a).total_cmp(&size(b)).then(a.cmp(b)));
    largest.truncate(LOOKED_AT);
    let recordings: Vec<&Counts> = series
        .sides
        .iter()
        .flat_map(|side| &side.recordings)
        .collect();
    for length in JOINED {
        let mut correlations = Vec::new();
        let mut blocks = 0;
        for counts in &recordings {
            for item in &largest {
                let shares = joined_shares(counts, *item, length);
                blocks = blocks.max(shares.len());
                correlations.extend(neighbours(&shares));
            }
        }
        let mean = correlations.iter().sum::<f64>() / correlations.len().max(1) as f64;
        // One standard error of a correlation of independent blocks.
        if mean < 1.0 / (blocks.max(1) as f64).sqrt() {
            return length;
        }
    }
    JOINED[JOINED.len() - 1]
}

fn joined_shares(counts: &Counts, item: usize, length: usize) -> Vec<f64> {
    let pairs = counts.items[item]
        .chunks(length)
        .zip(counts.totals.chunks(length));
    pairs
        .map(|(own, all)| (own.iter().sum::<f64>(), all.iter().sum::<f64>()))
        .filter(|(_, all)| *all > 0.0)
        .map(|(own, all)| own / all)
        .collect()
}

/// The correlation of each value with the next; `None` where nothing varies.
fn neighbours(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let pairs = values.windows(2);
    let together: f64 = pairs.map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    (spread > 0.0 && values.len() > 3).then(|| together / spread)
}

/// How often each joined block was drawn, recording by recording.
type Draw = Vec<Vec<f64>>;

/// Joined counts of a side: for each recording, totals and items by block.
struct Joined {
    recordings: Vec<Counts>,
    /// How many blocks have samples.
    blocks: f64,
}

fn join(side: &Side, length: usize) -> Joined {
    let sums = |values: &[f64]| -> Vec<f64> {
        values
            .chunks(length)
            .map(|chunk| chunk.iter().sum())
            .collect()
    };
    let recordings: Vec<Counts> = side
        .recordings
        .iter()
        .map(|counts| Counts {
            totals: sums(&counts.totals),
            items: counts.items.iter().map(|item| sums(item)).collect(),
        })
        .collect();
    let blocks: usize = recordings
        .iter()
        .map(|counts| counts.totals.iter().filter(|total| **total > 0.0).count())
        .sum();
    Joined {
        recordings,
        blocks: blocks as f64,
    }
}

fn draw(joined: &Joined, random: &mut Random) -> Draw {
    let drawn = joined.recordings.iter().map(|one| {
        let blocks = one.totals.len();
        let mut drawn = vec![0.0; blocks];
        (0..blocks).for_each(|_| drawn[random.below(blocks)] += 1.0);
        drawn
    });
    drawn.collect()
}

fn drawn_total(drawn: &Draw, joined: &Joined) -> f64 {
    let pairs = drawn.iter().zip(&joined.recordings);
    pairs
        .map(|(weights, counts)| dot(weights, &counts.totals))
        .sum()
}

fn dot(weights: &[f64], values: &[f64]) -> f64 {
    weights
        .iter()
        .zip(values)
        .map(|(weight, value)| weight * value)
        .sum()
}

/// Compares all items of `series`; a true change of up to `least_change` is too small to tell.
pub fn estimate(series: &Series, method: Method, least_change: f64) -> Vec<Estimate> {
    let length = block_length(series);
    let sides = [0, 1].map(|side| join(&series.sides[side], length));
    let draws = [0, 1].map(|side| {
        let mut random = Random::new(method.seed ^ side as u64);
        let draws = (0..method.rounds).map(|_| draw(&sides[side], &mut random));
        draws.collect::<Vec<Draw>>()
    });
    let totals = [0, 1].map(|side| {
        let joined: &Joined = &sides[side];
        let of = |drawn: &Draw| drawn_total(drawn, joined);
        draws[side].iter().map(of).collect::<Vec<f64>>()
    });
    let items: Vec<usize> = (0..series.items.len()).collect();
    let spread_of =
        |item: &usize| [0, 1].map(|side| spread(&sides[side], &draws[side], &totals[side], *item));
    let mut spreads: Vec<[f64; 2]> = items.par_iter().map(spread_of).collect();
    let excess = Excess::of(&series.sides, &spreads);
    for (spread, factor) in spreads.iter_mut().zip(&excess.factors) {
        *spread = spread.map(|variance| variance * factor);
    }
    let blocks = [0, 1].map(|side| sides[side].blocks);
    let estimates = items.iter().zip(&spreads).map(|(item, spread)| {
        let estimate = combine(series, blocks, *item, *spread);
        let df = estimate.df.min(excess.df);
        let p = accident(estimate.change(), least_change, estimate.error, df);
        Estimate { df, p, ..estimate }
    });
    estimates.collect()
}

/// Variance of a share over the draws, with the factor for few blocks.
fn spread(joined: &Joined, draws: &[Draw], totals: &[f64], item: usize) -> f64 {
    let shares = draws.iter().zip(totals).filter(|(_, total)| **total > 0.0);
    let shares = shares.map(|(drawn, total)| {
        let pairs = drawn.iter().zip(&joined.recordings);
        let own: f64 = pairs
            .map(|(weights, counts)| dot(weights, &counts.items[item]))
            .sum();
        own / total
    });
    let shares: Vec<f64> = shares.collect();
    if shares.len() < 2 || joined.blocks < 2.0 {
        return f64::INFINITY;
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    squares / (shares.len() - 1) as f64 * joined.blocks / (joined.blocks - 1.0)
}

/// The comparison of an item, but for the probability of an accident.
fn combine(series: &Series, blocks: [f64; 2], item: usize, spread: [f64; 2]) -> Estimate {
    let counts = [0, 1].map(|side| series.sides[side].count(item));
    let totals = [0, 1].map(|side| series.sides[side].total());
    let share = [0, 1].map(|side| match totals[side] > 0.0 {
        true => counts[side] / totals[side],
        false => 0.0,
    });
    // A side without a single sample of the item could have had one: the spread of none is not
    // none. One sample's worth is assumed.
    let floor = [0, 1].map(|side| match counts[side] > 0.0 || totals[side] == 0.0 {
        true => 0.0,
        false => totals[side].powi(-2),
    });
    let variance = [0, 1].map(|side| spread[side].max(floor[side]));
    let sum = variance[0] + variance[1];
    let error = sum.sqrt();
    let parts = [0, 1].map(|side| variance[side].powi(2) / (blocks[side] - 1.0).max(1.0));
    let df = match sum > 0.0 && sum.is_finite() {
        true => (sum * sum / (parts[0] + parts[1])).max(1.0),
        false => 1.0,
    };
    let relative = [0, 1].map(|side| match share[side] > 0.0 {
        true => variance[side] / share[side].powi(2),
        false => f64::INFINITY,
    });
    let independent: f64 = [0, 1]
        .map(|side| share[side] * (1.0 - share[side]) / totals[side].max(1.0))
        .iter()
        .sum();
    Estimate {
        a: share[0],
        b: share[1],
        error,
        log_error: (relative[0] + relative[1]).sqrt(),
        df,
        p: 1.0,
        design_effect: if independent > 0.0 {
            sum / independent
        } else {
            1.0
        },
    }
}

/// The probability of a change at least as large as `change` where the true one is as large as
/// `least`, either way: the test of a least effect of McCarthy and Smyth (Bioinformatics 25, 2009).
fn accident(change: f64, least: f64, error: f64, df: f64) -> f64 {
    let size = change.abs();
    if error == 0.0 {
        return if size > least { 0.0 } else { 1.0 };
    }
    let edges = [size - least, size + least];
    let beyond: f64 = edges
        .map(|distance| student::above(distance / error, df))
        .iter()
        .sum();
    beyond.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_must_stand_out_from_the_least_one() {
        // Without a least change it is the plain test.
        let plain = accident(0.02, 0.0, 0.01, 30.0);
        assert!((plain - student::two_sided(2.0, 30.0)).abs() < 1e-12);
        // Just as large as the least: nearly a coin's toss, and never less likely than smaller ones.
        let edge = accident(0.02, 0.02, 0.01, 30.0);
        assert!((0.5..0.51).contains(&edge), "{edge}");
        assert!((accident(0.0, 0.01, 0.01, 30.0) - 1.0).abs() < 1e-12);
        assert!((accident(0.0, 0.0, 0.01, 30.0) - 1.0).abs() < 1e-12);
        assert_eq!(accident(0.02, 0.01, 0.0, 1.0), 0.0);
        assert_eq!(accident(0.01, 0.01, 0.0, 1.0), 1.0);
        assert_eq!(accident(0.5, 0.001, f64::INFINITY, 1.0), 1.0);
    }
}
