//! What exists when a flight recorder's window begins: vCPUs or threads with their names, mappings, address spaces.
//!
//! Input: the records of segments that leave the window. Output: records that say the same about what still exists.
//! Memory is bounded by the number of things that exist, not by the length of the recording.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use uprof::cold::{
    Mapping, ModuleChange, ModuleEvent, SpaceEvent, TaskChange, TaskEvent, space_of_guest,
    space_of_root,
};
use uprof::{Task, Writer};

/// Most mappings that are carried into the window.
const MOST_MAPPINGS: usize = 1 << 18;
/// Most vCPUs or threads, and most address spaces of a guest.
pub(super) const MOST_TASKS: usize = 1 << 18;

/// Most processes that have ended whose events may still come: files are read that they had mapped.
const MOST_ENDED: usize = 1 << 16;

/// Processes, and boots of a guest, that have ended, since their events may come after that.
#[derive(Default)]
pub struct EndedSpaces(HashMap<u32, u64>);

impl EndedSpaces {
    /// Adds one that ended at `time_ns`.
    pub fn add(&mut self, space: u32, time_ns: u64) {
        if self.0.len() == MOST_ENDED {
            // Most of them ended long ago.
            self.0.clear();
        }
        self.0.insert(space, time_ns);
    }

    /// Whether `space` had ended when something happened in it, or with `None`, has ended. Otherwise its number is used
    /// again.
    pub fn have(&mut self, space: u32, time_ns: Option<u64>) -> bool {
        let Some(ended_ns) = self.0.get(&space) else {
            return false;
        };
        let has_ended = time_ns.is_none_or(|time_ns| time_ns <= *ended_ns);
        if !has_ended {
            self.0.remove(&space);
        }
        has_ended
    }
}

/// Records of what exists from a time on.
#[derive(Debug, Clone)]
pub enum Change {
    /// Starts, names and ends of vCPUs or threads.
    Tasks(Vec<TaskEvent>),
    /// Changes of address spaces.
    Modules(Vec<ModuleEvent>),
    /// Address spaces of a guest.
    Spaces(Vec<SpaceEvent>),
}

/// The mappings of an address space, by their first address.
type Mappings = BTreeMap<u64, (u64, Mapping)>;

/// What exists.
#[derive(Default)]
pub struct TargetState {
    is_guest: bool,
    tasks: HashMap<Task, TaskEvent>,
    /// The number of tasks of each address space.
    task_counts: HashMap<u32, usize>,
    mappings: BTreeMap<u32, Mappings>,
    mapping_count: usize,
    spaces: BTreeMap<u32, SpaceEvent>,
    ended: EndedSpaces,
}

impl TargetState {
    /// Nothing is known to exist of a guest, or of processes.
    pub fn new(is_guest: bool) -> Self {
        TargetState {
            is_guest,
            ..TargetState::default()
        }
    }

