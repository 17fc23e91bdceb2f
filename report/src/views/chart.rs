//! `--chart`: stacks in order of time, thread after thread. The width of a box is time: estimated from the
//! sampling rate, or the time of a wait. Gaps are times without either. For a trace, the boxes are calls
//! (`calls`). Phases that are named are bands (`bands`).

mod calls;
mod bands;

use super::flame::palette::{Kind, Palette};
use super::flame::{FlameOptions, draw, inferno_options, write_nothing};
use super::phases::Phase;
use super::{Content, Needs, Output, Renderer, TIME_TITLE, View};
use crate::export::folded::{FoldedOptions, frame_names};
use crate::profile::gather::Sampled;
use crate::profile::tree::NodeId;
use crate::profile::{OfRecording, Profile};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use crate::text::printable;
use bands::Bands;
use calls::InOrder;
use inferno::flamegraph::Direction;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::ops::Range;

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "chart",
    about: "Stacks in time order as SVG, thread after thread; `-` is standard output [default: the recording's name \
            with .chart.svg]",
    output: Output::File {
        kind: "SVG",
        ending: "chart.svg",
    },
    needs: Needs::Samples,
    begin: |_| Box::new(Chart::default()),
};

impl Renderer for Chart {
    fn add(&mut self, recordings: &[Recording], sampled: &Sampled) {
        let recording = &recordings[sampled.recording];
        self.add(sampled, &task_name(recording, sampled.task, u64::MAX));
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        let known = content
            .recordings
            .iter()
            .zip(&content.profile.of_recordings);
        let periods_ns: Vec<u64> = known.map(|(one, known)| period_ns(one, known)).collect();
        let options = content.flame_options();
        self.write(
            content.profile,
            &periods_ns,
            &options,
            &content.form.phases,
            out,
        )?;
        Ok(true)
    }
}

/// The time that a sample stands for (nanoseconds): from the requested rate, if it was recorded.
fn period_ns(recording: &Recording, known: &OfRecording) -> u64 {
    recording.period_ns().unwrap_or_else(|| {
        let counted = known.account.counted.max(1);
        (recording.end_ns() - recording.start_ns()) / counted
    })
}

/// Samples by thread name and number, then by time.
#[derive(Debug, Default)]
pub struct Chart {
    /// Samples, by recording, address space and number of the thread.
    threads: BTreeMap<(usize, u32, u32), Thread>,
    /// Calls of a trace, the last one first, by the same key.
    calls: BTreeMap<(usize, u32, u32), Vec<InOrder>>,
}

/// A thread's name and samples.
type Thread = (String, Vec<TimedStack>);

/// The stack of a sample, a wait or a part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimedStack {
    /// Time since the start of the recording.
    since_ns: u64,
    node: NodeId,
    /// 0 if it is a sample that stands for as long as all others.
    length_ns: u64,
}

/// Slots of time for a thread; equal stacks in a slot are joined.
const SLOTS: u128 = 4000;
/// Slots of time if there are several threads: one for each pixel of the picture, so that rare stacks are
/// seen.
const SLOTS_OF_SEVERAL: u128 = 1180;

/// Start of a thread's first sample or wait, and the time from there to the end of its last.
fn life(samples: &[TimedStack], period_ns: u64) -> (u64, u64) {
    let first = samples.iter().map(|stack| stack.since_ns).min();
    let end = |stack: &TimedStack| stack.since_ns.saturating_add(stack.length_ns);
    let last = samples.iter().map(end).max();
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    match samples {
        [] => (0, 0),
        _ => (first, (last - first).saturating_add(period_ns).max(1)),
    }
}

impl Chart {
    /// Adds one sample; `thread` is its thread's name.
    pub fn add(&mut self, sampled: &Sampled, thread: &str) {
        let task = sampled.task;
        let key = (sampled.recording, task.space, task.vcpu);
        if let Some(call) = InOrder::of(sampled) {
            self.calls.entry(key).or_default().push(call);
            self.threads
                .entry(key)
                .or_insert_with(|| (thread.to_owned(), Vec::new()));
            return;
        }
        let entry = self.threads.entry(key);
        let (_, samples) = entry.or_insert_with(|| (thread.to_owned(), Vec::new()));
        let length_ns = match sampled.unit {
            Unit::Samples => 0,
            Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => sampled.weight.amount,
        };
        samples.push(TimedStack {
            since_ns: sampled.since_ns,
            node: sampled.node,
            length_ns,
        });
    }

