//! Polls `/proc` for threads and mappings.
//!
//! Used by sources that get no records of them from the kernel (ptrace). Runs on the encoder thread.

use super::census::Census;
use super::scope::Scope;
use super::{maps, stat, threads, tree};
use crate::source::{Observations, Observer};
use std::collections::{BTreeSet, HashSet};
use uprof::cold::{ModuleEvent, ProcessTime, TaskChange, TaskEvent};

/// Most processes whose threads and mappings are read at a time.
const MOST_PROCESSES: usize = 1024;

/// Watches processes and their children.
#[derive(Debug)]
pub struct Watcher {
    scope: Scope,
    /// Processes that are not sampled.
    left_out: BTreeSet<i32>,
    census: Census,
    /// The result of the last poll. Entries that are gone are forgotten, since process ids and addresses are reused.
    last: Sight,
}

/// The result of a poll.
#[derive(Debug, Default)]
struct Sight {
    /// Process, first address, length, file offset, path.
    mappings: HashSet<(i32, u64, u64, u64, String)>,
    names: HashSet<(i32, i32, String)>,
}

impl Watcher {
    /// Watches the processes of `scope` but those of `left_out`.
    pub fn new(scope: Scope, left_out: BTreeSet<i32>) -> Self {
        Watcher {
            scope,
            left_out,
            census: Census::default(),
            last: Sight::default(),
        }
    }

    /// The current processes: those of the target, and descendants of those seen before.
    fn pids(&self) -> Vec<i32> {
        let mut pids = self.scope.pids();
        pids.extend(self.last.names.iter().map(|(pid, _, _)| *pid));
        let mut pids = tree::below(&pids);
        pids.retain(|&pid| !self.left_out.contains(&pid) && stat::of(pid).is_some());
        pids
    }

    fn look_at(&self, pid: i32, now_ns: u64, sight: &mut Sight, seen: &mut Observations) {
        for mapping in maps::executable(pid) {
            let key = (
                pid,
                mapping.start,
                mapping.length,
                mapping.file_offset,
                mapping.path.clone(),
            );
            let known = self.last.mappings.contains(&key);
            if sight.mappings.insert(key) && !known {
                let mapped = ModuleEvent::mapped(now_ns, pid as u32, mapping);
                seen.modules.push(mapped);
            }
        }
        for event in threads::events(pid, now_ns) {
            if let TaskEvent {
                task,
                what: TaskChange::Named(name),
                ..
            } = &event
            {
                let key = (pid, task.vcpu as i32, name.clone());
                let known = self.last.names.contains(&key);
                if sight.names.insert(key) && !known {
                    seen.tasks.push(event);
                }
            }
        }
    }
}

impl Observer for Watcher {
    fn look(&mut self, now_ns: u64) -> Observations {
        let (mut sight, mut seen) = (Sight::default(), Observations::default());
        let pids = self.pids();
        for &pid in pids.iter().take(MOST_PROCESSES) {
            self.look_at(pid, now_ns, &mut sight, &mut seen);
        }
        seen.times = Some(self.census.read(&pids, false));
        self.last = sight;
        seen
    }

    /// What a look saw before may be of the program that replaced another one.
    fn replaced(&mut self, space: u32, _: u64) {
        self.last
            .mappings
            .retain(|(pid, ..)| *pid != space.cast_signed());
    }

    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        let pids = self.pids();
        Some(self.census.read(&pids, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use uprof::cold::ModuleChange;

    /// A look that came before the record of an exec has seen the new program's mappings already.
    #[test]
    fn mappings_of_a_replaced_program_are_told_again() {
        let pid = std::process::id();
        let mut watcher = Watcher::new(Scope::Tree(vec![pid as i32]), BTreeSet::new());
        // Other tests map files and start processes meanwhile.
        let program = std::env::current_exe().unwrap();
        let tells_program = |watcher: &mut Watcher| {
            let seen = watcher.look(0).modules;
            let mut own = seen.iter().filter(|event| event.space == pid);
            own.any(|event| {
                matches!(&event.what, ModuleChange::Mapped(mapping)
                    if Path::new(&mapping.path) == program)
            })
        };
        assert!(tells_program(&mut watcher));
        watcher.replaced(pid + 1, 0);
        assert!(!tells_program(&mut watcher));
        watcher.replaced(pid, 0);
        assert!(tells_program(&mut watcher));
    }

    #[test]
    fn threads_that_have_gone_are_forgotten() {
        let mut watcher = Watcher::new(
            Scope::Tree(vec![std::process::id() as i32]),
            BTreeSet::new(),
        );
        for round in 0..20 {
            let (ready, is_ready) = channel();
            let (end, is_over) = channel::<()>();
            let name = format!("short-{round}");
            let thread = std::thread::Builder::new().name(name.clone());
            let thread = thread.spawn(move || {
                ready.send(()).unwrap();
                let _ = is_over.recv();
            });
            is_ready.recv().unwrap();
            let named = TaskChange::Named(name);
            let told = |seen: Observations| seen.tasks.iter().any(|event| event.what == named);
            assert!(told(watcher.look(0)), "round {round}: it was not told");
            assert!(!told(watcher.look(0)), "round {round}: it was told twice");
            drop(end);
            thread.unwrap().join().unwrap();
        }
        // The kernel may take a moment to forget a thread that was joined.
        std::thread::sleep(std::time::Duration::from_millis(200));
        watcher.look(0);
        let names = watcher.last.names.iter();
        assert_eq!(
            names
                .filter(|(_, _, name)| name.starts_with("short-"))
                .count(),
            0
        );
        assert!(!watcher.last.mappings.is_empty());
    }
}
