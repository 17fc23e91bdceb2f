//! The header of Go's function table, and access to its parts.

use super::TEXT_BYTES_MAX;
use crate::work;

/// Most steps in one table of values, from the start of a function to an address. A function of 1 MiB has less than a
/// hundred thousand.
const STEPS_MAX: usize = 1 << 18;

/// Layouts, by the Go version that introduced them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Go12,
    Go116,
    Go118,
    Go120,
}

/// The parts of a table.
#[derive(Debug)]
pub(super) struct Tables<'i> {
    pub bytes: &'i [u8],
    pub version: Version,
    /// Number of functions.
    pub functions: usize,
    /// The base of functions' addresses, from Go 1.18 on.
    pub text_start: u64,
    /// The least size of an instruction (bytes).
    quantum: u64,
    /// Offsets in `bytes`, of: names; numbers of files, by unit; paths of files; values by
    /// address; functions by address, which are followed by their descriptions.
    names: usize,
    pub units: usize,
    pub files: usize,
    values: usize,
    index: usize,
}

impl<'i> Tables<'i> {
    /// Numbers of fields of a function's description, counted from its name.
    pub(crate) const FILES: usize = 4;
    pub(crate) const LINES: usize = 5;
    /// The number of tables of values.
    pub(crate) const VALUES: usize = 6;
    pub(crate) const UNIT: usize = 7;
    const START_LINE: usize = 8;

    pub(crate) fn read(bytes: &'i [u8]) -> Option<Tables<'i>> {
        let version = match u32_at(bytes, 0)? {
            0xffff_fffb => Version::Go12,
            0xffff_fffa => Version::Go116,
            0xffff_fff0 => Version::Go118,
            0xffff_fff1 => Version::Go120,
            _ => return None,
        };
        let &[0, 0, quantum @ (1 | 2 | 4), 8] = bytes.get(4..8)? else {
            return None;
        };
        let word = |number: usize| u64_at(bytes, 8 + 8 * number);
        let offset = |number: usize| usize::try_from(word(number)?).ok();
        let functions = offset(0)?;
        let mut tables = Tables {
            bytes,
            version,
            functions,
            text_start: 0,
            quantum: u64::from(quantum),
            names: 0,
            units: 0,
            files: 0,
            values: 0,
            index: 0,
        };
        match version {
            Version::Go12 => {
                tables.index = 16;
                // After the functions and the end of the last one.
                let index_bytes = functions.checked_mul(16)?.checked_add(8)?;
                let files = u32_at(bytes, index_bytes.checked_add(16)?)?;
                tables.files = files as usize;
            }
            Version::Go116 => {
                [tables.names, tables.units] = [offset(2)?, offset(3)?];
                [tables.files, tables.values, tables.index] = [offset(4)?, offset(5)?, offset(6)?];
            }
            Version::Go118 | Version::Go120 => {
                tables.text_start = word(2)?;
                [tables.names, tables.units] = [offset(3)?, offset(4)?];
                [tables.files, tables.values, tables.index] = [offset(5)?, offset(6)?, offset(7)?];
            }
        }
        // There can't be more functions than bytes for them.
        let index_bytes = bytes.len().checked_sub(tables.index)?;
        tables.functions = functions.min(index_bytes / tables.entry_bytes());
        Some(tables)
    }

    fn entry_bytes(&self) -> usize {
        match self.version {
            Version::Go12 | Version::Go116 => 16,
            Version::Go118 | Version::Go120 => 8,
        }
    }

    /// The start of function `number`, and the offset of its description. One past the last gives its end.
    pub(crate) fn entry(&self, number: usize) -> Option<(u64, usize)> {
        let at = number.checked_mul(self.entry_bytes())?;
        let at = self.index.checked_add(at)?;
        let (start, described) = match self.version {
            Version::Go12 | Version::Go116 => {
                let described = u64_at(self.bytes, at.checked_add(8)?).unwrap_or(0);
                (u64_at(self.bytes, at)?, usize::try_from(described).ok()?)
            }
            Version::Go118 | Version::Go120 => {
                let described = u32_at(self.bytes, at.checked_add(4)?).unwrap_or(0);
                let start = u64::from(u32_at(self.bytes, at)?);
                (self.text_start.wrapping_add(start), described as usize)
            }
        };
        let base = match self.version {
            Version::Go12 => 0,
            _ => self.index,
        };
        Some((start, base.checked_add(described)?))
    }

    /// Size of the address at the start of a description (bytes).
    pub(crate) fn address_bytes(&self) -> usize {
        match self.version {
            Version::Go12 | Version::Go116 => 8,
            Version::Go118 | Version::Go120 => 4,
        }
    }

    /// A field of the description at `at`, counted from the function's name.
    pub(crate) fn field(&self, at: usize, number: usize) -> Option<u32> {
        let into = self.address_bytes().checked_add(number.checked_mul(4)?)?;
        u32_at(self.bytes, at.checked_add(into)?)
    }

    /// The line on which the function that is described at `at` starts; 0 before Go 1.20.
    pub(crate) fn start_line(&self, at: usize) -> u32 {
        let has_line = self.version >= Version::Go120;
        let line = has_line.then(|| self.field(at, Self::START_LINE)).flatten();
        line.unwrap_or(0)
    }

    /// The name at `offset` of the names.
    pub(crate) fn name(&self, offset: usize) -> Option<&'i str> {
        self.text(self.names.checked_add(offset)?)
    }

    /// The text at `at`, up to its zero.
    pub(crate) fn text(&self, at: usize) -> Option<&'i str> {
        let rest = self.bytes.get(at..)?;
        let rest = &rest[..rest.len().min(TEXT_BYTES_MAX + 1)];
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }

    /// The value at `into_bytes` from the function's start, by the table of values at `table`.
    pub(crate) fn value(&self, table: usize, into_bytes: u64) -> Option<i32> {
        // Offset 0 means no table.
        if table == 0 {
            return None;
        }
        let mut rest = self.bytes.get(self.values.checked_add(table)?..)?;
        let (mut value, mut until) = (-1_i32, 0_u64);
        for step in 0..STEPS_MAX {
            work::take(1);
            let change = varint(&mut rest)?;
            if change == 0 && step > 0 {
                return None;
            }
            // Zigzag encoding: the lowest bit is the sign.
            let sign = (change & 1).wrapping_neg();
            value = value.wrapping_add(((change >> 1) ^ sign) as i32);
            let more = u64::from(varint(&mut rest)?).wrapping_mul(self.quantum);
            until = until.checked_add(more)?;
            if into_bytes < until {
                return Some(value);
            }
        }
        None
    }
}

fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
