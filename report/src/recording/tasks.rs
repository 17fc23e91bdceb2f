//! Names of vCPUs and threads, which may change while a recording runs.

use std::collections::BTreeMap;
use uprof::Task;
use uprof::cold::{TaskChange, TaskEvent};

/// The names of tasks, each with its time.
#[derive(Debug, Default)]
pub(crate) struct TaskNames {
    names: BTreeMap<Task, Vec<(u64, String)>>,
    /// When each ended: its number may be used again.
    ends: BTreeMap<Task, Vec<u64>>,
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
                    let ends = found.ends.entry(event.task).or_default();
                    ends.push(event.time_ns);
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

    /// As [`TaskNames::name_at`], of one that began at `began_ns` or later: neither a name that its number had before,
    /// nor one that it has when it is used again.
    pub(crate) fn name_since(&self, task: Task, began_ns: u64, time_ns: u64) -> Option<&str> {
        let names = self.names.get(&task)?;
        let after = names.partition_point(|(since_ns, _)| *since_ns <= time_ns);
        let known = after.checked_sub(1).and_then(|last| names.get(last));
        if let Some((_, name)) = known.filter(|(since_ns, _)| *since_ns >= began_ns) {
            return Some(name);
        }
        let (next_ns, name) = names.get(after)?;
        (self.end_before(task, *next_ns) <= Some(time_ns)).then_some(name)
    }

    /// When `task` last ended, up to `time_ns`.
    pub(crate) fn end_before(&self, task: Task, time_ns: u64) -> Option<u64> {
        let ends = self.ends.get(&task)?;
        let after = ends.partition_point(|end_ns| *end_ns <= time_ns);
        ends.get(after.checked_sub(1)?).copied()
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

    #[test]
    fn a_number_that_is_used_again_has_no_name_of_before() {
        let task = Task { space: 1, vcpu: 2 };
        let event = |time_ns, what| TaskEvent {
            time_ns,
            task,
            what,
        };
        let named = |name: &str| TaskChange::Named(name.into());
        let names = TaskNames::new(vec![
            event(10, named("one")),
            event(20, TaskChange::Ended),
            event(40, TaskChange::Ended),
            event(60, named("three")),
        ]);
        let of = |began_ns, time_ns| names.name_since(task, began_ns, time_ns);
        assert_eq!([of(0, 5), of(0, 15)], [Some("one"); 2]);
        assert_eq!(of(30, 35), None, "the second has none");
        assert_eq!([of(50, 55), of(50, 65)], [Some("three"); 2]);
        assert_eq!(names.end_before(task, 19), None);
        assert_eq!(names.end_before(task, 50), Some(40));
    }
}
