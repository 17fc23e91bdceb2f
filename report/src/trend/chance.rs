//! What chance alone finds in a function's shares. Input: the shares, and a probability by Student's t. Output: a
//! probability that is at least as large.
//!
//! Student's t is for normal noise. The shares of a program that works in phases aren't normal: one recording has a phase
//! and another doesn't, and the best of many positions exceeds Student's t far more often than it says. So the recordings
//! are shuffled, and what is found then is chance. How often chance finds more than in any shuffle follows from the tail
//! of the logarithms of its probabilities, which is taken for exponential (Hill, Annals of Statistics 3, 1975). With
//! normal noise its mean is 1, and Student's t stays.
//!
//! Shuffles of recordings with a step hold its two levels, and find more than noise alone does. Shuffles of what is left
//! when the levels are taken away find less, since the step took some of the noise with it. What the first find counts,
//! unless the others find it so rarely that a power of their probability is less still: so a step far beyond all noise
//! stays certain. The powers are chosen by simulation (`report/tests/trend.rs`).

use super::shares::{self, Shares};
use super::steps::Search;

/// Shuffles, and how many of them, those with the smallest probabilities, are the tail.
const SHUFFLES: usize = 1000;
const TAIL: usize = 100;
const PART_OF_TAIL: f64 = TAIL as f64 / SHUFFLES as f64;
/// The power of the probability of shuffles without the step; of few recordings, since they have few arrangements, and
/// fewer than how many these are.
const POWER: f64 = 0.5;
const POWER_OF_FEW: f64 = 0.7;
const FEW: usize = 12;
/// Most recordings that are shuffled: of more, a part drawn anew each time.
const RECORDINGS_MAX: usize = 128;

/// What chance finds in one function's shares.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    with_steps: Tail,
    without: Tail,
    power: f64,
}

impl Chance {
    /// Of shares in which `steps` are the best of `search`.
    pub(super) fn new(shares: &Shares, search: &Search<'_>, steps: &[usize]) -> Chance {
        let is_few = shares.raw.len() < FEW;
        Chance {
            with_steps: Tail::new(around_levels(shares, &[]), search),
            without: Tail::new(around_levels(shares, steps), search),
            power: if is_few { POWER_OF_FEW } else { POWER },
        }
    }

    /// The probability that chance finds what has this one by Student's t.
    pub(super) fn p(&self, student: f64) -> f64 {
        let without = self.without.p(student).powf(self.power);
        self.with_steps.p(student).min(without)
    }
}

/// The shuffles that find most.
#[derive(Debug, Clone)]
struct Tail {
    /// Negative logarithms of the probabilities of what they find, ascending.
    found: Vec<f64>,
    /// Their mean distance from the first.
    mean: f64,
}

impl Tail {
    fn new(mut pairs: Vec<(f64, f64)>, search: &Search<'_>) -> Tail {
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
            best.map_or(0.0, |best| surprise(best.p))
        });
        let mut found: Vec<f64> = found.collect();
        found.sort_by(f64::total_cmp);
        let found = found.split_off(SHUFFLES - TAIL);
        let mean = shares::mean(&found) - found[0];
        Tail {
            found,
            mean: mean.max(1.0),
        }
    }

    fn p(&self, student: f64) -> f64 {
        let found = surprise(student);
        let as_much = TAIL - self.found.partition_point(|it| *it < found);
        let beyond = (found - self.found[0]).max(0.0) / self.mean;
        let p = (as_much as f64 / SHUFFLES as f64).max(PART_OF_TAIL * (-beyond).exp());
        p.max(student)
    }
}

fn surprise(p: f64) -> f64 {
    -p.max(f64::MIN_POSITIVE).ln()
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

    fn chance(values: impl Iterator<Item = f64>) -> Chance {
        let values: Vec<f64> = values.collect();
        let shares = Shares::of_values(values.clone(), vec![1e-9; values.len()]);
        let search = Search {
            may_begin: &vec![true; values.len()],
            inflation: 1.0,
            least: 0.0,
            chance: None,
        };
        Chance::new(&shares, &search, &[])
    }

    #[test]
    fn what_is_rare_by_student_is_less_rare_with_phases() {
        let mut random = fastrand::Rng::with_seed(1);
        // Sums of twelve are nearly normal.
        let even = (0..40).map(|_| (0..12).map(|_| random.f64()).sum::<f64>());
        let even = chance(even.collect::<Vec<_>>().into_iter());
        let phases = chance((0..40).map(|at| {
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
