//! Walks over the bytes of a recording, block by block (format-spec.md, section 9).
//!
//! Input: bytes, all at once or in pieces. Output: sound blocks in order, and each range of bytes between them once,
//! with the samples lost there. The output doesn't depend on the pieces.

use crate::block::Block;
use crate::damage::{Damage, DamageKind};
use crate::error::OpenError;
use crate::layout::{
    BlockHeader, BlockType, ENCODING_RECORDS, MAGIC, MAJOR, MAX_PAYLOAD_BYTES, MAX_RECORDS_BYTES,
    Preamble, SYNC,
};
use zerocopy::FromBytes;

/// An item of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A block whose header and payload have the right checksums.
    Block(Block<'a>),
    /// Bytes that are not a sound block.
    Damage(Damage),
}

impl Item<'_> {
    /// Its size in the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Item::Block(block) => block.file_bytes(),
            Item::Damage(damage) => damage.bytes,
        }
    }
}

/// Number of bytes of payloads with wrong checksums that are searched for blocks. After that the lengths in headers are
/// trusted, since nested headers could make a reader checksum the same bytes over and over.
const RECHECK_BYTES: u64 = 256 << 20;

/// The magic after line ends were converted either way, or high bits were cleared.
const TEXT_TRANSFERS: [&[u8]; 3] = [b"\x89UPROF\n", b"\x89UPROF\r\r\n", b"\tUPROF\r\n"];

/// Checks the first bytes of a file. `None` if they are damaged; blocks may follow.
pub(crate) fn check_preamble(bytes: &[u8]) -> Result<Option<Preamble>, OpenError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty);
    }
    let Ok((preamble, _)) = Preamble::read_from_prefix(bytes) else {
        let known = bytes.len().min(MAGIC.len());
        return Err(if bytes[..known] == MAGIC[..known] {
            OpenError::TooShort { bytes: bytes.len() }
        } else {
            OpenError::NotARecording
        });
    };
    if TEXT_TRANSFERS
        .iter()
        .any(|changed| bytes.starts_with(changed))
    {
        return Err(OpenError::TextTransfer);
    }
    if preamble.magic != MAGIC || preamble.crc.get() != preamble.checksum() {
        return Ok(None);
    }
    if preamble.major.get() != MAJOR {
        let (major, minor) = (preamble.major.get(), preamble.minor.get());
        return Err(OpenError::NewerMajor { major, minor });
    }
    Ok(Some(preamble))
}

/// The result of [`parse_block`].
pub(crate) enum Parsed<'a> {
    Block(BlockHeader, &'a [u8]),
    /// There are too few bytes for a header, but they may be the start of one.
    ShortHeader,
    /// The header is sound, and the payload is incomplete.
    ShortPayload(BlockHeader),
    /// The header is sound, and the payload's checksum is wrong.
    BadPayload(BlockHeader),
    BadHeader,
}

/// Parses the block at the start of `bytes`.
pub(crate) fn parse_block(bytes: &[u8]) -> Parsed<'_> {
    let Ok((header, rest)) = BlockHeader::read_from_prefix(bytes) else {
        return if may_be_sync(bytes) {
            Parsed::ShortHeader
        } else {
            Parsed::BadHeader
        };
    };
    let most_raw = match header.encoding {
        ENCODING_RECORDS => MAX_RECORDS_BYTES,
        _ => MAX_PAYLOAD_BYTES,
    };
    let sound = header.sync == SYNC
        && header.header_crc.get() == header.checksum()
        && header.stored_bytes.get() as usize <= MAX_PAYLOAD_BYTES
        && header.raw_bytes.get() as usize <= most_raw;
    if !sound {
        return Parsed::BadHeader;
    }
    match rest.get(..header.stored_bytes.get() as usize) {
        None => Parsed::ShortPayload(header),
        Some(stored) if crc32fast::hash(stored) == header.payload_crc.get() => {
            Parsed::Block(header, stored)
        }
        Some(_) => Parsed::BadPayload(header),
    }
}

/// The position in the file and the expected contents there.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    /// Offset in the file of the next byte to scan.
    at: u64,
    /// The current range of damage.
    open: Option<Stretch>,
    /// Sequence number of the next block.
    sequence: u32,
    /// Checksum of the header of block 0, if it was found.
    first: Option<u32>,
    /// Sequence number of the next block of another recording that was appended, and the samples before it.
    foreign: Option<(u32, u64)>,
    samples_seen: u64,
    last_ns: Option<u64>,
    rechecked_bytes: u64,
    /// Whether any sound block was found.
    found: bool,
    /// Whether nothing can be missing at the end of the file.
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Stretch {
    offset: u64,
    kind: DamageKind,
    samples_at_least: u64,
}

