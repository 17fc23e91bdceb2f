//! Looks into the guests of this machine once, so that a recording of the whole machine has names for their code.
//!
//! Input: the processes that have vCPUs. Output: for each guest its Linux kernel, or where it has which of the images
//! that the user gave. Its vCPUs are paused for a few samples, under the eyes of a guardian, and never afterwards.

use super::monitor::{self, Monitor};
use super::ram;
use super::source::{self, KvmSource};
use crate::elf::Image;
use crate::guest::linux::{self, Linux, NotRead};
use crate::guest::monitored::{GuestNamer, Mark, MonitoredGuest};
use crate::source::{Frozen, Source, SourceError, StopWorld, Vcpus};
use crate::sys::clock::monotonic_ns;
use crate::sys::pids;
use std::time::{Duration, Instant};
use uprof::cold::{Code, ModuleChange, ModuleEvent, space_of_guest};
use uprof::{Arch, placement};

/// Most guests that are looked into, and the time after which no further one is.
const GUESTS_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// Samples of a guest whose code is compared with images, and the time between them.
const ROUNDS: u32 = 16;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(5);
/// Length of a note with a build-id of 20 bytes, the first of a kernel's.
const NOTE_BYTES: usize = 36;

/// The guests of this machine.
#[derive(Default)]
pub struct MachineGuests {
    guests: Vec<MonitoredGuest>,
    warnings: Vec<String>,
}

impl MachineGuests {
    /// Looks into all guests. Must be called on the thread that will sample, while it is the only one.
    pub fn find(images: &[Image]) -> Self {
        let mut is_used = vec![false; images.len()];
        let mut monitors = pids::all();
        monitors.retain(|pid| monitor::has_vcpus(*pid));
        let mut found = MachineGuests::default();
        if monitors.is_empty() {
            let nothing = "no guest runs under KVM here now, so --host adds nothing";
            found.warnings.push(nothing.to_owned());
        }
        let monitors = monitors.into_iter();
        found.look_at_all(monitors, PATIENCE, |pid| look(pid, images, &mut is_used));
        let unused = images.iter().zip(is_used).filter(|(_, is_used)| !is_used);
        found.warnings.extend(unused.map(|(image, _)| {
            format!(
                "no guest that runs now has the code of {}",
                image.path.display()
            )
        }));
        found
    }

    /// Looks into the guests of `monitors`, with a warning for each of which nothing gets known.
    fn look_at_all(
        &mut self,
        monitors: impl Iterator<Item = i32>,
        patience: Duration,
        mut look: impl FnMut(i32) -> Result<MonitoredGuest, SourceError>,
    ) {
        let begun = Instant::now();
        for (number, pid) in monitors.enumerate() {
            let looked = if number >= GUESTS_MAX || begun.elapsed() > patience {
                let seconds = patience.as_secs();
                let why = format!(
                    "a recording looks into {GUESTS_MAX} guests at most, and for {seconds} s"
                );
                Err(SourceError(why))
            } else {
                look(pid)
            };
            match looked {
                Ok(guest) => self.guests.push(guest),
                Err(SourceError(why)) => self.warnings.push(format!(
                    "the time of the guest of process {pid} has no functions: {why}"
                )),
            }
        }
    }

    /// Adds the names of their code to `source`, which records all processes.
    pub fn name_in(self, source: Source) -> Source {
        let namer = source.namer.map(|processes| {
            let namer = GuestNamer::new(processes, self.guests);
            Box::new(namer) as _
        });
        Source {
            namer,
            warnings: self.warnings,
            ..source
        }
    }
}

/// Looks into the guest of one process.
fn look(pid: i32, images: &[Image], is_used: &mut [bool]) -> Result<MonitoredGuest, SourceError> {
    let monitor = Monitor::of(pid)?;
    // More looks at a guest would leave no time for the next ones.
    let mut guest = source::open_guest(&monitor, Vec::new(), ram::SURE_ROUNDS)?;
    if !guest.has_memory() {
        return Err(SourceError(
            "its memory was not found in its monitor's".into(),
        ));
    }
    let number = pid.unsigned_abs();
    match linux::read(&mut guest) {
        Ok(Some(linux)) => {
            let mark = mark(&mut guest, &linux)?;
            let named = mark.and_then(|mark| MonitoredGuest::with_linux(number, linux, mark));
            named
                .ok_or_else(|| SourceError("the build-id of its Linux kernel was not found".into()))
        }
        Ok(None) | Err(NotRead::Hidden) => {
            let modules = placed(&mut guest, number, images, is_used)?;
            Ok(MonitoredGuest::with_images(number, modules))
        }
        Err(NotRead::NotUnderstood(why)) => Err(SourceError(format!(
            "it seems to run Linux, but its table of symbols is not understood ({why})"
        ))),
        Err(NotRead::Failed(error)) => Err(error),
    }
}

