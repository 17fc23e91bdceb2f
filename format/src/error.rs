//! Errors in recordings, with their position.

use crate::layout::{MAGIC, MAJOR};
use std::fmt;

/// The reason why a recording can't be opened at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The file is empty.
    #[error(
        "the recording is empty (0 bytes): the recorder stopped before it wrote anything; \
         record again"
    )]
    Empty,
    /// Shorter than a preamble and a block header.
    #[error(
        "the recording ends after {bytes} bytes, inside its preamble: nothing can be \
         saved from it; record or copy it again"
    )]
    TooShort {
        /// Number of bytes in the file.
        bytes: usize,
    },
    /// Neither the magic nor any block was found.
    #[error(
        "not a .uprof recording: byte 0 is not the magic {} and no block was found; \
         for other formats see `uniprof import --help`",
        MAGIC.escape_ascii()
    )]
    NotARecording,
    /// Carriage returns or high bits are gone.
    #[error(
        "the recording was changed by a transfer in text mode (line ends or high bits are not what \
         they were): nothing can be saved from it; copy it again in binary mode"
    )]
    TextTransfer,
    /// The file starts well, but no block of it is sound.
    #[error(
        "the recording has a preamble but no sound block in {bytes} bytes: it is damaged \
         or was cut right after its start; record or copy it again"
    )]
    NothingSound {
        /// Number of bytes in the file.
        bytes: u64,
    },
    /// The file is from a newer program.
    #[error(
        "the recording has format version {major}.{minor}, this program reads {MAJOR}.x: \
         use a newer uniprof"
    )]
    NewerMajor {
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// Reading failed.
    #[error("cannot read the recording: {0}")]
    Read(String),
}

/// The position of a block in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Offset of the block in the file.
    pub offset: u64,
    /// Sequence number of the block.
    pub sequence: u32,
    /// Name of the block type.
    pub block: &'static str,
}

impl BlockPlace {
    /// An error in this block.
    pub fn error(self, what: Fault) -> DecodeError {
        DecodeError { place: self, what }
    }
}

impl fmt::Display for BlockPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockPlace {
            offset,
            sequence,
            block,
        } = self;
        write!(f, "block {sequence} ({block}) at byte {offset}")
    }
}

/// A parse error in a payload, with its position.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
#[error("{place}: {what}")]
#[non_exhaustive]
pub struct DecodeError {
    /// The block with the error.
    pub place: BlockPlace,
    /// The error.
    pub what: Fault,
}

/// A parse error inside a payload.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// A column or record ends too early.
    #[error("{0} ends too early")]
    Short(&'static str),
    /// A text is not valid.
    #[error("a text is not UTF-8")]
    Text,
    /// A value is outside what the specification allows.
    #[error("{what} is {value}, which is not allowed ({rule})")]
    Range {
        /// Name of the value.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A critical column or codec that is unknown to this version.
    #[error("{what} number {number} is not known to this version: use a newer uniprof")]
    Unknown {
        /// The object that the number identifies.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// zstd refused.
    #[error("zstd: {0}")]
    Zstd(String),
    /// bincode refused.
    #[error("record: {0}")]
    Record(String),
    /// An error in a section of an image (format-spec.md, section 7).
    #[error("section {section}, byte {at}: {what}")]
    Section {
        /// Name of the section.
        section: &'static str,
        /// Byte of the section at which the wrong value begins.
        at: usize,
        /// The error.
        what: Box<Fault>,
    },
}

impl Fault {
    pub(crate) fn unknown(what: &'static str, number: impl Into<u64>) -> Fault {
        let number = number.into();
        Fault::Unknown { what, number }
    }

    /// Refuses a number that exceeds the limit of a block, which `rule` states.
    pub(crate) fn if_above(
        most: usize,
        what: &'static str,
        count: usize,
        rule: &'static str,
    ) -> Result<(), Fault> {
        if count <= most {
            Ok(())
        } else {
            Err(Fault::Range {
                what,
                value: count as u64,
                rule,
            })
        }
    }
}