    /// The bands of each guest's boot or process.
    fn bands(&self, phases: &[Phase], profile: &Profile) -> BTreeMap<(usize, u32), Bands> {
        let keys = self
            .threads
            .keys()
            .map(|(recording, space, _)| (*recording, *space));
        let keys: BTreeSet<_> = keys.collect();
        let bands = keys.into_iter().map(|(recording, space)| {
            let threads = self
                .threads
                .range((recording, space, 0)..=(recording, space, u32::MAX));
            let threads = threads.map(|(_, thread)| thread);
            ((recording, space), Bands::of(threads, phases, profile))
        });
        bands.collect()
    }

    /// Draws the chart, with `phases` as bands. `periods_ns` are the times that a sample of
    /// each recording stands for.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(
        &mut self,
        profile: &Profile,
        periods_ns: &[u64],
        options: &FlameOptions,
        phases: &[Phase],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut is_timed = true;
        for (key, calls) in std::mem::take(&mut self.calls) {
            is_timed &= calls::are_timed(&calls);
            if let Some((_, samples)) = self.threads.get_mut(&key) {
                samples.extend(calls::timed_stacks(calls));
            }
        }
        let is_time = profile.unit() != Unit::Samples;
        let period_of = |recording: usize| match periods_ns.get(recording) {
            Some(period_ns) if !is_time => (*period_ns).max(1),
            _ => 1,
        };
        // Each thread is drawn from its first sample to its last. Otherwise many short processes would be
        // dwarfed by the time in which they didn't exist.
        let lives = self
            .threads
            .iter()
            .map(|((recording, ..), (_, samples))| life(samples, period_of(*recording)));
        let lives: Vec<(u64, u64)> = lives.collect();
        let all_ns = lives
            .iter()
            .fold(0_u128, |all, (_, length_ns)| all + u128::from(*length_ns));
        if all_ns == 0 {
            return write_nothing(options, &profile.account.lines(), out);
        }
        let slots = if lives.len() == 1 {
            SLOTS
        } else {
            SLOTS_OF_SEVERAL
        };
        // Slots that are shorter than each sample would show no more.
        let is_sampled = profile.unit().is_sampled();
        let stacks = self.threads.values().flat_map(|(_, samples)| samples);
        let shortest_ns = stacks.map(|stack| stack.length_ns).min();
        let shortest_ns = shortest_ns.filter(|_| is_sampled).unwrap_or(0);
        let slot_ns = u64::try_from(all_ns / slots).unwrap_or(u64::MAX);
        let longest_ns = (0..periods_ns.len()).map(period_of).max().unwrap_or(1);
        let slot_ns = slot_ns.max(longest_ns).max(shortest_ns);
        let names = frame_names(&profile.labels, FoldedOptions { marks: true });
        let mut palette = Palette::of(&profile.labels, &names, Kind::of);
        let all_bands = self.bands(phases, profile);
        let mut lines = Vec::new();
        let threads = self.threads.iter_mut().zip(lives);
        for (((recording, space, vcpu), (name, samples)), (first, length_ns)) in threads {
            samples.sort_by_key(|stack| stack.since_ns);
            let root = printable(&format!("{name} ({vcpu})")).replace(';', ":");
            palette.add(&root, Kind::Made);
            let bands = &all_bands[&(*recording, *space)];
            bands.names().for_each(|name| palette.add(name, Kind::Made));
            if !is_sampled {
                let slots = (first, slot_ns, length_ns);
                put_waits(
                    &mut lines,
                    (&root, bands),
                    samples,
                    slots,
                    (profile, &names),
                );
                continue;
            }
            let at = Slots {
                root: &root,
                bands,
                first,
                slot_ns,
            };
            let period_ns = period_of(*recording);
            let (times, of) = ((slot_ns, period_ns), (profile, names.as_slice()));
            let (mut done, mut left) = (0, Remainder::default());
            for slot in samples.chunk_by(|a, b| at.number(a) == at.number(b)) {
                let number = at.number(&slot[0]);
                at.put_left(&mut lines, done..number, &mut left, times, of);
                put_slot(&mut lines, &at.root(number), slot, &mut left, times, of);
                done = number + 1;
            }
            let whole = done.max(length_ns / slot_ns);
            at.put_left(&mut lines, done..whole, &mut left, times, of);
            let rest_ns = length_ns.saturating_sub(slot_ns.saturating_mul(whole));
            let root = bands.root(&root, first.saturating_add(length_ns));
            let times = (rest_ns, period_ns);
            put_slot(&mut lines, &root, &[], &mut left, times, of);
        }
        // All waits may have a length of zero.
        if lines.is_empty() {
            return write_nothing(options, &profile.account.lines(), out);
        }
        let mut options = options.clone();
        let order = if is_timed {
            "in time order"
        } else {
            // A box to the right began later, but it is not known when.
            "in the order of calls, whose times are not known"
        };
        let title = match profile.unit() {
            // A chart has time in any case.
            Unit::Sampled => options.title.trim_start_matches(TIME_TITLE),
            _ => &options.title,
        };
        options.title = format!("{order}: {title}");
        let mut drawing = inferno_options(&options, &lines);
        drawing.count_name = match profile.unit() {
            Unit::Samples | Unit::Sampled | Unit::OffCpu => "us".to_owned(),
            unit @ (Unit::Calls | Unit::VcpuTime) => unit.width_name().to_owned(),
        };
        drawing.flame_chart = true;
        // A tall picture shows the names of its threads first if the root is at the top.
        drawing.direction = Direction::Inverted;
        // inferno expects the latest first.
        let lines = lines.iter().rev().map(String::as_str);
        draw(drawing, palette, lines, out)
    }
}

