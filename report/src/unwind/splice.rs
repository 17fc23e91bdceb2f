//! Joins call frame information and a recorded chain of frame pointers: the former gives the innermost frames, up to
//! the end of the recorded stack bytes; the chain, walked on the whole stack during recording, has the callers
//! beyond.
//!
//! The frame pointer gives the place. While it is the sample's, all of the chain's callers follow; each time it is
//! restored from the record that it points to, one of them has been passed. A frame whose return address is, by its
//! rule, in that record has the record's caller, which is then known by call frame information too. The chain doesn't
//! have the caller of any other frame ([`lacks_caller`]).

use crate::recording::spaces::is_kernel_address;
use crate::unwind::{End, Memory};
use uprof::cold::TargetKind;
use uprof::{Found, Frame, FrameKind, Stop};

/// The recorded part of the stack to unwind.
pub(crate) struct Recorded<'a> {
    /// The chain of frame pointers, innermost frame first.
    pub chain: &'a [Frame],
    /// Why it ends.
    pub stop: Stop,
    /// The frame pointer at its start.
    pub frame_pointer: Option<u64>,
}

/// Appends to the unwound `frames`, whose `end` is not that of the stack, what `recorded` has beyond them, and
/// returns why the stack ends then.
pub(crate) fn go_on(
    frames: &mut Vec<Frame>,
    end: End,
    recorded: &Recorded<'_>,
    memory: &impl Memory,
) -> Stop {
    if matches!(end.stop, Stop::Complete | Stop::Cycle | Stop::Depth) {
        return end.stop;
    }
    let Some(passed) = passed(frames, end, recorded, memory) else {
        return end.stop;
    };
    let callers = recorded.chain.get(passed + 1..).unwrap_or_default();
    let unwound = frames.len();
    frames.extend_from_slice(callers);
    match frames.get_mut(unwound) {
        Some(caller) => {
            let record = end.frame_pointer.map(|at| at.wrapping_add(8));
            match end.return_slot {
                slot if slot.is_some() && slot == record => caller.found = Found::Cfi,
                // Callers are missing in between, up to the frame whose record it is.
                Some(_) => return end.stop,
                None => {}
            }
            recorded.stop
        }
        // Both end at the same frame. A chain with only the sample's own frame says nothing of it.
        None if passed > 0 || recorded.stop == Stop::NotWalked => recorded.stop,
        None => end.stop,
    }
}

/// How many callers of the recorded chain the unwound frames have passed, if they are on it.
fn passed(
    frames: &[Frame],
    end: End,
    recorded: &Recorded<'_>,
    memory: &impl Memory,
) -> Option<usize> {
    let chain = recorded.chain;
    if chain.first()?.address != frames.first()?.address {
        return None;
    }
    let (Some(wanted), Some(first)) = (end.frame_pointer, recorded.frame_pointer) else {
        return once(chain, frames.last()?.address);
    };
    let mut record = first;
    let mut passed = 0;
    while record != wanted {
        record = memory.word(record)?;
        passed += 1;
        if passed >= chain.len() {
            return None;
        }
    }
    // The caller of the last record that was passed must be there.
    let is_there = |caller: &Frame| frames.iter().any(|frame| frame.address == caller.address);
    chain.get(passed).filter(|caller| is_there(caller))?;
    Some(passed)
}

/// The index of `address` in `chain`, if it is there once.
fn once(chain: &[Frame], address: u64) -> Option<usize> {
    let mut places = chain.iter().enumerate();
    let mut next = || places.find(|(_, frame)| frame.address == address);
    let (place, _) = next()?;
    next().is_none().then_some(place)
}

