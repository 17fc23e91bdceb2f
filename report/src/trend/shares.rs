//! One function's shares in recordings that are in order, and how much they vary by chance. Input: its samples, and
//! those of the reference, in each recording. Output: values whose variance doesn't depend on the share, with their
//! variances.
//!
//! The value is the arcsine of the share's root (Anscombe, Biometrika 35, 1948), which takes shares of 0, too. Its
//! variance has a part of the number of samples, and one of differences between recordings. Both are estimated from
//! differences of successive recordings, as a step changes only one of them (von Neumann, Annals of Mathematical
//! Statistics 12, 1941). A single recording that is far from those around it counts as one that is not so far
//! (winsorizing): it is no step, and must not hide one.

use crate::diff::LEAST_EFFECT;

/// A single recording differs from the median of its neighbours by at most this many standard deviations.
const OUTLIER_SIGMAS: f64 = 3.0;
/// Recordings on each side that a recording is compared with, to find outliers.
const NEIGHBOURS: usize = 2;
/// The median of the square of a standard normal variable.
const MEDIAN_SQUARE: f64 = 0.4549;
/// Of so many differences, one may be that of a step; but at least so many may be.
const STEPS_ONE_IN: usize = 10;
const STEPS_MIN: usize = 2;

/// The values of a function, by recording.
#[derive(Debug, Clone)]
pub(super) struct Shares {
    /// As they are.
    pub raw: Vec<f64>,
    /// With outliers drawn in.
    pub values: Vec<f64>,
    /// The part of each variance that its number of samples has.
    pub sampling: Vec<f64>,
    /// The variance of each, up to `scale`.
    pub variances: Vec<f64>,
    /// For each recording, the square of the difference to the one before, relative to its expectation; `None` for one
    /// that doesn't count.
    squares: Vec<Option<f64>>,
    /// The sum of these squares, and their number.
    sums: (f64, f64),
    /// The smallest factor of all variances.
    least_scale: f64,
}

impl Shares {
    /// Shares of `counts` in `wholes`, one for each recording.
    pub(crate) fn new(counts: &[f64], wholes: &[f64]) -> Shares {
        let pairs = counts.iter().zip(wholes);
        let values = pairs.map(|(count, whole)| value(*count, *whole));
        let sampling = wholes.iter().map(|it| 0.25 / it.max(1.0));
        Shares::of_values(values.collect(), sampling.collect())
    }

    /// As [`Shares::new`], of values and the variances that they have because of their numbers of samples.
    pub(crate) fn of_values(raw: Vec<f64>, sampling: Vec<f64>) -> Shares {
        let squares = raw.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
        let robust = median(squares.collect()) / (2.0 * MEDIAN_SQUARE);
        let between = (robust - mean(&sampling)).max(0.0);
        let variances: Vec<f64> = sampling.iter().map(|it| it + between).collect();
        let mut shares = Shares {
            values: winsorized(&raw, &variances),
            variances,
            squares: vec![None],
            sums: (0.0, 0.0),
            least_scale: LEAST_EFFECT * mean(&sampling) / (mean(&sampling) + between),
            raw,
            sampling,
        };
        let squares = (1..shares.values.len()).map(|at| Some(shares.square(at, 1)));
        let squares: Vec<Option<f64>> = squares.collect();
        shares.squares.extend(squares);
        shares.without(&[])
    }

    /// Lets the differences at `steps`, the first recordings after a change, not count.
    pub(crate) fn without(mut self, steps: &[usize]) -> Shares {
        for at in steps {
            self.squares[*at] = None;
        }
        let counted = self.squares.iter().flatten();
        self.sums = (counted.clone().sum(), counted.count() as f64);
        self
    }

    /// The factor of all variances, without the differences at `steps`: what is asked is whether they are noise.
    pub(crate) fn scale(&self, steps: &[usize]) -> f64 {
        let (mut sum, mut count) = self.sums;
        for square in steps.iter().filter_map(|at| self.squares[*at]) {
            sum -= square;
            count -= 1.0;
        }
        (sum / count.max(1.0)).max(self.least_scale)
    }

    /// The square of the difference to the recording `lag` before, relative to its expectation.
    fn square(&self, at: usize, lag: usize) -> f64 {
        let difference = self.values[at] - self.values[at - lag];
        difference.powi(2) / (self.variances[at] + self.variances[at - lag])
    }

    /// How much more recordings differ that are two apart than neighbours do, as a ratio: 1 if recordings are
    /// independent, 1 + φ if they follow an autoregressive process.
    ///
    /// The largest squares are left out, because a step is in one difference of neighbours, and in two of the others.
    pub(crate) fn ratio(&self) -> f64 {
        let squares = |lag: usize| {
            let squares = (lag..self.values.len()).map(|at| self.square(at, lag));
            let mut squares: Vec<f64> = squares.collect();
            squares.sort_by(f64::total_cmp);
            let most = (squares.len() / STEPS_ONE_IN).max(STEPS_MIN);
            squares.truncate(squares.len().saturating_sub(most));
            mean(&squares)
        };
        let near = squares(1);
        if near > 0.0 { squares(2) / near } else { 1.0 }
    }

    /// Degrees of freedom of the scale. Differences of neighbours have two thirds of those of the values.
    pub(crate) fn degrees(&self) -> f64 {
        2.0 / 3.0 * (self.values.len() as f64 - 1.0)
    }
}

/// The arcsine of the root of a share.
pub(super) fn value(count: f64, whole: f64) -> f64 {
    let share = (count + 0.375) / (whole + 0.75);
    share.clamp(0.0, 1.0).sqrt().asin()
}

/// The derivative of a share with respect to its value.
pub(super) fn slope(share: f64) -> f64 {
    2.0 * (share * (1.0 - share)).max(0.0).sqrt()
}

fn winsorized(values: &[f64], variances: &[f64]) -> Vec<f64> {
    let near = |(at, value): (usize, &f64)| {
        let first = at.saturating_sub(NEIGHBOURS);
        let around = &values[first..(at + NEIGHBOURS + 1).min(values.len())];
        let middle = median(around.to_vec());
        let most = OUTLIER_SIGMAS * variances[at].sqrt();
        middle + (value - middle).clamp(-most, most)
    };
    values.iter().enumerate().map(near).collect()
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The median; that of an even number is the mean of both in the middle.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_is_drawn_in_and_a_step_is_not() {
        let noise = |at: usize| [3.0, -2.0, 1.0, -3.0, 2.0][at % 5];
        let step = |at: usize| if at < 10 { 0.0 } else { 200.0 };
        let counts: Vec<f64> = (0..20).map(|at| 1000.0 + noise(at) + step(at)).collect();
        let mut odd = counts.clone();
        odd[5] = 2000.0;
        let wholes = vec![10_000.0; 20];
        let [plain, odd] = [&counts, &odd].map(|counts| Shares::new(counts, &wholes));
        let expected = value(1200.0, 10_000.0);
        assert!((plain.values[15] - expected).abs() < 1e-3);
        assert!((plain.values[10] - expected).abs() < 1e-3);
        let far = value(2000.0, 10_000.0) - value(1000.0, 10_000.0);
        assert!(odd.values[5] - plain.values[5] < far / 4.0);
    }

    #[test]
    fn a_scale_is_never_far_below_that_of_independent_samples() {
        let shares = Shares::new(&[100.0; 9], &[1000.0; 9]);
        assert_eq!(shares.scale(&[]), LEAST_EFFECT);
        assert_eq!(shares.ratio(), 1.0);
    }
}
