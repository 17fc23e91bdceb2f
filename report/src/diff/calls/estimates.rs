//! The change of ratios, and its error. Ratios differ from run to run for two reasons. One is the level of
//! the run, which all functions have in common (`level`); it is removed. The other is the variation of each
//! function, whose spread is estimated from all functions together, as for shares (`runs`).

use super::counts::Measure;
use super::level::{Vote, level};
use super::ratio::{Ratio, block_length};
use crate::diff::estimate::Estimate;
use crate::diff::load::{Evidence, Load, SPREADS};
use crate::diff::runs::{Prior, Runs};
use crate::diff::spread::{LOOKED_AT, degrees};

/// A question that is not answered yet.
pub(super) struct Item {
    pub function: u32,
    pub of: Measure,
    pub calls: [f64; 2],
    pub values: [f64; 2],
    pub share: f64,
    pub runs: [Vec<Ratio>; 2],
}

/// The ratio of one run.
#[derive(Debug, Clone, Copy)]
struct InRun {
    side: usize,
    run: usize,
    log: f64,
    variance: f64,
    /// The run's share of the numerators of its side.
    weight: f64,
}

/// The common change is reported if it is more than this many of its standard errors.
const LEAST_ERRORS: f64 = 3.0;

/// The changes of all items.
pub(super) struct Estimates {
    /// The change of each item, without the common change.
    pub all: Vec<Estimate>,
    /// The logarithm of the common change.
    pub common: f64,
}

impl Estimates {
    /// Compares `items`, those with the most time first. `counts` are the numbers of recordings of each side.
    pub(crate) fn new(items: &[Item], counts: [usize; 2]) -> Estimates {
        let length = match counts[0] + counts[1] {
            // As in `runs`: with more recordings, slow changes show as differences between them.
            0..=4 => {
                let largest = items.iter().take(LOOKED_AT);
                block_length(largest.flat_map(|item| item.runs.iter().flatten()))
            }
            _ => 1,
        };
        let seen: Vec<Vec<InRun>> = items.iter().map(|item| in_runs(item, length)).collect();
        let levels = [0, 1].map(|side| {
            let of_run = |run: usize| level(&votes(items, &seen, (side, run)));
            (0..counts[side]).map(of_run).collect::<Vec<_>>()
        });
        let means = [0, 1].map(|side| {
            let sum: f64 = levels[side].iter().map(|level| level.change).sum();
            sum / counts[side].max(1) as f64
        });
        let of_levels: f64 = [0, 1]
            .map(|side| {
                let sum: f64 = levels[side].iter().map(|level| level.variance).sum();
                sum / counts[side].max(1).pow(2) as f64
            })
            .iter()
            .sum();
        let shifts: Vec<f64> = items
            .iter()
            .zip(&seen)
            .map(|(item, seen)| {
                // The mean level of a side over the runs that have the item.
                let [a, b] = [0, 1].map(|side| {
                    let mine = seen.iter().filter(|seen| seen.side == side);
                    let sum: f64 = mine
                        .map(|seen| seen.weight * levels[side][seen.run].change)
                        .sum();
                    if item.runs[side].iter().any(|run| run.sums()[0] > 0.0) {
                        sum
                    } else {
                        means[side]
                    }
                });
                b - a
            })
            .collect();
        let change = |number: usize, item: &Item| {
            let logs = [0, 1].map(|side| side_log(item, &seen[number], side));
            (logs, logs[1] - logs[0] - shifts[number])
        };
        let within = items.iter().enumerate().map(|(number, item)| {
            let change = change(number, item).1;
            of_levels + within(&seen[number], change)
        });
        let within: Vec<f64> = within.collect();
        let runs = spreads(&seen, &levels, within, counts, length);
        let estimate = |(number, item): (usize, &Item)| {
            let within = runs.within[number];
            let (logs, _) = change(number, item);
            let of_runs = item.runs.iter().flatten().map(|run| run.degrees(length));
            Estimate {
                a: logs[0],
                b: logs[1],
                shift: shifts[number],
                samples: item.calls,
                errors: SPREADS.map(|spread| (within + spread * spread * runs.leverage).sqrt()),
                chances: runs.chances[number],
                df: of_runs
                    .sum::<f64>()
                    .clamp(1.0, degrees(1) * (counts[0] + counts[1]) as f64),
                p: 1.0,
                design_effect: 1.0,
            }
        };
        Estimates {
            all: items.iter().enumerate().map(estimate).collect(),
            common: match means[1] - means[0] {
                common if common.abs() > LEAST_ERRORS * of_levels.sqrt() => common,
                _ => 0.0,
            },
        }
    }
}

