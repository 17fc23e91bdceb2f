//! The index at the end of a recording (format-spec.md, section 8).

use crate::cold;
use crate::error::Fault;
use crate::layout::{INDEX_TRAILER, MAX_INDEX_ENTRIES, MAX_RECORDS_BYTES};
use serde::{Deserialize, Serialize};

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Offset of the block's header in the file.
    pub offset: u64,
    /// Number of the block type.
    pub block_type: u16,
    /// Earliest time inside.
    pub first_ns: u64,
    /// Latest time inside.
    pub last_ns: u64,
    /// Samples inside.
    pub samples: u32,
}

/// Gathers the entries of a recording that is being written.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    entries: Vec<IndexEntry>,
}

impl IndexBuilder {
    /// Adds the next block.
    pub fn push(&mut self, entry: IndexEntry) {
        // One more than allowed marks an index that will not be written.
        if self.entries.len() <= MAX_INDEX_ENTRIES {
            self.entries.push(entry);
        }
    }

    /// Appends the payload of the index block whose header is at `offset`; `false` where the
    /// recording has more blocks than an index may hold.
    pub fn put(&self, offset: u64, out: &mut Vec<u8>) -> Result<bool, Fault> {
        if self.entries.len() > MAX_INDEX_ENTRIES {
            return Ok(false);
        }
        cold::put(out, &self.entries)?;
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&INDEX_TRAILER);
        Ok(out.len() <= MAX_RECORDS_BYTES)
    }
}

/// Where the index block of a file that ends with `bytes` says to stand.
pub(crate) fn trailer_offset(bytes: &[u8]) -> Option<u64> {
    let (before, trailer) = bytes.split_last_chunk::<8>()?;
    let (_, offset) = before.split_last_chunk::<8>()?;
    (*trailer == INDEX_TRAILER).then_some(u64::from_le_bytes(*offset))
}
