//! Chooses the code of a guest that is recorded beside its samples (format-spec.md, section 6.10): a piece around each
//! instruction pointer or caller, each piece once, up to a limit.
//!
//! Input: a vCPU of a frozen guest. Output: notes. Must not allocate.

use crate::source::ring::Sink;
use crate::source::slot::NoteKind;
use crate::source::{Frozen, Vcpu};
use uprof::cold::Code;
use uprof::cpu::SpecialRegisters;
use uprof::{Arch, Frame, Task};

/// Most pieces of an address space.
const MOST_PIECES: usize = 128;
/// From this number of pieces on, an address space gets at most [`FEW_PIECES`].
const MANY_PIECES: usize = 256;
const FEW_PIECES: usize = 8;
/// Most pieces of a recording, or of each boot of a guest in it.
const MOST_TOGETHER: usize = 512;
const PIECE_BYTES: u64 = Code::MOST_BYTES as u64;
/// Size of a stack for a guess: a stack pointer that moved by less is assumed to belong to the same thread.
const STACK_BYTES: u64 = 16 << 10;

/// Chooses pieces of code, and reads them.
pub struct Codes {
    /// The pieces recorded so far, by address space and address.
    seen: Vec<(u32, u64)>,
    /// Number of the guest's boot that the pieces are of.
    life: u32,
    /// A caller's piece to read next, with its vCPU and stack.
    wanted: Option<(u32, u64, (u32, u64))>,
}

impl Codes {
    /// Room for all pieces.
    pub fn new() -> Self {
        Codes {
            seen: Vec::with_capacity(MOST_TOGETHER),
            life: 0,
            wanted: None,
        }
    }

    fn is_new(&self, piece: (u32, u64)) -> bool {
        if self.seen.len() == MOST_TOGETHER || self.seen.contains(&piece) {
            return false;
        }
        let of_space = self.seen.iter().filter(|(space, _)| *space == piece.0);
        let most = if self.seen.len() < MANY_PIECES {
            MOST_PIECES
        } else {
            FEW_PIECES
        };
        of_space.count() < most
    }

    /// Reads at most one new piece: around the instruction pointer, or around a caller seen before. Returns whether it
    /// read one.
    pub fn read(
        &mut self,
        frozen: &mut Frozen<'_>,
        vcpu: &Vcpu,
        arch: Arch,
        sink: &mut Sink,
        now_ns: u64,
    ) -> bool {
        if self.life != vcpu.task.space {
            self.life = vcpu.task.space;
            self.seen.clear();
            self.wanted = None;
        }
        let SpecialRegisters { ip, sp, .. } = arch.special_registers();
        // Code in another mode, such as 32-bit code, belongs to no image.
        let Some((ip, _)) = vcpu.registers.get(ip).zip(vcpu.registers.get(sp)) else {
            return false;
        };
        let mut piece = (vcpu.space_of(ip), ip / PIECE_BYTES);
        if !self.is_new(piece) {
            let Some((task, stack, wanted)) = self.wanted else {
                return false;
            };
            // Another thread may have other code at the same address.
            let own_stack = vcpu.registers.get(sp).unwrap_or(0) / STACK_BYTES;
            if (task, stack) != (vcpu.task.vcpu, own_stack)
                || vcpu.space_of(wanted.1 * PIECE_BYTES) != wanted.0
            {
                return false;
            }
            piece = wanted;
            self.wanted = None;
        }
        self.seen.push(piece);
        let mut bytes = [0; Code::MOST_BYTES];
        let (space, number) = piece;
        let address = number * PIECE_BYTES;
        let read = frozen.read(vcpu, address, &mut bytes);
        if read > 0 {
            let of_space = Task { space, ..vcpu.task };
            sink.note(now_ns, of_space, NoteKind::Code(address), &bytes[..read]);
        }
        true
    }

    /// Remembers a caller of a sample, whose code is to be read.
    pub fn want(&mut self, vcpu: &Vcpu, arch: Arch, chain: &[Frame]) {
        if self.seen.len() == MOST_TOGETHER
            || self.wanted.is_some_and(|(task, ..)| task != vcpu.task.vcpu)
        {
            return;
        }
        let sp = arch.special_registers().sp;
        let stack = vcpu.registers.get(sp).unwrap_or(0) / STACK_BYTES;
        let mut pieces = chain.iter().map(|frame| {
            let address = frame.lookup_address();
            (vcpu.space_of(address), address / PIECE_BYTES)
        });
        let new = pieces.find(|&piece| self.is_new(piece));
        self.wanted = new.map(|piece| (vcpu.task.vcpu, stack, piece));
    }
}

