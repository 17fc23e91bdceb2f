//! Samples the guest of a monitor, whose vCPUs' threads it pauses for each sample.

use super::host::{self, HostObserver, VcpuThreadId};
use super::monitor::Monitor;
use super::ram::{self, Evidence, Ram};
use super::rescue::{MonitorRescuer, Words};
use super::run_page::{self, BYTES, VALID_AT};
use super::search::{STOP_WITHIN_NS, Threads, VcpuThread, find_threads, let_go_for_sure, refused};
use super::thread::LateThreads;
use crate::elf::Image;
use crate::guest::boots::Boots;
use crate::guest::command::Child;
use crate::guest::guardian::Guardian;
use crate::guest::held::let_all_go;
use crate::guest::monitored::Mark;
use crate::guest::page_tables::{Paging, Roots};
use crate::guest::pauses::PauseWriter;
use crate::guest::processor_time::{MISSED_TIME, VcpuTimes};
use crate::source::plan::Plan;
use crate::source::ring::Sink;
use crate::source::{Facts, Hot, Life, Observer, Source, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::stat;
use nix::errno::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use uprof::cold::{Target, TargetKind, TaskEvent, UNKNOWN_TIME};
use uprof::{Arch, Details, State, Task};

/// Longest search for the guest's memory.
const SEARCH: Duration = Duration::from_secs(2);
/// How long another program may trace the threads, as another recorder does during its samples, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Number of samples after which KVM must have reported that a vCPU enters the guest.
const ROUNDS: u32 = 16;

/// How long a monitor may take to end after its vCPUs' threads, and the time between looks at it, in nanoseconds.
const ENDS_WITHIN_NS: u64 = 500_000_000;
const BETWEEN_LOOKS_NS: u64 = 1_000_000;

/// Why nothing is known of vCPUs' time.
const NO_EXITS: &str = "this host's KVM reports no exits, as a paravirtual one (kvm-pvm) doesn't, so what vCPUs do is \
                        unknown";

/// The total of samples of vCPUs whose monitor was stopped by a signal.
pub const STOPPED_SAMPLES: &str = "samples_while_the_monitor_was_stopped";

/// The total of vCPUs at the end that were not there, or did not run, when the recording began.
const VCPUS_NOT_RECORDED: &str = "vcpus_not_recorded";

/// The backend.
pub(super) struct KvmSource {
    facts: Facts,
    /// The monitor, if the recorder has started it.
    started: Option<Child>,
    /// Whether the guest's memory is still searched for, as the guest has only begun.
    searches: bool,
    pid: i32,
    memory: File,
    words: Words,
    guardian: Guardian,
    vcpus: Vec<VcpuThread>,
    /// Other threads of the monitor that must be let go of.
    late: LateThreads,
    ram: Ram,
    roots: Roots,
    boots: Boots,
    /// Samples of vCPUs that were not in 64-bit mode, and of those whose monitor was stopped.
    narrow: u64,
    stopped: u64,
    life: Life,
    freezes: u64,
    /// When the guest was resumed.
    let_go_ns: Option<u64>,
    /// When it was last paused and resumed, and for how long it could run from then until the last freeze.
    runs_from_ns: Option<u64>,
    since_ns: u64,
    /// Processor time of each vCPU's thread, and of all.
    times: VcpuTimes,
    /// vCPUs without a sample, since they didn't stop in time or KVM was no longer asked for registers.
    left_out: u64,
    /// Since when another program has traced the threads.
    held_by_other_ns: Option<u64>,
    /// Where pauses are reported, if the host's view of the vCPUs is recorded.
    pauses: Option<PauseWriter>,
}

/// Opens the guest of process `pid`. Must be called on the thread that will sample, while it is the only one, since it
/// forks a guardian.
///
/// # Errors
/// Says why the guest can't be sampled; it keeps running.
pub fn open(pid: i32, images: Vec<Image>, plan: &Plan) -> Result<Source, SourceError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(SourceError(
            "KVM hands out registers without being asked on x86-64 alone: record the guest by its monitor's gdb stub \
             or QMP"
                .into(),
        ));
    }
    let monitor = Monitor::of(pid)?;
    let mut source = open_guest(&monitor, images, ram::UNSURE_ROUNDS)?;
    let total = monitor.vcpus.len();
    source.note_what_was_found(total);
    let mut observer: Option<Box<dyn Observer>> = None;
    let mut handled = None;
    if plan.host {
        let watching = source.watch_host(plan.most_exits_hz)?;
        handled = Some(watching.handled());
        observer = Some(Box::new(watching));
    }
    (source.freezes, source.left_out, source.narrow) = (0, 0, 0);
    Ok(Source {
        observer,
        handled,
        ..Source::of(Hot::StopWorld(Box::new(source)))
    })
}

