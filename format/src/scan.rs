//! Finds the blocks of a recording, and the damage between them (format-spec.md, section 9).
//!
//! Enters: all bytes of a recording. Leaves: sound blocks in order; each stretch of bytes that is
//! not one is reported once, with what it cost.

use crate::cold;
use crate::cold::{
    ClockPair, ENCODING_BINCODE_2, End, Loss, Metadata, ModuleEvent, Span, TaskEvent,
};
use crate::error::{DecodeError, Fault, OpenError};
use crate::image::ImagePart;
use crate::layout::{
    BlockHeader, BlockType, Codec, INDEX_TRAILER, MAGIC, MAJOR, MAX_PAYLOAD_BYTES, Preamble, SYNC,
};
use crate::samples::SampleBlock;
use crate::writer::IndexEntry;
use zerocopy::FromBytes;

/// A recording in memory.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    uuid: Option<[u8; 16]>,
    start: usize,
}

/// One thing found in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A block whose header and payload have the right checksums.
    Block(Block<'a>),
    /// Bytes that are no sound block.
    Damage(Damage),
}

/// A stretch of bytes that is no sound block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first bad byte's block in the file.
    pub offset: u64,
    /// Bytes skipped.
    pub bytes: u64,
    /// What was found there.
    pub kind: DamageKind,
    /// Samples that went with it; `None` where the file ends before that can be told.
    pub samples: Option<u64>,
    /// The time that went with it: after the end of the last sound sample block, to the start of
    /// the next.
    pub gap_ns: (Option<u64>, Option<u64>),
}

/// What damaged bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// The preamble's checksum or magic is wrong.
    Preamble,
    /// No block header with the right checksum where one should be.
    Header,
    /// The payload's checksum is wrong.
    Payload,
    /// The file ends inside a block.
    Truncated,
    /// Sequence numbers jump: whole blocks are not there.
    Missing,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { offset, bytes, .. } = self;
        match self.kind {
            DamageKind::Preamble => write!(f, "the preamble (bytes 0 to 31) is damaged")?,
            DamageKind::Header => {
                write!(f, "no block header at byte {offset}: {bytes} bytes skipped")?;
            }
            DamageKind::Payload => {
                write!(
                    f,
                    "the block at byte {offset} is damaged: {bytes} bytes skipped"
                )?;
            }
            DamageKind::Truncated => {
                write!(f, "the recording ends inside the block at byte {offset}")?;
                write!(f, " ({bytes} bytes of it are there)")?;
            }
            DamageKind::Missing => write!(f, "blocks are missing before byte {offset}")?,
        }
        match self.samples {
            Some(0) => write!(f, "; no sample lost"),
            Some(1) => write!(f, "; 1 sample lost"),
            Some(samples) => write!(f, "; {samples} samples lost"),
            None => write!(f, "; how many samples went with it can't be told"),
        }
    }
}

/// A block whose header and payload have the right checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// Offset of the header in the file.
    pub offset: u64,
    /// Number of the block type, which this version may not know.
    pub block_type: u16,
    /// Number of the block.
    pub sequence: u32,
    /// Whether the file must be refused by a reader that doesn't know the type.
    pub critical: bool,
    /// Earliest time inside, in nanoseconds of the recording's monotonic clock.
    pub first_ns: u64,
    /// Latest time inside.
    pub last_ns: u64,
    /// Samples inside.
    pub samples: u32,
    /// Samples in all blocks before.
    pub samples_before: u64,
    /// Bytes of the payload when decompressed.
    pub raw_bytes: u32,
    codec: u8,
    encoding: u8,
    stored: std::borrow::Cow<'a, [u8]>,
}

/// What a block holds.
#[derive(Debug)]
pub enum Payload {
    /// What was recorded, where and how.
    Metadata(Metadata),
    /// Samples.
    Samples(SampleBlock),
    /// Starts, names and ends of vCPUs or threads.
    Tasks(Vec<TaskEvent>),
    /// Changes of address spaces.
    Modules(Vec<ModuleEvent>),
    /// Clock readings.
    Clocks(Vec<ClockPair>),
    /// What was lost.
    Losses(Vec<Loss>),
    /// Intervals of a function trace.
    Spans(Vec<Span>),
    /// One part of an image's tables.
    Image(ImagePart),
    /// Why the recording ended.
    End(End),
    /// Where the blocks are.
    Index(Vec<IndexEntry>),
    /// An optional block of a type that this version does not know.
    Unknown(u16),
}

