//! The Firefox profiler's processed format: a thread for each vCPU or thread, with times, a category for kernel and
//! user frames, and a marker for each call of a trace.

mod markers;

use crate::export::call_times::TaskCalls;
use crate::export::timeline::{Homes, Timeline, Who};
use crate::export::{Request, ThreadSample, TimelineData};
use crate::profile::Profile;
use crate::profile::tree::{NodeId, ROOT};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::unit::{Unit, whole};
use crate::recording::warnings::Warning;
use crate::text::json_writer::JsonWriter;
use crate::text::printable;
use fxprof_processed_profile as fx;
use markers::Markers;
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::{State, WordMap};

/// Most calls that get markers. The profiler has difficulty opening more, and each takes hundreds of bytes.
const MARKERS_MAX: usize = 1 << 20;

/// Writes the file.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let TimelineData {
        mut profile,
        samples,
        mut calls,
        names,
    } = request.gather_timed(true);
    if let Some(warning) = too_many(calls.values().map(TaskCalls::len).sum()) {
        profile.warnings.push(warning.to_string());
        calls.clear();
    }
    let timeline = Timeline::of(request.recordings).unwrap_or_else(|why| {
        let warning = Warning::SeparateTimes(why.to_string());
        profile.warnings.push(warning.to_string());
        Timeline::apart(request.recordings)
    });
    let homes = Homes::new(request.recordings, samples.keys());
    let first = request.recordings.first();
    let titles: Vec<String> = request.recordings.iter().map(|one| title(one)).collect();
    let mut made = fx::Profile::new(
        titles.first().map_or("", String::as_str),
        reference(&timeline),
        fx::SamplingInterval::from_nanos(period_ns(first.copied())),
    );
    made.set_symbolicated(true);
    let categories = [
        made.add_category("User", fx::CategoryColor::Yellow),
        made.add_category("Kernel", fx::CategoryColor::Orange),
    ];
    let mut threads = Threads {
        made,
        titles,
        processes: BTreeMap::new(),
        known: BTreeMap::new(),
        unit: profile.unit(),
    };
    for (who, samples) in &samples {
        let recording = request.recordings[who.0];
        let thread = threads.of(recording, *who);
        let times = Times {
            offset_ns: timeline.offsets_ns[who.0],
            period_ns: period_ns(Some(recording)),
        };
        add_samples(
            &mut threads.made,
            thread,
            &profile,
            samples,
            categories,
            times,
        );
    }
    let mut markers = Markers::new(&names);
    for (who, calls) in &calls {
        let home = homes.of(request.recordings, *who);
        let thread = threads.of(request.recordings[home.0], home);
        let offset_ns = timeline.offsets_ns[who.0];
        markers.add(&mut threads.made, thread, offset_ns, calls)?;
    }
    serde_json::to_writer(JsonWriter(out), &threads.made).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(profile)
}

/// The warning that calls get no markers, if they are too many.
fn too_many(calls: usize) -> Option<Warning> {
    let most = MARKERS_MAX;
    (calls > most).then_some(Warning::TooManyCalls { calls, most })
}

/// Processes and threads that have been added.
struct Threads {
    made: fx::Profile,
    /// By recording.
    titles: Vec<String>,
    /// Processes, by recording and address space.
    processes: BTreeMap<(usize, u32), fx::ProcessHandle>,
    known: BTreeMap<Who, fx::ThreadHandle>,
    unit: Unit,
}

impl Threads {
    fn of(&mut self, recording: &Recording, who: Who) -> fx::ThreadHandle {
        if let Some(known) = self.known.get(&who) {
            return *known;
        }
        let task = who.1;
        let start = fx::Timestamp::from_nanos_since_reference(0);
        let made = &mut self.made;
        let process = *self
            .processes
            .entry((who.0, task.space))
            .or_insert_with(|| made.add_process(&self.titles[who.0], task.space, start));
        // The profiler would show a main thread under the name of its process.
        let thread = made.add_thread(process, task.vcpu, start, false);
        let name = task_name(recording, task, u64::MAX);
        made.set_thread_name(thread, &printable(&name));
        if self.unit.is_time() {
            made.set_thread_samples_weight_type(thread, fx::WeightType::TracingMs);
            // The profiler would hide a thread without CPU time.
            made.add_initial_visible_thread(thread);
        }
        self.known.insert(who, thread);
        thread
    }
}

