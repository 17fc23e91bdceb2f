//! How far work has come, on a terminal only: a bar if it takes longer than a second.

use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// Shows the progress of a report.
pub struct Progress {
    started: Instant,
    bar: OnceCell<ProgressBar>,
    is_terminal: bool,
}

/// Work shorter than this has no bar.
const QUIET: Duration = Duration::from_secs(1);

impl Progress {
    /// Starts the timer.
    pub fn new() -> Self {
        Progress {
            started: Instant::now(),
            bar: OnceCell::new(),
            is_terminal: terminal::is_watched(),
        }
    }

    /// Shows that `done` of `total` samples were read.
    pub fn tell(&self, done: u64, total: u64) {
        if !self.is_terminal || self.started.elapsed() < QUIET {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let form = "{bar:40} {pos} of {len} samples, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.with_elapsed(self.started.elapsed())
        });
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }
}
