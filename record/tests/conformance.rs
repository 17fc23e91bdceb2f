//! The promises that every sort of guest makes to the recorder, checked for each in one table. A guest that
//! was frozen runs again. The sampler's loop allocates nothing. The end of a guest is reported, and so are
//! losses.
//!
//! If a test can't have the real guest, its row has a fake one and says so.

mod fake;
#[path = "fake/stub.rs"]
mod stub;
#[path = "fake/agent.rs"]
mod carried;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stub::State;
use tempfile::TempDir;
use uniprof_record::plan::LEAF_STACK_BYTES;
use uniprof_record::process::{self, Cgroup, Command, Process, Scope};
use uniprof_record::qemu::{Domain, Monitor};
use uniprof_record::ring::{Sink, ring};
use uniprof_record::source::{Frozen, Hot, Vcpu, Vcpus};
use uniprof_record::{
    Counters, Ending, Facts, Life, Plan, Source, SourceError, StopWorld, Summary,
};
use uniprof_record::{agent, gdb, qemu};
use uprof::cold::{EndReason, LossReason, Target};
use uprof::{Item, Payload, SliceReader};

/// The system's allocator, with a count of each thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged; counting touches a thread-local without a destructor.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A sort of guest.
struct Row {
    /// The prefix of its targets, as in `BACKENDS` of the program.
    prefix: &'static str,
    /// The guest that is used here.
    what: &'static str,
    /// Opens a guest that is always busy. The error says why that isn't possible here.
    open: fn(&Plan) -> Result<Subject, String>,
}

/// All sorts of guests, one line each.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { prefix: "pid:", what: "a process by perf events", open: by_perf },
    Row { prefix: "pid:", what: "a process by ptrace", open: by_ptrace },
    Row { prefix: "name:", what: "a process by its name", open: by_name },
    Row { prefix: "cgroup:", what: "a control group", open: by_cgroup },
    Row { prefix: "gdb:", what: "a fake stub", open: by_stub },
    Row { prefix: "qemu:", what: "a fake monitor and a fake stub", open: by_monitor },
    Row { prefix: "libvirt:", what: "a fake virsh, monitor and stub", open: by_libvirt },
    Row { prefix: "kvm:", what: "a fake guest in the place of KVM's", open: by_fake },
    Row { prefix: "agent:", what: "a fake guest with a real agent", open: by_agent },
    Row { prefix: "", what: "a fake guest in the place of a Xen domain", open: by_fake },
];

/// A guest, with access to it that doesn't depend on the recorder.
struct Subject {
    source: Source,
    /// Whether all of the guest runs.
    runs: Box<dyn Fn() -> bool>,
    /// Ends the guest while it is recorded. If it is not called, the guest ends on drop.
    end: Box<dyn FnOnce() + Send>,
    /// Whether it is a command, which ends with its recording.
    is_command: bool,
    /// A folder that is removed with the guest.
    _kept: Option<TempDir>,
}

/// The guests that are available here.
fn subjects(plan: &Plan) -> impl Iterator<Item = (&'static Row, Subject)> {
    ROWS.iter().filter_map(|row| match (row.open)(plan) {
        Ok(subject) => Some((row, subject)),
        Err(why) => {
            eprintln!("skipped: {}: {why}", row.what);
            None
        }
    })
}

const SCRIPT: [&str; 2] = ["-c", "while :; do :; done"];

/// A child with one thread that never waits.
fn busy_child() -> Process {
    let arguments = ["bash"].iter().chain(&SCRIPT).map(ToString::to_string);
    Process::Started(Command {
        keep_running: false,
        arguments: arguments.collect(),
        stdout: Default::default(),
        status: process::ExitStatus::default(),
    })
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"tTZ".contains(state))
}

/// A process that is not a command of the recorder, and its control group. Both end on drop.
struct Busy(Child, Option<PathBuf>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        self.1
            .iter()
            .for_each(|group| std::fs::remove_dir(group).unwrap());
    }
}

fn of_process(source: Source, busy: Option<Busy>, kept: Option<TempDir>) -> Subject {
    let pid = match &busy {
        Some(busy) => busy.0.id() as i32,
        None => source.hot.facts().target.id as i32,
    };
    Subject {
        source,
        runs: Box::new(move || is_running(pid)),
        is_command: busy.is_none(),
        end: Box::new(move || match busy {
            Some(busy) => drop(busy),
            None => kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap(),
        }),
        _kept: kept,
    }
}