    /// Takes in records.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Tasks(events) => events.into_iter().for_each(|event| self.task(event)),
            Change::Modules(events) => events.into_iter().for_each(|event| self.module(event)),
            Change::Spaces(events) => {
                for event in events {
                    if self.spaces.len() < MOST_TASKS {
                        self.spaces.insert(event.space, event);
                    }
                }
            }
        }
    }

    fn task(&mut self, event: TaskEvent) {
        let task = event.task;
        match event.what {
            TaskChange::Named(_) if self.tasks.len() < MOST_TASKS => {
                if self.tasks.insert(task, event).is_none() {
                    *self.task_counts.entry(task.space).or_default() += 1;
                }
            }
            TaskChange::Named(_) => {}
            TaskChange::Ended => {
                let was_named = self.tasks.remove(&task).is_some();
                if was_named && let Some(count) = self.task_counts.get_mut(&task.space) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.task_counts.remove(&task.space);
                    }
                }
                // A child that never ran another program has no name of its own.
                let is_process = !self.is_guest && task.vcpu == task.space;
                if (was_named || is_process) && !self.task_counts.contains_key(&task.space) {
                    self.forget(task.space);
                    self.ended.add(task.space, event.time_ns);
                }
            }
        }
    }

    /// Forgets a process, or a boot of a guest with its page tables.
    fn forget(&mut self, space: u32) {
        self.clear(space);
        if !self.is_guest {
            return self.clear(space_of_guest(space));
        }
        let of_boot = |(number, event): (&u32, &SpaceEvent)| {
            (space_of_root(space, event.root) == *number).then_some(*number)
        };
        let gone: Vec<u32> = self.spaces.iter().filter_map(of_boot).collect();
        for number in gone {
            self.spaces.remove(&number);
            self.clear(number);
        }
    }

    fn clear(&mut self, space: u32) {
        let cleared = self.mappings.remove(&space).map_or(0, |all| all.len());
        self.mapping_count -= cleared;
    }

    fn module(&mut self, event: ModuleEvent) {
        let space = event.space;
        if self.ended.have(space, Some(event.time_ns)) {
            return;
        }
        match event.what {
            ModuleChange::Mapped(mapping) => self.map(space, event.time_ns, mapping),
            ModuleChange::Cleared => self.clear(space),
            ModuleChange::CopiedFrom(parent) => {
                self.clear(space);
                let copied = self.mappings.get(&parent).cloned().unwrap_or_default();
                if self.mapping_count + copied.len() <= MOST_MAPPINGS {
                    self.mapping_count += copied.len();
                    self.mappings.insert(space, copied);
                }
            }
        }
    }

    fn map(&mut self, space: u32, time_ns: u64, new: Mapping) {
        let all = self.mappings.entry(space).or_default();
        let before = all.len();
        let end = new.start.saturating_add(new.length);
        let covered: Vec<u64> = all.range(new.start..end).map(|(start, _)| *start).collect();
        for start in covered {
            let Some((since_ns, mut old)) = all.remove(&start) else {
                continue;
            };
            // What is behind the new mapping stays.
            let cut = end - start;
            if old.length > cut {
                old.start = end;
                old.length -= cut;
                old.file_offset = old.file_offset.wrapping_add(cut);
                // A newer mapping may begin there already.
                all.entry(end).or_insert((since_ns, old));
            }
        }
        // A mapping that begins before the new one is replaced where both are: the newer one counts.
        if self.mapping_count < MOST_MAPPINGS {
            all.insert(new.start, (time_ns, new));
        }
        self.mapping_count = self.mapping_count - before + all.len();
    }

    /// Writes what exists.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write<W: Write>(&self, writer: &mut Writer<W>) -> io::Result<()> {
        let mut tasks: Vec<TaskEvent> = self.tasks.values().cloned().collect();
        tasks.sort_by_key(|event| (event.time_ns, event.task.space, event.task.vcpu));
        writer.tasks(&tasks)?;
        for (&space, mappings) in &self.mappings {
            let events = mappings.values().map(|(time_ns, mapping)| ModuleEvent {
                time_ns: *time_ns,
                space,
                what: ModuleChange::Mapped(mapping.clone()),
            });
            let mut events: Vec<ModuleEvent> = events.collect();
            events.sort_by_key(|event| event.time_ns);
            writer.modules(&events)?;
        }
        let spaces: Vec<SpaceEvent> = self.spaces.values().cloned().collect();
        writer.spaces(&spaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cold::GUEST_PATH;

    fn mapped(time_ns: u64, space: u32, start: u64, length: u64, path: &str) -> ModuleEvent {
        let what = ModuleChange::Mapped(Mapping {
            start,
            length,
            path: path.into(),
            ..Mapping::default()
        });
        ModuleEvent {
            time_ns,
            space,
            what,
        }
    }

    fn named(space: u32, vcpu: u32, name: &str) -> TaskEvent {
        TaskEvent {
            time_ns: 1,
            task: Task { space, vcpu },
            what: TaskChange::Named(name.into()),
        }
    }

    fn paths(state: &TargetState, space: u32) -> Vec<(u64, u64, u64, &str)> {
        let all = state.mappings.get(&space).into_iter().flatten();
        all.map(|(start, (_, it))| (*start, it.length, it.file_offset, it.path.as_str()))
            .collect()
    }

    #[test]
    fn newer_mappings_replace_older_ones_where_both_are() {
        let mut state = TargetState::new(false);
        let events = vec![
            mapped(1, 7, 0x1000, 0x4000, "old"),
            mapped(2, 7, 0x1000, 0x1000, "new"),
            mapped(3, 7, 0x1000, 0x1000, "new"),
        ];
        state.apply(Change::Modules(events));
        assert_eq!(
            paths(&state, 7),
            [(0x1000, 0x1000, 0, "new"), (0x2000, 0x3000, 0x1000, "old"),]
        );
        assert_eq!(state.mapping_count, 2);
    }

    #[test]
    fn a_process_that_ended_leaves_nothing() {
        let mut state = TargetState::new(false);
        for pid in 1..2000 {
            state.apply(Change::Modules(vec![
                mapped(1, space_of_guest(pid), 0, u64::MAX, GUEST_PATH),
                mapped(1, pid, 0x1000, 0x1000, "program"),
                ModuleEvent {
                    time_ns: 2,
                    space: pid + 1,
                    what: ModuleChange::CopiedFrom(pid),
                },
            ]));
            let ended = TaskEvent {
                what: TaskChange::Ended,
                ..named(pid, pid, "")
            };
            let ended = TaskEvent {
                time_ns: 3,
                ..ended
            };
            // A child that runs no other program has no name of its own.
            let tasks = if pid % 2 == 0 {
                vec![named(pid, pid, "sh"), ended]
            } else {
                vec![ended]
            };
            state.apply(Change::Tasks(tasks));
            // Its files were read later.
            let late = mapped(3, pid, 0x5000, 0x1000, "library");
            state.apply(Change::Modules(vec![late]));
            assert_eq!(paths(&state, pid + 1).len(), 1, "the copy");
        }
        assert_eq!((state.tasks.len(), state.mapping_count), (0, 1));
        assert!(state.task_counts.is_empty());
        // A process of the same number is another one.
        state.apply(Change::Modules(vec![mapped(4, 7, 0, 0x1000, "other")]));
        assert_eq!(paths(&state, 7).len(), 1);
    }

    #[test]
    fn ended_processes_are_forgotten_after_a_while() {
        let mut ended = EndedSpaces::default();
        for number in 0..1_000_000 {
            ended.add(number, u64::from(number));
        }
        assert!(ended.0.len() <= MOST_ENDED);
        assert!(ended.have(999_999, None) && !ended.have(7, None));
    }
}
