//! Reads a recording from a pipe, with memory for one block.

use crate::block::Block;
use crate::error::OpenError;
use crate::layout::Preamble;
use crate::scanner::{Item, Scanner, Step, check_preamble};
use std::io::{self, ErrorKind, Read};

const PIECE_BYTES: usize = 64 << 10;
/// Number of bytes that are searched for a block without a sound preamble, since a pipe of other data may never end.
const SEARCH_BYTES: u64 = 64 << 20;

/// Reads blocks as they come.
pub struct StreamReader<R: Read> {
    input: R,
    window: Vec<u8>,
    /// Offset in the stream of the window's first byte.
    base: u64,
    ended: bool,
    preamble: Option<Preamble>,
    scanner: Scanner,
    /// The item found when the stream was opened.
    first: Option<Item<'static>>,
}

impl<R: Read> StreamReader<R> {
    /// Opens a recording and reads its first block, which a recorder writes at once.
    ///
    /// # Errors
    /// The stream is empty, isn't a recording, has no sound block, is of a newer version, or can't be read. A damaged
    /// preamble followed by blocks is reported as the first damage.
    pub fn open(input: R) -> Result<Self, OpenError> {
        StreamReader::search(input, SEARCH_BYTES)
    }

    /// As [`StreamReader::open`], of an input that ends, as a file does: it is searched for a block to its end.
    ///
    /// # Errors
    /// As for [`StreamReader::open`].
    pub fn open_to_end(input: R) -> Result<Self, OpenError> {
        StreamReader::search(input, u64::MAX)
    }

    fn search(input: R, most_bytes: u64) -> Result<Self, OpenError> {
        let mut reader = StreamReader {
            input,
            window: Vec::new(),
            base: 0,
            ended: false,
            preamble: None,
            scanner: Scanner::at(0),
            first: None,
        };
        let failed = |error: io::Error| OpenError::Read(error.to_string());
        reader.fill(Preamble::BYTES).map_err(failed)?;
        reader.preamble = check_preamble(&reader.window)?;
        if reader.preamble.is_some() {
            reader.scanner = Scanner::at(Preamble::BYTES);
        }
        let first = loop {
            match reader.advance().map_err(failed)? {
                Advance::Item(item) => break Some(item),
                Advance::End => break None,
                Advance::Read if reader.is_hopeless(most_bytes) => break None,
                Advance::Read => {}
            }
        };
        match (reader.scanner.has_found_a_block(), reader.preamble) {
            (true, _) => {
                reader.first = first;
                Ok(reader)
            }
            (false, Some(_)) => Err(OpenError::NothingSound {
                bytes: reader.scanner.offset(),
            }),
            (false, None) => Err(OpenError::NotARecording),
        }
    }

    fn is_hopeless(&self, most_bytes: u64) -> bool {
        self.preamble.is_none() && self.scanner.offset() > most_bytes
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

    /// The next block or damage; `None` at the end of the stream.
    ///
    /// # Errors
    /// Those of the input.
    pub fn next_item(&mut self) -> io::Result<Option<Item<'static>>> {
        if let Some(item) = self.first.take() {
            return Ok(Some(item));
        }
        loop {
            match self.advance()? {
                Advance::Item(item) => return Ok(Some(item)),
                Advance::End => return Ok(None),
                Advance::Read => {}
            }
        }
    }

    /// Makes one step of the scanner, or one read that it needs.
    fn advance(&mut self) -> io::Result<Advance> {
        let needed = match self.scanner.step(&self.window, self.base, self.ended) {
            Step::Item(Item::Block(block)) => {
                let (block, stored_bytes) = block.without_payload();
                return Ok(Advance::Item(Item::Block(self.take(block, stored_bytes))));
            }
            Step::Item(Item::Damage(damage)) => return Ok(Advance::Item(Item::Damage(damage))),
            Step::End => return Ok(Advance::End),
            Step::NeedMore(needed) => needed,
        };
        self.forget();
        self.fill(needed)?;
        Ok(Advance::Read)
    }

    /// Moves the payload of a scanned block out of the window. A large one takes the window's memory, so that it is
    /// never in memory twice.
    fn take(&mut self, block: Block<'static>, stored_bytes: usize) -> Block<'static> {
        let passed = usize::try_from(self.scanner.offset() - self.base).unwrap_or(usize::MAX);
        let end = passed.min(self.window.len());
        let start = end.saturating_sub(stored_bytes);
        if stored_bytes < PIECE_BYTES {
            return block.with_payload(self.window[start..end].to_vec());
        }
        let rest = self.window.split_off(end);
        let mut stored = std::mem::replace(&mut self.window, rest);
        stored.drain(..start);
        self.base += passed as u64;
        block.with_payload(stored)
    }

    /// Drops the bytes that were scanned.
    fn forget(&mut self) {
        let passed = usize::try_from(self.scanner.offset() - self.base).unwrap_or(usize::MAX);
        let passed = passed.min(self.window.len());
        self.window.drain(..passed);
        self.base += passed as u64;
    }

    /// Reads until the window has `needed` bytes or the stream ends. Memory grows with the bytes received, not with the
    /// length in a header. No more than `needed` is requested, as further bytes may take a second to arrive.
    fn fill(&mut self, needed: usize) -> io::Result<()> {
        while self.window.len() < needed && !self.ended {
            let have = self.window.len();
            let step = (needed - have).min(have.max(PIECE_BYTES));
            self.window.reserve_exact(step);
            self.window.resize(have + step, 0);
            let read = self.input.read(&mut self.window[have..]);
            self.window
                .truncate(have + read.as_ref().map_or(0, |read| *read.min(&step)));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The result of [`StreamReader::advance`].
enum Advance {
    Item(Item<'static>),
    End,
    Read,
}

impl<R: Read> Iterator for StreamReader<R> {
    type Item = Result<Item<'static>, io::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}
