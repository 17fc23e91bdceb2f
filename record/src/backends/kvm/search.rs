//! Finds the threads that run the vCPUs of a monitor.
//!
//! Input: its process. Output: a thread for each vCPU that runs. The system call of a thread that waits in the kernel
//! shows its activity. A running thread is stopped for a moment to find out, as an attaching debugger does.

use super::monitor::{Doing, Monitor, MonitorVcpu};
use super::thread::{LateThreads, Thread};
use crate::guest::guardian::Guardian;
use crate::guest::held::Held;
use crate::guest::page_tables::Paging;
use crate::source::SourceError;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::time::{Duration, Instant};

/// A thread that does not stop within this time is left out of a sample, in nanoseconds.
pub const STOP_WITHIN_NS: u64 = 50_000_000;
/// Longest search for vCPUs.
const SEARCH: Duration = Duration::from_secs(2);
/// How long a resumed thread may take to report the requested stop, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A vCPU.
pub struct VcpuThread {
    /// KVM's number for it.
    pub number: u32,
    /// Address in the monitor of the page that it shares with KVM.
    pub run_page: u64,
    /// The thread that runs it.
    pub thread: Thread,
    /// Whether it slept when it was asked to stop: the vCPU was halted, or waited in its monitor.
    pub asleep: bool,
    /// Whether a signal had stopped it, and with it its whole monitor.
    pub stopped: bool,
    /// The processor that it ran on then.
    pub processor: Option<usize>,
    /// How it translates addresses.
    pub paging: Paging,
    /// Whether it is in 64-bit mode.
    pub is_long: bool,
}

impl VcpuThread {
    /// The thread of a vCPU of which nothing else is known yet.
    pub fn of(vcpu: MonitorVcpu, thread: Thread) -> VcpuThread {
        VcpuThread {
            number: vcpu.number,
            run_page: vcpu.run_page,
            thread,
            asleep: false,
            stopped: false,
            processor: None,
            paging: Paging::Unsupported,
            is_long: false,
        }
    }
}

impl Held for VcpuThread {
    fn is_held(&self) -> bool {
        self.thread.is_held()
    }

    fn processor(&self) -> Option<usize> {
        self.processor
    }

    fn let_go(&mut self) {
        self.thread.let_go();
    }
}

/// Threads of a monitor.
pub struct Threads {
    /// Those that run its vCPUs, by number.
    pub vcpus: Vec<VcpuThread>,
    /// Others that are still asked to stop.
    pub late: LateThreads,
}

/// The threads that run the vCPUs, found under the eyes of `guardian`. Such a thread is in KVM_RUN now and then; a vCPU
/// without one doesn't run.
pub fn find_threads(monitor: &Monitor, guardian: &mut Guardian) -> Result<Threads, SourceError> {
    let mut found: Vec<VcpuThread> = Vec::with_capacity(monitor.vcpus.len());
    let mut late = LateThreads::default();
    let begun = Instant::now();
    let mut refusal = None;
    while found.len() < monitor.vcpus.len() && begun.elapsed() < SEARCH {
        // Of the last pass alone: another recorder may have a thread for the length of a sample.
        refusal = None;
        for tid in monitor.threads() {
            if found.iter().any(|vcpu| vcpu.thread.tid() == tid) {
                continue;
            }
            let doing = match monitor.doing(tid) {
                Doing::Unknown => match stop_and_look(monitor, tid, guardian, &mut late) {
                    Ok(doing) => doing,
                    Err(error) => {
                        refusal = Some(error);
                        continue;
                    }
                },
                doing => doing,
            };
            let Doing::RunsVcpu(number) = doing else {
                continue;
            };
            let place = monitor.vcpus.iter().find(|vcpu| vcpu.number == number);
            if let Some((place, thread)) = place.zip(Thread::of(monitor.pid, tid))
                && found.iter().all(|vcpu| vcpu.number != number)
            {
                found.push(VcpuThread::of(*place, thread));
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Some(error) = refusal.filter(|_| found.len() < monitor.vcpus.len()) {
        return Err(error);
    }
    if found.is_empty() {
        return Err(SourceError(format!(
            "no vCPU of process {} ({}) runs: its guest is paused, or is being started; let it run and record again",
            monitor.pid, monitor.name
        )));
    }
    found.sort_unstable_by_key(|vcpu| vcpu.number);
    Ok(Threads { vcpus: found, late })
}

/// The activity of a running thread.
fn stop_and_look(
    monitor: &Monitor,
    tid: i32,
    guardian: &mut Guardian,
    late: &mut LateThreads,
) -> Result<Doing, SourceError> {
    let Some(mut thread) = Thread::of(monitor.pid, tid) else {
        return Ok(Doing::Other);
    };
    guardian.freezing();
    if let Err(errno) = thread.ask() {
        guardian.running();
        return Err(refused(monitor.pid, tid, errno));
    }
    let doing = if thread.wait(monotonic_ns() + STOP_WITHIN_NS) {
        monitor.doing(tid)
    } else {
        Doing::Other
    };
    let_go_for_sure(&mut thread);
    guardian.running();
    late.add(thread);
    Ok(doing)
}

/// Resumes a thread that may not have stopped yet. If it doesn't stop within a second, the kernel resumes it when the
/// recorder ends.
pub fn let_go_for_sure(thread: &mut Thread) {
    thread.let_go();
    if thread.is_held() {
        // A thread that had not stopped needs a second call once it has.
        thread.wait(monotonic_ns() + PATIENCE_NS);
        thread.let_go();
    }
}

/// The reason why a thread can't be stopped.
pub fn refused(pid: i32, tid: i32, errno: Errno) -> SourceError {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let status = status.unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    let tracer = tracer.map(str::trim).filter(|tracer| *tracer != "0");
    let Some(tracer) = tracer else {
        let doing = format!("cannot stop the vCPUs of process {pid}");
        return SourceError::system(doing, errno, "run as root");
    };
    let name = std::fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
    SourceError(format!(
        "process {tracer} ({}) traces process {pid}, and a process can have one tracer; end that first",
        name.trim_end()
    ))
}
