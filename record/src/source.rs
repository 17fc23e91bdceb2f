//! The interface of a backend.
//!
//! There are two kinds of backends. A [`StopWorld`] source (Xen, gdb stub, ptrace) freezes the guest and provides
//! every vCPU's registers in one step; [`Frozen`] resumes it when dropped. A [`Pushed`] source (perf_event) gets its
//! samples from the kernel. Both fill the same [`Slot`](crate::source::slot::Slot)s. A backend states its limits in its
//! [`Facts`] at the start; the loop never has to discover them.
//!
//! The submodules are what backends share with the threads of a recording: samples on their way to the encoder
//! (`slot`, `ring`), the schedule of several guests of one process (`schedule`), the request to stop and the counters
//! (`control`), the exits that samples of a monitor belong to (`handled`), the user's request (`plan`), and the results
//! of an examination (`doctor`). [`call_source`] is the interface of a guest whose calls are followed.

pub mod slot;
pub mod ring;
pub mod handled;
pub mod schedule;
pub mod control;
pub mod call_source;
pub mod plan;
pub mod doctor;

use crate::elf::Image;
use crate::source::handled::HandledExits;
use crate::source::plan::Plan;
use crate::source::ring::Sink;
use crate::source::schedule::{PeriodSlot, Turn};
use crate::sys::bell::Bell;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::Event;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use uprof::cold::{
    ClockPair, Exits, Loss, MappedFile, ModuleEvent, ProcessTime, Target, TaskEvent, VcpuTime,
    space_of_root,
};
use uprof::cpu::is_kernel_address;
use uprof::{Details, Frame, ImagePart, Registers, State, Task};

/// A backend's description of itself and its guest.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The guest or process, as stored in the recording.
    pub target: Target,
    /// The event that triggers a sample: `timer`, `cpu-clock`, `cycles`, …
    pub trigger: String,
    /// Whether samples of blocked vCPUs or threads are left out.
    pub on_cpu_only: bool,
    /// Whether a sample freezes the guest, so that its cost is freeze time.
    pub freezes: bool,
    /// Whether each thread has a sampling period of its own, so that shorter-lived ones are never sampled.
    pub per_thread: bool,
    /// Where processor time is counted: why samples may not account for all of it, and what helps.
    pub missed_time: Option<&'static str>,
    /// Most stack bytes of a sample, where the backend has another limit than the plan.
    pub stack_bytes: Option<u32>,
    /// Further facts for the recording: name and value.
    pub notes: Vec<(String, String)>,
    /// Warnings for the user, a sentence each.
    pub warnings: Vec<String>,
    /// vCPUs or threads at the start.
    pub tasks: Vec<TaskEvent>,
    /// Mappings at the start.
    pub modules: Vec<ModuleEvent>,
    /// Images given for a guest. An image becomes a module where the guest's code matches it.
    pub images: Arc<[Image]>,
}

/// A backend with its parts.
pub struct Source {
    /// The part that the sampler thread drives.
    pub hot: Hot,
    /// The part that the encoder thread asks for changes; `None` if the hot part reports all of them.
    pub observer: Option<Box<dyn Observer>>,
    /// The part that identifies mapped files; `None` for guests, which have their own images and kernel.
    pub namer: Option<Box<dyn Namer>>,
    /// The guest's monitor, if it is to be recorded as well.
    pub monitor: Option<MonitorSource>,
    /// Where the observer says what vCPUs' threads handle, for the samples of the monitor.
    pub handled: Option<HandledExits>,
    /// Warnings beside those of the hot part's facts.
    pub warnings: Vec<String>,
}

/// The monitor of a guest, as a process.
pub struct MonitorSource {
    /// Its source.
    pub source: Box<Source>,
    /// How to record it.
    pub plan: Plan,
}

impl Source {
    /// A backend with only a hot part.
    pub fn of(hot: Hot) -> Source {
        Source {
            hot,
            observer: None,
            namer: None,
            monitor: None,
            handled: None,
            warnings: Vec::new(),
        }
    }
}

/// The part of a backend that the sampler thread drives.
pub enum Hot {
    /// The sampler sets the pace.
    StopWorld(Box<dyn StopWorld>),
    /// The kernel sets the pace.
    Pushed(Box<dyn Pushed>),
}

