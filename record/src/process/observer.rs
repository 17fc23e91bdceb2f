//! Observes processes that are recorded with perf events: reads their processor time, and finds processes without a
//! record. Runs on the encoder thread.

use super::census::Census;
use super::members::Members;
use super::scope::Scope;
use super::{stat, threads, tree};
use crate::source::{Observations, Observer};
use uprof::cold::ProcessTime;

/// Time between two readings of all clocks.
const CENSUS_NS: u64 = 1_000_000_000;

/// Watches the processes of a target.
#[derive(Debug)]
pub struct ProcessObserver {
    scope: Scope,
    members: Members,
    census: Census,
    counted_ns: Option<u64>,
}

impl ProcessObserver {
    /// Watches the processes of `scope`, of which `members` are known.
    pub fn new(scope: Scope, members: Members) -> Self {
        ProcessObserver {
            scope,
            members,
            census: Census::default(),
            counted_ns: None,
        }
    }

    fn alive(&self) -> Vec<i32> {
        self.members.alive().map(|pid| pid as i32).collect()
    }

    /// Finds processes without a record, and reports their threads and mappings.
    fn find(&self, now_ns: u64, seen: &mut Observations) {
        let pids = match &self.scope {
            // The processes that started it may have ended.
            Scope::Tree(_) => tree::below(&self.alive()),
            scope => scope.pids(),
        };
        for pid in pids {
            if self.members.add(pid as u32) {
                seen.tasks.extend(threads::events(pid, now_ns));
                seen.modules.extend(threads::module_events(pid, now_ns));
            }
        }
    }
}

impl Observer for ProcessObserver {
    fn look(&mut self, now_ns: u64) -> Observations {
        let mut seen = Observations::default();
        if self.members.take_unsure() || self.scope.takes_in() {
            self.find(now_ns, &mut seen);
        }
        let due = |counted_ns: u64| now_ns.saturating_sub(counted_ns) >= CENSUS_NS;
        if self.counted_ns.is_none_or(due) {
            self.counted_ns = Some(now_ns);
            seen.times = self.count(false);
        }
        seen
    }

    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        let pids = self.alive();
        let times = self.census.read(&pids, last);
        for pid in pids {
            if stat::of(pid).is_none() {
                self.members.ended(pid as u32);
            }
        }
        Some(times)
    }
}
