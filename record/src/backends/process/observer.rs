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
    /// Whether processes that join are watched.
    sees_all: bool,
    /// `None` if processor time is not counted.
    census: Option<Census>,
    counted_ns: Option<u64>,
}

impl ProcessObserver {
    /// Watches the processes of `scope`. `members` are those known so far. With `sees_all`, processes that join are
    /// watched, too.
    pub fn new(scope: Scope, members: Members, sees_all: bool) -> Self {
        ProcessObserver {
            scope,
            members,
            sees_all,
            census: Some(Census::default()),
            counted_ns: None,
        }
    }

    /// Does not count processor time: that of a monitor has its guests' in it, of which there are no samples.
    #[must_use]
    pub fn without_times(self) -> Self {
        ProcessObserver {
            census: None,
            ..self
        }
    }

    fn alive(&self) -> Vec<i32> {
        self.members.alive().map(|pid| pid as i32).collect()
    }

    /// Finds processes without a record, and reports their threads and mappings.
    fn find(&self, now_ns: u64, seen: &mut Observations) {
        // A process's starter may have ended, so all known members are searched.
        let mut pids = match &self.scope {
            Scope::Tree(_) | Scope::Named(..) => tree::below(&self.alive()),
            _ if !self.sees_all => tree::below(&self.alive()),
            scope => scope.pids(),
        };
        if let (Scope::Named(..), true) = (&self.scope, self.sees_all) {
            pids.extend(self.scope.pids());
        }
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
        // Names come from records, and joining a control group causes none.
        let joins = self.sees_all && matches!(self.scope, Scope::Cgroup(_));
        if self.members.take_unsure() || joins {
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
        let times = self.census.as_mut().map(|census| census.read(&pids, last));
        for pid in pids {
            if stat::of(pid).is_none() {
                self.members.ended(pid as u32);
            }
        }
        times
    }
}
