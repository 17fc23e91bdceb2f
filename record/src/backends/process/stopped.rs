//! Samples a process by stopping its running threads with ptrace, where perf events are forbidden.
//!
//! Blocked threads are not stopped, as that would interrupt their system calls. If the recorder dies, the kernel
//! detaches the threads and resumes them.

use super::names::Names;
use super::scope::Scope;
use super::tracees::{self, Threads, Tracee, TraceeState};
use super::watch::Watcher;
use super::{Process, proc_status, refusal, threads};
use crate::guest::command::Child;
use crate::guest::held::{Held, let_all_go};
use crate::source::ring::Sink;
use crate::source::slot::NoteKind;
use crate::source::{Facts, Hot, Life, Source, SourceError, StopWorld, Vcpu, Vcpus, by_page};
use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::ptrace::{Waited, cont, detach, listen, wait};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::IoSliceMut;
use uprof::cold::LossReason;
#[cfg(target_arch = "aarch64")]
use uprof::cpu::aarch64;
#[cfg(target_arch = "x86_64")]
use uprof::cpu::x86_64;
use uprof::{Details, Registers, State, Task};

/// A running thread that does not stop within this time is left out, in nanoseconds.
const STOP_WITHIN_NS: u64 = 5_000_000;
/// Polls without a sleep. A thread on another processor stops within these; one that waits for this processor gets it
/// while we sleep.
const POLLS_AT_ONCE: u32 = 50;
/// Sleep between later polls.
const BETWEEN_POLLS_NS: u64 = 30_000;
/// `PTRACE_EVENT_STOP` of `linux/ptrace.h`: a requested stop, or a group stop.
const EVENT_STOP: i32 = 128;

/// Opens a process by ptrace. Must be called on the thread that will sample.
///
/// # Errors
/// Says why the process can't be traced.
pub fn open(process: Process, mut warnings: Vec<String>) -> Result<Source, SourceError> {
    let (child, scope, name) = match process {
        Process::Running(Scope::Machine) => {
            return Err(SourceError(
                "the whole machine can't be recorded with ptrace: it needs perf events".into(),
            ));
        }
        Process::Running(scope) => (None, scope.clone(), scope.name()),
        Process::Started(command) => {
            let child = command.start()?;
            let scope = Scope::Tree(vec![child.pid()]);
            (Some(child), scope, command.program().to_owned())
        }
    };
    let mut traced = Threads::new();
    let refused = attach(&scope, &mut traced, &mut warnings)?;
    if scope.takes_in() {
        warnings.push(format!(
            "what joins {} from now on is not sampled: that needs perf events",
            scope.described()
        ));
    }
    let now_ns = monotonic_ns();
    let pids = scope.pids();
    let (tasks, modules) = match child {
        Some(_) => (Vec::new(), Vec::new()),
        None => {
            let tasks = pids.iter().flat_map(|&pid| threads::events(pid, now_ns));
            let modules = pids.iter();
            let modules = modules.flat_map(|&pid| threads::module_events(pid, now_ns));
            (tasks.collect(), modules.collect())
        }
    };
    let target = super::target(scope.id(), name, tasks.len());
    let facts = Facts {
        trigger: "timer, ptrace".into(),
        on_cpu_only: true,
        notes: vec![("kernel frames".into(), "not visible to ptrace".into())],
        warnings,
        modules,
        tasks,
        ..Facts::new(target)
    };
    let source = StoppedSource {
        facts,
        described: scope.described(),
        threads: traced,
        child,
        started: false,
        life: Life::Alive,
        reported: Vec::with_capacity(Vcpus::MOST),
        let_go_ns: None,
    };
    Ok(Source {
        observer: Some(Box::new(Watcher::new(scope, refused))),
        namer: Some(Box::<Names>::default()),
        ..Source::of(Hot::StopWorld(Box::new(source)))
    })
}

