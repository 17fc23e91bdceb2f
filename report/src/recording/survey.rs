//! One pass over a whole recording without symbolizing: the number of samples of each sort, how long the
//! guest was paused for them, how late they were, and what can't be read.

use crate::recording::rows::{EffectiveRows, States};
use crate::recording::{Recording, SampleBlockPlace, SpanCounts};
use rayon::prelude::*;
use std::collections::BTreeMap;
use uprof::{Details, Durations, Fault, Row, SampleBlock, State, Stop, Task};

/// Statistics of a whole recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Number of rows that were read: samples and waits.
    pub rows: u64,
    /// Number of samples among them.
    pub samples: u64,
    /// Number of waits, by state. A row may stand for several.
    pub waits: BTreeMap<State, u64>,
    /// Number of rows that can't be decoded.
    pub undecoded: u64,
    /// Number of samples, by state.
    pub states: BTreeMap<State, u64>,
    /// Number of samples and waits, by the reason why their stack ends.
    pub stops: BTreeMap<Stop, u64>,
    /// Number of samples, by vCPU or thread.
    pub tasks: BTreeMap<Task, u64>,
    /// Number of running samples, by vCPU or thread.
    pub running: BTreeMap<Task, u64>,
    /// Time and state of the last sample, by vCPU or thread.
    pub latest: BTreeMap<Task, (u64, State)>,
    /// Number of frames in all chains.
    pub frames: u64,
    /// Number of samples with registers.
    pub with_registers: u64,
    /// Number of samples with raw stack bytes.
    pub with_stack: u64,
    /// Total of raw stack bytes.
    pub stack_bytes: u64,
    /// Pauses of the guest, or the times that sampling took (nanoseconds).
    pub cost: Durations,
    /// Delays of late samples (nanoseconds).
    pub late: Durations,
    /// Numbers of calls in a trace.
    pub spans: SpanCounts,
    /// Descriptions of the first faults.
    pub faults: Vec<String>,
    /// Descriptions of the parts of embedded images that can't be read.
    pub damaged_sections: Vec<String>,
}

/// Surveys `recording`; `states` knows the states of its samples.
pub(crate) fn survey(
    recording: &Recording,
    states: &(impl States + Sync),
    progress: &dyn Fn(u64, u64),
) -> Survey {
    let blocks = recording.blocks();
    let total = blocks.iter().map(|block| u64::from(block.samples)).sum();
    let mut whole = Survey::begin(recording);
    for batch in blocks.chunks(32) {
        let parts: Vec<Survey> = batch
            .par_iter()
            .map(|place| survey_block(recording, place, states))
            .collect();
        parts.iter().for_each(|part| whole.add(part));
        progress(whole.rows + whole.undecoded, total);
    }
    whole
}

/// Surveys the block at `place`.
pub(crate) fn survey_block(
    recording: &Recording,
    place: &SampleBlockPlace,
    states: &impl States,
) -> Survey {
    let block = match recording.samples(place) {
        Ok(block) => block,
        Err(fault) => return Survey::of_undecoded(place, fault.to_string()),
    };
    let mut survey = BlockSurvey::new(&block);
    let mut rows = EffectiveRows::new(&block, states);
    loop {
        match rows.next_row() {
            Ok(Some(row)) => survey.add(&row),
            Ok(None) => return survey.found,
            Err(fault) => {
                survey.fail(fault_of(place, &fault));
                return survey.found;
            }
        }
    }
}

/// Why some rows of the block at `place` can't be read.
pub(crate) fn fault_of(place: &SampleBlockPlace, fault: &Fault) -> String {
    format!("the block at byte {}: {fault}", place.offset)
}

/// The survey of one block, row by row.
pub(crate) struct BlockSurvey {
    pub(crate) found: Survey,
    rows: u64,
    depths: Vec<u32>,
    /// The time of the last row, and what it cost.
    round: Option<(u64, Option<u64>, Option<u64>)>,
}

