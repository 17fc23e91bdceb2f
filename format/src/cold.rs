//! Cold records: rarely written, and open to change (format-spec.md, section 6).
//!
//! They are serde types through bincode 2 (standard configuration) behind the block's encoding byte. The payload of a
//! block of records is a `Vec` of one record type; metadata is a list of sections, each with a tag and a length, so
//! that an old reader skips a new section.

mod modules;
mod spaces;

pub use modules::{Contents, MappedFile, Mapping, ModuleChange, ModuleEvent};
pub use spaces::{AddressSpace, FIRST_ROOT_SPACE, SpaceChange, SpaceEvent, space_of_root};

use crate::error::Fault;
use crate::layout::MAX_RECORDS_BYTES;
use crate::samples::{Arch, Task};
use crate::tags::tags;
use crate::varint::{self, Cursor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// bincode counts what it reads by its size in memory, at most eight bytes for one in the file; this
/// bounds the memory that a payload of the longest length can ask for.
const MOST_DECODED_BYTES: usize = 8 * MAX_RECORDS_BYTES;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MOST_DECODED_BYTES>()
}

/// Appends one record or list of records.
pub(crate) fn put<T: Serialize>(out: &mut Vec<u8>, record: &T) -> Result<(), Fault> {
    bincode::serde::encode_into_std_write(record, out, config())
        .map(drop)
        .map_err(|error| Fault::Record(error.to_string()))
}

/// Reads one record or list of records; bytes after it belong to a newer minor version.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    bincode::serde::decode_from_slice(bytes, config())
        .map(|(record, _)| record)
        .map_err(|error| Fault::Record(error.to_string()))
}

/// What was recorded, where and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The recording program.
    pub recorder: Recorder,
    /// The machine that it ran on.
    pub host: Host,
    /// The guest or process.
    pub target: Target,
    /// How samples were taken.
    pub sampling: Sampling,
    /// Further facts, in order: name and value, for people.
    pub notes: Vec<(String, String)>,
    /// What the cost of a sample measures; `None` where that is not known.
    pub cost: Option<Cost>,
}

/// The recording program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recorder {
    /// Name and version.
    pub program: String,
    /// Its arguments.
    pub command_line: Vec<String>,
}

/// The machine that the recorder ran on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Operating system and release.
    pub system: String,
    /// Processor model.
    pub processor: String,
    /// Processors online.
    pub processors: u32,
}

tags! {
    /// What kind of thing was recorded.
    #[derive(Default, Serialize, Deserialize)]
    TargetKind: u8 {
        /// Made up, by a test or benchmark.
        #[default]
        Synthetic = 0 "synthetic",
        /// A Linux process with its threads and children.
        Process = 1 "process",
        /// A Xen domain.
        XenDomain = 2 "xen-domain",
        /// A guest behind a gdb stub.
        GdbStub = 3 "gdb-stub",
        /// A QEMU guest found by QMP.
        Qemu = 4 "qemu",
        /// Converted from another tool's output.
        Imported = 5 "imported",
        /// A guest that samples itself, by the agent inside it.
        Agent = 6 "agent",
        /// A guest under KVM, found by its monitor's process.
        Kvm = 7 "kvm",
    }
}

/// Name of the note of a recording of calls whose lengths are not the guest's own, since breakpoints slow it down; the
/// value says why.
pub const SLOWED_CALLS: &str = "calls take too long";
/// Its values: of a guest that is known to be emulated, and of one that may be.
pub const SLOWED_CALLS_WHY: [&str; 2] = [
    "many times too long: the guest is emulated, an instruction at a time on pages with breakpoints",
    "if the guest is emulated (QEMU without KVM): an instruction at a time on pages with breakpoints",
];

impl TargetKind {
    /// Whether it is a guest: one that may restart, each time with another address space for its tasks.
    pub fn is_guest(self) -> bool {
        match self {
            Self::XenDomain | Self::GdbStub | Self::Qemu | Self::Agent | Self::Kvm => true,
            Self::Synthetic | Self::Process | Self::Imported => false,
        }
    }

    /// Who counts its processor time.
    pub fn counter(self) -> &'static str {
        match self {
            Self::XenDomain => "Xen",
            _ => "the kernel",
        }
    }
}

tags! {
    /// What the cost of a sample measures.
    #[derive(Serialize, Deserialize)]
    Cost: u8 {
        /// The guest or thread stood still.
        Freeze = 0 "freeze",
        /// The recorder worked while the target ran on.
        Work = 1 "work",
    }
}

/// The guest or process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// What kind of thing it is.
    pub kind: TargetKind,
    /// Process id, domid or 0.
    pub id: u64,
    /// Command or domain name.
    pub name: String,
    /// Instruction set.
    pub arch: Arch,
    /// vCPUs at the start, 0 where there are none.
    pub vcpus: u32,
}

