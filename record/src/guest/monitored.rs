//! Names for the code of guests whose monitors are recorded as processes.
//!
//! Input: what was found in each guest before the recording, and the addresses of the samples that were taken in it.
//! Output: mappings of its address space, and names of its kernel's functions. A guest that shows another kernel than
//! the one that was found, as after a reset, loses its names: none may be of the wrong kernel.

use crate::guest::linux::Linux;
use crate::guest::linux::memory::{IMAGES, IMAGES_BYTES};
use crate::source::{Namer, NamerAnswer};
use crate::sys::clock::monotonic_ns;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use uprof::Frame;
use uprof::cold::{
    ClockPair, GUEST_PATH, GUEST_USER_PATH, Mapping, ModuleChange, ModuleEvent, space_of_guest,
};
use uprof::cpu::KERNEL_HALF;

/// Bytes in a guest that are the same as long as it runs the same kernel.
pub struct Mark {
    /// `/proc/PID/mem` of the monitor.
    memory: File,
    at: u64,
    bytes: Vec<u8>,
}

impl Mark {
    /// So many bytes of a monitor's memory, from an address on; `None` if they can't be read.
    pub fn of(memory: File, at: u64, length: usize) -> Option<Mark> {
        let mut bytes = vec![0; length];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(Mark { memory, at, bytes })
    }

    /// Whether they have changed. Those of a monitor that has ended have not.
    fn has_changed(&self) -> bool {
        let mut now = vec![0; self.bytes.len()];
        self.memory.read_exact_at(&mut now, self.at).is_ok() && now != self.bytes
    }
}

/// A guest, and what is known of its code.
pub struct MonitoredGuest {
    pid: u32,
    linux: Option<(Linux, Mark)>,
    /// Its mappings, with times from the start of the recording on.
    modules: Vec<ModuleEvent>,
}

impl MonitoredGuest {
    /// The guest of process `pid`, with the mappings of its images.
    pub fn with_images(pid: u32, images: Vec<ModuleEvent>) -> Self {
        let mut modules = vec![mapped(pid, GUEST_PATH, u64::MAX)];
        // The later mapping is the one that counts.
        modules.extend(images.into_iter().map(|image| ModuleEvent {
            time_ns: 1,
            ..image
        }));
        MonitoredGuest {
            pid,
            linux: None,
            modules,
        }
    }

    /// The guest of process `pid`, which runs this kernel as long as `mark` is the same; `None` if the kernel's build
    /// isn't known.
    pub fn with_linux(pid: u32, linux: Linux, mark: Mark) -> Option<Self> {
        let linux = linux.of_guest(space_of_guest(pid))?;
        let user = mapped(pid, GUEST_USER_PATH, KERNEL_HALF);
        let guest = MonitoredGuest::with_images(pid, vec![user, linux.module_event(0)]);
        Some(MonitoredGuest {
            linux: Some((linux, mark)),
            ..guest
        })
    }
}

/// Whether a guest whose kernel has its code at `text` runs another one at `address`: where the image of a kernel may
/// be, but not that one's code. (Whether it ran a kernel at all, hosts with Linux 6.1 don't say truly.)
fn is_another(text: &Range<u64>, address: u64) -> bool {
    (IMAGES..IMAGES + IMAGES_BYTES).contains(&address) && !text.contains(&address)
}

/// A mapping of the guest of process `pid`, from address 0 on.
fn mapped(pid: u32, path: &str, length: u64) -> ModuleEvent {
    let mapping = Mapping {
        length,
        path: path.into(),
        ..Mapping::default()
    };
    ModuleEvent::mapped(0, space_of_guest(pid), mapping)
}

/// The [`Namer`] of processes, and of the guests of some.
pub struct GuestNamer {
    processes: Box<dyn Namer>,
    guests: Vec<MonitoredGuest>,
    answer: NamerAnswer,
}

impl GuestNamer {
    /// Names the code of `guests`, and what `processes` names.
    pub fn new(processes: Box<dyn Namer>, guests: Vec<MonitoredGuest>) -> Self {
        GuestNamer {
            processes,
            guests,
            answer: NamerAnswer::default(),
        }
    }

    fn find(&self, pid: u32) -> Option<usize> {
        self.guests.iter().position(|guest| guest.pid == pid)
    }

    /// Forgets a guest from a time on.
    #[cold]
    fn forget(&mut self, number: usize, time_ns: u64) {
        let guest = self.guests.swap_remove(number);
        self.answer.modules.push(ModuleEvent {
            time_ns,
            space: space_of_guest(guest.pid),
            what: ModuleChange::Cleared,
        });
        let part = guest.linux.and_then(|(mut linux, _)| linux.part());
        self.answer.parts.extend(part);
    }
}

impl Namer for GuestNamer {
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent {
        for guest in &mut self.guests {
            let modules = std::mem::take(&mut guest.modules).into_iter();
            self.answer.modules.extend(modules.map(|event| ModuleEvent {
                time_ns: clock.monotonic_ns + event.time_ns,
                ..event
            }));
        }
        self.processes.begin(clock)
    }

