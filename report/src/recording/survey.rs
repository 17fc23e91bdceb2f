//! One pass over a whole recording without symbolizing: the number of samples of each sort, how long the
//! guest was paused for them, how late they were, and what can't be read.

use crate::recording::rows::{EffectiveRows, States};
use crate::recording::{Recording, SpanCounts};
use rayon::prelude::*;
use std::collections::BTreeMap;
use uprof::{Durations, SampleBlock, State, Stop, Task};

/// Statistics of a whole recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Number of samples that were read.
    pub samples: u64,
    /// Number of samples that can't be decoded.
    pub undecoded: u64,
    /// Number of samples, by state.
    pub states: BTreeMap<State, u64>,
    /// Number of samples, by the reason why their stack ends.
    pub stops: BTreeMap<Stop, u64>,
    /// Number of samples, by vCPU or thread.
    pub tasks: BTreeMap<Task, u64>,
    /// Number of running samples, by vCPU or thread.
    pub running: BTreeMap<Task, u64>,
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
    let mut whole = Survey {
        damaged_sections: recording.damaged_sections().collect(),
        spans: SpanCounts::of(recording),
        ..Survey::default()
    };
    for batch in blocks.chunks(32) {
        let parts: Vec<Survey> = batch
            .par_iter()
            .map(|place| match recording.samples(place) {
                Ok(block) => survey_block(&block, states, place.offset),
                Err(fault) => Survey {
                    undecoded: u64::from(place.samples),
                    faults: vec![fault.to_string()],
                    ..Survey::default()
                },
            })
            .collect();
        parts.iter().for_each(|part| whole.add(part));
        progress(whole.samples + whole.undecoded, total);
    }
    whole
}

fn survey_block(block: &SampleBlock, states: &impl States, offset: u64) -> Survey {
    let mut found = Survey::default();
    // Callers precede callees, so one pass gives all depths.
    let mut depths: Vec<u32> = Vec::with_capacity(block.nodes().len());
    for node in block.nodes() {
        let above = node.parent.and_then(|parent| depths.get(parent as usize));
        depths.push(above.copied().unwrap_or(0) + 1);
    }
    let mut round = None;
    let mut rows = EffectiveRows::new(block, states);
    loop {
        let row = match rows.next_row() {
            Ok(Some(row)) => row,
            Ok(None) => return found,
            Err(fault) => {
                found.undecoded = (block.len() as u64).saturating_sub(found.samples);
                found
                    .faults
                    .push(format!("the block at byte {offset}: {fault}"));
                return found;
            }
        };
        found.samples += 1;
        *found.states.entry(row.state).or_default() += 1;
        *found.stops.entry(row.stop).or_default() += 1;
        *found.tasks.entry(row.task).or_default() += 1;
        if row.state == State::Running {
            *found.running.entry(row.task).or_default() += 1;
        }
        let depth = row.node.and_then(|node| depths.get(node as usize));
        found.frames += u64::from(depth.copied().unwrap_or(0));
        found.with_registers += u64::from(row.registers.is_some());
        if let Some(stack) = row.stack {
            found.with_stack += 1;
            found.stack_bytes += stack.bytes.len() as u64;
        }
        // A freeze is recorded with the sample of each vCPU, but counts once.
        let this_round = (row.time_ns, row.details.cost_ns, row.details.late_ns);
        if round.replace(this_round) == Some(this_round) {
            continue;
        }
        row.details
            .cost_ns
            .iter()
            .for_each(|cost_ns| found.cost.add(*cost_ns));
        row.details
            .late_ns
            .iter()
            .for_each(|late_ns| found.late.add(*late_ns));
    }
}

impl Survey {
    fn add(&mut self, other: &Survey) {
        self.samples += other.samples;
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
        self.cost.merge(&other.cost);
        self.late.merge(&other.late);
        if self.faults.len() < 20 {
            self.faults.extend(other.faults.iter().cloned());
        }
    }
}
