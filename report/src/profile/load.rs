//! How busy each vCPU or thread was, and what sampling cost. Input: a recording and its profile, with a survey. Output:
//! a row for each vCPU or thread, and a sentence.

use crate::profile::Profile;
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::survey::Survey;
use crate::text::printable;
use uprof::cold::{Cost, TargetKind};
use uprof::words::duration;
use uprof::{State, Task};

/// The load of a vCPU or thread.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskLoad {
    /// The vCPU or thread.
    pub task: Task,
    /// Its name, printable.
    pub name: String,
    /// The part of the time in which it ran, 0 to 1.
    pub busy: f64,
    /// Its samples in which it ran.
    pub running: u64,
    /// What it does at the end.
    pub state: &'static str,
}

/// A thread without a sample for this long is waiting: threads are sampled while they run.
const WAITS_NS: u64 = 1_000_000_000;

/// The load of each vCPU, in order, or of each thread, the busiest first.
pub fn loads(recording: &Recording, profile: &Profile) -> Vec<TaskLoad> {
    let Some(known) = profile.of_recordings.first() else {
        return Vec::new();
    };
    let survey = known.survey(recording);
    let is_guest = recording.metadata().target.kind != TargetKind::Process;
    let end_ns = recording.end_ns();
    let rows = survey.latest.iter().map(|(task, (time_ns, state))| {
        let running = survey.running.get(task).copied().unwrap_or(0);
        let name = match recording.tasks().name_at(*task, end_ns) {
            Some(name) if !is_guest => format!("{name} ({})", task.vcpu),
            _ => task_name(recording, *task, end_ns),
        };
        let has_ended = recording.tasks().ended_ns(*task).is_some();
        let state = match state {
            _ if has_ended && !is_guest => "ended",
            State::Running if !is_guest && end_ns.saturating_sub(*time_ns) > WAITS_NS => "waiting",
            state => state.name(),
        };
        TaskLoad {
            task: *task,
            name: printable(&name).into_owned(),
            busy: busy(recording, &survey, *task, running),
            running,
            state,
        }
    });
    let mut rows: Vec<TaskLoad> = rows.collect();
    if !is_guest {
        rows.sort_by_key(|row| (std::cmp::Reverse(row.running), row.task));
    }
    rows
}

/// The part of the time in which a task ran: of its samples, if it is sampled when it waits, too, else of those that
/// were due in this time.
fn busy(recording: &Recording, survey: &Survey, task: Task, running: u64) -> f64 {
    let all = survey.tasks.get(&task).copied().unwrap_or(0);
    let rate_hz = recording.metadata().sampling.rate_millihertz as f64 / 1e3;
    let waits_are_sampled =
        all > running || recording.metadata().target.kind != TargetKind::Process;
    let whole = if waits_are_sampled {
        all as f64
    } else {
        rate_hz * recording.seconds()
    };
    (running as f64 / whole.max(1.0)).min(1.0)
}

/// What sampling cost the target, according to the recording.
pub fn cost(recording: &Recording, profile: &Profile) -> String {
    let survey = profile.of_recordings.first().map(|it| it.survey(recording));
    let Some(cost) = survey
        .map(|survey| survey.cost)
        .filter(|cost| cost.count > 0)
    else {
        return match recording.metadata().target.kind {
            TargetKind::Process => {
                "sampling: by interrupts of the kernel, whose cost is not recorded".to_owned()
            }
            _ => "sampling: its cost is not recorded".to_owned(),
        };
    };
    let what = match recording.metadata().cost {
        Some(Cost::Freeze) => "paused",
        Some(Cost::Work) | None => "sampling took, without a pause",
    };
    let at = |share| duration(cost.percentile_ns(share).unwrap_or(0));
    let percent = cost.sum_ns as f64 / 1e7 / recording.seconds().max(1e-3);
    format!(
        "{what}: {percent:.3}% of the time; p50 {}, p99 {}, max {}",
        at(0.5),
        at(0.99),
        duration(cost.max_ns)
    )
}
