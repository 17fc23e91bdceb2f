//! The line on a terminal that shows how a recording goes.

use crate::record::Args;
use crate::{quantity, terminal};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use uniprof_record::{Counters, Facts};
use uprof::cold::TargetKind;
use uprof::words::duration;

/// How often it is written.
const EVERY: Duration = Duration::from_millis(500);

/// The line; dropping it clears it.
pub struct StatusLine {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusLine {
    /// Whether there is a terminal for it that the recorded program doesn't write to.
    pub fn has_place(args: &Args, facts: &Facts) -> bool {
        terminal::is_watched() && args.command.is_empty() && !shares_terminal(facts)
    }

    /// Shows time, samples, losses and size, and the 99th percentile of the pauses where the target is paused.
    pub fn show(counters: Arc<Counters>) -> StatusLine {
        let (done, wait) = channel();
        let thread = std::thread::spawn(move || {
            while wait.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                terminal::show_line(&text(&counters));
            }
            terminal::clear_line();
        });
        StatusLine {
            done: Some(done),
            thread: Some(thread),
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn text(counters: &Counters) -> String {
    let samples = counters.samples.load(Ordering::Relaxed);
    let seconds = counters.passed_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let mut line = format!(
        "{seconds:6.1} s  {samples} samples  {} lost  {}",
        counters.dropped.load(Ordering::Relaxed),
        quantity::bytes(counters.bytes.load(Ordering::Relaxed)),
    );
    match counters.pause_p99_ns.load(Ordering::Relaxed) {
        0 => {}
        pause_ns => line.push_str(&format!("  99 % of pauses up to {}", duration(pause_ns))),
    }
    line
}

/// Whether a process of the target writes to the terminal that standard error is.
fn shares_terminal(facts: &Facts) -> bool {
    if facts.target.kind != TargetKind::Process {
        return false;
    }
    let device = |path: String| std::fs::metadata(path).ok().map(|found| found.rdev());
    let own = device(format!("/proc/self/fd/{}", io::stderr().as_raw_fd()));
    let mut pids: Vec<u64> = facts.tasks.iter().map(|it| it.task.space.into()).collect();
    pids.push(facts.target.id);
    pids.sort_unstable();
    pids.dedup();
    let writes = |pid: &u64| {
        [1, 2]
            .iter()
            .any(|fd| device(format!("/proc/{pid}/fd/{fd}")) == own)
    };
    own.is_some() && pids.iter().any(writes)
}
