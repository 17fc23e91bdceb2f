//! Traces. Input: a log of calls. Output: spans. [`SpanSink`] is the interface between them: readers of
//! formats don't depend on recordings, and the writer of a recording doesn't depend on formats.
//!
//! A reader keeps only open calls in memory, however long its input is. A span is emitted when it ends, so a
//! call comes after the calls inside it. Depths give the tree.

mod decimal;
mod event_line;
mod json_objects;
mod lines;
mod open_calls;
mod tasks;
pub(crate) mod function_graph;
pub(crate) mod linux_graph;
pub(crate) mod chrome;
pub(crate) mod function_tracer;
pub(crate) mod osv;
pub(crate) mod syscall_log;
pub(crate) mod uftrace;

pub use lines::{Line, Lines};
pub use open_calls::{Entry, Exit, OpenCalls};
pub(crate) use tasks::Tasks;

pub use uprof::SpanKind;

use crate::import::ImportError;

/// Number of a function's name, from [`SpanSink::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Number of a vCPU or thread, from [`SpanSink::task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// A vCPU, or a thread if the trace has threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabel<'a> {
    /// Number of the process; 0 if the trace has none.
    pub space: u32,
    /// Number of the thread or vCPU.
    pub number: u32,
    /// Name, in any encoding; empty if it has only numbers.
    pub name: &'a [u8],
}

/// A call.
pub type Span = uprof::Span<NameId, TaskId>;

/// Receives the spans that a reader finds. Spans of a task come in the order of their ends: a call comes
/// after the calls inside it. Calls without an end come last, innermost first.
pub trait SpanSink {
    /// The number of a name; equal names have equal numbers. Invalid UTF-8 is replaced.
    fn name(&mut self, name: &[u8]) -> NameId;

    /// The number of a task; equal labels have equal numbers.
    fn task(&mut self, task: TaskLabel<'_>) -> TaskId;

    /// Names a task that the input has named only now, or anew.
    fn rename(&mut self, _task: TaskId, _name: &[u8]) {}

    /// Receives a span.
    ///
    /// # Errors
    /// Writing failed.
    fn span(&mut self, span: Span) -> Result<(), ImportError>;

    /// Reports an error in the input that loses nothing else. `line` counts from 1; in binary input it is a
    /// byte offset.
    fn trouble(&mut self, line: u64, what: &str);

    /// Reports what is sound and left out. Unlike an error, it is no sign of another format.
    fn leave_out(&mut self, line: u64, what: &str) {
        self.trouble(line, what);
    }
}

/// Depths of calls are below this (format-spec.md, section 11).
pub const DEPTHS_MAX: u16 = uprof::layout::MAX_FRAMES as u16;

#[cfg(test)]
pub(crate) mod collected {
    //! A sink for tests of readers, which keeps everything as text.

    use super::*;

    /// Everything that was received, one line each: `name task cpu start length depth complete kind result`.
    #[derive(Debug, Default)]
    pub(crate) struct SpanCollector {
        pub names: Vec<Vec<u8>>,
        pub tasks: Vec<(u32, u32, Vec<u8>)>,
        pub spans: Vec<Span>,
        pub troubles: Vec<(u64, String)>,
    }

    impl SpanSink for SpanCollector {
        fn name(&mut self, name: &[u8]) -> NameId {
            let at = self.names.iter().position(|known| known == name);
            NameId(at.unwrap_or_else(|| {
                self.names.push(name.to_vec());
                self.names.len() - 1
            }) as u32)
        }

        fn task(&mut self, task: TaskLabel<'_>) -> TaskId {
            let same =
                |known: &(u32, u32, Vec<u8>)| (known.0, known.1) == (task.space, task.number);
            let at = self.tasks.iter().position(same);
            TaskId(at.unwrap_or_else(|| {
                self.tasks
                    .push((task.space, task.number, task.name.to_vec()));
                self.tasks.len() - 1
            }) as u32)
        }

        fn rename(&mut self, task: TaskId, name: &[u8]) {
            self.tasks[task.0 as usize].2 = name.to_vec();
        }

        fn span(&mut self, span: Span) -> Result<(), ImportError> {
            self.spans.push(span);
            Ok(())
        }

        fn trouble(&mut self, line: u64, what: &str) {
            self.troubles.push((line, what.to_owned()));
        }
    }

    impl SpanCollector {
        /// The spans, one line each: `task name depth length`. `?` is an unknown length, and `cut` follows an
        /// incomplete span.
        pub(crate) fn lines(&self) -> Vec<String> {
            let line = |span: &Span| {
                let (space, number, _) = &self.tasks[span.task.0 as usize];
                let name = String::from_utf8_lossy(&self.names[span.name.0 as usize]);
                let length = span
                    .length_ns
                    .map_or("?".into(), |length| length.to_string());
                let cut = if span.complete { "" } else { " cut" };
                format!("{space}/{number} {name} {} {length}{cut}", span.depth)
            };
            self.spans.iter().map(line).collect()
        }
    }
}