/// The start and period of samples on the time axis.
#[derive(Clone, Copy)]
struct Times {
    offset_ns: u64,
    period_ns: u64,
}

fn add_samples(
    made: &mut fx::Profile,
    thread: fx::ThreadHandle,
    profile: &Profile,
    samples: &[ThreadSample],
    categories: [fx::CategoryHandle; 2],
    times: Times,
) {
    let mut stacks: WordMap<NodeId, fx::StackHandle> = WordMap::default();
    let mut cpu_times = CpuTimes::default();
    let mut weights = Weights::new(samples, profile.unit());
    for sample in samples {
        let mut path = Vec::new();
        let mut at = sample.node;
        // Only the outer part of the stack that isn't known yet is added.
        while at != ROOT && !stacks.contains_key(&at) {
            path.push(at);
            at = profile.tree.nodes()[at as usize].parent;
        }
        let mut stack = stacks.get(&at).copied();
        for step in path.into_iter().rev() {
            let label = profile.tree.label(step);
            let kernel = profile.labels.get(label).kernel;
            let name = made.intern_string(profile.labels.name(label));
            let info = fx::FrameInfo {
                frame: fx::Frame::Label(name),
                category_pair: categories[usize::from(kernel)].into(),
                flags: fx::FrameFlags::empty(),
            };
            let frame = made.intern_frame(thread, info);
            let next = made.intern_stack(thread, stack, frame);
            stacks.insert(step, next);
            stack = Some(next);
        }
        let at_ns = times.offset_ns.saturating_add(sample.since_ns);
        let time = fx::Timestamp::from_nanos_since_reference(at_ns);
        let period_ns = if profile.unit() == Unit::Sampled {
            sample.weight
        } else {
            times.period_ns
        };
        let cpu = cpu_times.of(sample, period_ns);
        let weight = weights.of(sample);
        made.add_sample(thread, time, stack, cpu, weight);
    }
}

/// Nanoseconds of the format's unit of time.
const MS: u64 = 1_000_000;

/// Weights in the format's unit: samples, or whole milliseconds. What is left of a sample is carried over to the next
/// one with its stack. The sums of a thread and of each of its stacks are exact to a millisecond.
struct Weights {
    unit: Unit,
    left_ns: WordMap<NodeId, u64>,
}

impl Weights {
    /// The weights of a thread's samples. Each stack gets whole milliseconds, with a sum that is right.
    fn new(samples: &[ThreadSample], unit: Unit) -> Self {
        let mut left_ns: WordMap<NodeId, u64> = WordMap::default();
        if unit != Unit::Samples {
            for sample in samples {
                let sum_ns = left_ns.entry(sample.node).or_default();
                *sum_ns = sum_ns.saturating_add(sample.weight);
            }
        }
        let mut sums: Vec<(NodeId, u64)> = left_ns.iter().map(|(node, ns)| (*node, *ns)).collect();
        sums.sort_unstable();
        let all_ns: Vec<u64> = sums.iter().map(|(_, ns)| *ns).collect();
        for ((node, ns), ms) in sums.into_iter().zip(whole(&all_ns, MS)) {
            // With this ahead, the last sample of a stack that is rounded up fills the millisecond.
            left_ns.insert(node, ms.saturating_mul(MS).saturating_sub(ns));
        }
        Weights { unit, left_ns }
    }

    fn of(&mut self, sample: &ThreadSample) -> i32 {
        if self.unit == Unit::Samples {
            return sample.weight as i32;
        }
        let left_ns = self.left_ns.entry(sample.node).or_default();
        *left_ns = left_ns.saturating_add(sample.weight);
        let whole_ms = (*left_ns / MS).min(i32::MAX as u64);
        *left_ns -= whole_ms * MS;
        whole_ms as i32
    }
}

