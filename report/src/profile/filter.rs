//! Selects the samples that count, and the frames that are shown.

use crate::recording::Recording;
use crate::recording::processes;
use crate::recording::unit::{Unit, Weight};
use regex::Regex;
use std::collections::BTreeSet;
use std::ops::Range;
use uprof::{Row, State, Task};

/// The user's filters; the default counts all running samples.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only samples at or after this time, in nanoseconds from the start of the recording.
    pub from_ns: Option<u64>,
    /// Only samples before this time, in nanoseconds from the start of the recording.
    pub to_ns: Option<u64>,
    /// Only these vCPUs or thread ids; empty for all.
    pub vcpus: BTreeSet<u32>,
    /// Only vCPUs or threads whose name matches.
    pub thread: Option<Regex>,
    /// Only these processes; empty for all.
    pub pids: BTreeSet<u32>,
    /// Only processes whose name matches.
    pub process: Option<Regex>,
    /// The unit to count; `None` for samples, or time if the recordings have no samples.
    pub unit: Option<Unit>,
    /// States that count. If empty, only running samples count, or all waits and calls.
    pub states: BTreeSet<State>,
    /// Only waits that are at least this long (nanoseconds); for a row of several waits, their mean counts.
    pub min_wait_ns: Option<u64>,
    /// Only waits that are at most this long (nanoseconds).
    pub max_wait_ns: Option<u64>,
    /// Only stacks that have a frame whose name matches.
    pub focus: Option<Regex>,
    /// Only stacks without a frame whose name matches.
    pub ignore: Option<Regex>,
    /// Frames whose name matches are left out of their stacks.
    pub hide: Option<Regex>,
}

/// What to do with a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Counts(Weight),
    Outside,
    WrongState,
    /// It is selected, but its weight is in another unit.
    OtherUnit(Weight),
}

impl Filter {
    /// Whether a row counts, according to its time, vCPU, thread, unit and state; and its weight.
    pub(crate) fn verdict(&self, recording: &Recording, row: &Row<'_>) -> Verdict {
        let unit = self.unit.unwrap_or_default();
        let since_ns = row.time_ns.saturating_sub(recording.start_ns());
        let before_ns = recording.start_ns().saturating_sub(row.time_ns);
        let weight = self.weigh(since_ns, before_ns, row);
        let space = || recording.guest_spaces().of_row(row);
        let inside = weight.is_some()
            && self.has_pid(|| processes::pid_at(recording, space(), row.time_ns))
            && self.has_task(recording, row.task, row.time_ns, space);
        let Some(weight) = weight.filter(|_| inside) else {
            return Verdict::Outside;
        };
        // Beside samples that stand for their time, others stand for a period of their recording's rate.
        let own = Unit::of(row);
        let weight = if own == unit {
            weight
        } else if (own, unit) == (Unit::Samples, Unit::Sampled)
            && let Some(amount) = recording.period_ns()
        {
            Weight { amount, count: 1 }
        } else {
            return Verdict::OtherUnit(weight);
        };
        let counts = match (self.states.is_empty(), unit) {
            (true, Unit::Samples | Unit::Sampled) => row.state == State::Running,
            (true, Unit::OffCpu | Unit::Calls | Unit::VcpuTime) => true,
            (false, _) => self.states.contains(&row.state),
        };
        if counts {
            Verdict::Counts(weight)
        } else {
            Verdict::WrongState
        }
    }

    /// Whether a row has the unit that counts, or can be counted in it.
    pub(crate) fn is_of_unit(&self, row: &Row<'_>) -> bool {
        let unit = self.unit.unwrap_or_default();
        let own = Unit::of(row);
        own == unit || (own, unit) == (Unit::Samples, Unit::Sampled)
    }

    /// Whether it leaves out samples that count by default.
    pub fn leaves_out(&self) -> bool {
        let is_of_part = self.from_ns.is_some() || self.to_ns.is_some();
        let is_of_stacks = self.focus.is_some() || self.ignore.is_some();
        is_of_part || self.chooses_tasks() || is_of_stacks || !self.states.is_empty()
    }

    /// Whether it chooses among vCPUs, threads or processes.
    pub(crate) fn chooses_tasks(&self) -> bool {
        let is_of_threads = !self.vcpus.is_empty() || self.thread.is_some();
        is_of_threads || !self.pids.is_empty() || self.process.is_some()
    }

    /// Whether a process with this number counts.
    pub(crate) fn has_pid(&self, pid: impl FnOnce() -> Option<u32>) -> bool {
        self.pids.is_empty() || pid().is_some_and(|pid| self.pids.contains(&pid))
    }