fn by_perf(plan: &Plan) -> Result<Subject, String> {
    match process::open_perf(&busy_child(), plan) {
        Ok(source) => Ok(of_process(source, None, None)),
        Err(process::Refusal::Forbidden(errno)) => Err(format!("perf events: {errno}")),
        Err(process::Refusal::Failed(error)) => panic!("{error}"),
    }
}

fn by_ptrace(_: &Plan) -> Result<Subject, String> {
    let source = process::open_ptrace(busy_child(), Vec::new()).unwrap();
    Ok(of_process(source, None, None))
}

fn busy(program: &Path) -> Child {
    let child = std::process::Command::new(program)
        .args(SCRIPT)
        .spawn()
        .unwrap();
    // Wait until it has become the program.
    std::thread::sleep(Duration::from_millis(50));
    child
}

/// A number that no other guest of these tests has.
fn number() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("conf-{}-{number}", std::process::id())
}

fn by_name(plan: &Plan) -> Result<Subject, String> {
    let (folder, name) = (tempfile::tempdir().unwrap(), number());
    let program = folder.path().join(&name);
    std::fs::copy("/bin/bash", &program).unwrap();
    let busy = Busy(busy(&program), None);
    let scope = Scope::named(&name).unwrap();
    let source = process::open(Process::Running(scope), plan).unwrap();
    Ok(of_process(source, Some(busy), Some(folder)))
}

fn by_cgroup(plan: &Plan) -> Result<Subject, String> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].map(Path::new);
    let root = roots
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists());
    let group = root.ok_or("there are no control groups")?.join(number());
    std::fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
    let busy = Busy(busy(Path::new("bash")), Some(group.clone()));
    let joined = std::fs::write(group.join("cgroup.procs"), busy.0.id().to_string());
    joined.map_err(|error| error.to_string())?;
    let scope = Scope::Cgroup(Cgroup::find(group.to_str().unwrap()).unwrap());
    let source = process::open(Process::Running(scope), plan).unwrap();
    Ok(of_process(source, Some(busy), None))
}

fn of_fake(source: Source, state: Arc<State>, folder: Option<TempDir>) -> Subject {
    let ended = Arc::clone(&state);
    Subject {
        source,
        runs: Box::new(move || !state.stands.load(Ordering::SeqCst)),
        end: Box::new(move || ended.ended.store(true, Ordering::SeqCst)),
        is_command: false,
        _kept: folder,
    }
}

fn by_stub(plan: &Plan) -> Result<Subject, String> {
    let (folder, state) = (tempfile::tempdir().unwrap(), Arc::default());
    let path = stub::stub(folder.path(), &state);
    let source = gdb::open::open_stub(path.to_str().unwrap(), Vec::new(), plan).unwrap();
    Ok(of_fake(source, state, Some(folder)))
}

fn by_monitor(plan: &Plan) -> Result<Subject, String> {
    let (folder, state) = (tempfile::tempdir().unwrap(), Arc::default());
    let path = stub::monitor(folder.path(), &stub::stub(folder.path(), &state));
    let source =
        qemu::source::open(&Monitor::at(path.to_str().unwrap()), Vec::new(), plan).unwrap();
    Ok(of_fake(source, state, Some(folder)))
}

/// Passes a command on to the fake monitor, as libvirt does to QEMU's.
const FAKE_VIRSH: &str = r#"#!/usr/bin/env python3
import pathlib, socket, sys
command = next(word for word in sys.argv if word.startswith("--cmd=")).removeprefix("--cmd=")
monitor = socket.socket(socket.AF_UNIX)
monitor.connect(str(pathlib.Path(__file__).with_name("qmp")))
lines = monitor.makefile("rw")
lines.readline()
lines.write(command + "\n")
lines.flush()
print(lines.readline())
"#;