/// Opens the guest of a monitor, and searches for its memory, with `unsure_rounds` looks while it is not known where
/// its low part ends. See [`open`].
pub(super) fn open_guest(
    monitor: &Monitor,
    images: Vec<Image>,
    unsure_rounds: u32,
) -> Result<KvmSource, SourceError> {
    let pid = monitor.pid;
    if monitor.is_stopped() {
        return Err(SourceError(format!(
            "process {pid} ({}) is stopped, by a signal such as SIGSTOP, and its guest with it: `kill -CONT {pid}` \
             lets it run",
            monitor.name
        )));
    }
    let mut source = attach(monitor, images, |guardian| find_threads(monitor, guardian))?;
    source.find_memory(unsure_rounds)?;
    Ok(source)
}

/// Asks KVM for the registers of a monitor's vCPUs, whose threads `find` finds, under the eyes of a guardian.
pub(super) fn attach(
    monitor: &Monitor,
    images: Vec<Image>,
    find: impl FnOnce(&mut Guardian) -> Result<Threads, SourceError>,
) -> Result<KvmSource, SourceError> {
    let pid = monitor.pid;
    let gone = |error: std::io::Error| {
        SourceError(format!(
            "cannot read what process {pid} shares with KVM: {error}"
        ))
    };
    let maps = File::open(format!("/proc/{pid}/maps")).map_err(gone)?;
    let words = || Words::of(&monitor.memory, &maps, &monitor.vcpus).map_err(gone);
    let (mut words, kept) = (words()?, words()?);
    let descriptors = kept.descriptors();
    let rescuer = MonitorRescuer {
        words: kept,
        recorder: std::process::id() as i32,
        monitor: pid,
    };
    // From here on the guardian restores the words, should this function fail.
    let mut guardian = Guardian::start(&descriptors, rescuer)?;
    let Threads { vcpus, late } = find(&mut guardian)?;
    words.ask().map_err(gone)?;
    let memory = || monitor.memory.try_clone().map_err(gone);
    Ok(KvmSource {
        facts: facts(monitor, &vcpus, images),
        started: None,
        searches: false,
        pid,
        words,
        guardian,
        times: VcpuTimes::new(vcpus.len()),
        vcpus,
        late,
        ram: Ram::new(memory()?, &monitor.areas),
        memory: memory()?,
        roots: Roots::default(),
        boots: Boots::default(),
        narrow: 0,
        stopped: 0,
        life: Life::Alive,
        freezes: 0,
        let_go_ns: None,
        runs_from_ns: None,
        since_ns: 0,
        left_out: 0,
        held_by_other_ns: None,
        pauses: None,
    })
}

fn facts(monitor: &Monitor, vcpus: &[VcpuThread], images: Vec<Image>) -> Facts {
    let now_ns = monotonic_ns();
    let tasks = vcpus.iter().map(|vcpu| {
        let vcpu = vcpu.number;
        TaskEvent::named(now_ns, Task { space: 0, vcpu }, format!("vCPU {vcpu}"))
    });
    Facts {
        notes: vec![("monitor".into(), monitor.name.clone())],
        missed_time: Some(MISSED_TIME),
        tasks: tasks.collect(),
        images: images.into(),
        ..Facts::new(Target {
            kind: TargetKind::Kvm,
            id: u64::from(monitor.pid.unsigned_abs()),
            name: monitor.name.clone(),
            arch: Arch::X86_64,
            vcpus: vcpus.len() as u32,
        })
    }
}

