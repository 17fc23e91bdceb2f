//! Raw stack bytes. Each sample is encoded as the changes of its task's stack memory (format-spec.md, section 5.4).
//!
//! Most of a stack stays the same between two samples of a task: a few words change, often by little, and the stack
//! pointer moves.

use crate::error::Fault;
use crate::layout::{MAX_BLOCK_STACK_BYTES, MAX_STACK_BYTES};
use crate::samples::numbers::NumberBuilder;
use crate::samples::sample::RawStack;
use crate::samples::stack_memory::StackMemory;
use crate::varint::{self, Cursor};

const WORD: usize = 8;

/// The memory of a task; rows name their tasks by number, which the table of tasks bounds.
fn of_task(memories: &mut Vec<StackMemory>, task: usize) -> &mut StackMemory {
    if memories.len() <= task {
        memories.resize_with(task + 1, StackMemory::default);
    }
    &mut memories[task]
}

/// Builds the five raw stack columns of one block.
#[derive(Default)]
pub(crate) struct RawStackBuilder {
    /// Memories by task number.
    memories: Vec<StackMemory>,
    whole_bytes: usize,
    addresses: Vec<u8>,
    lengths: NumberBuilder,
    runs: Vec<u8>,
    words: Vec<u8>,
    bytes: Vec<u8>,
}

impl RawStackBuilder {
    /// Removes everything but the tasks' buffers.
    pub fn clear(&mut self) {
        self.memories.iter_mut().for_each(StackMemory::clear);
        self.whole_bytes = 0;
        self.addresses.clear();
        self.lengths.clear();
        self.runs.clear();
        self.words.clear();
        self.bytes.clear();
    }

    /// The columns: addresses, lengths, runs, words, bytes.
    pub fn columns(&self) -> [&[u8]; 5] {
        [
            &self.addresses,
            self.lengths.column(),
            &self.runs,
            &self.words,
            &self.bytes,
        ]
    }

    /// Bytes gathered so far.
    pub fn len(&self) -> usize {
        self.runs.len() + self.words.len() + self.bytes.len()
    }

    /// Bytes of all stacks so far, known parts included.
    pub fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Adds the stack of a row of the task with this number. The length column holds length + 1, or 0 for a row without
    /// a stack.
    pub fn push(&mut self, task: u32, stack: Option<RawStack<'_>>) {
        let Some(stack) = stack else {
            self.lengths.push(0);
            return;
        };
        let kept = &stack.bytes[..stack.bytes.len().min(MAX_STACK_BYTES)];
        self.whole_bytes += kept.len();
        let memory = of_task(&mut self.memories, task as usize);
        self.lengths.push(kept.len() as u64 + 1);
        varint::put_delta(&mut self.addresses, memory.last_address, stack.address);
        memory.last_address = stack.address;
        let Some(overlap) = memory.overlap(stack.address, kept.len()) else {
            self.bytes.extend_from_slice(kept);
            memory.replace(stack.address, kept);
            return;
        };
        let (below, rest) = kept.split_at(overlap.below);
        let (both, above) = rest.split_at(overlap.both);
        self.bytes.extend_from_slice(below);
        put_words(&mut self.runs, &mut self.words, memory.both(overlap), both);
        // Bytes behind the last whole word are stored as they are.
        self.bytes
            .extend_from_slice(&both[both.len() / WORD * WORD..]);
        self.bytes.extend_from_slice(above);
        memory.both_mut(overlap).copy_from_slice(both);
        memory.extend(overlap, below, above);
    }
}

/// Encodes the whole words of `new`: how many stay the same, how many change, and their differences. `known` has the
/// same length.
fn put_words(runs: &mut Vec<u8>, words: &mut Vec<u8>, known: &[u8], new: &[u8]) {
    let (known, _) = known.as_chunks::<WORD>();
    let (new, _) = new.as_chunks::<WORD>();
    let mut rest = known.iter().zip(new);
    while rest.len() > 0 {
        let same = rest.clone().take_while(|(known, new)| known == new);
        let same = same.count();
        let changed = rest.clone().skip(same);
        let changed = changed.take_while(|(known, new)| known != new).count();
        varint::put(runs, same as u64);
        varint::put(runs, changed as u64);
        for (known, new) in rest.by_ref().take(same + changed).skip(same) {
            let (known, new) = (u64::from_le_bytes(*known), u64::from_le_bytes(*new));
            varint::put_word(words, known, new);
        }
    }
}

