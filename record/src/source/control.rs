//! State shared by the sampler, the encoder and observers of a recording: counters, the request to stop, and the
//! reason why it ended.

use crate::source::{Life, SourceError};
use crate::sys::signal;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uprof::cold::EndReason;

/// Counters that change while a recording runs; any thread may read them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Samples written.
    pub samples: AtomicU64,
    /// Samples dropped, for any reason.
    pub dropped: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Time since the start, in nanoseconds, when the encoder last updated it.
    pub passed_ns: AtomicU64,
    /// The 99th percentile of the pauses of the target, in nanoseconds; 0 if it is not paused.
    pub pause_p99_ns: AtomicU64,
    /// The period that the overhead limit has forced, or 0.
    pub slowed_to_ns: AtomicU64,
    /// Whether the recording is to end.
    stop: AtomicBool,
    /// Why, if that is set before.
    pub stopped_by: OnceLock<&'static str>,
}

impl Counters {
    /// Ends the recording.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        signal::announce();
    }

    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Decides whether the sampler goes on.
pub struct Control {
    /// Shared counts.
    pub counters: Arc<Counters>,
    /// How long to sample, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// When to stop, on the monotonic clock; also `None` before sampling has begun.
    pub stop_at_ns: Option<u64>,
    /// Addresses of guest code in which a sample ends the recording.
    pub until: Vec<Range<u64>>,
    /// When sampling began.
    pub begun_ns: Option<u64>,
    /// How long to wait for samples at most before looking whether to stop, in milliseconds.
    pub longest_wait_ms: u64,
}

impl Control {
    /// For a recording that takes as long as `duration`, once it has begun.
    pub fn new(counters: Arc<Counters>, duration: Option<Duration>) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Control {
            counters,
            duration_ns: duration.map(nanoseconds),
            stop_at_ns: None,
            until: Vec::new(),
            begun_ns: None,
            longest_wait_ms: 100,
        }
    }

    /// Starts the duration at `now_ns`, when preparation is over.
    pub fn begin(&mut self, now_ns: u64) {
        self.begun_ns = Some(now_ns);
        self.stop_at_ns = self
            .duration_ns
            .map(|duration_ns| now_ns.saturating_add(duration_ns));
    }

    /// Why a stop was requested, if it was.
    pub fn stop_asked(&self) -> Option<String> {
        if self.counters.is_stopped() {
            let why = self.counters.stopped_by.get();
            return Some(why.copied().unwrap_or("stopped by the program").into());
        }
        signal::stop_signal().map(|name| format!("stopped by {name}"))
    }

    /// The reason to end now, if there is one.
    pub fn ending(&self, now_ns: u64) -> Option<Ending> {
        if let Some(who) = self.stop_asked() {
            return Some(Ending::Stopped(who));
        }
        (self.stop_at_ns? <= now_ns).then_some(Ending::Duration)
    }

    /// Milliseconds until the requested duration is over, at least 1.
    pub fn milliseconds_left(&self, now_ns: u64) -> u64 {
        let left_ns = self
            .stop_at_ns
            .map_or(u64::MAX, |at| at.saturating_sub(now_ns));
        (left_ns / 1_000_000).max(1)
    }
}

/// Why the sampler stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The requested duration was over.
    Duration,
    /// A stop was requested.
    Stopped(String),
    /// The guest ended.
    TargetEnded(String),
    /// The guest crashed.
    TargetCrashed(String),
    /// The source failed.
    Failed(SourceError),
}

impl Ending {
    /// The ending for a guest that is no longer alive.
    pub fn of_life(life: Life) -> Self {
        match life {
            Life::Crashed(how) => Ending::TargetCrashed(how),
            Life::Ended(how) => Ending::TargetEnded(how),
            Life::Alive => Ending::TargetEnded("the guest is gone".into()),
        }
    }

    /// The reason as the file format has it.
    pub fn reason(&self) -> EndReason {
        match self {
            Ending::Duration => EndReason::Duration,
            Ending::Stopped(_) => EndReason::Stopped,
            Ending::TargetEnded(_) => EndReason::TargetEnded,
            Ending::TargetCrashed(_) => EndReason::TargetCrashed,
            Ending::Failed(_) => EndReason::SourceFailed,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Duration => write!(f, "the time asked for was over"),
            Ending::Stopped(who) => write!(f, "{who}"),
            Ending::TargetEnded(how) | Ending::TargetCrashed(how) => write!(f, "{how}"),
            Ending::Failed(error) => write!(f, "{error}"),
        }
    }
}