/// How the monitor, process `pid`, ended, if it is the command that was started.
fn ending_of(started: Option<&mut Child>, pid: i32) -> Option<Life> {
    let command = started.filter(|command| command.pid() == pid)?;
    Some(command.life()).filter(|life| *life != Life::Alive)
}

/// How the guest of process `pid` ended, whose vCPUs' threads are gone. Waits for the other threads of a monitor that
/// ends, too, since only then its status is known.
fn how_ended(pid: i32, started: Option<&mut Child>) -> Life {
    let end_ns = monotonic_ns() + ENDS_WITHIN_NS;
    while stat::is_running(pid) {
        if monotonic_ns() > end_ns {
            return Life::Ended(format!(
                "the guest of process {pid} has ended or was restarted: if it runs, record it again"
            ));
        }
        sleep_until(monotonic_ns() + BETWEEN_LOOKS_NS);
    }
    let ended = || Life::Ended(format!("the guest's monitor, process {pid}, has ended"));
    ending_of(started, pid).unwrap_or_else(ended)
}

impl KvmSource {
    /// A source whose guest has not begun, as `started` holds all of its vCPUs.
    pub(super) fn before_first_entry(mut self, started: Child) -> Self {
        (self.started, self.searches) = (Some(started), true);
        self
    }

    /// Weighs what vCPUs in 64-bit mode show of the guest's memory, until it is found.
    fn search_on(&mut self, vcpus: &Vcpus) {
        let ip = Arch::X86_64.special_registers().ip;
        for vcpu in vcpus.all() {
            let place = &self.vcpus[vcpu.handle as usize];
            if let (Some(ip), true) = (vcpu.registers.get(ip), place.is_long) {
                let paging = place.paging;
                self.ram.weigh(Evidence { paging, ip });
            }
        }
        self.searches = !self.ram.is_found();
    }

