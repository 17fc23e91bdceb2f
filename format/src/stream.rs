//! Reads a recording from a pipe, with memory for one block.

use crate::error::OpenError;
use crate::layout::Preamble;
use crate::scan::{Item, Scanner, Step, check_preamble};
use std::io::Read;

const PIECE_BYTES: usize = 64 << 10;

/// Reads blocks as they come.
pub struct StreamReader<R: Read> {
    input: R,
    window: Vec<u8>,
    /// Offset in the stream of the window's first byte.
    base: u64,
    ended: bool,
    uuid: Option<[u8; 16]>,
    scanner: Scanner,
}

impl<R: Read> StreamReader<R> {
    /// Reads the preamble.
    ///
    /// # Errors
    /// That the stream is empty, isn't a recording, or is of a newer version. A damaged preamble is
    /// reported as the first damage.
    pub fn open(input: R) -> Result<Self, OpenError> {
        let mut reader = StreamReader {
            input,
            window: Vec::new(),
            base: 0,
            ended: false,
            uuid: None,
            scanner: Scanner::at(0),
        };
        reader
            .fill(Preamble::BYTES)
            .map_err(|error| OpenError::Read(error.to_string()))?;
        if let Some(preamble) = check_preamble(&reader.window)? {
            reader.uuid = Some(preamble.uuid);
            reader.scanner = Scanner::at(Preamble::BYTES);
        }
        Ok(reader)
    }

    /// Identity of the recording; `None` where the preamble is damaged.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// The next block or damage; `None` at the end of the stream.
    ///
    /// # Errors
    /// What the input returns.
    pub fn next_item(&mut self) -> std::io::Result<Option<Item<'static>>> {
        loop {
            let needed = match self.scanner.step(&self.window, self.base, self.ended) {
                Step::Item(Item::Block(block)) => return Ok(Some(Item::Block(block.into_owned()))),
                Step::Item(Item::Damage(damage)) => return Ok(Some(Item::Damage(damage))),
                Step::End => return Ok(None),
                Step::NeedMore(needed) => needed,
            };
            self.forget();
            self.fill(needed)?;
        }
    }

    /// Drops what the scanner has passed.
    fn forget(&mut self) {
        let passed = usize::try_from(self.scanner.offset() - self.base).unwrap_or(usize::MAX);
        let passed = passed.min(self.window.len());
        self.window.drain(..passed);
        self.base += passed as u64;
    }

    /// Reads until the window has `needed` bytes or the stream ends. A length that a header claims
    /// is only read up to, never allocated at once.
    fn fill(&mut self, needed: usize) -> std::io::Result<()> {
        while self.window.len() < needed && !self.ended {
            let missing = (needed - self.window.len()).clamp(1, PIECE_BYTES) as u64;
            let read = self
                .input
                .by_ref()
                .take(missing)
                .read_to_end(&mut self.window)?;
            self.ended = (read as u64) < missing;
        }
        Ok(())
    }
}

impl<R: Read> Iterator for StreamReader<R> {
    type Item = Result<Item<'static>, std::io::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}
