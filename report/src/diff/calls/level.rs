//! The level of a run: a change that all functions have in common. On a machine that is slower, or where
//! tracing is more expensive, every call takes longer. And if one function takes longer, all others are
//! called less often a second. Neither is a change of these functions. The level is the one that most
//! functions agree on. No single function can sway this vote, as with normalisation by the median for counts
//! of genes (Anders and Huber, Genome Biology 11, 2010).

/// A logarithm with its variance: the difference of a function from its mean, or of all functions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Vote {
    pub change: f64,
    pub variance: f64,
}

/// Functions whose changes differ by no more than this agree.
const AGREE: f64 = 0.02;
/// Number of standard errors by which agreeing functions may differ in addition.
const ERRORS: f64 = 2.0;
/// Most votes that are counted: those of the first functions.
const VOTES_MAX: usize = 1000;

/// The value that most of `votes` agree on. There is one additional vote for no change, which wins a tie:
/// with a single function, or with two that disagree, a common change can't be distinguished from their own.
pub(super) fn level(votes: &[Vote]) -> Vote {
    let votes = &votes[..votes.len().min(VOTES_MAX)];
    let agree = |change: f64| {
        let near = move |vote: &&Vote| {
            (vote.change - change).abs() <= AGREE + ERRORS * vote.variance.sqrt()
        };
        votes.iter().filter(near)
    };
    let mut best = (agree(0.0).count() + 1, 0.0_f64);
    for vote in votes {
        let found = agree(vote.change).count();
        let is_nearer = found == best.0 && vote.change.abs() < best.1.abs();
        if found > best.0 || is_nearer {
            best = (found, vote.change);
        }
    }
    let weight = |vote: &Vote| 1.0 / (vote.variance + AGREE * AGREE);
    let whole: f64 = agree(best.1).map(weight).sum();
    if best.0 < 3 {
        return Vote::default();
    }
    let sum: f64 = agree(best.1).map(|vote| vote.change * weight(vote)).sum();
    Vote {
        change: sum / whole,
        variance: 1.0 / whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[f64]) -> f64 {
        let vote = |change: &f64| Vote {
            change: *change,
            variance: 1e-6,
        };
        level(&changes.iter().map(vote).collect::<Vec<_>>()).change
    }

    #[test]
    fn what_most_agree_with_is_common_and_one_alone_sways_nothing() {
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[0.7]), 0.0);
        assert_eq!(of(&[0.7, 0.0]), 0.0);
        assert!((of(&[-0.4, -0.4, 0.3, -0.4]) + 0.4).abs() < 1e-9);
        assert!(of(&[0.01, 0.9, -0.01, 0.0]).abs() < 0.01);
        // As many votes are for no change as for a change of all.
        assert!(of(&[0.5, 0.5, 0.0]).abs() < 1e-9);
    }
}
