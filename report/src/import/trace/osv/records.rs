//! Records of a trace file of OSv, read in order, one at a time.

use super::dictionary::Dictionary;
use std::io::{self, BufRead, Read};

/// Bytes of a record's tracepoint, thread and its name, time, CPU and flags.
const HEAD_BYTES: u64 = 48;

/// A record, reduced to what calls need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub tracepoint: u64,
    pub thread: u64,
    pub thread_name: [u8; 16],
    pub time_ns: u64,
    pub cpu: u32,
    /// The first argument, if it is a pointer.
    pub pointer: Option<u64>,
    /// The first argument, if it is a number of 32 bits.
    pub error: Option<i32>,
}

/// The file, read in order.
pub(super) struct Bytes<'i> {
    input: &'i mut dyn BufRead,
    offset: u64,
}

impl<'i> Bytes<'i> {
    pub(super) fn new(input: &'i mut dyn BufRead) -> Self {
        Bytes { input, offset: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `into`; `false` if the file ends first.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut at = 0;
        while at < into.len() {
            let count = self.input.read(&mut into[at..])?;
            if count == 0 {
                break;
            }
            at += count;
        }
        self.offset += at as u64;
        Ok(at == into.len())
    }

    /// Reads up to `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Read::take(&mut *self.input, count).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    /// Skips to `end`; `false` if the file ends first.
    pub(super) fn skip_to(&mut self, end: u64) -> io::Result<bool> {
        while self.offset < end {
            let count = self.input.fill_buf()?.len() as u64;
            if count == 0 {
                return Ok(false);
            }
            let count = count.min(end - self.offset);
            self.input.consume(count as usize);
            self.offset += count;
        }
        Ok(true)
    }

    /// Skips padding to a multiple of eight bytes.
    pub(super) fn align(&mut self) -> io::Result<bool> {
        self.skip_to(self.offset.next_multiple_of(8))
    }

    /// The next record before `end`; `None` after the last one. The error says why it is invalid; the caller
    /// then skips the rest.
    pub(super) fn record(
        &mut self,
        end: u64,
        dictionary: &Dictionary,
    ) -> io::Result<Result<Option<Record>, &'static str>> {
        self.align()?;
        if self.offset >= end {
            return Ok(Ok(None));
        }
        const CUT: &str = "a record that is cut, with which its processor's records end";
        let mut head = [0; HEAD_BYTES as usize];
        if end - self.offset < HEAD_BYTES || !self.fill(&mut head)? {
            return Ok(Err(CUT));
        }
        let u64_at = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let mut record = Record {
            tracepoint: u64_at(0),
            thread: u64_at(8),
            thread_name: [0; 16],
            time_ns: u64_at(32),
            cpu: u64_at(40) as u32,
            pointer: None,
            error: None,
        };
        record.thread_name.copy_from_slice(&head[16..32]);
        // This marks the end of the records in a buffer that wasn't full.
        if record.tracepoint == 0 || record.tracepoint == u64::MAX {
            return Ok(Ok(None));
        }
        let Some(tracepoint) = dictionary.tracepoint(record.tracepoint) else {
            let what = "a record of no known tracepoint, with which its processor's records end";
            return Ok(Err(what));
        };
        let has_backtrace = head[44] & 1 != 0;
        if has_backtrace && !self.skip_to(self.offset + u64::from(dictionary.backtrace) * 8)? {
            return Ok(Err(CUT));
        }
        for (place, letter) in tracepoint.signature.iter().enumerate() {
            let is_whole = match letter {
                b'c' | b'b' | b'B' | b'?' => self.skip_to(self.offset + 1)?,
                b'h' | b'H' => self.aligned::<2>()?.is_some(),
                b'i' | b'I' | b'f' => {
                    let value = self.aligned::<4>()?;
                    if place == 0 {
                        record.error = value.map(i32::from_le_bytes);
                    }
                    value.is_some()
                }
                b'q' | b'Q' | b'd' | b'P' => {
                    let value = self.aligned::<8>()?;
                    if place == 0 {
                        record.pointer = value.map(u64::from_le_bytes);
                    }
                    value.is_some()
                }
                b'p' => self.skip_to(self.offset + 50)?,
                b'*' => match self.aligned::<2>()? {
                    Some(length) => {
                        let length = u64::from(u16::from_le_bytes(length));
                        self.skip_to(self.offset + length)?
                    }
                    None => false,
                },
                _ => {
                    return Ok(Err("an argument of no known type, with which records end"));
                }
            };
            if !is_whole {
                return Ok(Err(CUT));
            }
        }
        if self.offset > end {
            return Ok(Err(CUT));
        }
        Ok(Ok(Some(record)))
    }

    /// A naturally aligned value.
    fn aligned<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        let is_there =
            self.skip_to(self.offset.next_multiple_of(N as u64))? && self.fill(&mut bytes)?;
        Ok(is_there.then_some(bytes))
    }
}
