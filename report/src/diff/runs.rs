//! How much runs of one program differ, beyond what chance makes of the samples of each: where the
//! system puts heap and stack, what else the machine does. In each run, a function takes its time
//! multiplied by a factor of its own, which spreads by some percent. By how much is not known of a
//! single function: two or three runs say little. All functions together say how often which spread
//! occurs, and the runs of a function, which of these is likely its own: a mixture of a few spreads,
//! whose parts are estimated by expectation and maximisation (the empirical Bayes method for
//! variances of Lu and Stephens, Bioinformatics 32, 2016, with a fixed grid).
//!
//! Before any run is seen, the parts are those of [`BEFORE`]. With one recording a side that is all
//! there is, and it must do for programs and machines that nobody has looked at: so it is wide.
//!
//! Where recordings were made in turns, A B A B, what the machine did for a while disturbs both
//! recordings of a pair alike. Then the pairs' differences are looked at, and what both sides have
//! in common doesn't count.

use super::spread;
use super::tally::Tally;
use std::ops::Range;

/// Spreads of a function's time from run to run, as parts of it.
pub(super) const SPREADS: [f64; 9] = [0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64];
/// How many of a hundred functions had which, before any run is seen: about what twelve runs or more
/// of each of five programs showed on a busy machine (`benches/diff.py`), large functions only.
pub(super) const BEFORE: [f64; 9] = [0.6, 0.14, 0.12, 0.08, 0.035, 0.015, 0.006, 0.003, 0.001];
/// So many functions' worth that is.
const BEFORE_COUNTS: f64 = 1.0;
/// Functions call each other and are not independent witnesses: all together count no more than so
/// many.
const WITNESSES_MAX: f64 = 15.0;
/// Functions whose share can change less than this (the variance of a sample's being of it) say
/// less about runs, since their samples are few.
const TELLING: f64 = 0.02;
const ROUNDS: usize = 30;

/// What the runs of both sides say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Runs {
    /// How many parts of a hundred each of the spreads has among all functions.
    pub parts: [f64; 9],
    /// For each item, how likely each of the spreads is.
    pub chances: Vec<[f64; 9]>,
    /// For each item, the variance of the difference of its shares that blocks within runs show.
    pub within: Vec<f64>,
    /// The variance of the difference for each unit of a run's own: one over each side's runs.
    pub leverage: f64,
    /// Whether what runs differ by was measured.
    pub is_measured: bool,
}

/// What is known of an item before its runs are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The variance of a sample's being of it.
    pub leeway: f64,
    /// Whether it says something about all functions.
    pub is_witness: bool,
}

/// Pairs of recordings that were made in turns: the first of A with the first of B, and so on.
pub(super) type Turns = Vec<(usize, usize)>;

impl Runs {
    /// Compares the runs of `tally`, with so many samples in all of each of them; shares are
    /// multiplied by `scale`.
    pub fn of(
        tally: &Tally,
        known: &[Known],
        samples: &[Vec<f64>; 2],
        turns: &Turns,
        scale: f64,
    ) -> Runs {
        let counts = [0, 1].map(|side| tally.sides[side].len());
        let weights = [0, 1].map(|side| weights(&samples[side]));
        let degrees: usize = match turns.len() {
            0 => counts.iter().map(|count| count.saturating_sub(1)).sum(),
            pairs => pairs - 1,
        };
        let length = match degrees {
            0 => spread::block_length(tally),
            // What lies longer apart, the runs say.
            _ => 1,
        };
        let mut within = Vec::with_capacity(known.len());
        let mut seen = Vec::with_capacity(known.len());
        for (item, known) in known.iter().enumerate() {
            let of_run = |side: usize, run: usize| {
                let independent = known.leeway / samples[side][run].max(1.0) / (scale * scale);
                let found = spread::within(&tally.sides[side][run], item, length, independent);
                found * scale * scale
            };
            let variances = [0, 1].map(|side| {
                let runs = (0..counts[side]).map(|run| of_run(side, run));
                runs.collect::<Vec<f64>>()
            });
            let weighted = variances.iter().zip(&weights).map(|(variances, weights)| {
                let pairs = variances.iter().zip(weights);
                pairs
                    .map(|(variance, weight)| variance * weight * weight)
                    .sum::<f64>()
            });
            within.push(weighted.sum());
            let all = variances.iter().flatten();
            seen.push(Seen {
                within: all.sum::<f64>() / (counts[0] + counts[1]).max(1) as f64,
                squares: squares(tally, item, turns) * scale * scale,
                leeway: known.leeway,
            });
        }
        let mut runs = Runs {
            parts: BEFORE,
            chances: vec![BEFORE; known.len()],
            within,
            leverage: weights.iter().flatten().map(|weight| weight * weight).sum(),
            is_measured: degrees > 0,
        };
        if degrees > 0 {
            runs.learn(&seen, known, degrees as f64);
        }
        runs
    }

