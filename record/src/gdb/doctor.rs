//! What stands between a guest behind a stub and a good recording.
//!
//! Enters: a target. Leaves: findings. The guest stands still for a few samples, no more.

use super::open;
use crate::doctor::Report;
use crate::guest::checks::{examine_source, say_image};
use crate::plan::Plan;
use std::path::Path;

/// Looks at the guest behind the stub at `address`.
pub fn examine(address: &str, elf: Option<&Path>) -> Report {
    let mut report = Report::default();
    let image = say_image(&mut report, elf);
    let source = open::open_stub(address, Vec::new(), &Plan::default());
    let target = format!("gdb:{address}");
    examine_source(&mut report, source, &target, image.as_ref(), elf);
    report
}