impl Facts {
    /// Facts of a target that is frozen by a timer for each sample; everything else has its default.
    pub fn new(target: Target) -> Facts {
        Facts {
            target,
            trigger: "timer".into(),
            on_cpu_only: false,
            freezes: true,
            per_thread: false,
            missed_time: None,
            stack_bytes: None,
            notes: Vec::new(),
            warnings: Vec::new(),
            tasks: Vec::new(),
            modules: Vec::new(),
            images: Arc::default(),
        }
    }
}

impl Hot {
    /// The backend's description of itself.
    pub fn facts(&self) -> &Facts {
        match self {
            Hot::StopWorld(source) => source.facts(),
            Hot::Pushed(source) => source.facts(),
        }
    }

    /// The backend's counts: name and number.
    pub fn totals(&self) -> Vec<(String, u64)> {
        match self {
            Hot::StopWorld(source) => source.totals(),
            Hot::Pushed(source) => source.totals(),
        }
    }
}

/// Observes changes of the guest that no sample shows. Runs off the hot path.
pub trait Observer: Send {
    /// Returns the changes since the last call. May allocate and take time.
    fn look(&mut self, now_ns: u64) -> Observations;

    /// Takes note that an address space has had other mappings since `time_ns`, so that all are to be told again.
    fn replaced(&mut self, space: u32, time_ns: u64) {
        let _ = (space, time_ns);
    }

    /// Events whose ring buffers it reads. When the kernel has filled one to its watermark, [`Observer::poll`] is due.
    fn events(&self) -> Vec<Arc<Event>> {
        Vec::new()
    }

    /// Reads what can't wait until the next look: `is_filled` says that there is much in a ring buffer. Returns how
    /// long the next call may wait otherwise.
    fn poll(&mut self, is_filled: bool) -> Duration {
        let _ = is_filled;
        Duration::MAX
    }

    /// Processor time that the kernel counted since the last call; `None` if it is not read. Called when sampling
    /// begins, when it has ended (`last`), and by [`Observer::look`].
    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        let _ = last;
        None
    }

    /// What was seen since the last look. Called once, when sampling has ended.
    fn end(&mut self) -> Observations {
        Observations::default()
    }
}

/// What an [`Observer`] saw.
#[derive(Debug, Default)]
pub struct Observations {
    /// vCPUs or threads that appeared, got a name, or ended.
    pub tasks: Vec<TaskEvent>,
    /// Images mapped or gone.
    pub modules: Vec<ModuleEvent>,
    /// Processor time that the kernel counted; `None` if it was not read.
    pub times: Option<Vec<ProcessTime>>,
    /// The guest's clock beside ours.
    pub clocks: Vec<ClockPair>,
    /// Where the wall time of vCPUs went.
    pub vcpu_times: Vec<VcpuTime>,
    /// Exits of vCPUs.
    pub exits: Vec<Exits>,
    /// What was lost of both, or of samples.
    pub losses: Vec<Loss>,
}

impl Observations {
    /// Adds later ones.
    pub fn join(&mut self, later: Observations) {
        let Observations {
            tasks,
            modules,
            times,
            clocks,
            vcpu_times,
            exits,
            losses,
        } = later;
        self.tasks.extend(tasks);
        self.modules.extend(modules);
        if let Some(times) = times {
            self.times.get_or_insert_default().extend(times);
        }
        self.clocks.extend(clocks);
        self.vcpu_times.extend(vcpu_times);
        self.exits.extend(exits);
        self.losses.extend(losses);
    }
}

/// Identifies mapped files, and names code that is in no file. The encoder thread calls it, and waits for it only at
/// the end.
pub trait Namer: Send {
    /// Begins a recording. Returns the mappings of all address spaces.
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent;

    /// Remembers the addresses of a sample, so that their code can be named.
    fn see(&mut self, chain: &[Frame]);

    /// Remembers the address of a sample that was taken in the guest of process `pid`.
    fn see_guest(&mut self, time_ns: u64, pid: u32, address: u64) {
        let _ = (time_ns, pid, address);
    }

    /// Requests the completion of an event; [`Namer::answer`] returns it later. Returns the event itself if it can't
    /// be completed.
    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent>;