/// The notes of the guest's kernel, by which it is known again.
fn mark(guest: &mut KvmSource, linux: &Linux) -> Result<Option<Mark>, SourceError> {
    let Some(notes) = linux.notes() else {
        return Ok(None);
    };
    let mut vcpus = Vcpus::new();
    for _ in 0..ROUNDS {
        // Page tables of a process may not have them.
        if let Some(mark) = guest.mark(notes, NOTE_BYTES) {
            return Ok(Some(mark));
        }
        std::thread::sleep(BETWEEN_ROUNDS);
        vcpus.clear();
        Frozen::freeze(&mut *guest, &mut vcpus)?.resume()?;
    }
    Ok(None)
}

/// The mappings of those images whose code the guest runs.
fn placed(
    guest: &mut KvmSource,
    pid: u32,
    images: &[Image],
    is_used: &mut [bool],
) -> Result<Vec<ModuleEvent>, SourceError> {
    let mut modules = Vec::new();
    if images.is_empty() {
        return Ok(modules);
    }
    let code = code_of(guest, images)?;
    for (image, is_used) in images.iter().zip(is_used) {
        let Ok(found) = placement::locate(image, &code) else {
            continue;
        };
        *is_used = true;
        let moved_by = found.bias.wrapping_sub(image.moved_by());
        for mut event in image.module_events(0, space_of_guest(pid)) {
            if let ModuleChange::Mapped(mapping) = &mut event.what {
                mapping.start = mapping.start.wrapping_add(moved_by);
            }
            modules.push(event);
        }
    }
    Ok(modules)
}

/// Pieces of the guest's code: what its vCPUs run, and what is where the images state that they are.
fn code_of(guest: &mut KvmSource, images: &[Image]) -> Result<Vec<Code>, SourceError> {
    let mut code: Vec<Code> = Vec::new();
    let mut vcpus = Vcpus::new();
    for round in 0..ROUNDS {
        vcpus.clear();
        Frozen::freeze(&mut *guest, &mut vcpus)?.resume()?;
        let ip = Arch::X86_64.special_registers().ip;
        for vcpu in vcpus.all() {
            let probes = images.iter().filter(|_| round == 0).flat_map(Image::probes);
            for address in vcpu.registers.get(ip).into_iter().chain(probes) {
                let mut bytes = vec![0; Code::PIECE_BYTES];
                let is_new = code.iter().all(|code| code.address != address);
                if is_new && guest.read(vcpu, address, &mut bytes) == bytes.len() {
                    code.push(Code {
                        time_ns: monotonic_ns(),
                        space: 0,
                        address,
                        bytes,
                    });
                }
            }
        }
        std::thread::sleep(BETWEEN_ROUNDS);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_beyond_the_limits_are_told() {
        let look = |pid: i32| match pid {
            3 => Err(SourceError("it is gone".into())),
            _ => Ok(MonitoredGuest::with_images(pid as u32, Vec::new())),
        };
        let found = |most: i32, patience| {
            let mut found = MachineGuests::default();
            found.look_at_all(1..most + 1, patience, look);
            found
        };
        let most = GUESTS_MAX as i32;
        let all = found(most, PATIENCE);
        assert_eq!(all.guests.len(), GUESTS_MAX - 1);
        assert_eq!(
            all.warnings,
            ["the time of the guest of process 3 has no functions: it is gone"]
        );
        let more = found(most + 2, PATIENCE);
        assert_eq!(
            (more.guests.len(), more.warnings.len()),
            (GUESTS_MAX - 1, 3)
        );
        let late = found(2, Duration::ZERO);
        assert_eq!((late.guests.len(), late.warnings.len()), (0, 2));
        let own = std::process::id() as i32;
        assert!(!monitor::has_vcpus(own) && !monitor::has_vcpus(i32::MAX));
        let said = look_at(own);
        assert!(said.contains("runs no guest under KVM"), "{said}");
    }

    fn look_at(pid: i32) -> String {
        look(pid, &[], &mut []).err().unwrap().0
    }
}
