//! A column of one varint a row, which is left out if all are zero (format-spec.md, section 5.1).

use crate::error::Fault;
use crate::varint::{self, Cursor};

/// Builds such a column.
#[derive(Default)]
pub(crate) struct NumberBuilder {
    /// Empty until a row has another number than zero.
    bytes: Vec<u8>,
    /// Rows before that one.
    zeros: usize,
}

impl NumberBuilder {
    #[inline]
    pub fn push(&mut self, value: u64) {
        if self.bytes.is_empty() {
            if value == 0 {
                self.zeros += 1;
                return;
            }
            self.bytes.resize(self.zeros, 0);
        }
        varint::put(&mut self.bytes, value);
    }

    /// The column, empty if all rows are zero.
    pub fn column(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all rows, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.zeros = 0;
    }
}

/// Reads such a column: zeros if the block does not have it.
pub(crate) struct NumberReader<'a>(pub Option<Cursor<'a>>);

impl NumberReader<'_> {
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        match &mut self.0 {
            Some(cursor) => cursor.varint(),
            None => Ok(0),
        }
    }

    /// The next difference, applied to `from`.
    #[inline]
    pub fn delta(&mut self, from: u64) -> Result<u64, Fault> {
        match &mut self.0 {
            Some(cursor) => cursor.delta(from),
            None => Ok(from),
        }
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Fault> {
        match &mut self.0 {
            Some(cursor) => cursor.byte(),
            None => Ok(0),
        }
    }
}

/// 0 if unknown, otherwise the value plus one; the largest value is stored as one less than it was.
pub(crate) fn plus_one(value: Option<u64>) -> u64 {
    value.map_or(0, |value| value.saturating_add(1))
}