    /// Takes samples until the position of the guest's memory is certain.
    fn find_memory(&mut self, unsure_rounds: u32) -> Result<(), SourceError> {
        let begun = Instant::now();
        let mut has_registers = false;
        for round in 0.. {
            if begun.elapsed() > SEARCH || self.ram.suffices(round, unsure_rounds) {
                break;
            }
            let mut vcpus = Vcpus::new();
            self.freeze(monotonic_ns(), &mut vcpus)?;
            let ip = Arch::X86_64.special_registers().ip;
            for vcpu in vcpus.all() {
                let place = &self.vcpus[vcpu.handle as usize];
                let paging = place.paging;
                if let (Some(ip), true) = (vcpu.registers.get(ip), place.is_long) {
                    has_registers = true;
                    self.ram.weigh(Evidence { paging, ip });
                }
            }
            self.resume()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        if has_registers {
            return Ok(());
        }
        let pid = self.pid;
        Err(SourceError(if self.narrow > 0 {
            format!(
                "the guest of process {pid} runs 32-bit code, and uniprof samples 64-bit guests only: if it is being \
                 started, record again later"
            )
        } else {
            format!(
                "KVM hands out no registers of the guest of process {pid}: it is a confidential one (SEV-ES, TDX), or \
                 this kernel is older than Linux 4.17"
            )
        }))
    }

    /// Begins to watch what the host knows of the vCPUs.
    fn watch_host(&mut self, most_exits_hz: u64) -> Result<HostObserver, SourceError> {
        let threads = self.vcpus.iter().map(|vcpu| VcpuThreadId {
            task: Task {
                space: 0,
                vcpu: vcpu.number,
            },
            pid: self.pid,
            tid: vcpu.thread.tid(),
        });
        let (mut observer, pauses) = host::open(&threads.collect::<Vec<_>>(), most_exits_hz)?;
        self.pauses = Some(pauses);
        let note = "exits by KVM's tracepoints, waits by the scheduler's switches";
        self.facts.notes.push(("time of vCPUs".into(), note.into()));
        if !self.reports_exits(&mut observer)? {
            observer.expect_no_exits();
            self.facts
                .notes
                .push((UNKNOWN_TIME.into(), NO_EXITS.into()));
            self.facts.warnings.push(format!(
                "--host: {NO_EXITS}; samples are recorded as without it"
            ));
        }
        Ok(observer)
    }

    /// Whether KVM reports that a vCPU enters the guest, as one does after a pause; also if none runs now.
    fn reports_exits(&mut self, observer: &mut HostObserver) -> Result<bool, SourceError> {
        let mut has_run = false;
        for _ in 0..ROUNDS {
            let mut vcpus = Vcpus::new();
            self.freeze(monotonic_ns(), &mut vcpus)?;
            has_run |= vcpus.all().iter().any(|vcpu| vcpu.state == State::Running);
            self.resume()?;
            std::thread::sleep(Duration::from_millis(5));
            if observer.has_seen_guest() {
                return Ok(true);
            }
        }
        Ok(!has_run)
    }

    /// The bytes at a guest's address, as its vCPUs translated it in the last sample, to be looked at again.
    pub(super) fn mark(&mut self, address: u64, bytes: usize) -> Option<Mark> {
        let mut paging = self.vcpus.iter().map(|vcpu| vcpu.paging);
        let physical = paging.find_map(|it| it.translate(&mut self.ram, address).ok()?.physical());
        let at = self.ram.place_of(physical?, bytes)?;
        Mark::of(self.memory.try_clone().ok()?, at, bytes)
    }

    /// Whether the guest's memory was found.
    pub(super) fn has_memory(&self) -> bool {
        self.ram.layout().is_some()
    }

    fn note_what_was_found(&mut self, total: usize) {
        let Facts {
            notes, warnings, ..
        } = &mut self.facts;
        match self.ram.layout() {
            Some(layout) => {
                notes.push(("guest memory in the monitor".into(), layout.to_string()));
                if self.ram.is_unsure() {
                    warnings.push(
                        "it is not certain where the guest's memory from 2 GiB on is in its monitor's: stacks there \
                         may be cut or wrong; record again while the guest uses more of it"
                            .into(),
                    );
                }
            }
            None => warnings.push(
                "the guest's memory was not found in its monitor's: stacks have one frame; is the guest running?"
                    .into(),
            ),
        }
        self.note_absent(self.vcpus.len(), total);
    }

    /// Says that only `found` of `total` vCPUs are recorded.
    pub(super) fn note_absent(&mut self, found: usize, total: usize) {
        if found < total {
            self.facts.warnings.push(format!(
                "{} of {total} vCPUs did not run and are not recorded",
                total - found
            ));
        }
    }

    /// Pauses all vCPUs; returns whether no other program traced one.
    fn hold(&mut self) -> Result<bool, SourceError> {
        for vcpu in &mut self.vcpus {
            let (state, processor) = vcpu.thread.times().seen().unzip();
            vcpu.asleep = state != Some(b'R');
            vcpu.stopped = state == Some(b'T');
            vcpu.processor = processor.flatten();
            let Err(errno) = vcpu.thread.ask() else {
                continue;
            };
            let now_ns = monotonic_ns();
            let since_ns = *self.held_by_other_ns.get_or_insert(now_ns);
            if now_ns - since_ns > PATIENCE_NS || errno != Errno::EPERM {
                return Err(refused(self.pid, vcpu.thread.tid(), errno));
            }
            return Ok(false);
        }
        self.held_by_other_ns = None;
        Ok(true)
    }

    fn read_all(&mut self, vcpus: &mut Vcpus) {
        let deadline_ns = monotonic_ns() + STOP_WITHIN_NS;
        for place in 0..self.vcpus.len() {
            let vcpu = &mut self.vcpus[place];
            let mut bytes = [0; BYTES];
            let stands = vcpu.thread.wait(deadline_ns);
            let at = vcpu.run_page + VALID_AT;
            if !stands || self.memory.read_exact_at(&mut bytes, at).is_err() {
                self.left_out += 1;
                if !vcpu.thread.is_gone() {
                    vcpus.miss();
                }
                continue;
            }
            if !run_page::is_asked(&bytes) {
                // Another recorder has ended, or the monitor has requests of its own.
                self.left_out += 1;
                vcpus.miss();
                let _ = self.words.ask_of(vcpu.run_page);
                continue;
            }
            let state = run_page::state(&bytes);
            let registers = state.map(|state| state.registers).unwrap_or_default();
            vcpu.paging = state.map_or(Paging::Unsupported, |state| {
                Paging::of_registers(Arch::X86_64, state.control)
            });
            vcpu.is_long = state.is_some_and(|state| state.is_long);
            self.boots.see(vcpu.paging);
            self.narrow += u64::from(state.is_some() && !vcpu.is_long && !vcpu.asleep);
            self.stopped += u64::from(vcpu.stopped);
            let ip = Arch::X86_64.special_registers().ip;
            let ip = registers.get(ip);
            vcpus.push(Vcpu {
                task: Task {
                    space: 0,
                    vcpu: vcpu.number,
                },
                state: match ip {
                    _ if vcpu.stopped => State::Paused,
                    None => State::Offline,
                    // The vCPU waits to be started.
                    Some(_) if vcpu.asleep && !vcpu.is_long => State::Offline,
                    Some(_) if vcpu.asleep => State::Blocked,
                    Some(_) => State::Running,
                },
                registers,
                handle: place as u64,
                details: Details {
                    root: self
                        .roots
                        .of(vcpu.paging.root().filter(|_| ip.is_some()), ip),
                    ..Details::default()
                },
            });
        }
    }

    fn let_all_go(&mut self) {
        self.late.let_go();
        self.let_go_ns = let_all_go(&mut self.vcpus);
        // Between samples, no thread is paused.
        self.runs_from_ns = self.let_go_ns.or(self.runs_from_ns);
        if let Some(pauses) = &mut self.pauses {
            pauses.end(self.let_go_ns.unwrap_or_else(monotonic_ns));
        }
    }
}

impl StopWorld for KvmSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn may_freeze(&self) -> Result<(), SourceError> {
        self.guardian.is_there()
    }

