//! Follows frame pointers through copied stack bytes, after the guest runs again.
//!
//! Input: registers and the bytes copied while the guest was frozen. Output: frames, and why they end. No word is
//! trusted: depth and direction are bounded.

use crate::source::slot::Slot;
use uprof::cpu::SpecialRegisters;
use uprof::{Arch, Frame, RawStack, Registers, Stop};

/// The saved frame pointer and return address at `frame_pointer`.
fn frame_at(frame_pointer: u64, windows: &[RawStack<'_>]) -> Option<(u64, u64)> {
    windows.iter().find_map(|window| {
        let offset = usize::try_from(frame_pointer.checked_sub(window.address)?).ok()?;
        let words = window.bytes.get(offset..offset.checked_add(16)?)?;
        let (next, caller) = words.split_first_chunk::<8>()?;
        let next = u64::from_le_bytes(*next);
        Some((next, u64::from_le_bytes(caller.try_into().ok()?)))
    })
}

/// The first address of the chain of frame pointers outside `window`, if it could be on a stack.
///
/// Fast enough for a frozen guest: two loads per frame, at most `depth` frames.
pub fn leaves_window(frame_pointer: u64, window: RawStack<'_>, depth: usize) -> Option<u64> {
    let mut at = frame_pointer;
    for _ in 0..depth {
        let Some((next, _)) = frame_at(at, &[window]) else {
            return (at != 0 && at.is_multiple_of(8)).then_some(at);
        };
        if next <= at && frame_at(next, &[window]).is_some() {
            return None;
        }
        at = next;
    }
    None
}

/// Adds the chain that starts at `registers` to `slot`, reading `windows`.
///
/// A chain may pass from one window to the other once each way. Within a window it must go up, so that a cycle ends the
/// walk. `is_guest`: a thread's first function may have been entered by a return. A frame above others that saved a
/// frame pointer of zero then has no caller, whatever bytes are beside it.
pub fn frame_pointers(
    slot: &mut Slot,
    arch: Arch,
    registers: &Registers,
    windows: &[RawStack<'_>],
    most_frames: usize,
    is_guest: bool,
) -> Stop {
    let SpecialRegisters { ip, fp, .. } = arch.special_registers();
    let Some(ip) = registers.get(ip) else {
        return Stop::Unreadable;
    };
    slot.push_frame(Frame::exact(ip));
    let mut at = registers.get(fp).unwrap_or(0);
    let mut turns = 0;
    loop {
        if at == 0 {
            return Stop::Complete;
        }
        if !at.is_multiple_of(8) {
            return Stop::BadPointer;
        }
        let Some((next, caller)) = frame_at(at, windows) else {
            return beyond(at, windows);
        };
        if caller == 0 {
            return Stop::Complete;
        }
        let caller = arch.without_signature(caller);
        if !arch.can_be_code(caller) {
            let begins = is_guest && next == 0 && slot.chain().len() > 1;
            return if begins {
                Stop::Complete
            } else {
                Stop::BadPointer
            };
        }
        let caller = Frame::return_address(caller);
        if slot.chain().len() >= most_frames || !slot.push_frame(caller) {
            return Stop::Depth;
        }
        if next != 0 && next <= at && frame_at(next, windows).is_some() {
            turns += 1;
            if turns >= windows.len() {
                return Stop::Cycle;
            }
        }
        at = next;
    }
}

/// The reason why a frame pointer outside all windows ends the walk.
fn beyond(at: u64, windows: &[RawStack<'_>]) -> Stop {
    const NEAR_BYTES: u64 = 1 << 20;
    let near = windows.iter().any(|window| {
        let end = window.address.wrapping_add(window.bytes.len() as u64);
        at.wrapping_add(16).wrapping_sub(end) < NEAR_BYTES
    });
    if near { Stop::Window } else { Stop::BadPointer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cpu::x86_64;
    use uprof::{State, Task};

    const BASE: u64 = 0xffff_8000_0000_1000;

    fn walk(words: &[u64], fp: u64, most: usize) -> (Vec<u64>, Stop) {
        walk_of(false, words, fp, most)
    }

    fn walk_of(is_guest: bool, words: &[u64], fp: u64, most: usize) -> (Vec<u64>, Stop) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let window = RawStack {
            address: BASE,
            bytes: &bytes,
        };
        let mut registers = Registers::default();
        registers.set(x86_64::RIP, 0x100);
        registers.set(x86_64::RBP, fp);
        let mut slot = Slot::new(0);
        slot.reset(0, Task { space: 0, vcpu: 0 }, State::Running);
        let windows = [window];
        let stop = frame_pointers(
            &mut slot,
            Arch::X86_64,
            &registers,
            &windows,
            most,
            is_guest,
        );
        (
            slot.chain().iter().map(|frame| frame.address).collect(),
            stop,
        )
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let words = [0, BASE + 24, 0x200, 0, 0x300];
        assert_eq!(
            walk(&words, BASE + 8, 64),
            (vec![0x100, 0x200, 0x300], Stop::Complete)
        );
    }

    #[test]
    fn a_cycle_ends_the_walk() {
        let words = [BASE + 16, 0x200, BASE, 0x300];
        assert_eq!(
            walk(&words, BASE, 64),
            (vec![0x100, 0x200, 0x300], Stop::Cycle)
        );
        assert_eq!(walk(&[BASE, 0x200], BASE, 64).1, Stop::Cycle);
    }

    #[test]
    fn words_that_no_code_can_be_at_end_the_walk() {
        for data in [u64::MAX, u64::MAX - 8, 0x48ec_8348_f389_4853, 1 << 56] {
            let words = [BASE + 16, 0x200, 0, data];
            let cut = (vec![0x100, 0x200], Stop::BadPointer);
            assert_eq!(walk(&words, BASE, 64), cut, "{data:#x}");
        }
        let kernel = u64::MAX << 47;
        assert_eq!(walk(&[0, kernel], BASE, 64).0, [0x100, kernel]);
        assert!(!Arch::Aarch64.can_be_code(0x4008_1d06));
    }

    /// Threads of LK do: their stacks are filled with 0x99.
    #[test]
    fn a_guests_thread_may_begin_without_a_caller() {
        let filled = 0x9999_9999_9999_9999;
        let words = [BASE + 16, 0x200, 0, filled];
        let frames = vec![0x100, 0x200];
        assert_eq!(
            walk_of(true, &words, BASE, 64),
            (frames.clone(), Stop::Complete)
        );
        assert_eq!(walk_of(false, &words, BASE, 64), (frames, Stop::BadPointer));
        // With no other frames, the frame pointer may be a number that the code works with.
        assert_eq!(walk_of(true, &[0, filled], BASE, 64).1, Stop::BadPointer);
        let words = [BASE + 16, 0x200, 8, filled];
        assert_eq!(walk_of(true, &words, BASE, 64).1, Stop::BadPointer);
    }

    #[test]
    fn each_bad_end_has_its_reason() {
        assert_eq!(walk(&[0, 0], BASE + 3, 64).1, Stop::BadPointer);
        assert_eq!(walk(&[0, 0], 0xdead_beef_0000, 64).1, Stop::BadPointer);
        assert_eq!(walk(&[BASE + 4096, 0x200], BASE, 64).1, Stop::Window);
        assert_eq!(walk(&[u64::MAX - 7, 0x200], BASE, 64).1, Stop::BadPointer);
        assert_eq!(walk(&[BASE + 16, 0x200, 0, 0x300], BASE, 2).1, Stop::Depth);
    }
}
