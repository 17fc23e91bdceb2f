//! Looks at `/proc` now and then for threads and mappings that a sample does not show.
//!
//! For sources to which the kernel does not tell of them (ptrace). Runs on the encoder thread.

use super::{maps, threads};
use crate::source::{Observations, Observer};
use std::collections::HashSet;
use uprof::cold::{ModuleChange, ModuleEvent, TaskChange, TaskEvent};

/// Most processes followed from the first one down.
const MOST_PROCESSES: usize = 1024;

/// Watches a process and its children.
#[derive(Debug)]
pub struct Watcher {
    pid: i32,
    /// Space, first address, length, file offset, path.
    mappings: HashSet<(i32, u64, u64, u64, String)>,
    names: HashSet<(i32, i32, String)>,
}

impl Watcher {
    /// Watches process `pid`.
    pub fn new(pid: i32) -> Self {
        Watcher {
            pid,
            mappings: HashSet::new(),
            names: HashSet::new(),
        }
    }

    fn look_at(&mut self, pid: i32, now_ns: u64, seen: &mut Observations) {
        for mapping in maps::executable(pid) {
            let key = (
                pid,
                mapping.start,
                mapping.length,
                mapping.file_offset,
                mapping.path.clone(),
            );
            if self.mappings.insert(key) {
                let what = ModuleChange::Mapped(mapping);
                seen.modules.push(ModuleEvent {
                    time_ns: now_ns,
                    space: pid as u32,
                    what,
                });
            }
        }
        for event in threads::events(pid, now_ns) {
            if let TaskEvent {
                task,
                what: TaskChange::Named(name),
                ..
            } = &event
                && self.names.insert((pid, task.vcpu as i32, name.clone()))
            {
                seen.tasks.push(event);
            }
        }
    }
}

impl Observer for Watcher {
    fn look(&mut self, now_ns: u64) -> Observations {
        let mut seen = Observations::default();
        let mut pids = vec![self.pid];
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            self.look_at(pid, now_ns, &mut seen);
            if pids.len() < MOST_PROCESSES {
                let children = threads::children(pid);
                pids.extend(children.into_iter().filter(|child| *child != pid));
            }
            next += 1;
        }
        seen
    }
}
