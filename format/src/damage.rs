//! Damaged ranges of a recording, and the samples lost with them (format-spec.md, section 9).

use std::fmt;

/// A range of bytes that is not a sound block, or a position at which blocks are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Offset of the first bad byte's block in the file.
    pub offset: u64,
    /// Bytes skipped.
    pub bytes: u64,
    /// Kind of damage.
    pub kind: DamageKind,
    /// Number of samples lost with it; `None` if the file ends before that is known.
    pub samples: Option<u64>,
    /// Samples announced by sound headers in the range: a lower bound of those lost.
    pub samples_at_least: u64,
    /// The time lost with it: from the end of the last sound sample block to the start of the next block.
    pub gap_ns: (Option<u64>, Option<u64>),
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// The preamble's checksum or magic is wrong.
    Preamble,
    /// There is no block header with the right checksum where one should be.
    Header,
    /// A sound header, but the payload's checksum is wrong.
    Payload,
    /// The file ends inside a block.
    Truncated,
    /// Sequence numbers jump: whole blocks are missing.
    Missing,
    /// The block came before, or belongs to another recording.
    Repeated,
    /// The file ends well, but has no end record.
    Unfinished,
}

impl DamageKind {
    /// The name used in format-spec.md, section 10.
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Preamble => "preamble",
            DamageKind::Header => "header",
            DamageKind::Payload => "payload",
            DamageKind::Truncated => "truncated",
            DamageKind::Missing => "missing",
            DamageKind::Repeated => "repeated",
            DamageKind::Unfinished => "unfinished",
        }
    }
}

impl Damage {
    /// How long the recording may lack samples, in nanoseconds, if both ends are known.
    pub fn gap_length_ns(&self) -> Option<u64> {
        match self.gap_ns {
            (Some(from_ns), Some(to_ns)) => to_ns.checked_sub(from_ns),
            _ => None,
        }
    }

    fn describe_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { offset, bytes, .. } = self;
        match self.kind {
            DamageKind::Preamble => {
                write!(f, "the preamble (bytes 0 to 31) is damaged")?;
                match *bytes {
                    0..=32 => Ok(()),
                    bytes => write!(f, ": {bytes} bytes skipped"),
                }
            }
            DamageKind::Header => {
                write!(f, "no block header at byte {offset}: {bytes} bytes skipped")
            }
            DamageKind::Payload => write!(
                f,
                "the block at byte {offset} is damaged: {bytes} bytes skipped"
            ),
            DamageKind::Truncated => write!(
                f,
                "the recording ends inside the block at byte {offset} ({bytes} bytes of it are \
                 there)"
            ),
            DamageKind::Missing => write!(f, "blocks are missing before byte {offset}"),
            DamageKind::Repeated => write!(
                f,
                "the {bytes} bytes at byte {offset} came before or belong to another recording: \
                 skipped"
            ),
            DamageKind::Unfinished => write!(
                f,
                "the recording stops at byte {offset} without an end record: the recorder was \
                 killed, or the file was cut between two blocks"
            ),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe_place(f)?;
        match (self.samples, self.samples_at_least) {
            (Some(0), _) => write!(f, "; no sample lost")?,
            (Some(1), _) => write!(f, "; 1 sample lost")?,
            (Some(samples), _) => write!(f, "; {samples} samples lost")?,
            (None, 0) => write!(f, "; the number of lost samples is not known")?,
            (None, 1) => write!(f, "; at least 1 sample lost")?,
            (None, least) => write!(f, "; at least {least} samples lost")?,
        }
        if self.samples.unwrap_or(self.samples_at_least) == 0 {
            return Ok(());
        }
        match (self.gap_length_ns(), self.gap_ns.0) {
            (Some(length_ns), _) => {
                let seconds = length_ns as f64 / 1e9;
                write!(f, " within {seconds:.3} s")
            }
            (None, Some(_)) if self.gap_ns.1.is_none() => write!(f, " from there on"),
            _ => Ok(()),
        }
    }
}