    fn see(&mut self, chain: &[Frame]) {
        self.processes.see(chain);
    }

    fn see_guest(&mut self, time_ns: u64, pid: u32, address: u64) {
        let Some(number) = self.find(pid) else {
            return;
        };
        match &mut self.guests[number].linux {
            Some((linux, _)) if is_another(linux.text(), address) => self.forget(number, time_ns),
            Some((linux, _)) => linux.saw(&[address]),
            None => {}
        }
    }

    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
        // The process runs another program, or is another one with the same number.
        let is_new = !matches!(event.what, ModuleChange::Mapped(_));
        if let Some(number) = self.find(event.space).filter(|_| is_new) {
            self.forget(number, event.time_ns);
        }
        self.processes.ask(event)
    }

    fn answer(&mut self, last: bool) -> NamerAnswer {
        let has_changed = |guest: &MonitoredGuest| {
            let linux = guest.linux.as_ref();
            linux.is_some_and(|(_, mark)| mark.has_changed())
        };
        while let Some(number) = self.guests.iter().position(has_changed) {
            self.forget(number, monotonic_ns());
        }
        let mut answer = self.processes.answer(last);
        let kernels = self
            .guests
            .iter_mut()
            .filter_map(|guest| guest.linux.as_mut());
        answer
            .parts
            .extend(kernels.filter_map(|(linux, _)| linux.part()));
        answer.parts.append(&mut self.answer.parts);
        answer.modules.append(&mut self.answer.modules);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namer of nothing.
    struct Nothing;

    impl Namer for Nothing {
        fn begin(&mut self, clock: ClockPair) -> ModuleEvent {
            ModuleEvent {
                time_ns: clock.monotonic_ns,
                ..mapped(0, "[kernel]", 1)
            }
        }

        fn see(&mut self, _: &[Frame]) {}

        fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
            Some(event)
        }

        fn answer(&mut self, _: bool) -> NamerAnswer {
            NamerAnswer::default()
        }
    }

    #[test]
    fn a_guest_has_mappings_until_its_process_is_another() {
        let image = mapped(7, "/made/guest", 0x1000);
        let guests = [7, 8].map(|pid| MonitoredGuest::with_images(pid, vec![image.clone()]));
        let mut namer = GuestNamer::new(Box::new(Nothing), guests.into());
        namer.begin(ClockPair {
            monotonic_ns: 100,
            realtime_ns: 0,
            guest: None,
        });
        let told = |namer: &mut GuestNamer| {
            let modules = namer.answer(false).modules.into_iter();
            let told = modules.map(|event| match event.what {
                ModuleChange::Mapped(mapping) => (event.time_ns, mapping.path),
                _ => (event.time_ns, format!("{:x} cleared", event.space)),
            });
            told.collect::<Vec<_>>()
        };
        let of_one = [(100, GUEST_PATH.into()), (101, "/made/guest".into())];
        assert_eq!(told(&mut namer), [of_one.clone(), of_one].concat());
        let event = |space, what| ModuleEvent {
            time_ns: 200,
            space,
            what,
        };
        // A file that it maps changes nothing; nor does what another process does.
        for event in [
            ModuleEvent {
                space: 7,
                ..image.clone()
            },
            event(9, ModuleChange::CopiedFrom(7)),
        ] {
            assert_eq!(namer.ask(event.clone()), Some(event));
        }
        assert_eq!(told(&mut namer), []);
        namer.ask(event(7, ModuleChange::CopiedFrom(1)));
        namer.ask(event(8, ModuleChange::Cleared));
        namer.ask(event(8, ModuleChange::Cleared));
        let cleared = [7, 8].map(|pid| (200, format!("8000000{pid} cleared")));
        assert_eq!(told(&mut namer), cleared);
    }

    #[test]
    fn a_kernel_is_told_by_its_mark() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let mark = Mark::of(file.try_clone().unwrap(), 10, 36).unwrap();
        file.write_all_at(&[8], 46).unwrap();
        assert!(!mark.has_changed());
        file.write_all_at(&[8], 45).unwrap();
        assert!(mark.has_changed());
        file.set_len(20).unwrap();
        assert!(!mark.has_changed(), "it has ended");
        assert!(Mark::of(file, 10, 36).is_none());
    }

    #[test]
    fn another_kernel_is_told_by_where_it_runs() {
        let text = IMAGES + 0x100_0000..IMAGES + 0x200_0000;
        let is = |address| is_another(&text, address);
        // Its own code, a module, a driver's pages, a process.
        for ip in [
            text.start,
            text.end - 1,
            IMAGES + IMAGES_BYTES,
            0xffff_8880_0000_0000,
            0x40_0000,
        ] {
            assert!(!is(ip), "{ip:#x}");
        }
        for ip in [IMAGES, text.start - 1, text.end] {
            assert!(is(ip), "{ip:#x}");
        }
    }
}
