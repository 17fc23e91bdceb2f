//! Blocks of a stream that are kept in memory. Input: blocks, in order. Output: whole recordings of some of them. Never
//! more bytes than they may take: the oldest are dropped, and counted.

use std::collections::VecDeque;
use std::io;
use uprof::cold::{End, Loss};
use uprof::{Block, BlockType, Writer};

/// Most bytes of samples and other records that are of a time, as they are stored.
pub const PASSING_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of tables and other records that have no end, as they are stored.
pub const LASTING_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a block takes beside its payload.
const BLOCK_BYTES: u64 = 256;
/// A recorder writes a block of samples at least this often (format-spec.md, section 4). What is earlier in one is the
/// beginning of a wait, which is written when it is over.
pub(super) const BLOCK_NS: u64 = 1_000_000_000;

/// Blocks in order, and the bytes that they take.
#[derive(Debug, Default)]
pub(super) struct KeptBlocks {
    pub blocks: VecDeque<Block<'static>>,
    pub bytes: u64,
    /// Blocks that were dropped because there were too many.
    pub dropped: u64,
    /// The latest time of those that are gone: of what is earlier, some is missing.
    pub gone_ns: u64,
}

impl KeptBlocks {
    /// Adds a block, and drops the oldest ones beyond the limit.
    pub fn push(&mut self, block: Block<'static>, bytes_max: u64) {
        self.bytes += block.file_bytes() + BLOCK_BYTES;
        self.blocks.push_back(block);
        self.limit(bytes_max);
    }

    /// Drops the oldest blocks beyond a limit.
    pub fn limit(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max && self.blocks.len() > 1 {
            self.pop();
            self.dropped += 1;
        }
    }

    /// Removes the oldest block.
    pub fn pop(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.bytes -= block.file_bytes() + BLOCK_BYTES;
            self.gone_ns = self.gone_ns.max(block.last_ns);
        }
    }
}

/// What a block is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// What was recorded, and how.
    Metadata,
    End,
    /// By later samples of the same process: names and mappings.
    Names,
    /// By later samples: images, address spaces, and code.
    Lasting,
    /// By later samples, and each alone: clock readings, which may come several times a second.
    Clocks,
    /// For its time alone: samples, losses and counts.
    Passing,
}

impl Need {
    pub fn of(block: &Block<'_>) -> Need {
        match block.known_type() {
            Some(BlockType::Metadata) => Need::Metadata,
            Some(BlockType::End) => Need::End,
            Some(BlockType::Tasks | BlockType::Modules) => Need::Names,
            Some(BlockType::Image | BlockType::Code | BlockType::Spaces) => Need::Lasting,
            Some(BlockType::Clocks) => Need::Clocks,
            _ => Need::Passing,
        }
    }
}

/// A recording of `blocks` from `start_ns` to `end`.
///
/// # Errors
/// Memory for compressing is missing.
pub(super) fn recording<'b>(
    uuid: [u8; 16],
    (metadata, start_ns): (Option<&Block<'_>>, u64),
    blocks: impl Iterator<Item = &'b Block<'static>>,
    losses: &[Loss],
    end: &End,
) -> io::Result<Vec<u8>> {
    let mut writer = Writer::without_metadata(Vec::new(), uuid)?;
    if let Some(metadata) = metadata {
        let mut metadata = metadata.clone();
        // The time of this block is the start of the recording (format-spec.md, section 6.2).
        metadata.first_ns = metadata.first_ns.max(start_ns);
        metadata.last_ns = metadata.first_ns;
        writer.copy(&metadata)?;
    }
    for block in blocks {
        writer.copy(block)?;
    }
    writer.losses(losses)?;
    writer.finish(end)
}
