//! Differences between runs of one program beyond the sampling error, because of memory layout and other load
//! on the machine. In each run, a function's time is multiplied by a random factor, which spreads by some
//! percent, or by more than its mean if only some runs call it. Two or three runs show little of a single
//! function's spread. All functions together give the distribution of spreads. A function's own runs then show
//! which spread is likely. The result is a mixture of a few spreads, estimated by expectation maximisation (the
//! empirical Bayes method for variances of Lu and Stephens, Bioinformatics 32, 2016, with a fixed grid).
//! Differences that the runs' numbers of samples explain are separate (`load`).
//!
//! Without this mixture, with the prior alone, a slowdown of 10 % is found in 2 instead of 89 % of simulated
//! comparisons at five runs a side (docs/performance.md).
//!
//! The prior is [`BEFORE`]. With one recording on each side nothing is learned, and the spreads have to be right for
//! any program and machine, so they are those of programs that differ much ([`ALONE`]).

use super::load::{BySpread, Evidence, Grid, Load, SPREADS, Shift};
use super::spread;
use super::tally::{Run, Tally};

/// The prior of spreads, for a hundred functions: about what at least twelve runs of each of five programs showed on
/// a busy machine (`benches/diff.py`), for large functions. The last four parts are a guess. They fall with the square
/// of the spread, so that they hardly add to the error of a function whose own runs aren't known.
pub(super) const BEFORE: BySpread = [
    0.6, 0.14, 0.12, 0.08, 0.035, 0.015, 0.006, 0.003, 0.0006, 0.0003, 0.00008, 0.000015, 0.000005,
];
/// The spreads with one recording on each side: as of Perl, whose hashes have another order in each run, on a busy
/// machine. With [`BEFORE`], 3 of 29 comparisons of equal programs alarmed. No run tells of larger spreads then, so
/// they have no part.
const ALONE: BySpread = [
    0.3, 0.12, 0.14, 0.16, 0.13, 0.08, 0.045, 0.02, 0.005, 0.0, 0.0, 0.0, 0.0,
];
/// The weight of the prior, in functions.
const BEFORE_COUNTS: f64 = 1.0;
/// The prior of slopes, for a hundred functions; from the same recordings.
const SLOPES_BEFORE: [f64; 5] = [0.3, 0.2, 0.2, 0.2, 0.1];
/// The most functions that all functions together count as: functions that call each other aren't
/// independent.
const WITNESSES_MAX: f64 = 15.0;
/// Functions with a smaller leeway (the variance of whether a sample belongs to one) show less about runs,
/// because they have few samples.
const TELLING: f64 = 0.02;
const ROUNDS: usize = 30;
/// Up to this many degrees of freedom (two recordings a side), differences between runs show almost nothing
/// about slow changes within a run.
const FEW: usize = 2;

/// The differences between the runs of both sides.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Runs {
    /// The distribution of spreads among all functions, in percent.
    pub parts: BySpread,
    /// The number of time blocks that were joined.
    pub length: usize,
    /// For each item, the probability of each spread.
    pub chances: Vec<BySpread>,
    /// For each item, the variance of the difference of its shares, from the blocks within runs.
    pub within: Vec<f64>,
    /// For each item, the part of the difference that the runs' numbers of samples explain.
    pub shifts: Vec<Shift>,
    /// The variance of the difference, relative to that of one run: the sum over sides of one over the number
    /// of runs.
    pub leverage: f64,
    /// Whether differences between runs were measured.
    pub is_measured: bool,
}

/// What is known of an item before its runs are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prior {
    /// The variance of whether a sample belongs to it.
    pub leeway: f64,
    /// Whether it is used to estimate the distribution of all functions.
    pub is_witness: bool,
}

impl Runs {
    /// Compares the runs of `tally`, whose recordings have `samples` in total. Shares are multiplied by
    /// `scale`.
    pub(crate) fn of(tally: &Tally, known: &[Prior], samples: &[Vec<f64>; 2], scale: f64) -> Runs {
        let counts = [0, 1].map(|side| tally.sides[side].len());
        let weights = [0, 1].map(|side| weights(&samples[side]));
        let degrees: usize = counts.iter().map(|count| count.saturating_sub(1)).sum();
        let load = Load::new(samples, &weights);
        let length = match degrees {
            0..=FEW => spread::block_length(tally),
            // Slower changes show as differences between the runs: the grid of spreads holds those of phases, too.
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
            let within = all.sum::<f64>() / (counts[0] + counts[1]).max(1) as f64;
            let shares = shares(tally, item, scale);
            seen.push(Evidence::new(within, known.leeway, &shares, &load));
        }
        let leverage = weights.iter().flatten().map(|weight| weight * weight).sum();
        Runs::learned(within, &seen, known, (degrees, leverage), length, &load)
    }

