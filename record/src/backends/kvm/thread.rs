//! Pauses the thread of a vCPU by ptrace, for the length of one sample. Between samples nobody traces it.
//!
//! If the tracer is gone, the kernel detaches the thread and resumes it unchanged. Only its interrupted system call
//! ends early, with EINTR, as by any signal.

use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::ptrace::{Waited, detach, wait};
use crate::sys::thread_times::ThreadTimes;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

/// Polls without a sleep; a thread on another processor stops within these.
const POLLS_AT_ONCE: u32 = 50;
/// Sleep between later polls, in nanoseconds.
const BETWEEN_POLLS_NS: u64 = 30_000;
/// How long a killed thread may take to end, in nanoseconds.
const MOURN_NS: u64 = 1_000_000_000;

/// The thread's state in our hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Free,
    /// Traced, and asked to stop.
    Asked,
    /// It is paused, and was about to receive this signal (0: none).
    Stopped(i32),
    /// It has ended.
    Gone,
}

/// The thread of a vCPU.
#[derive(Debug)]
pub struct Thread {
    tid: Pid,
    hold: Hold,
    times: ThreadTimes,
}

impl Thread {
    /// Thread `tid` of process `pid`, if there is one.
    pub fn of(pid: i32, tid: i32) -> Option<Thread> {
        Some(Thread {
            tid: Pid::from_raw(tid),
            hold: Hold::Free,
            times: ThreadTimes::of(pid, tid)?,
        })
    }

    /// Thread `tid` of process `pid`, which this thread traces, and which is paused.
    pub fn paused(pid: i32, tid: i32) -> Option<Thread> {
        let thread = Thread::of(pid, tid)?;
        let hold = Hold::Stopped(0);
        Some(Thread { hold, ..thread })
    }

    /// Thread `tid` of process `pid`, which this thread traces and has asked to stop.
    pub fn asked(pid: i32, tid: i32) -> Option<Thread> {
        let thread = Thread::of(pid, tid)?;
        let hold = Hold::Asked;
        Some(Thread { hold, ..thread })
    }

    /// Its id.
    pub fn tid(&self) -> i32 {
        self.tid.as_raw()
    }

    /// Its state and time, as the kernel reports them.
    pub fn times(&self) -> &ThreadTimes {
        &self.times
    }

