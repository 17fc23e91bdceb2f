//! What is to be recorded, as it was asked for.

use std::time::Duration;
use uprof::layout::MAX_STACK_BYTES;

/// What to record.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Samples a second, of each vCPU or thread.
    pub rate_hz: f64,
    /// When to stop; `None`: when the guest ends or someone says so.
    pub duration: Option<Duration>,
    /// Raw stack bytes to keep of each sample, from its stack pointer up; 0 for none.
    pub stack_bytes: u32,
    /// Whether to take only instruction pointers.
    pub ip_only: bool,
    /// Whether a guest that ends is waited for, to go on when it comes back.
    pub follow: bool,
    /// Whether the guest runs on while its stacks are read, where it could be stopped.
    pub no_pause: bool,
    /// Most frames of a chain.
    pub most_frames: u32,
    /// Most time that the guest may stand still for a sample.
    pub budget: Duration,
    /// Most share of time that the guest may stand still; the rate is lowered to keep it.
    pub most_overhead: Option<f64>,
    /// Whether processes are watched by events of their threads even where those of processors may be
    /// had.
    pub per_thread: bool,
    /// Whether to record where threads wait, too, and for how long.
    pub off_cpu: bool,
    /// The program's arguments, for the recording.
    pub command_line: Vec<String>,
}

/// Stack bytes copied for a frame-pointer walk at the most, where no more are kept.
const WALK_WINDOW_BYTES: usize = 16 << 10;

/// Stack bytes kept of each sample if nothing else is said: with the registers they tell the caller of
/// a function that has no frame (yet, or any more), which the chain of frame pointers leaves out.
pub const LEAF_STACK_BYTES: u32 = 128;

impl Default for Plan {
    fn default() -> Self {
        Plan {
            rate_hz: 99.0,
            duration: None,
            stack_bytes: LEAF_STACK_BYTES,
            ip_only: false,
            no_pause: false,
            follow: false,
            most_frames: 256,
            budget: Duration::from_micros(200),
            most_overhead: None,
            per_thread: false,
            off_cpu: false,
            command_line: Vec::new(),
        }
    }
}

impl Plan {
    /// Stack bytes that are kept of a sample: what a slot must have room for.
    pub fn kept_bytes(&self) -> usize {
        match self.ip_only {
            true => 0,
            false => (self.stack_bytes as usize).min(MAX_STACK_BYTES),
        }
    }

    /// Stack bytes that are looked at for a walk or kept.
    pub fn window_bytes(&self) -> usize {
        match self.ip_only {
            true => 0,
            false => self.kept_bytes().max(WALK_WINDOW_BYTES),
        }
    }
}
