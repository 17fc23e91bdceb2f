//! The open calls of all tasks of a trace. Input: the label of a task. Output: its [`OpenCalls`].

use super::{OpenCalls, SpanSink, TaskLabel};
use crate::import::ImportError;
use std::collections::HashMap;

/// Most tasks; calls of further ones are left out.
pub(crate) const TASKS_MAX: usize = 1 << 16;

/// All tasks so far, with their open calls.
#[derive(Default)]
pub(crate) struct Tasks {
    places: HashMap<(u32, u32), usize>,
    calls: Vec<OpenCalls>,
    /// The previous task, because most lines have the same task as the line before.
    last: Option<((u32, u32), usize)>,
}

impl Tasks {
    /// The open calls of a task. If there are too many tasks, reports an error and returns `None`.
    #[inline]
    pub(crate) fn of(
        &mut self,
        label: TaskLabel<'_>,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Option<&mut OpenCalls> {
        let numbers = (label.space, label.number);
        let place = match self.last {
            Some((last, place)) if last == numbers => place,
            _ => self.find(label, line, sink)?,
        };
        self.last = Some((numbers, place));
        self.calls.get_mut(place)
    }

    /// The open calls of a task that the trace only numbers; its name is `kind` and `number`.
    pub(crate) fn numbered(
        &mut self,
        kind: &str,
        number: u32,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Option<&mut OpenCalls> {
        // The name of a known task isn't looked at.
        let name = match self.last {
            Some((last, _)) if last == (0, number) => String::new(),
            _ => format!("{kind} {number}"),
        };
        let label = TaskLabel {
            space: 0,
            number,
            name: name.as_bytes(),
        };
        self.of(label, line, sink)
    }

    fn find(&mut self, label: TaskLabel<'_>, line: u64, sink: &mut dyn SpanSink) -> Option<usize> {
        let numbers = (label.space, label.number);
        if let Some(place) = self.places.get(&numbers) {
            return Some(*place);
        }
        if self.calls.len() >= TASKS_MAX {
            sink.trouble(line, "a call of a further task than 65,536 was left out");
            return None;
        }
        let place = self.calls.len();
        self.calls.push(OpenCalls::new(sink.task(label)));
        self.places.insert(numbers, place);
        Some(place)
    }

    /// Ends the input. Open calls have no end.
    ///
    /// # Errors
    /// The errors of the sink.
    pub(crate) fn finish(&mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.calls
            .iter_mut()
            .try_for_each(|calls| calls.finish(sink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::{NameId, Span, TaskId};

    /// Counts reported errors.
    struct Troubles(u64);

    impl SpanSink for Troubles {
        fn name(&mut self, _: &[u8]) -> NameId {
            NameId(0)
        }

        fn task(&mut self, task: TaskLabel<'_>) -> TaskId {
            TaskId(task.number)
        }

        fn span(&mut self, _: Span) -> Result<(), ImportError> {
            Ok(())
        }

        fn trouble(&mut self, _: u64, _: &str) {
            self.0 += 1;
        }
    }

    #[test]
    fn calls_of_too_many_tasks_are_left_out_and_counted() {
        let mut tasks = Tasks::default();
        let mut sink = Troubles(0);
        for number in 0..TASKS_MAX as u32 + 2 {
            let label = TaskLabel {
                space: 0,
                number,
                name: b"",
            };
            let is_kept = tasks.of(label, 1, &mut sink).is_some();
            assert_eq!(is_kept, number < TASKS_MAX as u32);
        }
        assert_eq!(sink.0, 2);
    }
}
