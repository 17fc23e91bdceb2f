//! What Perfetto shows as curves: the share of each place in a vCPU's wall time, and its exits a second, by interval of
//! the recording.

use crate::profile::filter::Filter;
use crate::profile::vcpu_times::{PLACES, part_within, window};
use crate::recording::Recording;
use std::collections::BTreeMap;
use uprof::Task;
use uprof::cold::{ExitKind, Place};

/// A curve.
pub(super) struct Counter {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Values, each from a time on (nanoseconds from the start of the recording), in order of time.
    pub(super) points: Vec<(u64, f64)>,
}

/// A value in an interval.
struct Step {
    first_ns: u64,
    last_ns: u64,
    value: f64,
}

/// The curves of the vCPUs that the filter selects.
pub(super) fn of(recording: &Recording, filter: &Filter) -> BTreeMap<Task, Vec<Counter>> {
    let selected = window(recording, filter);
    let counts = |task: Task, first_ns: u64, last_ns: u64| {
        first_ns < last_ns
            && part_within(first_ns, last_ns, selected).is_some()
            && filter.has_pid(|| None)
            && filter.has_task(recording, task, first_ns, || task.space)
    };
    let mut places: BTreeMap<Task, [Vec<Step>; PLACES]> = BTreeMap::new();
    for record in recording.vcpu_times() {
        let (first_ns, last_ns) = (record.first_ns, record.last_ns);
        if !counts(record.task, first_ns, last_ns) {
            continue;
        }
        let of_task = places.entry(record.task).or_default();
        let length = (last_ns - first_ns) as f64;
        for (steps, place) in of_task.iter_mut().zip(Place::ALL) {
            let spent = record.spent.iter().filter(|(at, _)| at == place);
            let ns = spent.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
            let value = (ns as f64 * 100.0 / length).min(100.0);
            steps.push(Step {
                first_ns,
                last_ns,
                value,
            });
        }
    }
    let mut exits: BTreeMap<(Task, u64, u64), u64> = BTreeMap::new();
    let guests = recording.exits().iter();
    for one in guests.filter(|one| one.cause.kind != ExitKind::Recorder) {
        if counts(one.task, one.first_ns, one.last_ns) {
            let count = exits.entry((one.task, one.first_ns, one.last_ns));
            let count = count.or_default();
            *count = count.saturating_add(one.count);
        }
    }
    let mut rates: BTreeMap<Task, Vec<Step>> = BTreeMap::new();
    for ((task, first_ns, last_ns), count) in exits {
        rates.entry(task).or_default().push(Step {
            first_ns,
            last_ns,
            value: count as f64 * 1e9 / (last_ns - first_ns) as f64,
        });
    }
    let mut counters: BTreeMap<Task, Vec<Counter>> = BTreeMap::new();
    for (task, by_place) in places {
        let of_task = counters.entry(task).or_default();
        for (steps, place) in by_place.into_iter().zip(Place::ALL) {
            // A place where a vCPU never is has no curve.
            if steps.iter().any(|step| step.value > 0.0) {
                of_task.push(Counter {
                    name: place.name(),
                    unit: "%",
                    points: points(recording, steps),
                });
            }
        }
    }
    for (task, steps) in rates {
        counters.entry(task).or_default().push(Counter {
            name: "exits",
            unit: "a second",
            points: points(recording, steps),
        });
    }
    counters
}

/// The values of `steps` in order of time, and zero where there is none. Of steps that overlap, the first counts.
fn points(recording: &Recording, mut steps: Vec<Step>) -> Vec<(u64, f64)> {
    steps.sort_by_key(|step| (step.first_ns, step.last_ns));
    let since = |ns: u64| ns.saturating_sub(recording.start_ns());
    let mut points = Vec::new();
    let mut end_ns = None;
    for step in steps {
        match end_ns {
            Some(end_ns) if step.first_ns < end_ns => continue,
            Some(end_ns) if step.first_ns > end_ns => points.push((since(end_ns), 0.0)),
            _ => {}
        }
        points.push((since(step.first_ns), step.value));
        end_ns = Some(step.last_ns);
    }
    points.extend(end_ns.map(|end_ns| (since(end_ns), 0.0)));
    points
}
