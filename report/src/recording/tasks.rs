//! Names of vCPUs and threads, which may change while a recording runs.

use std::collections::BTreeMap;
use uprof::Task;
use uprof::cold::{TaskChange, TaskEvent};

/// The names of tasks, each with its time.
#[derive(Debug, Default)]
pub(crate) struct TaskNames {
    names: BTreeMap<Task, Vec<(u64, String)>>,
    ended: BTreeMap<Task, u64>,
}

impl TaskNames {
    /// Sorts the task events of a recording.
    pub(crate) fn new(mut events: Vec<TaskEvent>) -> Self {
        events.sort_by_key(|event| event.time_ns);
        let mut found = TaskNames::default();
        for event in events {
            match event.what {
                TaskChange::Named(name) => {
                    // Its number is used again, as by a thread that executes another program.
                    found.ended.remove(&event.task);
                    let names = found.names.entry(event.task).or_default();
                    names.push((event.time_ns, name));
                }
                TaskChange::Ended => {
                    found.ended.insert(event.task, event.time_ns);
                }
            }
        }
        found
    }

    /// The name that `task` had at `time_ns`; before its first name is known, that one.
    pub(crate) fn name_at(&self, task: Task, time_ns: u64) -> Option<&str> {
        let names = self.names.get(&task)?;
        let after = names.partition_point(|(since_ns, _)| *since_ns <= time_ns);
        let (_, name) = names.get(after.saturating_sub(1))?;
        Some(name)
    }

    /// The last name of `task`.
    pub(crate) fn last_name(&self, task: Task) -> Option<&str> {
        self.name_at(task, u64::MAX)
    }

    /// The time at which `task` got its first name.
    pub(crate) fn since_ns(&self, task: Task) -> Option<u64> {
        self.names
            .get(&task)?
            .first()
            .map(|(since_ns, _)| *since_ns)
    }

    /// The time at which `task` ended; `None` if it didn't.
    pub(crate) fn ended_ns(&self, task: Task) -> Option<u64> {
        self.ended.get(&task).copied()
    }

    /// All named tasks, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Task> + '_ {
        self.names.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_from_its_event_on() {
        let task = Task { space: 1, vcpu: 2 };
        let named = |time_ns, name: &str| TaskEvent {
            time_ns,
            task,
            what: TaskChange::Named(name.into()),
        };
        let names = TaskNames::new(vec![named(20, "xz"), named(10, "sh")]);
        assert_eq!(names.name_at(task, 5), Some("sh"));
        assert_eq!(names.name_at(task, 19), Some("sh"));
        assert_eq!(names.name_at(task, 20), Some("xz"));
        assert_eq!(names.name_at(Task { space: 1, vcpu: 3 }, 20), None);
    }
}
