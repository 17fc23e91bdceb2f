//! Access to a recording's bytes. Blocks are read when needed rather than mapped, so that memory doesn't grow
//! with the file. If the file is truncated meanwhile, that is an error, not a crash.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Owned(Vec<u8>),
}

impl Source {
    /// A reader of all bytes, from the start.
    pub(crate) fn reader(&self) -> Box<dyn Read + '_> {
        match self {
            Source::File(file) => Box::new(FromStart { file, offset: 0 }),
            Source::Owned(bytes) => Box::new(&bytes[..]),
        }
    }

    /// Reads `length_bytes` at `offset`.
    pub(crate) fn read(&self, offset: u64, length_bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Source::File(file) => {
                let mut bytes = vec![0; length_bytes];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes.into())
            }
            Source::Owned(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(start..).unwrap_or(&[]);
                let there = rest.get(..length_bytes);
                Ok(there.ok_or(io::ErrorKind::UnexpectedEof)?.into())
            }
        }
    }

    /// Length of the recording (bytes).
    pub(crate) fn length(&self) -> u64 {
        match self {
            Source::File(file) => file.metadata().map_or(0, |found| found.len()),
            Source::Owned(bytes) => bytes.len() as u64,
        }
    }
}

/// Reads a file at an offset, independently of other threads.
struct FromStart<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
