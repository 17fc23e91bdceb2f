//! Joins call frame information and a recorded chain of frame pointers: the former gives the innermost frames, up to
//! the end of the recorded stack bytes; the chain, walked on the whole stack during recording, has the callers
//! beyond.
//!
//! Both have to agree where they meet. Each record of the chain has an address as long as the one before it was copied,
//! and its return address is the next caller's. A frame whose return address is, by its rule, in a record has that
//! record's caller; all callers of the chain before it must be among the unwound frames. The frame pointer says the
//! same only of a frame without a rule: a rule need not restore it, and Go's don't. The chain doesn't have the caller
//! of any other frame, so that such a stack ends there. A missing caller is not invented ([`lacks_caller`]).
//!
//! Functions of Go's runtime call with another stack, and their rules are still of the one that they left. Records of
//! the chain are on both ([`go_on_after_switch`]).

use crate::unwind::{End, Memory};
use uprof::cold::TargetKind;
use uprof::cpu::is_kernel_address;
use uprof::{Found, Frame, FrameKind, Stop};

/// Where the return address is in a record of the chain, behind the saved frame pointer.
const RETURN_ADDRESS_BYTES: u64 = 8;

/// The recorded part of the stack to unwind.
pub(crate) struct Recorded<'a> {
    /// The chain of frame pointers, innermost frame first.
    pub chain: &'a [Frame],
    /// Why it ends.
    pub stop: Stop,
    /// The frame pointer at its start.
    pub frame_pointer: Option<u64>,
}

/// The rest of a stack whose innermost frames were unwound.
pub(crate) struct Rest {
    /// Why the stack ends.
    pub stop: Stop,
    /// From which frame on the recorded chain has its outer frames; the chain's length if it has none.
    pub from: usize,
    /// How many frames of the chain are known without it, too; its length if none is taken from it.
    pub known: usize,
}

/// What `recorded` has beyond the unwound `frames`, whose `end` is not that of the stack. A frame that both know of is
/// appended.
pub(crate) fn go_on(
    frames: &mut Vec<Frame>,
    end: End,
    recorded: &Recorded<'_>,
    memory: &impl Memory,
) -> Rest {
    let length = recorded.chain.len();
    let alone = |stop| Rest {
        stop,
        from: length,
        known: length,
    };
    if matches!(end.stop, Stop::Complete | Stop::Cycle | Stop::Depth) {
        return alone(end.stop);
    }
    let Some(passed) = passed(frames, end, recorded, memory) else {
        let is_alike = ends_alike(frames, recorded);
        return alone(if is_alike { recorded.stop } else { end.stop });
    };
    let mut from = passed + 1;
    match recorded.chain.get(from) {
        Some(caller) => {
            if end.return_slot.is_some() {
                let found = Found::Cfi;
                frames.push(Frame { found, ..*caller });
                from += 1;
            }
            Rest {
                stop: recorded.stop,
                from,
                known: passed + 1,
            }
        }
        // Both end at the same frame. A chain with only the sample's own frame says nothing of it.
        None if passed > 0 || recorded.stop == Stop::NotWalked => alone(recorded.stop),
        None => alone(end.stop),
    }
}

/// What `recorded` has beyond the frame number `switch`, whose function called with another stack. The frames behind
/// it, to which its rule led, are dropped. The function has no record, so that its caller may be missing. `None` if the
/// chain goes on among the frames behind it: the stack was not left yet.
pub(crate) fn go_on_after_switch(
    frames: &mut Vec<Frame>,
    switch: usize,
    recorded: &Recorded<'_>,
) -> Option<Rest> {
    let chain = recorded.chain;
    let address = frames.get(switch)?.address;
    let behind = &frames[switch + 1..];
    let has = |caller: &Frame| behind.iter().any(|frame| frame.address == caller.address);
    let is_before = chain.get(1).is_some_and(has);
    let from = match chain.iter().position(|frame| frame.address == address) {
        // The sample is in the function itself.
        Some(0) if is_before => return None,
        Some(at) => at + 1,
        None if is_before => return None,
        // What it called has no record, either.
        None => chain.len().min(1),
    };
    frames.truncate(switch + 1);
    Some(Rest {
        stop: recorded.stop,
        from,
        known: from,
    })
}

/// Whether the chain ends by itself at the last of `frames`, which have all of its callers: as in libc's code before
/// `main`, whose frame pointer is a number.
fn ends_alike(frames: &[Frame], recorded: &Recorded<'_>) -> bool {
    let last = |frames: &[Frame]| frames.last().map(|frame| frame.address);
    let mut unwound = frames.iter();
    let has = |caller: &Frame| unwound.any(|frame| frame.address == caller.address);
    recorded.chain.len() > 1
        && recorded.stop != Stop::BadPointer
        && last(frames) == last(recorded.chain)
        && recorded.chain.iter().all(has)
}

