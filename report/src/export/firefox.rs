//! The Firefox profiler's processed format: a thread for each vCPU or thread, with times, and a
//! category for kernel and user frames.

use crate::export::{Moment, Request};
use crate::profile::Profile;
use crate::profile::tree::{NodeId, ROOT};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use crate::text::json_writer::JsonWriter;
use crate::text::printable;
use fxprof_processed_profile as fx;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use uprof::{State, Task, WordMap};

/// Writes the file.
pub(crate) fn write(request: &Request<'_>, out: &mut dyn Write) -> io::Result<Profile> {
    let (profile, samples) = request.gather_threads();
    let first = request.recordings.first();
    let mut made = fx::Profile::new(
        &first.map_or(String::new(), |first| title(first)),
        reference(first.copied()),
        fx::SamplingInterval::from_nanos(period_ns(first.copied())),
    );
    made.set_symbolicated(true);
    let categories = [
        made.add_category("User", fx::CategoryColor::Yellow),
        made.add_category("Kernel", fx::CategoryColor::Orange),
    ];
    for (number, recording) in request.recordings.iter().enumerate() {
        let mine = samples.iter().filter(|((of, _), _)| *of == number);
        let threads: BTreeMap<Task, &Vec<Moment>> =
            mine.map(|((_, task), samples)| (*task, samples)).collect();
        let period_ns = period_ns(Some(recording));
        let spaces: BTreeSet<u32> = threads.keys().map(|task| task.space).collect();
        for space in spaces {
            let start = fx::Timestamp::from_nanos_since_reference(0);
            let process = made.add_process(&title(recording), space, start);
            let own = threads.iter().filter(|(task, _)| task.space == space);
            for (task, samples) in own {
                // A main thread would be shown under its process's name.
                let thread = made.add_thread(process, task.vcpu, start, false);
                let name = task_name(recording, *task, u64::MAX);
                made.set_thread_name(thread, &printable(&name));
                if profile.unit().is_time() {
                    made.set_thread_samples_weight_type(thread, fx::WeightType::TracingMs);
                    // The profiler would hide a thread without CPU time.
                    made.add_initial_visible_thread(thread);
                }
                add_samples(&mut made, thread, &profile, samples, categories, period_ns);
            }
        }
    }
    serde_json::to_writer(JsonWriter(out), &made).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(profile)
}

fn add_samples(
    made: &mut fx::Profile,
    thread: fx::ThreadHandle,
    profile: &Profile,
    samples: &[Moment],
    categories: [fx::CategoryHandle; 2],
    period_ns: u64,
) {
    let mut stacks: WordMap<NodeId, fx::StackHandle> = WordMap::default();
    let mut before_ns = None;
    let mut weights = Weights::default();
    for sample in samples {
        let mut path = Vec::new();
        let mut at = sample.node;
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
        let time = fx::Timestamp::from_nanos_since_reference(sample.since_ns);
        let cpu = cpu_time(sample, before_ns.replace(sample.since_ns), period_ns);
        let weight = weights.of(sample, profile.unit());
        made.add_sample(thread, time, stack, cpu, weight);
    }
}

/// Weights in the format's unit: samples, or whole milliseconds. The fraction is carried to the next sample of the
/// same stack, so that a stack's sum is exact to a millisecond.
#[derive(Default)]
struct Weights {
    left_ns: WordMap<NodeId, u64>,
}

impl Weights {
    fn of(&mut self, sample: &Moment, unit: Unit) -> i32 {
        if unit == Unit::Samples {
            return sample.weight as i32;
        }
        let left_ns = self.left_ns.entry(sample.node).or_default();
        *left_ns += sample.weight;
        let whole_ms = (*left_ns / 1_000_000).min(i32::MAX as u64);
        *left_ns -= whole_ms * 1_000_000;
        whole_ms as i32
    }
}

/// The estimated CPU time since the thread's previous sample: the profiler draws its tracks with it, and hides a
/// thread without any.
fn cpu_time(sample: &Moment, before_ns: Option<u64>, period_ns: u64) -> fx::CpuDelta {
    let elapsed_ns = before_ns.map_or(period_ns, |before_ns| sample.since_ns - before_ns);
    match sample.state {
        State::Running => fx::CpuDelta::from_nanos(period_ns.min(elapsed_ns)),
        _ => fx::CpuDelta::ZERO,
    }
}

fn title(recording: &Recording) -> String {
    printable(recording.subject()).into_owned()
}

fn reference(recording: Option<&Recording>) -> fx::ReferenceTimestamp {
    let started_ns = recording
        .and_then(Recording::start_realtime_ns)
        .unwrap_or(0);
    fx::ReferenceTimestamp::from_millis_since_unix_epoch(started_ns as f64 / 1e6)
}

fn period_ns(recording: Option<&Recording>) -> u64 {
    let rate = recording.map_or(0, |one| one.metadata().sampling.rate_millihertz);
    let period_ns = 1_000_000_000_000_u64.checked_div(rate);
    period_ns.unwrap_or(1_000_000)
}
