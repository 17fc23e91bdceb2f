//! Trial samples of a guest before a recording. They show whether its code is the image's, and whether its stacks have
//! frame pointers.
//!
//! The samples are taken at random times, and their number is sufficient for a reproducible result.

use crate::elf::{Image, PROBES};
use crate::guest::link_register::is_saved_with_frame_pointer;
use crate::source::doctor::{Report, Verdict};
use crate::sys::clock::monotonic_ns;
use std::time::{Duration, Instant};
use uprof::cold::Code;
use uprof::cpu::{SpecialRegisters, aarch64};
use uprof::placement::{self, Agreement, Located, NotLocated};
use uprof::{Arch, Registers};

/// Sufficient number of samples of running vCPUs: a share is then known to within 15 percentage points.
const ENOUGH: u32 = 100;
/// Longest time for all samples.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most time between samples.
const PAUSE_NS: u64 = 20_000_000;
/// Bytes of code before a return address that are searched for the function's prologue; a smaller number is tried if so
/// many can't be read.
const BEFORE_CALL_BYTES: [usize; 3] = [1024, 256, 64];
/// Most pieces of code that are searched for in the image; many may belong to another image.
const MOST_PIECES: usize = 128;

/// The results of trial samples.
pub(crate) struct Trial<'a> {
    /// The image that the user gave for the guest.
    image: Option<&'a Image>,
    stage: Stage,
    start: Instant,
    rounds: u32,
    /// Samples of running vCPUs.
    running: u32,
    with_chain: u32,
    /// Samples of code that a hypervisor filled in.
    filled: u32,
    unreadable: u32,
    /// Samples of vCPUs whose memory can't be read.
    untranslatable: u32,
    /// Code of the guest, each piece once and as one record.
    code: Vec<Code>,
}

/// Progress in finding where the guest has the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is known yet: samples are taken.
    Sampling,
    /// The image may be moved by this much. Code that no sample showed is compared, too.
    Checking(u64),
    /// The final result.
    Known(Result<Located, NotLocated>),
}

impl<'a> Trial<'a> {
    pub(crate) fn new(image: Option<&'a Image>) -> Self {
        Trial {
            image,
            stage: Stage::Sampling,
            start: Instant::now(),
            rounds: 0,
            running: 0,
            with_chain: 0,
            filled: 0,
            unreadable: 0,
            untranslatable: 0,
            code: Vec::new(),
        }
    }

