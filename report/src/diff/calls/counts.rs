//! Calls by function and block. If all recordings have start times, blocks are equal ranges of time. If one
//! has only the order of calls, blocks are equal numbers of calls; calls a second are then unknown, and a
//! function's share of all calls is compared instead.

use crate::diff::DiffOptions;
use crate::diff::matching::{Match, Matching};
use crate::diff::series::{BLOCKS, block_of, images};
use crate::images::library::Library;
use crate::profile::gather::{self, By, Options, Sampled};
use crate::profile::{LabelId, Profile};
use crate::recording::account::Account;
use crate::recording::unit::{Unit, Weight};
use crate::recording::warnings::Warning;
use crate::recording::{Recording, SpanCounts};
use std::collections::BTreeMap;
use uprof::Span;

/// What blocks have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocks {
    /// An equal duration.
    #[default]
    Time,
    /// An equal number of calls, because not all recordings have times.
    Order,
}

/// The measure of a function's calls that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Self time per call.
    Own,
    /// Total time per call, with all callees.
    Total,
    /// Calls a second; in recordings without times, calls of a thousand.
    Rate,
}

impl Measure {
    /// One word for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Own => "self",
            Measure::Total => "total",
            Measure::Rate => "calls",
        }
    }
}

/// Calls of a function in one block of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallCell {
    /// Number of calls that began.
    pub calls: f64,
    /// Number of calls whose duration is known.
    pub ended: f64,
    /// Self time of those calls (nanoseconds).
    pub own_ns: f64,
    /// Total time of those calls (nanoseconds).
    pub total_ns: f64,
    /// Sum of the squares of their self times.
    pub own_squares: f64,
    /// Sum of the squares of their durations.
    pub total_squares: f64,
}

impl CallCell {
    /// Adds a call.
    pub fn add(&mut self, own_ns: u64, length_ns: Option<u64>) {
        self.calls += 1.0;
        let Some(length_ns) = length_ns else { return };
        let (own, total) = (own_ns as f64, length_ns as f64);
        self.ended += 1.0;
        self.own_ns += own;
        self.total_ns += total;
        self.own_squares += own * own;
        self.total_squares += total * total;
    }

    /// Adds the calls of another cell.
    pub(super) fn add_all(&mut self, other: &CallCell) {
        self.calls += other.calls;
        self.ended += other.ended;
        self.own_ns += other.own_ns;
        self.total_ns += other.total_ns;
        self.own_squares += other.own_squares;
        self.total_squares += other.total_squares;
    }
}

/// Calls of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallRun {
    /// The denominator of rates, by block: seconds, or thousands of calls.
    pub blocks: Vec<f64>,
    /// Number of calls of all functions, by block.
    pub calls: Vec<f64>,
    /// Cells, by function and block.
    pub functions: BTreeMap<u32, BTreeMap<usize, CallCell>>,
}

/// Calls of both sides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallSeries {
    /// What blocks have in common.
    pub by: Blocks,
    /// Functions of both sides.
    pub functions: Vec<Match>,
    /// Recordings of A and of B.
    pub sides: [Vec<CallRun>; 2],
}

/// Counts of one recording while they are gathered.
#[derive(Default)]
struct RunCounts {
    cells: BTreeMap<(LabelId, usize), CallCell>,
    /// Number of calls that count, by block.
    blocks: Vec<f64>,
    weight: Weight,
    untimed: u64,
}

