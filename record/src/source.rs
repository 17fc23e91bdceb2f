//! The seam for a new kind of guest.
//!
//! A backend is one of two kinds. A [`StopWorld`] source (Xen, gdb stub, ptrace) freezes the guest
//! and hands over every vCPU's registers in one step; [`Frozen`] resumes it when dropped. A
//! [`Pushed`] source (perf_event) has its samples handed to it by the kernel. Both fill the same
//! [`Slot`](crate::slot::Slot)s. What a backend can't do is said in its [`Facts`] at the start,
//! never in the loop.

use crate::elf::Image;
use crate::ring::Sink;
use std::fs::File;
use std::sync::Arc;
use uprof::cold::{
    ClockPair, MappedFile, ModuleEvent, ProcessTime, Target, TaskEvent, space_of_root,
};
use uprof::{Details, Frame, ImagePart, Registers, State, Task};

/// What a backend says of itself and its guest at the start.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The guest or process, as stored in the recording.
    pub target: Target,
    /// What triggers a sample: `timer`, `cpu-clock`, `cycles`, …
    pub trigger: String,
    /// Whether samples of blocked vCPUs or threads are left out.
    pub on_cpu_only: bool,
    /// Whether a sample makes the guest stand still, so that its cost is freeze time.
    pub freezes: bool,
    /// Whether each thread has a period of its own, which it must live through to be sampled.
    pub per_thread: bool,
    /// Further facts for the recording: name and value.
    pub notes: Vec<(String, String)>,
    /// Things that the person at the terminal should know, a sentence each.
    pub warnings: Vec<String>,
    /// vCPUs or threads that are there already.
    pub tasks: Vec<TaskEvent>,
    /// Images that are mapped already.
    pub modules: Vec<ModuleEvent>,
    /// Images that a guest is said to run; they become modules where its code is theirs.
    pub images: Arc<[Image]>,
}

/// A backend, with its cold half.
pub struct Source {
    /// The half that the sampler thread drives.
    pub hot: Hot,
    /// The half that the encoder thread asks now and then for what changed; `None` where the hot
    /// half tells all.
    pub observer: Option<Box<dyn Observer>>,
    /// The half that finds out what was mapped; `None` where images and kernel are a guest's own.
    pub namer: Option<Box<dyn Namer>>,
}

impl Source {
    /// A backend whose hot half tells all.
    pub fn of(hot: Hot) -> Source {
        Source {
            hot,
            observer: None,
            namer: None,
        }
    }
}

/// The half of a backend that the sampler thread drives.
pub enum Hot {
    /// The sampler sets the pace.
    StopWorld(Box<dyn StopWorld>),
    /// The kernel sets the pace.
    Pushed(Box<dyn Pushed>),
}