/// Rebuilds raw stacks, row by row.
pub(crate) struct RawStackReader<'a> {
    /// Memories by task number.
    memories: Vec<StackMemory>,
    whole_bytes: usize,
    addresses: Cursor<'a>,
    lengths: Cursor<'a>,
    runs: Cursor<'a>,
    words: Cursor<'a>,
    bytes: Cursor<'a>,
}

impl<'a> RawStackReader<'a> {
    pub fn new(columns: [Cursor<'a>; 5]) -> Self {
        let [addresses, lengths, runs, words, bytes] = columns;
        RawStackReader {
            memories: Vec::new(),
            whole_bytes: 0,
            addresses,
            lengths,
            runs,
            words,
            bytes,
        }
    }

    /// The stack of the next row, which belongs to the task with this number.
    pub fn row(&mut self, task: usize) -> Result<Option<RawStack<'_>>, Fault> {
        let length = self
            .lengths
            .varint_up_to(MAX_STACK_BYTES + 1, "at most 256 KiB of stack")?;
        let Some(length) = length.checked_sub(1) else {
            return Ok(None);
        };
        // Repeated bytes cost almost nothing in the file, so the expanded size needs a limit of its own.
        self.whole_bytes += length;
        if self.whole_bytes > MAX_BLOCK_STACK_BYTES {
            return Err(Fault::Range {
                what: "raw stack bytes",
                value: self.whole_bytes as u64,
                rule: "at most 64 MiB in a block",
            });
        }
        let memory = of_task(&mut self.memories, task);
        let address = self.addresses.delta(memory.last_address)?;
        memory.last_address = address;
        let Some(overlap) = memory.overlap(address, length) else {
            let bytes = self.bytes.take(length)?;
            memory.replace(address, bytes);
            return Ok(Some(RawStack { address, bytes }));
        };
        let below = self.bytes.take(overlap.below)?;
        let both = memory.both_mut(overlap);
        read_words(&mut self.runs, &mut self.words, both)?;
        let tail = both.len() / WORD * WORD;
        let tail = &mut both[tail..];
        tail.copy_from_slice(self.bytes.take(tail.len())?);
        let above = self.bytes.take(length - overlap.below - overlap.both)?;
        let bytes = memory.extend(overlap, below, above);
        Ok(Some(RawStack { address, bytes }))
    }
}

/// Applies the changes to the whole words of `both`.
fn read_words(runs: &mut Cursor<'_>, words: &mut Cursor<'_>, both: &mut [u8]) -> Result<(), Fault> {
    let (mut rest, _) = both.as_chunks_mut::<WORD>();
    while !rest.is_empty() {
        const RULE: &str = "a run ends with its stack";
        let same = runs.varint_up_to(rest.len(), RULE)?;
        let changed = runs.varint_up_to(rest.len() - same, RULE)?;
        if same + changed == 0 {
            return Err(Fault::Range {
                what: "stack run",
                value: 0,
                rule: "a pair of runs covers at least a word",
            });
        }
        let (head, tail) = rest.split_at_mut(same + changed);
        for word in &mut head[same..] {
            *word = words.word(u64::from_le_bytes(*word))?.to_le_bytes();
        }
        rest = tail;
    }
    Ok(())
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
            let columns = builder.columns();
            let is_there = rows.iter().any(|row| row.3);
            prop_assert_eq!(is_there, !columns[1].is_empty());
            let mut reader = RawStackReader::new(columns.map(|bytes| Cursor::new(bytes, "test")));
            for row in rows.iter().filter(|_| is_there) {
                let read = reader.row(row.0 as usize).unwrap();
                prop_assert_eq!(read.map(|s| (s.address, s.bytes.to_vec())), stack(row));
            }
        }

        #[test]
        fn any_columns_end_in_a_row_or_an_error(columns: [Vec<u8>; 5]) {
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
        let [_, _, runs, words, bytes] = builder.columns();
        assert_eq!(bytes.len(), 8192);
        // All 1,024 words stay the same.
        assert_eq!((runs, words), (&[0x80, 8, 0][..], &[][..]));
    }

    #[test]
    fn a_stack_pointer_that_goes_down_again_finds_what_was_there() {
        let mut builder = RawStackBuilder::default();
        let bytes: Vec<u8> = (0..=255).collect();
        for skip in [0, 64, 0] {
            let stack = RawStack {
                address: 0x7fff_0000 + skip as u64,
                bytes: &bytes[skip..],
            };
            builder.push(1, Some(stack));
        }
        let [_, _, runs, words, bytes] = builder.columns();
        assert_eq!((bytes.len(), words.len()), (256, 0));
        assert_eq!(runs, [24, 0, 32, 0]);
    }
}