    /// Whether a task counts at a time, according to its vCPU, its thread and the process of its address
    /// space.
    pub(crate) fn has_task(
        &self,
        recording: &Recording,
        task: Task,
        time_ns: u64,
        space: impl FnOnce() -> u32,
    ) -> bool {
        let process = || processes::name_at(recording, space(), time_ns);
        let thread = || processes::task_name(recording, task, time_ns);
        (self.vcpus.is_empty() || self.vcpus.contains(&task.vcpu))
            && (self.process.as_ref()).is_none_or(|wanted| wanted.is_match(&process()))
            && (self.thread.as_ref()).is_none_or(|wanted| wanted.is_match(&thread()))
    }

    /// Whether a time is in the selected range; `None` is an unknown time.
    pub(crate) fn has_time(&self, since_ns: Option<u64>) -> bool {
        let inside = |since_ns| {
            since_ns >= self.from_ns.unwrap_or(0) && self.to_ns.is_none_or(|to_ns| since_ns < to_ns)
        };
        since_ns.map_or(self.from_ns.is_none() && self.to_ns.is_none(), inside)
    }

    /// A row's weight in the selected time. For a wait, only the part in that time counts, and none of what was before
    /// the recording began, as for waits that began before the window of a flight recorder.
    fn weigh(&self, since_ns: u64, before_ns: u64, row: &Row<'_>) -> Option<Weight> {
        let whole = Unit::weigh(row);
        let from_ns = self.from_ns.unwrap_or(0);
        let to_ns = self.to_ns.unwrap_or(u64::MAX);
        if row.wait.is_none() {
            return self.has_time(Some(since_ns)).then_some(whole);
        }
        let mean_ns = whole.amount / whole.count.max(1);
        let length = self.min_wait_ns.unwrap_or(0)..=self.max_wait_ns.unwrap_or(u64::MAX);
        let end_ns = since_ns.saturating_add(whole.amount.saturating_sub(before_ns));
        let inside_ns = end_ns.min(to_ns).saturating_sub(since_ns.max(from_ns));
        // A wait of no length counts, although no part of it can be in the selected time.
        let is_empty = whole.amount == 0 && self.has_time(Some(since_ns));
        (length.contains(&mean_ns) && (inside_ns > 0 || is_empty)).then_some(Weight {
            amount: inside_ns,
            count: whole.count,
        })
    }

    /// Whether a block with samples between these times can have any that count. Waits begin at these, and may last
    /// longer than any block.
    pub(crate) fn may_have(&self, recording: &Recording, first_ns: u64, last_ns: u64) -> bool {
        let start_ns = recording.start_ns();
        let early = |from_ns| last_ns.saturating_sub(start_ns) < from_ns;
        let late = |to_ns| first_ns.saturating_sub(start_ns) >= to_ns;
        let is_of_waits = self.unit == Some(Unit::OffCpu);
        (is_of_waits || !self.from_ns.is_some_and(early)) && !self.to_ns.is_some_and(late)
    }

    /// The selected part of a recording, in nanoseconds from its start; never empty.
    pub(crate) fn window(&self, recording: &Recording) -> Range<u64> {
        self.window_of(recording.end_ns().saturating_sub(recording.start_ns()))
    }

    /// The length of the selected part of a recording, in seconds; 0 if it is unknown.
    pub(crate) fn seconds(&self, recording: &Recording) -> f64 {
        let window = self.window(recording);
        recording
            .seconds()
            .min((window.end - window.start) as f64 / 1e9)
    }

    fn window_of(&self, length_ns: u64) -> Range<u64> {
        let end = self.to_ns.unwrap_or(u64::MAX).min(length_ns).max(1);
        self.from_ns.unwrap_or(0).min(end - 1)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_within_the_recording_and_are_never_empty() {
        let window = |from_ns, to_ns, length_ns| {
            let filter = Filter {
                from_ns,
                to_ns,
                ..Filter::default()
            };
            filter.window_of(length_ns)
        };
        assert_eq!(window(None, None, 100), 0..100);
        assert_eq!(window(Some(20), Some(60), 100), 20..60);
        assert_eq!(window(Some(20), Some(600), 100), 20..100);
        assert_eq!(window(Some(500), None, 100), 99..100);
        assert_eq!(window(Some(60), Some(20), 100), 19..20);
        assert_eq!(window(None, Some(0), 0), 0..1);
    }
}
