//! Boots of a guest that is reset while it is recorded, and keeps its monitor.
//!
//! Input: how each vCPU translates addresses, in each sample. Output: the number of the boot, which is the address
//! space of its samples, and notes for the recording. A reset turns address translation off on all vCPUs, which no
//! running 64-bit guest does. Must not allocate, except for a reset.

use super::page_tables::Paging;
use crate::source::Vcpus;
use crate::source::ring::Sink;
use crate::source::slot::NoteKind;
use uprof::{Arch, Registers, Task};

/// Most boots that are distinguished; later ones count as the last of these.
const MOST_BOOTS: u32 = 64;
/// Most boots that may wait for a note.
const MOST_NOTES: usize = 8;

/// The boots of a guest.
#[derive(Debug, Default)]
pub struct Boots {
    /// Number of the current boot, from 0.
    boot: u32,
    /// Whether a vCPU has translated addresses since the boot began.
    is_up: bool,
    /// Numbers of vCPUs of this sample that translate addresses, and that don't.
    on: u32,
    off: u32,
    /// Whether the recording has begun: earlier samples are not in it.
    is_recorded: bool,
    /// Start times of boots that are not noted yet.
    begun_ns: [u64; MOST_NOTES],
    noted: u32,
}

impl Boots {
    /// Notes a vCPU of the current sample.
    pub fn see(&mut self, paging: Paging) {
        match paging {
            Paging::Off => self.off += 1,
            Paging::X86_64 { .. } | Paging::Aarch64 { .. } => self.on += 1,
            Paging::Unsupported => {}
        }
    }

    /// Ends a sample: its vCPUs belong to the current boot. One that was missed may be the only one that was started.
    pub fn sampled(&mut self, now_ns: u64, vcpus: &mut Vcpus) {
        let (on, off) = (std::mem::take(&mut self.on), std::mem::take(&mut self.off));
        self.is_up |= on > 0;
        let waiting = (self.boot - self.noted) as usize;
        let has_room = self.boot + 1 < MOST_BOOTS && waiting < MOST_NOTES;
        let are_all_seen = vcpus.missed() == 0;
        if self.is_up && on == 0 && off > 0 && are_all_seen && has_room {
            self.is_up = false;
            self.begun_ns[waiting] = now_ns;
            self.boot += 1;
        }
        for vcpu in vcpus.all_mut() {
            vcpu.task.space = self.boot;
        }
    }

    /// Sends notes of the boots since the last call, for a guest with `vcpus` vCPUs. The first call begins the
    /// recording.
    pub fn report(&mut self, vcpus: u32, sink: &mut Sink) {
        // Boots before the recording are not part of it.
        if !std::mem::replace(&mut self.is_recorded, true) {
            (self.boot, self.noted) = (0, 0);
        }
        let waiting = (self.boot - self.noted) as usize;
        for &time_ns in &self.begun_ns[..waiting] {
            let task = |space| Task { space, vcpu: 0 };
            let ended = NoteKind::LifeEnded { vcpus };
            sink.note(time_ns, task(self.noted), ended, b"");
            self.noted += 1;
            // Only here, and a guest is reset at most so many times, is memory allocated.
            let name = format!("boot {}", self.noted + 1);
            let began = NoteKind::LifeBegan { vcpus };
            sink.note(time_ns, task(self.noted), began, name.as_bytes());
        }
    }

    /// Totals for the end of a recording, if they are not 0: resets, and samples of vCPUs in a `narrow` mode.
    pub fn totals(&self, narrow: u64) -> impl Iterator<Item = (String, u64)> {
        let counts = [("resets", u64::from(self.boot)), (NARROW_SAMPLES, narrow)];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| (name.to_owned(), count))
    }
}

/// The total of samples of x86-64 vCPUs that were not in 64-bit mode.
pub const NARROW_SAMPLES: &str = "samples_not_in_64_bit_mode";

