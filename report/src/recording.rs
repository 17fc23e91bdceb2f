//! An open recording. Input: a file or a pipe. Output: all metadata, and the positions of the sample blocks.
//! Blocks are decoded later, one by one, so that memory doesn't grow with the recording.

mod error;
mod source;
mod spool;
mod monitor;
mod damages;
mod subject;
mod kept_blocks;
mod kept_names;
mod window;
mod intervals;
pub(crate) mod unit;
pub(crate) mod spaces;
pub(crate) mod guest_spaces;
pub(crate) mod tasks;
mod span_counts;
pub(crate) mod backwards;
pub(crate) mod rows;
pub(crate) mod survey;
pub(crate) mod processes;
pub(crate) mod warnings;
pub(crate) mod account;

pub use account::{Account, Selected};
pub use damages::Damages;
pub use error::{BlockError, RecordingError};
pub use intervals::{Interval, Intervals};
pub use kept_blocks::{LASTING_BYTES_MAX, PASSING_BYTES_MAX};
pub use spaces::{Module, Region, Spaces};
pub use span_counts::SpanCounts;
pub(crate) use subject::{first_word, last_part};
pub use survey::Survey;
pub use unit::{Unit, Weight};
pub use window::Window;

use crate::work;
use guest_spaces::GuestSpaces;
use monitor::MonitorBlockPlace;
use source::Source;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use tasks::TaskNames;
use uprof::cold::{
    ClockPair, Code, DAMAGED_PLACES, End, EndReason, Exits, HandledExit, Loss, Mapping, Metadata,
    ModuleEvent, ProcessTime, SpaceEvent, TargetKind, TaskEvent, VcpuTime,
};
use uprof::image::ImagePart;
use uprof::{Block, BlockPlace, Item, Payload, SampleBlock, SpanBlock, StreamReader};

/// The end record's total of imported samples without a time (format-spec.md, section 6.8).
pub(crate) const UNTIMED: &str = "samples_without_a_time";

/// The end record's total of imported spans without a time.
pub(crate) const SPANS_UNTIMED: &str = "spans_without_a_time";

/// The note that names the clock of an imported trace's times, and its relation to CLOCK_MONOTONIC
/// (format-spec.md, section 15.2).
pub(crate) const CLOCK: &str = "clock";
pub(crate) const MONOTONIC: &str = "monotonic";

/// An opened recording.
#[derive(Debug)]
pub struct Recording {
    name: String,
    source: Source,
    /// Whether its file belongs to this user or to root, or its bytes came from a recorder (`top -`, `push -`).
    is_ours: bool,
    uuid: Option<[u8; 16]>,
    start_ns: u64,
    /// The time of the last sample or span; 0 if there is none.
    last_ns: u64,
    metadata: Metadata,
    spaces: Spaces,
    tasks: TaskNames,
    guest_spaces: GuestSpaces,
    clocks: Vec<ClockPair>,
    losses: Vec<Loss>,
    times: Vec<ProcessTime>,
    vcpu_times: Vec<VcpuTime>,
    exits: Vec<Exits>,
    code: Vec<Code>,
    /// Mappings that [`Recording::assume_images`] found.
    assumed: Vec<ModuleEvent>,
    images: Vec<PlacedPart>,
    image_raw_bytes: u64,
    end: Option<End>,
    sizes: Sizes,
    damages: Damages,
    blocks: Vec<SampleBlockPlace>,
    span_blocks: Vec<SpanBlockPlace>,
    handled: Vec<HandledExit>,
    monitor_blocks: Vec<MonitorBlockPlace>,
    monitor: Option<Box<Recording>>,
}

/// A part of an embedded image, and the position of its block.
#[derive(Debug, Clone)]
pub(crate) struct PlacedPart {
    /// Position of its block in the file.
    pub place: BlockPlace,
    /// Its content.
    pub part: ImagePart,
}

/// Position of a block of samples, and what its header says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleBlockPlace {
    /// Offset of its header in the file (bytes).
    pub offset: u64,
    /// Its size in the file, with the header (bytes).
    pub bytes: u32,
    /// Number of samples.
    pub samples: u32,
    /// Earliest time (nanoseconds).
    pub first_ns: u64,
    /// Latest time (nanoseconds).
    pub last_ns: u64,
}

