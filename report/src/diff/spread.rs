//! The variance of an item's share within a run, from the differences between successive blocks of time (von
//! Neumann, Annals of Mathematical Statistics 12, 1941). Slow changes that are the same in each run, such as
//! the phases of a program, hardly count; random ones do. Residuals are those of a ratio's linear form
//! (Cochran, Sampling Techniques, 1977, section 6.3). Blocks are joined until they are hardly correlated.
//! Without that, 7 instead of 4 % of simulated comparisons of two runs a side gave a false alarm if the
//! program drifts (docs/performance.md).
//!
//! Further differences between runs are estimated in `runs`.

use super::series::BLOCKS;
use super::tally::{Run, Tally};

/// Numbers of blocks to try to join.
pub(super) const JOINED: [usize; 6] = [1, 2, 4, 6, 8, 12];
/// The number of shares that determine how many blocks are joined: those of the largest functions.
pub(super) const LOOKED_AT: usize = 12;
/// The smallest variance that is used, relative to that of independent samples. Regular samples of successive
/// parts of a program vary less than independent ones.
pub(crate) const LEAST_EFFECT: f64 = 0.3;

/// The variance of an item's share of a run, `run.count(item) / run.total()`. `independent` is the variance
/// that it would have if samples were independent.
pub(super) fn within(run: &Run, item: usize, length: usize, independent: f64) -> f64 {
    let total = run.total().max(1.0);
    let share = run.count(item) / total;
    let residuals: Vec<f64> = run.items[item]
        .chunks(length)
        .zip(run.totals.chunks(length))
        .map(|(own, all)| own.iter().sum::<f64>() - share * all.iter().sum::<f64>())
        .collect();
    let blocks = residuals.len() as f64;
    let steps = residuals.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    let variance = steps.sum::<f64>() / 2.0 * blocks / (blocks - 1.0).max(1.0);
    (variance / (total * total)).max(LEAST_EFFECT * independent)
}

/// Degrees of freedom of a recording whose blocks are joined to this length. Differences of neighbours have
/// two thirds of the degrees of freedom of the blocks.
pub(super) fn degrees(length: usize) -> f64 {
    2.0 / 3.0 * (BLOCKS as f64 / length as f64 - 1.0)
}

/// Number of blocks to join: the smallest number at which the shares of neighbouring blocks are no longer
/// correlated.
pub(super) fn block_length(tally: &Tally) -> usize {
    let items = tally.sides[0].first().map_or(0, |run| run.items.len());
    let mut largest: Vec<(f64, usize)> = (0..items).map(|item| (tally.share(item), item)).collect();
    largest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    largest.truncate(LOOKED_AT);
    for length in JOINED {
        let mut correlations = Vec::new();
        for run in tally.sides.iter().flatten() {
            for (_, item) in &largest {
                correlations.extend(neighbours(&joined_shares(run, *item, length)));
            }
        }
        let mean = correlations.iter().sum::<f64>() / correlations.len().max(1) as f64;
        // The threshold is half the standard error of one correlation of independent blocks, because many are
        // averaged.
        if mean < (length as f64 / BLOCKS as f64).sqrt() / 2.0 {
            return length;
        }
    }
    JOINED[JOINED.len() - 1]
}

fn joined_shares(run: &Run, item: usize, length: usize) -> Vec<f64> {
    let pairs = run.items[item]
        .chunks(length)
        .zip(run.totals.chunks(length));
    pairs
        .map(|(own, all)| (own.iter().sum::<f64>(), all.iter().sum::<f64>()))
        .filter(|(_, all)| *all > 0.0)
        .map(|(own, all)| own / all)
        .collect()
}

/// The correlation of each value with the next; `None` if the values are constant.
pub(super) fn neighbours(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let pairs = values.windows(2);
    let together: f64 = pairs.map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    (spread > 0.0 && values.len() > 3).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(own: impl Fn(usize) -> f64) -> Run {
        Run {
            totals: vec![100.0; BLOCKS],
            items: vec![(0..BLOCKS).map(own).collect()],
        }
    }

    #[test]
    fn phases_do_not_count_and_noise_does() {
        // One third of the run does nothing else than the other two thirds.
        let phases = run(|block| if block < BLOCKS / 3 { 80.0 } else { 20.0 });
        let noisy = run(|block| if block.is_multiple_of(2) { 50.0 } else { 30.0 });
        let [calm, loud] = [&phases, &noisy].map(|run| within(run, 0, 1, 0.0));
        assert!(calm * 10.0 < loud, "{calm} {loud}");
        assert_eq!(within(&run(|_| 40.0), 0, 1, 2e-5), LEAST_EFFECT * 2e-5);
    }

    #[test]
    fn the_variance_of_independent_counts_is_theirs() {
        // Counts that differ from 50 by 5 in either direction, for random lengths of time.
        let mut state = 1u64;
        let draws: Vec<f64> = (0..BLOCKS)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                if state >> 63 == 0 { 45.0 } else { 55.0 }
            })
            .collect();
        let found = within(&run(|block| draws[block]), 0, 1, 0.0);
        let wanted = 25.0 * BLOCKS as f64 / (100.0 * BLOCKS as f64).powi(2);
        assert!((0.7..1.4).contains(&(found / wanted)), "{}", found / wanted);
    }
}