/// Removes registers that mean something else in 32-bit code, where return addresses and saved frame pointers have half
/// the size. The instruction pointer is relative to `base`.
pub fn keep_only_ip(arch: Arch, registers: &mut Registers, base: u64) {
    let number = arch.special_registers().ip;
    let ip = registers.get(number);
    registers.clear();
    if let Some(ip) = ip {
        registers.set(number, ip.wrapping_add(base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;
    use uprof::State;

    const LONG: Paging = Paging::X86_64 { root: 1, levels: 4 };

    /// The boot of a sample whose vCPUs have these modes.
    fn boot_of(boots: &mut Boots, now_ns: u64, pagings: &[Paging]) -> u32 {
        let mut vcpus = Vcpus::new();
        for (vcpu, paging) in (0..).zip(pagings) {
            vcpus.add(Task { space: 0, vcpu }, State::Running);
            boots.see(*paging);
        }
        boots.sampled(now_ns, &mut vcpus);
        let spaces = vcpus.all().iter().map(|vcpu| vcpu.task.space);
        assert!(spaces.into_iter().all(|space| space == boots.boot));
        boots.boot
    }

    #[test]
    fn a_guest_that_is_reset_boots_anew() {
        let (mut sink, mut drain) = ring_of(64, 0);
        let mut boots = Boots::default();
        let off = Paging::Off;
        // Resets before the recording don't count.
        assert_eq!(boot_of(&mut boots, 1, &[LONG]), 0);
        assert_eq!(boot_of(&mut boots, 1, &[off]), 1);
        boots.report(2, &mut sink);
        // The first boot begins with the recording.
        assert_eq!(boot_of(&mut boots, 1, &[off, off]), 0);
        // A vCPU that was not started yet is not a reset, nor is one in another mode.
        assert_eq!(boot_of(&mut boots, 2, &[LONG, off]), 0);
        assert_eq!(boot_of(&mut boots, 3, &[Paging::Unsupported, LONG]), 0);
        assert_eq!(boot_of(&mut boots, 4, &[]), 0);
        assert_eq!(boot_of(&mut boots, 5, &[Paging::Unsupported]), 0);
        assert_eq!(boot_of(&mut boots, 6, &[off, off]), 1);
        assert_eq!(boot_of(&mut boots, 7, &[off, off]), 1);
        assert_eq!(boot_of(&mut boots, 8, &[LONG, off]), 1);
        boots.report(2, &mut sink);
        boots.report(2, &mut sink);
        let mut next = || {
            let mut found = None;
            drain
                .note(|note| found = Some((note.time_ns, note.task.space, note.kind, note.text())));
            found
        };
        let ended = NoteKind::LifeEnded { vcpus: 2 };
        assert_eq!(next(), Some((6, 0, ended, String::new())));
        let began = NoteKind::LifeBegan { vcpus: 2 };
        assert_eq!(next(), Some((6, 1, began, "boot 2".into())));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_vcpu_that_was_missed_is_no_reset() {
        let mut boots = Boots::default();
        assert_eq!(boot_of(&mut boots, 1, &[LONG, Paging::Off]), 0);
        let mut vcpus = Vcpus::new();
        vcpus.miss();
        vcpus.add(Task { space: 0, vcpu: 1 }, State::Running);
        boots.see(Paging::Off);
        boots.sampled(2, &mut vcpus);
        assert_eq!(boots.boot, 0);
    }

    #[test]
    fn boots_are_told_apart_up_to_a_number() {
        let mut boots = Boots::default();
        let (mut sink, mut drain) = ring_of(64, 0);
        boots.report(1, &mut sink);
        for number in 0..100 {
            let now_ns = 2 * u64::from(number);
            let expected = number.min(MOST_BOOTS - 1);
            assert_eq!(boot_of(&mut boots, now_ns, &[LONG]), expected);
            boot_of(&mut boots, now_ns + 1, &[Paging::Off]);
            boots.report(1, &mut sink);
            while drain.note(|_| ()).is_some() {}
        }
        let totals: Vec<_> = boots.totals(0).collect();
        assert_eq!(totals, [("resets".into(), u64::from(MOST_BOOTS - 1))]);
    }
}
