//! Warnings of reports, comparisons and exports: each says what is missing or uncertain, and what to do. Input: counts.
//! Output: a sentence, without a full stop. Only images and unwinding have words of their own.

use crate::recording::unit::Unit;
use std::fmt;
use uprof::Stop;
use uprof::cold::LossReason;
use uprof::words::{gap, late, share};

/// Most stack bytes of a process that perf events can copy.
pub(crate) const KERNEL_STACK_BYTES: u32 = 65_528;

/// A part of what counts: `50 (25.0%)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The part, in the unit.
    pub amount: u64,
    /// The whole.
    pub whole: u64,
    /// The unit of both.
    pub unit: Unit,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.unit.amount(self.amount);
        write!(f, "{amount} ({})", share(self.amount, self.whole))
    }
}

/// A warning. Shares are texts, such as `25.0%`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Warning {
    /// Stacks that lack outer frames, and for each reason how many.
    CutStacks(Part, Vec<(Stop, u64)>),
    /// Stacks that may lack the caller of their innermost function.
    MissingCaller(Part),
    /// Waits with the stack of a later wait.
    PooledWaits(Part),
    /// Exits above their function alone.
    ExitsWithoutCallers(Part),
    /// Samples taken late.
    Late(Part),
    /// Images with another build-id.
    ForcedImages(u64),
    /// Samples without any frame.
    NoFrames { amount: u64, unit: Unit },
    /// Samples that the recorder lost.
    Lost(LossReason, u64),
    /// Less processor time in samples than was counted.
    Undersampled {
        sampled_ns: u64,
        counted_ns: u64,
        counter: &'static str,
        lacks_kernel: bool,
    },
    /// Damaged parts of the file.
    Damaged { places: u64, samples: u64 },
    /// Samples or calls in blocks that can't be decoded.
    Undecodable { count: u64, unit: Unit },
    /// Calls that took longer than the guest's own work.
    SlowedCalls(&'static str),
    /// Resets of the guest.
    Resets(u64),
    /// No end record.
    NoEnd,
    /// A share of the samples found the guest paused by another program.
    PausedByOthers(String),
    /// A share of the samples found nothing that ran.
    Idle(String),
    /// A share of the samples is in one function.
    OneFunction { share: String, name: String },
    /// A share of the samples has no name; most of them in one file, whose path is printable.
    Unnamed { share: String, file: Option<String> },
    /// A share of the stacks changed while they were read.
    MovedStacks(String),
    /// A share of the stacks has one or two frames, or is incomplete.
    ShortStacks {
        share: String,
        is_shallow: bool,
        has_stack_bytes: bool,
        is_guest: bool,
    },
    /// A share of the stacks ends where the recorded bytes end, of which so many were requested.
    StackBytesEnd {
        share: String,
        stack_bytes: Option<u32>,
    },
    /// Recordings without a common time axis, and why.
    SeparateTimes(String),
    /// More calls than a format can show.
    TooManyCalls { calls: usize, most: usize },
    /// Samples that stand for different times, in a format that counts them alike.
    CountedAlike,
    /// Stacks whose times are too short for the format's unit.
    ShortTimes { left_out: usize, all: usize },
    /// Recordings of different hosts, which are not named.
    OtherHosts,
    /// A fact about the recordings differs between the sides.
    Differ {
        what: &'static str,
        sides: [String; 2],
    },
    /// Runs of different lengths (seconds).
    OtherLengths([f64; 2]),
    /// A side has more samples or time in each second.
    OtherLoad { unit: Unit, sides: [String; 2] },
    /// One recording of each side.
    SingleRuns,
    /// A side lacks samples: these warnings say which.
    IncompleteSide { side: &'static str, missing: String },
    /// A side has few samples, waits or calls.
    FewRows {
        side: &'static str,
        rows: u64,
        unit: Unit,
    },
    /// Shares of the samples of each side, 0 to 1, whose functions can't be matched.
    Unmatched([f64; 2]),
    /// Calls without a time.
    UntimedCalls(u64),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::CutStacks(part, reasons) => {
                let reasons = reasons
                    .iter()
                    .map(|(stop, n)| format!("{} {}", part.unit.amount(*n), stop.describe()));
                let reasons: Vec<String> = reasons.collect();
                write!(f, "stacks cut short: {part}: {}", reasons.join(", "))
            }
            Warning::MissingCaller(part) => write!(
                f,
                "the caller of the innermost function may be missing: {part}: no call frame information for it, or \
                 too few stack bytes"
            ),
            Warning::PooledWaits(part) => write!(
                f,
                "short waits that were too many to have stacks of their own: up to {part} may be other functions' of \
                 the same thread"
            ),
            Warning::ExitsWithoutCallers(part) => write!(
                f,
                "exits without callers: {part} are above their function alone, as no sample is in it"
            ),
            Warning::Late(part) => f.write_str(&late(part)),
            Warning::ForcedImages(count) => write!(
                f,
                "images used by --force in spite of another build-id: {count}; names may be wrong"
            ),
            Warning::NoFrames { amount, unit } => {
                write!(f, "{} without any frame: {}", unit.what(), unit.amount(*amount))
            }
            Warning::Lost(reason, count) => write!(f, "lost: {count} {}", reason.describe()),
            Warning::Undersampled {
                sampled_ns,
                counted_ns,
                counter,
                lacks_kernel,
            } => write!(
                f,
                "undersampled: {}; {}",
                gap(*sampled_ns, *counted_ns, counter),
                if *lacks_kernel {
                    "time in the kernel is missing most, which was not allowed to be sampled"
                } else {
                    "what runs briefly is missing most"
                }
            ),
            Warning::Damaged { places, samples } => write!(
                f,
                "damaged: {places} places in the file, at least {samples} samples gone"
            ),
            Warning::Undecodable { count, unit } => {
                let what = match unit {
                    Unit::Calls => "calls at least",
                    Unit::Samples | Unit::Sampled | Unit::OffCpu | Unit::VcpuTime => "samples",
                };
                write!(f, "undecodable: {count} {what}")
            }
            Warning::SlowedCalls(why) => write!(
                f,
                "the times of calls are not those of the guest alone, and shares may be wrong: {why}"
            ),
            Warning::Resets(count) => {
                let times = match count {
                    1 => "once".to_owned(),
                    count => format!("{count} times"),
                };
                write!(
                    f,
                    "the guest was reset while it was recorded, {times}: `uniprof info` says when, --from and --to \
                     select a boot"
                )
            }
            Warning::NoEnd => {
                f.write_str("the recording has no end: its last second may be missing")
            }
            Warning::PausedByOthers(share) => write!(
                f,
                "someone else had the guest paused in {share} of the samples, and what is shown is the rest: record \
                 while it runs (`xl unpause` lets a Xen domain run)"
            ),
            Warning::Idle(share) => write!(
                f,
                "nothing ran in {share} of the samples, and what is shown is the rest: record under load, or for longer"
            ),
            Warning::OneFunction { share, name } => write!(
                f,
                "{share} of the samples are in {name} alone: if the guest polls there, waiting for work, --ignore \
                 leaves it out, and under load a recording shows more"
            ),
            Warning::Unnamed { share, file } => {
                let (within, package) = match file {
                    Some(file) => (
                        format!(", most of it in {file}"),
                        "install the debug package of that file (PACKAGE-dbgsym or -dbg on Debian, \
                         PACKAGE-debuginfo on Fedora), or ",
                    ),
                    None => (String::new(), ""),
                };
                write!(
                    f,
                    "no name is known for the code of {share} of the samples{within}: {package}give its image, or the \
                     debug file split off it, with --elf FILE, or to `uniprof report` a list of functions with \
                     --symbols FILE"
                )
            }
            Warning::MovedStacks(share) => write!(
                f,
                "most stacks ({share}) changed while they were read, and say little: record without --no-pause"
            ),
            Warning::ShortStacks {
                share,
                is_shallow,
                has_stack_bytes,
                is_guest,
            } => {
                let end = if *is_shallow {
                    "after one or two frames"
                } else {
                    "before they are whole"
                };
                let remedy = match (has_stack_bytes, is_guest) {
                    // Stacks that end with the recorded bytes are among the shallow ones alone.
                    (true, _) if *is_shallow => {
                        "the recorded stack bytes end there (--stack keeps more of them), or there is no call frame \
                         information for this code here; give its image with --elf. Code that has none, or is made \
                         at run time, needs frame pointers (-fno-omit-frame-pointer)"
                    }
                    (true, _) => {
                        "there is no call frame information for this code here; give its image with --elf. Code that \
                         has none, or is made at run time, needs frame pointers (-fno-omit-frame-pointer)"
                    }
                    (false, true) => {
                        "the guest seems to lack frame pointers; record again with --stack, which keeps raw stack \
                         bytes for unwinding, or build it with -fno-omit-frame-pointer"
                    }
                    (false, false) => {
                        "the program seems to lack frame pointers; record again without --frame-pointers or --stack=0, \
                         so that raw stack bytes are kept for unwinding, or build it with -fno-omit-frame-pointer"
                    }
                };
                write!(f, "most stacks ({share}) end {end}: {remedy}")
            }
            Warning::StackBytesEnd { share, stack_bytes } => {
                write!(f, "{share} of the stacks end where the recorded stack bytes do: ")?;
                match stack_bytes {
                    None => f.write_str(
                        "record again with --stack, in place of any --frame-pointers or --stack=0, which keeps more \
                         of them",
                    ),
                    Some(bytes) if *bytes < KERNEL_STACK_BYTES => write!(
                        f,
                        "record again with --stack={}K",
                        KERNEL_STACK_BYTES.div_ceil(1024)
                    ),
                    Some(bytes) => write!(
                        f,
                        "{} KiB of a stack were recorded, and of a process the kernel gives no more than 64, and \
                         nothing of another stack that it goes on on (sigaltstack); most code built with \
                         -fno-omit-frame-pointer needs none",
                        bytes / 1024
                    ),
                }
            }
            Warning::SeparateTimes(why) => write!(f, "each recording is shown from 0 on: {why}"),
            Warning::TooManyCalls { calls, most } => write!(
                f,
                "{calls} calls are too many for markers, at most {most} are shown: select some (--from, --to, --vcpu, \
                 --focus), or export to perfetto"
            ),
            Warning::CountedAlike => f.write_str(
                "Perfetto counts samples, and these stand for different times, so its shares are wrong: -f pprof, \
                 -f speedscope and report --flame have right ones",
            ),
            Warning::ShortTimes { left_out, all } => write!(
                f,
                "{left_out} of {all} stacks are shorter than a microsecond and left out, and their time is added to \
                 others: -f json has nanoseconds"
            ),
            Warning::OtherHosts => f.write_str("hosts differ (--identify names them)"),
            Warning::Differ {
                what,
                sides: [a, b],
            } => write!(f, "{what} differ: {a} / {b}"),
            Warning::OtherLengths([a, b]) => write!(f, "lengths differ: {a:.1} s / {b:.1} s"),
            Warning::OtherLoad {
                unit,
                sides: [a, b],
            } => {
                let (what, more) = match unit {
                    Unit::Samples | Unit::Sampled => ("on-CPU samples", "was busier"),
                    Unit::OffCpu => ("time off CPU", "waited more"),
                    Unit::Calls => ("time in calls", "was busier"),
                    Unit::VcpuTime => ("wall time of vCPUs", "had more vCPUs"),
                };
                write!(
                    f,
                    "{what} a second differ: {a} / {b}; one side {more}, and shares say nothing about that"
                )
            }
            Warning::SingleRuns => f.write_str(
                "differences between runs of the same program are not measured but allowed for: give two or more \
                 recordings of each side",
            ),
            Warning::IncompleteSide { side, missing } => {
                write!(f, "{side} is incomplete: {missing}")
            }
            Warning::FewRows { side, rows, unit } => {
                let what = match unit {
                    // Of the time of vCPUs, those that it stands for.
                    Unit::Samples | Unit::Sampled | Unit::VcpuTime => "samples",
                    Unit::OffCpu => "waits",
                    Unit::Calls => "calls",
                };
                write!(f, "{side} has only {rows} {what}")
            }
            Warning::Unmatched([a, b]) => write!(
                f,
                "{:.1}% / {:.1}% of the samples are of functions that can't be matched across builds for lack of \
                 names: give images with --elf or --image-path",
                a * 100.0,
                b * 100.0
            ),
            Warning::UntimedCalls(count) => write!(
                f,
                "{count} calls are left out, since the traces don't say when they began"
            ),
        }
    }
}