    fn learn(&mut self, seen: &[Seen], known: &[Known], degrees: f64) {
        let likely: Vec<[f64; 9]> = seen.iter().map(|one| one.likelihoods(degrees)).collect();
        let worth = |known: &Known| match known.is_witness {
            true => (known.leeway / TELLING).min(1.0),
            false => 0.0,
        };
        let whole: f64 = known.iter().map(worth).sum();
        let factor = (WITNESSES_MAX / whole.max(f64::MIN_POSITIVE)).min(1.0);
        for _ in 0..ROUNDS {
            let mut parts = BEFORE.map(|part| part * BEFORE_COUNTS);
            for (known, likely) in known.iter().zip(&likely) {
                let chances = posterior(&self.parts, likely);
                let worth = worth(known) * factor;
                (0..9).for_each(|step| parts[step] += chances[step] * worth);
            }
            let sum: f64 = parts.iter().sum();
            self.parts = parts.map(|part| part / sum);
        }
        let parts = self.parts;
        self.chances = likely
            .iter()
            .map(|likely| posterior(&parts, likely))
            .collect();
    }
}

/// What the runs of an item show.
struct Seen {
    /// The variance of a run's share that its blocks show.
    within: f64,
    /// Squares of the runs' residuals.
    squares: f64,
    leeway: f64,
}

impl Seen {
    /// How likely these squares are with each of the spreads, but for a common factor.
    fn likelihoods(&self, degrees: f64) -> [f64; 9] {
        let logs = SPREADS.map(|spread| {
            let variance = self.within + (spread * self.leeway).powi(2);
            match variance > 0.0 {
                true => -degrees / 2.0 * variance.ln() - self.squares / (2.0 * variance),
                false => 0.0,
            }
        });
        let most = logs.into_iter().fold(f64::NEG_INFINITY, f64::max);
        logs.map(|log| (log - most).exp())
    }
}

fn posterior(parts: &[f64; 9], likely: &[f64; 9]) -> [f64; 9] {
    let mut chances = [0.0; 9];
    (0..9).for_each(|step| chances[step] = parts[step] * likely[step]);
    let sum: f64 = chances.iter().sum();
    match sum > 0.0 {
        true => chances.map(|chance| chance / sum),
        false => *parts,
    }
}

/// What part each run has in a side's share.
fn weights(samples: &[f64]) -> Vec<f64> {
    let whole: f64 = samples.iter().sum();
    samples.iter().map(|one| one / whole.max(1.0)).collect()
}

/// Squares of what the runs' shares differ by from their side's, or pairs from their mean.
fn squares(tally: &Tally, item: usize, turns: &Turns) -> f64 {
    let shares = tally.sides.each_ref().map(|runs| {
        let shares = runs
            .iter()
            .map(|run| run.count(item) / run.total().max(1.0));
        shares.collect::<Vec<f64>>()
    });
    let about_mean = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    };
    if turns.is_empty() {
        return shares.iter().map(|shares| about_mean(shares)).sum();
    }
    let differences = turns.iter().map(|(a, b)| shares[1][*b] - shares[0][*a]);
    // A difference has the variance of two runs.
    about_mean(&differences.collect::<Vec<f64>>()) / 2.0
}

