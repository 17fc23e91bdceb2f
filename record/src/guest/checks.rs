//! Examines a guest that is opened as for a recording.
//!
//! Input: a source. Output: findings. The guest is paused only for a few samples.

use super::Trial;
use crate::elf::{GivenImage, Image};
use crate::source::doctor::{Report, Verdict};
use crate::source::{Frozen, Hot, Source, SourceError, StopWorld, Vcpus};
use uprof::State;

/// Opens the image that the user gave for the guest.
pub fn say_image(report: &mut Report, elf: Option<&GivenImage>) -> Option<Image> {
    match elf.map(GivenImage::open) {
        Some(Ok(image)) => Some(image),
        Some(Err(problem)) => {
            report.say(Verdict::Bad, problem.to_string());
            None
        }
        None => None,
    }
}

/// Reports the facts of an opened source, and takes a few trial samples.
pub fn examine_source(
    report: &mut Report,
    source: Result<Source, SourceError>,
    target: &str,
    image: Option<&Image>,
    elf: Option<&GivenImage>,
) {
    let mut source = match source {
        Ok(source) => source,
        Err(error) => return report.say(Verdict::Bad, error.to_string()),
    };
    let facts = source.hot.facts();
    let guest = format!("{} vCPUs, {}", facts.target.vcpus, facts.target.arch.name());
    report.say(Verdict::Good, guest);
    for (name, value) in &facts.notes {
        report.say(Verdict::Good, format!("{name}: {value}"));
    }
    let mut trial = Trial::new(image);
    while trial.goes_on() {
        let Hot::StopWorld(source) = &mut source.hot else {
            break;
        };
        if let Err(error) = sample(&mut **source, &mut trial) {
            return report.say(Verdict::Bad, error.to_string());
        }
    }
    trial.report(report);
    let elf = elf.map_or(String::new(), |elf| format!(" --elf {elf}"));
    let stack = if trial.have_chains() { "" } else { " --stack" };
    report.command = Some(format!("uniprof record -d 30s{stack}{elf} {target}"));
}

/// How far the guest moved `image` when it loaded it, by the code of a few trial samples; `None` if that is not
/// certain.
///
/// # Errors
/// Says why the guest can't be sampled.
pub fn moved_by(source: &mut dyn StopWorld, image: &Image) -> Result<Option<u64>, SourceError> {
    let mut trial = Trial::new(Some(image));
    while trial.goes_on() {
        sample(source, &mut trial)?;
    }
    Ok(trial.moved_by().filter(|by| *by != 0))
}

fn sample(source: &mut dyn StopWorld, trial: &mut Trial<'_>) -> Result<(), SourceError> {
    let arch = source.facts().target.arch;
    let mut vcpus = Vcpus::new();
    let mut frozen = Frozen::freeze(source, &mut vcpus)?;
    for vcpu in vcpus.all() {
        if vcpu.state == State::Running {
            let mut read = |address, into: &mut [u8]| frozen.read(vcpu, address, into);
            trial.compare(arch, &vcpu.registers, &mut read);
        }
    }
    frozen.resume().map(drop)
}