    /// What `seen` implies for items whose differences have these variances within runs. `degrees` is the
    /// number of recordings beyond one a side; `leverage` is the sum of one over the number of each side.
    pub(super) fn learned(
        within: Vec<f64>,
        seen: &[Evidence],
        known: &[Prior],
        (degrees, leverage): (usize, f64),
        length: usize,
        load: &Load,
    ) -> Runs {
        let before = if degrees > 0 { BEFORE } else { ALONE };
        let mut runs = Runs {
            parts: before,
            length,
            chances: vec![before; known.len()],
            within,
            shifts: vec![Shift::default(); known.len()],
            leverage,
            is_measured: degrees > 0,
        };
        if degrees > 0 {
            runs.learn(seen, known, degrees as f64, load);
        }
        runs
    }

    fn learn(&mut self, seen: &[Evidence], known: &[Prior], degrees: f64, load: &Load) {
        let likely: Vec<Grid> = seen
            .iter()
            .map(|one| one.likelihoods(degrees, load))
            .collect();
        let worth = |known: &Prior| {
            if known.is_witness {
                (known.leeway / TELLING).min(1.0)
            } else {
                0.0
            }
        };
        let whole: f64 = known.iter().map(worth).sum();
        let factor = (WITNESSES_MAX / whole.max(f64::MIN_POSITIVE)).min(1.0);
        let mut slopes = SLOPES_BEFORE;
        for _ in 0..ROUNDS {
            let mut parts = BEFORE.map(|part| part * BEFORE_COUNTS);
            let mut next = SLOPES_BEFORE.map(|part| part * BEFORE_COUNTS);
            for (known, likely) in known.iter().zip(&likely) {
                let worth = worth(known) * factor;
                if worth > 0.0 {
                    let grid = posterior(&self.parts, &slopes, likely);
                    for (spread, row) in grid.iter().enumerate() {
                        parts[spread] += row.iter().sum::<f64>() * worth;
                        (0..5).for_each(|slope| next[slope] += row[slope] * worth);
                    }
                }
            }
            let sums = [parts.iter().sum::<f64>(), next.iter().sum()];
            self.parts = parts.map(|part| part / sums[0]);
            slopes = next.map(|part| part / sums[1]);
        }
        for (item, (seen, likely)) in seen.iter().zip(&likely).enumerate() {
            let grid = posterior(&self.parts, &slopes, likely);
            self.chances[item] = grid.map(|row| row.iter().sum());
            self.shifts[item] = seen.shift(&grid, load);
        }
    }
}

fn posterior(parts: &BySpread, slopes: &[f64; 5], likely: &Grid) -> Grid {
    let times = |likely: &dyn Fn(usize, usize) -> f64| {
        let mut grid = [[0.0; 5]; SPREADS.len()];
        for (spread, row) in grid.iter_mut().enumerate() {
            for (slope, chance) in row.iter_mut().enumerate() {
                *chance = parts[spread] * slopes[slope] * likely(spread, slope);
            }
        }
        grid
    };
    let grid = times(&|spread, slope| likely[spread][slope]);
    let sum: f64 = grid.iter().flatten().sum();
    if sum > 0.0 {
        grid.map(|row| row.map(|chance| chance / sum))
    } else {
        times(&|_, _| 1.0)
    }
}

/// The shares of an item in the runs.
fn shares(tally: &Tally, item: usize, scale: f64) -> [Vec<f64>; 2] {
    let share = |run: &Run| run.count(item) / run.total().max(1.0) * scale;
    tally
        .sides
        .each_ref()
        .map(|runs| runs.iter().map(share).collect())
}

