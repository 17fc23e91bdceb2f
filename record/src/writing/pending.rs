//! Records that wait for the next block.
//!
//! Input: the notes of the ring, and the reports of the observer and the namer. Output: a block's cold records, in the
//! order in which a reader needs them.

use super::target_state::MOST_TASKS;
use std::collections::HashMap;
use std::io::{self, Write};
use uprof::cold::{
    ClockPair, Code, Exits, HandledExit, Loss, ModuleEvent, ProcessTime, SpaceEvent, TaskChange,
    TaskEvent, VcpuTime,
};
use uprof::{ImagePart, Task, Writer};

/// Records by kind.
#[derive(Default)]
pub struct Pending {
    pub tasks: Vec<TaskEvent>,
    pub modules: Vec<ModuleEvent>,
    pub spaces: Vec<SpaceEvent>,
    pub losses: Vec<Loss>,
    pub times: Vec<ProcessTime>,
    pub vcpu_times: Vec<VcpuTime>,
    pub exits: Vec<Exits>,
    pub handled: Vec<HandledExit>,
    pub clocks: Vec<ClockPair>,
    pub parts: Vec<ImagePart>,
    /// The names of threads that aren't the first of their process.
    thread_names: HashMap<Task, TaskEvent>,
}

impl Pending {
    /// Adds a change of a task.
    pub fn add_task(&mut self, event: TaskEvent) {
        let task = event.task;
        if task.vcpu != task.space {
            if event.what == TaskChange::Ended {
                self.thread_names.remove(&task);
            } else if self.thread_names.len() < MOST_TASKS {
                self.thread_names.insert(task, event.clone());
            }
        }
        self.tasks.push(event);
    }

    /// Adds changes of tasks.
    pub fn add_tasks(&mut self, events: impl IntoIterator<Item = TaskEvent>) {
        events.into_iter().for_each(|event| self.add_task(event));
    }

    /// Adds a task that `starter` started, another thread than the first of its process: the task has that one's name.
    pub fn add_started(&mut self, time_ns: u64, task: Task, starter: Task) {
        if let Some(known) = self.thread_names.get(&starter) {
            self.add_task(TaskEvent {
                time_ns,
                task,
                ..known.clone()
            });
        }
    }

    /// Writes all records but tables and code.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_events<W: Write>(&self, writer: &mut Writer<W>) -> io::Result<()> {
        writer.tasks(&self.tasks)?;
        writer.modules(&self.modules)?;
        writer.losses(&self.losses)?;
        writer.times(&self.times)?;
        writer.vcpu_times(&self.vcpu_times)?;
        writer.exits(&self.exits)?;
        writer.handled(&self.handled)?;
        writer.clocks(&self.clocks)?;
        writer.spaces(&self.spaces)
    }

    /// Writes tables of images, and `code` of the guest.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_tables<W: Write>(
        &self,
        writer: &mut Writer<W>,
        code: &[Code],
        now_ns: u64,
    ) -> io::Result<()> {
        writer.code(code)?;
        for part in &self.parts {
            writer.image_part(part, now_ns)?;
        }
        Ok(())
    }

    /// Forgets all records, which are written. Their memory serves the next block.
    pub fn clear(&mut self) {
        self.tasks.clear();
        self.modules.clear();
        self.spaces.clear();
        self.losses.clear();
        self.times.clear();
        self.vcpu_times.clear();
        self.exits.clear();
        self.handled.clear();
        self.clocks.clear();
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_named_thread_starts_has_its_name() {
        let mut pending = Pending::default();
        let [first, named, worker] = [7, 8, 9].map(|vcpu| Task { space: 7, vcpu });
        let child = Task {
            space: 20,
            vcpu: 20,
        };
        pending.add_task(TaskEvent::named(1, first, "app".into()));
        pending.add_task(TaskEvent::named(2, named, "pool".into()));
        pending.clear();
        pending.add_started(3, worker, named);
        pending.add_started(4, child, worker);
        let ended = TaskEvent {
            time_ns: 5,
            task: named,
            what: TaskChange::Ended,
        };
        pending.add_task(ended.clone());
        pending.add_started(6, named, named);
        let pool = |time_ns, task| TaskEvent::named(time_ns, task, "pool".into());
        assert_eq!(pending.tasks, [pool(3, worker), pool(4, child), ended]);
    }
}
