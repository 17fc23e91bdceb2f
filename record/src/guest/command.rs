//! A command that the recorder starts and ends: a process to sample, or a guest's monitor.
//!
//! Input: its arguments. Output: a child process, and how it ended. A command that could not run never begins.

use crate::source::{Life, SourceError};
use crate::sys::spawn::{self, Waiting};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A command and its arguments.
#[derive(Debug, Clone)]
pub struct Command {
    /// Program and arguments; never empty.
    pub arguments: Vec<String>,
    /// Whether it keeps running when the recording is over.
    pub keep_running: bool,
    /// Where its standard output goes.
    pub stdout: Stdout,
    /// Set to its status when it has ended.
    pub status: ExitStatus,
}

/// Where a command's standard output goes.
#[derive(Debug, Clone, Default)]
pub enum Stdout {
    /// Where ours goes.
    #[default]
    Same,
    /// To standard error, as the recording goes to standard output.
    Stderr,
    /// Into a pipe, which others read.
    Pipe(Arc<std::io::PipeWriter>),
}

impl Stdout {
    fn descriptor(&self) -> Option<RawFd> {
        match self {
            Stdout::Same => None,
            Stdout::Stderr => Some(std::io::stderr().as_raw_fd()),
            Stdout::Pipe(pipe) => Some(pipe.as_raw_fd()),
        }
    }
}

/// How a command ended, as in a shell: its status, or 128 plus the number of the signal that killed it. If the
/// recording was over first, how the command was left. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ExitStatus(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    code: AtomicU32,
    left: OnceLock<Left>,
}

/// The state of a command that still ran when the recording was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The recorder ended it, by this signal.
    Ended(String, Signal),
    /// It still runs, with this process id.
    Running(String, i32),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Left::Ended(name, signal) => write!(
                f,
                "`{name}` still ran, and was ended by {signal} with the recording; --keep-running lets it run on."
            ),
            Left::Running(name, pid) => write!(f, "`{name}` runs on as process {pid}."),
        }
    }
}

impl ExitStatus {
    /// `None` while it runs, or if the recorder ended it.
    pub fn get(&self) -> Option<u8> {
        let code = self.0.code.load(Ordering::Relaxed);
        code.checked_sub(1).map(|code| code as u8)
    }

    /// How the command was left, if the recording was over first.
    pub fn left(&self) -> Option<&Left> {
        self.0.left.get()
    }

    fn set(&self, code: i32) {
        let code = (code & 0xff) as u32 + 1;
        self.0.code.store(code, Ordering::Relaxed);
    }
}

/// The command's process, ended on drop.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: Pid,
    /// `None` once it runs.
    waiting: Option<Waiting>,
    ended: bool,
    keep_running: bool,
    status: ExitStatus,
}

impl Command {
    /// The program's name, without its folder and without arguments, which may contain secrets.
    pub fn program(&self) -> &str {
        let path = self.arguments.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Creates the process, which waits before it executes the command.
    ///
    /// # Errors
    /// The process could not be created.
    pub fn start(&self) -> Result<Child, SourceError> {
        let [input, output, error] = spawn::INHERITED;
        self.start_with([input, self.stdout.descriptor().unwrap_or(output), error])
    }

    /// As [`Command::start`], with these descriptors as standard input, output and error.
    ///
    /// # Errors
    /// The process could not be created.
    pub fn start_with(&self, streams: [RawFd; 3]) -> Result<Child, SourceError> {
        let name = self.arguments.first().cloned().unwrap_or_default();
        let waiting = spawn::waiting(&self.arguments, streams)
            .map_err(|error| SourceError::system(format!("cannot start `{name}`"), error, ""))?;
        Ok(Child {
            name,
            pid: waiting.pid(),
            waiting: Some(waiting),
            ended: false,
            keep_running: self.keep_running,
            status: self.status.clone(),
        })
    }
}

/// Whether a program has this name, here or in PATH, whether or not it can be executed.
fn is_there(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}

impl Child {
    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Makes the process execute the command.
    ///
    /// # Errors
    /// Says why it can't be executed.
    pub fn go(&mut self) -> Result<(), SourceError> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        waiting.go().map(drop).map_err(|error| {
            self.ended = true;
            let advice = match error {
                Errno::ENOENT if is_there(&self.name) => {
                    "the interpreter of its first line (#!) is not there"
                }
                Errno::ENOENT => "no such program here or in PATH; check the spelling",
                Errno::EACCES => "it is not executable, or a folder above it is closed to you",
                Errno::ENOEXEC => "it is not a program for this machine",
                _ => "",
            };
            SourceError::system(format!("cannot run `{}`", self.name), error, advice)
        })
    }

    /// Makes the process execute the command, traced from its first instruction on. The caller has to handle its stops.
    ///
    /// # Errors
    /// Says why it can't be executed or traced.
    pub fn go_traced(&mut self, options: Options) -> Result<(), SourceError> {
        ptrace::seize(self.pid, options).map_err(|error| {
            SourceError::system(format!("cannot trace `{}`", self.name), error, "")
        })?;
        self.go()
    }

    /// Ends a process that the command has started, as it ends the command: not if that is to keep running.
    pub fn end_other(&self, pid: i32) {
        if !self.keep_running && pid != self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Its name, as it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it still runs. Doesn't wait, and doesn't reap the process, so that its processor time stays readable
    /// until it is dropped.
    pub fn life(&mut self) -> Life {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(status) => self.saw(status),
            Err(Errno::EINTR) => Life::Alive,
            Err(_) => Life::Ended(format!("`{}` has ended", self.name)),
        }
    }

    /// Whether it has ended with status 0.
    pub fn has_succeeded(&self) -> bool {
        self.status.get() == Some(0)
    }

    /// Handles a wait status of this process.
    pub fn saw(&mut self, status: WaitStatus) -> Life {
        let name = &self.name;
        let life = match status {
            WaitStatus::Exited(_, 0) => Life::Ended(format!("`{name}` ended")),
            WaitStatus::Exited(_, code) => {
                Life::Ended(format!("`{name}` ended with status {code}"))
            }
            WaitStatus::Signaled(_, signal, _) => {
                Life::Crashed(format!("`{name}` was killed by {signal}"))
            }
            _ => return Life::Alive,
        };
        match status {
            WaitStatus::Exited(_, code) => self.status.set(code),
            WaitStatus::Signaled(_, signal, _) => self.status.set(128 + signal as i32),
            _ => {}
        }
        self.ended = true;
        life
    }
}

impl Drop for Child {
    /// Terminates a command that still runs, unless it is to keep running, and reaps it.
    fn drop(&mut self) {
        const PATIENCE_MS: u64 = 2000;
        let never_ran = self.waiting.take().is_some();
        if self.ended || self.life() != Life::Alive {
            let _ = waitpid(self.pid, Some(WaitPidFlag::WNOHANG));
            return;
        }
        let name = self.name.clone();
        if self.keep_running && !never_ran {
            let _ = self.status.0.left.set(Left::Running(name, self.pid()));
            return;
        }
        let ended_by = |signal| {
            if never_ran {
            } else {
                drop(self.status.0.left.set(Left::Ended(name, signal)))
            }
        };
        let _ = kill(self.pid, Signal::SIGTERM);
        for _ in 0..PATIENCE_MS / 10 {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                _ => return ended_by(Signal::SIGTERM),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
        ended_by(Signal::SIGKILL);
    }
}
