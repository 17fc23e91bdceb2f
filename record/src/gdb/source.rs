//! A guest behind a gdb stub, frozen for each sample.
//!
//! One round trip interrupts it and brings every vCPU's registers; another brings the stacks, unless
//! guest memory can be read without the stub. Letting it run on is one write that nobody answers.

use super::client::{Client, Pace, StopReply};
use super::endpoint::Endpoint;
use super::error::GdbError;
use super::guard::Guard;
use super::handshake::{self, Guest};
use super::stacks::{self, Stacks, Wanted};
use crate::qemu::source::Afterwards;
use crate::ring::Sink;
use crate::session::Plan;
use crate::source::{Facts, Hot, Life, Source, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::monotonic_ns;
use crate::xen::image::Image;
use std::time::Duration;
use uprof::cold::{Target, TargetKind, TaskChange, TaskEvent};
use uprof::{Registers, State, Task};

/// How long a stub may take to answer, at the start and while recording.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to show that it takes batches.
const PROBE_PATIENCE: Duration = Duration::from_millis(500);
/// vCPUs asked for in one batch: their answers fit into a socket's buffers, so that neither side
/// waits for the other to read.
const BATCH_VCPUS: usize = 32;

/// Guest memory by another way than through the stub.
pub trait GuestRam: Send {
    /// Takes over how a vCPU translates addresses, from its `g` reply's control registers (x86-64)
    /// or its system registers (AArch64).
    fn set_translation(&mut self, place: usize, registers: [u64; 4]);

    /// Reads as the vCPU at `place` sees it; returns the bytes before the first that is missing.
    fn read(&mut self, place: usize, address: u64, into: &mut [u8]) -> usize;
}

/// What to open.
pub struct Opening {
    /// Where the stub listens.
    pub endpoint: Endpoint,
    /// Kind and name for the recording.
    pub kind: TargetKind,
    /// Name for the recording.
    pub name: String,
    /// Guest memory without the stub, if there is a way.
    pub ram: Option<Box<dyn GuestRam>>,
    /// Facts that are known already.
    pub notes: Vec<(String, String)>,
    /// What the person at the terminal should know.
    pub warnings: Vec<String>,
    /// The guest's image, if known.
    pub image: Option<Image>,
    /// What to do when the guest has been let go.
    pub afterwards: Option<Afterwards>,
}

/// Opens the target `gdb:ADDRESS`.
///
/// # Errors
/// As for [`open`].
pub fn open_stub(address: &str, image: Option<Image>, plan: &Plan) -> Result<Source, SourceError> {
    let opening = Opening {
        endpoint: Endpoint::parse(address)?,
        kind: TargetKind::GdbStub,
        name: address.to_owned(),
        ram: None,
        notes: Vec::new(),
        warnings: Vec::new(),
        image,
        afterwards: None,
    };
    open(opening, plan)
}

/// The backend.
struct GdbSource {
    facts: Facts,
    guard: Guard,
    client: Client,
    guest: Guest,
    ram: Option<Box<dyn GuestRam>>,
    stacks: Stacks,
    wanted: Wanted,
    life: Life,
    /// Someone else stopped the guest, so that it is not for us to let it run.
    held_by_other: bool,
    freezes: u64,
    /// Round trips before the first sample.
    first_round_trips: u64,
    afterwards: Option<Afterwards>,
}

/// Connects to a stub. Its guest stands still while the stub is asked what it can do.
///
/// Must be called while the process has one thread, since it forks a guardian.
///
/// # Errors
/// Why the guest can't be sampled; it runs.
pub fn open(opening: Opening, plan: &Plan) -> Result<Source, SourceError> {
    if opening.endpoint.is_taken() {
        return Err(SourceError(format!(
            "another debugger is connected to {0}, and a stub serves one at a time; detach it first",
            opening.endpoint
        )));
    }
    let mut client = Client::connect(&opening.endpoint, PATIENCE)?;
    // From here on the guest may stand still; the guard lets it go when this function fails.
    let guard = Guard::start(&client)?;
    let guest = handshake::greet(&mut client)?;
    let wanted = Wanted {
        window_bytes: plan.window_bytes(),
        all: plan.stack_bytes > 0,
        most_frames: plan.most_frames as usize,
        budget_ns: u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX),
    };
    let window = Wanted {
        // Nothing is copied through the stub where memory can be read without it.
        window_bytes: if opening.ram.is_some() {
            0
        } else {
            wanted.window_bytes
        },
        ..wanted
    };
    let mut source = GdbSource {
        facts: facts(&opening, &guest),
        guard,
        client,
        stacks: Stacks::new(guest.threads.len(), window),
        guest,
        ram: opening.ram,
        wanted: window,
        life: Life::Alive,
        held_by_other: false,
        freezes: 0,
        first_round_trips: 0,
        afterwards: opening.afterwards,
    };
    source.let_run()?;
    source.probe()?;
    source.note_costs()?;
    Ok(Source {
        hot: Hot::StopWorld(Box::new(source)),
        observer: None,
    })
}

