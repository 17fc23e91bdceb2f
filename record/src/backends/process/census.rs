//! Reads the processor time of processes, for comparison with their samples.
//!
//! The clock of a process is gone when it ends. Its time at the last reading is reported as its own. The rest, and all
//! time of processes that came and went between two readings, is reported as time of ended children of the process that
//! waited for them.

use super::stat::{self, Stat};
use crate::sys::clock::{boot_ns, monotonic_ns, processor_time_ns};
use std::collections::HashMap;
use uprof::cold::ProcessTime;

/// Most processes whose clocks are read.
const MOST_TIMED: usize = 4096;
/// How often the time of a running process is reported, so that a truncated recording has some of it.
const REPORT_NS: u64 = 10_000_000_000;
/// So long after it started, a process may still be unknown because its record wasn't read. One that is older when it
/// is first seen has joined the target since.
const UNKNOWN_NS: u64 = 500_000_000;
/// Length of a tick, the unit of start times in `/proc`.
const TICK_NS: u64 = 10_000_000;

/// The processes, and the times that were reported of them.
#[derive(Debug, Default)]
pub struct Census {
    /// Time of the first reading, by the clock of process start times.
    began_boot_ns: Option<u64>,
    began_ns: u64,
    /// Time of the last reading, by the same clock.
    read_boot_ns: u64,
    known: HashMap<i32, Known>,
    /// Whether processes left the target: when they end, their time is that of a child that ended, too.
    some_left: bool,
    /// Time of processes that ended with their parents, for each of the last two readings. Their adopter may have
    /// waited for them, and that may take as long as two readings.
    orphaned_ns: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// Its state at the last reading.
    stat: Stat,
    own_ns: u64,
    seen_ns: u64,
    /// How much of its time was reported or is from before the recording. For children, this includes time that was
    /// reported as their own.
    reported_own_ns: u64,
    reported_ended_ns: u64,
    reported_up_to_ns: u64,
}

impl Census {
    /// Counts no more time of children that ended.
    pub fn leave_out_children(&mut self) {
        self.some_left = true;
    }

    /// Reads the clocks of `pids`; returns the times to report. `last`: this is the last reading.
    pub fn read(&mut self, pids: &[i32], last: bool) -> Vec<ProcessTime> {
        let began_boot_ns = *self.began_boot_ns.get_or_insert_with(|| {
            self.began_ns = monotonic_ns();
            boot_ns()
        });
        let known_from_ns = began_boot_ns.max(self.read_boot_ns.saturating_sub(UNKNOWN_NS));
        self.read_boot_ns = boot_ns();
        let mut now: HashMap<i32, Known> = HashMap::with_capacity(pids.len().min(MOST_TIMED));
        for &pid in pids.iter().take(MOST_TIMED) {
            let (Some(stat), Some(own_ns)) = (stat::of(pid), processor_time_ns(pid)) else {
                continue;
            };
            let seen_ns = monotonic_ns();
            let before = self.known.get(&pid);
            let before = before.filter(|known| known.stat.started_ns == stat.started_ns);
            let is_new = stat.started_ns + TICK_NS >= known_from_ns;
            let stat = Stat {
                ended_children_ns: if self.some_left {
                    0
                } else {
                    stat.ended_children_ns
                },
                ..stat
            };
            let known = match before {
                Some(&known) => Known {
                    stat,
                    own_ns,
                    seen_ns,
                    ..known
                },
                None => Known {
                    stat,
                    own_ns,
                    seen_ns,
                    reported_own_ns: if is_new { 0 } else { own_ns },
                    reported_ended_ns: if is_new { 0 } else { stat.ended_children_ns },
                    reported_up_to_ns: if is_new { self.began_ns } else { seen_ns },
                },
            };
            now.insert(pid, known);
            if before.is_some() {
                self.known.remove(&pid);
            }
        }
        let gone = std::mem::replace(&mut self.known, now);
        self.orphaned_ns = [0, self.orphaned_ns[0]];
        let mut times = Vec::new();
        for (&pid, known) in &gone {
            self.leave_out(&gone, known);
            times.extend(known.clone().report(pid));
        }
        self.leave_out_orphans();
        for (&pid, known) in &mut self.known {
            if last || known.seen_ns.saturating_sub(known.reported_up_to_ns) >= REPORT_NS {
                times.extend(known.report(pid));
            }
        }
        times.sort_by_key(|time| (time.last_ns, time.space));
        times
    }

    /// The last reading of a process that ended is also part of the time of the process that waited for it. It must not
    /// be reported twice.
    fn leave_out(&mut self, gone: &HashMap<i32, Known>, ended: &Known) {
        let time_ns = ended.own_ns.saturating_add(ended.stat.ended_children_ns);
        if let Some(parent) = self.known.get_mut(&ended.stat.parent) {
            parent.reported_ended_ns = parent.reported_ended_ns.saturating_add(time_ns);
        } else if gone.contains_key(&ended.stat.parent) {
            self.orphaned_ns[0] = self.orphaned_ns[0].saturating_add(time_ns);
        }
    }

    /// Subtracts the time of orphans from the unreported time of any process's ended children. Their parent may have
    /// waited for them before it ended, and its own parent for it, or a process that adopted them may have.
    fn leave_out_orphans(&mut self) {
        for orphaned_ns in &mut self.orphaned_ns {
            for known in self.known.values_mut() {
                let rise_ns = known
                    .stat
                    .ended_children_ns
                    .saturating_sub(known.reported_ended_ns);
                let theirs_ns = rise_ns.min(*orphaned_ns);
                known.reported_ended_ns += theirs_ns;
                *orphaned_ns -= theirs_ns;
            }
        }
    }
}

impl Known {
    /// The time not reported yet; `None` if there is none.
    fn report(&mut self, pid: i32) -> Option<ProcessTime> {
        let time = ProcessTime {
            space: pid as u32,
            first_ns: self.reported_up_to_ns,
            last_ns: self.seen_ns,
            own_ns: self.own_ns.saturating_sub(self.reported_own_ns),
            ended_ns: self
                .stat
                .ended_children_ns
                .saturating_sub(self.reported_ended_ns),
        };
        self.reported_own_ns = self.own_ns;
        self.reported_ended_ns = self.reported_ended_ns.max(self.stat.ended_children_ns);
        self.reported_up_to_ns = self.seen_ns;
        (time.own_ns > 0 || time.ended_ns > 0).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_whose_processor_time_is_read() {
        let own = std::process::id() as i32;
        let is_read = |before: usize| {
            let mut pids = vec![-1; before];
            pids.push(own);
            let mut census = Census::default();
            census.read(&pids, false);
            census.known.contains_key(&own)
        };
        assert!(is_read(MOST_TIMED - 1));
        assert!(!is_read(MOST_TIMED));
    }
}
