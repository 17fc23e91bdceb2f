//! Examines whether a guest behind a stub can be recorded well.
//!
//! Input: a target. Output: findings. The guest is stopped only for a few samples.

use super::open;
use crate::elf::GivenImage;
use crate::guest::checks::{examine_source, say_image};
use crate::source::doctor::Report;
use crate::source::plan::Plan;

/// Examines the guest behind the stub at `address`.
pub fn examine(address: &str, elf: Option<&GivenImage>) -> Report {
    let mut report = Report::default();
    let image = say_image(&mut report, elf);
    let source = open::open_stub(address, Vec::new(), &Plan::default());
    let target = format!("gdb:{address}");
    examine_source(&mut report, source, &target, image.as_ref(), elf);
    report
}
