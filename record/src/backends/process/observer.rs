//! Observes processes that are recorded with perf events: reads their processor time, finds processes without a
//! record, and reads what lost records may have told of the others. Runs on the encoder thread.

use super::census::Census;
use super::members::Members;
use super::scope::Scope;
use super::{stat, threads, tree};
use crate::source::{Observations, Observer};
use crate::sys::clock::{boot_ns, monotonic_ns};
use std::hash::{DefaultHasher, Hasher};
use uprof::cold::{ModuleChange, ModuleEvent, ProcessTime, TaskChange, TaskEvent};

/// Time between two readings of all clocks.
const CENSUS_NS: u64 = 1_000_000_000;
/// Time between two searches for processes that join without a record.
const FIND_NS: u64 = 300_000_000;
/// Longest reading of known processes at a time, and the pause after it, in times of what it took: records may be lost
/// all the time.
const READING_NS: u64 = 20_000_000;
const PAUSE: u64 = 20;
/// Age at which the record of a process's fork has come.
const TOLD_AGE_NS: u64 = 1_000_000_000;

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
    /// When processes that join were searched.
    found_ns: u64,
    /// The last ones, in order of process ids.
    readings: Vec<(i32, Reading)>,
    /// The processes that may have changed without a record.
    unsure: Vec<i32>,
    /// Since when they may, unless it is since a later exec.
    lost_since_ns: u64,
    /// When processes may be read again.
    rested_ns: u64,
}

/// The last reading of a process from `/proc`, or since when it is known to run another program.
#[derive(Debug, Default, Clone, Copy)]
struct Reading {
    /// Since when it has its mappings.
    since_ns: u64,
    /// When it was read last.
    read_ns: u64,
    /// Hashes of the threads and of the mappings that were read.
    hashes: [u64; 2],
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
            found_ns: 0,
            readings: Vec::new(),
            unsure: Vec::new(),
            lost_since_ns: 0,
            rested_ns: 0,
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
    fn find(&mut self, now_ns: u64, seen: &mut Observations) {
        if let (Scope::Cgroup(cgroup), true) = (&self.scope, self.sees_all)
            && self.forget_who_left(|| cgroup.pids())
            && let Some(census) = &mut self.census
        {
            census.leave_out_children();
        }
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
                self.read(pid, first_told_ns(pid, now_ns), seen);
            }
        }
    }

    /// Forgets members that are in another control group now, which no record tells; returns whether there are any.
    /// `group` lists those that are in it.
    fn forget_who_left(&self, group: impl FnOnce() -> Vec<i32>) -> bool {
        // Listed first: a process that a member starts now is in the group.
        let members = self.alive();
        let mut group = group();
        group.sort_unstable();
        // The last records of one that has ended are still to come.
        let has_left = |pid: &i32| group.binary_search(pid).is_err() && stat::is_running(*pid);
        let left: Vec<i32> = members.into_iter().filter(has_left).collect();
        left.iter().for_each(|pid| self.members.remove(*pid as u32));
        !left.is_empty()
    }

    /// Reads processes that may have changed without a record, the newest first, and tells of those that have. As
    /// nobody knows when they did, it is told of the time since which records are lost: what a program has mapped
    /// before it did is seldom in the way of samples, but samples without a mapping have no names.
    fn read_again(&mut self, seen: &mut Observations) {
        // One round after the other, so that all get their turn where records are lost all the time.
        if self.unsure.is_empty()
            && let Some(since_ns) = self.members.take_lost_since()
        {
            self.lost_since_ns = since_ns;
            self.unsure = self.alive();
        }
        let began_ns = monotonic_ns();
        if began_ns < self.rested_ns {
            return;
        }
        let mut now_ns = began_ns;
        while now_ns - began_ns < READING_NS
            && let Some(pid) = self.unsure.pop()
        {
            self.read(pid, self.lost_since_ns, seen);
            now_ns = monotonic_ns();
        }
        if self.unsure.is_empty() {
            self.lost_since_ns = 0;
        }
        self.rested_ns = now_ns + PAUSE * (now_ns - began_ns);
    }

    /// Reads a process, and tells what has changed since it was read last, as of `since_ns` or of when it began to run
    /// its program.
    fn read(&mut self, pid: i32, since_ns: u64, seen: &mut Observations) {
        let reading = self.reading(pid);
        let read_ns = monotonic_ns();
        let at_ns = since_ns.max(reading.since_ns);
        let tasks = threads::events(pid, at_ns);
        let modules = threads::module_events(pid, at_ns);
        let hashes = [hash_of_tasks(&tasks), hash_of_modules(&modules)];
        // One that has ended has neither.
        if tasks.is_empty() {
            return;
        }
        if hashes[0] != reading.hashes[0] {
            seen.tasks.extend(tasks);
        }
        if hashes[1] != reading.hashes[1] {
            seen.modules.extend(modules);
        }
        (reading.read_ns, reading.hashes) = (read_ns, hashes);
    }

    fn reading(&mut self, pid: i32) -> &mut Reading {
        let found = self.readings.binary_search_by_key(&pid, |(pid, _)| *pid);
        let at = found.unwrap_or_else(|at| {
            self.readings.insert(at, (pid, Reading::default()));
            at
        });
        &mut self.readings[at].1
    }
}

/// The time of which a process is told that was found at `now_ns`. Of a young one, that is before the record of its
/// fork, which may not have come yet, and after which everything is as it was in its parent.
fn first_told_ns(pid: i32, now_ns: u64) -> u64 {
    let asleep_ns = boot_ns().saturating_sub(monotonic_ns());
    let started_ns = stat::of(pid).map_or(0, |stat| stat.started_ns.saturating_sub(asleep_ns));
    if started_ns + TOLD_AGE_NS < now_ns {
        now_ns
    } else {
        started_ns.min(now_ns)
    }
}

