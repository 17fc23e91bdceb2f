//! Linux processes as guests: each of their threads, and of their children's, is presented as a vCPU.
//!
//! Samples come from the kernel through perf events. Where those are forbidden, the threads are stopped with ptrace.

mod registers;
mod proc_status;
pub mod kernel;
pub mod maps;
pub mod published;
pub mod images;
mod names;
mod threads;
mod cgroup;
mod tree;
mod scope;
mod members;
mod ring_size;
mod refusal;
mod executing;
mod repeats;
mod census;
mod observer;
mod buffer_share;
mod records;
mod waits;
mod events;
mod rings;
mod switches;
mod perf;
mod watch;
mod tracees;
mod stopped;
pub mod plant;
pub mod doctor;

pub use crate::guest::command::{Command, ExitStatus, Stdout};
pub use cgroup::Cgroup;
pub use perf::open as open_perf;
pub use refusal::Refusal;
pub use scope::Scope;
pub use stopped::open as open_ptrace;

use crate::source::plan::Plan;
use crate::source::{MonitorSource, Source, SourceError};
use crate::sys::pids;
use crate::sys::stat;
use nix::errno::Errno;
use uprof::cold::{Target, TargetKind};

/// Which processes to record.
#[derive(Debug)]
pub enum Process {
    /// Running processes.
    Running(Scope),
    /// A command that the recorder starts.
    Started(Command),
}

/// Opens processes with perf events, or else with ptrace and a warning.
///
/// # Errors
/// Says why neither works.
pub fn open(process: Process, plan: &Plan) -> Result<Source, SourceError> {
    match perf::open(&process, plan) {
        Ok(source) => Ok(source),
        Err(Refusal::Forbidden(errno)) if plan.off_cpu => Err(switches::forbidden(errno)),
        Err(Refusal::Forbidden(errno)) => {
            if let Process::Running(Scope::Machine) = process {
                let doing = "cannot open perf events on the whole machine";
                return Err(SourceError::system(
                    doing,
                    errno,
                    &refusal::advice(errno, 0),
                ));
            }
            stopped::open(process, vec![by_ptrace(errno)])
        }
        Err(Refusal::Failed(error)) => Err(error),
    }
}

/// Opens the process that runs a guest, to be recorded beside the guest as `plan` says.
///
/// # Errors
/// Says why that doesn't work.
pub fn open_monitor(pid: i32, plan: &Plan) -> Result<MonitorSource, SourceError> {
    let plan = Plan {
        rate_hz: plan.rate_hz,
        command_line: plan.command_line.clone(),
        labels: plan.labels.clone(),
        host: true,
        ..Plan::for_processes()
    };
    let process = Process::Running(Scope::processes(vec![pid])?);
    let source = perf::open(&process, &plan).map_err(|refusal| match refusal {
        Refusal::Forbidden(errno) => {
            let doing = "cannot open perf events on the monitor, as --host does";
            SourceError::system(doing, errno, &refusal::advice(errno, 0))
        }
        Refusal::Failed(error) => error,
    })?;
    let source = Box::new(source);
    Ok(MonitorSource { source, plan })
}

/// The warning for a machine that forbids perf events.
fn by_ptrace(errno: Errno) -> String {
    format!(
        "perf events are forbidden here ({}): sampling with ptrace instead, which stops the threads for each \
         sample, sees no kernel frames, and keeps programs that the target starts from getting privileges (sudo); to \
         allow perf events: {}",
        errno.desc(),
        refusal::advice(errno, 1),
    )
}

/// The ids and names (at most 15 bytes) of all processes visible in this namespace.
pub fn running() -> impl Iterator<Item = (i32, String)> {
    let all = pids::all().into_iter();
    all.map(|pid| (pid, threads::name(pid, pid)))
}

/// A process as the target of a recording.
fn target(pid: i32, name: String, threads: usize) -> Target {
    Target {
        kind: TargetKind::Process,
        id: u64::from(pid.unsigned_abs()),
        name,
        arch: registers::ARCH,
        vcpus: u32::try_from(threads).unwrap_or(u32::MAX),
    }
}