    fn begin(&mut self) -> Result<(), SourceError> {
        self.let_all_go();
        Ok(())
    }

    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        self.freezes += 1;
        self.since_ns = now_ns.saturating_sub(self.runs_from_ns.unwrap_or(now_ns));
        self.guardian.freezing();
        if let Some(pauses) = &self.pauses {
            pauses.begin(now_ns);
        }
        match self.hold() {
            Ok(true) => {
                self.read_all(vcpus);
                self.boots.sampled(now_ns, vcpus);
                Ok(())
            }
            Ok(false) => {
                // Another program holds them.
                self.vcpus.iter().for_each(|_| vcpus.miss());
                self.let_all_go();
                Ok(())
            }
            Err(error) => {
                self.resume()?;
                Err(error)
            }
        }
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let found = self.vcpus.get(vcpu.handle as usize);
        let found = found.filter(|_| !self.searches);
        found.map_or(0, |vcpu| vcpu.paging.read(&mut self.ram, address, into))
    }

    fn reads_running(&self) -> bool {
        true
    }

    /// Resumes the threads in any case, since the guardian can't.
    fn resume(&mut self) -> Result<(), SourceError> {
        self.guardian.may_resume();
        self.let_all_go();
        if self.vcpus.iter().any(|vcpu| vcpu.thread.is_held()) {
            // It has not stopped yet, and is let go when it has.
            self.guardian.not_resumed();
        } else {
            self.guardian.running();
        }
        Ok(())
    }

    /// A thread that was not asleep may have waited for a processor. Its processor time is exact now, as the kernel
    /// updated it when the thread stopped.
    fn complete(&mut self, vcpus: &mut Vcpus) {
        if self.searches {
            self.search_on(vcpus);
        }
        for vcpu in vcpus.all_mut() {
            let place = vcpu.handle as usize;
            let Some(counted_ns) = self.vcpus[place].thread.times().processor_time_ns() else {
                continue;
            };
            let seen = match vcpu.state {
                State::Running => State::Ready,
                other => other,
            };
            vcpu.state = self.times.state(place, seen, counted_ns, self.since_ns);
        }
    }

    fn resumed_ns(&self) -> Option<u64> {
        self.let_go_ns
    }

    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64> {
        let paging = self.vcpus.get(vcpu.handle as usize)?.paging;
        paging.translate(&mut self.ram, address).ok()?.physical()
    }

    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        self.boots.report(self.facts.target.vcpus, sink);
        // Threads that stopped late.
        self.let_all_go();
        if !self.vcpus.iter().any(|vcpu| vcpu.thread.is_held()) {
            self.guardian.running();
        }
        if self.life == Life::Alive
            && let Some(ending) = ending_of(self.started.as_mut(), self.pid)
        {
            self.life = ending;
        }
        if self.life == Life::Alive && self.vcpus.iter().all(|vcpu| vcpu.thread.is_gone()) {
            self.life = how_ended(self.pid, self.started.as_mut());
        }
        Ok(self.life.clone())
    }

    fn totals(&self) -> Vec<(String, u64)> {
        let mut totals = vec![
            ("freezes".into(), self.freezes),
            ("left_out".into(), self.left_out),
            ("rescues".into(), self.guardian.rescues()),
        ];
        totals.extend(self.boots.totals(self.narrow));
        // If the kernel doesn't report processor time, nothing is counted.
        let times = self.times.totals();
        totals.extend(times.into_iter().filter(|(_, ns)| *ns > 0));
        if self.stopped > 0 {
            totals.push((STOPPED_SAMPLES.into(), self.stopped));
        }
        let mut now = self.words.vcpus_now().unwrap_or_default();
        // One that was unplugged and is back has another thread.
        let is_recorded =
            |vcpu: &VcpuThread, number| vcpu.number == number && !vcpu.thread.is_gone();
        now.retain(|now| !self.vcpus.iter().any(|vcpu| is_recorded(vcpu, now.number)));
        if !now.is_empty() {
            totals.push((VCPUS_NOT_RECORDED.into(), now.len() as u64));
        }
        totals
    }
}

