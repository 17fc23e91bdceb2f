//! What the kernel says of a thread: its state and its processor time. Read without allocating.

use super::stat;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A thread's `stat` and `schedstat`, kept open: another thread that gets its id can't be taken for it.
#[derive(Debug)]
pub struct ThreadTimes {
    stat: File,
    /// A kernel may be without.
    schedstat: Option<File>,
}

impl ThreadTimes {
    /// Of thread `tid` of process `pid`, if there is one.
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

    /// The processor time that it has had, in nanoseconds, by the first field of its `schedstat`
    /// (Documentation/scheduler/sched-stats.rst): as of when it last stopped, or its processor's last tick. `None` if
    /// the kernel doesn't say.
    pub fn processor_time_ns(&self) -> Option<u64> {
        let mut text = [0; 128];
        let read = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let first = text[..read].split(|byte| *byte == b' ').next()?;
        std::str::from_utf8(first).ok()?.parse().ok()
    }
}