/// Counts the calls of both sides. Also returns the accounts and warnings of the counts.
pub(super) fn gather(
    a: &[&Recording],
    b: &[&Recording],
    library: &Library,
    options: &DiffOptions,
    progress: &dyn Fn(u64, u64),
) -> (CallSeries, [Account; 2], Vec<String>) {
    let all: Vec<&Recording> = a.iter().chain(b).copied().collect();
    let by = if all.iter().all(|one| one.is_timed()) {
        Blocks::Time
    } else {
        Blocks::Order
    };
    let filter = &options.gather.filter;
    let windows: Vec<_> = all.iter().map(|one| filter.window(one)).collect();
    let calls = |one: &&Recording| match by {
        Blocks::Time => 0,
        Blocks::Order => SpanCounts::of(one).spans,
    };
    let calls: Vec<u64> = all.iter().map(calls).collect();
    let mut runs: Vec<RunCounts> = Vec::new();
    runs.resize_with(all.len(), || RunCounts {
        blocks: vec![0.0; BLOCKS],
        ..RunCounts::default()
    });
    let mut take = |sampled: &Sampled, _: &Profile| {
        let (Some(run), Some(call)) = (runs.get_mut(sampled.recording), sampled.shown_call())
        else {
            return;
        };
        let window = &windows[sampled.recording];
        let block = match (by, call.start_ns) {
            (Blocks::Time, Some(since_ns)) => Some(block_of(since_ns, window)),
            (Blocks::Time, None) => None,
            // Calls come from the last to the first.
            (Blocks::Order, _) => Some(place(run.weight.count, calls[sampled.recording])),
        };
        run.add(&call, block, sampled.weight);
    };
    let mut how = Options {
        by: By::Function,
        by_recording: false,
        by_task: false,
        ..options.gather.clone()
    };
    how.filter.unit = Some(Unit::Calls);
    let profile = gather::gather(&all, library, &how, progress, Some(&mut take));
    let mut warnings = profile.warnings.clone();
    let untimed: u64 = runs.iter().map(|run| run.untimed).sum();
    if untimed > 0 {
        warnings.push(Warning::UntimedCalls(untimed).to_string());
    }
    let account = |first, recordings| {
        let mut account = Account::new(Unit::Calls);
        let side = profile.of_recordings.iter().skip(first).take(recordings);
        side.for_each(|recording| account.add(&recording.account));
        account
    };
    let accounts = [account(0, a.len()), account(a.len(), b.len())];
    let matching = Matching::new(
        &profile.labels,
        &parts(&runs, a.len(), profile.labels.len()),
        &[a, b].map(images),
    );
    let seconds = |number: usize| (windows[number].end - windows[number].start) as f64 / 1e9;
    let mut done = runs.into_iter().enumerate().map(|(number, run)| {
        let per = match by {
            Blocks::Time => vec![seconds(number) / BLOCKS as f64; BLOCKS],
            Blocks::Order => run.blocks.iter().map(|calls| calls / 1e3).collect(),
        };
        run.matched(&matching, per)
    });
    let in_a: Vec<CallRun> = done.by_ref().take(a.len()).collect();
    let sides = [in_a, done.collect()];
    let series = CallSeries {
        by,
        functions: matching.functions,
        sides,
    };
    (series, accounts, warnings)
}

/// The block of a call in the order of calls, `before` of which came before it.
fn place(before: u64, calls: u64) -> usize {
    let block = u128::from(before) * BLOCKS as u128 / u128::from(calls.max(1));
    (block as usize).min(BLOCKS - 1)
}

/// For each label, its share of the calls of each side.
fn parts(runs: &[RunCounts], of_a: usize, labels: usize) -> Vec<[f64; 2]> {
    let mut parts = vec![[0.0; 2]; labels];
    for (number, run) in runs.iter().enumerate() {
        for ((label, _), cell) in &run.cells {
            if let Some(part) = parts.get_mut(*label as usize) {
                part[usize::from(number >= of_a)] += cell.calls / (run.weight.count.max(1) as f64);
            }
        }
    }
    parts
}

impl RunCounts {
    fn add(&mut self, call: &Span<LabelId>, block: Option<usize>, weight: Weight) {
        self.weight.add(weight);
        let Some(block) = block else {
            self.untimed += 1;
            return;
        };
        self.blocks[block] += 1.0;
        let cell = self.cells.entry((call.name, block)).or_default();
        cell.add(weight.amount, call.length_ns);
    }

    fn matched(self, matching: &Matching, blocks: Vec<f64>) -> CallRun {
        let mut run = CallRun {
            blocks,
            calls: self.blocks,
            functions: BTreeMap::new(),
        };
        for ((label, block), cell) in self.cells {
            let Some(function) = matching.function(label) else {
                continue;
            };
            let of_function = run.functions.entry(function).or_default();
            of_function.entry(block).or_default().add_all(&cell);
        }
        run
    }
}
