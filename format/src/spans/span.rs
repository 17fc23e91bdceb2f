//! A call with its length, and the columns that encode it (format-spec.md, section 15).

use crate::samples::Task;
use crate::tags::tags;

/// A call. The calls of a task are in the order of their ends, so a call follows the calls inside it. Name and task are
/// values for a writer, and numbers in a table elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<Name, Who = Task> {
    /// Name of the function, system call or slice.
    pub name: Name,
    /// The task that made the call.
    pub task: Who,
    /// The number of the processor, if the task doesn't show it.
    pub cpu: Option<u32>,
    /// Start in nanoseconds, on the recording's monotonic clock or that of its trace; `None` if only the order is
    /// known.
    pub start_ns: Option<u64>,
    /// Length in nanoseconds; `None` if the end was not seen.
    pub length_ns: Option<u64>,
    /// Number of calls around it; 0 for an outermost one.
    pub depth: u16,
    /// Whether both its beginning and its end were seen.
    pub complete: bool,
    /// Kind of span.
    pub kind: SpanKind,
    /// Return value of a system call; negative for an error.
    pub result: Option<i64>,
}

impl<Name, Who> Span<Name, Who> {
    /// The same call with this name and task.
    pub fn with<N, W>(self, name: N, task: W) -> Span<N, W> {
        Span {
            name,
            task,
            cpu: self.cpu,
            start_ns: self.start_ns,
            length_ns: self.length_ns,
            depth: self.depth,
            complete: self.complete,
            kind: self.kind,
            result: self.result,
        }
    }
}

/// A span of a block. Its name is a number for [`SpanBlock::name`].
///
/// [`SpanBlock::name`]: crate::SpanBlock::name
pub type SpanRow = Span<u32>;

tags! {
    /// Kind of span.
    SpanKind: u8 {
        /// A call of a function.
        Function = 0 "function",
        /// A system call.
        Syscall = 1 "syscall",
        /// A piece of work that a program gave a name.
        Slice = 2 "slice",
    }
}

tags! {
    /// Columns of a span block (format-spec.md, section 15.1).
    SpanColumn: u16 {
        /// Table of tasks: address space and vCPU.
        Tasks = 1 "tasks",
        /// Lengths of names.
        Names = 2 "names",
        /// The names.
        NameText = 3 "name-text",
        /// Which facts of each span are known, and its kind.
        Flags = 4 "flags",
        /// Index into the table of tasks.
        Task = 5 "task",
        /// Index into the table of names.
        Name = 6 "name",
        /// Depth.
        Depth = 7 "depth",
        /// Length, if known.
        Length = 8 "length",
        /// Start, if known.
        Start = 9 "start",
        /// Return values of system calls.
        Result = 10 "result",
        /// Processor.
        Cpu = 11 "cpu",
        /// Spans in the blocks before.
        Before = 12 "before",
    }
}

impl SpanColumn {
    /// Whether a reader that doesn't know the column must give up the block.
    pub fn is_critical(self) -> bool {
        !matches!(
            self,
            SpanColumn::Result | SpanColumn::Cpu | SpanColumn::Before
        )
    }
}

/// Bits of the column flags.
pub(super) mod flags {
    pub(in crate::spans) const COMPLETE: u8 = 1;
    pub(in crate::spans) const LENGTH: u8 = 1 << 1;
    pub(in crate::spans) const START: u8 = 1 << 2;
    pub(in crate::spans) const RESULT: u8 = 1 << 3;
    /// The kind is in the bits from here on.
    pub(in crate::spans) const KIND: u32 = 4;
}
