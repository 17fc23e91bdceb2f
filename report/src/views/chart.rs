//! `--flame=chart`: stacks in time order, thread after thread. A box's width is time, as far as
//! the sampling rate tells it; gaps are times without samples.

use super::flame::{FlameOptions, inferno_options, write_nothing};
use crate::export::folded::{FoldedOptions, frame_names};
use crate::gather::{Profile, Sampled};
use crate::labels::printable;
use crate::tree::NodeId;
use inferno::flamegraph;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Samples by thread name and number, then by time.
#[derive(Debug, Default)]
pub struct Chart {
    /// By recording, address space and number.
    threads: BTreeMap<(usize, u32, u32), Thread>,
}

/// A thread's name and samples.
type Thread = (String, Vec<(u64, NodeId)>);

/// Slots of time that all threads together are drawn with; within one, equal stacks are joined.
const SLOTS: usize = 4000;

impl Chart {
    /// Takes one sample; `thread` is its thread's name.
    pub fn add(&mut self, sampled: &Sampled, thread: &str) {
        let task = sampled.task;
        let entry = self
            .threads
            .entry((sampled.recording, task.space, task.vcpu));
        let (_, samples) = entry.or_insert_with(|| (thread.to_owned(), Vec::new()));
        samples.push((sampled.since_ns, sampled.node));
    }

    /// Draws the chart. `period_ns` is how much time a sample stands for.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn write(
        &mut self,
        profile: &Profile,
        period_ns: u64,
        options: &FlameOptions,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let all = self.threads.values().flat_map(|(_, samples)| samples);
        let (first, last) = all.fold((u64::MAX, 0), |(first, last), (ns, _)| {
            (first.min(*ns), last.max(*ns))
        });
        if first > last {
            return write_nothing(options, &profile.account.lines(), out);
        }
        let length_ns = (last - first).saturating_add(period_ns).max(1);
        let slots = (SLOTS / self.threads.len().max(1)).max(10) as u64;
        let slot_ns = (length_ns / slots).max(period_ns).max(1);
        let names = frame_names(&profile.labels, FoldedOptions { marks: true });
        let mut lines = Vec::new();
        for ((_, _, vcpu), (name, samples)) in &mut self.threads {
            samples.sort_by_key(|(ns, _)| *ns);
            let root = printable(&format!("{name} ({vcpu})")).replace(';', ":");
            let mut slotted =
                samples.chunk_by(|a, b| (a.0 - first) / slot_ns == (b.0 - first) / slot_ns);
            let mut done = 0;
            for slot in &mut slotted {
                let number = (slot[0].0 - first) / slot_ns;
                idle(&mut lines, &root, slot_ns.saturating_mul(number - done));
                put_slot(&mut lines, &root, slot, slot_ns, period_ns, profile, &names);
                done = number + 1;
            }
            idle(
                &mut lines,
                &root,
                length_ns.saturating_sub(slot_ns.saturating_mul(done)),
            );
        }
        let mut options = options.clone();
        options.title = format!("in time order: {}", options.title);
        let mut drawing = inferno_options(&options, &lines);
        drawing.count_name = "us".to_owned();
        drawing.flame_chart = true;
        // inferno wants the latest first.
        let lines = lines.iter().rev().map(String::as_str);
        flamegraph::from_lines(&mut drawing, lines, out)
    }
}

fn idle(lines: &mut Vec<String>, root: &str, time_ns: u64) {
    if time_ns >= 1000 {
        lines.push(format!("{root} {}", time_ns / 1000));
    }
}

/// The stacks of one slot, equal ones together, then what is left of its time.
fn put_slot(
    lines: &mut Vec<String>,
    root: &str,
    slot: &[(u64, NodeId)],
    slot_ns: u64,
    period_ns: u64,
    profile: &Profile,
    names: &[String],
) {
    let mut stacks: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (_, node) in slot {
        *stacks.entry(*node).or_default() += 1;
    }
    let count = slot.len() as u64;
    // A late sample may share its slot with the next: together they can't take more than it.
    let each_ns = period_ns.min(slot_ns / count);
    for (node, count) in &stacks {
        let mut path: Vec<&str> = profile
            .tree
            .outwards(*node)
            .filter_map(|label| names.get(label as usize).map(String::as_str))
            .collect();
        path.push(root);
        path.reverse();
        lines.push(format!(
            "{} {}",
            path.join(";"),
            (count * each_ns / 1000).max(1)
        ));
    }
    idle(lines, root, slot_ns - count * each_ns);
}