/// The slots of a thread.
#[derive(Clone, Copy)]
struct Slots<'c> {
    /// The thread.
    root: &'c str,
    bands: &'c Bands,
    /// The start of the first slot, and the length of each.
    first: u64,
    slot_ns: u64,
}

impl Slots<'_> {
    /// The number of the slot in which a stack is.
    fn number(&self, stack: &TimedStack) -> u64 {
        (stack.since_ns - self.first) / self.slot_ns
    }

    /// What is below all boxes of a slot.
    fn root(&self, number: u64) -> Cow<'_, str> {
        let since_ns = self
            .first
            .saturating_add(self.slot_ns.saturating_mul(number));
        self.bands.root(self.root, since_ns)
    }

    /// Adds slots in which no sample is: what is left of those before, and then idle time.
    fn put_left(
        &self,
        lines: &mut Vec<String>,
        mut numbers: Range<u64>,
        left: &mut Remainder,
        times: (u64, u64),
        of: (&Profile, &[String]),
    ) {
        while numbers.start < numbers.end && left.all_ns > 0 {
            put_slot(lines, &self.root(numbers.start), &[], left, times, of);
            numbers.start += 1;
        }
        self.idle(lines, numbers, 1000);
    }

    /// Adds slots without a stack.
    fn idle(&self, lines: &mut Vec<String>, numbers: Range<u64>, per_ns: u64) {
        if self.bands.are_none() {
            let slots = numbers.end.saturating_sub(numbers.start);
            return idle(lines, self.root, self.slot_ns.saturating_mul(slots), per_ns);
        }
        for number in numbers {
            idle(lines, &self.root(number), self.slot_ns, per_ns);
        }
    }
}

/// Time of samples that their slot had no room for (nanoseconds).
#[derive(Default)]
struct Remainder {
    /// Each sample's, the earliest first.
    parts: VecDeque<(NodeId, u64)>,
    /// Their sum.
    all_ns: u64,
}

/// Adds time without a stack; `per_ns` is the unit of the lines.
fn idle(lines: &mut Vec<String>, root: &str, time_ns: u64, per_ns: u64) {
    if time_ns >= per_ns {
        lines.push(format!("{root} {}", time_ns / per_ns));
    }
}

/// The unit of the lines (nanoseconds): a microsecond, or a nanosecond for calls.
fn per_ns(profile: &Profile) -> u64 {
    match profile.unit() {
        Unit::Samples | Unit::Sampled | Unit::OffCpu => 1000,
        Unit::Calls | Unit::VcpuTime => 1,
    }
}