/// Each run's weight in its side's share.
fn weights(samples: &[f64]) -> Vec<f64> {
    let whole: f64 = samples.iter().sum();
    samples.iter().map(|one| one / whole.max(1.0)).collect()
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

    fn of(a: &[Vec<f64>], b: &[Vec<f64>]) -> Runs {
        with_samples(a, b, [vec![12_000.0; a.len()], vec![12_000.0; b.len()]])
    }

    fn with_samples(a: &[Vec<f64>], b: &[Vec<f64>], samples: [Vec<f64>; 2]) -> Runs {
        let tally = Tally {
            sides: [side(a), side(b)],
        };
        let known = vec![
            Prior {
                leeway: 0.2 * 0.8,
                is_witness: true,
            };
            a[0].len()
        ];
        Runs::of(&tally, &known, &samples, 1.0)
    }

    fn spread(chances: &BySpread) -> f64 {
        let squares = chances.iter().zip(SPREADS);
        squares
            .map(|(chance, spread)| chance * spread * spread)
            .sum::<f64>()
            .sqrt()
    }

    #[test]
    fn single_recordings_say_nothing_about_runs() {
        let runs = of(&[vec![0.2]], &[vec![0.3]]);
        assert!(!runs.is_measured);
        assert_eq!(runs.chances, [ALONE]);
    }

    #[test]
    fn blocks_that_are_like_their_neighbours_are_joined_with_two_runs_too() {
        // Shares that stay the same for six blocks, or for one, in random order.
        let runs = |stays: usize| {
            let run = |number: usize| {
                let own = |block: usize| match (block / stays * 7919 + number * 31) * 613 % 97 {
                    low if low < 48 => 15.0,
                    _ => 25.0,
                };
                Run {
                    totals: vec![100.0; BLOCKS],
                    items: vec![(0..BLOCKS).map(own).collect()],
                }
            };
            let tally = Tally {
                sides: [vec![run(0), run(1)], vec![run(2), run(3)]],
            };
            let known = Prior {
                leeway: 0.16,
                is_witness: true,
            };
            let samples = [vec![12_000.0; 2], vec![12_000.0; 2]];
            Runs::of(&tally, &[known], &samples, 1.0).within[0]
        };
        let (slow, quick) = (runs(6), runs(1));
        assert!(slow > 2.0 * quick, "{slow} {quick}");
    }

    #[test]
    fn what_all_items_show_is_believed_more_than_what_one_shows() {
        // Ten items that are equal in all runs, and one that isn't.
        let mut odd = vec![0.2; 11];
        odd[10] = 0.23;
        let runs = of(&[vec![0.2; 11], odd.clone()], &[vec![0.2; 11], odd]);
        assert!(runs.is_measured);
        assert!(spread(&runs.chances[0]) < spread(&BEFORE) / 2.0);
        assert!(spread(&runs.chances[10]) > 2.0 * spread(&runs.chances[0]));
    }

    /// A share of 0.2 that is smaller in runs with more samples, as the slope says.
    fn sloped(samples: &[f64], slope: f64) -> Vec<Vec<f64>> {
        let share = |samples: &f64| 0.2 + slope * 0.16 * (samples / 12_000.0).ln();
        samples.iter().map(|it| vec![share(it); 5]).collect()
    }

    #[test]
    fn what_goes_with_the_samples_of_runs_is_no_spread_and_is_taken_out() {
        let samples = [
            vec![11_000.0, 12_500.0, 14_000.0, 12_000.0],
            vec![12_000.0, 14_500.0, 13_000.0, 15_500.0],
        ];
        let [a, b] = samples.each_ref().map(|side| sloped(side, -0.4));
        let loaded = with_samples(&a, &b, samples.clone());
        // The same shares in runs with equal numbers of samples.
        let untold = of(&a, &b);
        assert!(spread(&loaded.chances[0]) < spread(&untold.chances[0]) / 3.0);
        assert_eq!(untold.shifts[0], Shift::default());
        let mean = |side: &[Vec<f64>], counts: &[f64]| {
            let pairs = side.iter().zip(counts);
            pairs.map(|(run, count)| run[0] * count).sum::<f64>() / counts.iter().sum::<f64>()
        };
        let difference = mean(&b, &samples[1]) - mean(&a, &samples[0]);
        let left = difference - loaded.shifts[0].mean;
        assert!(
            left.abs() < difference.abs() / 10.0,
            "{left} of {difference}"
        );
    }

    #[test]
    fn a_side_that_has_more_to_do_is_not_a_disturbed_one() {
        // B's runs are twice as long, while runs of one side differ by little.
        let samples = [
            vec![11_900.0, 12_000.0, 12_100.0],
            vec![23_900.0, 24_000.0, 24_100.0],
        ];
        let [a, b] = samples.each_ref().map(|side| sloped(side, -0.4));
        let runs = with_samples(&a, &b, samples);
        let difference = b[1][0] - a[1][0];
        assert!(runs.shifts[0].mean.abs() < difference.abs() / 20.0);
    }
}