/// Seizes all threads of the processes of `scope` but our own, and those that start meanwhile. Returns the processes
/// for which that is not allowed. It is an error only if no thread of a requested process can be seized.
fn attach(
    scope: &Scope,
    traced: &mut Threads,
    warnings: &mut Vec<String>,
) -> Result<BTreeSet<i32>, SourceError> {
    let own = std::process::id() as i32;
    let mut refused = BTreeMap::new();
    let mut tried = HashSet::new();
    let mut no_room = 0;
    loop {
        let mut added = false;
        for pid in scope.pids().into_iter().filter(|&pid| pid != own) {
            for tid in threads::of(pid)
                .into_iter()
                .filter(|&tid| tried.insert(tid))
            {
                added = true;
                let (space, vcpu) = (pid as u32, tid as u32);
                no_room += usize::from(!traced.has_room());
                if let Err(error) = seize(Task { space, vcpu }, traced) {
                    refused.insert(pid, error);
                }
            }
        }
        if !added {
            break;
        }
    }
    let asked = scope.asked();
    let is_refused = asked.iter().all(|pid| refused.contains_key(pid));
    let first = asked.iter().find_map(|pid| refused.get_key_value(pid));
    match first.or(refused.first_key_value()) {
        Some((&pid, &error)) if is_refused || traced.is_empty() => {
            return Err(cannot_trace(pid, error));
        }
        None if traced.is_empty() => {
            return Err(SourceError(format!(
                "{} ended before it could be recorded",
                scope.described()
            )));
        }
        _ => {}
    }
    if no_room > 0 {
        warnings.push(format!(
            "{no_room} threads are not sampled: ptrace holds at most {} here",
            tracees::MOST
        ));
    }
    let refused = refused.into_keys().collect();
    warnings.extend(refusal::not_ours(&refused));
    Ok(refused)
}

fn cannot_trace(pid: i32, error: Errno) -> SourceError {
    let own = nix::unistd::geteuid();
    let owner = proc_status::read(pid).map(|status| status.user);
    let advice = match owner {
        Some(user) if !own.is_root() && user != own.as_raw() => {
            format!("it is not yours, but user {user}'s: run as root")
        }
        _ => "it is not yours, a debugger has it already, or a container's filter forbids it; run as root, or see \
              kernel.yama.ptrace_scope"
            .into(),
    };
    SourceError::system(format!("cannot trace process {pid}"), error, &advice)
}

fn seize(task: Task, traced: &mut Threads) -> Result<(), Errno> {
    let options = Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC;
    let tid = Pid::from_raw(task.vcpu as i32);
    if !traced.has_room() {
        return Ok(());
    }
    match ptrace::seize(tid, options) {
        // A thread just started by a traced one is already traced.
        Err(Errno::EPERM) if is_traced_by_us(task) => {}
        Err(Errno::ESRCH) => return Ok(()),
        result => result?,
    }
    traced.add(task);
    Ok(())
}

/// Whether a thread of this process traces it, according to the kernel.
fn is_traced_by_us(task: Task) -> bool {
    let path = format!("/proc/{}/task/{}/status", task.space, task.vcpu);
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() == std::process::id().to_string())
}

struct StoppedSource {
    facts: Facts,
    /// The target's name in messages.
    described: String,
    threads: Threads,
    child: Option<Child>,
    started: bool,
    life: Life,
    /// Events that threads reported while a stop was awaited.
    reported: Vec<Waited>,
    /// When the threads were resumed.
    let_go_ns: Option<u64>,
}