/// Position of a block of spans, and what its header says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanBlockPlace {
    /// Offset of its header in the file (bytes).
    pub offset: u64,
    /// Its size in the file, with the header (bytes).
    pub bytes: u32,
    /// Earliest start (nanoseconds).
    pub first_ns: u64,
    /// Latest end (nanoseconds).
    pub last_ns: u64,
}

/// Sizes of the parts of the file (bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The whole file.
    pub file_bytes: u64,
    /// Sample blocks, as stored.
    pub sample_bytes: u64,
    /// Sample blocks, decompressed.
    pub sample_raw_bytes: u64,
    /// Span blocks, as stored.
    pub span_bytes: u64,
    /// Span blocks, decompressed.
    pub span_raw_bytes: u64,
    /// Embedded images.
    pub image_bytes: u64,
    /// Number of intact blocks.
    pub blocks: u64,
}

/// Most bytes of embedded image parts. If a part is left out, the report shows offsets in place of names.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Most records of code for each boot of a guest; others are left out.
const CODES_MAX: usize = 128;
/// Most boots of a guest for which images are searched; a recorder follows no more.
pub(crate) const LIVES_MAX: usize = 64;
/// The total by which a boot began later than its recording; others have none.
pub(crate) const BEGUN_LATE_NS: &str = "boot_begun_late_ns";
/// The total by which the period became longer, to keep to `--max-overhead`.
const SLOWED_TO_NS: &str = "slowed_to_period_ns";

