//! Examines whether the guest of a monitor's process can be recorded well.
//!
//! Input: a target. Output: findings. The guest is paused only for a few samples.

use super::source;
use crate::elf::GivenImage;
use crate::guest::checks::{examine_source, say_image};
use crate::source::doctor::Report;
use crate::source::plan::Plan;

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
