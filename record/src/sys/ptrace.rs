//! The one ptrace request that `nix` does not wrap.

use nix::errno::Errno;
use nix::unistd::Pid;

/// Leaves a thread in its group stop (SIGSTOP and the like) but allows it to report further events.
///
/// # Errors
/// The error of `ptrace`.
pub fn listen(tid: Pid) -> Result<(), Errno> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_LISTEN takes no pointers; a thread that is not our tracee yields an error and no harm.
    let result = unsafe { libc::ptrace(libc::PTRACE_LISTEN, tid.as_raw(), none, none) };
    Errno::result(result).map(drop)
}
