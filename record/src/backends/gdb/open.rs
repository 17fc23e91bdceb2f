//! Opens a stub as a source: handshake, pace and facts.

use super::client::Client;
use super::error::GdbError;
use super::guard::{Afterwards, Guard};
use super::guest_ram::GuestRam;
use super::handshake::{self, Guest};
use super::source::{GdbSource, Hold, PATIENCE};
use super::stacks::{FetchLimits, Stacks};
use super::vcpu_threads::VcpuThreads;
use crate::elf::Image;
use crate::guest::boots::Boots;
use crate::guest::command::Child;
use crate::guest::endpoint::Endpoint;
use crate::guest::page_tables::Roots;
use crate::guest::processor_time::MISSED_TIME;
use crate::source::plan::Plan;
use crate::source::{Facts, Hot, Life, Source, SourceError};
use crate::sys::clock::monotonic_ns;
use std::sync::Arc;
use std::time::Duration;
use uprof::cold::{Target, TargetKind, TaskEvent};
use uprof::{Arch, Task};

/// Longest conversation before the first sample. The guest is stopped during most of it.
const OPENING: Duration = Duration::from_secs(4);
/// How long a guest waits for its first instruction at most, if the recorder is stopped meanwhile.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// A stub to open, with everything that is known of its guest.
pub struct Opening {
    /// Address of the stub.
    pub endpoint: Endpoint,
    /// Kind of target for the recording.
    pub kind: TargetKind,
    /// Name for the recording.
    pub name: String,
    /// Access to guest memory without the stub, if there is one.
    pub ram: Option<Box<dyn GuestRam>>,
    /// The threads that run the vCPUs, if they are known.
    pub vcpu_threads: Option<VcpuThreads>,
    /// Facts for the recording: name and value.
    pub notes: Vec<(String, String)>,
    /// Warnings for the user, a sentence each.
    pub warnings: Vec<String>,
    /// Whether the guest is emulated, which runs one instruction at a time near breakpoints; `None` if unknown.
    pub emulated: Option<bool>,
    /// The guest's known images.
    pub images: Arc<[Image]>,
    /// What to do after the guest was released, or if it can't be opened.
    pub afterwards: Option<Afterwards>,
}

impl Opening {
    /// The target `gdb:ADDRESS`.
    ///
    /// # Errors
    /// The text is not an address.
    pub fn stub(address: &str, images: Vec<Image>) -> Result<Self, SourceError> {
        Ok(Opening {
            endpoint: Endpoint::parse(address).map_err(GdbError::from)?,
            kind: TargetKind::GdbStub,
            name: address.to_owned(),
            ram: None,
            vcpu_threads: None,
            notes: Vec::new(),
            warnings: Vec::new(),
            emulated: None,
            images: images.into(),
            afterwards: None,
        })
    }
}

/// Opens the target `gdb:ADDRESS`.
///
/// # Errors
/// As for [`open`].
pub fn open_stub(address: &str, images: Vec<Image>, plan: &Plan) -> Result<Source, SourceError> {
    open(Opening::stub(address, images)?, plan)
}

/// Connects to a stub, to sample its guest, which is stopped during the handshake.
///
/// Must be called while the process has one thread, since it forks a guardian.
///
/// # Errors
/// Says why the guest can't be sampled; it keeps running.
pub fn open(opening: Opening, plan: &Plan) -> Result<Source, SourceError> {
    let source = connect(opening, plan, false, false)?;
    Ok(Source::of(Hot::StopWorld(Box::new(source))))
}

/// The same for a guest that has not begun, and that `started` runs: it waits until sampling begins.
///
/// # Errors
/// As for [`open`].
pub fn open_boot(opening: Opening, plan: &Plan, started: Child) -> Result<Source, SourceError> {
    let mut source = connect(opening, plan, false, true)?;
    source.started = Some(started);
    Ok(Source::of(Hot::StopWorld(Box::new(source))))
}