impl Recording {
    /// Opens the recording at `path`, or standard input for `-`.
    ///
    /// # Errors
    /// [`RecordingError`] if it can't be read, or isn't a recording that this version understands. Damage
    /// inside is not an error; see [`Recording::damages`].
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        if path == Path::new("-") {
            let input = std::io::stdin().lock();
            let redirected = input.as_fd().try_clone_to_owned().map(File::from);
            let is_ours = redirected.is_ok_and(|file| is_ours(&file));
            let source = Source::File(spool::spool(input)?);
            return Ok(Recording::load("standard input".into(), source, is_ours)?.with_monitor());
        }
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((is_stream(&file)?, file)));
        let (file, is_ours) = match opened {
            Ok((true, file)) => (spool::spool(file)?, false),
            Ok((false, file)) if is_of_perf(&file) => return Err(RecordingError::OfPerf { name }),
            Ok((false, file)) => {
                let is_ours = is_ours(&file);
                (file, is_ours)
            }
            Err(source) => return Err(RecordingError::Read { name, source }),
        };
        // What is unpacked from it, such as a monitor's recording, allows no more work or memory.
        crate::mapped::count(&file);
        Ok(Recording::load(name, Source::File(file), is_ours)?.with_monitor())
    }

    /// Opens a recording in memory; `name` is its name in messages.
    ///
    /// # Errors
    /// As for [`Recording::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, RecordingError> {
        Ok(Recording::load(name.to_owned(), Source::Owned(bytes), true)?.with_monitor())
    }

    fn load(name: String, source: Source, is_ours: bool) -> Result<Self, RecordingError> {
        let mut recording = Recording {
            name,
            source,
            is_ours,
            uuid: None,
            start_ns: u64::MAX,
            last_ns: 0,
            metadata: Metadata::default(),
            spaces: Spaces::default(),
            tasks: TaskNames::default(),
            guest_spaces: GuestSpaces::default(),
            clocks: Vec::new(),
            losses: Vec::new(),
            times: Vec::new(),
            vcpu_times: Vec::new(),
            exits: Vec::new(),
            code: Vec::new(),
            assumed: Vec::new(),
            images: Vec::new(),
            image_raw_bytes: 0,
            end: None,
            sizes: Sizes::default(),
            damages: Damages::default(),
            blocks: Vec::new(),
            span_blocks: Vec::new(),
            handled: Vec::new(),
            monitor_blocks: Vec::new(),
            monitor: None,
        };
        let mut cold = recording.scan()?;
        let whole_guest = recording.metadata.target.kind != TargetKind::Process;
        recording.guest_spaces = if whole_guest {
            let boots = recording.boot_begun_late_ns().is_some();
            GuestSpaces::new(cold.spaces, LIVES_MAX as u32, boots)
        } else {
            GuestSpaces::default()
        };
        // With one address space for each boot, roots of page tables distinguish nothing.
        if whole_guest && !recording.guest_spaces.are_several() {
            let guest = &recording.guest_spaces;
            let modules = cold.modules.iter_mut().map(|event| &mut event.space);
            let code = recording.code.iter_mut().map(|code| &mut code.space);
            modules
                .chain(code)
                .for_each(|space| *space = guest.life_of(*space));
        }
        let lives = recording.metadata.target.kind.is_guest();
        recording.spaces = Spaces::new(cold.modules, whole_guest)
            .of_lives(lives)
            .of_roots(recording.guest_spaces.lives());
        let mut tasks = cold.tasks;
        recording.shorten_command_lines(&mut tasks);
        recording.tasks = TaskNames::new(tasks);
        let samples = recording.blocks.iter().map(|block| block.first_ns);
        // Calls of a trace are imported in the order of their ends, so the first span in the file need not
        // have begun first.
        let spans = recording
            .span_blocks
            .iter()
            .filter(|block| block.last_ns > 0);
        let spans = spans.map(|block| block.first_ns).min();
        // The metadata are missing if their block is damaged. The start is then that of the first sample or
        // span.
        if recording.start_ns == u64::MAX {
            recording.start_ns = samples.chain(spans).min().unwrap_or(0);
        } else if recording.metadata.target.kind == TargetKind::Imported
            && let Some(first_ns) = spans
        {
            // The first span in the file may have no beginning at all.
            recording.start_ns = first_ns;
        }
        Ok(recording)
    }

    fn scan(&mut self) -> Result<ColdEvents, RecordingError> {
        // The source is put back below: the reader borrows it while `self` is filled.
        let source = std::mem::replace(&mut self.source, Source::Owned(Vec::new()));
        let scanned = self.scan_source(&source);
        self.source = source;
        scanned
    }

    fn scan_source(&mut self, source: &Source) -> Result<ColdEvents, RecordingError> {
        let name = self.name.clone();
        let reader = StreamReader::open_to_end(source.reader());
        let mut reader = reader.map_err(|source| RecordingError::Open { name, source })?;
        self.uuid = reader.uuid();
        let mut cold = ColdEvents::default();
        loop {
            let item = reader.next_item().map_err(|source| RecordingError::Read {
                name: self.name.clone(),
                source,
            })?;
            match item {
                Some(Item::Damage(damage)) => {
                    self.damages.add(&damage);
                }
                Some(Item::Block(block)) => self.take_block(&block, &mut cold)?,
                None => break,
            }
        }
        self.sizes.file_bytes = source.length();
        Ok(cold)
    }

    fn take_block(
        &mut self,
        block: &Block<'_>,
        cold: &mut ColdEvents,
    ) -> Result<(), RecordingError> {
        self.sizes.blocks += 1;
        if block.known_type() == Some(uprof::BlockType::Samples) {
            self.sizes.sample_bytes += block.file_bytes();
            self.sizes.sample_raw_bytes += u64::from(block.raw_bytes);
            self.last_ns = self.last_ns.max(block.last_ns);
            self.blocks.push(SampleBlockPlace {
                offset: block.offset,
                bytes: block.file_bytes() as u32,
                samples: block.samples,
                first_ns: block.first_ns,
                last_ns: block.last_ns,
            });
            return Ok(());
        }
        if block.known_type() == Some(uprof::BlockType::Spans) {
            self.sizes.span_bytes += block.file_bytes();
            self.sizes.span_raw_bytes += u64::from(block.raw_bytes);
            self.last_ns = self.last_ns.max(block.last_ns);
            self.span_blocks.push(SpanBlockPlace {
                offset: block.offset,
                bytes: block.file_bytes() as u32,
                first_ns: block.first_ns,
                last_ns: block.last_ns,
            });
            return Ok(());
        }
        if block.known_type() == Some(uprof::BlockType::Monitor) {
            self.monitor_blocks.push(MonitorBlockPlace {
                offset: block.offset,
                bytes: block.file_bytes() as u32,
                raw_bytes: block.raw_bytes,
            });
            return Ok(());
        }
        match work::payload(block) {
            Ok(Payload::Metadata(metadata)) => {
                self.metadata = metadata;
                self.start_ns = block.first_ns;
            }
            Ok(Payload::Tasks(events)) => cold.tasks.extend(events),
            Ok(Payload::Modules(events)) => cold.modules.extend(events),
            Ok(Payload::Clocks(pairs)) => self.clocks.extend(pairs),
            Ok(Payload::Losses(losses)) => self.losses.extend(losses),
            Ok(Payload::Times(times)) => self.times.extend(times),
            Ok(Payload::VcpuTimes(times)) => self.vcpu_times.extend(times),
            Ok(Payload::Exits(exits)) => self.exits.extend(exits),
            Ok(Payload::Code(code)) => {
                for code in code {
                    // The total is checked first, so that invented address spaces can't grow the map of
                    // counts without limit.
                    if self.code.len() < CODES_MAX * LIVES_MAX {
                        let of_life = cold.codes.entry(code.space).or_insert(0);
                        *of_life += 1;
                        self.code.extend((*of_life <= CODES_MAX).then_some(code));
                    }
                }
            }
            Ok(Payload::Spaces(events)) => cold.spaces.extend(events),
            Ok(Payload::Image(part)) => {
                self.sizes.image_bytes += block.file_bytes();
                self.image_raw_bytes += u64::from(block.raw_bytes);
                if self.image_raw_bytes <= IMAGE_BYTES_MAX {
                    self.images.push(PlacedPart {
                        place: block.place(),
                        part,
                    });
                }
            }
            Ok(Payload::End(end)) => self.end = Some(end),
            Ok(Payload::Unknown(_)) => self.damages.unknown_blocks += 1,
            Ok(Payload::Handled(handled)) => self.handled.extend(handled),
            Ok(Payload::Samples(_) | Payload::Spans(_) | Payload::Monitor(_)) => {}
            // An unknown block that is marked as critical must not be ignored: it could change the meaning
            // of others.
            Err(error) if block.known_type().is_none() => {
                return Err(RecordingError::Critical {
                    name: self.name.clone(),
                    source: error,
                });
            }
            Err(error) => self.damages.undecodable.push(error.to_string()),
        }
        Ok(())
    }

    /// Decodes the samples of a block.
    ///
    /// # Errors
    /// [`BlockError`], with the block's position.
    pub fn samples(&self, place: &SampleBlockPlace) -> Result<SampleBlock, BlockError> {
        match self.payload(place.offset, place.bytes)? {
            Payload::Samples(samples) => Ok(samples),
            _ => Err(BlockError::Changed {
                offset: place.offset,
            }),
        }
    }

    /// Decodes the spans of a block.
    ///
    /// # Errors
    /// [`BlockError`], with the block's position.
    pub fn spans(&self, place: &SpanBlockPlace) -> Result<SpanBlock, BlockError> {
        match self.payload(place.offset, place.bytes)? {
            Payload::Spans(spans) => Ok(spans),
            _ => Err(BlockError::Changed {
                offset: place.offset,
            }),
        }
    }

    fn payload(&self, offset: u64, bytes: u32) -> Result<Payload, BlockError> {
        let bytes = self.source.read(offset, bytes as usize);
        let bytes = bytes.map_err(|source| BlockError::Read {
            name: self.name.clone(),
            source,
        })?;
        let block = Block::at(offset, &bytes).ok_or(BlockError::Changed { offset })?;
        Ok(work::payload(&block)?)
    }

    /// The recording's name in messages: its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// UUID of the recording; `None` if the preamble is damaged.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// The start of the recording, in nanoseconds of its monotonic clock.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The end of the recording: the end record's time, else that of the last sample or span.
    pub fn end_ns(&self) -> u64 {
        let end = self.end.as_ref().map(|end| end.time_ns);
        end.unwrap_or(self.last_ns).max(self.start_ns)
    }

    /// Whether it was made on this machine, which has not been rebooted since, and is in a file of this user or of
    /// root: every user of a machine can write its mark. Its paths are then trusted.
    pub fn is_made_here(&self) -> bool {
        let mut notes = self.metadata().notes.iter();
        let made_on = notes.find(|(name, _)| name == uprof::machine::MADE_ON);
        self.is_ours
            && made_on.is_some_and(|(_, mark)| uprof::machine::mark().as_deref() == Some(mark))
    }

    /// The duration in seconds; 0 if it is unknown, see [`Recording::is_timed`].
    pub fn seconds(&self) -> f64 {
        if self.is_timed() {
            (self.end_ns() - self.start_ns) as f64 / 1e9
        } else {
            0.0
        }
    }

    /// Whether its samples have times: imported ones may only have an order.
    pub fn is_timed(&self) -> bool {
        let totals = self.end.as_ref().map_or(&[][..], |end| &end.totals);
        !totals
            .iter()
            .any(|(name, _)| name == UNTIMED || name == SPANS_UNTIMED)
    }

    /// Start of the recording in nanoseconds since 1970-01-01 00:00 UTC, if it has a pair of clock values.
    pub fn start_realtime_ns(&self) -> Option<i64> {
        // Later, the wall clock may have been set, or the machine may have slept.
        let is_before = |pair: &&ClockPair| pair.monotonic_ns <= self.start_ns;
        let before = self.clocks.iter().filter(is_before);
        let last = before.max_by_key(|pair| pair.monotonic_ns);
        let pair = last.or(self.clocks.first())?;
        let behind = pair.monotonic_ns.wrapping_sub(self.start_ns) as i64;
        Some(pair.realtime_ns.wrapping_sub(behind))
    }

    /// Whether its times are those of CLOCK_MONOTONIC on the machine that recorded it.
    pub(crate) fn is_monotonic(&self) -> bool {
        let clock = self.metadata.notes.iter().find(|(name, _)| name == CLOCK);
        match clock {
            Some((_, clock)) => clock == MONOTONIC,
            None => self.metadata.target.kind != TargetKind::Imported,
        }
    }

    /// The target, the host and the method of recording.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The mappings of images over time.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// The address spaces of a guest.
    pub(crate) fn guest_spaces(&self) -> &GuestSpaces {
        &self.guest_spaces
    }

    /// Names of vCPUs or threads.
    pub(crate) fn tasks(&self) -> &TaskNames {
        &self.tasks
    }

    /// Samples that were lost, by reason.
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// How much later than the recording its first boot began (nanoseconds); `None` of a guest that ran already.
    pub(crate) fn boot_begun_late_ns(&self) -> Option<u64> {
        self.total(BEGUN_LATE_NS)
    }

    /// The time between two samples (nanoseconds): as it was asked for, or longer to keep to `--max-overhead`; `None`
    /// if neither is known.
    pub(crate) fn period_ns(&self) -> Option<u64> {
        let asked_ns = 1_000_000_000_000_u64.checked_div(self.metadata.sampling.rate_millihertz);
        self.total(SLOWED_TO_NS).max(asked_ns)
    }

    /// A total of the end record.
    fn total(&self, wanted: &str) -> Option<u64> {
        let mut totals = self.end.iter().flat_map(|end| &end.totals);
        let found = totals.find(|(name, _)| name == wanted);
        found.map(|(_, value)| *value)
    }

    /// Whether it says where the wall time of vCPUs went.
    pub fn has_vcpu_times(&self) -> bool {
        !self.vcpu_times().is_empty()
    }

    /// Wall time of vCPUs, by interval and place.
    pub(crate) fn vcpu_times(&self) -> &[VcpuTime] {
        &self.vcpu_times
    }

    /// Exits of vCPUs, by interval and cause.
    pub(crate) fn exits(&self) -> &[Exits] {
        &self.exits
    }

    /// The place of the instruction that caused exits, if it is known.
    pub(crate) fn place_of_exits(&self, exits: &Exits) -> Option<spaces::Place> {
        let address = exits.cause.address?;
        Some(self.spaces.place(exits.task.space, exits.first_ns, address))
    }

    /// What vCPUs' threads handled when the monitor's recording has a sample of them.
    pub(crate) fn handled(&self) -> &[HandledExit] {
        &self.handled
    }

    /// Processor time as the kernel counted it, by process.
    pub(crate) fn times(&self) -> &[ProcessTime] {
        &self.times
    }

    /// Pieces of the guest's code (format-spec.md, section 6.10).
    pub(crate) fn code(&self) -> &[Code] {
        &self.code
    }

    /// Adds a mapping that the file doesn't have, valid from the start.
    pub(crate) fn add_mapping(&mut self, space: u32, mapping: Mapping) {
        self.spaces.assume(space, &mapping);
        self.assumed
            .push(ModuleEvent::mapped(self.start_ns, space, mapping));
    }

    /// Mappings that the file doesn't have, for images that were found.
    pub(crate) fn assumed(&self) -> &[ModuleEvent] {
        &self.assumed
    }

    /// Parts of embedded images (format-spec.md, section 7).
    pub(crate) fn images(&self) -> &[PlacedPart] {
        &self.images
    }

    /// Descriptions of the parts of embedded images that can't be read.
    pub(crate) fn damaged_sections(&self) -> impl Iterator<Item = String> {
        self.images.iter().flat_map(|PlacedPart { place, part }| {
            let faults = part.faults();
            faults.map(|fault| place.error(fault).to_string())
        })
    }

    /// The end record; `None` if the recording was truncated.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether its recorder wrote no end: it was killed, or the file was truncated. The end record of what was
    /// recovered or bundled of it says so.
    pub fn was_cut(&self) -> bool {
        let end = self.end.as_ref();
        end.is_none_or(|end| end.reason == EndReason::Cut)
    }

    /// The number of damaged places of the file that it was recovered from, and of those that this one was.
    pub fn recovered_places(&self) -> u64 {
        let totals = self.end.iter().flat_map(|end| &end.totals);
        let places = totals.filter(|(name, _)| name == DAMAGED_PLACES);
        places.fold(0_u64, |sum, (_, places)| sum.saturating_add(*places))
    }

    /// Sizes of the file's parts (bytes).
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The parts of the file that could not be read.
    pub fn damages(&self) -> &Damages {
        &self.damages
    }

    /// A reader of the whole file.
    pub(crate) fn reader(&self) -> Box<dyn io::Read + '_> {
        self.source.reader()
    }

    /// Its sample blocks, in file order.
    pub fn blocks(&self) -> &[SampleBlockPlace] {
        &self.blocks
    }

    /// Its span blocks, in file order.
    pub fn span_blocks(&self) -> &[SpanBlockPlace] {
        &self.span_blocks
    }
}

