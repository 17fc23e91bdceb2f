//! A program under ptrace, with all its threads and what it starts, and the processor time of all of them.

use super::SPIN_OFFSET_BYTES;
use super::registers::{instruction_pointer, set_instruction_pointer};
use super::trap::Trap;
use crate::guest::command::{Child, Command, ExitStatus, Stdout};
use crate::source::SourceError;
use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::ptrace::{Waited, cont, listen, wait};
use crate::sys::thread_times::ThreadTimes;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;

/// `PTRACE_EVENT_STOP` of `linux/ptrace.h`: a requested stop, a new thread's first one, or a group stop.
const EVENT_STOP: i32 = 128;
/// Longest sleep of the tracer. A stop of a thread ends it.
const NAP_NS: u64 = 1_000_000;

/// A started program, stopped at its first instruction.
#[derive(Debug)]
pub struct Program {
    child: Child,
    pub(super) threads: BTreeMap<i32, Thread>,
    /// Processor time of threads that have ended.
    ended_ns: u64,
    /// Processor time before the program's first instruction.
    before_ns: u64,
    status: Option<i32>,
    /// The process whose threads stay stopped when they stop.
    pub(super) held: Option<i32>,
    pub(super) trap: Option<Trap>,
    /// Where threads span so far, or would have.
    pub(super) addresses: BTreeSet<u64>,
    /// The thread that spins, and its processor time when it ended meanwhile.
    pub(super) spinning: Option<i32>,
    pub(super) spun_until_ns: Option<u64>,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub pid: i32,
    pub times: Option<ThreadTimes>,
    pub state: ThreadState,
    /// Whether it met the breakpoint.
    pub is_trapped: bool,
    /// Whether its processor time is counted, as it ends.
    is_counted: bool,
}

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// It runs, or waits in the kernel.
    Free,
    /// A stop was requested.
    Asked,
    /// It is stopped, and will go on with this signal (0: none).
    Stopped(i32),
    /// It is in a group stop (SIGSTOP and the like), and has to stay there.
    GroupStopped,
}

/// How a program ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its status, or 128 plus the number of the signal that killed it.
    pub status: i32,
    /// Its processor time from the first instruction on, all threads and all that it started, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of it that was planted.
    pub planted_ns: u64,
    /// In how many parts.
    pub spins: u32,
    /// The addresses at which threads span: one, unless there were several processes.
    pub addresses: BTreeSet<u64>,
}

impl Thread {
    pub fn cpu_ns(&self) -> u64 {
        let times = self.times.as_ref();
        times.and_then(ThreadTimes::processor_time_ns).unwrap_or(0)
    }
}

