//! Decides which changes of calls are certain. Time per call and calls a second are tested separately, each
//! with its own error rate. Within each, a question has the larger a part of the rate the more time its
//! function takes, and questions are accepted step by step as for shares. The tested change excludes the change
//! that most functions have in common (`level`). It is certain if it is larger than the smallest change to
//! report, and if the function's own value changed by as much in the same direction. For the frequency of calls,
//! the tested value is the share of all calls, which doesn't depend on other load on the machine.

use super::counts::{CallCell, CallRun, CallSeries, Measure};
use super::estimates::{Estimates, Item};
use super::ratio::Ratio;
use crate::diff::DiffOptions;
use crate::diff::estimate::Estimate;
use crate::diff::matching::Kind;
use crate::diff::plan::POWER;
use crate::diff::questions::ErrorRate;
use crate::diff::series::BLOCKS;

/// The comparison of one measure of one function.
#[derive(Debug, Clone, PartialEq)]
pub struct CallChange {
    /// Function, as an index into [`CallSeries::functions`].
    pub function: u32,
    /// Which measure of its calls.
    pub of: Measure,
    /// Number of calls that were counted on each side: all calls, or for times those whose duration is known.
    pub calls: [f64; 2],
    /// Nanoseconds a call, or calls a second, or calls of a thousand, of each side.
    pub values: [f64; 2],
    /// Its share of all time, 0 to 1.
    pub share: f64,
    /// The logarithm of the change, without the change that most functions have in common.
    pub estimate: Estimate,
    /// The probability of a change at least this large if the true one is too small to report.
    pub p: f64,
    /// Whether the change is certainly larger than the smallest one to report.
    pub certain: bool,
    /// Confidence of [`CallChange::interval`].
    pub confidence: f64,
    /// The relative change that would have been found with a probability of 80 %.
    pub detectable: f64,
}

impl CallChange {
    /// The relative change from A's value to B's; infinite for a new function.
    pub fn relative(&self) -> f64 {
        self.values[1] / self.values[0] - 1.0
    }

    /// The relative change without the change that most functions have in common.
    pub fn apart(&self) -> f64 {
        self.estimate.change().exp_m1()
    }

    /// The interval of [`CallChange::apart`].
    pub fn interval(&self) -> (f64, f64) {
        self.interval_with(self.confidence)
    }

    /// The same interval with another confidence.
    pub(crate) fn interval_with(&self, confidence: f64) -> (f64, f64) {
        let (low, high) = self.estimate.interval(confidence);
        (low.exp() - 1.0, high.exp() - 1.0)
    }
}

/// All comparisons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallVerdicts {
    /// One for each function and measure that can be compared: the certain ones first, then by the time that
    /// they concern.
    pub changes: Vec<CallChange>,
    /// Number of functions with too few calls, or calls in too few blocks: for the time per call, and for the
    /// frequency of calls.
    pub too_few: [usize; 2],
    /// Whether differences between runs were measured.
    pub runs_measured: bool,
    /// The relative change that most functions have in common: of the time per call, and of calls a second or
    /// of a thousand.
    pub common: [f64; 2],
}

/// With fewer calls on both sides together (for times, on each side), no change could be certain.
const CALLS_MIN: f64 = 16.0;

