//! The state and the processor time of a thread, as the kernel reports them. Read without allocating.

use super::stat;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A thread's `stat` and `schedstat`, kept open, so that another thread that gets its id can't be mistaken for it.
#[derive(Debug)]
pub struct ThreadTimes {
    stat: File,
    /// `None` if the kernel was built without it.
    schedstat: Option<File>,
}

impl ThreadTimes {
    /// Opens the files of thread `tid` of process `pid`; `None` if there is no such thread.
    pub fn of(pid: i32, tid: i32) -> Option<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        Some(ThreadTimes {
            stat: open("stat")?,
            schedstat: open("schedstat"),
        })
    }

    /// Its state, a letter of proc_pid_stat(5), and the processor that it ran on last; `None` if it has ended.
    pub fn seen(&self) -> Option<(u8, Option<usize>)> {
        let mut text = [0; 512];
        let read = self.stat.read_at(&mut text, 0).ok()?;
        let text = &text[..read];
        let state = stat::state(text).filter(|state| !matches!(state, b'Z' | b'X'))?;
        Some((state, stat::processor(text)))
    }

    /// The processor time that the thread has had, in nanoseconds, by the first field of its `schedstat`
    /// (Documentation/scheduler/sched-stats.rst). It is as old as the moment when the thread last stopped, or its
    /// processor's last tick. `None` if the kernel doesn't report it.
    pub fn processor_time_ns(&self) -> Option<u64> {
        self.field(0)
    }

    /// For how long the thread has waited for a processor, in nanoseconds, by the second field of its `schedstat`. A
    /// wait that is not over is not in it. `None` if the kernel doesn't report it.
    pub fn delay_ns(&self) -> Option<u64> {
        self.field(1)
    }

    fn field(&self, number: usize) -> Option<u64> {
        let mut text = [0; 128];
        let read = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let field = text[..read].split(|byte| *byte == b' ').nth(number)?;
        std::str::from_utf8(field).ok()?.parse().ok()
    }
}