pub(crate) enum Step<'a> {
    Item(Item<'a>),
    /// Requests this many bytes from the scanner's position on.
    NeedMore(usize),
    End,
}

impl Scanner {
    pub fn at(start: usize) -> Self {
        let mut scanner = Scanner {
            at: start as u64,
            open: None,
            sequence: 0,
            first: None,
            foreign: None,
            samples_seen: 0,
            last_ns: None,
            rechecked_bytes: 0,
            found: false,
            ended: false,
        };
        if start == 0 {
            // Without a sound preamble, the bytes before the first block are one damage.
            scanner.open_stretch(DamageKind::Preamble, 0);
        }
        scanner
    }

    /// Offset of the next byte that is needed.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Whether any sound block was found.
    pub fn has_found_a_block(&self) -> bool {
        self.found
    }

    /// The next item in `window`, whose first byte is at offset `base` of the file. `last`: nothing follows the window.
    pub fn step<'a>(&mut self, window: &'a [u8], base: u64, last: bool) -> Step<'a> {
        loop {
            let place = usize::try_from(self.at - base).unwrap_or(usize::MAX);
            let rest = window.get(place..).unwrap_or(&[]);
            match parse_block(rest) {
                Parsed::Block(header, stored) => match self.block(header, stored) {
                    Some(item) => return Step::Item(item),
                    None => continue,
                },
                Parsed::ShortPayload(header) if !last => {
                    let stored_bytes = header.stored_bytes.get() as usize;
                    return Step::NeedMore(BlockHeader::BYTES + stored_bytes);
                }
                _ if rest.len() < BlockHeader::BYTES && !last => {
                    return Step::NeedMore(BlockHeader::BYTES);
                }
                _ if rest.is_empty() => return self.end(),
                Parsed::ShortHeader => self.skip(rest, DamageKind::Truncated, 0),
                Parsed::ShortPayload(header) if is_monitor(&header) => {
                    self.open_stretch(DamageKind::Truncated, header.samples.get());
                    self.at += rest.len() as u64;
                }
                Parsed::ShortPayload(header) => {
                    self.skip(rest, DamageKind::Truncated, header.samples.get());
                }
                // What follows it decides.
                Parsed::BadPayload(header)
                    if is_monitor(&header)
                        && !last
                        && rest.len() < behind(&header) + SYNC.len() =>
                {
                    return Step::NeedMore(behind(&header) + SYNC.len());
                }
                Parsed::BadPayload(header) => self.bad_payload(rest, &header),
                Parsed::BadHeader if rest.starts_with(&MAGIC) => {
                    self.skip(rest, DamageKind::Repeated, 0);
                }
                Parsed::BadHeader => self.skip(rest, DamageKind::Header, 0),
            }
        }
    }

    /// A sound block, or first the damage before it; `None` for a block to skip.
    fn block<'a>(&mut self, header: BlockHeader, stored: &'a [u8]) -> Option<Item<'a>> {
        let bytes = (BlockHeader::BYTES + stored.len()) as u64;
        self.found = true;
        // The samples of a repeated block must not be counted twice, and those of another recording not at all.
        if self.is_repeated(&header) {
            self.open_stretch(DamageKind::Repeated, 0);
            self.at += bytes;
            return None;
        }
        if self.open.is_none() && header.sequence.get() != self.sequence {
            self.open_stretch(DamageKind::Missing, 0);
        }
        if let Some(mut stretch) = self.open.take() {
            if stretch.kind == DamageKind::Truncated {
                // The file continues, so these bytes were not the payload.
                stretch.kind = DamageKind::Payload;
            }
            let lost = header
                .samples_before
                .get()
                .saturating_sub(self.samples_seen);
            let damage = self.damage(stretch, Some(lost), Some(header.first_ns.get()));
            self.sequence = header.sequence.get();
            self.samples_seen = header.samples_before.get();
            return Some(Item::Damage(damage));
        }
        let block = Block::new(self.at, &header, stored);
        if block.sequence == 0 {
            self.first = Some(header.header_crc.get());
        }
        self.at += bytes;
        self.sequence = block.sequence.saturating_add(1);
        self.samples_seen = block
            .samples_before
            .saturating_add(u64::from(block.samples));
        if block.samples > 0 {
            self.last_ns = Some(block.last_ns);
        }
        if block.known_type() == Some(BlockType::End) {
            self.ended = true;
        }
        Some(Item::Block(block))
    }

    /// Whether a sound block came before, or is of another recording: that begins with a block 0 that is not this
    /// one's, and goes on as long as its blocks follow each other, in number and in samples.
    fn is_repeated(&mut self, header: &BlockHeader) -> bool {
        let (sequence, samples_before) = (header.sequence.get(), header.samples_before.get());
        let begins = sequence == 0 && self.sequence > 0;
        if begins && self.first != Some(header.header_crc.get()) {
            self.foreign = Some((0, samples_before));
        }
        if self.foreign == Some((sequence, samples_before)) {
            let samples = samples_before.saturating_add(u64::from(header.samples.get()));
            self.foreign = sequence.checked_add(1).map(|next| (next, samples));
            return true;
        }
        self.ended || sequence < self.sequence
    }

    /// Handles the end of the file; reports once what is missing there.
    fn end<'a>(&mut self) -> Step<'a> {
        let whole = std::mem::replace(&mut self.ended, true);
        if !whole && self.open.is_none() && self.found {
            self.open_stretch(DamageKind::Unfinished, 0);
        }
        match self.open.take() {
            Some(stretch) => {
                // After an end record nothing can be lost; without one the number is unknown.
                let lost = whole.then_some(0);
                Step::Item(Item::Damage(self.damage(stretch, lost, None)))
            }
            None => Step::End,
        }
    }

    fn damage(&self, stretch: Stretch, samples: Option<u64>, next_ns: Option<u64>) -> Damage {
        Damage {
            offset: stretch.offset,
            bytes: self.at - stretch.offset,
            kind: stretch.kind,
            samples,
            samples_at_least: stretch.samples_at_least,
            gap_ns: (self.last_ns, next_ns),
        }
    }

    fn bad_payload(&mut self, rest: &[u8], header: &BlockHeader) {
        let stored_bytes = u64::from(header.stored_bytes.get());
        // Sound blocks in a monitor's payload that was not cut short are another recording's.
        let followed = || rest.get(behind(header)..).is_some_and(may_be_sync);
        let is_foreign = is_monitor(header) && followed();
        // A payload that was cut short may be followed by sound blocks, so its bytes are searched.
        if !is_foreign && self.rechecked_bytes < RECHECK_BYTES {
            self.rechecked_bytes += stored_bytes;
            return self.skip(rest, DamageKind::Payload, header.samples.get());
        }
        self.open_stretch(DamageKind::Payload, header.samples.get());
        self.at += behind(header) as u64;
    }

    /// Skips to the next position where a block may begin.
    fn skip(&mut self, rest: &[u8], kind: DamageKind, samples: u32) {
        self.open_stretch(kind, samples);
        self.at += distance_to_sync(rest) as u64;
    }

    /// Begins a range of damage, or extends the current one.
    fn open_stretch(&mut self, kind: DamageKind, samples: u32) {
        let stretch = self.open.get_or_insert(Stretch {
            offset: self.at,
            kind,
            samples_at_least: 0,
        });
        let at_least = stretch.samples_at_least.saturating_add(u64::from(samples));
        stretch.samples_at_least = at_least;
    }
}

/// Whether the payload is of another recording, and may have blocks in it.
fn is_monitor(header: &BlockHeader) -> bool {
    header.block_type.get() == BlockType::Monitor.number()
}

/// The size of the block with its header.
fn behind(header: &BlockHeader) -> usize {
    BlockHeader::BYTES + header.stored_bytes.get() as usize
}

/// Whether a block, or the file's end, may be at the start of `bytes`.
fn may_be_sync(bytes: &[u8]) -> bool {
    let known = bytes.len().min(SYNC.len());
    bytes[..known] == SYNC[..known]
}

/// Distance in bytes to the next position, after the first byte, where a block may begin.
fn distance_to_sync(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(tail) = bytes.get(at..) {
        let Some(step) = tail.iter().position(|&byte| byte == SYNC[0]) else {
            break;
        };
        if may_be_sync(&tail[step..]) {
            return at + step;
        }
        at += step + 1;
    }
    bytes.len()
}