/// The estimated CPU time of a thread from sample to sample. The profiler draws its tracks with it, and hides a thread
/// without any.
#[derive(Default)]
struct CpuTimes {
    before_ns: Option<u64>,
    left_ns: u64,
}

impl CpuTimes {
    /// A sample stands for a period. Samples come at any time of theirs, so that two may be close to each other: what
    /// has no room between them is carried over to the next.
    fn of(&mut self, sample: &ThreadSample, period_ns: u64) -> fx::CpuDelta {
        let before_ns = self.before_ns.replace(sample.since_ns);
        if sample.state != State::Running {
            return fx::CpuDelta::ZERO;
        }
        let elapsed_ns = before_ns.map_or(period_ns, |before_ns| sample.since_ns - before_ns);
        let due_ns = self.left_ns.saturating_add(period_ns);
        let ran_ns = due_ns.min(elapsed_ns);
        self.left_ns = (due_ns - ran_ns).min(period_ns);
        fx::CpuDelta::from_nanos(ran_ns)
    }
}

fn title(recording: &Recording) -> String {
    printable(recording.subject()).into_owned()
}

fn reference(timeline: &Timeline) -> fx::ReferenceTimestamp {
    let started_ns = timeline.start_realtime_ns.unwrap_or(0);
    fx::ReferenceTimestamp::from_millis_since_unix_epoch(started_ns as f64 / 1e6)
}

fn period_ns(recording: Option<&Recording>) -> u64 {
    let period_ns = recording.and_then(Recording::period_ns);
    period_ns.unwrap_or(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_add_up_of_a_thread_and_of_each_stack() {
        let sample = |node, weight| ThreadSample {
            since_ns: 0,
            node,
            state: State::Running,
            weight,
        };
        let sums = |samples: &[ThreadSample]| {
            let mut weights = Weights::new(samples, Unit::Calls);
            let mut sums: std::collections::BTreeMap<NodeId, i32> = Default::default();
            for sample in samples {
                *sums.entry(sample.node).or_default() += weights.of(sample);
            }
            sums
        };
        let different: Vec<ThreadSample> = (1..=1000).map(|node| sample(node, 900_000)).collect();
        assert_eq!(sums(&different).values().sum::<i32>(), 900);
        let turns = [sample(1, 900_000), sample(2, 100_000)].repeat(1000);
        assert_eq!(sums(&turns), [(1, 900), (2, 100)].into());
        let one_more = [&turns[..], &[sample(3, 1_700_000)]].concat();
        assert_eq!(sums(&one_more), [(1, 900), (2, 100), (3, 2)].into());
    }

    #[test]
    fn cpu_time_is_that_of_all_samples_wherever_they_are_in_their_periods() {
        let ran_ms = |samples_ms: &[u64]| {
            let mut times = CpuTimes::default();
            let samples = samples_ms.iter().map(|ms| ThreadSample {
                since_ns: ms * 1_000_000,
                node: ROOT,
                state: State::Running,
                weight: 1,
            });
            let deltas = samples.map(|sample| times.of(&sample, 10_000_000));
            deltas.collect::<Vec<_>>()
        };
        let ms = |ms: &[u64]| {
            let deltas = ms.iter().map(|ms| fx::CpuDelta::from_micros(ms * 1000));
            deltas.collect::<Vec<_>>()
        };
        // It runs all the time.
        assert_eq!(ran_ms(&[0, 19, 21, 39, 41]), ms(&[10, 10, 2, 18, 2]));
        // It waits half of the time, and then for long.
        assert_eq!(ran_ms(&[5, 25, 45, 900]), ms(&[10, 10, 10, 10]));
    }

    #[test]
    fn calls_beyond_the_limit_get_no_markers_and_that_is_told() {
        assert_eq!(too_many(MARKERS_MAX), None);
        let why = too_many(MARKERS_MAX + 1).unwrap().to_string();
        assert!(
            why.starts_with("1048577 calls are too many for markers"),
            "{why}"
        );
    }
}