impl Program {
    /// Starts a command up to its first instruction, with these standard streams. Only this thread can run it.
    ///
    /// # Errors
    /// It can't be started or traced.
    pub fn start(arguments: Vec<String>, streams: [RawFd; 3]) -> Result<Program, SourceError> {
        let command = Command {
            arguments,
            keep_running: false,
            stdout: Stdout::Same,
            status: ExitStatus::default(),
        };
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC;
        let mut child = command.start_with(streams)?;
        child.go_traced(options)?;
        let pid = child.pid();
        let mut program = Program {
            child,
            threads: BTreeMap::new(),
            ended_ns: 0,
            before_ns: 0,
            status: None,
            held: Some(pid),
            trap: None,
            addresses: BTreeSet::new(),
            spinning: None,
            spun_until_ns: None,
        };
        program.add(pid);
        while program.state(pid) == Some(ThreadState::Free) {
            program.wait_for(pid)?;
        }
        let all = options | Options::PTRACE_O_TRACEEXIT;
        ptrace::setoptions(Pid::from_raw(pid), all)
            .map_err(|error| SourceError::system("cannot trace the program", error, ""))?;
        program.before_ns = program.cpu_ns();
        Ok(program)
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Lets a program that was started go.
    pub(super) fn begin(&mut self) {
        self.release();
    }

    /// Whether the program has ended.
    pub(super) fn status(&self) -> Option<i32> {
        self.status
    }

    /// The processor time of all threads so far; of those that run, as of their last tick.
    pub(super) fn cpu_ns(&self) -> u64 {
        let running = self.threads.values().filter(|thread| !thread.is_counted);
        let running: u64 = running.map(Thread::cpu_ns).sum();
        (self.ended_ns + running).saturating_sub(self.before_ns)
    }

    pub(super) fn state(&self, tid: i32) -> Option<ThreadState> {
        self.threads.get(&tid).map(|thread| thread.state)
    }

    /// Handles what threads did; `false` if there are none any more.
    pub(super) fn poll(&mut self) -> bool {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            match wait(None, flags) {
                Ok(Waited::Other(WaitStatus::StillAlive)) => return true,
                Ok(event) => self.saw(event),
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Handles what threads do until the time is over, the program ends, or `until` is true.
    pub(super) fn rest(&mut self, time_ns: u64, mut until: impl FnMut(&Program) -> bool) {
        let end_ns = monotonic_ns() + time_ns;
        while self.poll() && self.status.is_none() && !until(self) {
            let now_ns = monotonic_ns();
            if now_ns >= end_ns {
                return;
            }
            sleep_until(end_ns.min(now_ns + NAP_NS));
        }
    }

    fn wait_for(&mut self, tid: i32) -> Result<(), SourceError> {
        match wait(Some(Pid::from_raw(tid)), WaitPidFlag::__WALL) {
            Ok(event) => self.saw(event),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(SourceError::system("lost the program", error, "")),
        }
        Ok(())
    }

    /// Stops the running threads of a process, and keeps those stopped that stop. Those that don't run are in the
    /// kernel.
    pub(super) fn hold(&mut self, pid: i32) {
        /// A thread that takes longer is in the kernel.
        const PATIENCE_NS: u64 = 20_000_000;
        self.held = Some(pid);
        for (&tid, thread) in &mut self.threads {
            let is_running = |thread: &Thread| {
                let seen = thread.times.as_ref().and_then(ThreadTimes::seen);
                seen.is_some_and(|(state, _)| state == b'R')
            };
            if thread.pid == pid
                && thread.state == ThreadState::Free
                && is_running(thread)
                && ptrace::interrupt(Pid::from_raw(tid)).is_ok()
            {
                thread.state = ThreadState::Asked;
            }
        }
        self.rest(PATIENCE_NS, |program| {
            let mut threads = program.threads.values();
            !threads.any(|thread| thread.state == ThreadState::Asked)
        });
    }

    /// Lets all stopped threads go on.
    pub(super) fn release(&mut self) {
        self.held = None;
        for (&tid, thread) in &mut self.threads {
            if let ThreadState::Stopped(signal) = thread.state {
                let _ = cont(Pid::from_raw(tid), signal);
                thread.state = ThreadState::Free;
            }
        }
    }

    fn saw(&mut self, event: Waited) {
        match event {
            Waited::Signal(tid, signal) => self.signalled(tid.as_raw(), signal),
            Waited::Other(WaitStatus::PtraceEvent(tid, signal, event)) => {
                self.event(tid.as_raw(), signal, event);
            }
            Waited::Other(
                status @ (WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, ..)),
            ) => self.ended(tid.as_raw(), status),
            Waited::Other(_) => {}
        }
    }

    fn signalled(&mut self, tid: i32, signal: i32) {
        let at = (signal == Signal::SIGTRAP as i32)
            .then(|| instruction_pointer(tid))
            .flatten()
            .filter(|at| self.addresses.contains(at));
        let Some((at, thread)) = at.zip(self.threads.get_mut(&tid)) else {
            return self.stopped(tid, signal);
        };
        if self.trap.is_some() {
            thread.is_trapped = true;
            thread.state = ThreadState::Stopped(0);
        } else {
            // It met the breakpoint, but another stop came first, and the instruction is back by now.
            set_instruction_pointer(tid, at - SPIN_OFFSET_BYTES);
            self.stopped(tid, 0);
        }
    }

    /// A thread has stopped, and goes on unless it is held or spins.
    fn stopped(&mut self, tid: i32, signal: i32) {
        self.add(tid);
        let (held, spinning) = (self.held, self.spinning);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.state = ThreadState::Stopped(signal);
            if held != Some(thread.pid) && spinning != Some(tid) {
                thread.state = ThreadState::Free;
                let _ = cont(Pid::from_raw(tid), signal);
            }
        }
    }

    fn event(&mut self, tid: i32, signal: Signal, event: i32) {
        let is = |other: Event| event == other as i32;
        let thread = Pid::from_raw(tid);
        if event == EVENT_STOP && signal != Signal::SIGTRAP {
            let _ = listen(thread);
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.state = ThreadState::GroupStopped;
            }
            return;
        }
        // The request also waits until the thread has left its processor, so that its time is whole.
        let message = ptrace::getevent(thread).unwrap_or(0) as i32;
        if is(Event::PTRACE_EVENT_EXIT) {
            self.count(tid);
            let _ = cont(thread, 0);
            return;
        }
        if is(Event::PTRACE_EVENT_EXEC) {
            self.executed(tid);
        } else if event != EVENT_STOP && message > 0 {
            self.add(message);
            if is(Event::PTRACE_EVENT_FORK)
                && let Some(trap) = &self.trap
            {
                // A copy that is gone already needs none.
                let _ = trap.restore_copy(message);
            }
        }
        self.stopped(tid, 0);
    }