fn by_libvirt(plan: &Plan) -> Result<Subject, String> {
    let (folder, state) = (tempfile::tempdir().unwrap(), Arc::default());
    stub::monitor(folder.path(), &stub::stub(folder.path(), &state));
    let virsh = folder.path().join("virsh");
    std::fs::write(&virsh, FAKE_VIRSH).unwrap();
    std::fs::set_permissions(&virsh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let name = "web".to_owned();
    let monitor = Monitor::Libvirt(Domain { name, virsh });
    let source =
        qemu::source::open(&monitor, Vec::new(), plan).map_err(|error| error.to_string())?;
    Ok(of_fake(source, state, Some(folder)))
}

fn by_agent(plan: &Plan) -> Result<Subject, String> {
    let (folder, has_ended) = (tempfile::tempdir().unwrap(), Arc::default());
    let path = carried::start(folder.path(), &has_ended);
    let source = agent::open::open(path.to_str().unwrap(), &[], plan).unwrap();
    Ok(Subject {
        source,
        runs: Box::new(|| true),
        end: Box::new(move || has_ended.store(true, Ordering::SeqCst)),
        is_command: false,
        _kept: Some(folder),
    })
}

fn by_fake(_: &Plan) -> Result<Subject, String> {
    let state = Arc::new(State::default());
    let guest = FakeGuest {
        facts: Facts::new(Target::default()),
        state: Arc::clone(&state),
    };
    let source = Source::of(Hot::StopWorld(Box::new(guest)));
    Ok(of_fake(source, state, None))
}

/// Two vCPUs with readable stacks. It is named fake because it is not a real guest.
struct FakeGuest {
    facts: Facts,
    state: Arc<State>,
}

impl StopWorld for FakeGuest {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, _: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        assert!(!self.state.stands.swap(true, Ordering::SeqCst), "twice");
        fake::push_running(vcpus, 2);
        Ok(())
    }

    fn read(&mut self, _: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        fake::read_frames(address, into)
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        assert!(self.state.stands.swap(false, Ordering::SeqCst), "twice");
        Ok(())
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        Ok(if self.state.ended.load(Ordering::SeqCst) {
            Life::Ended("it has ended".into())
        } else {
            Life::Alive
        })
    }
}

/// A guest whose freezes are disturbed.
struct Disturbed {
    inner: Box<dyn StopWorld>,
    freezes: u32,
    /// Called before each freeze with its number. Returns whether nothing stops in time.
    disturb: fn(u32) -> bool,
}

/// The freeze that takes long. It is an early one, so that a recording on a busy machine doesn't end in it.
const SLOW_FREEZE: (u32, Duration) = (10, Duration::from_millis(300));

/// One freeze takes long.
fn slow_once(freeze: u32) -> bool {
    if freeze == SLOW_FREEZE.0 {
        std::thread::sleep(SLOW_FREEZE.1);
    }
    false
}

/// In every other freeze, nothing stops, which takes ten periods.
fn unstoppable(freeze: u32) -> bool {
    let is_late = freeze.is_multiple_of(2);
    if is_late {
        std::thread::sleep(Duration::from_millis(10));
    }
    is_late
}

impl StopWorld for Disturbed {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        self.freezes += 1;
        let is_late = (self.disturb)(self.freezes);
        self.inner.freeze(now_ns, vcpus)?;
        if is_late {
            let found = vcpus.all().len();
            vcpus.clear();
            (0..found).for_each(|_| vcpus.miss());
        }
        Ok(())
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        self.inner.read(vcpu, address, into)
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        self.inner.resume()
    }

    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        self.inner.between(sink)
    }
}

/// Of what can't be stopped, each deadline is lost, and so are those that pass meanwhile.
#[test]
fn deadlines_of_what_does_not_stop_are_missed() {
    let plan = plan(1000, 0);
    let mut subject = by_fake(&plan).unwrap();
    let Hot::StopWorld(inner) = subject.source.hot else {
        unreachable!("a fake is stopped")
    };
    subject.source.hot = Hot::StopWorld(Box::new(Disturbed {
        inner,
        freezes: 0,
        disturb: unstoppable,
    }));
    let summary = record(subject.source, &plan, &mut Vec::new());
    let lost = summary.lost.iter();
    let lost = lost.filter(|(reason, _)| *reason == LossReason::Deadline);
    let missed: u64 = lost.map(|(_, count)| *count).sum();
    // Periods of freezes with samples, of those without, and those that passed meanwhile. Both of these lose a sample
    // of each of the two vCPUs.
    let rounds = summary.samples / 2;
    let periods = rounds + missed / 2;
    assert!(
        rounds > 20 && (900..=1050).contains(&periods),
        "{rounds}, {missed}: {periods} of 997"
    );
}