    fn state(&self) -> Option<u8> {
        self.times.seen().map(|(state, _)| state)
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// EPERM if another program traces it. A thread that has ended is not an error.
    pub fn ask(&mut self) -> Result<(), Errno> {
        if self.hold != Hold::Free {
            return Ok(());
        }
        match ptrace::seize(self.tid, Options::empty()) {
            Ok(()) => self.hold = Hold::Asked,
            Err(Errno::ESRCH) => {
                self.hold = Hold::Gone;
                return Ok(());
            }
            // The kernel also returns EPERM for a thread that is about to end.
            Err(Errno::EPERM) if self.state().is_none() => {
                self.hold = Hold::Gone;
                return Ok(());
            }
            Err(errno) => return Err(errno),
        }
        match ptrace::interrupt(self.tid) {
            Err(Errno::ESRCH) => {
                self.mourn();
                Ok(())
            }
            result => result,
        }
    }

    /// Notes that it has ended, or is about to, while it was traced. Its process can't end before its tracer knows.
    fn mourn(&mut self) {
        self.hold = Hold::Gone;
        let end_ns = monotonic_ns() + MOURN_NS;
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        while monotonic_ns() < end_ns {
            match wait(Some(self.tid), flags) {
                Ok(Waited::Other(WaitStatus::Exited(..) | WaitStatus::Signaled(..)))
                | Err(Errno::ECHILD) => {
                    return;
                }
                _ => sleep_until(monotonic_ns() + BETWEEN_POLLS_NS),
            }
        }
    }

    /// Waits until it is paused, has ended, or `deadline_ns` is over; returns whether it is paused.
    pub fn wait(&mut self, deadline_ns: u64) -> bool {
        let mut polls = 0;
        while self.hold == Hold::Asked && !self.look() && monotonic_ns() < deadline_ns {
            polls += 1;
            if polls < POLLS_AT_ONCE {
                std::thread::yield_now();
            } else {
                sleep_until(monotonic_ns() + BETWEEN_POLLS_NS);
            }
        }
        matches!(self.hold, Hold::Stopped(_))
    }

    /// Checks whether it has stopped as asked; returns whether its state has changed.
    fn look(&mut self) -> bool {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        self.hold = match wait(Some(self.tid), flags) {
            Ok(Waited::Signal(_, signal)) => Hold::Stopped(signal),
            Ok(Waited::Other(status)) => match status {
                WaitStatus::StillAlive => return false,
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => Hold::Gone,
                // A group stop (SIGSTOP and the like), which lasts beyond our resume; or our own stop.
                _ => Hold::Stopped(0),
            },
            Err(_) => Hold::Gone,
        };
        true
    }

    /// Resumes it. If it has not stopped yet, another call is needed once it has.
    pub fn let_go(&mut self) {
        if self.hold == Hold::Asked {
            self.look();
        }
        if let Hold::Stopped(signal) = self.hold {
            self.hold = match detach(self.tid, signal) {
                Ok(()) => Hold::Free,
                Err(_) => return self.mourn(),
            };
        }
    }

    /// Whether it was asked to stop and is not resumed yet.
    pub fn is_held(&self) -> bool {
        matches!(self.hold, Hold::Asked | Hold::Stopped(_))
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        self.hold == Hold::Gone || self.state().is_none()
    }
}

/// Threads that did not stop in time when they were asked to, since they were deep in the kernel. They stop once they
/// leave it, and must not stay so.
#[derive(Debug, Default)]
pub struct LateThreads(Vec<Thread>);

impl LateThreads {
    /// Adds a thread, unless it is resumed already.
    pub fn add(&mut self, thread: Thread) {
        if thread.is_held() {
            self.0.push(thread);
        }
    }

    /// Resumes those that have stopped by now.
    pub fn let_go(&mut self) {
        self.0.retain_mut(|thread| {
            thread.let_go();
            thread.is_held()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that makes another as vfork(2) does, and does not stop until that one has ended, after a second.
    fn deep_in_the_kernel() -> Child {
        let (call, flags) = (libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD);
        let program = format!("sleep(syscall({call}, {flags}, 0, 0, 0, 0) ? 20 : 1)");
        Command::new("perl").args(["-e", &program]).spawn().unwrap()
    }

    #[test]
    fn a_thread_that_stops_late_is_let_go_once_it_has() {
        let mut child = deep_in_the_kernel();
        let pid = child.id() as i32;
        let mut thread = Thread::of(pid, pid).unwrap();
        let made = format!("/proc/{pid}/task/{pid}/children");
        while std::fs::read_to_string(&made).unwrap().is_empty() || thread.state() != Some(b'D') {
            std::thread::yield_now();
        }
        thread.ask().unwrap();
        assert!(!thread.wait(monotonic_ns() + 20_000_000));
        let mut late = LateThreads::default();
        late.add(thread);
        late.let_go();
        assert_eq!(late.0.len(), 1);
        let thread = Thread::of(pid, pid).unwrap();
        while thread.state() != Some(b't') {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        late.let_go();
        assert!(late.0.is_empty());
        assert_ne!(thread.state(), Some(b't'));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_is_held_let_go_and_told_when_it_has_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let mut thread = Thread::of(pid, pid).unwrap();
        for _ in 0..20 {
            thread.ask().unwrap();
            assert!(thread.wait(monotonic_ns() + 10_000_000_000));
            assert_eq!(thread.state(), Some(b't'));
            thread.let_go();
            assert!(!thread.is_held() && thread.state() != Some(b't'));
        }
        // A signal that it was about to receive is delivered.
        thread.ask().unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(thread.wait(monotonic_ns() + 10_000_000_000));
        thread.let_go();
        child.wait().unwrap();
        assert!(thread.is_gone());
        thread.ask().unwrap();
        assert!(!thread.wait(0) && thread.is_gone());
        assert!(Thread::of(pid, pid).is_none());
    }
}
