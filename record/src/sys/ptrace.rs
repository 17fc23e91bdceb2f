//! What `nix` does not wrap of ptrace: a request, and real-time signals, which have no name there. A stop for one of
//! those would be consumed as an error, and its thread would stand still for good.

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It stopped, and is about to receive this signal.
    Signal(Pid, i32),
    /// Anything else, or nothing.
    Other(WaitStatus),
}

/// Waits for a thread, or for any (`None`). One that a real-time signal killed counts as ended with the status that
/// shells give it.
///
/// # Errors
/// The error of `waitpid`.
pub fn wait(tid: Option<Pid>, flags: WaitPidFlag) -> Result<Waited, Errno> {
    let mut status = 0;
    let wanted = tid.map_or(-1, Pid::as_raw);
    // SAFETY: `status` is writable for the length of the call.
    let found = unsafe { libc::waitpid(wanted, &mut status, flags.bits()) };
    let found = Pid::from_raw(Errno::result(found)?);
    if found.as_raw() == 0 {
        return Ok(Waited::Other(WaitStatus::StillAlive));
    }
    Ok(match WaitStatus::from_raw(found, status) {
        Ok(WaitStatus::Stopped(tid, signal)) => Waited::Signal(tid, signal as i32),
        Ok(status) => Waited::Other(status),
        Err(_) if libc::WIFSTOPPED(status) => Waited::Signal(found, libc::WSTOPSIG(status)),
        Err(_) => Waited::Other(WaitStatus::Exited(found, 128 + libc::WTERMSIG(status))),
    })
}

/// Leaves a thread in its group stop (SIGSTOP and the like) but allows it to report further events.
///
/// # Errors
/// The error of `ptrace`.
pub fn listen(tid: Pid) -> Result<(), Errno> {
    request(i64::from(libc::PTRACE_LISTEN), tid, 0)
}

/// Lets a stopped thread go on, with this signal (0: none).
///
/// # Errors
/// The error of `ptrace`.
pub fn cont(tid: Pid, signal: i32) -> Result<(), Errno> {
    request(i64::from(libc::PTRACE_CONT), tid, signal)
}

/// Lets a stopped thread go on to its next system call, with this signal (0: none).
///
/// # Errors
/// The error of `ptrace`.
pub fn syscall(tid: Pid, signal: i32) -> Result<(), Errno> {
    request(i64::from(libc::PTRACE_SYSCALL), tid, signal)
}

/// Detaches from a stopped thread, which goes on with this signal (0: none).
///
/// # Errors
/// The error of `ptrace`.
pub fn detach(tid: Pid, signal: i32) -> Result<(), Errno> {
    request(i64::from(libc::PTRACE_DETACH), tid, signal)
}

/// The type of requests differs between C libraries.
fn request(request: i64, tid: Pid, signal: i32) -> Result<(), Errno> {
    let none = std::ptr::null_mut::<libc::c_void>();
    let signal = std::ptr::without_provenance_mut::<libc::c_void>(signal as usize);
    // SAFETY: these requests take no pointers; a thread that is not our tracee yields an error and no harm.
    let result = unsafe { libc::ptrace(request as _, tid.as_raw(), none, signal) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::ptrace::{Options, seize};
    use std::process::Command;

    #[test]
    fn a_real_time_signal_stops_a_thread_and_is_delivered() {
        let signal = libc::SIGRTMIN() + 1;
        for go_on in [cont, syscall, detach] {
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            let tid = Pid::from_raw(child.id() as i32);
            seize(tid, Options::empty()).unwrap();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::kill(tid.as_raw(), signal) }, 0);
            let stopped = wait(Some(tid), WaitPidFlag::__WALL).unwrap();
            assert_eq!(stopped, Waited::Signal(tid, signal));
            go_on(tid, signal).unwrap();
            let ended = wait(Some(tid), WaitPidFlag::__WALL).unwrap();
            let killed = WaitStatus::Exited(tid, 128 + signal);
            assert_eq!(ended, Waited::Other(killed));
            // Nothing is left to wait for.
            assert!(child.wait().is_err());
        }
    }
}