fn plan(milliseconds: u64, stack_bytes: u32) -> Plan {
    Plan {
        rate_hz: 997.0,
        duration: Some(Duration::from_millis(milliseconds)),
        stack_bytes,
        ..Plan::default()
    }
}

fn record(source: Source, plan: &Plan, output: &mut Vec<u8>) -> Summary {
    let counters = Arc::new(Counters::default());
    uniprof_record::record(source, output, plan, counters).unwrap()
}

/// Whether the condition soon becomes true.
fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn every_kind_of_guest_of_the_program_is_asked() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/target.rs");
    let table = std::fs::read_to_string(table).unwrap();
    let prefixes = table.lines().filter_map(|line| {
        let prefix = line.trim().strip_prefix("prefix: \"")?;
        prefix.strip_suffix("\",")
    });
    let here: BTreeSet<&str> = ROWS.iter().map(|row| row.prefix).collect();
    assert_eq!(here, prefixes.collect());
}

#[test]
fn what_was_frozen_runs_again() {
    let plan = plan(0, 4096);
    for (Row { what, .. }, mut subject) in subjects(&plan) {
        let runs = &subject.runs;
        let (mut sink, _drain) = ring(4096, 2, 997.0, true);
        let (mut vcpus, mut frozen_rounds) = (Vcpus::new(), 0);
        let rounds = match &mut subject.source.hot {
            Hot::StopWorld(source) => {
                for round in 0..50 {
                    vcpus.clear();
                    let frozen = Frozen::freeze(&mut **source, &mut vcpus).unwrap();
                    frozen_rounds += u32::from(!runs());
                    if round % 2 == 0 {
                        frozen.resume().unwrap();
                    } else {
                        drop(frozen);
                    }
                    let runs = || source.between(&mut sink).is_ok() && runs();
                    assert!(soon(runs), "{what}: it stands after round {round}");
                }
                50
            }
            // The kernel doesn't stop a process in order to sample it.
            Hot::Pushed(_) => 0,
        };
        // A process that had no processor is not stopped.
        assert!(
            frozen_rounds * 2 >= rounds,
            "{what}: {frozen_rounds} rounds"
        );
    }
}

#[test]
fn a_guest_runs_after_a_recording() {
    let plan = plan(400, 4096);
    for (Row { what, .. }, subject) in subjects(&plan) {
        let summary = record(subject.source, &plan, &mut Vec::new());
        assert!(summary.samples > 0, "{what}");
        assert!(
            subject.is_command || soon(&subject.runs),
            "{what}: it stands"
        );
    }
}

/// Opening a target reads `/proc`, whose size varies, so the number of allocations does, too.
const OPENING_DIFFERS_BY: u64 = 4;

/// Records for a while, and counts the allocations of this thread, which is the sampling one.
fn counted(row: &Row, milliseconds: u64, stack_bytes: u32) -> Option<(Summary, u64)> {
    let plan = plan(milliseconds, stack_bytes);
    let subject = (row.open)(&plan).ok()?;
    let mut output = Vec::new();
    let before = CALLS.with(Cell::get);
    let summary = record(subject.source, &plan, &mut output);
    Some((summary, CALLS.with(Cell::get) - before))
}

/// On the sampling thread, a recording with many samples makes as many allocations as one with few.
#[test]
fn the_loop_allocates_nothing() {
    for row in ROWS {
        for stack_bytes in [0, LEAF_STACK_BYTES, 16 << 10] {
            let Some((short, few)) = counted(row, 300, stack_bytes) else {
                continue;
            };
            // On a busy machine it takes longer until a recording has enough samples.
            let is_long = |(long, _): &(Summary, u64)| long.samples > short.samples + 20;
            let (long, many) = [1500, 6000, 24_000]
                .into_iter()
                .filter_map(|milliseconds| counted(row, milliseconds, stack_bytes))
                .find(is_long)
                .unwrap_or_else(|| panic!("{}: too few samples in 24 s to tell", row.what));
            // The part of /proc that is read when opening may have changed its size. An allocation for each
            // sample would show in every recording.
            let is_near = |few: u64| many.abs_diff(few) <= OPENING_DIFFERS_BY;
            let mut again = (0..3).filter_map(|_| counted(row, 300, stack_bytes));
            assert!(
                is_near(few) || again.any(|(_, few)| is_near(few)),
                "{}: {} samples cost {many} allocations, {} cost {few}",
                row.what,
                long.samples,
                short.samples
            );
        }
    }
}

