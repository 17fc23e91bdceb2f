//! The interface of a kind of guest.
//!
//! A backend is of one of two kinds. A [`StopWorld`] source (Xen, gdb stub, ptrace) freezes the guest and provides
//! every vCPU's registers in one step; [`Frozen`] resumes it when dropped. A [`Pushed`] source (perf_event) gets its
//! samples from the kernel. Both fill the same [`Slot`](crate::source::slot::Slot)s. What a backend can't do is in its
//! [`Facts`] at the start, never found out in the loop.
//!
//! Beside it is what backends share with the threads of a recording: a sample on its way (`slot`, `ring`), turns among
//! guests of one process (`turns`), the request to stop and the counters (`control`), what is wanted (`plan`), and what
//! an examination found (`doctor`). [`call_source`] is the interface of a guest whose calls are followed.

pub mod slot;
pub mod ring;
pub mod schedule;
pub mod control;
pub mod call_source;
pub mod plan;
pub mod doctor;

use crate::elf::Image;
use crate::source::ring::Sink;
use crate::source::schedule::{PeriodSlot, Turn};
use crate::sys::clock::monotonic_ns;
use std::fs::File;
use std::sync::Arc;
use uprof::cold::{
    ClockPair, MappedFile, ModuleEvent, ProcessTime, Target, TaskEvent, space_of_root,
};
use uprof::cpu::is_kernel_address;
use uprof::{Details, Frame, ImagePart, Registers, State, Task};

/// A backend's description of itself and its guest.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The guest or process, as stored in the recording.
    pub target: Target,
    /// What triggers a sample: `timer`, `cpu-clock`, `cycles`, …
    pub trigger: String,
    /// Whether samples of blocked vCPUs or threads are left out.
    pub on_cpu_only: bool,
    /// Whether a sample freezes the guest, so that its cost is freeze time.
    pub freezes: bool,
    /// Whether each thread has a sampling period of its own, so that shorter-lived ones are never sampled.
    pub per_thread: bool,
    /// Of a guest whose processor time is counted: why samples may not stand for all of it, and what helps.
    pub missed_time: Option<&'static str>,
    /// Most stack bytes of a sample, where they are not those of the plan.
    pub stack_bytes: Option<u32>,
    /// Further facts for the recording: name and value.
    pub notes: Vec<(String, String)>,
    /// Warnings for the user, a sentence each.
    pub warnings: Vec<String>,
    /// vCPUs or threads at the start.
    pub tasks: Vec<TaskEvent>,
    /// Mappings at the start.
    pub modules: Vec<ModuleEvent>,
    /// Images given for a guest; they become modules where its code is theirs.
    pub images: Arc<[Image]>,
}

/// A backend with its parts.
pub struct Source {
    /// The part that the sampler thread drives.
    pub hot: Hot,
    /// The part that the encoder thread asks for changes; `None` if the hot part reports all.
    pub observer: Option<Box<dyn Observer>>,
    /// The part that identifies mapped files; `None` for guests, which have their own images and kernel.
    pub namer: Option<Box<dyn Namer>>,
}