#[derive(Default)]
struct ColdEvents {
    tasks: Vec<TaskEvent>,
    modules: Vec<ModuleEvent>,
    spaces: Vec<SpaceEvent>,
    /// Number of records of code, by address space.
    codes: HashMap<u32, usize>,
}

/// The first bytes of perf's own recordings (tools/perf/util/header.c).
pub const PERF_MAGIC: [u8; 8] = *b"PERFILE2";

fn is_of_perf(file: &File) -> bool {
    let mut first = [0; PERF_MAGIC.len()];
    file.read_exact_at(&mut first, 0).is_ok() && first == PERF_MAGIC
}

/// Whether a file can be read only once, from start to end.
fn is_stream(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    let kind = file.metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_char_device() || kind.is_socket())
}

/// Whether it is a file of this user or of root. Through a pipe comes what anybody wrote.
fn is_ours(file: &File) -> bool {
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file);
    let owner = found.map(|found| found.uid());
    owner.is_some_and(|owner| owner == 0 || Some(owner) == effective_uid())
}

/// The effective user id of this process, from the four of proc_pid_status(5).
fn effective_uid() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::Writer;

    /// A recording at 100 Hz that began at 1000 ns, with these pairs of clocks and this total.
    fn recorded(pairs: &[(u64, i64)], (name, value): (&str, u64)) -> Recording {
        let mut metadata = Metadata::default();
        metadata.sampling.rate_millihertz = 100_000;
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1000).unwrap();
        for &(monotonic_ns, realtime_ns) in pairs {
            let pair = ClockPair {
                monotonic_ns,
                realtime_ns,
                guest: None,
            };
            writer.clocks(&[pair]).unwrap();
        }
        let end = End {
            time_ns: 9000,
            reason: EndReason::Stopped,
            message: String::new(),
            totals: vec![(name.to_owned(), value)],
        };
        Recording::from_bytes("made", writer.finish(&end).unwrap()).unwrap()
    }

    #[test]
    fn the_start_is_dated_by_the_last_pair_of_clocks_before_it() {
        let started = |pairs: &[(u64, i64)]| recorded(pairs, ("", 0)).start_realtime_ns();
        // The clock was set before, and after.
        let set = [(100, 5100), (900, 70_900), (2000, 42_000)];
        assert_eq!(started(&set), Some(71_000));
        assert_eq!(started(&set[2..]), Some(41_000));
        assert_eq!(started(&[]), None);
    }

    #[test]
    fn the_period_is_the_one_that_the_overhead_limit_led_to() {
        let period_ns = |total| recorded(&[], total).period_ns();
        assert_eq!(period_ns(("samples", 7)), Some(10_000_000));
        assert_eq!(period_ns((SLOWED_TO_NS, 25_000_000)), Some(25_000_000));
    }
}
