//! Warnings of a recorder: what may be wrong with a recording, and what to do about it. Input: counts. Output: a
//! sentence, without a full stop.

use std::fmt;
use uniprof_record::NotUnderstood;
use uprof::Due;
use uprof::words::{duration, gap, late, share};

/// A warning.
#[derive(Debug, Clone, Copy)]
pub enum Warning<'s> {
    /// A Linux guest has unknown tables.
    Kernel(NotUnderstood),
    /// So many samples found vCPUs outside 64-bit mode.
    Narrow(u64),
    /// So many samples found the guest's monitor stopped.
    MonitorStopped(u64),
    /// Another program paused the guest.
    PausedByOthers { paused_ns: u64, passed_ns: u64 },
    /// Samples were taken late.
    Late { late: u64, samples: u64 },
    /// The target was paused for a large part of the time: the part, 0 to 1.
    MuchPaused(f64),
    /// The samples don't account for the processor time that `counter` counted.
    Gap {
        due: Due,
        counter: &'static str,
        cause: GapCause,
    },
    /// A guest that samples itself does so less often than asked for (samples of a vCPU a second).
    LowRate { each_hz: f64, rate_hz: f64 },
    /// No sample was taken.
    NoSample(NoSampleCause),
    /// No call was seen.
    NoCall,
    /// A function is called too often to be followed.
    TooManyStops {
        function: &'s str,
        calls_hz: u64,
        most_stops: u32,
    },
    /// The output failed.
    Output { name: &'s str, error: &'s str },
}

/// Why samples don't account for all processor time.
#[derive(Debug, Clone, Copy)]
pub enum GapCause {
    /// What the backend says.
    Backend(&'static str),
    /// Threads that waited were sampled like those that ran.
    WaitingThreads,
    /// Losses, which have messages of their own.
    Losses,
    /// Threads that live too shortly.
    ShortThreads,
    /// A busy machine.
    BusyMachine,
}

/// Why there is no sample.
#[derive(Debug, Clone, Copy)]
pub enum NoSampleCause {
    /// Unknown, since nobody counted processor time.
    Uncounted,
    /// Nothing of a process ran, as the kernel counted.
    Waited,
    /// Less ran, as `counter` counted, than the time for which a sample stands.
    TooLittle {
        counter: &'static str,
        counted_ns: u64,
        passed_ns: u64,
    },
    /// So many samples were due.
    Missed {
        counter: &'static str,
        counted_ns: u64,
        due: f64,
    },
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Warning::Kernel(why) => write!(
                f,
                "the guest seems to run Linux, but its table of symbols is not understood ({why}): give names with \
                 --symbols"
            ),
            Warning::Narrow(count) => write!(
                f,
                "{count} samples are of vCPUs that were not in 64-bit mode: uniprof follows stacks of 64-bit code \
                 only, and of these only the instruction pointer is recorded"
            ),
            Warning::MonitorStopped(count) => write!(
                f,
                "the guest's monitor was stopped by a signal (SIGSTOP) during {count} samples, which count as paused"
            ),
            Warning::PausedByOthers {
                paused_ns,
                passed_ns,
            } => write!(
                f,
                "someone else had the guest paused for {} of {}: samples of that time say where it stood, and don't \
                 count as running",
                duration(paused_ns),
                duration(passed_ns)
            ),
            Warning::Late { late: part, samples } => {
                let part = format!("{part} ({})", share(part, samples));
                write!(f, "{}; give the recorder a processor of its own", late(part))
            }
            Warning::MuchPaused(part) => write!(
                f,
                "the target stood still for {:.0} % of the time, which slows it down and, where vCPUs share \
                 processors, moves shares: record slower (-F, and --boot-frequency of a boot), or with \
                 --max-overhead 10%",
                part * 100.0
            ),
            Warning::Gap {
                due,
                counter,
                cause,
            } => {
                let gap = gap(due.sampled_ns(), due.counted_ns, counter);
                write!(f, "{gap}: {cause}")
            }
            Warning::LowRate { each_hz, rate_hz } => write!(
                f,
                "each vCPU has {each_hz:.1} samples a second, of {rate_hz} asked for: its timer interrupts no more \
                 often, or it slept with its timer off, as a tickless guest does; what runs between two interrupts \
                 may be missing. Have a timer of its own call the agent at that rate while the vCPU runs \
                 (agent/README.md)"
            ),
            Warning::NoSample(cause) => write!(f, "no sample was taken: {cause}"),
            Warning::NoCall => f.write_str(
                "no call was seen: the functions were not called in that time, or not as this image has them; record \
                 longer (-d)",
            ),
            Warning::TooManyStops {
                function,
                calls_hz,
                most_stops,
            } => write!(
                f,
                "{function} is called too often for breakpoints ({calls_hz} a second while the guest runs; at most \
                 {most_stops} stops a second are allowed, two a call): its calls were followed no further. Sample \
                 the guest, or raise --most-stops"
            ),
            Warning::Output { name, error } => write!(
                f,
                "writing {name} failed: {error}; what was written before is sound and ends there: make room, or \
                 record elsewhere (-o)"
            ),
        }
    }
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapCause::Backend(why) => why,
            GapCause::WaitingThreads => {
                "threads that waited for a processor were sampled too, as ptrace can't tell them apart"
            }
            GapCause::Losses => "see what was lost",
            GapCause::ShortThreads => {
                "threads that live for less than a period of the rate are not seen this way: record as root without \
                 --per-thread, or faster (-F)"
            }
            GapCause::BusyMachine => "the machine had no time to sample; record slower (-F)",
        })
    }
}

impl fmt::Display for NoSampleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longer = "record longer (-d) or faster (-F)";
        match *self {
            NoSampleCause::Uncounted => write!(
                f,
                "the target did not run, or ended too soon for the rate; {longer}"
            ),
            NoSampleCause::Waited => f.write_str(
                "the target did not run: it waits (`--off-cpu` shows where, once its threads switch)",
            ),
            NoSampleCause::TooLittle {
                counter,
                counted_ns,
                passed_ns,
            } => write!(
                f,
                "the target ran too little for the rate: {counter} counted {} of processor time in {}; {longer}",
                duration(counted_ns),
                duration(passed_ns)
            ),
            NoSampleCause::Missed {
                counter,
                counted_ns,
                due,
            } => write!(
                f,
                "{counter} counted {} of processor time, for which {due:.0} were due; {longer}",
                duration(counted_ns)
            ),
        }
    }
}
