//! System interfaces of the guardian: a shared page, a fork, a pipe that closes when the recorder is gone, and a lock
//! held by both.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, setsid};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A page of atomics that parent and child share.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<AtomicU64>,
}

/// Atomics on the page, from its start.
pub const SHARED_WORDS: usize = 8;
/// Bytes of the page.
pub const PAGE_BYTES: usize = 4096;

// SAFETY: the page is only ever used as atomics, which any thread may access.
unsafe impl Send for SharedWords {}
// SAFETY: as for Send.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// A page that is shared with children forked later. It holds zeros, or the first page of `file`, which must be at
    /// least as long and stay so.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new(file: Option<&File>) -> nix::Result<Self> {
        let (flags, descriptor) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(anywhere, PAGE_BYTES, access, flags, descriptor, 0) };
        NonNull::new(base.cast::<AtomicU64>())
            .filter(|base| base.as_ptr().cast() != libc::MAP_FAILED)
            .map(|base| SharedWords { base })
            .ok_or_else(Errno::last)
    }

    /// Atomic `index`.
    ///
    /// # Panics
    /// If `index` is not below [`SHARED_WORDS`]. That is a bug of the caller.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < SHARED_WORDS);
        // SAFETY: index is inside the page.
        let at = unsafe { self.base.add(index) };
        // SAFETY: at points to an aligned word of a page that lives as long as self, and that all who share it use as
        // atomics; a file that loses its page ends the program (SIGBUS).
        unsafe { at.as_ref() }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the page is the mapping made in new(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// A forked child that runs one function and exits; the parent holds the other end of its pipe.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    lifeline: Option<OwnedFd>,
    /// Set once the child can't do its work any more.
    absence: OnceLock<Absence>,
}

/// The reason why a child does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It ended by itself.
    Ended,
    /// A signal ended it.
    Killed(Signal),
    /// A signal stopped it. It may have been continued since.
    Stopped(Signal),
}

impl ChildProcess {
    /// Forks. The child detaches its standard streams from the parent's, so that a pipe that the parent writes to
    /// ends with the parent. It ignores the signals that a terminal sends to a group, and SIGUSR1, which may be sent
    /// to both. It runs `body` with the read end of the lifeline. That end becomes readable when the parent is gone or
    /// has dropped this value. Of the parent's other descriptors the child keeps those of `kept`.
    ///
    /// # Errors
    /// The error of `pipe2` or `fork`.
    ///
    /// Must be called while the process has one thread, since the child runs ordinary code.
    pub fn start(kept: &[RawFd], body: impl FnOnce(RawFd)) -> nix::Result<Self> {
        let (listen, lifeline) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child continues with copies of all memory. It would wait forever for a lock that another thread
        // held, which harms nothing else; that is why the process must have one thread.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(Errno::last());
        }
        if pid > 0 {
            return Ok(ChildProcess {
                pid: Pid::from_raw(pid),
                lifeline: Some(lifeline),
                absence: OnceLock::new(),
            });
        }
        drop(lifeline);
        settle_child(kept, listen.as_raw_fd());
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(listen.as_raw_fd())));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }
}

impl ChildProcess {
    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Why the child can't do its work; `None` while it can. One system call, which doesn't wait.
    pub fn absence(&self) -> Option<Absence> {
        if let Some(known) = self.absence.get() {
            return Some(*known);
        }
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        let seen = match waitpid(self.pid, Some(flags)) {
            Ok(WaitStatus::Stopped(_, signal)) => Absence::Stopped(signal),
            Ok(WaitStatus::Signaled(_, signal, _)) => Absence::Killed(signal),
            // Another thread may have reaped it first.
            Ok(WaitStatus::Exited(..)) | Err(Errno::ECHILD) => Absence::Ended,
            _ => return None,
        };
        Some(*self.absence.get_or_init(|| seen))
    }
}

impl Drop for ChildProcess {
    /// Closes the lifeline and waits for the child to end. A stopped child is continued, since it would never end.
    fn drop(&mut self) {
        self.lifeline = None;
        if matches!(self.absence(), Some(Absence::Ended | Absence::Killed(_))) {
            return;
        }
        let _ = kill(self.pid, Signal::SIGCONT);
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Stopped(..)) => {
                    let _ = kill(self.pid, Signal::SIGCONT);
                }
                Err(Errno::EINTR) => {}
                _ => return,
            }
        }
    }
}

/// Detaches the child: it gets its own session and no signals from the terminal, nor those that are for the recorder.
/// It keeps none of the parent's descriptors but the lifeline and `kept`, so that it doesn't hold the output open.
fn settle_child(kept: &[RawFd], lifeline: RawFd) {
    let _ = setsid();
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGTSTP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ] {
        // SAFETY: SIG_IGN is a valid disposition for each of these.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // `pkill -9 uniprof` must leave it alone.
    let _ = prctl::set_name(c"uprof-guardian");
    // SAFETY: the path is a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    if null >= 0 {
        for stream in 0..3 {
            // SAFETY: replacing a standard stream of this single-threaded child.
            unsafe { libc::dup2(null, stream) };
        }
    }
    let mut spared: Vec<u32> = kept
        .iter()
        .chain([&lifeline])
        .map(|&fd| fd.max(2) as u32)
        .collect();
    spared.sort_unstable();
    let mut first = 3;
    for spare in spared.into_iter().map(Some).chain([None]) {
        let last = spare.map_or(u32::MAX, |spare| spare - 1);
        if first <= last {
            // SAFETY: these are the parent's descriptors. This child neither uses nor drops their owners, as it ends
            // by _exit. A kernel before 5.9 refuses the call, which does no harm.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = spare.map_or(u32::MAX, |spare| spare + 1);
    }
}

/// Locks `file` for this process and the children that keep it open, until the last of them has ended. Returns `false`
/// if another process has locked it.
pub fn hold(file: &File) -> bool {
    // SAFETY: a descriptor that is open as long as `file`.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Waits until `lifeline` ends (true) or `timeout_ms` have passed (false).
pub fn wait_for_end(lifeline: RawFd, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: lifeline,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLIN | libc::POLLERR) != 0
}
