//! Trend. Input: recordings of one service, in order of time or version. Output: each function's share of the
//! samples, and where it changed, with the rate of false discoveries limited over all functions.
//!
//! `collector` counts the own samples of each function in each recording, one recording after another, and keeps
//! nothing else of them. `order` sorts the recordings. `shares` makes a function's shares comparable and measures
//! their noise; `steps` finds where their level changes; `chance` and `shuffles` say how often that is noise; `judge`
//! decides which changes are certain.

pub mod identity;
pub mod order;
mod shares;
mod chance;
mod steps;
mod shuffles;
mod collector;
mod judge;
pub mod change;
pub mod rows;
pub mod table;
pub mod markdown;
pub mod json;
pub mod html;

pub use change::{Change, FunctionTrend};
pub use collector::{Collector, RECORDINGS_MAX};
pub use identity::{Identity, Sighting};
pub use order::Order;

use crate::diff::ASIDE;
use crate::profile::gather::Options;
use crate::recording::Unit;
use judge::Judge;

/// What to look for, and the certainty that is required.
#[derive(Debug, Clone)]
pub struct TrendOptions {
    /// Filters of samples and frames; grouping is always by function.
    pub gather: Options,
    /// The order of recordings.
    pub order: Order,
    /// Confidence of intervals, such as 0.95.
    pub confidence: f64,
    /// The largest share of false discoveries among the functions that certainly changed.
    pub false_discoveries: f64,
    /// The smallest change of a share, 0 to 1, that is reported.
    pub least_change: f64,
    /// The smallest share, 0 to 1, of some successive recordings at which a function is tested.
    pub least_share: f64,
    /// Whether to show the folders of recordings.
    pub identify: bool,
}

impl Default for TrendOptions {
    fn default() -> Self {
        TrendOptions {
            gather: Options::default(),
            order: Order::default(),
            confidence: 0.95,
            false_discoveries: 0.05,
            least_change: 0.0005,
            least_share: 0.001,
            identify: false,
        }
    }
}

/// A recording of the series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// Its start, in nanoseconds since 1970.
    pub start_realtime_ns: Option<i64>,
    /// Its label that the series is in order of, else its version.
    pub label: Option<String>,
    /// The number of its samples or waits.
    pub samples: f64,
    /// Whether samples are missing.
    pub is_incomplete: bool,
}

/// A finished trend.
#[derive(Debug)]
pub struct Trend {
    /// The unit of the samples.
    pub unit: Unit,
    /// The recordings in their order.
    pub points: Vec<Point>,
    /// The functions that were asked about: those that changed first, then by share.
    pub functions: Vec<FunctionTrend>,
    /// The factor of variances by which successive recordings are alike.
    pub inflation: f64,
    /// Warnings: what makes the trend weaker than it looks.
    pub warnings: Vec<String>,
    /// The options that it was made with.
    pub options: TrendOptions,
}

/// Why a recording can't be one of a series, or a series has no trend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrendError {
    /// Too many recordings.
    #[error("at most {0} recordings are read; name those of a part of the time")]
    TooMany(usize),
    /// Its identity is known.
    #[error("it has the identity of another recording of the series")]
    Twice,
    /// No sample is selected.
    #[error("it has no sample that counts")]
    NoSample,
    /// It has no label to sort by.
    #[error(
        "it has no label {0} to sort by; `record --label {0}=…` gives it one, and --order time needs none"
    )]
    NoLabel(String),
    /// It has no time of day.
    #[error("it has no time of day to sort by; --order given keeps the order of the command line")]
    NoTime,
    /// Its samples have another unit than those of the first.
    #[error("its {0} can't be in one series with the {1} of others")]
    OtherUnit(&'static str, &'static str),
    /// There are too few recordings.
    #[error(
        "a trend needs at least {1} recordings, and there are {0}; `uniprof diff` compares fewer"
    )]
    TooFew(usize, usize),
}

/// Fewest recordings: two levels.
const POINTS_MIN: usize = 2 * steps::LEVEL_MIN;

impl Collector {
    /// The trend of all recordings.
    ///
    /// # Errors
    /// There are too few.
    pub fn finish(self) -> Result<Trend, TrendError> {
        if self.points.len() < POINTS_MIN {
            return Err(TrendError::TooFew(self.points.len(), POINTS_MIN));
        }
        let numbers = self.options.order.of(&self.points);
        let mut places = vec![0; numbers.len()];
        for (place, number) in numbers.iter().enumerate() {
            places[*number] = place;
        }
        let points: Vec<Point> = numbers.iter().map(|it| self.points[*it].clone()).collect();
        let wholes: Vec<f64> = points.iter().map(|point| point.samples).collect();
        let mut functions = Vec::new();
        let mut counts = Vec::new();
        for function in self.functions {
            let mut own = vec![0.0; points.len()];
            for (number, samples) in &function.counts {
                own[places[*number as usize]] = *samples;
            }
            if is_asked(&own, &wholes, self.options.least_share) {
                functions.push((function.name, function.module, function.own));
                counts.push(own);
            }
        }
        let weight = |own: bool| if own { 1.0 } else { ASIDE };
        let weights: Vec<f64> = functions.iter().map(|it| weight(it.2)).collect();
        let may_begin = self.options.order.may_begin(&points);
        let judge = Judge {
            wholes: &wholes,
            counts: &counts,
            weights: &weights,
            may_begin: &may_begin,
            options: &self.options,
        };
        let verdicts = judge.judge();
        let measured = functions.into_iter().zip(counts).zip(verdicts.functions);
        let measured = measured.map(|(((name, module, own), counts), verdict)| {
            let mut function = FunctionTrend::new(
                (&counts, &wholes),
                &verdict,
                verdicts.inflation,
                self.options.confidence,
            );
            (function.name, function.module, function.own) = (name, module, own);
            function
        });
        let mut functions: Vec<FunctionTrend> = measured.collect();
        functions.sort_by(|a, b| {
            let size = |it: &FunctionTrend| it.changes.last().map_or(0.0, |last| last.sure().abs());
            let changed = b.changes.is_empty().cmp(&a.changes.is_empty()).reverse();
            let sizes = size(b).total_cmp(&size(a));
            let shares = b.share.total_cmp(&a.share);
            changed
                .then(sizes)
                .then(shares)
                .then(a.name.cmp(&b.name))
                .then(a.module.cmp(&b.module))
        });
        let warnings = warnings(&points, self.is_full);
        Ok(Trend {
            unit: self.unit.unwrap_or_default(),
            points,
            functions,
            inflation: verdicts.inflation,
            warnings,
            options: self.options,
        })
    }
}

/// Whether some successive recordings, as many as a level has, have the least share together.
fn is_asked(counts: &[f64], wholes: &[f64], least_share: f64) -> bool {
    let pairs = counts
        .windows(steps::LEVEL_MIN)
        .zip(wholes.windows(steps::LEVEL_MIN));
    pairs.into_iter().any(|(counts, wholes)| {
        counts.iter().sum::<f64>() >= least_share * wholes.iter().sum::<f64>()
    })
}

fn warnings(points: &[Point], is_full: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let incomplete = points.iter().filter(|point| point.is_incomplete).count();
    if incomplete > 0 {
        warnings.push(format!(
            "{incomplete} of {} recordings are not whole; `uniprof info` says what they lack",
            points.len()
        ));
    }
    if is_full {
        warnings.push(
            "there are more functions than are counted; a larger --min-share and --min-change leave out small ones"
                .to_owned(),
        );
    }
    warnings
}