impl Facts {
    /// Facts of a target that a timer samples while it stands still, and of which no more is known.
    pub fn new(target: Target) -> Facts {
        Facts {
            target,
            trigger: "timer".into(),
            on_cpu_only: false,
            freezes: true,
            per_thread: false,
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

/// Looks, off the hot path, for changes of the guest that no sample shows.
pub trait Observer: Send {
    /// What changed since the last call. May allocate and take its time.
    fn look(&mut self, now_ns: u64) -> Observations;

    /// Processor time that the kernel counted since the last call; `None` where nobody asks it. Called
    /// when sampling begins, when it has ended (`last`), and by [`Observer::look`].
    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        let _ = last;
        None
    }
}

/// What an [`Observer`] saw.
#[derive(Debug, Default)]
pub struct Observations {
    /// vCPUs or threads that came, got a name, or went.
    pub tasks: Vec<TaskEvent>,
    /// Images mapped or gone.
    pub modules: Vec<ModuleEvent>,
    /// Processor time that the kernel counted; `None` where it was not asked.
    pub times: Option<Vec<ProcessTime>>,
}

/// Finds out what was mapped, and names code that is in no file. The encoder's thread calls it, and must not wait
/// for it but at the end.
pub trait Namer: Send {
    /// The recording begins. Returns what is mapped everywhere and always.
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent;

    /// Takes note of the code that a sample was in.
    fn see(&mut self, chain: &[Frame]);

    /// Asks about an event, which is told later. One that can't be asked about comes back.
    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent>;

    /// What was found out since the last call; the `last` time, what is under way is waited for.
    fn answer(&mut self, last: bool) -> NamerAnswer;
}

/// What a [`Namer`] found out.
#[derive(Debug, Default)]
pub struct NamerAnswer {
    /// Events, completed as far as could be.
    pub modules: Vec<ModuleEvent>,
    /// Tables of code that is in no file.
    pub parts: Vec<ImagePart>,
    /// Functions that have no names, for want of room.
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

/// Whether there will be more to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// The guest is there.
    Alive,
    /// The guest ended in good order; the text says how.
    Ended(String),
    /// The guest crashed; the text says how.
    Crashed(String),
}

/// A guest that is sampled while all of it stands still.
///
/// Between [`StopWorld::freeze`] and [`StopWorld::resume`] the guest waits for us: neither they nor
/// [`StopWorld::read`] may allocate, lock or wait for anything but the guest.
pub trait StopWorld: Send {
    /// What the backend says of itself.
    fn facts(&self) -> &Facts;

    /// Freezes the guest and reads the registers of all vCPUs in one step.
    ///
    /// `vcpus` is empty when called, which is at `now_ns`. On an error the guest must be running again.
    ///
    /// # Errors
    /// Why the guest could not be frozen or read.
    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError>;

    /// Reads memory of the frozen guest as `vcpu` sees it, from guest virtual address `address`
    /// upwards. Returns the bytes read: fewer than asked for where memory is missing.
    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize;

    /// The physical address that `vcpu` has at guest virtual address `address`, in the numbers of the guest's own page
    /// tables; `None` where there is none, or where page tables aren't read.
    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64> {
        let _ = (vcpu, address);
        None
    }

    /// Whether [`StopWorld::read`] also reads memory of a guest that runs, by what the last freeze told of its
    /// vCPUs.
    fn reads_running(&self) -> bool {
        false
    }

    /// Lets the guest run on. Called once after each freeze that succeeded, also while unwinding
    /// from a panic.
    ///
    /// # Errors
    /// Why the guest may still stand still.
    fn resume(&mut self) -> Result<(), SourceError>;

    /// Whether `vcpu` may have executed anything between [`StopWorld::freeze`] and [`StopWorld::resume`]: of a
    /// guest that both let run ([`Facts::freezes`] is false), or that its guardian let run meanwhile.
    fn has_moved(&self, vcpu: &Vcpu) -> bool {
        let _ = vcpu;
        false
    }

    /// Called between samples, and whenever a signal woke the sampler: looks whether the guest
    /// still lives and sends on what it noticed. Must not allocate.
    ///
    /// # Errors
    /// Why sampling can't go on.
    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError>;

    /// What the backend counted, for the end of the recording: name and count. Round trips,
    /// hypercalls; nothing where there is nothing to tell.
    fn totals(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A guest whose samples the kernel takes.
pub trait Pushed: Send {
    /// What the backend says of itself.
    fn facts(&self) -> &Facts;

    /// Lets samples come.
    ///
    /// # Errors
    /// Why none will.
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

    /// Called once after the last of it: what was not over is now. Must not allocate.
    fn finish(&mut self, _: &mut Sink) {}

    /// What the backend counted, for the end of the recording: name and count.
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
    /// Its registers; none where it is offline or not worth reading.
    pub registers: Registers,
    /// A number for the backend's own use: an index or a process id.
    pub handle: u64,
    /// What the recording has of it beside its stack, as far as the backend knows it: the sampler adds cost and delay.
    pub details: Details,
}

impl Vcpu {
    /// The address space that `address` is of: upper halves are shared by all spaces of a guest.
    pub fn space_of(&self, address: u64) -> u32 {
        match self.details.root {
            Some(root) if address >> 63 == 0 => space_of_root(self.task.space, root),
            _ => self.task.space,
        }
    }
}

/// The vCPUs of one freeze. Never grows beyond the capacity that it was made with.
#[derive(Debug)]
pub struct Vcpus {
    all: Vec<Vcpu>,
    left_out: u64,
}

impl Vcpus {
    /// Most vCPUs or threads in one freeze.
    pub const MOST: usize = 1024;

    /// Room for [`Vcpus::MOST`].
    pub fn new() -> Self {
        Vcpus {
            all: Vec::with_capacity(Self::MOST),
            left_out: 0,
        }
    }

    /// Adds a vCPU; one beyond the capacity is counted and left out.
    pub fn push(&mut self, vcpu: Vcpu) {
        if self.all.len() < Self::MOST {
            self.all.push(vcpu);
        } else {
            self.left_out += 1;
        }
    }

    /// Forgets all; returns how many were left out.
    pub fn clear(&mut self) -> u64 {
        self.all.clear();
        std::mem::take(&mut self.left_out)
    }

    /// The vCPUs.
    pub fn all(&self) -> &[Vcpu] {
        &self.all
    }
}

impl Default for Vcpus {
    fn default() -> Self {
        Self::new()
    }
}

/// A frozen guest. Dropping it lets the guest run on, whatever happened in between.
pub struct Frozen<'a> {
    source: &'a mut dyn StopWorld,
    resumed: bool,
}

impl<'a> Frozen<'a> {
    /// Freezes the guest of `source`, at `now_ns`, and reads its vCPUs into `vcpus`.
    ///
    /// # Errors
    /// Why the guest could not be frozen or read; it runs.
    pub fn freeze(
        source: &'a mut dyn StopWorld,
        now_ns: u64,
        vcpus: &mut Vcpus,
    ) -> Result<Frozen<'a>, SourceError> {
        source.freeze(now_ns, vcpus)?;
        Ok(Frozen {
            source,
            resumed: false,
        })
    }

    /// Reads guest memory; see [`StopWorld::read`].
    pub fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        self.source.read(vcpu, address, into)
    }

    /// Lets the guest run on.
    ///
    /// # Errors
    /// Why it may still stand still.
    pub fn resume(mut self) -> Result<(), SourceError> {
        self.resumed = true;
        self.source.resume()
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.resumed {
            // Nothing can be reported from here; the error that brought us here is.
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