/// Whether the caller of the innermost function (of a process: outside the kernel) may be missing: it is known from
/// frame pointers or not at all, and a function without a frame has its caller's frame pointer.
pub(crate) fn lacks_caller(
    frames: impl Iterator<Item = Frame>,
    stop: Stop,
    kind: TargetKind,
) -> bool {
    // It is unknown how imported stacks were found.
    if matches!(kind, TargetKind::Imported | TargetKind::Synthetic) || stop == Stop::NotWalked {
        return false;
    }
    let is_above = |frame: &Frame| kind == TargetKind::Process && is_kernel_address(frame.address);
    let mut frames = frames.skip_while(is_above);
    if frames.next().is_none() {
        return false;
    }
    match frames.next() {
        Some(caller) => caller.kind == FrameKind::Return && caller.found == Found::FramePointer,
        None => stop == Stop::Unsaid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Stack;

    const SP: u64 = 0x7000;

    fn returns(addresses: &[u64], found: Found) -> Vec<Frame> {
        let frame = |(place, address): (usize, &u64)| match place {
            0 => Frame::exact(*address),
            _ => Frame {
                found,
                ..Frame::return_address(*address)
            },
        };
        addresses.iter().enumerate().map(frame).collect()
    }

    fn end(frame_pointer: u64, return_slot: Option<u64>) -> End {
        End {
            stop: Stop::Window,
            frame_pointer: Some(frame_pointer),
            return_slot,
        }
    }

    /// Addresses and stop of what `unwound` becomes with this chain, which began at SP + 16; two words
    /// further up there is the next record.
    fn joined(unwound: &[u64], end: End, chain: &[u64]) -> (Vec<Frame>, Stop) {
        let words = [0, 0, SP + 32, 3, SP + 0x900, 4];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let memory = Stack {
            base: SP,
            bytes: &bytes,
        };
        let mut frames = returns(unwound, Found::Cfi);
        let chain = returns(chain, Found::FramePointer);
        let recorded = Recorded {
            chain: &chain,
            stop: Stop::Unsaid,
            frame_pointer: Some(SP + 16),
        };
        let stop = go_on(&mut frames, end, &recorded, &memory);
        (frames, stop)
    }

    fn addresses(frames: &[Frame]) -> Vec<u64> {
        frames.iter().map(|frame| frame.address).collect()
    }

    #[test]
    fn the_caller_of_a_leaf_comes_before_the_chain() {
        // 1 is the leaf, 2 its caller, whose record is the sample's.
        let slot = Some(SP + 24);
        let (frames, stop) = joined(&[1, 2], end(SP + 16, slot), &[1, 3, 4, 5]);
        assert_eq!(
            (addresses(&frames), stop),
            (vec![1, 2, 3, 4, 5], Stop::Unsaid)
        );
        let found: Vec<Found> = frames.iter().map(|frame| frame.found).collect();
        assert_eq!(
            found[2..],
            [Found::Cfi, Found::FramePointer, Found::FramePointer]
        );
    }

    #[test]
    fn callers_that_are_missing_in_between_are_told() {
        // Its rule says that the return address of 2 is elsewhere, and the bytes end before it.
        let (frames, stop) = joined(&[1, 2], end(SP + 16, Some(SP + 0x800)), &[1, 3, 4]);
        assert_eq!((addresses(&frames), stop), (vec![1, 2, 3, 4], Stop::Window));
        assert_eq!(frames[2].found, Found::FramePointer);
    }

    #[test]
    fn callers_that_were_passed_are_not_repeated() {
        for (passed, record) in [(1, SP + 32), (2, SP + 0x900)] {
            let unwound = [1, 2, 3, 4];
            let unwound = &unwound[..passed + 2];
            let (frames, _) = joined(unwound, end(record, None), &[1, 3, 4, 5]);
            assert_eq!(addresses(&frames), [1, 2, 3, 4, 5]);
        }
        // The same function again and again: addresses alone would not tell.
        let (frames, _) = joined(&[1, 3], end(SP + 32, None), &[1, 3, 3, 3, 4]);
        assert_eq!(addresses(&frames), [1, 3, 3, 3, 4]);
    }

    #[test]
    fn what_is_not_on_the_chain_is_not_joined_to_it() {
        // A frame pointer that no record led to, a caller that is another one, another stack.
        for (unwound, record, chain) in [
            (&[1, 2][..], 0x1234, &[1, 3, 4][..]),
            (&[1, 2], SP + 32, &[1, 3, 4]),
            (&[1, 2], SP + 16, &[9, 3, 4]),
            (&[1, 2], SP + 16, &[]),
        ] {
            let (frames, stop) = joined(unwound, end(record, None), chain);
            assert_eq!((addresses(&frames), stop), (unwound.to_vec(), Stop::Window));
        }
        // Without a frame pointer, by an address that occurs once.
        let unknown = End {
            frame_pointer: None,
            ..end(0, None)
        };
        let (frames, _) = joined(&[1, 2, 3], unknown, &[1, 3, 4]);
        assert_eq!(addresses(&frames), [1, 2, 3, 4]);
        let (frames, _) = joined(&[1, 2, 3], unknown, &[1, 3, 3, 4]);
        assert_eq!(addresses(&frames), [1, 2, 3]);
    }

    #[test]
    fn a_chain_that_loops_ends() {
        let words = [SP + 16, 7, SP, 8];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let memory = Stack {
            base: SP,
            bytes: &bytes,
        };
        let chain = returns(&[1, 7, 8, 7], Found::FramePointer);
        let recorded = Recorded {
            chain: &chain,
            stop: Stop::Unsaid,
            frame_pointer: Some(SP),
        };
        let mut frames = returns(&[1, 2], Found::Cfi);
        let stop = go_on(&mut frames, end(0x1234, None), &recorded, &memory);
        assert_eq!((frames.len(), stop), (2, Stop::Window));
    }

    #[test]
    fn a_caller_may_be_missing_where_only_the_frame_pointer_tells_of_it() {
        let lacks =
            |found, stop, kind| lacks_caller(returns(&[1, 2, 3], found).into_iter(), stop, kind);
        let process = TargetKind::Process;
        assert!(lacks(Found::FramePointer, Stop::Complete, process));
        assert!(!lacks(Found::Cfi, Stop::Complete, process));
        assert!(!lacks(Found::FramePointer, Stop::NotWalked, process));
        assert!(!lacks(
            Found::FramePointer,
            Stop::Unsaid,
            TargetKind::Imported
        ));
        // The kernel's own frames are not asked about, those below them are.
        let above = Frame::exact(u64::MAX - 100);
        let user = returns(&[1, 2], Found::FramePointer);
        let stack = [vec![above], user.clone()].concat();
        assert!(lacks_caller(stack.into_iter(), Stop::Unsaid, process));
        assert!(!lacks_caller([above].into_iter(), Stop::Unsaid, process));
        assert!(lacks_caller(
            user.into_iter().take(1),
            Stop::Unsaid,
            process
        ));
    }
}