impl BlockSurvey {
    /// Nothing yet of `block`.
    pub(crate) fn new(block: &SampleBlock) -> BlockSurvey {
        // Callers precede callees, so one pass gives all depths.
        let mut depths: Vec<u32> = Vec::with_capacity(block.nodes().len());
        for node in block.nodes() {
            let above = node.parent.and_then(|parent| depths.get(parent as usize));
            depths.push(above.copied().unwrap_or(0) + 1);
        }
        BlockSurvey {
            found: Survey::default(),
            rows: block.len() as u64,
            depths,
            round: None,
        }
    }

    /// Counts the rows that have not come as undecoded.
    pub(crate) fn fail(&mut self, fault: String) {
        self.found.undecoded = self.rows.saturating_sub(self.found.rows);
        self.found.faults.push(fault);
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: &Row<'_>) {
        let found = &mut self.found;
        found.rows += 1;
        *found.stops.entry(row.stop).or_default() += 1;
        // A freeze is recorded with the sample of each vCPU, but counts once.
        let this_round = (row.time_ns, row.details.cost_ns, row.details.late_ns);
        if self.round.replace(this_round) != Some(this_round) {
            let Details {
                cost_ns, late_ns, ..
            } = row.details;
            cost_ns.iter().for_each(|cost_ns| found.cost.add(*cost_ns));
            late_ns.iter().for_each(|late_ns| found.late.add(*late_ns));
        }
        // What follows is of samples (format-spec.md, section 5.5).
        if let Some(wait) = row.wait {
            let waits = found.waits.entry(row.state).or_default();
            *waits = waits.saturating_add(wait.count);
            return;
        }
        found.samples += 1;
        *found.states.entry(row.state).or_default() += 1;
        *found.tasks.entry(row.task).or_default() += 1;
        if row.state == State::Running {
            *found.running.entry(row.task).or_default() += 1;
        }
        let latest = found.latest.entry(row.task).or_insert((0, row.state));
        *latest = (*latest).max((row.time_ns, row.state));
        let depth = row.node.and_then(|node| self.depths.get(node as usize));
        found.frames += u64::from(depth.copied().unwrap_or(0));
        found.with_registers += u64::from(row.registers.is_some());
        if let Some(stack) = row.stack {
            found.with_stack += 1;
            found.stack_bytes += stack.bytes.len() as u64;
        }
    }
}

impl Survey {
    /// Of a block that can't be decoded.
    pub(crate) fn of_undecoded(place: &SampleBlockPlace, fault: String) -> Survey {
        Survey {
            undecoded: u64::from(place.samples),
            faults: vec![fault],
            ..Survey::default()
        }
    }

    /// Nothing yet of the blocks of `recording`.
    pub(crate) fn begin(recording: &Recording) -> Survey {
        Survey {
            damaged_sections: recording.damaged_sections().collect(),
            spans: SpanCounts::of(recording),
            ..Survey::default()
        }
    }

    /// Adds the survey of a further block.
    pub(crate) fn add(&mut self, other: &Survey) {
        self.rows += other.rows;
        self.samples += other.samples;
        for (state, count) in &other.waits {
            let waits = self.waits.entry(*state).or_default();
            *waits = waits.saturating_add(*count);
        }
        self.undecoded += other.undecoded;
        self.frames += other.frames;
        self.with_registers += other.with_registers;
        self.with_stack += other.with_stack;
        self.stack_bytes += other.stack_bytes;
        for (state, count) in &other.states {
            *self.states.entry(*state).or_default() += count;
        }
        for (stop, count) in &other.stops {
            *self.stops.entry(*stop).or_default() += count;
        }
        for (task, count) in &other.tasks {
            *self.tasks.entry(*task).or_default() += count;
        }
        for (task, count) in &other.running {
            *self.running.entry(*task).or_default() += count;
        }
        for (task, other) in &other.latest {
            let latest = self.latest.entry(*task).or_insert(*other);
            *latest = (*latest).max(*other);
        }
        self.cost.merge(&other.cost);
        self.late.merge(&other.late);
        if self.faults.len() < 20 {
            self.faults.extend(other.faults.iter().cloned());
        }
    }
}
