//! Samples a guest behind a gdb stub, which it freezes for each sample.
//!
//! One round trip interrupts the guest and reads the registers of all vCPUs. Another reads the stacks, unless guest
//! memory can be read without the stub. Resuming is one write without a reply. [`super::open`] makes the source.

use super::client::{Client, Pace, StopReply};
use super::error::GdbError;
use super::guard::Guard;
use super::guest_ram::GuestRam;
use super::handshake::{self, Guest};
use super::stacks::{self, FetchLimits, Stacks};
use super::vcpu_threads::VcpuThreads;
use crate::guest::boots::{self, Boots};
use crate::guest::command::Child;
use crate::guest::page_tables::{Paging, Roots};
use crate::source::ring::Sink;
use crate::source::{Facts, Life, SourceError, StopWorld, Vcpu, Vcpus, by_page};
use crate::sys::clock::monotonic_ns;
use std::time::Duration;
use uprof::{Arch, Details, Registers, State, Task};

/// How long a stub may take to answer, at the start and while recording.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a stub may take to answer the first batch.
const PROBE_PATIENCE: Duration = Duration::from_millis(500);
/// Most consecutive freezes that the guardian may end before the stub is given up.
const MOST_LOST_IN_A_ROW: u32 = 2;
/// Most tries to resume a guest after that, if the guardian ends each of them, too.
const MOST_LET_RUN: u32 = 8;
/// Most vCPUs in one batch. Their replies fit into a socket's buffers, so that neither side waits for the other to
/// read.
const BATCH_VCPUS: usize = 32;

/// The state in which the source left the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// It runs.
    Running,
    /// It was stopped.
    Frozen,
    /// A request failed, so it may run or not.
    Unsure,
}

/// The backend.
pub(super) struct GdbSource {
    pub(super) facts: Facts,
    pub(super) guard: Guard,
    pub(super) client: Client,
    pub(super) guest: Guest,
    pub(super) ram: Option<Box<dyn GuestRam>>,
    pub(super) vcpu_threads: Option<VcpuThreads>,
    pub(super) stacks: Stacks,
    pub(super) roots: Roots,
    pub(super) boots: Boots,
    /// Samples of vCPUs that were not in 64-bit mode.
    pub(super) narrow: u64,
    pub(super) wanted: FetchLimits,
    pub(super) life: Life,
    pub(super) hold: Hold,
    /// Whether someone else stopped the guest, so that it must not be resumed.
    pub(super) held_by_other: bool,
    /// Whether the guardian ended the last freeze.
    pub(super) was_rescued: bool,
    pub(super) freezes: u64,
    /// Number of consecutive freezes without samples.
    pub(super) lost_in_a_row: u32,
    /// Round trips before the first sample.
    pub(super) first_round_trips: u64,
    /// The monitor, if the recorder has started it. Ended last.
    pub(super) started: Option<Child>,
}

impl GdbSource {
    /// Finds the fastest pace that the stub supports, by trying it on the running guest.
    pub(super) fn probe(&mut self) -> Result<(), GdbError> {
        self.client.patience = PROBE_PATIENCE;
        let mut tried = Ok(());
        let all = [Pace::AllAtOnce, Pace::InterruptFirst, Pace::OneByOne];
        for pace in &all[usize::from(self.guest.drops_behind_interrupt)..] {
            self.client.pace = *pace;
            tried = self.stop_and_read(&mut Vcpus::new());
            if !matches!(tried, Err(GdbError::Silent { .. })) {
                break;
            }
            // The stub discarded the bytes after the first packet. An interrupt of a stopped guest would bring no stop
            // reply, so it is resumed first.
            while self.client.unasked()?.is_some() {}
            self.let_run()?;
        }
        self.client.patience = PATIENCE;
        tried?;
        self.let_run()
    }

    /// Leaves a guest that has not begun as it is: stopped. QEMU reads several packets behind an interrupt.
    pub(super) fn await_begin(&mut self) {
        self.client.pace = Pace::AllAtOnce;
        self.first_round_trips = self.client.round_trips;
        let memory = self.memory_words().to_owned();
        let notes = &mut self.facts.notes;
        notes.push(("stack bytes come through".into(), memory));
    }