impl<'a> Recording<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// That there is nothing to read, told apart by cause. A damaged preamble followed by sound
    /// blocks is no error but the first [`Item::Damage`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let preamble = check_preamble(bytes)?;
        let recording = Recording {
            bytes,
            uuid: preamble.map(|preamble| preamble.uuid),
            start: if preamble.is_some() {
                Preamble::BYTES
            } else {
                0
            },
        };
        if recording
            .blocks()
            .any(|item| matches!(item, Item::Block(_)))
        {
            return Ok(recording);
        }
        Err(match preamble {
            Some(_) => OpenError::NothingSound {
                bytes: bytes.len() as u64,
            },
            None if bytes.len() < Preamble::BYTES => OpenError::TooShort { bytes: bytes.len() },
            None => OpenError::NotARecording,
        })
    }

    /// Identity of the recording; `None` where the preamble is damaged.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// All blocks and damages, in file order. Payloads are checksummed as they are passed.
    pub fn blocks(&self) -> Blocks<'a> {
        Blocks {
            bytes: self.bytes,
            scanner: Scanner::at(self.start),
        }
    }

    /// The index at the end of the file, if there is a sound one.
    pub fn index(&self) -> Option<Vec<IndexEntry>> {
        let (before, trailer) = self.bytes.split_last_chunk::<8>()?;
        let (_, offset) = before.split_last_chunk::<8>()?;
        if *trailer != INDEX_TRAILER {
            return None;
        }
        let block = self.block_at(u64::from_le_bytes(*offset))?;
        match block.payload().ok()? {
            Payload::Index(entries) => Some(entries),
            _ => None,
        }
    }

    /// The sound block whose header is at `offset`.
    pub fn block_at(&self, offset: u64) -> Option<Block<'a>> {
        let at = usize::try_from(offset).ok()?;
        match parse_block(self.bytes.get(at..)?) {
            Parsed::Block(header, stored) => Some(Block::new(offset, &header, stored)),
            _ => None,
        }
    }
}

/// Checks the first bytes of a file. `None`: damaged, but blocks may follow.
pub(crate) fn check_preamble(bytes: &[u8]) -> Result<Option<Preamble>, OpenError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty);
    }
    let Ok((preamble, _)) = Preamble::read_from_prefix(bytes) else {
        let cut =
            MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) || bytes.starts_with(&MAGIC);
        return Err(match cut {
            true => OpenError::TooShort { bytes: bytes.len() },
            false => OpenError::NotARecording,
        });
    };
    if preamble.magic != MAGIC || preamble.crc.get() != preamble.checksum() {
        return Ok(None);
    }
    if preamble.major.get() != MAJOR {
        let (major, minor) = (preamble.major.get(), preamble.minor.get());
        return Err(OpenError::NewerMajor { major, minor });
    }
    Ok(Some(preamble))
}

/// What stands at some place.
pub(crate) enum Parsed<'a> {
    Block(BlockHeader, &'a [u8]),
    /// A sound header; with its payload it needs so many bytes.
    Short {
        needed: usize,
    },
    /// A sound header, and a payload with a wrong checksum; so many bytes in all.
    BadPayload(usize),
    BadHeader,
}

/// Looks for a block at the start of `bytes`.
pub(crate) fn parse_block(bytes: &[u8]) -> Parsed<'_> {
    let Ok((header, rest)) = BlockHeader::read_from_prefix(bytes) else {
        let known = bytes.len().min(SYNC.len());
        return match bytes[..known] == SYNC[..known] {
            true => Parsed::Short {
                needed: BlockHeader::BYTES,
            },
            false => Parsed::BadHeader,
        };
    };
    let stored_bytes = header.stored_bytes.get() as usize;
    let sound = header.sync == SYNC
        && header.header_crc.get() == header.checksum()
        && stored_bytes <= MAX_PAYLOAD_BYTES
        && header.raw_bytes.get() as usize <= MAX_PAYLOAD_BYTES;
    if !sound {
        return Parsed::BadHeader;
    }
    match rest.get(..stored_bytes) {
        None => Parsed::Short {
            needed: BlockHeader::BYTES + stored_bytes,
        },
        Some(stored) if crc32fast::hash(stored) == header.payload_crc.get() => {
            Parsed::Block(header, stored)
        }
        Some(_) => Parsed::BadPayload(BlockHeader::BYTES + stored_bytes),
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

/// Walks over bytes that may come in pieces; the same for a file and a pipe.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    /// Offset in the file of the next byte to look at.
    at: u64,
    /// A stretch of damage that goes on.
    open: Option<(u64, DamageKind)>,
    /// Number of the block that should come.
    sequence: u32,
    samples_seen: u64,
    last_ns: Option<u64>,
}

