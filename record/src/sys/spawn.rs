//! Starts a command that waits before it executes, so that sampling begins with its first instruction.

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};

/// A child that has not executed its command yet.
#[derive(Debug)]
pub struct Waiting {
    pid: Pid,
    go: std::io::PipeWriter,
    failure: std::io::PipeReader,
}

/// Forks a child that executes `arguments` on [`Waiting::go`]; its standard output is `stdout`, if that is given.
///
/// # Errors
/// The system's error, or `EINVAL` for an empty command or an argument with a zero byte.
pub fn waiting(arguments: &[String], stdout: Option<RawFd>) -> Result<Waiting, Errno> {
    let arguments: Vec<CString> = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()).map_err(|_| Errno::EINVAL))
        .collect::<Result<_, _>>()?;
    let program = arguments.first().ok_or(Errno::EINVAL)?.as_ptr();
    let pointers = arguments.iter().map(|argument| argument.as_ptr());
    let pointers: Vec<_> = pointers.chain([std::ptr::null()]).collect();
    let pipe =
        || std::io::pipe().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
    let (mut wait, go) = pipe()?;
    let (failure, mut fail) = pipe()?;
    // SAFETY: the child calls only close, signal, dup2, read, execvp, write and _exit, on memory that was allocated
    // before the fork. POSIX doesn't promise that execvp may be called here, but musl's and glibc's (from 2.24 on)
    // allocate only on the stack.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Waiting {
            pid: child,
            go,
            failure,
        }),
        ForkResult::Child => {
            // SAFETY: our copy of the writing end, which is not used again: nothing is dropped in this process.
            unsafe { libc::close(go.as_raw_fd()) };
            // SAFETY: a Rust program ignores SIGPIPE; the command expects the default.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            if let Some(stdout) = stdout {
                // SAFETY: both are descriptors, open or not; at worst the call fails.
                unsafe { libc::dup2(stdout, libc::STDOUT_FILENO) };
            }
            let mut word = [0];
            if matches!(wait.read(&mut word), Ok(1)) {
                // SAFETY: both are of `arguments`, whose strings end with zero, and the pointers with null.
                unsafe { libc::execvp(program, pointers.as_ptr()) };
                let _ = fail.write(&Errno::last_raw().to_le_bytes());
            }
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
    }
}

impl Waiting {
    /// Process id of the child.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Makes the child execute its command, and waits until it has.
    ///
    /// # Errors
    /// Says why the command could not be executed; the child is gone.
    pub fn go(self) -> Result<Pid, Errno> {
        let Waiting {
            pid,
            mut go,
            mut failure,
        } = self;
        if go.write_all(&[1]).is_err() {
            return Err(Errno::ECHILD);
        }
        drop(go);
        let mut error = Vec::new();
        // Ends when the command runs, as the pipe is closed on exec.
        let _ = failure.read_to_end(&mut error);
        match error.first_chunk::<4>() {
            None => Ok(pid),
            Some(number) => {
                let _ = nix::sys::wait::waitpid(pid, None);
                Err(Errno::from_raw(i32::from_le_bytes(*number)))
            }
        }
    }
}