    /// Where stack bytes come from.
    fn memory_words(&self) -> &'static str {
        match &self.ram {
            Some(_) => "shared memory, by the guest's page tables",
            None => "the stub",
        }
    }

    /// Takes one sample to measure its cost, and adds that to the facts.
    pub(super) fn note_costs(&mut self) -> Result<(), SourceError> {
        let mut vcpus = Vcpus::new();
        let before = self.client.round_trips;
        self.freeze(monotonic_ns(), &mut vcpus)?;
        let trips = self.client.round_trips - before;
        let same = self.is_ram_the_guests(&vcpus);
        self.resume()?;
        if !same {
            return Err(SourceError(format!(
                "the memory file is not the memory of the guest behind {0}; record gdb:{0}",
                self.client.endpoint()
            )));
        }
        self.freezes = 0;
        self.first_round_trips = self.client.round_trips;
        let memory = self.memory_words();
        let notes = &mut self.facts.notes;
        let mut note = |name: &str, value: String| notes.push((name.into(), value));
        note("stub's pace", self.client.pace.describe().into());
        note("round trips of the first sample", trips.to_string());
        note("stack bytes come through", memory.into());
        Ok(())
    }

    /// Whether the stub and the memory file have the same bytes at a stack pointer.
    fn is_ram_the_guests(&mut self, vcpus: &Vcpus) -> bool {
        let sp = self.guest.layout.arch.special_registers().sp;
        let first = vcpus.all().first();
        let Some((vcpu, sp)) = first.and_then(|vcpu| Some((vcpu, vcpu.registers.get(sp)?))) else {
            return true;
        };
        let place = vcpu.handle as usize;
        let (mut direct, mut through_stub) = ([0; 64], [0; 64]);
        let Some(ram) = &mut self.ram else {
            return true;
        };
        let count = ram.read(place, sp, &mut direct);
        let read = self.read_far(place, sp, &mut through_stub);
        read.is_ok_and(|read| {
            let both = count.min(read);
            direct[..both] == through_stub[..both]
        })
    }

    /// Interrupts the guest and reads registers and stacks.
    fn read_all(&mut self, vcpus: &mut Vcpus) -> Result<(), GdbError> {
        let start_ns = monotonic_ns();
        self.stop_and_read(vcpus)?;
        if self.wanted.window_bytes > 0 && self.guard.guardian.is_frozen() {
            let (client, guest) = (&mut self.client, &self.guest);
            self.stacks.fetch(client, guest, vcpus.all(), start_ns)?;
        }
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
                .nonsense("it did not say that the guest has stopped")),
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
        let code_base = layout.code_base(reply, control);
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
        let arch = self.guest.layout.arch;
        let paging = translation.map(|values| Paging::of_registers(arch, values));
        if let Some(paging) = paging.filter(|_| registers.mask() != 0) {
            self.boots.see(paging);
            // In 32-bit code, words that look like a frame are pairs of 32-bit values.
            if arch == Arch::X86_64 && !matches!(paging, Paging::X86_64 { .. }) {
                // A vCPU that was never started is not in a mode of the guest's choice.
                self.narrow += u64::from(!halted);
                boots::keep_only_ip(arch, &mut registers, code_base);
            }
        }
        let root = paging.and_then(|paging| self.root(paging, &registers));
        let thread = &self.guest.threads[place];
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
            details: Details {
                root,
                ..Details::default()
            },
        })
    }

    /// The page-table root of a vCPU.
    fn root(&mut self, paging: Paging, registers: &Registers) -> Option<u64> {
        let arch = self.guest.layout.arch;
        let ip = arch.special_registers().ip;
        let ip = registers.get(ip);
        let root = paging.root().filter(|_| ip.is_some());
        match arch {
            Arch::X86_64 => self.roots.of(root, ip),
            Arch::Aarch64 => root,
        }
    }

    /// Resumes a guest in an unknown state: what was sent after a request of the guardian's has stopped it again, and
    /// left a reply too many.
    fn let_run_anew(&mut self, mut ours: bool) -> Result<(), GdbError> {
        for _ in 0..MOST_LET_RUN {
            if !ours {
                self.guard.guardian.await_rescue();
            }
            // It takes a while, in which the recorder may be stopped once more.
            self.guard.guardian.freezing();
            self.client.start_over()?;
            if self.guard.guardian.may_resume() {
                self.let_run()?;
                if self.guard.guardian.resumed() {
                    return Ok(());
                }
            }
            ours = false;
        }
        Err(self
            .client
            .nonsense("its guest was never at rest for long enough to let it run"))
    }

    pub(super) fn let_run(&mut self) -> Result<(), GdbError> {
        self.client
            .tell("to let the guest run", self.guest.resume.payload())
    }

    /// Handles packets that came without a request while the guest was running.
    fn listen(&mut self) -> Result<(), GdbError> {
        while !self.guard.is_done() {
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
                Ok(None) => break,
                Err(GdbError::Closed(_)) => self.gone(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles a closed connection. Usually the guest has ended; if not, it may be stopped.
    pub(super) fn gone(&mut self) {
        let is_there = self.guard.release(&self.client);
        if self.life == Life::Alive {
            self.life = Life::Ended(if is_there {
                "the stub closed the connection; the guest runs on".into()
            } else {
                "the guest's monitor ended".into()
            });
        }
    }

    /// Reads memory outside the stack's copy, in one more round trip.
    pub(super) fn read_far(
        &mut self,
        place: usize,
        address: u64,
        into: &mut [u8],
    ) -> Result<usize, GdbError> {
        let (client, guest) = (&mut self.client, &self.guest);
        client.begin("for memory");
        stacks::choose(client, &guest.threads[place]);
        stacks::ask_memory(client, guest, address, into.len());
        stacks::expect_chosen(client, &guest.threads[place])?;
        stacks::take_memory(client, guest, address, into)
    }
}

/// The guest's state after a stop that was not requested.
pub(super) fn life_of(stop: StopReply) -> Life {
    match stop {
        StopReply::Exited(0) => Life::Ended("the guest ended".into()),
        StopReply::Exited(status) => Life::Ended(format!("the guest ended with status {status}")),
        // SIGQUIT: QEMU's reply for a guest that shut down (-no-shutdown).
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

    fn may_freeze(&self) -> Result<(), SourceError> {
        self.guard.guardian.is_there()
    }

    fn begin(&mut self) -> Result<(), SourceError> {
        if !self.guard.guardian.may_resume() {
            let endpoint = self.client.endpoint();
            return Err(SourceError(format!(
                "the guest behind {endpoint} began before the recorder was ready: try again"
            )));
        }
        self.let_run()?;
        self.guard.guardian.running();
        if let Some(threads) = &mut self.vcpu_threads {
            threads.let_run();
        }
        Ok(())
    }

    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        self.listen()?;
        if self.life != Life::Alive {
            return Err(SourceError("the guest does not run any more".into()));
        }
        self.freezes += 1;
        if let Some(threads) = &mut self.vcpu_threads {
            threads.look(now_ns);
        }
        self.guard.guardian.freezing();
        self.hold = Hold::Frozen;
        match self.read_all(vcpus) {
            Ok(()) => {
                self.lost_in_a_row = 0;
                self.boots.sampled(now_ns, vcpus);
                Ok(())
            }
            // The guardian resumed the guest because this took too long. Our requests stopped it again, or were lost.
            Err(_)
                if !self.guard.guardian.is_frozen()
                    && self.life == Life::Alive
                    && self.lost_in_a_row < MOST_LOST_IN_A_ROW =>
            {
                self.lost_in_a_row += 1;
                vcpus.clear();
                for _ in &self.guest.threads {
                    vcpus.miss();
                }
                self.hold = Hold::Unsure;
                self.resume()
            }
            Err(error) => {
                if matches!(error, GdbError::Closed(_)) {
                    self.gone();
                }
                self.guard.release(&self.client);
                self.hold = Hold::Running;
                Err(error.into())
            }
        }
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let place = vcpu.handle as usize;
        if let Some(ram) = &mut self.ram {
            return ram.read(place, address, into);
        }
        match self.stacks.read(vcpu, address, into) {
            Some(count) => count,
            None if self.hold != Hold::Frozen || !self.guard.guardian.is_frozen() => 0,
            None => by_page(address, into, |address, into| {
                self.read_far(place, address, into).unwrap_or_else(|_| {
                    // Replies may be outstanding; the next freeze reports the error.
                    self.hold = Hold::Unsure;
                    0
                })
            }),
        }
    }

    fn reads_running(&self) -> bool {
        self.ram.is_some()
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        let ours = self.guard.guardian.may_resume();
        self.was_rescued = !ours;
        let done = match std::mem::replace(&mut self.hold, Hold::Unsure) {
            Hold::Running => Ok(()),
            Hold::Frozen if ours => match self.let_run() {
                Ok(()) if !self.guard.guardian.resumed() => self.let_run_anew(false),
                done => done,
            },
            Hold::Frozen | Hold::Unsure => self.let_run_anew(ours),
        };
        if let Err(error) = done {
            // The guardian looks after the guest until another try succeeds.
            self.guard.guardian.not_resumed();
            return Err(error.into());
        }
        self.hold = Hold::Running;
        self.guard.guardian.running();
        if let Some(threads) = &mut self.vcpu_threads {
            threads.let_run();
        }
        Ok(())
    }

    fn complete(&mut self, vcpus: &mut Vcpus) {
        if let Some(threads) = &mut self.vcpu_threads {
            vcpus
                .all_mut()
                .iter_mut()
                .for_each(|vcpu| threads.complete(vcpu));
        }
    }

    fn has_moved(&self, _: &Vcpu) -> bool {
        self.was_rescued
    }

    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64> {
        let ram = self.ram.as_mut()?;
        ram.frame_of(vcpu.handle as usize, address)?.physical()
    }

    fn kernel_tables(&mut self, vcpu: &Vcpu) -> Option<u64> {
        self.ram.as_mut()?.kernel_tables(vcpu.handle as usize)
    }

    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        self.boots.report(self.facts.target.vcpus, sink);
        self.listen()?;
        Ok(self.life.clone())
    }

    fn totals(&self) -> Vec<(String, u64)> {
        let trips = self.client.round_trips - self.first_round_trips;
        let mut totals = vec![
            ("freezes".into(), self.freezes),
            ("round_trips".into(), trips),
            ("rescues".into(), self.guard.guardian.rescues()),
        ];
        totals.extend(self.boots.totals(self.narrow));
        totals.extend(self.vcpu_threads.iter().flat_map(VcpuThreads::totals));
        totals
    }
}

impl Drop for GdbSource {
    fn drop(&mut self) {
        if self.held_by_other {
            self.guard.forget();
        } else {
            self.guard.release(&self.client);
        }
    }
}