    /// Whether to take another sample; sleeps before it.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.stage != Stage::Sampling {
            self.conclude();
            return false;
        }
        if self.running >= ENOUGH || self.start.elapsed() >= PATIENCE {
            // One more sample, to check the guess of the others.
            self.conclude();
            if let Some(bias) = self.doubtful() {
                self.stage = Stage::Checking(bias);
                return true;
            }
            return false;
        }
        if self.rounds > 0 {
            let pause_ns = fastrand::Rng::with_seed(monotonic_ns()).u64(..PAUSE_NS);
            std::thread::sleep(Duration::from_nanos(pause_ns));
        }
        self.rounds += 1;
        true
    }

    /// Counts a running vCPU whose memory can't be read.
    pub(crate) fn pass_over(&mut self) {
        self.running += 1;
        self.untranslatable += 1;
    }

    /// Examines a running vCPU: is its code the image's, and has it a chain of frame pointers?
    pub(crate) fn compare(
        &mut self,
        arch: Arch,
        registers: &Registers,
        read: &mut dyn FnMut(u64, &mut [u8]) -> usize,
    ) {
        if let Stage::Checking(bias) = self.stage {
            return self.compare_probes(bias, read);
        }
        let SpecialRegisters { ip, sp, fp } = arch.special_registers();
        if registers.get(sp).is_none() {
            return self.pass_over();
        }
        self.running += 1;
        let register = |number| registers.get(number).unwrap_or(0);
        let (ip, sp, fp) = (register(ip), register(sp), register(fp));
        let mut seen = [0; Code::PIECE_BYTES];
        let got = read(ip, &mut seen);
        self.unreadable += u32::from(got == 0);
        if let Some(image) = self.image {
            // Memory that a hypervisor fills, such as the hypercall page, is empty in the image.
            let is_filled = |own: Vec<u8>| !Code::is_telling(&own) && own[..] != seen[..own.len()];
            self.filled += u32::from(image.text_at(ip, got).is_some_and(is_filled));
            self.add_code(ip, &seen[..got]);
        }
        // The saved frame pointer goes up, and the return address is not data on the stack.
        let mut frame = [0; 16];
        let near = fp.is_multiple_of(8) && fp.wrapping_sub(sp) < 1 << 20;
        if near && read(fp, &mut frame) == frame.len() {
            let word = u128::from_le_bytes(frame);
            let (saved, caller) = (word as u64, (word >> 64) as u64);
            let caller = arch.without_signature(caller);
            let plausible = (saved == 0 || saved > fp) && caller.abs_diff(ip) < 1 << 30;
            let kept = arch != Arch::Aarch64 || keeps_frame_pointers(register(aarch64::LR), read);
            self.with_chain += u32::from(plausible && kept);
        }
    }

    fn add_code(&mut self, address: u64, bytes: &[u8]) {
        let is_new = self.code.iter().all(|code| code.address != address);
        if is_new && bytes.len() == Code::PIECE_BYTES && self.code.len() < MOST_PIECES {
            self.code.push(Code {
                time_ns: 0,
                space: 0,
                address,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Searches the image for the guest's code.
    fn conclude(&mut self) {
        if let Some(image) = self.image {
            self.stage = Stage::Known(placement::locate(image, &self.code));
        }
    }

    /// A possible position of the image for which there is too little evidence.
    fn doubtful(&self) -> Option<u64> {
        let Stage::Known(found) = self.stage else {
            return None;
        };
        match found {
            Ok(_) => self.moved_by().filter(|by| *by != 0),
            Err(NotLocated::Doubtful { bias, .. }) => Some(self.relative_to_stated(bias)),
            // Only a page that a hypervisor fills was seen.
            Err(NotLocated::Foreign { .. }) => (self.filled > 0).then_some(0),
            Err(NotLocated::Ambiguous { .. }) => None,
        }
    }

    /// How far the guest moved the image from its stated address, if that is certain.
    pub(crate) fn moved_by(&self) -> Option<u64> {
        match self.stage {
            Stage::Known(Ok(found)) => Some(self.relative_to_stated(found.bias)),
            _ => None,
        }
    }

    /// Converts a bias, which counts from the link-time address, to one from the image's stated address.
    fn relative_to_stated(&self, bias: u64) -> u64 {
        let stated = self.image.map_or(0, Image::moved_by);
        bias.wrapping_sub(stated)
    }

    /// Whether frame pointers seem to be sufficient.
    pub(crate) fn have_chains(&self) -> bool {
        // 32-bit code says nothing about the rest.
        let told = self.running - self.untranslatable;
        told == 0 || self.with_chain * 4 > told * 3
    }

    /// Compares other code of the image with the guest's memory.
    fn compare_probes(&mut self, bias: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) {
        // The probes must be kept, so they replace samples of other images.
        self.code.truncate(MOST_PIECES - PROBES);
        let probes: Vec<u64> = self.image.iter().flat_map(|it| it.probes()).collect();
        for probe in probes {
            let (mut seen, address) = ([0; Code::PIECE_BYTES], probe.wrapping_add(bias));
            let got = read(address, &mut seen);
            self.add_code(address, &seen[..got]);
        }
    }

    pub(crate) fn report(&self, report: &mut Report) {
        let Trial {
            running,
            with_chain,
            ..
        } = *self;
        if running == 0 {
            let text = format!(
                "no vCPU ran in {} samples: there may be little to sample",
                self.rounds
            );
            report.say(Verdict::Poor, text);
            return;
        }
        if self.untranslatable == running {
            let text = format!(
                "the guest runs 32-bit code ({running} of {running} samples), of which uniprof follows no stacks and \
                 names no functions: it samples 64-bit guests; if this one is being started, try again later"
            );
            return report.say(Verdict::Bad, text);
        }
        if self.untranslatable > 0 {
            let text = format!(
                "a vCPU is not in 64-bit mode ({} of {running} samples): its stack can't be read, only its ip is taken",
                self.untranslatable
            );
            report.say(Verdict::Poor, text);
        }
        if self.unreadable > 0 {
            let text = "the code at a vCPU's ip can't be read: is the guest in another mode?";
            report.say(Verdict::Poor, text);
        }
        if let Some(image) = self.image {
            self.say_image(report, image);
        }
        let told = running - self.untranslatable;
        let seen = format!("({with_chain} of {told} samples)");
        if self.have_chains() {
            let text = format!("frame pointers look plausible {seen}");
            return report.say(Verdict::Good, text);
        }
        let (how, remedy) = if with_chain * 4 < told {
            (
                "don't look plausible",
                "build the guest with -fno-omit-frame-pointer",
            )
        } else {
            (
                "look plausible in a part of the code only",
                "build the rest with -fno-omit-frame-pointer",
            )
        };
        let text = format!(
            "frame pointers {how} {seen}: {remedy}, or record with --stack and unwind by the image"
        );
        report.say(Verdict::Poor, text);
    }

    /// How badly the guest's code agrees with the image, if it isn't the guest's. Code that is nowhere in the image
    /// shows that, too, if it ran where the image would be.
    fn disagreement(&self, image: &Image) -> Option<Agreement> {
        match self.stage {
            Stage::Known(Err(NotLocated::Doubtful { agreement, .. })) => Some(agreement),
            Stage::Known(Err(NotLocated::Foreign { .. })) => {
                let found = placement::agreement(image, image.moved_by(), &self.code);
                (found.other > 0).then_some(found)
            }
            _ => None,
        }
    }

    fn say_image(&self, report: &mut Report, image: &Image) {
        match self.stage {
            Stage::Known(Ok(_)) if self.moved_by() == Some(0) => {
                report.say(Verdict::Good, "the image's text is what the guest runs");
            }
            Stage::Known(Ok(Located { bias, .. })) => {
                let start = placement::start(image, bias);
                let text = format!(
                    "the image's text is what the guest runs, moved to {start:#x}: nothing is to be done, recordings \
                     find it by the guest's code (--elf {}@{start:#x} says it)",
                    image.path.display()
                );
                report.say(Verdict::Good, text);
            }
            _ => {
                let text = match self.disagreement(image) {
                    Some(agreement) => format!(
                        "the image's text differs from the guest's memory at {} of {} pieces of code: it is not the \
                         guest's image; give the right one with --elf",
                        agreement.other,
                        agreement.compared()
                    ),
                    None => "no vCPU was seen inside the image, nor its code elsewhere: is it the guest's? Of a guest \
                             with several images give each with --elf"
                        .to_owned(),
                };
                report.say(Verdict::Poor, text);
            }
        }
    }
}

/// Whether the function that `link` returns to keeps a frame pointer, as far as its code shows.
fn keeps_frame_pointers(link: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> bool {
    let link = aarch64::without_signature(link);
    let mut code = [0; BEFORE_CALL_BYTES[0]];
    let known = BEFORE_CALL_BYTES.iter().find_map(|&bytes| {
        let code = &mut code[..bytes];
        let got = read(link.wrapping_sub(bytes as u64), code);
        (got == bytes).then(|| is_saved_with_frame_pointer(code))
    });
    known.flatten().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::Arch;

    /// The messages about our own program, which "runs" at addresses `ips` of it, moved by `by`, with frame pointers in
    /// `chains` of the looks.
    fn said(by: u64, ips: usize, chains: usize) -> String {
        let image = Image::open(&std::env::current_exe().unwrap(), None).unwrap();
        let probes: Vec<u64> = image.probes().skip(1).take(ips).collect();
        let mut trial = Trial::new(Some(&image));
        let arch = Arch::X86_64;
        let SpecialRegisters { ip, sp, fp } = arch.special_registers();
        for number in 0..101 {
            if number >= 100 && !trial.goes_on() {
                break;
            }
            let address = probes[number % probes.len()];
            let mut registers = Registers::default();
            for (register, value) in [(ip, address.wrapping_add(by)), (sp, 0x8000), (fp, 0x8010)] {
                registers.set(register, value);
            }
            let frame = [0, address.wrapping_add(by)].map(u64::to_le_bytes).concat();
            let mut read = |at: u64, into: &mut [u8]| {
                let bytes = match at {
                    0x8010 if number < chains => frame.clone(),
                    0x8010 => return 0,
                    at => image
                        .text_at(at.wrapping_sub(by), into.len())
                        .unwrap_or_default(),
                };
                into[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            };
            trial.compare(arch, &registers, &mut read);
        }
        assert!(!trial.goes_on());
        let mut report = Report::default();
        trial.report(&mut report);
        let texts = report.findings.iter().map(|finding| finding.text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_image_that_was_moved_is_found_and_its_place_is_told() {
        assert!(said(0, 8, 100).contains("is what the guest runs\n"));
        let moved = said(0x7f00_0000_0000, 8, 100);
        assert!(moved.contains("moved to 0x7f00"), "{moved}");
        // At the image's own text, moved a little: the bytes there differ.
        let near = said(0x1000, 8, 100);
        assert!(near.contains("moved to 0x"), "{near}");
    }

    /// A Xen guest that mostly waits in its hypercall page, which is empty in the image.
    #[test]
    fn code_that_a_hypervisor_filled_is_not_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let own = Image::open(&std::env::current_exe().unwrap(), None).unwrap();
        let page = own.probes().nth(3).unwrap() & !0xfff;
        let text = own.text_at(page, 4096).unwrap();
        let at = file.windows(4096).position(|bytes| bytes == text).unwrap();
        file[at..at + 4096].fill(0);
        std::fs::write(&path, file).unwrap();
        let image = Image::open(&path, None).unwrap();
        for others in [0, 10] {
            let mut trial = Trial::new(Some(&image));
            let arch = Arch::X86_64;
            let SpecialRegisters { ip, sp, .. } = arch.special_registers();
            let mut number = 0;
            while number < 101 && (number < 100 || trial.goes_on()) {
                let address = if number < others {
                    own.probes().nth(5).unwrap()
                } else {
                    page + 64
                };
                let mut registers = Registers::default();
                registers.set(ip, address);
                registers.set(sp, 0x8000);
                let mut read = |at: u64, into: &mut [u8]| {
                    let bytes = own.text_at(at, into.len()).unwrap_or_default();
                    into[..bytes.len()].copy_from_slice(&bytes);
                    bytes.len()
                };
                trial.compare(arch, &registers, &mut read);
                number += 1;
            }
            assert!(!trial.goes_on());
            let mut report = Report::default();
            trial.report(&mut report);
            let said = &report.findings[0].text;
            assert_eq!(said, "the image's text is what the guest runs", "{others}");
        }
    }

    #[test]
    fn frame_pointers_in_half_of_the_code_have_a_verdict_of_their_own() {
        assert!(said(0, 8, 90).contains("frame pointers look plausible (90 of 100 samples)"));
        for chains in [40, 50, 60] {
            let half = said(0, 8, chains);
            assert!(half.contains("in a part of the code only"), "{half}");
        }
        assert!(said(0, 8, 5).contains("frame pointers don't look plausible (5 of 100 samples)"));
    }
}
