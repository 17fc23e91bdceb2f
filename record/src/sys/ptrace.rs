//! The one ptrace request that `nix` does not wrap.

use nix::errno::Errno;
use nix::unistd::Pid;

/// Leaves a thread in its group stop (SIGSTOP and the like) but lets it report further events.
///
/// # Errors
/// What `ptrace` returns.
pub fn listen(tid: Pid) -> Result<(), Errno> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_LISTEN takes no pointers; a thread that is not ours is an error, not harm.
    let result = unsafe { libc::ptrace(libc::PTRACE_LISTEN, tid.as_raw(), none, none) };
    Errno::result(result).map(drop)
}
