//! The progress of runs on a terminal: which run, how much longer at most, and how far the comparison has come.

use crate::terminal;
use std::time::Instant;
use uniprof_report::diff::Standing;

/// The line, and what it says.
pub struct RunProgress {
    began: Option<Instant>,
    /// Runs of both sides that were counted.
    done: usize,
    most: usize,
    standing: String,
}

impl RunProgress {
    /// Starts with no run of `most` of each side.
    pub fn new(most: usize) -> RunProgress {
        RunProgress {
            began: None,
            done: 0,
            most,
            standing: String::new(),
        }
    }

    /// Shows that a side's next run begins.
    pub fn tell(&mut self, side: usize) {
        let began = *self.began.get_or_insert_with(Instant::now);
        let seconds = began.elapsed().as_secs_f64() / self.done.max(1) as f64;
        let left = match self.done {
            0 => String::new(),
            done => format!(
                ", {:.0} s left at most",
                seconds * (2 * self.most).saturating_sub(done) as f64
            ),
        };
        terminal::show_line(&format!(
            "run {} of at most {} of {}{left}{}",
            self.done / 2 + 1,
            self.most,
            ["A", "B"][side],
            self.standing
        ));
        self.done += 1;
    }

    /// Shows the result of a look from now on.
    pub fn stands(&mut self, standing: &Standing) {
        let (certain, open) = (standing.certain, standing.open.len());
        self.standing = format!("; {certain} certain, {open} open");
    }
}
