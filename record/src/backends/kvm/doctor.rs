//! Examines whether the guest of a monitor's process can be recorded well.
//!
//! Input: a target. Output: findings. The guest is paused only for a few samples.

use super::source;
use crate::elf::GivenImage;
use crate::guest::checks::{examine_source, say_image};
use crate::source::doctor::{Report, Verdict};
use crate::source::plan::Plan;
use std::fs::File;

/// Says whether guests can be held before their first instruction.
pub fn examine_host(report: &mut Report) {
    let emulated =
        "a guest that QEMU emulates can be: `uniprof record --boot -- qemu-system-x86_64 …`";
    if !cfg!(target_arch = "x86_64") {
        let text = format!("boots under KVM: none are held on this architecture; {emulated}");
        return report.say(Verdict::Absent, text);
    }
    match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => report.say(
            Verdict::Good,
            "boots: of a guest under KVM, or one that QEMU emulates: `uniprof record --boot -- MONITOR …`",
        ),
        Err(error) => {
            let text = format!("boots under KVM: /dev/kvm: {error}; {emulated}");
            report.say(Verdict::Absent, text);
        }
    }
}

/// Examines the guest of process `pid`.
pub fn examine(pid: i32, elf: Option<&GivenImage>) -> Report {
    let mut report = Report::default();
    let image = say_image(&mut report, elf);
    let opened = source::open(pid, Vec::new(), &Plan::default());
    examine_source(
        &mut report,
        opened,
        &format!("kvm:{pid}"),
        image.as_ref(),
        elf,
    );
    report
}
