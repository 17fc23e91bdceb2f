//! Starts a monitor, and holds its guest before the first instruction.
//!
//! Input: a command that is a monitor, or that starts one. Output: a source whose vCPUs have never entered the guest.
//! The command and all that it starts are traced, and stop at each system call until a thread calls KVM_RUN for the
//! first time; from then on nobody but the vCPUs' threads is traced. No register or memory of a monitor is changed. If
//! the recorder is gone, the kernel lets all of them go.

use super::monitor::{Doing, Monitor, MonitorVcpu};
use super::search::{Threads, VcpuThread};
use super::source::{KvmSource, attach};
use super::thread::{LateThreads, Thread};
use crate::elf::Image;
use crate::guest::command::{Child, Command};
use crate::source::{Hot, Life, Source, SourceError};
use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::ptrace::{self as requests, Waited};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest wait for the first vCPU: a script may build or fetch its guest first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long further vCPUs may take to come, once the first one is about to enter the guest.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);
/// How long a thread may take to stop, so that it can be let go.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Polls without a sleep, and the sleep between later ones in nanoseconds.
const POLLS_AT_ONCE: u32 = 200;
const BETWEEN_POLLS_NS: u64 = 50_000;

/// Events of a thread that has made another (`linux/ptrace.h`).
const FORKED: i32 = libc::PTRACE_EVENT_FORK;
const VFORKED: i32 = libc::PTRACE_EVENT_VFORK;
const CLONED: i32 = libc::PTRACE_EVENT_CLONE;

/// A vCPU's thread at its first KVM_RUN.
struct HeldVcpu {
    pid: i32,
    tid: i32,
    number: u32,
}

/// What the recorder traces of a command.
struct Tracing {
    child: Child,
    /// Threads that are traced and not held.
    tids: BTreeSet<i32>,
    vcpus: Vec<HeldVcpu>,
    /// Threads that have reported something. One that was just made may report before its parent says so.
    met: BTreeSet<i32>,
    /// How the command itself ended, if it has.
    ending: Option<Life>,
}

/// Starts a command, and opens the guest of the monitor that it is or starts. Must be called on the thread that will
/// sample, while it is the only one.
///
/// # Errors
/// Says why there is no guest. The command is ended then, unless it is to keep running.
pub fn open(command: &Command, images: Vec<Image>) -> Result<Source, SourceError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(SourceError(
            "--boot holds vCPUs under KVM on x86-64 alone; an emulated guest of QEMU can be recorded here".into(),
        ));
    }
    let mut tracing = Tracing::start(command)?;
    let held = tracing.hold_vcpus();
    // Whatever happened, nothing else stays traced.
    tracing.let_others_go();
    let opened = held.and_then(|()| tracing.open_guest(images));
    let (mut source, taken, total) = opened.inspect_err(|_| tracing.let_vcpus_go(&[]))?;
    // Those that have no page in the monitor any more, for example.
    tracing.let_vcpus_go(&taken);
    source = source.before_first_entry(tracing.child);
    source.note_absent(taken.len(), total);
    Ok(Source::of(Hot::StopWorld(Box::new(source))))
}

impl Tracing {
    fn start(command: &Command) -> Result<Self, SourceError> {
        let mut child = command.start()?;
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC;
        child.go_traced(options)?;
        Ok(Tracing {
            tids: BTreeSet::from([child.pid()]),
            child,
            vcpus: Vec::new(),
            met: BTreeSet::new(),
            ending: None,
        })
    }