impl Default for Target {
    fn default() -> Self {
        Target {
            kind: TargetKind::Synthetic,
            id: 0,
            name: String::new(),
            arch: Arch::X86_64,
            vcpus: 0,
        }
    }
}

/// How samples were taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sampling {
    /// Requested rate in thousandths of a hertz, per vCPU or thread.
    pub rate_millihertz: u64,
    /// What triggers a sample: `timer`, `cpu-clock`, `cycles`, …
    pub trigger: String,
    /// Most frames of a chain.
    pub most_frames: u32,
    /// Raw stack bytes asked for per sample, 0 for none.
    pub stack_bytes: u32,
    /// Whether only running vCPUs or threads are sampled.
    pub on_cpu_only: bool,
}

/// A vCPU or thread starts, gets a name, or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// When.
    pub time_ns: u64,
    /// Which.
    pub task: Task,
    /// What happened.
    pub what: TaskChange,
}

/// What happened to a vCPU or thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskChange {
    /// It was there, or came, under a name.
    Named(String),
    /// It ended.
    Ended,
}

/// Clocks read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockPair {
    /// The recording's monotonic clock, of which all times in the file are.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub realtime_ns: i64,
    /// The guest's clock or time-stamp counter, if known.
    pub guest: Option<u64>,
}

/// Samples that could not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Start of the interval in which it happened.
    pub first_ns: u64,
    /// End of that interval.
    pub last_ns: u64,
    /// vCPU or thread, where known.
    pub task: Option<Task>,
    /// Why.
    pub reason: LossReason,
    /// How many samples (for [`LossReason::EventsLost`], records; for [`LossReason::WaitsLost`], waits
    /// or records of them).
    pub count: u64,
}

tags! {
    /// Why samples could not be kept.
    #[derive(Serialize, Deserialize)]
    LossReason: u8 {
        /// The recorder's ring was full: the encoder or the disk was too slow.
        RingFull = 0 "ring-full",
        /// The kernel's buffer was full.
        KernelBuffer = 1 "kernel-buffer",
        /// Reading the guest failed.
        ReadFailed = 2 "read-failed",
        /// Deadlines passed before the sampler got to them.
        Deadline = 3 "deadline",
        /// Names or mappings were lost, so that some frames may lack their module.
        EventsLost = 4 "events-lost",
        /// The file was damaged and its sound parts were recovered.
        Damaged = 5 "damaged",
        /// Switches of threads were lost, so that waits around them have no known length.
        WaitsLost = 6 "waits-lost",
        /// Calls that could not be followed by breakpoints.
        CallsLost = 7 "calls-lost",
    }
}

impl LossReason {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            LossReason::RingFull => "dropped: the recorder's ring was full",
            LossReason::KernelBuffer => "dropped: the kernel's buffer was full",
            LossReason::ReadFailed => "failed to read the guest",
            LossReason::Deadline => "deadlines missed",
            LossReason::EventsLost => "names or mappings lost",
            LossReason::Damaged => "lost with damaged parts of the file",
            LossReason::WaitsLost => "waits of unknown length or records of them, left out",
            LossReason::CallsLost => "calls that breakpoints could not follow, or more",
        }
    }
}

/// Processor time that the kernel counted for a process in an interval, to be compared with its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessTime {
    /// Address space of the process: its id.
    pub space: u32,
    /// Start of the interval.
    pub first_ns: u64,
    /// End of it.
    pub last_ns: u64,
    /// Processor time of all threads of the process, ended ones included.
    pub own_ns: u64,
    /// Processor time of children that ended and were waited for in the interval, and of their children, unless they
    /// have records of their own.
    pub ended_ns: u64,
}

/// Code of a guest, copied from its memory near samples. It shows which image runs there and whether a given image is
/// the right one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// When it was read.
    pub time_ns: u64,
    /// Address space.
    pub space: u32,
    /// Address of the first byte.
    pub address: u64,
    /// The code, at most [`Code::MOST_BYTES`].
    pub bytes: Vec<u8>,
}

impl Code {
    /// Most bytes of a record.
    pub const MOST_BYTES: usize = 256;
    /// Code of a guest and of an image is compared in pieces of this many bytes.
    pub const PIECE_BYTES: usize = 64;
    /// A piece in which fewer bytes differ from their predecessors is not distinctive.
    const LEAST_CHANGES: usize = 16;

