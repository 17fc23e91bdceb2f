//! The part of one task's stack memory that a block has encoded so far (format-spec.md, section 5.4).
//!
//! Writer and reader keep the same memory: the bytes between a lowest and a highest guest address, each with the value
//! of the last row. It stays known when the stack pointer goes up and down again.

use crate::layout::MAX_STACK_BYTES;

/// Room kept below the lowest byte, so that a stack that grows down does not move the known bytes each time.
const MOST_SLACK_BYTES: usize = 4 << 10;

/// The stack memory of one task.
#[derive(Debug, Default)]
pub(crate) struct StackMemory {
    /// Guest address of the lowest known byte.
    lowest: u64,
    /// Unused room, then the known bytes upwards.
    bytes: Vec<u8>,
    slack: usize,
    /// Address of the stack of the task's last row that had one.
    pub last_address: u64,
}

/// The position of a new stack relative to the known bytes: its bytes are first `below`, then `both`, then others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// Bytes of the new stack below the first known one.
    pub below: usize,
    /// Bytes that both have.
    pub both: usize,
    /// Known bytes below the new stack.
    known_before: usize,
}

impl StackMemory {
    fn known(&self) -> &[u8] {
        &self.bytes[self.slack..]
    }

    /// Removes all bytes, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slack = 0;
        self.lowest = 0;
        self.last_address = 0;
    }

    /// The position of a stack of `length` bytes at `address`; `None` if it has no known byte.
    pub fn overlap(&self, address: u64, length: usize) -> Option<Overlap> {
        // Signed, as the new stack may begin below the known bytes; i128, so that adding a length can't overflow.
        let distance = i128::from(address.wrapping_sub(self.lowest) as i64);
        let start = distance.max(0);
        let end = (distance + length as i128).min(self.known().len() as i128);
        (start < end).then(|| Overlap {
            below: (start - distance) as usize,
            both: (end - start) as usize,
            known_before: start as usize,
        })
    }

    /// The known bytes of an overlap.
    pub fn both(&self, overlap: Overlap) -> &[u8] {
        &self.known()[overlap.known_before..][..overlap.both]
    }

    /// The known bytes of an overlap, to be updated to those of the new stack.
    pub fn both_mut(&mut self, overlap: Overlap) -> &mut [u8] {
        &mut self.bytes[self.slack + overlap.known_before..][..overlap.both]
    }

    /// Replaces the known bytes by the stack at `address`.
    pub fn replace(&mut self, address: u64, stack: &[u8]) {
        self.lowest = address;
        self.slack = 0;
        self.bytes.clear();
        self.bytes.extend_from_slice(stack);
    }

    /// Adds the bytes of the new stack below and above an overlap that is up to date. Returns the whole stack.
    pub fn extend(&mut self, overlap: Overlap, below: &[u8], above: &[u8]) -> &[u8] {
        let length = below.len() + overlap.both + above.len();
        let mut start = overlap.known_before;
        if !below.is_empty() {
            self.prepend(below);
            start = 0;
        }
        self.bytes.extend_from_slice(above);
        if self.known().len() > MAX_STACK_BYTES {
            // Too many bytes to keep, so only the new stack stays.
            let first = self.slack + start;
            self.bytes.truncate(first + length);
            self.bytes.drain(..first);
            self.slack = 0;
            self.lowest = self.lowest.wrapping_add(start as u64);
            start = 0;
        }
        &self.known()[start..][..length]
    }

    fn prepend(&mut self, below: &[u8]) {
        if self.slack < below.len() {
            let slack = self.known().len().min(MOST_SLACK_BYTES);
            let room = slack + below.len();
            self.bytes
                .splice(..self.slack, std::iter::repeat_n(0, room));
            self.slack = room;
        }
        self.slack -= below.len();
        self.bytes[self.slack..][..below.len()].copy_from_slice(below);
        self.lowest = self.lowest.wrapping_sub(below.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Compared with a map from address to byte.
        #[test]
        fn memory_is_what_rows_told_last(rows in prop::collection::vec(
            (0u64..200, prop::collection::vec(any::<u8>(), 1..60)), 1..40)) {
            let mut memory = StackMemory::default();
            let mut told: HashMap<u64, u8> = HashMap::new();
            for (offset, stack) in rows {
                // Around the end of the address space, where it wraps.
                let address = offset.wrapping_sub(100);
                let at = |index: usize| address.wrapping_add(index as u64);
                match memory.overlap(address, stack.len()) {
                    None => {
                        prop_assert!((0..stack.len()).all(|index| !told.contains_key(&at(index))));
                        told.clear();
                        memory.replace(address, &stack);
                    }
                    Some(overlap) => {
                        let end = overlap.below + overlap.both;
                        let known: Vec<u8> = (overlap.below..end).map(|i| told[&at(i)]).collect();
                        prop_assert_eq!(memory.both(overlap), &known);
                        memory.both_mut(overlap).copy_from_slice(&stack[overlap.below..end]);
                        let whole = memory.extend(overlap, &stack[..overlap.below], &stack[end..]);
                        prop_assert_eq!(whole, &stack);
                    }
                }
                told.extend(stack.iter().enumerate().map(|(index, byte)| (at(index), *byte)));
                prop_assert_eq!(memory.known().len(), told.len());
            }
        }
    }

    #[test]
    fn more_than_the_limit_is_not_kept() {
        let mut memory = StackMemory::default();
        memory.replace(1 << 20, &vec![1; MAX_STACK_BYTES]);
        let address = (1 << 20) - 8;
        let overlap = memory.overlap(address, 16).unwrap();
        assert_eq!((overlap.below, overlap.both), (8, 8));
        assert_eq!(memory.extend(overlap, &[2; 8], &[]).len(), 16);
        assert_eq!(
            memory.known(),
            [2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
        );
        assert_eq!(memory.lowest, address);
    }
}
