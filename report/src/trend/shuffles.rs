//! Shuffles the recordings of a function's shares, to see what chance finds in them. Input: the shares, and the steps
//! that were found. Output: what chance finds.

use super::chance::{Chance, SHUFFLES};
use super::shares::{self, Shares};
use super::steps::Search;

/// Most recordings that are shuffled: of more, a part drawn anew each time.
const RECORDINGS_MAX: usize = 128;

/// What chance finds in shares in which `steps` are the best of `search`.
pub(super) fn chance(shares: &Shares, search: &Search<'_>, steps: &[usize]) -> Chance {
    Chance::new(
        found(around_levels(shares, &[]), search),
        found(around_levels(shares, steps), search),
        shares.raw.len(),
    )
}

/// The probability of the best in each shuffle of `pairs`, values with their variances.
fn found(mut pairs: Vec<(f64, f64)>, search: &Search<'_>) -> Vec<f64> {
    let count = pairs.len().min(RECORDINGS_MAX);
    let search = Search {
        may_begin: &search.may_begin[..count],
        inflation: 1.0,
        least: 0.0,
        chance: None,
    };
    let mut random = fastrand::Rng::with_seed(1);
    let found = (0..SHUFFLES).map(|_| {
        random.shuffle(&mut pairs);
        let (values, sampling) = pairs[..count].iter().copied().unzip();
        let best = search.best(&Shares::of_values(values, sampling));
        best.map_or(1.0, |best| best.p)
    });
    found.collect()
}

/// Each value without the difference of its level from the others, with its variance.
fn around_levels(shares: &Shares, steps: &[usize]) -> Vec<(f64, f64)> {
    let ends = steps.iter().copied().chain([shares.raw.len()]);
    let mut first = 0;
    let mut pairs = Vec::with_capacity(shares.raw.len());
    for end in ends {
        let level = shares::mean(&shares.raw[first..end]);
        let values = shares.raw[first..end].iter().map(|it| it - level);
        pairs.extend(values.zip(shares.sampling[first..end].iter().copied()));
        first = end;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl Iterator<Item = f64>) -> Chance {
        let values: Vec<f64> = values.collect();
        let shares = Shares::of_values(values.clone(), vec![1e-9; values.len()]);
        let search = Search {
            may_begin: &vec![true; values.len()],
            inflation: 1.0,
            least: 0.0,
            chance: None,
        };
        super::chance(&shares, &search, &[])
    }

    #[test]
    fn what_is_rare_by_student_is_less_rare_with_phases() {
        let mut random = fastrand::Rng::with_seed(1);
        // Sums of twelve are nearly normal.
        let even = (0..40).map(|_| (0..12).map(|_| random.f64()).sum::<f64>());
        let even = of(even.collect::<Vec<_>>().into_iter());
        let phases = of((0..40).map(|at| {
            if at % 7 < 2 {
                1.0
            } else {
                0.01 * (at % 3) as f64
            }
        }));
        assert!(even.p(1e-6) < 1e-4, "{}", even.p(1e-6));
        assert!(phases.p(1e-6) > 1e-3, "{}", phases.p(1e-6));
    }
}
