//! What a trace says of its functions, and samples can't: how often each was called, how long that took, and which call
//! was the longest. Counted while calls are gathered, label by label.

use crate::profile::labels::LabelId;
use std::collections::BTreeMap;
use uprof::{Durations, Task};

/// A line of execution of one of several recordings.
pub type TaskOf = (usize, Task);

/// Calls, by function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    /// By label.
    pub functions: BTreeMap<LabelId, FunctionCalls>,
    /// What calls took themselves, in nanoseconds, by vCPU or thread and label.
    pub tasks: BTreeMap<TaskOf, BTreeMap<LabelId, u64>>,
}

/// Calls of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionCalls {
    /// All of them.
    pub count: u64,
    /// Those whose end is missing, and whose length is not known.
    pub without_end: u64,
    /// Those whose beginning is missing.
    pub without_beginning: u64,
    /// System calls that failed.
    pub errors: u64,
    /// What they took themselves, in nanoseconds.
    pub own_ns: u64,
    /// What they took with all that they called; of a function within itself the outermost call alone.
    pub total_ns: u64,
    /// How long each took.
    pub lengths: Durations,
    /// The longest one.
    pub longest: Option<PlacedCall>,
}

/// A call, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedCall {
    /// How long it took, in nanoseconds.
    pub length_ns: u64,
    /// Which of the recording's calls it is, in the order of their ends, from 1.
    pub number: u64,
    /// When it began, in nanoseconds from the start of the recording, where that is known.
    pub since_ns: Option<u64>,
    /// Whose it is.
    pub task: TaskOf,
}

impl PlacedCall {
    /// Whether it is shown before `other`: it took longer, or as long, and came earlier.
    pub(crate) fn is_before(&self, other: &PlacedCall) -> bool {
        let key = |call: &PlacedCall| (std::cmp::Reverse(call.length_ns), call.task.0, call.number);
        key(self) < key(other)
    }
}

impl FunctionCalls {
    /// Adds a call. `outermost`: no call of the same function is around it.
    pub(crate) fn add(&mut self, placed: Option<PlacedCall>, own_ns: u64, outermost: bool) {
        self.count += 1;
        let Some(placed) = placed else {
            self.without_end += 1;
            return;
        };
        self.own_ns = self.own_ns.saturating_add(own_ns);
        if outermost {
            self.total_ns = self.total_ns.saturating_add(placed.length_ns);
        }
        self.lengths.add(placed.length_ns);
        if self
            .longest
            .is_none_or(|longest| placed.is_before(&longest))
        {
            self.longest = Some(placed);
        }
    }
}