pub(crate) enum Step<'a> {
    Item(Item<'a>),
    /// So many bytes from the scanner's place on would tell more.
    NeedMore(usize),
    End,
}

impl Scanner {
    pub fn at(start: usize) -> Self {
        // Without a sound preamble the bytes before the first block are one damage.
        let open = (start == 0).then_some((0, DamageKind::Preamble));
        Scanner {
            at: start as u64,
            open,
            sequence: 0,
            samples_seen: 0,
            last_ns: None,
        }
    }

    /// Offset of the next byte that is needed.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The next item in `window`, whose first byte is at offset `base` of the file; `last` says
    /// that nothing follows the window.
    pub fn step<'a>(&mut self, window: &'a [u8], base: u64, last: bool) -> Step<'a> {
        loop {
            let place = usize::try_from(self.at - base).unwrap_or(usize::MAX);
            let rest = window.get(place..).unwrap_or(&[]);
            if rest.is_empty() {
                return match (last, self.open.take()) {
                    (true, Some((offset, kind))) => {
                        Step::Item(Item::Damage(self.damage(offset, self.at, kind, None)))
                    }
                    (true, None) => Step::End,
                    (false, open) => {
                        self.open = open;
                        Step::NeedMore(BlockHeader::BYTES)
                    }
                };
            }
            match parse_block(rest) {
                Parsed::Block(header, stored) => return self.block(&header, stored),
                Parsed::Short { needed } if !last => return Step::NeedMore(needed),
                Parsed::Short { .. } => self.truncated(rest),
                Parsed::BadPayload(bytes) => self.skip(bytes, DamageKind::Payload),
                Parsed::BadHeader => {
                    if rest.len() < BlockHeader::BYTES && !last {
                        return Step::NeedMore(BlockHeader::BYTES);
                    }
                    self.skip(distance_to_sync(rest), DamageKind::Header);
                }
            }
        }
    }

    /// A sound block, or first the damage before it.
    fn block<'a>(&mut self, header: &BlockHeader, stored: &'a [u8]) -> Step<'a> {
        let gap = header.sequence.get() != self.sequence;
        if self.open.is_some() || gap {
            let open = self.open.take();
            let (offset, kind) = open.unwrap_or((self.at, DamageKind::Missing));
            let damage = self.damage(offset, self.at, kind, Some(header));
            self.sequence = header.sequence.get();
            self.samples_seen = header.samples_before.get();
            return Step::Item(Item::Damage(damage));
        }
        let block = Block::new(self.at, header, stored);
        self.at += (BlockHeader::BYTES + stored.len()) as u64;
        self.sequence = block.sequence.wrapping_add(1);
        self.samples_seen = block
            .samples_before
            .saturating_add(u64::from(block.samples));
        if block.samples > 0 {
            self.last_ns = Some(block.last_ns);
        }
        Step::Item(Item::Block(block))
    }

    fn damage(
        &self,
        offset: u64,
        end: u64,
        kind: DamageKind,
        next: Option<&BlockHeader>,
    ) -> Damage {
        let lost = next.map(|next| next.samples_before.get().saturating_sub(self.samples_seen));
        let next_ns = next.map(|next| next.first_ns.get());
        Damage {
            offset,
            bytes: end - offset,
            kind,
            samples: lost,
            gap_ns: (self.last_ns, next_ns),
        }
    }

    /// The file ends inside a block, unless another block begins in what is there: then the
    /// length in the header can't be trusted.
    fn truncated(&mut self, rest: &[u8]) {
        let bytes = distance_to_sync(rest);
        let kind = match bytes == rest.len() {
            true => DamageKind::Truncated,
            false => DamageKind::Header,
        };
        self.skip(bytes, kind);
    }

    fn skip(&mut self, bytes: usize, kind: DamageKind) {
        self.open.get_or_insert((self.at, kind));
        self.at += bytes as u64;
    }
}

