//! Walks a kernel stack by ORC rules. Input: registers and copied stack bytes. Output: frames, and why the chain
//! ends. A kernel stack is complete at the entry from a process, or where a rule says that there is no caller.
//!
//! The recorder's encoder does the walk, since the rules are in the guest's memory, and since chains take a tenth of
//! the bytes of stacks.

use uniprof_linux::orc::{Base, FramePointer, Kind, Meaning, Orc, SAVED, SAVED_BY_PROCESSOR};
use uprof::cpu::is_kernel_address;
use uprof::{Found, Frame, FrameKind, RawStack, Registers, Stop};

/// How often a walk may go to a lower address: once for each of the kernel's stacks. More often is a loop.
const MOST_STACKS: u32 = 8;
const RBP: u8 = 6;
const RSP: u8 = 7;
const RIP: u8 = 16;

/// Walks from `registers` and replaces `frames`. Returns why the walk ended.
pub fn walk(
    orc: &Orc,
    registers: &Registers,
    stacks: [RawStack<'_>; 2],
    most_frames: usize,
    frames: &mut Vec<Frame>,
) -> Stop {
    frames.clear();
    let mut walk = Walk {
        registers: *registers,
        stacks,
        kind: FrameKind::Exact,
    };
    let mut changes = 0;
    loop {
        let (Some(ip), Some(sp)) = (walk.registers.get(RIP), walk.registers.get(RSP)) else {
            return Stop::BadRule;
        };
        if !is_kernel_address(ip) {
            // Only an interrupt, a fault or a system call enters the kernel.
            return match walk.kind {
                FrameKind::Exact => Stop::Complete,
                FrameKind::Return => Stop::BadRule,
            };
        }
        if frames.len() >= most_frames {
            return Stop::Depth;
        }
        let found = match (frames.is_empty(), walk.kind) {
            (true, _) => Found::FramePointer,
            (false, FrameKind::Return) => Found::Cfi,
            (false, FrameKind::Exact) => Found::TrapFrame,
        };
        frames.push(Frame {
            address: ip,
            kind: walk.kind,
            found,
        });
        let looked_up = ip - u64::from(walk.kind == FrameKind::Return);
        // A call may be a function's last instruction. The rule of the function after it might say that there is no
        // caller.
        let stop = match orc.find(looked_up) {
            None => Some(Stop::BadRule),
            Some(Meaning::End) => Some(Stop::Complete),
            Some(Meaning::Frame {
                base,
                frame_pointer,
                kind,
            }) => walk.step(base, frame_pointer, kind),
        };
        if let Some(stop) = stop {
            return stop;
        }
        if walk.registers.get(RSP).is_some_and(|above| above <= sp) {
            changes += 1;
        }
        if changes > MOST_STACKS {
            return Stop::Cycle;
        }
    }
}

struct Walk<'a> {
    registers: Registers,
    stacks: [RawStack<'a>; 2],
    kind: FrameKind,
}

impl Walk<'_> {
    /// Goes to the caller's registers; returns the reason if that fails.
    fn step(&mut self, base: Base, frame_pointer: FramePointer, kind: Kind) -> Option<Stop> {
        let register = |number: u8, plus: i16| {
            let value = self.registers.get(number)?;
            Some(value.wrapping_add_signed(i64::from(plus)))
        };
        let base = match base {
            Base::Register(number, plus) => register(number, plus),
            Base::Memory(number, plus, then) => {
                match register(number, plus).map(|at| self.word(at)) {
                    Some(Some(word)) => Some(word.wrapping_add_signed(i64::from(then))),
                    Some(None) => return Some(Stop::Window),
                    None => None,
                }
            }
        };
        let Some(base) = base else {
            return Some(Stop::BadRule);
        };
        let at = |plus: i64| base.wrapping_add_signed(plus);
        let mut caller = self.registers;
        let saved = match kind {
            Kind::Call => {
                caller.set(RSP, base);
                &[(RIP, -8)][..]
            }
            Kind::Registers => &SAVED[..],
            Kind::ProcessorFrame => &SAVED_BY_PROCESSOR[..],
        };
        for &(register, place) in saved {
            match self.word(at(i64::from(place))) {
                Some(word) => caller.set(register, word),
                None => return Some(Stop::Window),
            }
        }
        let own = self.registers.get(RBP).unwrap_or(0);
        let frame_pointer_at = match frame_pointer {
            FramePointer::AtBase(plus) => Some(at(i64::from(plus))),
            FramePointer::AtItself(plus) => Some(own.wrapping_add_signed(i64::from(plus))),
            FramePointer::Kept => None,
        };
        if let Some(at) = frame_pointer_at.filter(|_| kind != Kind::Registers) {
            // If it is missing, the walk ends where it is needed.
            caller.set(RBP, self.word(at).unwrap_or(0));
        }
        self.registers = caller;
        self.kind = match kind {
            Kind::Call => FrameKind::Return,
            _ => FrameKind::Exact,
        };
        None
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.stacks.iter().find_map(|stack| {
            let into = usize::try_from(address.wrapping_sub(stack.address)).ok()?;
            let word = stack.bytes.get(into..)?.first_chunk()?;
            Some(u64::from_le_bytes(*word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const THREAD: u64 = 0xffff_c900_0000_4000;
    const INTERRUPTS: u64 = 0xffff_c900_0001_0000;

    /// A rule every 16 bytes, as of Linux 6.1: a function with 8 bytes of stack, an interrupt that switches stacks, an
    /// entry from a process, an interrupt's registers, the end.
    fn rules() -> Orc {
        let rules: [(i16, u16); 6] = [
            (16, 0x0005),
            (8, 0x0009),
            (0, 0x0105),
            (0, 0x0105),
            (0, 0x0400),
            (0, 0),
        ];
        let at = TEXT + 0x1000;
        let place = |index: u64| (TEXT + 16 * index).wrapping_sub(at + 4 * index) as i32;
        let places = (0..rules.len() as u64).flat_map(|index| place(index).to_le_bytes());
        let rules = rules
            .iter()
            .flat_map(|(stack, bits)| [stack.to_le_bytes(), [0; 2], bits.to_le_bytes()].concat());
        Orc::new(at, places.collect(), rules.collect()).unwrap()
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn walked(ip: u64, sp: u64, stacks: [(u64, &[u64]); 2], most: usize) -> (Vec<u64>, Stop) {
        let mut registers = Registers::default();
        registers.set(RIP, ip);
        registers.set(RSP, sp);
        let owned = stacks.map(|(_, words)| bytes(words));
        let raw = |index: usize| RawStack {
            address: stacks[index].0,
            bytes: &owned[index],
        };
        let mut frames = Vec::new();
        let stop = walk(&rules(), &registers, [raw(0), raw(1)], most, &mut frames);
        (
            frames
                .iter()
                .map(|frame| frame.address.wrapping_sub(TEXT))
                .collect(),
            stop,
        )
    }

    /// Saved registers, with instruction and stack pointer at their offsets.
    fn registers(ip: u64, sp: u64) -> Vec<u64> {
        let mut words = vec![0; 21];
        (words[16], words[19]) = (ip, sp);
        words
    }

    #[test]
    fn a_stack_is_followed_through_an_interrupt_to_the_process() {
        // The interrupt stack holds a function that was called where stacks were switched. Its last word is the
        // previous stack pointer. On that stack is the return into the interrupt. The interrupt's registers lead to a
        // function, and that to the entry from a process.
        let interrupts = [7, TEXT + 0x15, THREAD];
        let mut thread = vec![TEXT + 0x35];
        let below = THREAD + 8 + 21 * 8;
        thread.extend(registers(TEXT + 0x04, below));
        thread.extend([7, TEXT + 0x25]);
        thread.extend(registers(0x40_1000, 0x7ffe_0000));
        let stacks = [(INTERRUPTS, &interrupts[..]), (THREAD, &thread[..])];
        let (frames, stop) = walked(TEXT + 0x05, INTERRUPTS, stacks, 64);
        assert_eq!(
            (frames, stop),
            (vec![0x05, 0x15, 0x35, 0x04, 0x25], Stop::Complete)
        );
        let (frames, stop) = walked(TEXT + 0x05, INTERRUPTS, stacks, 2);
        assert_eq!((frames.len(), stop), (2, Stop::Depth));
        let (frames, stop) = walked(TEXT + 0x05, INTERRUPTS, [stacks[0], (0, &[])], 64);
        assert_eq!((frames.len(), stop), (2, Stop::Window));
    }

    #[test]
    fn each_end_has_its_reason() {
        let stack = |words: &'static [u64]| [(THREAD, words), (0, &[][..])];
        assert_eq!(walked(TEXT + 0x45, THREAD, stack(&[]), 9).1, Stop::Complete);
        assert_eq!(walked(TEXT + 0x55, THREAD, stack(&[]), 9).1, Stop::BadRule);
        assert_eq!(walked(TEXT - 1, THREAD, stack(&[]), 9).1, Stop::BadRule);
        assert_eq!(walked(TEXT + 0x05, THREAD, stack(&[0]), 9).1, Stop::Window);
        // A return to an address outside the kernel.
        assert_eq!(
            walked(TEXT + 0x05, THREAD, stack(&[0, 0x1234]), 9).1,
            Stop::BadRule
        );
        // Registers that lead to themselves.
        let words = registers(TEXT + 0x35, THREAD);
        let words: &'static [u64] = words.leak();
        assert_eq!(
            walked(TEXT + 0x35, THREAD, stack(words), 1000).1,
            Stop::Cycle
        );
    }
}