impl StopWorld for StoppedSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, _: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        for tracee in self.threads.all() {
            if tracee.state == TraceeState::Free
                && tracee.is_running()
                && ptrace::interrupt(tracee.tid()).is_ok()
            {
                tracee.state = TraceeState::Asked;
            }
        }
        let deadline_ns = monotonic_ns() + STOP_WITHIN_NS;
        for tracee in self.threads.all() {
            if tracee.state == TraceeState::Asked {
                let other = wait_for_stop(tracee, deadline_ns);
                self.reported.extend(other);
                if tracee.state == TraceeState::Asked {
                    vcpus.miss();
                }
            }
            if let TraceeState::Stopped(_) = tracee.state
                && let Some(registers) = read_registers(tracee.tid())
            {
                let handle = u64::from(tracee.task.space);
                vcpus.push(Vcpu {
                    task: tracee.task,
                    state: State::Running,
                    registers,
                    handle,
                    details: Details::default(),
                });
            }
        }
        if !self.reported.is_empty() {
            crate::sys::signal::wake_sampler();
        }
        Ok(())
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let pid = Pid::from_raw(vcpu.task.space as i32);
        by_page(address, into, |address, into| {
            let Ok(base) = usize::try_from(address) else {
                return 0;
            };
            let len = into.len();
            let remote = [RemoteIoVec { base, len }];
            process_vm_readv(pid, &mut [IoSliceMut::new(into)], &remote).unwrap_or(0)
        })
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        self.let_go_ns = let_all_go(self.threads.all());
        Ok(())
    }

    fn resumed_ns(&self) -> Option<u64> {
        self.let_go_ns
    }

    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        if !std::mem::replace(&mut self.started, true)
            && let Some(child) = &mut self.child
        {
            child.go()?;
        }
        while let Some(event) = self.next_event() {
            self.saw(event, sink);
        }
        if self.threads.is_empty() && self.life == Life::Alive {
            self.life = Life::Ended(String::new());
        }
        // The clone allocates only once the guest has ended.
        Ok(match &self.life {
            Life::Alive => Life::Alive,
            Life::Ended(how) if how.is_empty() => Life::Ended(format!("{} ended", self.described)),
            life => life.clone(),
        })
    }

    /// Detaches from all threads, since each event would stop its thread until it is handled. A thread must stop for
    /// that. The kernel detaches one that doesn't when the recorder ends.
    fn release(&mut self) {
        let deadline_ns = monotonic_ns() + 10 * STOP_WITHIN_NS;
        while !self.threads.is_empty() && monotonic_ns() < deadline_ns {
            self.threads.retain(|tracee| {
                let is_held = tracee.is_held();
                if is_held {
                    leave(tracee.tid(), tracee.state);
                }
                let is_free = tracee.state == TraceeState::Free;
                tracee.state = TraceeState::Asked;
                // One that can't be asked has ended, or was left before it was known by its parent's event.
                !is_held && (!is_free || ptrace::interrupt(tracee.tid()).is_ok())
            });
            while let Some(event) = self.next_event() {
                self.saw_last(event);
            }
            sleep_until(monotonic_ns() + BETWEEN_POLLS_NS);
        }
    }
}

impl Drop for StoppedSource {
    fn drop(&mut self) {
        self.release();
    }
}

impl StoppedSource {
    /// The next event of a thread; `None` if there is none yet.
    fn next_event(&mut self) -> Option<Waited> {
        // Children of the program's other threads must not be waited for.
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let waited = || match wait(None, flags) {
            Ok(Waited::Other(WaitStatus::StillAlive)) | Err(_) => None,
            Ok(event) => Some(event),
        };
        self.reported.pop().or_else(waited)
    }

