//! The interface of a guest whose calls can be followed.
//!
//! Such a guest is paused at each call's entry and return. Calls are reported with their lengths, in the order of
//! their ends. The gdb stub is the only implementation.

use crate::source::Facts;
use crate::source::control::{Control, Ending};
use uprof::cold::{LossReason, TaskEvent};
use uprof::{Durations, Span};

/// A guest whose calls are followed.
pub trait FollowCalls {
    /// Facts about the guest.
    fn facts(&self) -> &Facts;

    /// The names of the functions, which [`CallEvent::Call`] refers to.
    fn names(&self) -> Vec<String>;

    /// The cost to the guest until now.
    fn cost(&self) -> &CallCost;

    /// Follows calls until something ends it, and passes each event to `tell`. Afterwards the guest runs as before.
    fn run(&mut self, control: &mut Control, tell: &mut dyn FnMut(CallEvent)) -> Ending;
}

/// An event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// A call that ended or was cut, with the index of its name.
    Call(Span<usize>),
    /// A stack or thread, with its name.
    Task(TaskEvent),
    /// Calls that could not be followed.
    Lost {
        /// Why.
        reason: LossReason,
        /// How many.
        count: u64,
        /// From when on.
        time_ns: u64,
    },
}

/// The cost of a trace to the guest.
#[derive(Debug, Clone, Default)]
pub struct CallCost {
    /// Stops at breakpoints.
    pub stops: u64,
    /// How long the guest was paused, one entry for each stop.
    pub stopped: Durations,
    /// From resuming the guest for one instruction to its next stop: about the time that a call without any work seems
    /// to take.
    pub steps: Durations,
    /// Functions that are no longer followed, as they were called too often.
    pub too_hot: Vec<TooHot>,
    /// Whether breakpoints changed the guest's code.
    pub changed_code: bool,
}

/// A function that was called too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooHot {
    /// The function's index.
    pub function: usize,
    /// About how often it is called in a second in which the guest runs.
    pub calls_hz: u64,
}

impl CallCost {
    /// How long the guest was paused, in nanoseconds.
    pub fn stopped_ns(&self) -> u64 {
        u64::try_from(self.stopped.sum_ns).unwrap_or(u64::MAX)
    }

    /// The guest's time at `now_ns`: the clock less the time for which the guest was paused.
    pub fn guest_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.stopped_ns())
    }
}