    /// Returns the results since the last call; with `last`, waits for outstanding ones.
    fn answer(&mut self, last: bool) -> NamerAnswer;
}

/// Results of a [`Namer`].
#[derive(Debug, Default)]
pub struct NamerAnswer {
    /// Events, completed as far as possible.
    pub modules: Vec<ModuleEvent>,
    /// Tables of code that is in no file.
    pub parts: Vec<ImagePart>,
    /// Number of functions without names for lack of room.
    pub lost: u64,
    /// At the end: the files that were mapped.
    pub held: Vec<HeldImage>,
}

/// A file that was mapped, opened while the mapping existed.
#[derive(Debug, Clone)]
pub struct HeldImage {
    /// Path as in the mappings.
    pub path: String,
    /// Build-id, empty if it has none.
    pub build_id: Vec<u8>,
    /// Device, inode and so on, as the mapping gave them.
    pub file: Option<MappedFile>,
    /// The file.
    pub opened: Arc<File>,
}

/// The state of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// The guest exists.
    Alive,
    /// The guest ended normally; the text says how.
    Ended(String),
    /// The guest crashed; the text says how.
    Crashed(String),
}

/// A guest that is sampled while all of it is frozen: paused, read and resumed. What a source doesn't know of the
/// outcome of a freeze or of the guest's page tables, it leaves to the defaults.
///
/// Between [`StopWorld::freeze`] and [`StopWorld::resume`] the guest waits. Neither they nor [`StopWorld::read`] may
/// allocate, lock or wait for anything but the guest.
pub trait StopWorld: Send {
    /// The backend's description of itself.
    fn facts(&self) -> &Facts;