    /// Handles an event of a thread that was running.
    fn saw(&mut self, event: Waited, sink: &mut Sink) {
        let status = match event {
            Waited::Signal(tid, _) => return self.let_go(tid, state_of(event)),
            Waited::Other(status) => status,
        };
        let Some(tid) = status.pid() else { return };
        let now_ns = monotonic_ns();
        if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
            if let Some(task) = self.threads.remove(tid) {
                sink.note(now_ns, task, NoteKind::Ended, &[]);
            }
            return self.has_ended(tid, status);
        }
        if let WaitStatus::PtraceEvent(_, _, event) = status {
            self.event(tid, event, sink);
        }
        self.let_go(tid, state_of(event));
    }

    /// Handles an event of a thread after the last sample: leaves the thread.
    fn saw_last(&mut self, event: Waited) {
        let tid = match event {
            Waited::Signal(tid, _) => Some(tid),
            Waited::Other(status) => status.pid(),
        };
        let Some(tid) = tid else { return };
        self.threads.remove(tid);
        match event {
            Waited::Other(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                return self.has_ended(tid, status);
            }
            Waited::Other(WaitStatus::PtraceEvent(_, _, event)) if event != EVENT_STOP => {
                // What it has started is traced, too, and stops before its first instruction.
                if let Ok(new) = ptrace::getevent(tid) {
                    let (space, vcpu) = (new as u32, new as u32);
                    self.threads.add(Task { space, vcpu });
                }
            }
            _ => {}
        }
        leave(tid, state_of(event));
    }

    /// Handles the end of a thread.
    fn has_ended(&mut self, tid: Pid, status: WaitStatus) {
        let child = self.child.as_mut();
        if let Some(child) = child.filter(|child| child.pid() == tid.as_raw()) {
            self.life = child.saw(status);
        }
    }

    /// Lets a thread that has stopped go on.
    fn let_go(&mut self, tid: Pid, state: TraceeState) {
        if let Some(tracee) = self.threads.get(tid) {
            tracee.state = state;
            tracee.let_go();
        } else {
            // It was reported before its parent's clone event, which will add it. It may run until then. Or there was
            // no room for it.
            go_on(tid, state);
        }
    }

    fn event(&mut self, tid: Pid, event: i32, sink: &mut Sink) {
        let now_ns = monotonic_ns();
        let parent = self.threads.get(tid).map(|tracee| tracee.task);
        if event == Event::PTRACE_EVENT_EXEC as i32 {
            let task = Task {
                space: tid.as_raw() as u32,
                vcpu: tid.as_raw() as u32,
            };
            self.threads.keep_leader(task);
            sink.note(now_ns, task, NoteKind::Cleared, &[]);
            return;
        }
        let thread = event == Event::PTRACE_EVENT_CLONE as i32;
        let process =
            event == Event::PTRACE_EVENT_FORK as i32 || event == Event::PTRACE_EVENT_VFORK as i32;
        let Some(parent) = parent.filter(|_| thread || process) else {
            return;
        };
        let Ok(new) = ptrace::getevent(tid) else {
            return;
        };
        let vcpu = new as u32;
        let space = if thread { parent.space } else { vcpu };
        self.threads.add(Task { space, vcpu });
        if self.threads.get(Pid::from_raw(vcpu as i32)).is_none() {
            sink.lose(LossReason::EventsLost, 1, now_ns);
        }
        if process {
            sink.note(
                now_ns,
                Task { space, vcpu },
                NoteKind::CopiedFrom(parent.space),
                &[],
            );
        }
    }
}

/// The state of a stopped thread.
fn state_of(event: Waited) -> TraceeState {
    match event {
        Waited::Signal(_, signal) => TraceeState::Stopped(signal),
        Waited::Other(WaitStatus::PtraceEvent(_, signal, EVENT_STOP))
            if signal != Signal::SIGTRAP =>
        {
            TraceeState::GroupStopped
        }
        Waited::Other(_) => TraceeState::Stopped(0),
    }
}

/// Lets a thread in this state go on, with the signal that it was about to receive.
fn go_on(tid: Pid, state: TraceeState) {
    let _ = match state {
        TraceeState::Stopped(signal) => cont(tid, signal),
        TraceeState::GroupStopped => listen(tid),
        TraceeState::Free | TraceeState::Asked => return,
    };
}

/// Detaches from a thread in this state. It goes on with the signal that it was about to receive, or stays in its
/// group stop.
fn leave(tid: Pid, state: TraceeState) {
    let signal = match state {
        TraceeState::Stopped(signal) => signal,
        _ => 0,
    };
    let _ = detach(tid, signal);
}

/// Waits for the requested stop. If the thread reports another event instead, returns that; the thread stays stopped
/// until it is handled.
fn wait_for_stop(tracee: &mut Tracee, deadline_ns: u64) -> Option<Waited> {
    let mut polls = 0;
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    loop {
        match wait(Some(tracee.tid()), flags) {
            Ok(Waited::Other(WaitStatus::StillAlive)) if monotonic_ns() < deadline_ns => {
                polls += 1;
                if polls < POLLS_AT_ONCE {
                    std::thread::yield_now();
                } else {
                    sleep_until(monotonic_ns() + BETWEEN_POLLS_NS);
                }
            }
            Ok(
                event @ (Waited::Signal(..)
                | Waited::Other(WaitStatus::PtraceEvent(_, _, EVENT_STOP))),
            ) => {
                tracee.state = state_of(event);
                return None;
            }
            Ok(Waited::Other(WaitStatus::StillAlive)) | Err(_) => return None,
            Ok(event) => {
                tracee.state = TraceeState::Free;
                return Some(event);
            }
        }
    }
}

