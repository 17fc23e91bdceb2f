//! Which hypotheses are tested, and each one's part of the error rate.
//!
//! The more a share can change, the larger its part of the error rate: weights for a slowdown that would just be seen
//! in the largest function (Roeder and Wasserman, Statistical Science 24, 2009), so that hundreds of small functions
//! don't hide the large one. A tenth is divided evenly.

use super::overlap::{self, Stack};
use super::series::Series;
use super::student;
use super::tally::Tally;
use std::collections::HashMap;

/// The assumed change of the largest function, in standard errors.
const LARGEST: f64 = 3.0;
/// The part of the error rate that is used. The rest is reserved for what the model of runs leaves out: variances are
/// estimated from a few runs, and some functions alternate.
pub(super) const GIVEN: f64 = 0.6;
/// The part of the probability of error that all have by how much they can change.
const FOR_ALL: f64 = 0.1;

/// Questions that are tested together.
pub(super) struct Questions {
    /// The items of each; the first is tested, and its result is for all.
    pub items: Vec<Vec<usize>>,
    weights: Weights,
    error_rate: f64,
    /// The probability to divide among the questions.
    level: f64,
}

impl Questions {
    /// Questions about `members`, whose shares can change by `leeway`, so that any false positive has a probability
    /// of at most `error_rate`.
    pub(crate) fn new(
        series: &Series,
        tally: &Tally,
        members: &[usize],
        leeway: &dyn Fn(usize) -> f64,
        error_rate: f64,
    ) -> Questions {
        let error_rate = error_rate * GIVEN;
        let items = questions(tally, members);
        let leeways: Vec<f64> = items.iter().map(|items| leeway(items[0])).collect();
        let weights = Weights::new(&leeways, error_rate);
        let parts: Vec<f64> = leeways.iter().map(|leeway| weights.of(*leeway)).collect();
        let level = overlap::level(&parts, &stacks(series, &items), error_rate);
        Questions {
            items,
            weights,
            error_rate,
            level,
        }
    }

    /// The probability of a false positive that a share with this leeway is allowed at a step, counted from 1.
    pub(crate) fn allowed(&self, leeway: f64, step: usize) -> f64 {
        let level = self.level.max(self.error_rate * step.max(1) as f64);
        (level * self.weights.of(leeway)).min(self.error_rate)
    }
}

/// All samples, by the questions that they belong to.
fn stacks(series: &Series, questions: &[Vec<usize>]) -> Vec<Stack> {
    let mut numbers = vec![None; series.items.len()];
    for (number, items) in questions.iter().enumerate() {
        numbers[items[0]] = Some(number);
    }
    let mut stacks: Vec<Stack> = series
        .stacks
        .iter()
        .map(|items| Stack {
            samples: 0.0,
            questions: items.iter().filter_map(|item| numbers[*item]).collect(),
        })
        .collect();
    let recordings = series.sides.iter().flat_map(|side| &side.recordings);
    for cell in recordings.flat_map(|counts| &counts.cells) {
        stacks[cell.stack].samples += cell.count;
    }
    stacks
}

/// A share's part of the error rate, by how much it can change.
pub(super) struct Weights {
    largest: f64,
    /// How strict they are: the c of Roeder and Wasserman.
    strict: f64,
    /// The sum of the parts before they are normalized.
    sum: f64,
    leeways: f64,
}

impl Weights {
    pub(super) fn new(leeways: &[f64], error_rate: f64) -> Weights {
        let largest = leeways.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut weights = Weights {
            largest,
            strict: 0.0,
            sum: 1.0,
            leeways: leeways.iter().sum::<f64>().max(f64::MIN_POSITIVE),
        };
        let (mut low, mut high) = (-5.0, 50.0);
        for _ in 0..60 {
            weights.strict = (low + high) / 2.0;
            let sum: f64 = leeways.iter().map(|leeway| weights.tail(*leeway)).sum();
            weights.sum = sum.max(f64::MIN_POSITIVE);
            match sum > error_rate {
                true => low = weights.strict,
                false => high = weights.strict,
            }
        }
        weights
    }

    fn tail(&self, leeway: f64) -> f64 {
        let errors = LARGEST * (leeway / self.largest).sqrt().max(1e-6);
        student::above(errors / 2.0 + self.strict / errors, 1e6)
    }

    pub(super) fn of(&self, leeway: f64) -> f64 {
        let part = (1.0 - FOR_ALL) * self.tail(leeway) / self.sum;
        (part + FOR_ALL * leeway / self.leeways).min(1.0)
    }
}

/// The items of `members`, merged where they have the same counts everywhere: a wrapper and what it wraps are one
/// question.
fn questions(tally: &Tally, members: &[usize]) -> Vec<Vec<usize>> {
    let mut questions: Vec<Vec<usize>> = Vec::new();
    let mut numbers: HashMap<Vec<u64>, usize> = HashMap::new();
    for item in members {
        let runs = tally.sides.iter().flatten();
        let counts = runs.flat_map(|run| &run.items[*item]);
        let key = counts.map(|count| count.to_bits()).collect();
        let number = *numbers.entry(key).or_insert(questions.len());
        if number == questions.len() {
            questions.push(Vec::new());
        }
        questions[number].push(*item);
    }
    questions
}

#[cfg(test)]
mod tests {
    use super::super::series::{Counted, Item};
    use super::*;

    #[test]
    fn not_all_of_the_probability_of_error_is_given_out() {
        let item = Item {
            counted: Counted::Own,
            function: 0,
            node: 0,
        };
        let series = Series {
            items: vec![item],
            ..Series::default()
        };
        let tally = Tally {
            sides: [Vec::new(), Vec::new()],
        };
        let one = Questions::new(&series, &tally, &[0], &|_| 0.2, 0.05);
        for step in [1, 10] {
            let allowed = one.allowed(0.2, step);
            assert!((0.029..0.031).contains(&allowed), "{allowed}");
        }
    }

    #[test]
    fn small_functions_do_not_hide_a_large_one() {
        let mut leeways = vec![0.2];
        leeways.extend([0.002; 100]);
        let weights = Weights::new(&leeways, 0.05);
        assert!(weights.of(0.2) > 0.5, "{}", weights.of(0.2));
        let sum: f64 = leeways.iter().map(|leeway| weights.of(*leeway)).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(weights.of(0.002) > 0.0);
    }
}
