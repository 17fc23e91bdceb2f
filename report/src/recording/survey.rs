//! One pass over all of a recording without looking at the names of its stacks: how many samples of
//! which kind, how long the guest stood still for them, how late they were, and what can't be read.

use crate::recording::Recording;
use rayon::prelude::*;
use std::collections::BTreeMap;
use uprof::{SampleBlock, State, Stop, Task};

/// What a recording is like, all read once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Samples read.
    pub samples: u64,
    /// Samples that can't be decoded.
    pub undecoded: u64,
    /// Samples by state.
    pub states: BTreeMap<State, u64>,
    /// Samples by why their stack ends.
    pub stops: BTreeMap<Stop, u64>,
    /// Samples by vCPU or thread.
    pub tasks: BTreeMap<Task, u64>,
    /// Samples by vCPU or thread that was running.
    pub running: BTreeMap<Task, u64>,
    /// Frames of all chains.
    pub frames: u64,
    /// Samples with registers.
    pub with_registers: u64,
    /// Samples with raw stack bytes.
    pub with_stack: u64,
    /// Raw stack bytes.
    pub stack_bytes: u64,
    /// Freeze or sampling times, in nanoseconds.
    pub cost: Times,
    /// How late samples were, in nanoseconds.
    pub late: Times,
    /// First faults, in words.
    pub faults: Vec<String>,
    /// What of embedded images can't be read, in words.
    pub damaged_sections: Vec<String>,
}

/// Many times, told by percentiles that are at most 0.8 % too high.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// By logarithmic class, see [`class_of`].
    classes: BTreeMap<u16, u64>,
    /// How many.
    pub count: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// All together, in nanoseconds.
    pub sum_ns: u128,
}

/// Bits of a time that tell classes of the same power of two apart.
const CLASS_BITS: u32 = 7;

/// The class of `time_ns`: exact below 256, then 128 classes for each power of two.
fn class_of(time_ns: u64) -> u16 {
    let shift = (64 - time_ns.leading_zeros()).saturating_sub(CLASS_BITS + 1);
    ((shift as u16) << CLASS_BITS) + (time_ns >> shift) as u16
}

/// The longest time of a class.
fn class_end(class: u16) -> u64 {
    let shift = u32::from(class >> CLASS_BITS).saturating_sub(1);
    let lead = u64::from(class) - (u64::from(shift) << CLASS_BITS);
    (lead << shift) | ((1u64 << shift) - 1)
}

impl Times {
    /// Counts one.
    pub fn add(&mut self, time_ns: u64) {
        *self.classes.entry(class_of(time_ns)).or_default() += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(time_ns);
        self.sum_ns += u128::from(time_ns);
    }

    fn merge(&mut self, other: &Times) {
        for (class, count) in &other.classes {
            *self.classes.entry(*class).or_default() += count;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// The time that `share` (0 to 1) of all don't exceed, in nanoseconds; `None` without any.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (class, count) in &self.classes {
            seen += count;
            if seen >= rank {
                return Some(class_end(*class).min(self.max_ns));
            }
        }
        None
    }
}

/// Surveys `recording`.
pub fn survey(recording: &Recording, progress: &dyn Fn(u64, u64)) -> Survey {
    let blocks = recording.blocks();
    let total = blocks.iter().map(|block| u64::from(block.samples)).sum();
    let mut whole = Survey {
        damaged_sections: recording.damaged_sections().collect(),
        ..Survey::default()
    };
    for batch in blocks.chunks(32) {
        let parts: Vec<Survey> = batch
            .par_iter()
            .map(|place| match recording.samples(place) {
                Ok(block) => survey_block(&block, place.offset),
                Err(fault) => Survey {
                    undecoded: u64::from(place.samples),
                    faults: vec![fault],
                    ..Survey::default()
                },
            })
            .collect();
        parts.iter().for_each(|part| whole.add(part));
        progress(whole.samples + whole.undecoded, total);
    }
    whole
}

fn survey_block(block: &SampleBlock, offset: u64) -> Survey {
    let mut found = Survey::default();
    // Callers stand before what they called, so one pass gives all depths.
    let mut depths: Vec<u32> = Vec::with_capacity(block.nodes().len());
    for node in block.nodes() {
        let above = node.parent.and_then(|parent| depths.get(parent as usize));
        depths.push(above.copied().unwrap_or(0) + 1);
    }
    let mut round = None;
    let mut rows = block.rows();
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
        // One freeze is told with the sample of each vCPU, and counts once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_times_within_a_hundredth() {
        let edges = (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, (1u64 << bit) + 1]);
        for time_ns in edges.chain([u64::MAX, 1_000_003, 777]) {
            let end = class_end(class_of(time_ns));
            assert!(end >= time_ns, "{time_ns} ends at {end}");
            assert!(
                (end - time_ns) as f64 <= time_ns as f64 / 128.0,
                "{time_ns}: {end}"
            );
        }
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut times = Times::default();
        assert_eq!(times.percentile_ns(0.5), None);
        (1..=100).for_each(|time_ns| times.add(time_ns));
        assert_eq!(times.percentile_ns(0.5), Some(50));
        assert_eq!(times.percentile_ns(0.99), Some(99));
        assert_eq!(times.percentile_ns(1.0), Some(100));
    }
}