    /// Lets the command run until all vCPUs of a monitor are about to enter their guest for the first time.
    fn hold_vcpus(&mut self) -> Result<(), SourceError> {
        let begun = Instant::now();
        let mut first: Option<Instant> = None;
        let mut polls = 0;
        loop {
            match wait() {
                Ok(Waited::Other(WaitStatus::StillAlive)) => {
                    polls += 1;
                    if polls > POLLS_AT_ONCE {
                        sleep_until(monotonic_ns() + BETWEEN_POLLS_NS);
                    } else {
                        std::thread::yield_now();
                    }
                }
                Ok(status) => {
                    polls = 0;
                    if self.handle(status) && self.are_all_held() {
                        return Ok(());
                    }
                    first = first.or_else(|| self.vcpus.first().map(|_| Instant::now()));
                }
                Err(Errno::EINTR) => {}
                Err(_) => return Err(self.none()),
            }
            if first.is_some_and(|first| first.elapsed() > OTHERS_WITHIN) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(self.none());
            }
        }
    }

    /// Handles what a thread did, and lets it go on unless it is a vCPU's. Returns whether it is a new one.
    fn handle(&mut self, waited: Waited) -> bool {
        let mut signal = 0;
        let status = match waited {
            // As an event, but that it goes on with the signal.
            Waited::Signal(tid, by) => {
                signal = by;
                WaitStatus::PtraceEvent(tid, nix::sys::signal::Signal::SIGTRAP, 0)
            }
            Waited::Other(status) => status,
        };
        self.meet(status);
        let tid = match status {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                self.ended(pid, status);
                return false;
            }
            WaitStatus::PtraceSyscall(tid) => {
                if self.is_vcpu(tid) {
                    self.tids.remove(&tid.as_raw());
                    return true;
                }
                tid
            }
            WaitStatus::PtraceEvent(tid, ..) => tid,
            _ => return false,
        };
        self.tids.insert(tid.as_raw());
        // A thread that has just been killed needs nothing.
        let _ = requests::syscall(tid, signal);
        false
    }

    /// Notes who reported something, and a thread or process that it has made: that one is traced as well.
    fn meet(&mut self, status: WaitStatus) {
        self.met.extend(status.pid().map(Pid::as_raw));
        if let WaitStatus::PtraceEvent(tid, _, FORKED | VFORKED | CLONED) = status
            && let Ok(made) = ptrace::getevent(tid)
            && !self.met.contains(&(made as i32))
        {
            self.tids.insert(made as i32);
        }
    }

    fn ended(&mut self, pid: Pid, how: WaitStatus) {
        self.tids.remove(&pid.as_raw());
        self.vcpus.retain(|vcpu| vcpu.tid != pid.as_raw());
        if pid.as_raw() == self.child.pid() {
            self.ending = Some(self.child.saw(how));
        }
    }

    /// Notes the thread if it is about to enter a guest.
    fn is_vcpu(&mut self, tid: Pid) -> bool {
        let tid = tid.as_raw();
        let pid = process_of(tid);
        let Doing::RunsVcpu(number) = super::monitor::doing(pid, tid) else {
            return false;
        };
        // Of several monitors the first one is recorded.
        let is_other = self.vcpus.first().is_some_and(|first| first.pid != pid);
        if is_other {
            return false;
        }
        self.vcpus.push(HeldVcpu { pid, tid, number });
        true
    }

    /// Whether no vCPU of the monitor is missing.
    fn are_all_held(&self) -> bool {
        let monitor = self.vcpus.first().map(|first| Monitor::of(first.pid));
        let Some(Ok(monitor)) = monitor else {
            return false;
        };
        let is_held = |vcpu: &MonitorVcpu| self.vcpus.iter().any(|held| held.number == vcpu.number);
        monitor.vcpus.iter().all(is_held)
    }

    fn thread_of(&self, monitor: &Monitor, vcpu: &MonitorVcpu) -> Option<(i32, VcpuThread)> {
        let held = self.vcpus.iter().find(|held| held.number == vcpu.number)?;
        let thread = Thread::paused(monitor.pid, held.tid)?;
        Some((held.tid, VcpuThread::of(*vcpu, thread)))
    }

    /// Opens the guest whose vCPUs are held. Returns their threads, too, and the number of all its vCPUs.
    fn open_guest(&self, images: Vec<Image>) -> Result<(KvmSource, Vec<i32>, usize), SourceError> {
        let first = self.vcpus.first().ok_or_else(|| self.none())?;
        let monitor = Monitor::of(first.pid)?;
        let vcpus = monitor.vcpus.iter();
        let vcpus = vcpus.filter_map(|vcpu| self.thread_of(&monitor, vcpu));
        let (taken, vcpus): (Vec<i32>, Vec<VcpuThread>) = vcpus.unzip();
        let mut late = LateThreads::default();
        for &tid in &self.tids {
            if let Some(thread) = Thread::asked(process_of(tid), tid) {
                late.add(thread);
            }
        }
        let source = attach(&monitor, images, |_| Ok(Threads { vcpus, late }))?;
        Ok((source, taken, monitor.vcpus.len()))
    }

    /// Lets the vCPUs go that are not recorded.
    fn let_vcpus_go(&self, taken: &[i32]) {
        let others = self.vcpus.iter().filter(|vcpu| !taken.contains(&vcpu.tid));
        for vcpu in others {
            let _ = requests::detach(Pid::from_raw(vcpu.tid), 0);
        }
    }

    /// Lets all threads go that are traced and are no vCPUs.
    fn let_others_go(&mut self) {
        let end = Instant::now() + STOP_WITHIN;
        for &tid in &self.tids {
            let _ = ptrace::interrupt(Pid::from_raw(tid));
        }
        while !self.tids.is_empty() && Instant::now() < end {
            match wait() {
                Ok(Waited::Other(WaitStatus::StillAlive)) => {
                    sleep_until(monotonic_ns() + BETWEEN_POLLS_NS);
                }
                Ok(waited) => self.detach(waited),
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }

    fn detach(&mut self, waited: Waited) {
        let (tid, signal) = match waited {
            Waited::Signal(tid, by) => (tid, by),
            Waited::Other(
                status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)),
            ) => {
                return self.ended(pid, status);
            }
            // A group stop lasts beyond our detaching.
            Waited::Other(
                status @ (WaitStatus::PtraceEvent(tid, ..) | WaitStatus::PtraceSyscall(tid)),
            ) => {
                self.meet(status);
                (tid, 0)
            }
            Waited::Other(_) => return,
        };
        self.met.insert(tid.as_raw());
        let _ = requests::detach(tid, signal);
        self.tids.remove(&tid.as_raw());
    }

    /// Why there is no guest to record.
    fn none(&self) -> SourceError {
        let name = self.child.name();
        let advice = "a monitor that emulates its guest is recorded if it is QEMU and the command itself: --boot -- \
                      qemu-system-x86_64 …";
        SourceError(match &self.ending {
            Some(Life::Ended(how) | Life::Crashed(how)) => {
                format!(
                    "{how} before a vCPU under KVM entered a guest: nothing was recorded; {advice}"
                )
            }
            _ => format!(
                "`{name}` has started no guest under KVM in {} s, and was ended: nothing was recorded; {advice}",
                PATIENCE.as_secs()
            ),
        })
    }
}

/// What a traced thread has done; doesn't wait.
fn wait() -> Result<Waited, Errno> {
    requests::wait(None, WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)
}

/// The process of a thread.
fn process_of(tid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or(tid)
}
