//! Unwinding of anything: registers and stack bytes that no program would have.

use crate::seeds;
use crate::take::Take;
use std::sync::{Arc, OnceLock};
use uniprof_record::slot::Slot;
use uniprof_record::walk;
use uniprof_report::images::Image;
use uniprof_report::unwind::{Cache, Module, Options, Stack, UnwindRules, Unwinder};
use uprof::{Arch, RawStack, Registers, State, Task};

/// Where the stack's bytes are from.
const STACK: u64 = 0x7ffd_0000_0000;
/// Where the image is loaded.
const IMAGE: u64 = 0x5555_0000_0000;
const MOST_FRAMES: usize = 128;

/// Registers, then the stack.
pub fn run(bytes: &[u8]) {
    let mut take = Take(bytes);
    let form = take.byte();
    let mut registers = Registers::default();
    for register in 0..33 {
        let choice = take.byte();
        let value = match choice % 4 {
            0 => continue,
            1 => IMAGE + (take.word() & 0x3fff),
            2 => STACK + (take.word() & 0x0fff),
            _ => take.word(),
        };
        registers.set(register, value);
    }
    registers.set(16, IMAGE + (take.word() & 0x3fff));
    let stack = words(take.rest());
    let memory = Stack {
        base: STACK,
        bytes: &stack,
    };
    let options = Options {
        depth_max: MOST_FRAMES,
        scan: form & 1 != 0,
    };
    for unwinder in unwinders() {
        let mut frames = Vec::new();
        let mut cache = Cache::default();
        unwinder.unwind(&mut cache, &registers, &memory, options, &mut frames);
        assert!(frames.len() <= MOST_FRAMES);
        // From the cache it must come to the same.
        let mut again = Vec::new();
        unwinder.unwind(&mut cache, &registers, &memory, options, &mut again);
        assert!(frames == again, "a second unwinding differs");
    }
    follow(&registers, &stack);
}

/// Each byte below 128 of every eighth decides what the word is: the rest of it stays, or it becomes an
/// address of the image or of the stack, which noise would never be.
fn words(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.chunks(8) {
        let mut take = Take(chunk);
        let word = take.word();
        let word = match word >> 56 & 3 {
            0 => IMAGE + (word & 0x3fff),
            1 => STACK + (word & 0x0ff8),
            _ => word,
        };
        out.extend(word.to_le_bytes());
    }
    out
}

/// The recorder's own walk, with the stack cut into two windows.
fn follow(registers: &Registers, stack: &[u8]) {
    let (low, high) = stack.split_at(stack.len() / 16 * 8);
    let windows = [
        RawStack {
            address: STACK,
            bytes: low,
        },
        RawStack {
            address: STACK + low.len() as u64,
            bytes: high,
        },
    ];
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let mut slot = Slot::new(0);
        slot.reset(0, Task { space: 0, vcpu: 0 }, State::Running);
        walk::frame_pointers(&mut slot, arch, registers, &windows, MOST_FRAMES, true);
        assert!(slot.chain().len() <= MOST_FRAMES);
        let fp = arch.special_registers().fp;
        let _ = walk::leaves_window(registers.get(fp).unwrap_or(0), windows[0], MOST_FRAMES);
    }
}

/// One for each processor, with the rules of a real program.
fn unwinders() -> &'static [Unwinder; 2] {
    static UNWINDERS: OnceLock<[Unwinder; 2]> = OnceLock::new();
    UNWINDERS.get_or_init(|| {
        [Arch::X86_64, Arch::Aarch64].map(|arch| {
            let image = Image::from_bytes("calls", seeds::CALLS.to_vec());
            let image = Arc::new(image.expect("an image of the corpus"));
            let module = Module {
                start: IMAGE,
                end: IMAGE + 0x4000,
                bias: IMAGE,
                rules: Arc::new(UnwindRules::of(&image, None)),
                image: Some(image),
            };
            Unwinder::new(arch, vec![module])
        })
    })
}
