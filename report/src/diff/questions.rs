//! The hypotheses to test, and each one's part of the error rate. The part is proportional to how much its
//! share can change, so that hundreds of small functions don't hide the large one. Equal parts found 8 to 68
//! % of simulated slowdowns of 5 % at five runs a side; these find 29 to 90 %. Optimal weights, and a bound
//! for the samples that callers and callees have in common, found as many at the same number of false alarms
//! (docs/performance.md), so they are left out.

use super::tally::Tally;
use std::collections::HashMap;

/// Questions that are tested together.
pub(super) struct Questions {
    /// The items of each question; the first is tested, and the result applies to all.
    pub items: Vec<Vec<usize>>,
    rate: ErrorRate,
}

/// The error rate of questions together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorRate {
    whole: f64,
    /// The sum of the questions' leeways, times their weights.
    leeways: f64,
}

impl ErrorRate {
    /// The rate `whole` of questions about shares that can change by `leeways`, their weights included.
    pub(crate) fn new(whole: f64, leeways: &[f64]) -> ErrorRate {
        let leeways: f64 = leeways.iter().sum();
        ErrorRate {
            whole,
            leeways: leeways.max(f64::MIN_POSITIVE),
        }
    }

    /// The probability of a false positive that a share with this leeway is allowed at a step, counted from 1.
    pub(crate) fn allowed(&self, leeway: f64, step: usize) -> f64 {
        let part = (leeway / self.leeways).min(1.0) * step.max(1) as f64;
        self.whole * part.min(1.0)
    }
}

impl Questions {
    /// Questions about `members`, whose shares can change by `leeway`, their weights included. They have
    /// `error_rate` together.
    pub(crate) fn new(
        tally: &Tally,
        members: &[usize],
        leeway: &dyn Fn(usize) -> f64,
        error_rate: f64,
    ) -> Questions {
        let items = merged(tally, members);
        let leeways: Vec<f64> = items.iter().map(|items| leeway(items[0])).collect();
        Questions {
            rate: ErrorRate::new(error_rate, &leeways),
            items,
        }
    }

    /// The probability of a false positive that a share with this leeway is allowed at a step, counted from 1.
    pub(crate) fn allowed(&self, leeway: f64, step: usize) -> f64 {
        self.rate.allowed(leeway, step)
    }
}

/// The items of `members`, merged if they have the same counts everywhere: a wrapper and the function that it
/// wraps are one question.
fn merged(tally: &Tally, members: &[usize]) -> Vec<Vec<usize>> {
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
    use super::*;
    use crate::diff::tally::Run;

    #[test]
    fn small_functions_do_not_hide_a_large_one_and_a_wrapper_is_no_question() {
        let count = |item: usize| vec![if item == 101 { 100.0 } else { item as f64 }];
        let run = Run {
            totals: vec![100.0],
            items: (0..102).map(count).collect(),
        };
        let tally = Tally {
            sides: [vec![run.clone()], vec![run]],
        };
        let members: Vec<usize> = (0..102).collect();
        let leeway = |item: usize| if item == 0 { 0.2 } else { 0.002 };
        let questions = Questions::new(&tally, &members, &leeway, 0.05);
        // The last two functions have the same counts everywhere.
        assert_eq!(questions.items.len(), 101);
        assert_eq!(questions.items.last(), Some(&vec![100, 101]));
        assert!((questions.allowed(0.2, 1) - 0.025).abs() < 1e-9);
        assert!((questions.allowed(0.002, 2) - 0.0005).abs() < 1e-9);
        assert_eq!(questions.allowed(0.2, 10), 0.05);
    }
}