/// Judges all functions of `series`.
pub fn judge_calls(series: &CallSeries, options: &DiffOptions) -> CallVerdicts {
    let whole: f64 = (0..2).map(|side| sum(series, side, None).own_ns).sum();
    let mut asked: [Vec<Item>; 2] = [Vec::new(), Vec::new()];
    let mut too_few = [0; 2];
    for function in 0..series.functions.len() as u32 {
        let cells = [0, 1].map(|side| sum(series, side, Some(function)));
        let share = (cells[0].own_ns + cells[1].own_ns) / whole.max(1.0);
        let calls_nothing = cells.iter().all(|cell| cell.own_ns >= cell.total_ns);
        let mut is_asked = [false; 2];
        for of in [Measure::Own, Measure::Total, Measure::Rate] {
            let is_again = of == Measure::Total && calls_nothing;
            let is_known = series.functions[function as usize].kind != Kind::Unmatched;
            if let Some(item) = item(series, function, of, share, &cells)
                && is_known
                && !is_again
            {
                let kind = usize::from(of == Measure::Rate);
                asked[kind].push(item);
                is_asked[kind] = true;
            }
        }
        for (sum, is_asked) in too_few.iter_mut().zip(is_asked) {
            *sum += usize::from(!is_asked);
        }
    }
    let mut verdicts = CallVerdicts {
        too_few,
        ..CallVerdicts::default()
    };
    let counts = series.sides.each_ref().map(Vec::len);
    verdicts.runs_measured = counts.iter().any(|count| *count > 1);
    for (number, items) in asked.iter_mut().enumerate() {
        items.sort_by(|x, y| {
            let share = y.share.total_cmp(&x.share);
            share.then(x.function.cmp(&y.function))
        });
        let estimates = Estimates::new(items, counts);
        let found = answers(items, &estimates, options);
        verdicts.changes.extend(found);
        verdicts.common[number] = estimates.common.exp_m1();
    }
    // Shares of all calls were compared. The rest of the change in calls a second is the change of all calls
    // together.
    let [a, b] = [0, 1].map(|side| {
        let seconds = series.sides[side].iter().flat_map(|run| &run.blocks);
        sum(series, side, None).calls / seconds.sum::<f64>().max(f64::MIN_POSITIVE)
    });
    if a > 0.0 && b > 0.0 {
        verdicts.common[1] = (verdicts.common[1] + 1.0) * b / a - 1.0;
    }
    sort(&mut verdicts.changes);
    verdicts
}

fn sort(changes: &mut [CallChange]) {
    changes.sort_by(|x, y| {
        let size = |change: &CallChange| {
            let (low, high) = change.estimate.interval(change.confidence);
            if low > 0.0 || high < 0.0 {
                low.abs().min(high.abs()) * change.share
            } else {
                0.0
            }
        };
        y.certain
            .cmp(&x.certain)
            .then(size(y).total_cmp(&size(x)))
            .then(y.share.total_cmp(&x.share))
            .then(x.function.cmp(&y.function))
            .then(x.of.cmp(&y.of))
    });
}

/// Sum of the calls of a side, or of one of its functions.
fn sum(series: &CallSeries, side: usize, function: Option<u32>) -> CallCell {
    let runs = series.sides[side].iter();
    let functions = runs.flat_map(|run| match function {
        Some(function) => run.functions.range(function..=function),
        None => run.functions.range(..),
    });
    let mut all = CallCell::default();
    for cell in functions.flat_map(|(_, blocks)| blocks.values()) {
        all.add_all(cell);
    }
    all
}

/// The question about a function; `None` if it has too few calls.
fn item(
    series: &CallSeries,
    function: u32,
    of: Measure,
    share: f64,
    cells: &[CallCell; 2],
) -> Option<Item> {
    let calls = cells.each_ref().map(|cell| match of {
        Measure::Rate => cell.calls,
        Measure::Own | Measure::Total => cell.ended,
    });
    let are_enough = match of {
        Measure::Rate => calls[0] + calls[1] >= CALLS_MIN,
        Measure::Own | Measure::Total => calls.iter().all(|calls| *calls >= CALLS_MIN),
    };
    if !are_enough {
        return None;
    }
    let runs = series.sides.each_ref().map(|side| {
        let ratios = side.iter().map(|run| ratio(run, function, of));
        ratios.collect::<Vec<Ratio>>()
    });
    let values = [0, 1].map(|side| {
        let per = series.sides[side].iter().flat_map(|run| &run.blocks);
        let [above, below] = match of {
            Measure::Own => [cells[side].own_ns, cells[side].ended],
            Measure::Total => [cells[side].total_ns, cells[side].ended],
            Measure::Rate => [cells[side].calls, per.sum()],
        };
        above / below.max(f64::MIN_POSITIVE)
    });
    let is_told = |side: usize| of == Measure::Rate || values[side] > 0.0;
    let can_tell = runs
        .iter()
        .all(|side| side.iter().any(|run| run.variance(1).is_some()));
    (is_told(0) && is_told(1) && can_tell).then_some(Item {
        function,
        of,
        calls,
        values,
        share,
        runs,
    })
}

