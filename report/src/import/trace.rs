//! Traces: a log of calls goes in, spans come out. [`SpanSink`] is the seam: a reader of a format knows nothing of
//! recordings, and what writes a recording knows no format.
//!
//! A reader keeps the calls that are open and nothing else, however long its input is: a span is told when it
//! ends, so a call comes after the calls inside it, and depths tell the whole tree.

mod decimal;
mod errno;
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

/// A function's name, as [`SpanSink::name`] gave it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A line of execution, as [`SpanSink::task`] gave it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// Who runs: a vCPU, or a thread where the trace tells threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabel<'a> {
    /// The process, where the trace tells it; else 0.
    pub space: u32,
    /// The thread, or the vCPU.
    pub number: u32,
    /// What it is called, in any language; empty where it is told by its numbers alone.
    pub name: &'a [u8],
}

/// A call.
pub type Span = uprof::Span<NameId, TaskId>;

/// Takes what a reader finds. Spans come in the order of their ends, for each task: a call after the calls inside
/// it. Calls that never end come last, innermost first.
pub trait SpanSink {
    /// The number of a name; the same bytes have the same number. Bytes that are no UTF-8 are replaced.
    fn name(&mut self, name: &[u8]) -> NameId;

    /// The number of a task; the same label's numbers have the same one.
    fn task(&mut self, task: TaskLabel<'_>) -> TaskId;

    /// Takes a span.
    ///
    /// # Errors
    /// Writing failed.
    fn span(&mut self, span: Span) -> Result<(), ImportError>;

    /// Counts something of the input that is wrong, and nothing else is lost by. `line` is counted from 1; of an
    /// input without lines it is the byte, as `what` says.
    fn trouble(&mut self, line: u64, what: &str);
}

/// Depths of calls are below this (format-spec.md, section 11).
pub const DEPTHS_MAX: u16 = uprof::layout::MAX_FRAMES as u16;

#[cfg(test)]
pub(crate) mod collected {
    //! A sink for tests of readers: all as text.

    use super::*;

    /// What came, a line each: `name task cpu start length depth complete kind result`.
    #[derive(Debug, Default)]
    pub(crate) struct Collected {
        pub names: Vec<Vec<u8>>,
        pub tasks: Vec<(u32, u32, Vec<u8>)>,
        pub spans: Vec<Span>,
        pub troubles: Vec<(u64, String)>,
    }

    impl SpanSink for Collected {
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

        fn span(&mut self, span: Span) -> Result<(), ImportError> {
            self.spans.push(span);
            Ok(())
        }

        fn trouble(&mut self, line: u64, what: &str) {
            self.troubles.push((line, what.to_owned()));
        }
    }

    impl Collected {
        /// The spans, a line each: `task name depth length`, with `?` for a length that isn't known and `cut` behind
        /// what isn't complete.
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