/// How many callers of the recorded chain the unwound frames have passed, if the next one is the last frame's caller.
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
    let wanted = match end.return_slot {
        Some(slot) => slot.wrapping_sub(RETURN_ADDRESS_BYTES),
        // A record below the frame belongs to one that was unwound.
        None => end.frame_pointer.filter(|record| *record >= end.floor)?,
    };
    let mut callers = frames.iter().skip(1);
    let mut record = recorded.frame_pointer?;
    let mut passed = 0;
    while record != wanted {
        record = memory.word(record)?;
        passed += 1;
        let caller = chain.get(passed)?;
        callers.find(|frame| frame.address == caller.address)?;
    }
    Some(passed)
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
            floor: SP,
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
        let rest = go_on(&mut frames, end, &recorded, &memory);
        frames.extend_from_slice(&chain[rest.from..]);
        (frames, rest.stop)
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
    fn a_frame_whose_caller_the_chain_does_not_have_ends_the_stack() {
        // Its rule says that the return address of 2 is elsewhere, and the bytes end before it: 3 called another.
        let (frames, stop) = joined(&[1, 2], end(SP + 16, Some(SP + 0x800)), &[1, 3, 4]);
        assert_eq!((addresses(&frames), stop), (vec![1, 2], Stop::Window));
    }

    #[test]
    fn a_chain_that_ends_with_the_unwound_frames_says_why() {
        let elsewhere = end(SP + 16, Some(SP + 0x800));
        let (frames, stop) = joined(&[1, 2, 3, 4], elsewhere, &[1, 3, 4]);
        assert_eq!((frames.len(), stop), (4, Stop::Unsaid));
        // It ends at another frame, or has one that is not there.
        for chain in [&[1, 3][..], &[1, 9, 4], &[1, 3, 4, 5], &[1]] {
            assert_eq!(joined(&[1, 2, 3, 4], elsewhere, chain).1, Stop::Window);
        }
    }

    /// Go's rules don't say that functions save the frame pointer: it seems to stay the sample's.
    #[test]
    fn a_frame_pointer_that_no_rule_restores_proves_nothing() {
        let go = |unwound: &[u64], return_slot, floor| {
            let stale = End {
                floor,
                ..end(SP + 16, return_slot)
            };
            let (frames, stop) = joined(unwound, stale, &[1, 3, 4, 5, 6]);
            (addresses(&frames), stop)
        };
        let slot = Some(SP + 0x908);
        let whole = (vec![1, 2, 3, 4, 5, 6], Stop::Unsaid);
        assert_eq!(go(&[1, 2, 3, 4], slot, SP + 48), whole);
        let cut = (vec![1, 2, 3, 4], Stop::Window);
        assert_eq!(go(&[1, 2, 3, 4], Some(SP + 0x910), SP + 48), cut);
        assert_eq!(go(&[1, 2, 3, 4], None, SP + 48), cut);
        // The place fits, but not all of the chain's callers were unwound.
        let other = (vec![1, 2, 9, 4], Stop::Window);
        assert_eq!(go(&[1, 2, 9, 4], slot, SP + 48), other);
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
        // An address says nothing of the place.
        let unknown = End {
            frame_pointer: None,
            ..end(0, None)
        };
        let (frames, _) = joined(&[1, 2, 3], unknown, &[1, 3, 4]);
        assert_eq!(addresses(&frames), [1, 2, 3]);
    }

    /// 3 called with another stack. Its rule led to 7, which has nothing to do with it.
    #[test]
    fn behind_a_switch_of_stacks_the_chain_goes_on() {
        let joined = |unwound: &[u64], chain: &[u64]| {
            let mut frames = returns(unwound, Found::Cfi);
            let chain = returns(chain, Found::FramePointer);
            let recorded = Recorded {
                chain: &chain,
                stop: Stop::Unsaid,
                frame_pointer: Some(SP + 16),
            };
            let rest = go_on_after_switch(&mut frames, 2, &recorded)?;
            frames.extend_from_slice(&chain[rest.from..]);
            Some(addresses(&frames))
        };
        let whole = Some(vec![1, 2, 3, 5, 6]);
        assert_eq!(joined(&[1, 2, 3, 7], &[1, 2, 3, 5, 6]), whole);
        assert_eq!(joined(&[1, 2, 3], &[1, 3, 5, 6]), whole);
        // The function that it called has no frame, so that the chain doesn't have 3.
        assert_eq!(joined(&[1, 2, 3, 7], &[1, 5, 6]), whole);
        assert_eq!(joined(&[1, 2, 3], &[]), Some(vec![1, 2, 3]));
        // It called 2 before it changed stacks.
        assert_eq!(joined(&[1, 2, 3, 4, 5], &[1, 5]), None);
    }

    /// 1 itself was interrupted, and changes stacks.
    #[test]
    fn of_an_interrupted_switch_the_chain_counts_once_its_rule_is_wrong() {
        let from = |unwound: &[u64]| {
            let chain = returns(&[1, 3, 4], Found::FramePointer);
            let recorded = Recorded {
                chain: &chain,
                stop: Stop::Unsaid,
                frame_pointer: Some(SP + 16),
            };
            let mut frames = returns(unwound, Found::Cfi);
            let rest = go_on_after_switch(&mut frames, 0, &recorded)?;
            Some((addresses(&frames), rest.from))
        };
        assert_eq!(from(&[1, 2, 3, 4]), None);
        assert_eq!(from(&[1, 7]), Some((vec![1], 1)));
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
        let mut frames = returns(&[1, 7, 8, 7, 8], Found::Cfi);
        let rest = go_on(&mut frames, end(SP + 0x900, None), &recorded, &memory);
        assert_eq!((frames.len(), rest.from, rest.stop), (5, 4, Stop::Window));
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
