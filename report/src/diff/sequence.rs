//! When to look at runs that are still being made, and what each look may spend of the error rate, so that
//! looking often does not raise it.
//!
//! Looks are taken at numbers of runs that grow by about a third, and each spends an equal part. The errors of
//! all looks are at most the sum of the parts, however the looks depend on each other (Bonferroni), so the rate
//! holds whenever the comparison ends. Slud and Wei (Journal of the American Statistical Association 77, 1982)
//! describe such spending. A look after every run would have to divide the rate of 50 runs by 49 instead of 9,
//! although most of these looks see the same runs. docs/decisions/2026-11-25-looks-spend-the-error-rate.md has the
//! alternatives.

/// The fewest runs of each side that are looked at: fewer hardly show how runs differ.
pub const RUNS_MIN: usize = 4;

/// The looks of a comparison that ends with `most` runs of each side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Numbers of runs of each side.
    looks: Vec<usize>,
}

impl Sequence {
    /// Plans the looks. With fewer than [`RUNS_MIN`] runs there is one, at the end.
    pub fn new(most: usize) -> Sequence {
        let grown = |runs: &usize| Some((runs * 4).div_ceil(3));
        let looks = std::iter::successors(Some(RUNS_MIN), grown);
        let mut looks: Vec<usize> = looks.take_while(|runs| *runs < most).collect();
        // The last look is at all runs. One just before would spend as much for nearly the same runs.
        if looks.last().is_some_and(|last| last * 7 > most * 6) {
            looks.pop();
        }
        looks.push(most);
        Sequence { looks }
    }

    /// Whether a look is taken at this number of runs.
    pub fn is_look(&self, runs: usize) -> bool {
        self.looks.contains(&runs)
    }

    /// The number of looks.
    pub fn count(&self) -> usize {
        self.looks.len()
    }

    /// The part of an error rate that one look spends.
    pub fn spent(&self, rate: f64) -> f64 {
        rate / self.looks.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_end_at_the_most_runs_and_spend_the_rate_once() {
        for most in 1..=200 {
            let sequence = Sequence::new(most);
            assert_eq!(sequence.looks.last(), Some(&most));
            assert!(sequence.looks.is_sorted_by(|a, b| a < b), "{most}");
            let spent = sequence.spent(0.05) * sequence.count() as f64;
            assert!((spent - 0.05).abs() < 1e-12);
            assert!(sequence.count() <= 16, "{most}");
        }
        assert_eq!(Sequence::new(30).looks, [4, 6, 8, 11, 15, 20, 30]);
    }
}
