//! What chance alone finds in a function's shares. Input: what is found in shuffled recordings (`shuffles`), and a
//! probability by Student's t. Output: a probability that is at least as large.
//!
//! Student's t is for normal noise. The shares of a program that works in phases aren't normal: one recording has a
//! phase and another doesn't, and the best of many positions exceeds Student's t far more often than it says. So the
//! recordings are shuffled, and what is found then is chance. How often chance finds more than in any shuffle follows
//! from the tail of the logarithms of its probabilities, which is taken for exponential (Hill, Annals of Statistics 3,
//! 1975). With normal noise its mean is 1, and Student's t stays.
//!
//! Shuffles of recordings with a step hold its two levels, and find more than noise alone does. Shuffles of what is
//! left without the levels find less, since the step took some of the noise with it. What the first find counts,
//! unless the others find it so rarely that a power of their probability is less still: so a step far beyond all noise
//! stays certain. The powers are chosen by simulation (`report/tests/trend.rs`).

use super::shares;

/// Shuffles, and how many of them, those with the smallest probabilities, are the tail.
pub(super) const SHUFFLES: usize = 1000;
const TAIL: usize = 100;
const PART_OF_TAIL: f64 = TAIL as f64 / SHUFFLES as f64;
/// The power of the probability of shuffles without the step; of few recordings, since they have few arrangements, and
/// fewer than how many these are.
const POWER: f64 = 0.5;
const POWER_OF_FEW: f64 = 0.7;
const FEW: usize = 12;

/// What chance finds in one function's shares.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    with_steps: Tail,
    without: Tail,
    power: f64,
}

impl Chance {
    /// By the probabilities that Student's t gives to what is found in shuffles with the steps and without, of so many
    /// recordings.
    pub(super) fn new(with_steps: Vec<f64>, without: Vec<f64>, recordings: usize) -> Chance {
        let is_few = recordings < FEW;
        Chance {
            with_steps: Tail::new(with_steps),
            without: Tail::new(without),
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
    fn new(found: Vec<f64>) -> Tail {
        let mut found: Vec<f64> = found.into_iter().map(surprise).collect();
        found.sort_by(f64::total_cmp);
        let found = found.split_off(found.len() - TAIL);
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
