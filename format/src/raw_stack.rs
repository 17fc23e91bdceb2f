//! Raw stack bytes, each sample told as what changed since the task's sample before
//! (format-spec.md, section 5.4).
//!
//! Most of a stack stays as it was between two samples of a task: only the part near the stack
//! pointer moves. Bytes at the same address with the same value are runs, the others literals.

use crate::error::Fault;
use crate::layout::{MAX_BLOCK_STACK_BYTES, MAX_STACK_BYTES};
use crate::sample::RawStack;
use crate::varint::{self, Cursor};

const WORD: usize = 8;

/// The stack bytes that a task had last.
#[derive(Debug, Default)]
struct Before {
    address: u64,
    bytes: Vec<u8>,
}

impl Before {
    /// The bytes known from `address` on.
    fn from(&self, address: u64) -> &[u8] {
        let skip = usize::try_from(address.wrapping_sub(self.address)).unwrap_or(usize::MAX);
        self.bytes.get(skip..).unwrap_or(&[])
    }

    fn replace(&mut self, address: u64, bytes: &[u8]) {
        self.address = address;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }
}

/// The entry of a task; rows name their tasks by number, which the table of tasks bounds.
fn of_task(before: &mut Vec<Before>, task: usize) -> &mut Before {
    if before.len() <= task {
        before.resize_with(task + 1, Before::default);
    }
    &mut before[task]
}

/// Builds the four raw stack columns of one block.
#[derive(Default)]
pub(crate) struct RawStackBuilder {
    /// By task number.
    before: Vec<Before>,
    whole_bytes: usize,
    addresses: Vec<u8>,
    lengths: Vec<u8>,
    runs: Vec<u8>,
    bytes: Vec<u8>,
}

impl RawStackBuilder {
    /// Forgets all but the tasks' buffers.
    pub fn clear(&mut self) {
        self.before
            .iter_mut()
            .for_each(|before| before.replace(0, &[]));
        self.whole_bytes = 0;
        self.addresses.clear();
        self.lengths.clear();
        self.runs.clear();
        self.bytes.clear();
    }

    /// The columns: addresses, lengths, runs, bytes.
    pub fn columns(&self) -> [&[u8]; 4] {
        [&self.addresses, &self.lengths, &self.runs, &self.bytes]
    }

    /// Bytes gathered so far.
    pub fn len(&self) -> usize {
        self.runs.len() + self.bytes.len()
    }

    /// Bytes of all stacks so far, known parts included.
    pub fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Adds the stack of a row of the task with this number. The length column holds length + 1, 0 for a row without a stack.
    pub fn push(&mut self, task: u32, stack: Option<RawStack<'_>>) {
        let Some(stack) = stack else {
            self.lengths.push(0);
            return;
        };
        let kept = &stack.bytes[..stack.bytes.len().min(MAX_STACK_BYTES)];
        self.whole_bytes += kept.len();
        let before = of_task(&mut self.before, task as usize);
        varint::put(&mut self.lengths, kept.len() as u64 + 1);
        varint::put_delta(&mut self.addresses, before.address, stack.address);
        let known = |offset: usize| before.from(stack.address.wrapping_add(offset as u64));
        let mut at = 0;
        while at < kept.len() {
            let same = common_words(&kept[at..], known(at));
            let literal = literal_words(&kept[at + same..], known(at + same));
            varint::put(&mut self.runs, same as u64);
            varint::put(&mut self.runs, literal as u64);
            self.bytes
                .extend_from_slice(&kept[at + same..at + same + literal]);
            at += same + literal;
        }
        before.replace(stack.address, kept);
    }
}

/// Length of the common start, in whole words.
fn common_words(new: &[u8], known: &[u8]) -> usize {
    let pairs = new.chunks_exact(WORD).zip(known.chunks_exact(WORD));
    pairs.take_while(|(new, known)| new == known).count() * WORD
}

/// Length of the part that must be written out: up to the next word that is known.
fn literal_words(new: &[u8], known: &[u8]) -> usize {
    let pairs = new.chunks_exact(WORD).zip(known.chunks_exact(WORD));
    let compared = new.len().min(known.len()) / WORD;
    let literal = pairs.take_while(|(new, known)| new != known).count();
    if literal < compared {
        literal * WORD
    } else {
        new.len()
    }
}