/// The ratios of an item in the runs that have it.
fn in_runs(item: &Item, length: usize) -> Vec<InRun> {
    let mut all = Vec::new();
    for (side, runs) in item.runs.iter().enumerate() {
        let whole: f64 = runs.iter().map(|run| run.sums()[0]).sum();
        let known: Vec<f64> = runs.iter().filter_map(|run| run.variance(length)).collect();
        let typical = known.iter().sum::<f64>() / known.len().max(1) as f64;
        for (number, run) in runs.iter().enumerate() {
            let [above, below] = run.sums();
            if above > 0.0 && below > 0.0 {
                all.push(InRun {
                    side,
                    run: number,
                    log: (above / below).ln(),
                    // A run with few blocks gives no error of its own, so the typical error of the others is
                    // used.
                    variance: run.variance(length).unwrap_or(typical),
                    weight: above / whole,
                });
            }
        }
    }
    all
}

/// The vote of each item on the level of a run: its difference from its mean over both sides.
fn votes(items: &[Item], seen: &[Vec<InRun>], (side, run): (usize, usize)) -> Vec<Vote> {
    let both = items.iter().zip(seen);
    let vote = |(item, seen): (&Item, &Vec<InRun>)| {
        let here = seen
            .iter()
            .find(|seen| seen.side == side && seen.run == run)?;
        let means = [0, 1].map(|side| {
            let mine = seen.iter().filter(move |seen| seen.side == side);
            let sums = mine.map(|seen| [seen.log, 1.0]);
            let [sum, count] = sums.fold([0.0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
            (count > 0.0).then(|| sum / count)
        });
        let [Some(a), Some(b)] = means else {
            return None;
        };
        (item.of != Measure::Total).then_some(Vote {
            change: here.log - (a + b) / 2.0,
            variance: here.variance,
        })
    };
    both.filter_map(vote).collect()
}

/// The variance within runs of `change`, the difference of both sides' logarithms. A mean that is mostly one
/// long call has an error as large as itself, which the error of its logarithm doesn't show. So the error is
/// at least so large that the logarithm is as many standard errors from no change as the difference of the
/// ratios themselves. A function that a side lacks is treated as if it had been called half a time.
fn within(seen: &[InRun], change: f64) -> f64 {
    let of_side = |side: usize| {
        let mine = seen.iter().filter(|seen| seen.side == side);
        let all: Vec<f64> = mine
            .map(|seen| seen.weight.powi(2) * seen.variance)
            .collect();
        if all.is_empty() {
            2.0
        } else {
            all.iter().sum()
        }
    };
    let [a, b] = [0, 1].map(of_side);
    let factor = change.exp();
    let apart = change.exp_m1();
    if apart.abs() > 1e-9 {
        (a + b).max((a + b * factor * factor) * (change / apart).powi(2))
    } else {
        a + b
    }
}

/// The logarithm of a side's quotient.
fn side_log(item: &Item, seen: &[InRun], side: usize) -> f64 {
    let mine = || seen.iter().filter(|seen| seen.side == side);
    if mine().next().is_some() {
        return mine().map(|seen| seen.weight * seen.log).sum();
    }
    // Half a call, of as many calls as the other side has.
    let other = seen.iter().filter(|seen| seen.side != side);
    let other: f64 = other.map(|seen| seen.weight * seen.log).sum();
    other - (2.0 * item.calls[1 - side].max(1.0)).ln()
}

/// The differences between runs in addition to their levels.
fn spreads(
    seen: &[Vec<InRun>],
    levels: &[Vec<Vote>; 2],
    within: Vec<f64>,
    counts: [usize; 2],
    length: usize,
) -> Runs {
    // Nothing here depends on the number of samples of a run, so all runs have the same.
    let even = counts.map(|count| vec![1.0; count]);
    let weights = counts.map(|count| vec![1.0 / count.max(1) as f64; count]);
    let load = Load::new(&even, &weights);
    let of_item = |seen: &Vec<InRun>| {
        let logs = [0, 1].map(|side| {
            let mine = seen.iter().filter(|seen| seen.side == side);
            mine.map(|seen| seen.log - levels[side][seen.run].change)
                .collect::<Vec<f64>>()
        });
        let sum: f64 = seen.iter().map(|seen| seen.variance).sum();
        Evidence::new(sum / seen.len().max(1) as f64, 1.0, &logs, &load)
    };
    let seen: Vec<Evidence> = seen.iter().map(of_item).collect();
    let known = vec![
        Prior {
            leeway: 1.0,
            is_witness: true,
        };
        seen.len()
    ];
    let degrees = counts.iter().map(|count| count.saturating_sub(1)).sum();
    let leverage = counts
        .iter()
        .map(|count| 1.0 / (*count).max(1) as f64)
        .sum();
    Runs::learned(within, &seen, &known, (degrees, leverage), length, &load)
}