/// Adds the stacks of one slot, with equal ones joined, and then the rest of its time as idle. A sample stands for a
/// period, or for its own length. Samples come at any time of theirs, so that a slot may have more of them than it has
/// time for: up to the longest period of them is `left` for the next slots.
fn put_slot(
    lines: &mut Vec<String>,
    root: &str,
    slot: &[TimedStack],
    left: &mut Remainder,
    (slot_ns, period_ns): (u64, u64),
    of: (&Profile, &[String]),
) {
    let lengths = slot.iter().map(|stack| stack.length_ns.max(period_ns));
    let longest_ns = lengths.clone().max().unwrap_or(0);
    let sum_ns: u128 = lengths.clone().map(u128::from).sum();
    let most_ns = slot_ns.saturating_add(longest_ns.max(left.all_ns));
    let taken_ns = sum_ns.min((most_ns - left.all_ns).into());
    for (stack, length_ns) in slot.iter().zip(lengths) {
        let part_ns = (u128::from(length_ns) * taken_ns / sum_ns) as u64;
        if part_ns > 0 {
            left.parts.push_back((stack.node, part_ns));
            left.all_ns += part_ns;
        }
    }
    let mut stacks: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut room_ns = slot_ns;
    while let Some((node, time_ns)) = left.parts.front_mut().filter(|_| room_ns > 0) {
        let inside_ns = room_ns.min(*time_ns);
        *stacks.entry(*node).or_default() += inside_ns;
        room_ns -= inside_ns;
        left.all_ns -= inside_ns;
        *time_ns -= inside_ns;
        if *time_ns == 0 {
            left.parts.pop_front();
        }
    }
    put_stacks(lines, root, &stacks, slot_ns, of);
}

/// Adds the waits of a thread, ascending by start. A part that overlaps the previous wait is ignored. A wait
/// is divided among the slots that it covers.
fn put_waits(
    lines: &mut Vec<String>,
    (root, bands): (&str, &Bands),
    waits: &[TimedStack],
    (first, slot_ns, length_ns): (u64, u64, u64),
    of: (&Profile, &[String]),
) {
    let slots = Slots {
        root,
        bands,
        first,
        slot_ns,
    };
    let mut stacks: BTreeMap<NodeId, u64> = BTreeMap::new();
    let (mut slot, mut done_ns) = (0, first);
    for wait in waits {
        let end_ns = wait.since_ns.saturating_add(wait.length_ns);
        let mut from_ns = done_ns.max(wait.since_ns);
        while from_ns < end_ns {
            let number = (from_ns - first) / slot_ns;
            if number != slot {
                put_stacks(lines, &slots.root(slot), &stacks, slot_ns, of);
                slots.idle(lines, slot + 1..number, per_ns(of.0));
                stacks.clear();
                slot = number;
            }
            let slot_end_ns = first.saturating_add(slot_ns.saturating_mul(number + 1));
            let until_ns = end_ns.min(slot_end_ns);
            *stacks.entry(wait.node).or_default() += until_ns - from_ns;
            from_ns = until_ns;
        }
        done_ns = done_ns.max(end_ns);
    }
    put_stacks(lines, &slots.root(slot), &stacks, slot_ns, of);
    idle(
        lines,
        &bands.root(root, first.saturating_add(length_ns)),
        length_ns.saturating_sub(slot_ns.saturating_mul(slot + 1)),
        per_ns(of.0),
    );
}

/// Adds the stacks of one slot, each with its time, and then the rest of the slot's time as idle.
fn put_stacks(
    lines: &mut Vec<String>,
    root: &str,
    stacks: &BTreeMap<NodeId, u64>,
    slot_ns: u64,
    (profile, names): (&Profile, &[String]),
) {
    let per_ns = per_ns(profile);
    for (node, time_ns) in stacks {
        let mut path: Vec<&str> = profile
            .tree
            .outwards(*node)
            .filter_map(|label| names.get(label as usize).map(String::as_str))
            .collect();
        path.push(root);
        path.reverse();
        lines.push(format!("{} {}", path.join(";"), (time_ns / per_ns).max(1)));
    }
    idle(lines, root, slot_ns - stacks.values().sum::<u64>(), per_ns);
}
