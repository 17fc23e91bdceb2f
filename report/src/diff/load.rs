//! The influence of the machine's load. Other work on the machine makes a run take longer, and slows the
//! parts that wait for memory more than those that compute. So a function's share depends on how many samples
//! the whole run has. The dependence is a slope of the function: the relative change of its share for each
//! e-fold of samples. The slope is estimated from the runs of each side (analysis of covariance; Cochran,
//! Biometrics 13, 1957) and shrunk towards those of all functions (`runs`). The difference of the sides that
//! it explains is removed, but only within the range by which runs of one side differ: beyond that, a side
//! with more samples has more work to do.
//!
//! If the machine's load makes runs differ by a tenth, a simulated slowdown of 5 % is found in 31 instead of
//! 27 % of comparisons at five runs a side, and in 23 instead of 15 % at three (docs/performance.md).

/// Relative spreads of a function's time from run to run. The largest are of what only some runs do: if one of
/// `n` runs has a function, its shares spread by the square root of `n` times their mean. With a grid that ends
/// at 0.64, what one run of ten did was a certain change.
pub(super) const SPREADS: BySpread = [
    0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24,
];
/// One value for each of the spreads.
pub(super) type BySpread = [f64; 13];
/// Possible standard deviations of slopes.
const SLOPES: [f64; 5] = [0.0, 0.1, 0.2, 0.4, 0.8];
/// Most standard errors (of one side's runs) by which load may make the sides differ.
const LOAD_MAX: f64 = 3.0;

/// A part of a difference of shares.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Shift {
    pub mean: f64,
    /// Its variance.
    pub variances: BySpread,
}

/// One value for each spread and slope.
pub(super) type Grid = [[f64; 5]; SPREADS.len()];

/// The differences of runs in their total samples.
pub(super) struct Load {
    /// Logarithms of the runs' samples, minus the mean of their side.
    logs: [Vec<f64>; 2],
    /// Their sum of squares.
    squares: f64,
    /// How much more B has than A.
    between: f64,
}

impl Load {
    pub(crate) fn new(samples: &[Vec<f64>; 2], weights: &[Vec<f64>; 2]) -> Load {
        let all = samples.each_ref().map(|runs| {
            runs.iter()
                .map(|run| run.max(1.0).ln())
                .collect::<Vec<f64>>()
        });
        let [a, b] = [0, 1].map(|side| {
            let pairs = all[side].iter().zip(&weights[side]);
            pairs.map(|(log, weight)| log * weight).sum::<f64>()
        });
        let logs = all.each_ref().map(|logs| centred(logs));
        let squares = logs.iter().flatten().map(|log| log * log).sum::<f64>();
        let degrees: usize = logs.iter().map(|logs| logs.len().saturating_sub(1)).sum();
        let leverage: f64 = weights.iter().flatten().map(|weight| weight * weight).sum();
        let most = LOAD_MAX * (squares / degrees.max(1) as f64 * leverage).sqrt();
        Load {
            logs,
            // A smaller sum is only rounding error.
            squares: if squares > 1e-12 { squares } else { 0.0 },
            between: (b - a).clamp(-most, most),
        }
    }
}

/// What the runs of an item show.
pub(super) struct Evidence {
    /// The variance of a run's share, from its blocks.
    within: f64,
    /// The slope of the share itself over the runs.
    slope: f64,
    /// Sums of squares of the runs' differences: explained by their samples, and the rest.
    along: f64,
    rest: f64,
    leeway: f64,
}

impl Evidence {
    pub(crate) fn new(within: f64, leeway: f64, shares: &[Vec<f64>; 2], load: &Load) -> Evidence {
        let shares = shares.each_ref().map(|shares| centred(shares));
        let squares = shares.iter().flatten().map(|one| one * one).sum::<f64>();
        let logs = load.logs.iter().flatten();
        let both = shares.iter().flatten().zip(logs);
        let product: f64 = both.map(|(share, log)| share * log).sum();
        let slope = if load.squares > 0.0 {
            product / load.squares
        } else {
            0.0
        };
        Evidence {
            within,
            slope,
            along: slope * slope * load.squares,
            rest: (squares - slope * slope * load.squares).max(0.0),
            leeway,
        }
    }

    /// The variance of a run's share around its slope.
    fn variance(&self, spread: usize) -> f64 {
        self.within + (SPREADS[spread] * self.leeway).powi(2)
    }

    /// The likelihood of these squares with each spread and slope, up to a common factor.
    pub(crate) fn likelihoods(&self, degrees: f64, load: &Load) -> Grid {
        let mut logs = [[0.0; 5]; SPREADS.len()];
        for (spread, row) in logs.iter_mut().enumerate() {
            let variance = self.variance(spread);
            if variance <= 0.0 {
                continue;
            }
            let chance = |degrees: f64, squares: f64, variance: f64| {
                -degrees / 2.0 * variance.ln() - squares / (2.0 * variance)
            };
            for (slope, log) in row.iter_mut().enumerate() {
                *log = if load.squares > 0.0 {
                    let sloped = variance + self.of_slope(slope) * load.squares;
                    chance(1.0, self.along, sloped) + chance(degrees - 1.0, self.rest, variance)
                } else {
                    chance(degrees, self.rest, variance)
                };
            }
        }
        let most = logs
            .iter()
            .flatten()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        logs.map(|row| row.map(|log| (log - most).exp()))
    }

    /// The variance of the share's slope, given a slope of this standard deviation.
    fn of_slope(&self, slope: usize) -> f64 {
        (SLOPES[slope] * self.leeway).powi(2)
    }

    /// The part of the sides' difference that their samples explain.
    pub(crate) fn shift(&self, grid: &Grid, load: &Load) -> Shift {
        let mut shift = Shift::default();
        if load.squares <= 0.0 {
            return shift;
        }
        // For each spread: its probability, the mean, and the mean square.
        let mut moments = [[0.0; 3]; SPREADS.len()];
        for (spread, row) in grid.iter().enumerate() {
            let variance = self.variance(spread);
            for (slope, chance) in row.iter().enumerate() {
                let of_slope = self.of_slope(slope);
                let sloped = variance + of_slope * load.squares;
                let believed = if sloped > 0.0 {
                    of_slope * load.squares / sloped
                } else {
                    0.0
                };
                let mean = self.slope * believed * load.between;
                let left = of_slope * (1.0 - believed) * load.between.powi(2);
                let values = [1.0, mean, left + mean * mean];
                (0..3).for_each(|at| moments[spread][at] += chance * values[at]);
            }
            shift.mean += moments[spread][1];
        }
        for (variance, [chance, mean, square]) in shift.variances.iter_mut().zip(moments) {
            if chance > 0.0 {
                let about = square - 2.0 * mean * shift.mean + chance * shift.mean.powi(2);
                *variance = (about / chance).max(0.0);
            }
        }
        shift
    }
}

/// The values minus their mean.
fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|value| value - mean).collect()
}