impl Drop for KvmSource {
    fn drop(&mut self) {
        for vcpu in &mut self.vcpus {
            let_go_for_sure(&mut vcpu.thread);
        }
        self.late.let_go();
        self.words.restore();
        self.guardian.dismiss();
        if let Some(started) = &self.started {
            started.end_other(self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::command::{Command, ExitStatus, Stdout};

    #[test]
    fn a_monitor_that_outlives_its_guest_is_not_said_to_have_ended() {
        let own = std::process::id() as i32;
        let said = |pid| match how_ended(pid, None) {
            Life::Ended(how) => how,
            other => format!("{other:?}"),
        };
        let restarted = format!("the guest of process {own} has ended or was restarted");
        assert!(said(own).starts_with(&restarted));
        assert!(said(i32::MAX).ends_with("has ended"));
    }

    #[test]
    fn a_monitor_that_is_the_command_is_said_to_have_ended_with_its_status() {
        let command = Command {
            arguments: ["sh", "-c", "exit 3"].map(str::to_owned).to_vec(),
            keep_running: false,
            stdout: Stdout::Same,
            status: ExitStatus::default(),
        };
        let mut child = command.start().unwrap();
        child.go().unwrap();
        let pid = child.pid();
        while stat::is_running(pid) {
            std::thread::yield_now();
        }
        let ended = Life::Ended("`sh` ended with status 3".into());
        assert_eq!(how_ended(pid, Some(&mut child)), ended);
        assert_eq!(command.status.get(), Some(3));
    }
}
