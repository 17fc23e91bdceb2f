//! The profile itself, for the page's script: tables of names, frames and stacks, and columns of samples. It
//! is compressed with deflate and encoded in base64, both of which a browser can decode by itself. No other
//! part of the page is made from it. It contains no markup, so a browser that parses the page can't be misled
//! by a name.
//!
//! Each part is an element `<template>`. Its bytes are columns of LEB128 numbers, one column after the other.
//! Each column is preceded by its length. The columns have this order:
//!
//! - `tables`: a JSON object (its length in bytes, then the bytes); the texts (length in bytes, then UTF-8,
//!   one text a line); for each label its name, module, file (numbers of texts), line and flags; for each
//!   stack, in preorder, the distance back to its caller's stack, its label, and how its frame was found
//!   (bits).
//! - `samples`, in order of time: ticks since the previous sample, task (its number in the JSON object),
//!   state, stack (difference to the previous sample of the task, zigzag), and weights unless all are 1.
//!   Stack 0 means no stack: the task was not running.
//! - `code`, if there is any: a JSON object (as above) with source and instructions (`code.rs`). Labels with
//!   the same name, module and flags are then one function at several lines or instructions.

mod bands;
mod base64;
mod columns;
mod preorder;

pub(super) use bands::Band;

use super::lapses::lapses;
use crate::profile::OfRecording;
use crate::profile::found_by::FoundBy;
use crate::profile::gather::{Sampled, names};
use crate::profile::labels::{LabelId, Labels};
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::recording::Recording;
use crate::recording::processes::{space_is, task_is, task_name};
use crate::recording::rows::EffectiveRows;
use crate::recording::unit::Unit;
use crate::text::printable;
use crate::views::flame::palette::Kind;
use columns::Columns;
use preorder::Preorder;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use uprof::{State, Task};

/// Most samples in a page.
const SAMPLES_MAX: usize = 2_000_000;
/// Most stacks in a page.
const STACKS_MAX: usize = 2_000_000;
/// Most ticks of a recording: the page stores them as 32-bit numbers.
const TICKS_MAX: u64 = u32::MAX as u64;
/// The page's resolution of time, unless it makes more than [`TICKS_MAX`] ticks.
const TICK_NS: u64 = 1000;
/// Version of the parts; incremented when their content changes.
const VERSION: u32 = 2;

/// One sample, as it is kept until the page is written.
#[derive(Debug, Clone, Copy)]
struct PageSample {
    since_ns: u64,
    node: u32,
    task: u32,
    state: State,
}

/// The tables that the samples refer to.
pub(crate) struct SampleTables<'a> {
    /// The recordings, by number.
    pub(crate) recordings: &'a [&'a Recording],
    /// The samples' stacks.
    pub(crate) tree: &'a StackTree,
    /// How the frames of these stacks were found.
    pub(crate) found: &'a FoundBy,
    /// The labels of the stacks.
    pub(crate) labels: &'a Labels,
    /// The unit of weights.
    pub(crate) unit: Unit,
    /// The phases that were asked for.
    pub(crate) bands: &'a [Band],
    /// Further fields of the JSON object.
    pub(crate) more: Map<String, Value>,
}

/// Samples, as far as they fit into a page.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    samples: Vec<PageSample>,
    /// The weight of each sample; empty as long as all weights are 1.
    weights: Vec<u64>,
    /// Number of each task, by recording and thread.
    numbers: HashMap<(usize, Task), u32>,
    tasks: Vec<(usize, Task)>,
    /// Number of samples, including those that don't fit.
    count: u64,
}

impl Payload {
    /// Adds one sample.
    pub(crate) fn add(&mut self, sampled: &Sampled) {
        // Samples beyond the limit are counted, too: the message says how many there are.
        self.count += 1;
        if self.samples.len() == SAMPLES_MAX {
            return;
        }
        let (number, task, amount) = (sampled.recording, sampled.task, sampled.weight.amount);
        self.push(
            number,
            task,
            sampled.since_ns,
            sampled.state,
            sampled.node,
            amount,
        );
    }

    fn push(
        &mut self,
        number: usize,
        task: Task,
        since_ns: u64,
        state: State,
        node: NodeId,
        amount: u64,
    ) {
        let key = (number, task);
        let next = self.tasks.len() as u32;
        let task = *self.numbers.entry(key).or_insert(next);
        if task == next {
            self.tasks.push(key);
        }
        // Weights are stored once one differs from 1. The earlier samples get theirs then.
        if amount != 1 && self.weights.is_empty() {
            self.weights.resize(self.samples.len(), 1);
        }
        if amount != 1 || !self.weights.is_empty() {
            self.weights.push(amount);
        }
        self.samples.push(PageSample {
            since_ns,
            node,
            task,
            state,
        });
    }

