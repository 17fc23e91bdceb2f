//! The threads under ptrace: a table of fixed size with their states.

use super::stat;
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use uprof::Task;

/// Most threads under ptrace; further ones are not traced.
pub const MOST: usize = 1024;

/// The state of a thread under ptrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceeState {
    /// It runs.
    Free,
    /// A stop was requested.
    Asked,
    /// It is stopped, and will be resumed with this signal (0: none).
    Stopped(i32),
    /// It is in a group stop (SIGSTOP and the like), and has to stay there.
    GroupStopped,
}

/// One thread.
#[derive(Debug)]
pub struct Tracee {
    /// Process and thread id.
    pub task: Task,
    /// Its state.
    pub state: TraceeState,
    /// `/proc/PID/task/TID/stat`, kept open; `None` if it could not be opened.
    stat: Option<File>,
    /// The processor that it ran on when its state was read last.
    pub processor: Option<usize>,
}

impl Tracee {
    /// The thread id.
    pub fn tid(&self) -> Pid {
        Pid::from_raw(self.task.vcpu as i32)
    }

    /// Whether the thread is running or runnable (state R of proc_pid_stat(5)).
    pub fn is_running(&mut self) -> bool {
        let mut text = [0; 512];
        let read = self
            .stat
            .as_ref()
            .and_then(|stat| stat.read_at(&mut text, 0).ok());
        let text = &text[..read.unwrap_or(0)];
        self.processor = stat::processor(text);
        stat::state(text) == Some(b'R')
    }
}

/// The threads under ptrace.
#[derive(Debug)]
pub struct Threads {
    all: Vec<Tracee>,
}

impl Threads {
    /// Room for [`MOST`] threads.
    pub fn new() -> Self {
        Threads {
            all: Vec::with_capacity(MOST),
        }
    }

    /// Whether another thread can be added.
    pub fn has_room(&self) -> bool {
        self.all.len() < MOST
    }

    /// Adds a thread if it is new and there is room; returns whether it was added.
    pub fn add(&mut self, task: Task) -> bool {
        let known = self.all.iter().any(|tracee| tracee.task.vcpu == task.vcpu);
        let room = self.has_room();
        if !known && room {
            self.all.push(Tracee {
                task,
                state: TraceeState::Free,
                stat: open_stat(task),
                processor: None,
            });
        }
        !known && room
    }

    /// Removes a thread, and returns its task.
    pub fn remove(&mut self, tid: Pid) -> Option<Task> {
        let at = self.all.iter().position(|tracee| tracee.tid() == tid)?;
        Some(self.all.swap_remove(at).task)
    }

    /// Removes all threads of `task`'s process but `task` itself, as it executed another program.
    pub fn keep_leader(&mut self, task: Task) {
        self.all
            .retain(|tracee| tracee.task.space != task.space || tracee.task == task);
        self.add(task);
    }

    /// Removes the threads for which `keep` is false.
    pub fn retain(&mut self, keep: impl FnMut(&mut Tracee) -> bool) {
        self.all.retain_mut(keep);
    }

    /// The thread with this id.
    pub fn get(&mut self, tid: Pid) -> Option<&mut Tracee> {
        self.all.iter_mut().find(|tracee| tracee.tid() == tid)
    }

    /// All threads.
    pub fn all(&mut self) -> &mut [Tracee] {
        &mut self.all
    }

    /// Whether there are no threads.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Opens a thread's `stat` without allocating.
fn open_stat(task: Task) -> Option<File> {
    let mut path = [0; 64];
    write!(
        &mut path[..],
        "/proc/{}/task/{}/stat\0",
        task.space,
        task.vcpu
    )
    .ok()?;
    stat::open_file(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_under_ptrace_up_to_the_last_and_past_it() {
        // No process has such an id.
        let space = u32::MAX >> 1;
        let mut threads = Threads::new();
        let most = MOST as u32;
        assert!((1..=most).all(|vcpu| threads.add(Task { space, vcpu })));
        let next = Task {
            space,
            vcpu: most + 1,
        };
        assert!(!threads.add(next));
        threads.remove(Pid::from_raw(7));
        assert!(threads.add(next));
    }

    #[test]
    fn a_thread_that_runs_is_told_from_one_that_sleeps() {
        let own = std::process::id();
        let tid = nix::unistd::gettid().as_raw() as u32;
        let mut threads = Threads::new();
        assert!(threads.add(Task {
            space: own,
            vcpu: tid
        }));
        assert!(
            !threads.add(Task {
                space: own,
                vcpu: tid
            }),
            "known already"
        );
        assert!(
            threads.all()[0].is_running(),
            "the thread that asks is running"
        );

        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let _ = wait.recv();
        });
        let vcpu = told.recv().unwrap();
        threads.add(Task { space: own, vcpu });
        let asleep = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !threads.all()[1].is_running()
        });
        assert!(asleep);
        drop(end);
        sleeper.join().unwrap();
    }
}