    /// Counts the processor time of a thread that is about to end.
    fn count(&mut self, tid: i32) {
        if let Some(thread) = self.threads.get_mut(&tid).filter(|it| !it.is_counted) {
            thread.is_counted = true;
            let cpu_ns = thread.cpu_ns();
            self.ended_ns += cpu_ns;
            if self.spinning == Some(tid) {
                self.spun_until_ns = Some(cpu_ns);
            }
        }
    }

    /// A process has executed another program: its code, and all other threads, are gone.
    fn executed(&mut self, pid: i32) {
        if self.trap.as_ref().is_some_and(|trap| trap.pid == pid) {
            self.trap = None;
        }
        let is_gone = |tid: &i32, thread: &Thread| thread.pid == pid && *tid != pid;
        let gone = self.threads.iter();
        let gone: Vec<i32> = gone
            .filter(|(tid, thread)| is_gone(tid, thread))
            .map(|(tid, _)| *tid)
            .collect();
        for tid in gone {
            self.count(tid);
            self.threads.remove(&tid);
        }
        // Its id is that of the first thread, which may have ended.
        if self
            .threads
            .get(&pid)
            .is_some_and(|thread| thread.is_counted)
        {
            self.threads.remove(&pid);
        }
        self.add(pid);
    }

    fn ended(&mut self, tid: i32, status: WaitStatus) {
        self.count(tid);
        self.threads.remove(&tid);
        if tid == self.pid() {
            let _ = self.child.saw(status);
            self.status = Some(match status {
                WaitStatus::Exited(_, code) => code,
                WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
                _ => 0,
            });
        }
    }

    /// Adds a thread that isn't known yet.
    fn add(&mut self, tid: i32) {
        self.threads.entry(tid).or_insert_with(|| {
            let pid = process_of(tid).unwrap_or(tid);
            Thread {
                pid,
                times: ThreadTimes::of(pid, tid),
                state: ThreadState::Free,
                is_trapped: false,
                is_counted: false,
            }
        });
    }

    /// Kills what is left of the program and of what it started, and waits until it is gone.
    pub(super) fn end(&mut self) {
        self.release();
        while !self.threads.is_empty() {
            for thread in self.threads.values() {
                let _ = kill(Pid::from_raw(thread.pid), Signal::SIGKILL);
            }
            if !self.poll() {
                return;
            }
            sleep_until(monotonic_ns() + NAP_NS);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process of a thread (`Tgid` of proc_pid_status(5)).
fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
