//! A recording in memory, or mapped from a file.

use crate::block::{Block, Payload};
use crate::error::OpenError;
use crate::index::{self, IndexEntry};
use crate::layout::{BlockType, Preamble};
use crate::scanner::{Item, Parsed, Scanner, Step, check_preamble, parse_block};

/// A recording in memory.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    preamble: Option<Preamble>,
}

impl<'a> Recording<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// That there is nothing to read, told apart by cause. A damaged preamble followed by sound
    /// blocks is no error but the first [`Item::Damage`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let preamble = check_preamble(bytes)?;
        let recording = Recording { bytes, preamble };
        let mut blocks = recording.blocks();
        blocks.next();
        match (blocks.scanner.has_found_a_block(), preamble) {
            (true, _) => Ok(recording),
            (false, Some(_)) => Err(OpenError::NothingSound {
                bytes: bytes.len() as u64,
            }),
            (false, None) => Err(OpenError::NotARecording),
        }
    }

    /// Identity of the recording; `None` where the preamble is damaged.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.preamble.map(|preamble| preamble.uuid)
    }

    /// Major and minor version of the format; `None` where the preamble is damaged.
    pub fn version(&self) -> Option<(u16, u16)> {
        let version = |preamble: Preamble| (preamble.major.get(), preamble.minor.get());
        self.preamble.map(version)
    }

    /// All blocks and damages, in file order. Payloads are checksummed as they are passed.
    pub fn blocks(&self) -> Blocks<'a> {
        let start = self.preamble.map_or(0, |_| Preamble::BYTES);
        Blocks {
            bytes: self.bytes,
            scanner: Scanner::at(start),
        }
    }

    /// The index at the end of the file, if there is a sound one that agrees with itself. It says
    /// where to look first, never what is there: [`Recording::block_at`] checks that.
    pub fn index(&self) -> Option<Vec<IndexEntry>> {
        let block = self.block_at(index::trailer_offset(self.bytes)?)?;
        if block.known_type() != Some(BlockType::Index) {
            return None;
        }
        match block.payload() {
            Ok(Payload::Index(entries)) if agrees(&entries, &block) => Some(entries),
            _ => None,
        }
    }

    /// The sound block whose header is at `offset`.
    pub fn block_at(&self, offset: u64) -> Option<Block<'a>> {
        let at = usize::try_from(offset).ok()?;
        Block::at(offset, self.bytes.get(at..)?)
    }
}

impl<'a> Block<'a> {
    /// The sound block that `bytes` begin with, which were read from `offset` of the file.
    pub fn at(offset: u64, bytes: &'a [u8]) -> Option<Self> {
        match parse_block(bytes) {
            Parsed::Block(header, stored) => Some(Block::new(offset, &header, stored)),
            _ => None,
        }
    }
}

/// Whether entries can be those of the index block `block`.
fn agrees(entries: &[IndexEntry], block: &Block<'_>) -> bool {
    let samples: u64 = entries.iter().map(|entry| u64::from(entry.samples)).sum();
    let ascending = entries.is_sorted_by(|before, after| before.offset < after.offset);
    let inside = entries.last().is_none_or(|last| last.offset < block.offset);
    let complete = entries.len() as u64 == u64::from(block.sequence);
    ascending && inside && complete && samples == block.samples_before
}

/// Iterates over a recording's blocks and damages.
#[derive(Debug, Clone)]
pub struct Blocks<'a> {
    bytes: &'a [u8],
    scanner: Scanner,
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        match self.scanner.step(self.bytes, 0, true) {
            Step::Item(item) => Some(item),
            Step::NeedMore(_) | Step::End => None,
        }
    }
}
