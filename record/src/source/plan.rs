//! What to record, as requested by the user.

use std::time::Duration;
use uprof::layout::MAX_STACK_BYTES;

/// Most exits a second of a vCPU that are recorded one by one, unless requested otherwise: at four records of some
/// sixty bytes each, a ring buffer of 2 MiB then holds those of 58 ms.
pub const MOST_EXITS_HZ: u64 = 150_000;

/// A request to record: rate, duration, stacks and limits.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Samples a second, of each vCPU or thread.
    pub rate_hz: f64,
    /// For a guest that is recorded from its first instruction: its rate at first.
    pub boot: Option<FirstRate>,
    /// The function in which a sample ends the recording.
    pub until: Option<String>,
    /// When to stop; `None`: when the guest ends or on request.
    pub duration: Option<Duration>,
    /// Raw stack bytes to keep of each sample, from its stack pointer up; 0 for none.
    pub stack_bytes: u32,
    /// Whether fewer stack bytes will do where the kernel's buffers would hold too few samples.
    pub fits_stack: bool,
    /// Whether to take only instruction pointers.
    pub ip_only: bool,
    /// Whether to wait for a guest that ended, and go on when it comes back.
    pub follow: bool,
    /// Whether the guest runs on while its stacks are read.
    pub no_pause: bool,
    /// Most frames of a chain.
    pub most_frames: u32,
    /// Longest freeze for a sample.
    pub budget: Duration,
    /// Largest share of time that the guest may be frozen; the rate is lowered to keep it.
    pub most_overhead: Option<f64>,
    /// Whether to use perf events of threads even where those of processors are allowed.
    pub per_thread: bool,
    /// Whether to record also where and how long threads wait.
    pub off_cpu: bool,
    /// Whether to record also where the wall time of a guest's vCPUs goes: exits, waits for a processor, and what the
    /// monitor does. Of a process that is a monitor, samples of its guest are left out.
    pub host: bool,
    /// Most exits a second of a vCPU that are recorded one by one with `host`. Above it, those of a part of the time
    /// stand for all.
    pub most_exits_hz: u64,
    /// Functions whose calls are followed by breakpoints, instead of samples; none for samples.
    pub calls: Vec<String>,
    /// Most stops a second that breakpoints may cause.
    pub most_stops_hz: u32,
    /// The program's arguments, for the recording.
    pub command_line: Vec<String>,
    /// Labels of the recording: key and value.
    pub labels: Vec<(String, String)>,
}

/// A higher rate at the start of a boot, where most of what happens takes no longer than milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstRate {
    /// Samples a second of each vCPU.
    pub rate_hz: f64,
    /// How long it lasts.
    pub lasts: Duration,
    /// The largest share of that time in which the guest may be frozen: a period is longer after a long freeze.
    pub most_overhead: f64,
}

/// Samples a second at first of a guest that boots, and how long that lasts.
pub const FIRST_RATE: FirstRate = FirstRate {
    rate_hz: 5000.0,
    lasts: Duration::from_secs(1),
    most_overhead: 0.5,
};

/// Most stack bytes copied for a frame-pointer walk, unless more are kept.
const WALK_WINDOW_BYTES: usize = 16 << 10;

/// Stack bytes kept of each sample by default. With the registers they show the caller of a function without a frame
/// (in its prologue or epilogue, or a leaf function), which a chain of frame pointers misses.
pub const LEAF_STACK_BYTES: u32 = 128;

/// Stack bytes kept of each sample of a process by default: the most that the kernel copies. Distributions build most
/// code without frame pointers, and some programs, compilers for example, need more than 16 KiB. Only the bytes in use
/// are copied of a shorter stack.
pub const PROCESS_STACK_BYTES: u32 = 64 << 10;

/// Stops a second that breakpoints may cause by default.
pub const USUAL_STOPS_HZ: u32 = 1000;

impl Default for Plan {
    fn default() -> Self {
        Plan {
            rate_hz: 99.0,
            boot: None,
            until: None,
            duration: None,
            stack_bytes: LEAF_STACK_BYTES,
            fits_stack: false,
            ip_only: false,
            no_pause: false,
            follow: false,
            most_frames: 256,
            budget: Duration::from_micros(200),
            most_overhead: None,
            per_thread: false,
            off_cpu: false,
            host: false,
            most_exits_hz: MOST_EXITS_HZ,
            calls: Vec::new(),
            most_stops_hz: USUAL_STOPS_HZ,
            command_line: Vec::new(),
            labels: Vec::new(),
        }
    }
}

impl Plan {
    /// The default for processes.
    pub fn for_processes() -> Self {
        Plan {
            stack_bytes: PROCESS_STACK_BYTES,
            fits_stack: true,
            ..Plan::default()
        }
    }

    /// Samples a second by an event of the kernel, which takes only whole numbers.
    pub fn kernel_rate_hz(&self) -> u64 {
        (self.rate_hz.round() as u64).max(1)
    }

    /// Stack bytes that are kept of a sample.
    pub fn kept_bytes(&self) -> usize {
        if self.ip_only {
            0
        } else {
            (self.stack_bytes as usize).min(MAX_STACK_BYTES)
        }
    }

    /// Stack bytes that are read for a walk or kept.
    pub fn window_bytes(&self) -> usize {
        if self.ip_only {
            0
        } else {
            self.kept_bytes().max(WALK_WINDOW_BYTES)
        }
    }
}
