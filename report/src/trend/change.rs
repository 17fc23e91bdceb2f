//! A function's levels and changes in numbers. Input: its samples, and the recordings with which new levels begin.
//! Output: shares of all samples with intervals.

use super::judge::Verdict;
use super::shares::{self, Shares};
use crate::diff::{relative_interval, student};
use std::ops::Range;

/// A change of a function's share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The first recording of the new level.
    pub at: usize,
    /// The share of the level before, 0 to 1.
    pub before: f64,
    /// The share of the new level.
    pub after: f64,
    /// Interval of that share.
    pub after_interval: (f64, f64),
    /// Interval of the change, with the confidence of the function's test.
    pub interval: (f64, f64),
    /// Interval of the change relative to the level before; `None` if that had no sample.
    pub relative: Option<(f64, f64)>,
}

/// A function's trend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionTrend {
    /// Its name.
    pub name: String,
    /// The file name of its image, in the last recording that has it.
    pub module: String,
    /// Whether its image is the user's own rather than the system's.
    pub own: bool,
    /// Its share in each recording, 0 to 1.
    pub shares: Vec<f64>,
    /// Its share in all recordings since its last change.
    pub share: f64,
    /// Interval of that share.
    pub interval: (f64, f64),
    /// Its certain changes, in their order.
    pub changes: Vec<Change>,
    /// Whether its share changed only because those of other functions did.
    pub pushed: bool,
    /// The probability that chance alone finds as much.
    pub p: f64,
}

impl Change {
    /// The part of the change that is certain, with its sign.
    pub(crate) fn sure(&self) -> f64 {
        match self.interval {
            (low, _) if low > 0.0 => low,
            (_, high) if high < 0.0 => high,
            _ => 0.0,
        }
    }

    /// The change relative to the level before; `None` if that had no sample.
    pub fn ratio(&self) -> Option<f64> {
        (self.before > 0.0).then(|| self.after / self.before - 1.0)
    }
}

/// A level: a share and its standard error.
#[derive(Clone, Copy)]
struct Level {
    share: f64,
    error: f64,
}

impl Level {
    /// The interval of the share.
    fn interval(self, critical: f64) -> (f64, f64) {
        let half = critical * self.error;
        ((self.share - half).max(0.0), (self.share + half).min(1.0))
    }
}

impl FunctionTrend {
    /// Measures the levels of a function with these samples in recordings of so many.
    pub(super) fn new(
        (counts, wholes): (&[f64], &[f64]),
        verdict: &Verdict,
        inflation: f64,
        confidence: f64,
    ) -> FunctionTrend {
        let noise = Shares::new(counts, wholes).without(&verdict.steps);
        let level = |recordings: Range<usize>| {
            let count: f64 = counts[recordings.clone()].iter().sum();
            let whole: f64 = wholes[recordings.clone()].iter().sum();
            let share = count / whole.max(1.0);
            let weight: f64 = noise.variances[recordings].iter().map(|it| 1.0 / it).sum();
            // Of a level without samples, the slope of a single one.
            let slope = shares::slope(share.max(1.0 / whole.max(1.0)));
            let error = slope * (noise.scale(&[]) * inflation / weight).sqrt();
            Level { share, error }
        };
        let critical = |confidence: f64| student::critical(1.0 - confidence, noise.degrees());
        let begins = [0].into_iter().chain(verdict.steps.iter().copied());
        let ends = verdict.steps.iter().copied().chain([counts.len()]);
        let levels: Vec<Level> = begins.zip(ends).map(|(from, to)| level(from..to)).collect();
        let of_test = critical(1.0 - verdict.allowed);
        let of_level = critical(confidence);
        let changes = levels
            .windows(2)
            .zip(&verdict.steps)
            .map(|(two, at)| Change {
                after_interval: two[1].interval(of_level),
                ..change(two[0], two[1], *at, of_test)
            });
        let last = levels[levels.len() - 1];
        let pairs = counts.iter().zip(wholes);
        FunctionTrend {
            shares: pairs.map(|(count, whole)| count / whole.max(1.0)).collect(),
            share: last.share,
            interval: last.interval(of_level),
            changes: changes.collect(),
            pushed: verdict.pushed,
            p: verdict.p,
            ..FunctionTrend::default()
        }
    }
}

fn change(before: Level, after: Level, at: usize, critical: f64) -> Change {
    let difference = after.share - before.share;
    let half = critical * before.error.hypot(after.error);
    let interval = (difference - half, difference + half);
    let mean = (before.share + after.share) / 2.0;
    let relative = (before.share > 0.0).then(|| relative_interval(interval, mean));
    Change {
        at,
        before: before.share,
        after: after.share,
        after_interval: (after.share, after.share),
        interval,
        relative,
    }
}