    /// Adds the samples of vCPUs and threads that were not running, as far as they fit: states without
    /// stacks, which only the time line shows. `counted` are the states whose samples count already. Returns how many
    /// don't fit.
    pub(crate) fn add_idle(
        &mut self,
        number: usize,
        recording: &Recording,
        counted: &BTreeSet<State>,
        known: &OfRecording,
    ) -> u64 {
        let mut left_out = 0;
        if known.account.by_state.is_empty() {
            return left_out;
        }
        for place in recording.blocks() {
            // The account already reports blocks that can't be decoded.
            let Ok(block) = recording.samples(place) else {
                continue;
            };
            let states = known.idle.of(recording);
            let mut rows = EffectiveRows::new(&block, &states);
            while let Ok(Some(row)) = rows.next_row() {
                if row.wait.is_some() || counted.contains(&row.state) {
                    continue;
                }
                if self.samples.len() >= SAMPLES_MAX {
                    left_out += 1;
                    continue;
                }
                let since_ns = row.time_ns.saturating_sub(recording.start_ns());
                self.push(number, row.task, since_ns, row.state, ROOT, 1);
            }
        }
        left_out
    }

    /// Replaces the number of each sample's stack.
    pub(crate) fn renumber(&mut self, stack: impl Fn(NodeId) -> NodeId) {
        for one in &mut self.samples {
            one.node = stack(one.node);
        }
    }

    /// The states of the samples.
    pub(crate) fn states(&self) -> BTreeSet<State> {
        self.samples.iter().map(|one| one.state).collect()
    }

    /// Why the samples don't fit into the page; `None` if they do.
    fn refused(&self, tree: &StackTree) -> Option<String> {
        let stacks = tree.nodes().len();
        let limit = match (self.count > SAMPLES_MAX as u64, stacks > STACKS_MAX) {
            (true, _) => format!("{} samples, and a page carries {SAMPLES_MAX}", self.count),
            (_, true) => format!("{stacks} different stacks, and a page carries {STACKS_MAX}"),
            (false, false) => return None,
        };
        Some(format!(
            "There is nothing to select in this page: the recording has {limit} at most. Choose a part of it with \
             --from and --to, or fewer frames with --hide."
        ))
    }
}

/// Writes the parts, or a line that says why they are missing. Returns whether they were written.
pub(crate) fn write(
    payload: &Payload,
    carried: &SampleTables<'_>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    if let Some(refused) = payload.refused(carried.tree) {
        writeln!(out, "<p class=\"note\" id=\"refused\">{refused}</p>")?;
        return Ok(false);
    }
    let order = Preorder::of(carried.tree);
    let tick_ns = tick_ns(payload, carried.unit);
    let tables = tables(carried, about(payload, carried, tick_ns), &order);
    write_part("tables", tables, out)?;
    write_part(
        "samples",
        samples(payload, &order, (carried.unit, tick_ns)),
        out,
    )?;
    Ok(true)
}

/// Writes a JSON value as a part.
pub(crate) fn write_value(id: &str, value: &Value, out: &mut dyn Write) -> io::Result<()> {
    let mut columns = Columns::default();
    columns.bytes(value.to_string().as_bytes());
    write_part(id, columns, out)
}

fn write_part(id: &str, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<template id=\"{id}\">")?;
    base64::write(&columns.packed()?, out)?;
    writeln!(out, "</template>")
}

/// Length of a tick (nanoseconds). Waits have ticks of 1 ns, because a part of one may be selected.
fn tick_ns(payload: &Payload, unit: Unit) -> u64 {
    match unit {
        Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => 1,
        Unit::Samples => {
            let last = payload.samples.iter().map(|one| one.since_ns);
            let last = last.max().unwrap_or(0);
            let mut tick_ns = TICK_NS;
            while last / tick_ns > TICKS_MAX {
                tick_ns *= 10;
            }
            tick_ns
        }
    }
}

fn tables(carried: &SampleTables<'_>, about: Value, order: &Preorder) -> Columns {
    let all = carried.labels;
    let mut columns = Columns::default();
    columns.bytes(about.to_string().as_bytes());
    // Line breaks can separate the texts, because `printable` leaves none in a text.
    let texts: Vec<&str> = all.texts().collect();
    columns.bytes(texts.join("\n").as_bytes());
    let labels = || (0..all.len() as LabelId).map(|id| all.get(id));
    columns.column(labels().map(|label| u64::from(label.name)));
    columns.column(labels().map(|label| u64::from(label.module)));
    columns.column(labels().map(|label| u64::from(label.file)));
    columns.column(labels().map(|label| u64::from(label.line)));
    columns.column((0..all.len() as LabelId).map(|id| {
        let (label, kind) = (all.get(id), Kind::of(all, id));
        let is = |one| kind == one;
        let flags = [
            label.kernel,
            label.inlined,
            label.unknown,
            label.made,
            is(Kind::Library),
            is(Kind::Jit),
        ];
        let bits = flags.iter().enumerate();
        bits.map(|(bit, is)| u64::from(*is) << bit).sum()
    }));
    columns.column(order.distances());
    columns.column(order.labels(carried.tree));
    columns.column(
        order
            .nodes()
            .map(|node| u64::from(carried.found.bits(node))),
    );
    columns
}