#[test]
fn the_end_of_a_guest_is_told() {
    let plan = plan(60_000, 4096);
    for (Row { prefix, what, .. }, subject) in subjects(&plan) {
        // Other processes with that name may come; tests/process.rs has some that do.
        if *prefix == "name:" {
            continue;
        }
        let Subject { source, end, .. } = subject;
        let counters = Arc::new(Counters::default());
        let seen = Arc::clone(&counters);
        let ending = std::thread::spawn(move || {
            soon(|| seen.samples.load(Ordering::Relaxed) > 20);
            end();
        });
        let mut bytes = Vec::new();
        let summary = uniprof_record::record(source, &mut bytes, &plan, counters).unwrap();
        ending.join().unwrap();
        assert!(summary.passed_ns < 30_000_000_000, "{what}: it goes on");
        let told = match &summary.ending {
            Ending::TargetEnded(how) | Ending::TargetCrashed(how) => how,
            other => panic!("{what}: {other}"),
        };
        assert!(!told.is_empty(), "{what}");
        let (_, _, reason) = read(&bytes);
        assert_eq!(reason, Some(summary.ending.reason()), "{what}");
    }
}

#[test]
fn what_was_lost_is_told() {
    let plan = plan(1000, 4096);
    for (Row { what, .. }, subject) in subjects(&plan) {
        let mut source = subject.source;
        let (hot, is_slow) = match source.hot {
            Hot::StopWorld(inner) => (
                Hot::StopWorld(Box::new(Disturbed {
                    inner,
                    freezes: 0,
                    disturb: slow_once,
                }) as Box<dyn StopWorld>),
                true,
            ),
            pushed => (pushed, false),
        };
        source.hot = hot;
        let mut bytes = Vec::new();
        let summary = record(source, &plan, &mut bytes);
        let (samples, mut lost, _) = read(&bytes);
        let mut told = summary.lost.clone();
        told.sort_by_key(|(reason, _)| *reason as u32);
        lost.sort_by_key(|(reason, _)| *reason as u32);
        assert_eq!((samples, lost), (summary.samples, told), "{what}");
        let missed = summary
            .lost
            .iter()
            .find(|(reason, _)| *reason == LossReason::Deadline);
        let missed = missed.map_or(0, |(_, count)| *count);
        assert!(
            missed >= 250 || !is_slow,
            "{what}: {missed} of about 300 deadlines"
        );
    }
}

/// A program with a recorder inside may have child processes of its own.
#[test]
fn children_of_other_threads_are_left_to_them() {
    let waits = std::thread::spawn(|| {
        let mut child = std::process::Command::new("sleep")
            .arg("0.3")
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(900));
        child.wait()
    });
    let plan = plan(1000, 0);
    let subject = by_ptrace(&plan).unwrap();
    let summary = record(subject.source, &plan, &mut Vec::new());
    assert!(summary.samples > 0);
    assert!(waits.join().unwrap().unwrap().success());
}

/// The content of a recording: number of samples, losses by reason, and why it ended.
fn read(bytes: &[u8]) -> (u64, Vec<(LossReason, u64)>, Option<EndReason>) {
    let (mut samples, mut lost, mut reason) = (0, Vec::<(LossReason, u64)>::new(), None);
    for item in SliceReader::open(bytes).unwrap().blocks() {
        let Item::Block(block) = item else {
            panic!("a recording is sound")
        };
        match block.payload().unwrap() {
            Payload::Samples(block) => {
                let mut rows = block.rows();
                while rows.next_row().unwrap().is_some() {
                    samples += 1;
                }
            }
            Payload::Losses(losses) => losses.iter().for_each(|loss| {
                match lost.iter_mut().find(|(known, _)| *known == loss.reason) {
                    Some((_, count)) => *count += loss.count,
                    None => lost.push((loss.reason, loss.count)),
                }
            }),
            Payload::End(end) => reason = Some(end.reason),
            _ => {}
        }
    }
    (samples, lost, reason)
}