/// Bytes to the next place, after the first byte, where a block may begin.
fn distance_to_sync(bytes: &[u8]) -> usize {
    let tail = bytes.get(1..).unwrap_or(&[]);
    let found = tail.iter().enumerate().find(|&(at, &byte)| {
        let known = (tail.len() - at).min(SYNC.len());
        byte == SYNC[0] && tail[at..at + known] == SYNC[..known]
    });
    found.map_or(bytes.len(), |(at, _)| at + 1)
}

impl<'a> Block<'a> {
    pub(crate) fn new(offset: u64, header: &BlockHeader, stored: &'a [u8]) -> Self {
        Block {
            offset,
            block_type: header.block_type.get(),
            sequence: header.sequence.get(),
            critical: header.is_critical(),
            first_ns: header.first_ns.get(),
            last_ns: header.last_ns.get(),
            samples: header.samples.get(),
            samples_before: header.samples_before.get(),
            raw_bytes: header.raw_bytes.get(),
            codec: header.codec,
            encoding: header.encoding,
            stored: stored.into(),
        }
    }

    /// The same block, owning its bytes.
    pub fn into_owned(self) -> Block<'static> {
        Block {
            stored: self.stored.into_owned().into(),
            ..self
        }
    }

    /// Bytes that the block takes in the file, header included.
    pub fn file_bytes(&self) -> u64 {
        (BlockHeader::BYTES + self.stored.len()) as u64
    }

    /// The type, if this version knows it.
    pub fn known_type(&self) -> Option<BlockType> {
        BlockType::from_number(self.block_type)
    }

    /// Decompresses and decodes the payload. Rows of samples are decoded later, one by one.
    ///
    /// # Errors
    /// What is wrong with the payload, with the place of the block.
    pub fn payload(&self) -> Result<Payload, DecodeError> {
        self.decode().map_err(|what| self.error(what))
    }

    /// A fault found inside this block, with the place of the block.
    pub fn error(&self, what: Fault) -> DecodeError {
        DecodeError {
            offset: self.offset,
            sequence: self.sequence,
            block: self.known_type().map_or("unknown", BlockType::name),
            what,
        }
    }

    fn decode(&self) -> Result<Payload, Fault> {
        let Some(block_type) = self.known_type() else {
            let number = u64::from(self.block_type);
            return match self.critical {
                true => Err(Fault::Unknown {
                    what: "critical block type",
                    number,
                }),
                false => Ok(Payload::Unknown(self.block_type)),
            };
        };
        let raw = self.decompress()?;
        let columns = matches!(block_type, BlockType::Samples | BlockType::Image);
        let encoding = if columns { 0 } else { ENCODING_BINCODE_2 };
        if self.encoding != encoding {
            let number = u64::from(self.encoding);
            return Err(Fault::Unknown {
                what: "encoding",
                number,
            });
        }
        Ok(match block_type {
            BlockType::Metadata => Payload::Metadata(Metadata::parse(&raw)?),
            BlockType::Samples => {
                Payload::Samples(SampleBlock::decode(raw, self.samples as usize)?)
            }
            BlockType::Tasks => Payload::Tasks(cold::parse(&raw)?),
            BlockType::Modules => Payload::Modules(cold::parse(&raw)?),
            BlockType::Clocks => Payload::Clocks(cold::parse(&raw)?),
            BlockType::Losses => Payload::Losses(cold::parse(&raw)?),
            BlockType::Spans => Payload::Spans(cold::parse(&raw)?),
            BlockType::Image => Payload::Image(ImagePart::parse(&raw)?),
            BlockType::End => {
                let ends: Vec<End> = cold::parse(&raw)?;
                Payload::End(ends.into_iter().next().ok_or(Fault::Short("end record"))?)
            }
            BlockType::Index => Payload::Index(cold::parse(&raw)?),
        })
    }

    fn decompress(&self) -> Result<Vec<u8>, Fault> {
        let raw_bytes = self.raw_bytes as usize;
        let raw = match Codec::from_number(self.codec) {
            Some(Codec::Plain) => self.stored.to_vec(),
            Some(Codec::Zstd) => zstd::bulk::decompress(&self.stored, raw_bytes)
                .map_err(|error| Fault::Zstd(error.to_string()))?,
            None => {
                let number = u64::from(self.codec);
                return Err(Fault::Unknown {
                    what: "codec",
                    number,
                });
            }
        };
        match raw.len() == raw_bytes {
            true => Ok(raw),
            false => Err(Fault::Range {
                what: "length of the payload",
                value: raw.len() as u64,
                rule: "as the header says",
            }),
        }
    }
}