/// The ratio of a function in a run.
fn ratio(run: &CallRun, function: u32, of: Measure) -> Ratio {
    let none = CallCell::default();
    let cells = run.functions.get(&function);
    let all = &run.calls;
    let cell = |block: usize| cells.and_then(|cells| cells.get(&block)).unwrap_or(&none);
    let block = |block: usize| {
        let cell = cell(block);
        match of {
            Measure::Own => [cell.own_ns, cell.ended],
            Measure::Total => [cell.total_ns, cell.ended],
            Measure::Rate => [cell.calls, all.get(block).copied().unwrap_or(0.0)],
        }
    };
    let blocks = (0..BLOCKS).map(block).filter(|block| block[1] > 0.0);
    let mut ratio = Ratio {
        blocks: blocks.collect(),
        independent: 0.0,
    };
    let [above, below] = ratio.sums();
    let squares: f64 = cells.map_or(0.0, |cells| {
        let squares = cells.values().map(|cell| match of {
            Measure::Own => cell.own_squares,
            _ => cell.total_squares,
        });
        squares.sum()
    });
    ratio.independent = match of {
        Measure::Rate => 1.0 / above.max(0.5),
        // The relative variance of the mean of this many calls.
        _ if above > 0.0 => (squares / (above * above) - 1.0 / below).max(0.0),
        _ => 0.0,
    };
    ratio
}

/// The part of the error rate that is used. The rest is reserved for what the model of runs omits: variances
/// are estimated from a few runs, and some functions alternate.
const GIVEN: f64 = 0.6;

/// Answers the questions about one measure.
fn answers(items: &[Item], estimates: &Estimates, options: &DiffOptions) -> Vec<CallChange> {
    let least = options.least_change.ln_1p();
    let p = |(item, estimate): (&Item, &Estimate)| {
        let own = item.values[1].ln() - item.values[0].ln();
        let is_so = own * estimate.change() > 0.0 && own.abs() > least;
        match estimate.change().abs() - least {
            size if size > 0.0 && is_so => estimate.beyond(size),
            _ => 1.0,
        }
    };
    let ps: Vec<f64> = items.iter().zip(&estimates.all).map(p).collect();
    let shares: Vec<f64> = items.iter().map(|item| item.share.max(1e-6)).collect();
    let rate = ErrorRate::new(options.false_discoveries * GIVEN, &shares);
    let allowed = |item: usize, step: usize| rate.allowed(shares[item], step);
    let ratio = |item: usize| ps[item] / allowed(item, 1);
    let mut ratios: Vec<f64> = (0..items.len()).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    // The n-th most significant question is tested at n times its part of the error rate.
    let mut by_rank = ratios.iter().enumerate();
    let steps = by_rank.rposition(|(at, ratio)| *ratio <= (at + 1) as f64);
    let steps = steps.map_or(0, |at| at + 1);
    let change = |(number, item): (usize, &Item)| {
        let estimate = &estimates.all[number];
        let certain = steps > 0 && ps[number] <= allowed(number, steps);
        let confidence = if certain {
            1.0 - allowed(number, steps)
        } else {
            options.confidence
        };
        let needed = estimate.half(1.0 - allowed(number, 1)) + POWER * estimate.error();
        CallChange {
            function: item.function,
            of: item.of,
            calls: item.calls,
            values: item.values,
            share: item.share,
            estimate: *estimate,
            p: ps[number],
            certain,
            confidence,
            detectable: (least + needed).exp_m1(),
        }
    };
    items.iter().enumerate().map(change).collect()
}