/// Connects to a stub; see [`Guard::start`] for `detaches`. A guest that `begins` later is left stopped.
///
/// # Errors
/// As for [`open`].
pub(super) fn connect(
    mut opening: Opening,
    plan: &Plan,
    detaches: bool,
    begins: bool,
) -> Result<GdbSource, SourceError> {
    if opening.endpoint.is_taken() {
        return Err(SourceError(format!(
            "another debugger is connected to {0}, and a stub serves one at a time; detach it first",
            opening.endpoint
        )));
    }
    let sockets = opening.endpoint.sockets().map_err(GdbError::from)?;
    let mut guard = Guard::start(&sockets, detaches, opening.afterwards.take())?;
    guard
        .guardian
        .holding(if begins { BEGINS_WITHIN } else { OPENING });
    // From here on the guest may be stopped; the guard releases it if this function fails.
    let connection = sockets.connect(PATIENCE).map_err(GdbError::from)?;
    let mut client = Client::over(connection, &opening.endpoint, PATIENCE);
    client.set_end(Some(OPENING));
    let guest = handshake::greet(&mut client)?;
    let wanted = FetchLimits {
        window_bytes: plan.window_bytes(),
        kept_bytes: plan.kept_bytes(),
        most_frames: plan.most_frames as usize,
        budget_ns: u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX),
    };
    let window = FetchLimits {
        // Nothing is copied through the stub if memory can be read without it.
        window_bytes: if opening.ram.is_some() {
            0
        } else {
            wanted.window_bytes
        },
        ..wanted
    };
    // A stub may show other vCPUs than its monitor; their threads then can't be assigned.
    let vcpu_threads = opening.vcpu_threads.take();
    let vcpu_threads = vcpu_threads.filter(|threads| threads.count() == guest.threads.len());
    let stub_tells = guest.tells_halted && guest.layout.arch == Arch::X86_64;
    let vcpu_threads = vcpu_threads.map(|threads| threads.with_stub(stub_tells));
    let mut source = GdbSource {
        facts: Facts {
            missed_time: vcpu_threads.is_some().then_some(MISSED_TIME),
            ..facts(&opening, &guest)
        },
        guard,
        client,
        stacks: Stacks::new(guest.threads.len(), window),
        roots: Roots::default(),
        boots: Boots::default(),
        narrow: 0,
        guest,
        ram: opening.ram,
        vcpu_threads,
        wanted: window,
        life: Life::Alive,
        hold: Hold::Running,
        held_by_other: false,
        was_rescued: false,
        freezes: 0,
        lost_in_a_row: 0,
        first_round_trips: 0,
        started: None,
    };
    if begins {
        source.await_begin();
    } else {
        source.let_run()?;
        source.probe()?;
        if !source.guard.guardian.may_resume() {
            let endpoint = source.client.endpoint();
            return Err(SourceError(format!(
                "the recorder itself was stopped while it connected to {endpoint}; its guest runs: try again"
            )));
        }
        source.guard.guardian.running();
        source.note_costs()?;
    }
    source.client.set_end(None);
    Ok(source)
}

fn facts(opening: &Opening, guest: &Guest) -> Facts {
    let now_ns = monotonic_ns();
    let task = |number| Task {
        space: 0,
        vcpu: number,
    };
    let tasks = guest
        .threads
        .iter()
        .map(|thread| TaskEvent::named(now_ns, task(thread.number), thread.name.clone()));
    let mut notes = vec![("gdb stub".to_string(), opening.endpoint.to_string())];
    notes.extend(opening.notes.iter().cloned());
    Facts {
        notes,
        warnings: opening.warnings.clone(),
        tasks: tasks.collect(),
        images: opening.images.clone(),
        ..Facts::new(Target {
            kind: opening.kind,
            id: 0,
            name: opening.name.clone(),
            arch: guest.layout.arch,
            vcpus: guest.threads.len() as u32,
        })
    }
}