impl Default for Codes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;
    use crate::source::{Facts, Life, SourceError, StopWorld, Vcpus};
    use uprof::cold::Target;
    use uprof::cpu::x86_64;
    use uprof::{Details, Registers, State};

    /// A fake guest whose memory holds its own addresses.
    struct FakeGuest(Facts);

    impl StopWorld for FakeGuest {
        fn facts(&self) -> &Facts {
            &self.0
        }
        fn freeze(&mut self, _: u64, _: &mut Vcpus) -> Result<(), SourceError> {
            Ok(())
        }
        fn read(&mut self, _: &Vcpu, address: u64, into: &mut [u8]) -> usize {
            into.fill((address >> 8) as u8);
            into.len()
        }
        fn resume(&mut self) -> Result<(), SourceError> {
            Ok(())
        }
        fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
            Ok(Life::Alive)
        }
    }

    #[test]
    fn each_process_of_a_guest_has_pieces_and_all_share_the_kernels() {
        let mut codes = Codes::new();
        let process = |root, ip| Vcpu {
            details: Details {
                root: Some(root),
                ..Details::default()
            },
            ..vcpu(ip, 0)
        };
        let place = |vcpu: &Vcpu, ip: u64| (vcpu.space_of(ip), ip / PIECE_BYTES);
        let (user, kernel) = (0x40_1000, 0xffff_ffff_8100_0000);
        let (one, other) = (process(0x1000, user), process(0x2000, user));
        assert_ne!(place(&one, user), place(&other, user));
        assert_eq!(place(&one, kernel), place(&other, kernel));
        // Two processes that run code everywhere leave room for others.
        for vcpu in [&one, &other] {
            for number in 0..1000 {
                let piece = place(vcpu, user + 0x1000 * number);
                if codes.is_new(piece) {
                    codes.seen.push(piece);
                }
            }
        }
        assert_eq!(codes.seen.len(), MANY_PIECES);
        for number in 0..1000 {
            let piece = place(&process(0x3000, user), user + 0x1000 * number);
            if codes.is_new(piece) {
                codes.seen.push(piece);
            }
        }
        assert_eq!(codes.seen.len(), MANY_PIECES + FEW_PIECES);
    }

    fn vcpu(ip: u64, sp: u64) -> Vcpu {
        let mut registers = Registers::default();
        registers.set(x86_64::RIP, ip);
        registers.set(x86_64::RSP, sp);
        Vcpu {
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            registers,
            handle: 0,
            details: Details::default(),
        }
    }

    #[test]
    fn pieces_of_code_are_read_once_and_up_to_a_number() {
        let mut guest = FakeGuest(Facts::new(Target::default()));
        let mut vcpus = Vcpus::new();
        let (mut sink, mut drain) = ring_of(64, 0);
        let mut codes = Codes::new();
        let mut frozen = Frozen::freeze(&mut guest, &mut vcpus).unwrap();
        let mut read = |codes: &mut Codes, ip, sp| {
            let mut found = Vec::new();
            codes.read(&mut frozen, &vcpu(ip, sp), Arch::X86_64, &mut sink, 1);
            while drain
                .note(|note| {
                    let NoteKind::Code(address) = note.kind else {
                        panic!("{note:?}")
                    };
                    assert_eq!(note.bytes(), [(address >> 8) as u8; Code::MOST_BYTES]);
                    found.push(address);
                })
                .is_some()
            {}
            found
        };
        assert_eq!(read(&mut codes, 0x1234, 0x8000), [0x1200]);
        assert!(read(&mut codes, 0x12ff, 0x8000).is_empty());
        // A caller's code is read at the next sample of the same stack, and of no other.
        let chain = [Frame::exact(0x1234), Frame::return_address(0x5678)];
        codes.want(&vcpu(0x1234, 0x8000), Arch::X86_64, &chain);
        assert!(read(&mut codes, 0x1234, 0x18000).is_empty());
        assert_eq!(read(&mut codes, 0x1234, 0x8010), [0x5600]);
        assert!(read(&mut codes, 0x1234, 0x8010).is_empty());
        let more = (0..1000).map(|number| read(&mut codes, 0x10_0000 + 256 * number, 0).len());
        assert_eq!(more.sum::<usize>(), MOST_PIECES - 2);
        codes.want(
            &vcpu(0x1234, 0x8000),
            Arch::X86_64,
            &[Frame::exact(0x99_0000)],
        );
        assert!(read(&mut codes, 0x1234, 0x8000).is_empty());
    }
}