/// The JSON object that describes the columns.
fn about(payload: &Payload, carried: &SampleTables<'_>, tick_ns: u64) -> Value {
    let recordings = carried.recordings;
    let length_ns = |one: &&Recording| one.end_ns().saturating_sub(one.start_ns());
    let tasks = payload.tasks.iter().map(|(number, task)| {
        let name = recordings
            .get(*number)
            .map_or_else(String::new, |one| task_name(one, *task, u64::MAX));
        let name = printable(&name).into_owned();
        json!([number, task.space, task.vcpu, name])
    });
    let lapses = recordings.iter().enumerate().flat_map(|(number, one)| {
        lapses(one).into_iter().map(move |lapse| {
            let task = lapse
                .task
                .and_then(|task| payload.numbers.get(&(number, task)));
            // Rounded outwards, so that a short lapse isn't empty.
            let to = lapse.to_ns.div_ceil(tick_ns);
            json!([number, lapse.from_ns / tick_ns, to, task, lapse.what])
        })
    });
    let bands = carried.bands.iter().map(|band| band.value(tick_ns));
    let states = State::ALL.iter().map(|state| state.name());
    let mut about = json!({
        "version": VERSION,
        "unit": carried.unit.what(),
        "tick_ns": tick_ns,
        "length_ns": recordings.iter().map(length_ns).max().unwrap_or(0),
        "is_timed": recordings.iter().any(|one| one.is_timed()),
        "is_weighted": !payload.weights.is_empty(),
        "recordings": names(recordings),
        "space_is": recordings.iter().map(|one| space_is(one)).collect::<Vec<_>>(),
        "task_is": recordings.iter().map(|one| task_is(one)).collect::<Vec<_>>(),
        "lapses": lapses.collect::<Vec<_>>(),
        "bands": bands.collect::<Vec<_>>(),
        "states": states.collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
    });
    if let Value::Object(fields) = &mut about {
        fields.extend(carried.more.clone());
    }
    about
}

fn samples(payload: &Payload, order: &Preorder, (unit, tick_ns): (Unit, u64)) -> Columns {
    let samples = &payload.samples;
    let mut by_time: Vec<u32> = (0..samples.len() as u32).collect();
    by_time.sort_by_key(|number| {
        let one = &samples[*number as usize];
        // Of calls that begin at once, callers come first.
        let depth = if unit == Unit::Calls {
            order.number(one.node)
        } else {
            0
        };
        (one.since_ns, depth)
    });
    let sorted = || by_time.iter().map(|number| &samples[*number as usize]);
    let mut columns = Columns::default();
    let mut before = 0;
    columns.column(sorted().map(|one| {
        let tick = one.since_ns / tick_ns;
        tick - std::mem::replace(&mut before, tick)
    }));
    columns.column(sorted().map(|one| u64::from(one.task)));
    columns.column(sorted().map(|one| u64::from(one.state.number())));
    let mut last = vec![0; payload.tasks.len()];
    columns.column(sorted().map(|one| {
        let node = i64::from(order.number(one.node));
        let step = node - std::mem::replace(&mut last[one.task as usize], node);
        (step << 1 ^ step >> 63) as u64
    }));
    if !payload.weights.is_empty() {
        let weights = by_time.iter();
        columns.column(weights.map(|number| payload.weights[*number as usize]));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::unit::Weight;
    use uprof::Stop;

    fn sampled(since_ns: u64, amount: u64) -> Sampled {
        Sampled {
            recording: 0,
            since_ns,
            task: Task { space: 0, vcpu: 0 },
            space: 0,
            state: State::Running,
            stop: Stop::Complete,
            node: 0,
            address: None,
            weight: Weight { amount, count: 1 },
            unit: Unit::Samples,
            call: None,
            is_hidden: false,
        }
    }

    #[test]
    fn a_page_carries_so_many_samples_and_says_so_of_more() {
        let mut payload = Payload::default();
        (0..SAMPLES_MAX).for_each(|_| payload.add(&sampled(0, 1)));
        assert_eq!(payload.refused(&StackTree::default()), None);
        payload.add(&sampled(0, 1));
        let refused = payload.refused(&StackTree::default()).unwrap();
        assert!(
            refused.contains("2000001 samples, and a page carries 2000000 at most"),
            "{refused}"
        );
        assert_eq!(payload.samples.len(), SAMPLES_MAX);
    }

    #[test]
    fn a_page_carries_so_many_stacks_and_says_so_of_more() {
        let mut tree = StackTree::default();
        (1..STACKS_MAX as u32).for_each(|label| {
            tree.child(0, label);
        });
        assert_eq!(Payload::default().refused(&tree), None);
        tree.child(0, 0);
        let refused = Payload::default().refused(&tree).unwrap();
        assert!(
            refused.contains("2000001 different stacks, and a page carries 2000000"),
            "{refused}"
        );
    }

    #[test]
    fn weights_are_kept_from_the_first_that_is_not_one() {
        let mut payload = Payload::default();
        for weight in [1, 1] {
            payload.add(&sampled(0, weight));
        }
        assert!(payload.weights.is_empty());
        for weight in [7, 1] {
            payload.add(&sampled(0, weight));
        }
        assert_eq!(payload.weights, [1, 1, 7, 1]);
    }
}
