//! Results of examining a machine or a target before a recording. Every examination produces a [`Report`].

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its state.
    pub verdict: Verdict,
    /// What was found, and what to do about it.
    pub text: String,
}

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Recording works, but not at its best.
    Poor,
    /// Recording can't work.
    Bad,
    /// Not present, which is not a fault.
    Absent,
}

/// The findings of an examination, and the recommended command.
#[derive(Debug, Default)]
pub struct Report {
    /// Findings, in order.
    pub findings: Vec<Finding>,
    /// The command that records, if recording can work.
    pub command: Option<String>,
    /// Guests that can be recorded, as `uniprof record` takes them.
    pub targets: Vec<String>,
}

impl Report {
    pub(crate) fn say(&mut self, verdict: Verdict, text: impl Into<String>) {
        let text = text.into();
        self.findings.push(Finding { verdict, text });
    }
}
