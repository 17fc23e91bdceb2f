//! A recording in memory, or mapped from a file.

use crate::block::Block;
use crate::error::OpenError;
use crate::layout::Preamble;
use crate::scanner::{Item, Parsed, Scanner, Step, check_preamble, parse_block};

/// Reads a recording that is in memory.
#[derive(Debug, Clone, Copy)]
pub struct SliceReader<'a> {
    bytes: &'a [u8],
    preamble: Option<Preamble>,
}

impl<'a> SliceReader<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// Says why there is nothing to read. A damaged preamble followed by sound blocks is not an error but the first
    /// [`Item::Damage`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let preamble = check_preamble(bytes)?;
        let recording = SliceReader { bytes, preamble };
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

    /// Identity of the recording; `None` if the preamble is damaged.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.preamble.map(|preamble| preamble.uuid)
    }

    /// Major and minor version of the format; `None` if the preamble is damaged.
    pub fn version(&self) -> Option<(u16, u16)> {
        let version = |preamble: Preamble| (preamble.major.get(), preamble.minor.get());
        self.preamble.map(version)
    }

    /// All blocks and damages, in file order. Payload checksums are verified in the process.
    pub fn blocks(&self) -> Blocks<'a> {
        let start = self.preamble.map_or(0, |_| Preamble::BYTES);
        Blocks {
            bytes: self.bytes,
            scanner: Scanner::at(start),
        }
    }
}

impl<'a> Block<'a> {
    /// The sound block at the start of `bytes`, which are at `offset` of the file.
    pub fn at(offset: u64, bytes: &'a [u8]) -> Option<Self> {
        match parse_block(bytes) {
            Parsed::Block(header, stored) => Some(Block::new(offset, &header, stored)),
            _ => None,
        }
    }
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
