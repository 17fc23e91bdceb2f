//! A look at this machine, before anything is recorded: each kind of guest has a doctor of its own.

pub use crate::findings::{Finding, Report, Verdict};
use crate::{process, qemu, xen};

/// Looks at this machine: what can be recorded here, and how to go on.
pub fn examine_host() -> Report {
    let mut report = Report::default();
    process::doctor::examine_host(&mut report);
    qemu::doctor::examine_host(&mut report);
    xen::doctor::examine_host(&mut report);
    report.command = Some("uniprof doctor TARGET, for what will work there".into());
    report
}

/// Guests of this machine that can be recorded, as `uniprof record` takes them.
pub fn guests() -> Vec<String> {
    let mut report = Report::default();
    qemu::doctor::examine_host(&mut report);
    xen::doctor::examine_host(&mut report);
    report.targets
}
