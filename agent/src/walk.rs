//! Follows a chain of frame pointers through memory that the guest declares readable.
//!
//! Input: a frame pointer. Output: return addresses, and why the chain ends. Values read are not trusted: depth is
//! bounded, and addresses must rise, except for one step down from an interrupt's stack to a thread's.

/// Memory that may be read in an interrupt.
pub trait Memory {
    /// The word at `address`, a multiple of 8; `None` outside of stacks. Must not fault for any address.
    fn word(&self, address: u64) -> Option<u64>;
}

/// The reason why a chain ends (docs/agent-protocol.md, section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Complete = 0,
    NotWalked = 1,
    Depth = 2,
    Cycle = 5,
    BadPointer = 6,
}

/// Passes up to `most` return addresses of the chain at `frame_pointer` to `take`. Returns `None` if `take` returned
/// `false`, which ends the walk.
pub(crate) fn chain(
    memory: &impl Memory,
    frame_pointer: u64,
    most: u64,
    mut take: impl FnMut(u64) -> bool,
) -> Option<Stop> {
    let (mut at, mut has_turned) = (frame_pointer, false);
    for count in 0.. {
        if at == 0 {
            return Some(Stop::Complete);
        }
        if !at.is_multiple_of(8) {
            return Some(Stop::BadPointer);
        }
        let words = memory.word(at).zip(memory.word(at.wrapping_add(8)));
        let Some((next, caller)) = words else {
            return Some(Stop::BadPointer);
        };
        if caller == 0 {
            return Some(Stop::Complete);
        }
        if count == most {
            return Some(Stop::Depth);
        }
        if !take(caller) {
            return None;
        }
        if next != 0 && next <= at {
            if has_turned {
                return Some(Stop::Cycle);
            }
            has_turned = true;
        }
        at = next;
    }
    Some(Stop::Depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1000;

    struct Words<'a>(&'a [u64]);

    impl Memory for Words<'_> {
        fn word(&self, address: u64) -> Option<u64> {
            let offset = address.checked_sub(BASE)?;
            self.0.get((offset / 8) as usize).copied()
        }
    }

    fn walk(words: &[u64], start: u64, most: u64) -> (Vec<u64>, Stop) {
        let mut found = Vec::new();
        let take = |caller| {
            found.push(caller);
            true
        };
        let stop = chain(&Words(words), start, most, take).unwrap();
        (found, stop)
    }

    #[test]
    fn each_end_has_its_reason() {
        let words = [BASE + 16, 0x200, 0, 0x300];
        assert_eq!(walk(&words, BASE, 64), (vec![0x200, 0x300], Stop::Complete));
        assert_eq!(walk(&words, BASE, 2), (vec![0x200, 0x300], Stop::Complete));
        assert_eq!(walk(&words, BASE, 1), (vec![0x200], Stop::Depth));
        assert_eq!(
            walk(&[BASE + 16, 0x200, BASE, 0], BASE, 64),
            (vec![0x200], Stop::Complete)
        );
        let circle = [BASE + 16, 0x200, BASE, 0x300];
        assert_eq!(walk(&circle, BASE, 64).1, Stop::Cycle);
        assert_eq!(walk(&[BASE, 0x200], BASE, 64).1, Stop::Cycle);
        for wild in [3, 0xdead_0000, u64::MAX - 7, 8] {
            assert_eq!(
                walk(&[wild, 0x200], BASE, 64),
                (vec![0x200], Stop::BadPointer),
                "{wild:#x}"
            );
            assert_eq!(walk(&[], wild, 64).1, Stop::BadPointer);
        }
        assert_eq!(chain(&Words(&words), BASE, 64, |_| false), None);
    }

    #[test]
    fn a_chain_may_lead_from_one_stack_to_a_lower_one() {
        // The interrupt's stack is above the thread's.
        let words = [0, 0x300, BASE, 0x200];
        assert_eq!(
            walk(&words, BASE + 16, 64),
            (vec![0x200, 0x300], Stop::Complete)
        );
    }
}
