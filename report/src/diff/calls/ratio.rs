//! A ratio of two sums over blocks, such as time and calls, and its error within a run. The error is computed
//! from the differences between successive blocks, as for shares (`spread`). Logarithms are compared, so that
//! doubling and halving are changes of equal size.

use crate::diff::spread::{JOINED, LEAST_EFFECT, neighbours};

/// The ratio of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ratio {
    /// Numerator and denominator of each block; blocks whose denominator is zero are left out.
    pub blocks: Vec<[f64; 2]>,
    /// The relative variance that it would have if calls were independent.
    pub independent: f64,
}

impl Ratio {
    /// The sums of the numerators and of the denominators.
    pub(crate) fn sums(&self) -> [f64; 2] {
        let add = |sums: [f64; 2], block: &[f64; 2]| [sums[0] + block[0], sums[1] + block[1]];
        self.blocks.iter().fold([0.0; 2], add)
    }

    /// The residual of each joined block: its difference from what the overall ratio predicts.
    fn residuals(&self, length: usize) -> Vec<f64> {
        let length = self.length(length);
        let [above, below] = self.sums();
        let value = above / below.max(f64::MIN_POSITIVE);
        let joined = self.blocks.chunks(length);
        let residual = |block: &[f64; 2]| block[0] - value * block[1];
        joined
            .map(|blocks| blocks.iter().map(residual).sum())
            .collect()
    }

    /// The relative variance; `None` if there are too few blocks.
    pub(crate) fn variance(&self, length: usize) -> Option<f64> {
        let [above, _] = self.sums();
        let residuals = self.residuals(length);
        let blocks = residuals.len() as f64;
        if blocks < BLOCKS_MIN as f64 {
            return None;
        }
        let steps = residuals.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
        let variance = steps.sum::<f64>() / 2.0 * blocks / (blocks - 1.0);
        let relative = if above > 0.0 {
            variance / (above * above)
        } else {
            0.0
        };
        Some(relative.max(LEAST_EFFECT * self.independent))
    }

    /// Degrees of freedom of the variance, as in `spread`.
    pub(crate) fn degrees(&self, length: usize) -> f64 {
        2.0 / 3.0 * (self.blocks.len() as f64 / self.length(length) as f64 - 1.0)
    }

    /// Number of blocks to join: `length`, but with few blocks no more than leaves some to compare.
    fn length(&self, length: usize) -> usize {
        length.min(self.blocks.len() / BLOCKS_MIN).max(1)
    }
}

/// With fewer blocks, their differences are not significant.
const BLOCKS_MIN: usize = 4;

/// The number of blocks to join so that neighbours are hardly correlated, as in `spread`; determined from the
/// largest ratios.
pub(super) fn block_length<'r>(largest: impl Iterator<Item = &'r Ratio> + Clone) -> usize {
    for length in JOINED {
        let correlations = largest
            .clone()
            .filter(|ratio| ratio.blocks.len() >= BLOCKS_MIN * length);
        let correlations: Vec<f64> = correlations
            .filter_map(|ratio| neighbours(&ratio.residuals(length)))
            .collect();
        let mean = correlations.iter().sum::<f64>() / correlations.len().max(1) as f64;
        let blocks = largest.clone().map(|ratio| ratio.blocks.len()).max();
        let blocks = blocks.unwrap_or(0).max(1) as f64;
        if mean < (length as f64 / blocks).sqrt() / 2.0 {
            return length;
        }
    }
    JOINED[JOINED.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variance_is_that_of_the_blocks_and_few_blocks_have_none() {
        // Ten calls a block, of 90 or 110 ns in random order.
        let block = |number: usize| {
            [
                if number * 7919 % 97 < 48 {
                    900.0
                } else {
                    1100.0
                },
                10.0,
            ]
        };
        let ratio = Ratio {
            blocks: (0..120).map(block).collect(),
            independent: 0.0,
        };
        let variance = ratio.variance(1).unwrap();
        // A tenth, of a mean of 120.
        let expected = 0.01 / 120.0;
        assert!((0.5..2.0).contains(&(variance / expected)), "{variance}");
        let few = Ratio {
            blocks: vec![[900.0, 10.0]; BLOCKS_MIN - 1],
            independent: 1e-4,
        };
        assert_eq!(few.variance(1), None);
        let even = Ratio {
            blocks: vec![[900.0, 10.0]; 8],
            independent: 1e-4,
        };
        assert_eq!(even.variance(1), Some(LEAST_EFFECT * 1e-4));
    }
}