impl Source {
    /// A backend with only a hot part.
    pub fn of(hot: Hot) -> Source {
        Source {
            hot,
            observer: None,
            namer: None,
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
    /// Facts of a target that is frozen for samples by a timer, and of which no more is known.
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
    /// What the backend says of itself.
    pub fn facts(&self) -> &Facts {
        match self {
            Hot::StopWorld(source) => source.facts(),
            Hot::Pushed(source) => source.facts(),
        }
    }

    /// What the backend counted.
    pub fn totals(&self) -> Vec<(String, u64)> {
        match self {
            Hot::StopWorld(source) => source.totals(),
            Hot::Pushed(source) => source.totals(),
        }
    }
}

/// Observes, off the hot path, changes of the guest that no sample shows.
pub trait Observer: Send {
    /// Changes since the last call. May allocate and take time.
    fn look(&mut self, now_ns: u64) -> Observations;

    /// Processor time that the kernel counted since the last call; `None` if it is not read. Called when sampling
    /// begins, when it has ended (`last`), and by [`Observer::look`].
    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        let _ = last;
        None
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
}

/// Identifies what was mapped, and names code that is in no file. The encoder thread calls it, and waits for it only
/// at the end.
pub trait Namer: Send {
    /// Begins a recording. Returns what is mapped in all address spaces.
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent;

    /// Remembers the code of a sample.
    fn see(&mut self, chain: &[Frame]);

    /// Requests the completion of an event, which [`Namer::answer`] returns; returns the event if that is not
    /// possible.
    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent>;

    /// Results since the last call; the `last` time, waits for outstanding ones.
    fn answer(&mut self, last: bool) -> NamerAnswer;
}

/// Results of a [`Namer`].
#[derive(Debug, Default)]
pub struct NamerAnswer {
    /// Events, completed as far as possible.
    pub modules: Vec<ModuleEvent>,
    /// Tables of code that is in no file.
    pub parts: Vec<ImagePart>,
    /// Functions without names for lack of room.
    pub lost: u64,
    /// At the end, the files that were mapped.
    pub held: Vec<HeldImage>,
}

/// A file that was mapped, opened while it was.
#[derive(Debug, Clone)]
pub struct HeldImage {
    /// Path as in the mappings.
    pub path: String,
    /// Build-id, empty where it has none.
    pub build_id: Vec<u8>,
    /// Which file it was.
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

/// A guest that is sampled while all of it is frozen: stopped, read and resumed. What became of a freeze, and what the
/// guest's page tables say, are interfaces of their own, which a source without them doesn't implement.
///
/// Between [`StopWorld::freeze`] and [`StopWorld::resume`] the guest waits: neither they nor [`StopWorld::read`] may
/// allocate, lock or wait for anything but the guest.
pub trait StopWorld: Send {
    /// What the backend says of itself.
    fn facts(&self) -> &Facts;

    /// Checks, while the guest runs, that it may be frozen: that whoever would resume it after an accident is there.
    ///
    /// # Errors
    /// Why it must not be frozen any more.
    fn may_freeze(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Freezes the guest and reads the registers of all vCPUs in one step.
    ///
    /// `vcpus` is empty when called, which is at `now_ns`. On an error the guest must be running again.
    ///
    /// # Errors
    /// Why the guest could not be frozen or read.
    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError>;

    /// Reads memory of the frozen guest as `vcpu` sees it, from guest virtual address `address` upwards. Returns the
    /// number of bytes read: fewer than requested where memory is missing.
    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize;

    /// Whether [`StopWorld::read`] also reads memory of a running guest, with the vCPUs of the last freeze.
    fn reads_running(&self) -> bool {
        false
    }

    /// Resumes the guest. Called once after each successful freeze, also while unwinding from a panic.
    ///
    /// # Errors
    /// Why the guest may still be frozen.
    fn resume(&mut self) -> Result<(), SourceError>;

    /// Completes the vCPUs of the last freeze, when the guest runs again: adds registers that nobody needs while it
    /// stands still, where `freeze` left them out. It must have provided instruction, stack and frame pointer.
    fn complete(&mut self, vcpus: &mut Vcpus) {
        let _ = vcpus;
    }

    /// What became of the last freeze.
    fn last_freeze(&self) -> &dyn LastFreeze {
        &Undisturbed
    }

    /// The guest's page tables; `None` if they aren't read.
    fn page_tables(&mut self) -> Option<&mut dyn PageTables> {
        None
    }

    /// The slot of a guest that must not be paused while certain others are; `None` if it needs none.
    fn period_slot(&self) -> Option<Arc<PeriodSlot>> {
        None
    }

    /// Called between samples, and when a signal woke the sampler: checks whether the guest still exists and sends
    /// events. Must not allocate.
    ///
    /// # Errors
    /// Why sampling can't go on.
    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError>;

    /// Totals for the end of the recording, such as round trips or hypercalls: name and count.
    fn totals(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// What became of a freeze, known when the guest runs again.
pub trait LastFreeze {
    /// When [`StopWorld::resume`] resumed the guest, as [`monotonic_ns`] counts, where the call that does so may return
    /// much later: the kernel may run the guest in its caller's place, for as long as its scheduler sees fit. `None`:
    /// when that has returned.
    fn resumed_ns(&self) -> Option<u64> {
        None
    }

    /// Whether `vcpu` may have run between [`StopWorld::freeze`] and [`StopWorld::resume`]: because the source
    /// doesn't freeze its guest ([`Facts::freezes`]), or because the guardian resumed it.
    fn has_moved(&self, vcpu: &Vcpu) -> bool {
        let _ = vcpu;
        false
    }

    /// Whether the guest was left alone, since someone else had paused it already: then it was not paused for us.
    fn was_left_alone(&self) -> bool {
        false
    }
}

/// A freeze that ended when [`StopWorld::resume`] returned, with no other program involved.
struct Undisturbed;

impl LastFreeze for Undisturbed {}

/// Addresses by a guest's own page tables, as a vCPU had them at the last freeze.
pub trait PageTables {
    /// The physical address of guest virtual address `address` for `vcpu`; `None` if it is not mapped.
    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64>;

    /// The address at which `vcpu` sees the page tables of the kernel's half, where it has tables of its own (AArch64);
    /// `None` if they are not mapped. Searches them: not while the guest is frozen.
    fn kernel_tables(&mut self, vcpu: &Vcpu) -> Option<u64> {
        let _ = vcpu;
        None
    }
}

/// A guest whose samples the kernel takes.
pub trait Pushed: Send {
    /// What the backend says of itself.
    fn facts(&self) -> &Facts;

    /// Starts sampling.
    ///
    /// # Errors
    /// Why it can't be started.
    fn start(&mut self) -> Result<(), SourceError>;

    /// Waits until there is something worth draining, a signal came or `timeout_ms` passed.
    ///
    /// # Errors
    /// Why waiting failed.
    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError>;

    /// Fills slots with the samples that have come. Must not allocate.
    ///
    /// # Errors
    /// Why sampling can't go on.
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
    /// Which.
    pub task: Task,
    /// What it was doing before the freeze.
    pub state: State,
    /// Its registers; none if it is offline or its registers are not needed.
    pub registers: Registers,
    /// A number for the backend's own use: an index or a process id.
    pub handle: u64,
    /// Its details, as far as the backend knows them; the sampler adds cost and delay.
    pub details: Details,
}

impl Vcpu {
    /// The address space of `address`: the upper half is shared by all spaces of a guest.
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
    /// Those of this freeze, and behind them places of earlier ones.
    all: Vec<Vcpu>,
    count: usize,
    left_out: u64,
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
        }
    }

    /// Adds a vCPU; one beyond the capacity is counted and left out.
    pub fn push(&mut self, vcpu: Vcpu) {
        if let Some(place) = self.add(vcpu.task, vcpu.state) {
            *place = vcpu;
        }
    }

    /// Adds a vCPU without registers and details, to be filled in where it is, so that nothing large is copied while
    /// the guest is frozen; `None` beyond the capacity, which is counted.
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

    /// Makes a place for another one; `false` beyond the capacity.
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
        self.count = 0;
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

/// Reads with `read`, page by page: for memory of which a range that is partly missing can't be read at all.
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

/// A frozen guest, which is resumed when this is dropped.
pub struct Frozen<'a> {
    source: &'a mut dyn StopWorld,
    resumed: bool,
    /// When it was frozen.
    pub since_ns: u64,
    /// Dropped when it runs again.
    _turn: Option<Turn>,
}

impl<'a> Frozen<'a> {
    /// Freezes the guest of `source`, once it is its turn, and reads its vCPUs into `vcpus`.
    ///
    /// # Errors
    /// Why the guest could not be frozen or read; it is running.
    // Inlined, as are the others: nothing is copied from call to call while the guest stands still.
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
    /// Why it may still be frozen.
    #[inline(always)]
    pub fn resume(mut self) -> Result<u64, SourceError> {
        self.resumed = true;
        self.source.resume()?;
        // Before the next one's turn begins.
        let end_ns = self.source.last_freeze().resumed_ns();
        let end_ns = end_ns.unwrap_or_else(monotonic_ns);
        Ok(end_ns.saturating_sub(self.since_ns))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.resumed {
            // This error can't be reported; the one that led here is.
            let _ = self.source.resume();
        }
    }
}

/// Why a backend failed, as a message to a person: what, on what, why, and what to do.
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
