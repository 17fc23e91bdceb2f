//! Fixed layouts, tags and limits of the file (format-spec.md, sections 2 and 3).
//!
//! Input: bytes. Output: typed views of them. Never allocates.

use crate::tags::tags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a recording. The high bit and the line ends reveal a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"\x89UPROF\r\n";
/// First bytes of a block header; a reader searches for them after damage.
pub const SYNC: [u8; 8] = *b"\xF5uBLK\x1A\r\n";

/// Major version; a reader refuses a file with another one.
pub const MAJOR: u16 = 1;
/// Minor version: counts additions that an older reader may ignore.
pub const MINOR: u16 = 2;

/// Most bytes that a block's payload may take, as stored and decompressed.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;
/// Most samples in one block.
pub const MAX_ROWS: usize = 1 << 14;
/// Most spans in one block, and most names.
pub const MAX_SPANS: usize = 1 << 16;
/// Most nodes in the stack table of one block.
pub const MAX_NODES: usize = 1 << 18;
/// Most frames in one chain; a longer one is cut at its outer end.
pub const MAX_FRAMES: usize = 1024;
/// Most raw stack bytes in one sample.
pub const MAX_STACK_BYTES: usize = 256 << 10;
/// Most raw stack bytes in all samples of a block, expanded. This bounds the work that a few bytes of repeats can
/// cause.
pub const MAX_BLOCK_STACK_BYTES: usize = 64 << 20;
/// Most bytes of a decompressed payload of cold records.
pub const MAX_RECORDS_BYTES: usize = 1 << 20;
/// Most symbols in one part of an image.
pub const MAX_SYMBOLS: usize = 1 << 18;
/// Most bytes in a DWARF expression of unwind rules.
pub const MAX_EXPRESSION_BYTES: usize = (1 << 16) - 1;
/// Most registers in an unwind rule.
pub const MAX_SAVES: usize = (1 << 8) - 1;

/// Encoding byte of blocks that are columns or tables.
pub const ENCODING_COLUMNS: u8 = 0;
/// Encoding byte of blocks that are cold records in bincode 2, standard configuration.
pub const ENCODING_RECORDS: u8 = 1;

/// Flag: a reader that doesn't know the block must refuse the file, as the meaning of other blocks depends on it.
pub const FLAG_CRITICAL: u16 = 1;

/// Start of a recording (format-spec.md, section 2).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Preamble {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Major version.
    pub major: U16,
    /// Minor version.
    pub minor: U16,
    /// CRC-32 of this structure with this field zero.
    pub crc: U32,
    /// Random identity of the recording.
    pub uuid: [u8; 16],
}

impl Preamble {
    /// Size in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// The preamble that this version of the package writes.
    pub fn new(uuid: [u8; 16]) -> Self {
        let mut preamble = Preamble {
            magic: MAGIC,
            major: MAJOR.into(),
            minor: MINOR.into(),
            crc: 0.into(),
            uuid,
        };
        preamble.crc = preamble.checksum().into();
        preamble
    }

    /// The checksum of the other fields.
    pub fn checksum(&self) -> u32 {
        let mut copy = *self;
        copy.crc = 0.into();
        crc32fast::hash(copy.as_bytes())
    }
}

/// Start of a block (format-spec.md, section 3).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// [`SYNC`].
    pub sync: [u8; 8],
    /// A [`BlockType`] number.
    pub block_type: U16,
    /// [`FLAG_CRITICAL`]; other bits are ignored.
    pub flags: U16,
    /// A [`Codec`] number: how the payload is compressed.
    pub codec: u8,
    /// Encoding of the decompressed payload; its meaning depends on the block type.
    pub encoding: u8,
    /// Zero.
    pub reserved: U16,
    /// Bytes of payload that follow.
    pub stored_bytes: U32,
    /// Bytes of payload when decompressed.
    pub raw_bytes: U32,
    /// Earliest time inside, in nanoseconds of the recording's monotonic clock.
    pub first_ns: U64,
    /// Latest time inside.
    pub last_ns: U64,
    /// Samples in all blocks before this one; a jump shows how many a gap lost.
    pub samples_before: U64,
    /// Samples in this block.
    pub samples: U32,
    /// Number of this block in the file, from 0.
    pub sequence: U32,
    /// CRC-32 of the stored payload.
    pub payload_crc: U32,
    /// CRC-32 of the 60 bytes before it.
    pub header_crc: U32,
}

impl BlockHeader {
    /// Size in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// A header of zeros after the sync bytes.
    pub fn blank() -> Self {
        let mut header = BlockHeader::new_zeroed();
        header.sync = SYNC;
        header
    }

    /// The checksum of the other fields.
    pub fn checksum(&self) -> u32 {
        crc32fast::hash(&self.as_bytes()[..Self::BYTES - 4])
    }

    /// Whether a reader that doesn't know the block type must refuse the file.
    pub fn is_critical(&self) -> bool {
        self.flags.get() & FLAG_CRITICAL != 0
    }
}

const _: () = assert!(Preamble::BYTES == 32);
const _: () = assert!(BlockHeader::BYTES == 64);

tags! {
    /// Contents of a block (format-spec.md, section 4).
    BlockType: u16 {
        /// Facts about the recording; the first block.
        Metadata = 1 "metadata",
        /// Samples with their own stack table.
        Samples = 2 "samples",
        /// vCPUs or threads that start, get a name or end.
        Tasks = 3 "tasks",
        /// Images mapped into an address space.
        Modules = 4 "modules",
        /// Pairs of clock readings.
        Clocks = 5 "clocks",
        /// Samples that could not be kept.
        Losses = 6 "losses",
        /// Symbols, lines and unwind rules of an image, in parts.
        Image = 8 "image",
        /// Why and when the recording ended, with totals.
        End = 9 "end",
        /// Processor time that the kernel counted, by process.
        Times = 11 "times",
        /// Code of a guest, copied from its memory.
        Code = 12 "code",
        /// Address spaces of a guest: page-table roots and their names.
        Spaces = 13 "spaces",
        /// Calls of a trace with their lengths.
        Spans = 14 "spans",
        /// Wall time of vCPUs, by place.
        VcpuTimes = 15 "vcpu-times",
        /// Exits of vCPUs, by cause.
        Exits = 16 "exits",
        /// Bytes of a recording of the guest's monitor.
        Monitor = 17 "monitor",
        /// What vCPUs' threads handled when they were sampled in that recording.
        Handled = 18 "handled",
    }
}

tags! {
    /// Compression of a payload.
    Codec: u8 {
        /// Not compressed.
        Plain = 0 "plain",
        /// One zstd frame.
        Zstd = 1 "zstd",
    }
}

tags! {
    /// Sections of one part of an image (format-spec.md, section 7).
    ImageSection: u16 {
        /// The image's identity.
        Identity = 1 "identity",
        /// Some of its symbols.
        Symbols = 2 "symbols",
        /// Load addresses of its parts.
        Segments = 3 "segments",
        /// Functions, files and lines at some of its addresses.
        Lines = 4 "lines",
        /// Unwind rules of some of its code.
        Rules = 5 "rules",
        /// The whole image, if it is not a file that could be found later.
        File = 6 "file",
        /// Callers that chains of frame pointers miss.
        Callers = 7 "callers",
    }
}

/// The column of register `n` is this number plus `n`; registers have DWARF numbers below 64.
pub const REGISTER_COLUMN: u16 = 64;