/// Rebuilds raw stacks, row by row.
pub(crate) struct RawStackReader<'a> {
    /// By task number.
    before: Vec<Before>,
    whole_bytes: usize,
    addresses: Cursor<'a>,
    lengths: Cursor<'a>,
    runs: Cursor<'a>,
    bytes: Cursor<'a>,
    /// Where the next stack is put together, so that it may copy from the one before.
    next: Vec<u8>,
}

impl<'a> RawStackReader<'a> {
    pub fn new(columns: [Cursor<'a>; 4]) -> Self {
        let [addresses, lengths, runs, bytes] = columns;
        RawStackReader {
            before: Vec::new(),
            whole_bytes: 0,
            addresses,
            lengths,
            runs,
            bytes,
            next: Vec::new(),
        }
    }

    /// The stack of the next row, which is of the task with this number.
    pub fn row(&mut self, task: usize) -> Result<Option<RawStack<'_>>, Fault> {
        let length = self
            .lengths
            .varint_up_to(MAX_STACK_BYTES + 1, "at most 256 KiB of stack")?;
        let Some(length) = length.checked_sub(1) else {
            return Ok(None);
        };
        self.whole_bytes += length;
        if self.whole_bytes > MAX_BLOCK_STACK_BYTES {
            return Err(Fault::Range {
                what: "raw stack bytes",
                value: self.whole_bytes as u64,
                rule: "at most 64 MiB in a block",
            });
        }
        let before = of_task(&mut self.before, task);
        let address = self.addresses.delta(before.address)?;
        self.next.clear();
        while self.next.len() < length {
            let left = length - self.next.len();
            let same = self.runs.varint_up_to(left, "a run ends with its stack")?;
            let known = before.from(address.wrapping_add(self.next.len() as u64));
            let run = known.get(..same).ok_or(Fault::Short("stack before"))?;
            self.next.extend_from_slice(run);
            let literal = self
                .runs
                .varint_up_to(left - same, "a run ends with its stack")?;
            if same + literal == 0 {
                return Err(Fault::Range {
                    what: "stack run",
                    value: 0,
                    rule: "a pair of runs covers at least a byte",
                });
            }
            self.next.extend_from_slice(self.bytes.take(literal)?);
        }
        before.address = address;
        std::mem::swap(&mut before.bytes, &mut self.next);
        Ok(Some(RawStack {
            address,
            bytes: &before.bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stacks_survive(rows in prop::collection::vec(
            (0u32..3, 0u64..64, prop::collection::vec(0u8..3, 0..80), any::<bool>()), 0..40)) {
            let mut builder = RawStackBuilder::default();
            let stack = |row: &'_ (u32, u64, Vec<u8>, bool)| row.3.then(|| (row.1, row.2.clone()));
            for row in &rows {
                let bytes = stack(row);
                builder.push(row.0, bytes.as_ref().map(|(address, bytes)| RawStack {
                    address: *address, bytes }));
            }
            let mut reader = RawStackReader::new(
                builder.columns().map(|bytes| Cursor::new(bytes, "test")));
            for row in &rows {
                let read = reader.row(row.0 as usize).unwrap();
                prop_assert_eq!(read.map(|s| (s.address, s.bytes.to_vec())), stack(row));
            }
        }

        #[test]
        fn any_columns_end_in_a_row_or_an_error(columns: [Vec<u8>; 4]) {
            let cursors = columns.each_ref().map(|bytes| Cursor::new(bytes, "test"));
            let mut reader = RawStackReader::new(cursors);
            while reader.row(0).is_ok() {}
        }
    }

    #[test]
    fn a_stack_like_the_one_before_takes_no_bytes() {
        let mut builder = RawStackBuilder::default();
        let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
        for _ in 0..2 {
            let stack = RawStack {
                address: 0x7fff_0000,
                bytes: &bytes,
            };
            builder.push(1, Some(stack));
        }
        assert_eq!(builder.columns()[3].len(), 8192);
        // First all literal, then all known.
        assert_eq!(builder.columns()[2], [0, 0x80, 64, 0x80, 64, 0]);
    }
}