fn facts(opening: &Opening, guest: &Guest) -> Facts {
    let now_ns = monotonic_ns();
    let task = |number| Task {
        space: 0,
        vcpu: number,
    };
    let tasks = guest.threads.iter().map(|thread| TaskEvent {
        time_ns: now_ns,
        task: task(thread.number),
        what: TaskChange::Named(thread.name.clone()),
    });
    let mut notes = vec![("gdb stub".to_string(), opening.endpoint.to_string())];
    notes.extend(opening.notes.iter().cloned());
    Facts {
        target: Target {
            kind: opening.kind,
            id: 0,
            name: opening.name.clone(),
            arch: guest.layout.arch,
            vcpus: guest.threads.len() as u32,
        },
        trigger: "timer".into(),
        on_cpu_only: false,
        freezes: true,
        notes,
        warnings: opening.warnings.clone(),
        tasks: tasks.collect(),
        modules: opening
            .image
            .as_ref()
            .map_or_else(Vec::new, |image| image.module_events(now_ns, 0)),
    }
}

impl GdbSource {
    /// Finds the fastest pace that the stub can follow, by trying it on the running guest.
    fn probe(&mut self) -> Result<(), GdbError> {
        self.client.set_patience(PROBE_PATIENCE);
        let mut tried = Ok(());
        for pace in [Pace::AllAtOnce, Pace::InterruptFirst, Pace::OneByOne] {
            self.client.set_pace(pace);
            tried = self.stop_and_read(&mut Vcpus::new());
            if !matches!(tried, Err(GdbError::Silent { .. })) {
                break;
            }
            // It threw away what came behind the first packet. If the guest stands still, the next
            // interrupt would bring no stop reply: let it run first.
            while self.client.unasked()?.is_some() {}
            self.let_run()?;
        }
        self.client.set_patience(PATIENCE);
        tried?;
        self.let_run()
    }

    /// Takes one sample to see what it costs, and notes it.
    fn note_costs(&mut self) -> Result<(), SourceError> {
        let mut vcpus = Vcpus::new();
        let before = self.client.round_trips;
        self.freeze(&mut vcpus)?;
        self.resume()?;
        let trips = self.client.round_trips - before;
        self.freezes = 0;
        self.first_round_trips = self.client.round_trips;
        let memory = match &self.ram {
            Some(_) => "shared memory, by the guest's page tables",
            None => "the stub",
        };
        let notes = &mut self.facts.notes;
        let mut note = |name: &str, value: String| notes.push((name.into(), value));
        note("stub's pace", self.client.pace().describe().into());
        note("round trips of the first sample", trips.to_string());
        note("stack bytes come through", memory.into());
        Ok(())
    }

    /// Interrupts the guest and reads all registers.
    fn stop_and_read(&mut self, vcpus: &mut Vcpus) -> Result<(), GdbError> {
        let count = self.guest.threads.len();
        let mut interrupt = true;
        for start in (0..count).step_by(BATCH_VCPUS) {
            let places = start..count.min(start + BATCH_VCPUS);
            self.client.begin("for registers");
            if interrupt {
                self.client.add_interrupt();
            }
            for place in places.clone() {
                self.ask_registers(place);
            }
            if std::mem::take(&mut interrupt) {
                self.expect_stop()?;
            }
            for place in places {
                let vcpu = self.take_registers(place)?;
                vcpus.push(vcpu);
            }
        }
        Ok(())
    }

    fn ask_registers(&mut self, place: usize) {
        let thread = &self.guest.threads[place];
        stacks::choose(&mut self.client, thread);
        self.client.add(format_args!("g"));
        if self.ram.is_some()
            && let Some(system) = self.guest.layout.system
        {
            for number in system {
                self.client.add(format_args!("p{number:x}"));
            }
        }
        if self.guest.tells_halted {
            self.client
                .add(format_args!("qThreadExtraInfo,{}", thread.id));
        }
    }

    fn expect_stop(&mut self) -> Result<(), GdbError> {
        let stop = StopReply::parse(self.client.reply()?);
        match stop {
            Some(stop) if stop.is_interrupt() => Ok(()),
            Some(stop) => {
                self.life = life_of(stop);
                Err(self.client.nonsense("the guest stopped by itself"))
            }
            None => Err(self
                .client
                .nonsense("it did not say that the guest stands still")),
        }
    }