impl Held for Tracee {
    fn is_held(&self) -> bool {
        matches!(
            self.state,
            TraceeState::Stopped(_) | TraceeState::GroupStopped
        )
    }

    fn processor(&self) -> Option<usize> {
        self.processor
    }

    fn let_go(&mut self) {
        if self.is_held() {
            go_on(self.tid(), self.state);
            self.state = TraceeState::Free;
        }
    }
}

/// The code segment of 32-bit programs (`__USER32_CS`, `asm/segment.h`).
#[cfg(target_arch = "x86_64")]
const CODE_SEGMENT_32: u64 = 0x23;

#[cfg(target_arch = "x86_64")]
fn read_registers(tid: Pid) -> Option<Registers> {
    let all = ptrace::getregs(tid).ok()?;
    let mut registers = Registers::default();
    // 32-bit code: nothing here can follow its stack.
    if all.cs == CODE_SEGMENT_32 {
        registers.set(x86_64::RIP, all.rip);
        return Some(registers);
    }
    for (number, value) in [
        (x86_64::RBX, all.rbx),
        (x86_64::RBP, all.rbp),
        (x86_64::RSP, all.rsp),
        (x86_64::R10, all.r10),
        (x86_64::R12, all.r12),
        (x86_64::R13, all.r13),
        (x86_64::R14, all.r14),
        (x86_64::R15, all.r15),
        (x86_64::RIP, all.rip),
    ] {
        registers.set(number, value);
    }
    Some(registers)
}

#[cfg(target_arch = "aarch64")]
fn read_registers(tid: Pid) -> Option<Registers> {
    let all = ptrace::getregs(tid).ok()?;
    let mut registers = Registers::default();
    for number in 19..=aarch64::LR {
        registers.set(number, all.regs[usize::from(number)]);
    }
    registers.set(aarch64::SP, all.sp);
    registers.set(aarch64::PC, all.pc);
    Some(registers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;
    use nix::sys::signal::kill;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// A field of a process's status (proc(5)).
    fn status(pid: i32, field: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().trim().to_owned()
    }

    /// Waits until this is so.
    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let so = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_so()
        });
        assert!(so, "{what}");
    }

    #[test]
    fn threads_are_left_before_the_recording_is_written() {
        let mut shell = Command::new("sh")
            .args(["-c", "read line; sleep 1000 & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
        let pids @ [shell_pid, sleep_pid] = [&shell, &sleep].map(|child| child.id() as i32);
        let scope = Scope::Tree(pids.to_vec());
        let source = open(Process::Running(scope), Vec::new()).unwrap();
        let Hot::StopWorld(mut source) = source.hot else {
            unreachable!("ptrace stops")
        };
        // One is in a group stop, and is allowed to report further events.
        let (mut sink, _drain) = ring_of(4, 0);
        kill(Pid::from_raw(sleep_pid), Signal::SIGSTOP).unwrap();
        for _ in 0..20 {
            source.between(&mut sink).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        // The other one has forked, which nobody has handled yet.
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"\n").unwrap();
        wait_until("the shell has forked", || {
            status(shell_pid, "State:").starts_with('t')
        });

        let tracer = |pid| status(pid, "TracerPid:");
        wait_until("both are left", || {
            source.release();
            pids.iter().all(|&pid| tracer(pid) == "0")
        });
        wait_until("the group stop lasts", || {
            status(sleep_pid, "State:").starts_with('T')
        });
        let mut started = String::new();
        let output = shell.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut started).unwrap();
        let started: i32 = started.trim().parse().unwrap();
        wait_until("what it has started runs, and is left", || {
            source.release();
            tracer(started) == "0" && status(started, "State:").starts_with('S')
        });
        drop(source);
        kill(Pid::from_raw(started), Signal::SIGKILL).unwrap();
        for child in [&mut shell, &mut sleep] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