    /// Checks, while the guest runs, that it may be frozen: that the guardian, which would resume it after an
    /// accident, still works.
    ///
    /// # Errors
    /// Says why the guest must not be frozen any more.
    fn may_freeze(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Lets a guest that was opened before its first instruction begin. Called once, before the first freeze.
    ///
    /// # Errors
    /// Says why it can't begin.
    fn begin(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Freezes the guest and reads the registers of all vCPUs in one step.
    ///
    /// `vcpus` is empty when this is called, at `now_ns`. On an error the guest must be running again.
    ///
    /// # Errors
    /// Says why the guest could not be frozen or read.
    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError>;

    /// Reads memory of the frozen guest as `vcpu` sees it, from guest virtual address `address` upwards. Returns the
    /// number of bytes read: fewer than requested where memory is missing.
    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize;

    /// Whether [`StopWorld::read`] also reads memory of a running guest, with the vCPUs of the last freeze.
    fn reads_running(&self) -> bool {
        false
    }

    /// Resumes the guest. Called once after each successful freeze, even while a panic unwinds.
    ///
    /// # Errors
    /// Says why the guest may still be frozen.
    fn resume(&mut self) -> Result<(), SourceError>;

    /// Completes the vCPUs of the last freeze when the guest runs again: adds registers that `freeze` left out because
    /// nobody needs them during the pause. `freeze` must have provided instruction, stack and frame pointer.
    fn complete(&mut self, vcpus: &mut Vcpus) {
        let _ = vcpus;
    }

    /// When [`StopWorld::resume`] resumed the guest, as [`monotonic_ns`] counts, if the call that does so may return
    /// much later: the kernel may run the guest on the caller's processor, for as long as its scheduler sees fit.
    /// `None`: when that call returned.
    fn resumed_ns(&self) -> Option<u64> {
        None
    }

    /// Whether `vcpu` may have run between [`StopWorld::freeze`] and [`StopWorld::resume`]. It may if the source
    /// doesn't freeze its guest ([`Facts::freezes`]), or if the guardian resumed it.
    fn has_moved(&self, vcpu: &Vcpu) -> bool {
        let _ = vcpu;
        false
    }

    /// Whether someone else had paused the guest before the last freeze, so that the source left it alone and paused
    /// nothing.
    fn was_left_alone(&self) -> bool {
        false
    }

    /// The physical address of guest virtual address `address` by the page tables that `vcpu` had at the last freeze;
    /// `None` if it is not mapped, or if the backend doesn't read page tables.
    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64> {
        let _ = (vcpu, address);
        None
    }

    /// The address at which `vcpu` sees the page tables of the kernel's half, where that half has tables of its own
    /// (AArch64); `None` if they are not mapped. Searches for them, so it must not be called while the guest is frozen.
    fn kernel_tables(&mut self, vcpu: &Vcpu) -> Option<u64> {
        let _ = vcpu;
        None
    }

    /// The slot of a guest that must not be paused while certain others are; `None` if it needs none.
    fn period_slot(&self) -> Option<Arc<PeriodSlot>> {
        None
    }

    /// Checks whether the guest still exists, and sends events. Called between samples, and when a signal woke the
    /// sampler. Must not allocate.
    ///
    /// # Errors
    /// Says why sampling can't go on.
    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError>;

    /// Lets go of a guest that needs the sampler even between samples, as it may take a minute to write what is left.
    /// Called again and again after the last sample, until all is written. Must be cheap once nothing is left to do.
    fn release(&mut self) {}

    /// Totals for the end of the recording, such as round trips or hypercalls: name and count.
    fn totals(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A guest whose samples the kernel takes.
pub trait Pushed: Send {
    /// The backend's description of itself.
    fn facts(&self) -> &Facts;

    /// Starts sampling.
    ///
    /// # Errors
    /// Says why sampling can't be started.
    fn start(&mut self) -> Result<(), SourceError>;

    /// Ends [`Pushed::wait`] when `bell` rings, if the source can.
    fn listen(&mut self, bell: Arc<Bell>) {
        let _ = bell;
    }

    /// Waits until enough samples have come to drain them, a signal came or `timeout_ms` passed.
    ///
    /// # Errors
    /// Says why waiting failed.
    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError>;

    /// Fills slots with the samples that have come. Must not allocate.
    ///
    /// # Errors
    /// Says why sampling can't go on.
    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError>;

    /// Called once after the last drain: ends what is unfinished. Must not allocate.
    fn finish(&mut self, _: &mut Sink) {}

    /// Totals for the end of the recording: name and count.
    fn totals(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// One vCPU of a frozen guest.
#[derive(Debug, Clone, Copy)]
pub struct Vcpu {
    /// The vCPU's number and address space.
    pub task: Task,
    /// What it was doing before the freeze.
    pub state: State,
    /// Its registers; empty if it is offline or its registers are not needed.
    pub registers: Registers,
    /// A number for the backend's own use: an index or a process id.
    pub handle: u64,
    /// Its details, as far as the backend knows them; the sampler adds cost and delay.
    pub details: Details,
}

impl Vcpu {
    /// The address space of `address`: the upper half is shared by all address spaces of a guest.
    pub fn space_of(&self, address: u64) -> u32 {
        match self.details.root {
            Some(root) if !is_kernel_address(address) => space_of_root(self.task.space, root),
            _ => self.task.space,
        }
    }
}

/// The vCPUs of one freeze. Never exceeds its initial capacity.
#[derive(Debug)]
pub struct Vcpus {
    /// The vCPUs of this freeze, and behind them entries that earlier freezes used.
    all: Vec<Vcpu>,
    count: usize,
    left_out: u64,
    missed: u64,
}

impl Vcpus {
    /// Most vCPUs or threads in one freeze.
    pub const MOST: usize = 1024;

    /// Room for [`Vcpus::MOST`].
    pub fn new() -> Self {
        Vcpus {
            all: Vec::with_capacity(Self::MOST),
            count: 0,
            left_out: 0,
            missed: 0,
        }
    }

    /// Counts a vCPU that runs and has no sample in this freeze, as it could not be stopped in time.
    pub fn miss(&mut self) {
        self.missed += 1;
    }

    /// Number of those.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Whether the freeze found no vCPU to sample.
    pub fn are_absent(&self) -> bool {
        self.count == 0 && self.missed == 0
    }

    /// Adds a vCPU. One beyond the capacity is counted and left out.
    pub fn push(&mut self, vcpu: Vcpu) {
        if let Some(place) = self.add(vcpu.task, vcpu.state) {
            *place = vcpu;
        }
    }

    /// Adds a vCPU without registers and details, which the caller fills in place, so that nothing large is copied
    /// while the guest is frozen. Returns `None` beyond the capacity, which is counted.
    #[inline]
    pub fn add(&mut self, task: Task, state: State) -> Option<&mut Vcpu> {
        if self.count >= self.all.len() && !self.grow() {
            return None;
        }
        let vcpu = &mut self.all[self.count];
        self.count += 1;
        (vcpu.task, vcpu.state, vcpu.handle) = (task, state, 0);
        vcpu.registers.clear();
        vcpu.details = Details::default();
        Some(vcpu)
    }

    /// Makes an entry for another vCPU; `false` beyond the capacity.
    #[cold]
    fn grow(&mut self) -> bool {
        let has_room = self.count < Self::MOST;
        if has_room {
            self.all.push(Vcpu {
                task: Task { space: 0, vcpu: 0 },
                state: State::Offline,
                registers: Registers::default(),
                handle: 0,
                details: Details::default(),
            });
        } else {
            self.left_out += 1;
        }
        has_room
    }

    /// Removes all; returns how many were left out.
    pub fn clear(&mut self) -> u64 {
        (self.count, self.missed) = (0, 0);
        std::mem::take(&mut self.left_out)
    }

    /// The vCPUs.
    pub fn all(&self) -> &[Vcpu] {
        &self.all[..self.count]
    }

    /// The vCPUs, to be completed.
    pub fn all_mut(&mut self) -> &mut [Vcpu] {
        &mut self.all[..self.count]
    }
}

impl Default for Vcpus {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads page by page with `read`. Needed for memory whose ranges can't be read at all if a part is missing.
pub(crate) fn by_page(
    address: u64,
    into: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> usize,
) -> usize {
    const PAGE_BYTES: usize = 4096;
    let mut done = 0;
    while done < into.len() {
        let at = address.wrapping_add(done as u64);
        let end = into.len().min(done + PAGE_BYTES - at as usize % PAGE_BYTES);
        let read = read(at, &mut into[done..end]);
        done += read;
        if done < end {
            break;
        }
    }
    done
}

/// A frozen guest. Dropping it resumes the guest.
pub struct Frozen<'a> {
    source: &'a mut dyn StopWorld,
    resumed: bool,
    /// When it was frozen.
    pub since_ns: u64,
    /// Dropped when the guest runs again, which lets the next guest be paused.
    _turn: Option<Turn>,
}

impl<'a> Frozen<'a> {
    /// Freezes the guest of `source`, once no other guest is paused, and reads its vCPUs into `vcpus`.
    ///
    /// # Errors
    /// Says why the guest could not be frozen or read; it is running.
    // Inlined, as are the others: calls would copy their arguments while the guest is paused.
    #[inline(always)]
    pub fn freeze(
        source: &'a mut dyn StopWorld,
        vcpus: &mut Vcpus,
    ) -> Result<Frozen<'a>, SourceError> {
        let turn = source.period_slot().map(Turn::take);
        source.may_freeze()?;
        let since_ns = monotonic_ns();
        source.freeze(since_ns, vcpus)?;
        Ok(Frozen {
            source,
            resumed: false,
            since_ns,
            _turn: turn,
        })
    }

    /// Reads guest memory; see [`StopWorld::read`].
    #[inline]
    pub fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        self.source.read(vcpu, address, into)
    }

    /// Resumes the guest; returns for how long it was frozen, in nanoseconds.
    ///
    /// # Errors
    /// Says why it may still be frozen.
    #[inline(always)]
    pub fn resume(mut self) -> Result<u64, SourceError> {
        let done = self.source.resume();
        // If it failed, dropping this tries again.
        self.resumed = done.is_ok();
        done?;
        // Asked before the next guest's pause begins.
        let end_ns = self.source.resumed_ns();
        let end_ns = end_ns.unwrap_or_else(monotonic_ns);
        Ok(end_ns.saturating_sub(self.since_ns))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.resumed {
            // An earlier error led here and is the one that is reported.
            let _ = self.source.resume();
        }
    }
}

/// Why a backend failed, as a message to the user: what failed, on what, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

impl SourceError {
    /// `doing` failed with a system error; `advice` says what to do, or is empty.
    pub fn system(doing: impl std::fmt::Display, error: nix::errno::Errno, advice: &str) -> Self {
        let why = error.desc();
        SourceError(match advice {
            "" => format!("{doing}: {why}"),
            _ => format!("{doing}: {why}; {advice}"),
        })
    }
}