    fn take_registers(&mut self, place: usize) -> Result<Vcpu, GdbError> {
        let thread = &self.guest.threads[place];
        let layout = &self.guest.layout;
        let there = stacks::expect_chosen(&mut self.client, thread)?;
        let mut registers = Registers::default();
        let reply = self.client.reply()?;
        let refused = matches!(reply, [b'E', _, _]) || reply.is_empty();
        let control = layout.read_control(reply);
        let complete = layout.read(reply, &mut registers);
        if !complete && !refused {
            let problem = format!("{} digits are too few for this processor", reply.len());
            return Err(self.client.nonsense(problem));
        }
        let mut translation = control;
        if self.ram.is_some() && layout.system.is_some() {
            let mut values = [0; 4];
            for value in &mut values {
                *value = super::packet::register_value(self.client.reply()?).unwrap_or(0);
            }
            translation = Some(values);
        }
        if let (Some(ram), Some(values)) = (&mut self.ram, translation) {
            ram.set_translation(place, values);
        }
        let halted =
            self.guest.tells_halted && handshake::halted(self.client.reply()?) == Some(true);
        if !there || refused {
            registers.clear();
        }
        Ok(Vcpu {
            task: Task {
                space: 0,
                vcpu: thread.number,
            },
            state: match (there && !refused, halted) {
                (false, _) => State::Offline,
                (true, true) => State::Blocked,
                (true, false) => State::Running,
            },
            registers,
            handle: place as u64,
        })
    }

    fn let_run(&mut self) -> Result<(), GdbError> {
        self.client
            .tell("to let the guest run", self.guest.resume.payload())
    }

    /// Works through packets that came unasked while the guest was to run.
    fn listen(&mut self) -> Result<(), GdbError> {
        loop {
            match self.client.unasked() {
                Ok(Some(packet)) => match StopReply::parse(packet) {
                    Some(stop) if stop.is_interrupt() => {
                        self.held_by_other = true;
                        self.life = Life::Ended(
                            "someone else stopped the guest (a monitor, a snapshot or a \
                             breakpoint), and it is left so"
                                .into(),
                        );
                    }
                    Some(stop) => self.life = life_of(stop),
                    None => {}
                },
                Ok(None) => return Ok(()),
                Err(GdbError::Closed(_)) => {
                    self.gone();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn gone(&mut self) {
        if self.life == Life::Alive {
            self.life = Life::Ended("the guest's monitor ended".into());
        }
        self.guard.forget();
    }

    /// Memory outside the stack's copy: one more round trip.
    fn read_far(&mut self, place: usize, address: u64, into: &mut [u8]) -> Result<usize, GdbError> {
        let (client, guest) = (&mut self.client, &self.guest);
        client.begin("for memory");
        stacks::choose(client, &guest.threads[place]);
        stacks::ask_memory(client, guest, address, into.len());
        stacks::expect_chosen(client, &guest.threads[place])?;
        stacks::take_memory(client, guest, address, into)
    }
}

/// What a stop that we did not ask for says about the guest.
fn life_of(stop: StopReply) -> Life {
    match stop {
        StopReply::Exited(0) => Life::Ended("the guest ended".into()),
        StopReply::Exited(status) => Life::Ended(format!("the guest ended with status {status}")),
        // SIGQUIT: what QEMU says of a guest that shut down (-no-shutdown).
        StopReply::Stopped(3) => Life::Ended("the guest shut down".into()),
        StopReply::Killed(signal) | StopReply::Stopped(signal) => Life::Crashed(format!(
            "the guest crashed (its stub says: signal {signal})"
        )),
    }
}

impl StopWorld for GdbSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        self.listen()?;
        if self.life != Life::Alive {
            return Err(SourceError("the guest does not run any more".into()));
        }
        let start_ns = monotonic_ns();
        self.freezes += 1;
        self.guard.freezing();
        let mut read = self.stop_and_read(vcpus);
        if read.is_ok() && self.wanted.window_bytes > 0 {
            let (client, guest) = (&mut self.client, &self.guest);
            read = self.stacks.fetch(client, guest, vcpus.all(), start_ns);
        }
        if let Err(error) = read {
            if matches!(error, GdbError::Closed(_)) {
                self.gone();
            }
            self.guard.release(&self.client);
            return Err(error.into());
        }
        Ok(())
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let place = vcpu.handle as usize;
        if let Some(ram) = &mut self.ram {
            return ram.read(place, address, into);
        }
        match self.stacks.read(vcpu, address, into) {
            Some(count) => count,
            // What the stub does not answer now, the next freeze will not get either, and tells.
            None => self.read_far(place, address, into).unwrap_or(0),
        }
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        if self.guard.may_resume() {
            self.let_run()?;
        }
        self.guard.running();
        Ok(())
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        self.listen()?;
        Ok(self.life.clone())
    }

    fn totals(&self) -> Vec<(String, u64)> {
        vec![
            ("freezes".into(), self.freezes),
            (
                "round_trips".into(),
                self.client.round_trips - self.first_round_trips,
            ),
            ("rescues".into(), self.guard.rescues()),
        ]
    }
}

impl Drop for GdbSource {
    fn drop(&mut self) {
        if self.held_by_other {
            self.guard.forget();
        } else {
            self.guard.release(&self.client);
        }
        if let Some(afterwards) = &self.afterwards {
            afterwards.finish();
        }
    }
}
