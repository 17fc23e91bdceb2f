//! What stands between a QEMU guest and a good recording, and which options would make it cheaper.

use super::advice::advice;
use super::machine::Machine;
use super::qmp::Qmp;
use super::source;
use crate::gdb::doctor::{examine_source, say_image};
use crate::image::Image;
use crate::session::Plan;
use crate::source::SourceError;
use crate::xen::doctor::{Report, Verdict};
use std::path::Path;

/// Looks at the guest whose monitor listens at `path`.
pub fn examine(path: &Path, elf: Option<&Path>) -> Report {
    let mut report = Report::default();
    let machine = match ask(path) {
        Ok(machine) => machine,
        Err(error) => {
            report.say(Verdict::Bad, error.to_string());
            return report;
        }
    };
    // Without another one, the image is the kernel that QEMU was given, if that is one.
    let known = machine.kernel.as_deref();
    let elf = elf.or(known.filter(|path| Image::open(path, None).is_ok()));
    let image = say_image(&mut report, elf);
    let target = format!("qemu:{}", path.display());
    let opened = source::open(path, Vec::new(), &Plan::default());
    examine_source(&mut report, opened, &target, image.as_ref(), elf);
    for sentence in advice(&machine) {
        report.say(Verdict::Poor, sentence);
    }
    report
}

fn ask(path: &Path) -> Result<Machine, SourceError> {
    let mut qmp = Qmp::connect(path)?;
    Ok(Machine::ask(&mut qmp)?)
}
