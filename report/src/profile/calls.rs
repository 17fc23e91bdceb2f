//! What a trace shows of its functions and samples can't: how often each was called, how long its calls took,
//! and which call was the longest. It is counted label by label while calls are gathered.

use crate::profile::labels::LabelId;
use std::collections::BTreeMap;
use uprof::{Durations, Task};

/// A task, with the number of its recording.
pub type TaskOf = (usize, Task);

/// Calls, by function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    /// Calls of each function.
    pub functions: BTreeMap<LabelId, FunctionCalls>,
    /// Self time of calls (nanoseconds), by vCPU or thread and label.
    pub tasks: BTreeMap<TaskOf, BTreeMap<LabelId, u64>>,
}

/// Calls of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionCalls {
    /// Number of calls.
    pub count: u64,
    /// Number of calls whose end is missing; their duration is unknown.
    pub without_end: u64,
    /// Number of calls whose beginning is missing.
    pub without_beginning: u64,
    /// Number of system calls that failed.
    pub errors: u64,
    /// Self time (nanoseconds).
    pub own_ns: u64,
    /// Total time with all callees of the calls that ended (nanoseconds). Of calls within each other, only the
    /// outermost counts.
    pub total_ns: u64,
    /// Durations of the calls.
    pub lengths: Durations,
    /// The longest one.
    pub longest: Option<PlacedCall>,
}

/// A call, and its position in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedCall {
    /// Duration (nanoseconds).
    pub length_ns: u64,
    /// Number of the call in the recording, in the order of ends, from 1.
    pub number: u64,
    /// Start, in nanoseconds from the start of the recording; `None` if it is unknown.
    pub since_ns: Option<u64>,
    /// The task that made the call.
    pub task: TaskOf,
}

impl PlacedCall {
    /// Whether it is listed before `other`: it took longer, or as long and came earlier.
    pub(crate) fn is_before(&self, other: &PlacedCall) -> bool {
        let key = |call: &PlacedCall| (std::cmp::Reverse(call.length_ns), call.task.0, call.number);
        key(self) < key(other)
    }
}

impl FunctionCalls {
    /// Adds self time, of a call that is hidden behind it.
    pub(crate) fn add_own(&mut self, own_ns: u64) {
        self.own_ns = self.own_ns.saturating_add(own_ns);
    }

    /// Adds a call. `outermost` is set if no call of the same function, which counts and ended, is around it.
    pub(crate) fn add(&mut self, placed: Option<PlacedCall>, own_ns: u64, outermost: bool) {
        self.count += 1;
        let Some(placed) = placed else {
            self.without_end += 1;
            return;
        };
        self.add_own(own_ns);
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
