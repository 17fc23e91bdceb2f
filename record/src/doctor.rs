//! What a look at a machine or at a target found, before anything is recorded: all doctors leave a [`Report`].

/// One thing that was looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub verdict: Verdict,
    /// What was found, and what to do about it.
    pub text: String,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Recording works, but not at its best.
    Poor,
    /// Recording can't work.
    Bad,
    /// Not here, which is no fault.
    Absent,
}

/// What the doctor found, and what it would type.
#[derive(Debug, Default)]
pub struct Report {
    /// Findings, in order.
    pub findings: Vec<Finding>,
    /// The command that records, if that can work.
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
