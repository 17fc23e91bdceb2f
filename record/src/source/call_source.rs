//! The interface of a kind of guest whose calls can be followed.
//!
//! Such a guest stands still at each call's entry and return; calls come with their lengths, in the order of their
//! ends. The gdb stub is the one that there is.

use crate::source::Facts;
use crate::source::control::{Control, Ending};
use uprof::cold::{LossReason, TaskEvent};
use uprof::{Durations, Span};

/// A guest whose calls are followed.
pub trait FollowCalls {
    /// The guest.
    fn facts(&self) -> &Facts;

    /// The names of the functions, which [`CallEvent::Call`] refers to.
    fn names(&self) -> Vec<String>;

    /// What it cost until now.
    fn cost(&self) -> &CallCost;

    /// Follows calls until something ends it. The guest then runs as before.
    fn run(&mut self, control: &mut Control, tell: &mut dyn FnMut(CallEvent)) -> Ending;
}

/// What a trace reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// A call that ended, or is cut: the index of its name.
    Call(Span<usize>),
    /// A stack or thread, by its name.
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

/// What a trace cost the guest.
#[derive(Debug, Clone, Default)]
pub struct CallCost {
    /// Stops at breakpoints.
    pub stops: u64,
    /// How long the guest stood still, one entry for each stop.
    pub stopped: Durations,
    /// From letting the guest run for one instruction to its next stop: about what a call without any work seems to
    /// take.
    pub steps: Durations,
    /// Functions that were given up.
    pub too_hot: Vec<TooHot>,
    /// Whether the guest's code was changed by breakpoints.
    pub changed_code: bool,
}

/// A function that was called too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooHot {
    /// The function's index.
    pub function: usize,
    /// How often it is called in a second in which the guest runs, about.
    pub calls_hz: u64,
}

impl CallCost {
    /// How long the guest stood still.
    pub fn stopped_ns(&self) -> u64 {
        u64::try_from(self.stopped.sum_ns).unwrap_or(u64::MAX)
    }

    /// The time of the guest at `now_ns`: the clock without the time that the guest stood still.
    pub fn guest_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.stopped_ns())
    }
}