fn hash_of_tasks(tasks: &[TaskEvent]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for event in tasks {
        if let TaskChange::Named(name) = &event.what {
            hasher.write_u32(event.task.vcpu);
            hasher.write(name.as_bytes());
        }
    }
    hasher.finish()
}

fn hash_of_modules(modules: &[ModuleEvent]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for event in modules {
        if let ModuleChange::Mapped(mapping) = &event.what {
            hasher.write_u64(mapping.start);
            hasher.write_u64(mapping.length);
            hasher.write_u64(mapping.file_offset);
            hasher.write(mapping.path.as_bytes());
        }
    }
    hasher.finish()
}

impl Observer for ProcessObserver {
    fn look(&mut self, now_ns: u64) -> Observations {
        let mut seen = Observations::default();
        // Names come from records, and joining a control group causes none.
        let joins = self.sees_all && matches!(self.scope, Scope::Cgroup(_));
        let is_due = joins && now_ns.saturating_sub(self.found_ns) >= FIND_NS;
        if self.members.take_unsure() || is_due {
            self.found_ns = now_ns;
            self.find(now_ns, &mut seen);
        }
        self.read_again(&mut seen);
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
        let members = &self.members;
        self.readings
            .retain(|(pid, _)| members.is_alive(*pid as u32));
        times
    }

    fn replaced(&mut self, space: u32, time_ns: u64) {
        let pid = space.cast_signed();
        if !self.members.is_alive(space) {
            return;
        }
        let reading = Reading {
            since_ns: time_ns,
            ..Reading::default()
        };
        // What was read after this record, which is told only now, was told of the time before it.
        let known = std::mem::replace(self.reading(pid), reading);
        if known.read_ns >= time_ns {
            self.unsure.push(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::process::maps;
    use std::process::{Child, Command};
    use std::time::Duration;

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> (Self, i32) {
            let child = Command::new("sleep").arg("600").spawn().unwrap();
            let pid = child.id() as i32;
            // Its loader has mapped everything once it sleeps.
            let sleeps = || stat::of(pid).is_some_and(|stat| stat.state == b'S');
            while threads::name(pid, pid) != "sleep" || maps::executable(pid).len() < 4 || !sleeps()
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            (Sleeper(child), pid)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn observer(pid: i32) -> ProcessObserver {
        let members = Members::new(false);
        members.add(pid as u32);
        ProcessObserver::new(Scope::Tree(vec![pid]), members, true)
    }

    #[test]
    fn members_that_left_the_group_are_forgotten() {
        let [(_one, stays), (_other, leaves)] = [Sleeper::new(), Sleeper::new()];
        let observer = observer(stays);
        // Above what this machine gives out.
        let ended = (1 << 22) - 1;
        for pid in [leaves, ended] {
            observer.members.add(pid as u32);
        }
        assert!(observer.forget_who_left(|| vec![leaves + 1, stays]));
        assert!(!observer.forget_who_left(|| vec![stays]));
        let wants = [stays, leaves, ended].map(|pid| observer.members.wants(pid as u32));
        assert_eq!(wants, [true, false, true]);
    }

    /// The times at which the program of process `pid` was told to be mapped.
    fn told(observer: &mut ProcessObserver) -> Vec<u64> {
        let seen = observer.look(monotonic_ns());
        let named = seen.tasks.iter().map(|event| event.time_ns);
        let named: Vec<u64> = named.collect();
        let mapped = seen.modules.iter().filter(|event| {
            matches!(&event.what, ModuleChange::Mapped(mapping) if mapping.path.ends_with("/sleep"))
        });
        let mapped: Vec<u64> = mapped.map(|event| event.time_ns).collect();
        assert_eq!(named, mapped);
        mapped
    }

    #[test]
    fn known_processes_are_read_again_when_records_were_lost() {
        let (_sleeper, pid) = Sleeper::new();
        let mut observer = observer(pid);
        assert!(told(&mut observer).is_empty());
        observer.members.lost_records(70);
        observer.members.lost_records(90);
        assert_eq!(told(&mut observer), [70]);
        observer.rested_ns = 0;
        observer.members.lost_records(100);
        assert!(told(&mut observer).is_empty(), "nothing has changed");
        // Its record of exec comes only now, and ends what was told of it as of before.
        observer.replaced(pid as u32, 80);
        observer.rested_ns = 0;
        assert_eq!(told(&mut observer), [80]);
        // It runs the program since then, whenever records were lost.
        observer.reading(pid).hashes = [0; 2];
        observer.members.lost_records(50);
        observer.rested_ns = 0;
        assert_eq!(told(&mut observer), [80]);
    }

    #[test]
    fn records_that_are_lost_all_the_time_cost_little() {
        let (_sleeper, pid) = Sleeper::new();
        let mut observer = observer(pid);
        observer.members.lost_records(70);
        assert_eq!(told(&mut observer), [70]);
        observer.rested_ns = u64::MAX;
        observer.readings.clear();
        observer.members.lost_records(80);
        observer.members.lost_records(90);
        assert!(told(&mut observer).is_empty());
        // This one comes while the processes of those before are not read yet.
        observer.members.lost_records(100);
        assert!(told(&mut observer).is_empty());
        observer.rested_ns = 0;
        assert_eq!(told(&mut observer), [80]);
        observer.rested_ns = 0;
        observer.readings.clear();
        assert_eq!(told(&mut observer), [100]);
    }
}