/// Whether the recordings of both sides were made in turns, by the times from begin to end of each:
/// each pair is over before the next one begins.
pub(super) fn turns(times: &[Vec<Range<i64>>; 2]) -> Turns {
    let order = times.each_ref().map(|times| {
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by_key(|run| (times[*run].start, *run));
        order
    });
    if order[0].len() != order[1].len() || order[0].len() < 2 {
        return Turns::new();
    }
    let pairs: Turns = order[0]
        .iter()
        .copied()
        .zip(order[1].iter().copied())
        .collect();
    let span = |(a, b): &(usize, usize)| {
        let (a, b) = (&times[0][*a], &times[1][*b]);
        a.start.min(b.start)..a.end.max(b.end)
    };
    let apart = |two: &[(usize, usize)]| span(&two[0]).end <= span(&two[1]).start;
    match pairs.windows(2).all(apart) {
        true => pairs,
        false => Turns::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::BLOCKS;
    use super::super::tally::Run;
    use super::*;

    /// Runs of 12,000 samples whose items have these shares.
    fn side(runs: &[Vec<f64>]) -> Vec<Run> {
        let run = |shares: &Vec<f64>| Run {
            totals: vec![100.0; BLOCKS],
            items: shares
                .iter()
                .map(|share| vec![share * 100.0; BLOCKS])
                .collect(),
        };
        runs.iter().map(run).collect()
    }

    fn of(a: &[Vec<f64>], b: &[Vec<f64>], turns: &Turns) -> Runs {
        let tally = Tally {
            sides: [side(a), side(b)],
        };
        let known = vec![
            Known {
                leeway: 0.2 * 0.8,
                is_witness: true,
            };
            a[0].len()
        ];
        let samples = [vec![12_000.0; a.len()], vec![12_000.0; b.len()]];
        Runs::of(&tally, &known, &samples, turns, 1.0)
    }

    fn spread(chances: &[f64; 9]) -> f64 {
        let squares = chances.iter().zip(SPREADS);
        squares
            .map(|(chance, spread)| chance * spread * spread)
            .sum::<f64>()
            .sqrt()
    }

    #[test]
    fn single_recordings_say_nothing_about_runs() {
        let runs = of(&[vec![0.2]], &[vec![0.3]], &Turns::new());
        assert!(!runs.is_measured);
        assert_eq!(runs.chances, [BEFORE]);
    }

    #[test]
    fn what_all_items_show_is_believed_more_than_what_one_shows() {
        // Ten items that are alike in all runs, and one that isn't.
        let mut odd = vec![0.2; 11];
        odd[10] = 0.23;
        let runs = of(
            &[vec![0.2; 11], odd.clone()],
            &[vec![0.2; 11], odd],
            &Turns::new(),
        );
        assert!(runs.is_measured);
        assert!(spread(&runs.chances[0]) < spread(&BEFORE) / 2.0);
        assert!(spread(&runs.chances[10]) > 2.0 * spread(&runs.chances[0]));
    }

    #[test]
    fn what_both_of_a_pair_have_in_common_does_not_count() {
        let drifting: Vec<Vec<f64>> = (0..4)
            .map(|run| vec![0.2 + 0.02 * f64::from(run); 5])
            .collect();
        let apart = of(&drifting, &drifting, &Turns::new());
        let pairs = (0..4).map(|run| (run, run)).collect();
        let paired = of(&drifting, &drifting, &pairs);
        assert!(spread(&paired.chances[0]) < spread(&apart.chances[0]) / 3.0);
    }

    #[test]
    fn turns_are_pairs_that_follow_each_other() {
        let times = |starts: &[i64]| starts.iter().map(|start| *start..start + 5).collect();
        assert_eq!(
            turns(&[times(&[0, 20]), times(&[10, 30])]),
            [(0, 0), (1, 1)]
        );
        assert_eq!(
            turns(&[times(&[20, 0]), times(&[10, 30])]),
            [(1, 0), (0, 1)]
        );
        // All of A, then all of B.
        assert_eq!(turns(&[times(&[0, 10]), times(&[20, 30])]), []);
        assert_eq!(turns(&[times(&[0]), times(&[10])]), []);
        assert_eq!(turns(&[times(&[0, 20]), times(&[10])]), []);
    }
}
