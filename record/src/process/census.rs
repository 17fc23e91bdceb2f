//! Asks the kernel for the processor time of processes, to be held against their samples.
//!
//! A process that ends takes its clock with it. What it had at the last look is told as its own; the
//! rest, and the whole of processes that came and went between two looks, is told as that of
//! children which ended, by the process that waited for them.

use super::stat::{self, Stat};
use crate::sys::clock::{boot_ns, monotonic_ns, processor_time_ns};
use std::collections::HashMap;
use uprof::cold::ProcessTime;

/// Most processes whose clocks are read.
const MOST_TIMED: usize = 4096;
/// A process that lives long is told of so often, so that a recording that is cut has something.
const TELL_NS: u64 = 10_000_000_000;
/// `/proc` tells starts in ticks of this length.
const TICK_NS: u64 = 10_000_000;
/// Most generations between a process that ended and one that is there.
const MOST_GENERATIONS: usize = 64;

/// The processes, and what was told of them.
#[derive(Debug, Default)]
pub struct Census {
    /// When the first look was, by the clock that process starts are told in.
    began_boot_ns: Option<u64>,
    began_ns: u64,
    known: HashMap<i32, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// As it was at the last look.
    stat: Stat,
    own_ns: u64,
    seen_ns: u64,
    /// What of all that was told, or was before the recording; the children's with what they told
    /// themselves.
    told_own_ns: u64,
    told_ended_ns: u64,
    told_up_to_ns: u64,
}

impl Census {
    /// Reads the clocks of `pids`; returns what there is to tell. `last`: there will be no other look.
    pub fn look(&mut self, pids: &[i32], last: bool) -> Vec<ProcessTime> {
        let began_boot_ns = *self.began_boot_ns.get_or_insert_with(|| {
            self.began_ns = monotonic_ns();
            boot_ns()
        });
        let mut now: HashMap<i32, Known> = HashMap::with_capacity(pids.len().min(MOST_TIMED));
        for &pid in pids.iter().take(MOST_TIMED) {
            let (Some(stat), Some(own_ns)) = (stat::of(pid), processor_time_ns(pid)) else {
                continue;
            };
            let seen_ns = monotonic_ns();
            let before = self.known.get(&pid);
            let before = before.filter(|known| known.stat.started_ns == stat.started_ns);
            let is_new = stat.started_ns + TICK_NS >= began_boot_ns;
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
                    told_own_ns: if is_new { 0 } else { own_ns },
                    told_ended_ns: if is_new { 0 } else { stat.ended_children_ns },
                    told_up_to_ns: if is_new { self.began_ns } else { seen_ns },
                },
            };
            now.insert(pid, known);
            if before.is_some() {
                self.known.remove(&pid);
            }
        }
        let gone = std::mem::replace(&mut self.known, now);
        let mut told = Vec::new();
        for (&pid, known) in &gone {
            self.leave_out(&gone, known);
            told.extend(known.clone().tell(pid));
        }
        for (&pid, known) in &mut self.known {
            if last || known.seen_ns.saturating_sub(known.told_up_to_ns) >= TELL_NS {
                told.extend(known.tell(pid));
            }
        }
        told.sort_by_key(|time| (time.last_ns, time.space));
        told
    }

    /// What a process that is gone had at its last look is in the count of whoever waited for it, and
    /// must not be told twice.
    fn leave_out(&mut self, gone: &HashMap<i32, Known>, ended: &Known) {
        let mut parent = ended.stat.parent;
        for _ in 0..MOST_GENERATIONS {
            if let Some(known) = self.known.get_mut(&parent) {
                known.told_ended_ns = known
                    .told_ended_ns
                    .saturating_add(ended.own_ns)
                    .saturating_add(ended.stat.ended_children_ns);
                return;
            }
            let Some(next) = gone.get(&parent) else {
                return;
            };
            parent = next.stat.parent;
        }
    }
}

impl Known {
    /// What was not told yet; nothing where nothing passed.
    fn tell(&mut self, pid: i32) -> Option<ProcessTime> {
        let told = ProcessTime {
            space: pid as u32,
            first_ns: self.told_up_to_ns,
            last_ns: self.seen_ns,
            own_ns: self.own_ns.saturating_sub(self.told_own_ns),
            ended_ns: self
                .stat
                .ended_children_ns
                .saturating_sub(self.told_ended_ns),
        };
        self.told_own_ns = self.own_ns;
        self.told_ended_ns = self.told_ended_ns.max(self.stat.ended_children_ns);
        self.told_up_to_ns = self.seen_ns;
        (told.own_ns > 0 || told.ended_ns > 0).then_some(told)
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
            census.look(&pids, false);
            census.known.contains_key(&own)
        };
        assert!(is_read(MOST_TIMED - 1));
        assert!(!is_read(MOST_TIMED));
    }
}