    /// The pieces with their addresses; the last may be shorter.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let bytes = &self.bytes[..self.bytes.len().min(Self::MOST_BYTES)];
        let pieces = bytes.chunks(Self::PIECE_BYTES).enumerate();
        pieces.map(|(number, piece)| {
            let into = (number * Self::PIECE_BYTES) as u64;
            (self.address.wrapping_add(into), piece)
        })
    }

    /// Whether a piece is distinctive enough to identify its place: padding is the same everywhere, and so are pages
    /// of an image that a hypervisor fills.
    pub fn is_telling(piece: &[u8]) -> bool {
        let changes = piece.windows(2).filter(|pair| pair[0] != pair[1]);
        changes.count() >= Self::LEAST_CHANGES
    }
}

/// Why and when the recording ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub time_ns: u64,
    /// Why, as a kind.
    pub reason: EndReason,
    /// Why, in words.
    pub message: String,
    /// Further totals, in order: name and value.
    pub totals: Vec<(String, u64)>,
}

/// The name of a total: for how long someone else had the guest paused, in nanoseconds.
pub const PAUSED_BY_OTHERS_NS: &str = "paused_by_others_ns";

/// The names of two totals: the processor time that a guest's vCPUs had by the count of Xen or of their host's kernel,
/// and the time that their running samples stand for, each the time since the sample before; in nanoseconds.
pub const COUNTED_TIME_NS: &str = "processor_time_counted_ns";
/// See [`COUNTED_TIME_NS`].
pub const SAMPLED_TIME_NS: &str = "processor_time_sampled_ns";

tags! {
    /// Why a recording ended.
    #[derive(Serialize, Deserialize)]
    EndReason: u8 {
        /// The time asked for was over.
        Duration = 0 "duration",
        /// Someone asked the recorder to stop.
        Stopped = 1 "stopped",
        /// The process or guest ended.
        TargetEnded = 2 "target-ended",
        /// The guest crashed.
        TargetCrashed = 3 "target-crashed",
        /// The source failed.
        SourceFailed = 4 "source-failed",
        /// Made by a converter, which reached the end of its input.
        InputEnded = 5 "input-ended",
        /// The file was cut before its end record, and recovered.
        Cut = 6 "cut",
    }
}

/// Tags of the sections of a metadata block.
const SECTION_RECORDER: u64 = 1;
const SECTION_HOST: u64 = 2;
const SECTION_TARGET: u64 = 3;
const SECTION_SAMPLING: u64 = 4;
const SECTION_NOTES: u64 = 5;
const SECTION_COST: u64 = 6;

impl Metadata {
    pub(crate) fn put(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        put_section(out, SECTION_RECORDER, &self.recorder)?;
        put_section(out, SECTION_HOST, &self.host)?;
        put_section(out, SECTION_TARGET, &self.target)?;
        put_section(out, SECTION_SAMPLING, &self.sampling)?;
        put_section(out, SECTION_NOTES, &self.notes)?;
        match &self.cost {
            Some(cost) => put_section(out, SECTION_COST, cost),
            None => Ok(()),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut metadata = Metadata::default();
        let mut cursor = Cursor::new(bytes, "metadata section");
        while !cursor.is_empty() {
            let tag = cursor.varint()?;
            let length = cursor.varint_up_to(bytes.len(), "a section fits into its block")?;
            let section = cursor.take(length)?;
            match tag {
                SECTION_RECORDER => metadata.recorder = parse(section)?,
                SECTION_HOST => metadata.host = parse(section)?,
                SECTION_TARGET => metadata.target = parse(section)?,
                SECTION_SAMPLING => metadata.sampling = parse(section)?,
                SECTION_NOTES => metadata.notes = parse(section)?,
                SECTION_COST => metadata.cost = Some(parse(section)?),
                _ => {}
            }
        }
        Ok(metadata)
    }
}

fn put_section<T: Serialize>(out: &mut Vec<u8>, tag: u64, section: &T) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    put(&mut bytes, section)?;
    varint::put(out, tag);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(&bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_whole_pieces_and_a_rest_up_to_the_most() {
        let pieces = |length: usize| {
            let code = Code {
                time_ns: 0,
                space: 0,
                address: u64::MAX - 63,
                bytes: vec![0; length],
            };
            let pieces = code.pieces().map(|(address, bytes)| (address, bytes.len()));
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(pieces(0), []);
        assert_eq!(pieces(100), [(u64::MAX - 63, 64), (0, 36)]);
        assert_eq!(pieces(256).len(), 4);
        assert_eq!(pieces(1000), pieces(256));
    }

    #[test]
    fn padding_tells_nothing() {
        let changing = |times: u8| {
            let mut piece = [0xcc; Code::PIECE_BYTES];
            (1..=times).for_each(|at| piece[64 - usize::from(at)] = at);
            Code::is_telling(&piece)
        };
        assert!(!changing(0));
        assert!(!changing(15));
        assert!(changing(16));
        assert!(!Code::is_telling(&[]));
    }
}
