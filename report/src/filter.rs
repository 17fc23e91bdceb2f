//! Which samples count, and which of their frames are shown.

use crate::recording::Recording;
use regex::Regex;
use std::collections::BTreeSet;
use std::ops::Range;
use uprof::{Row, State};

/// Limits set by the user; the default counts all running samples.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Not before this time, in nanoseconds from the start of the recording.
    pub from_ns: Option<u64>,
    /// Not at or after this time, in nanoseconds from the start of the recording.
    pub to_ns: Option<u64>,
    /// Only these vCPUs or thread ids; empty for all.
    pub vcpus: BTreeSet<u32>,
    /// Only vCPUs or threads whose name matches.
    pub thread: Option<Regex>,
    /// States that count; empty for running only.
    pub states: BTreeSet<State>,
    /// Only stacks that have a frame whose name matches.
    pub focus: Option<Regex>,
    /// No stack that has a frame whose name matches.
    pub ignore: Option<Regex>,
    /// Frames whose name matches are left out of their stacks.
    pub hide: Option<Regex>,
}

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Counts,
    Outside,
    WrongState,
}

impl Filter {
    /// Whether a sample counts, as far as its time, vCPU, thread and state go.
    pub(crate) fn verdict(&self, recording: &Recording, row: &Row<'_>) -> Verdict {
        let since_ns = row.time_ns.saturating_sub(recording.start_ns());
        let outside = self.from_ns.is_some_and(|from_ns| since_ns < from_ns)
            || self.to_ns.is_some_and(|to_ns| since_ns >= to_ns)
            || !self.vcpus.is_empty() && !self.vcpus.contains(&row.task.vcpu)
            || self.thread.as_ref().is_some_and(|wanted| {
                let name = recording.tasks().name_at(row.task, row.time_ns);
                !name.is_some_and(|name| wanted.is_match(name))
            });
        if outside {
            return Verdict::Outside;
        }
        let counts = match self.states.is_empty() {
            true => row.state == State::Running,
            false => self.states.contains(&row.state),
        };
        match counts {
            true => Verdict::Counts,
            false => Verdict::WrongState,
        }
    }

    /// Whether a block whose samples lie between these times can have any that count.
    pub(crate) fn may_have(&self, recording: &Recording, first_ns: u64, last_ns: u64) -> bool {
        let start_ns = recording.start_ns();
        let early = |from_ns| last_ns.saturating_sub(start_ns) < from_ns;
        let late = |to_ns| first_ns.saturating_sub(start_ns) >= to_ns;
        !self.from_ns.is_some_and(early) && !self.to_ns.is_some_and(late)
    }

    /// The part of a recording that is looked at, in nanoseconds from its start; never empty.
    pub(crate) fn window(&self, recording: &Recording) -> Range<u64> {
        self.window_of(recording.end_ns().saturating_sub(recording.start_ns()))
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
