//! Section 3, segments: load addresses of the parts of an image's file.

use super::section::{Entry, SectionReader};
use crate::error::Fault;
use crate::varint;

/// The only flag.
const HAS_CODE: u64 = 1;

/// Mappings start at page boundaries; this is the smallest page.
const PAGE_BYTES: u64 = 4096;

/// Greatest length of an image: code addresses its data with 31 bits.
const LONGEST_BYTES: u64 = 1 << 31;

/// A loadable piece of an image (ELF `PT_LOAD`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First address, before the load bias.
    pub address: u64,
    /// Offset of its bytes in the file.
    pub file_offset: u64,
    /// Its size in the file, in bytes.
    pub file_bytes: u64,
    /// Its size in memory, in bytes.
    pub memory_bytes: u64,
    /// Whether it holds code.
    pub has_code: bool,
}

impl Segment {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.address);
        varint::put(out, self.file_offset);
        varint::put(out, self.file_bytes);
        varint::put(out, self.memory_bytes);
        varint::put(out, if self.has_code { HAS_CODE } else { 0 });
    }
}

impl Entry for Segment {
    const LEAST_BYTES: usize = 5;

    fn read(reader: &mut SectionReader<'_>, _: &mut u64, _: usize) -> Result<Self, Fault> {
        Ok(Segment {
            address: reader.number()?,
            file_offset: reader.number()?,
            file_bytes: reader.number()?,
            memory_bytes: reader.number()?,
            has_code: reader.number()? & HAS_CODE != 0,
        })
    }
}

/// The lowest page of an image, to which its load address refers. `segments` are addresses and whether they hold code.
/// Segments far from the code are ignored, since Linux states those of per-processor data at 0. `None` if there is no
/// code.
pub fn lowest_page(segments: impl Iterator<Item = (u64, bool)> + Clone) -> Option<u64> {
    let (code, _) = segments.clone().find(|&(_, has_code)| has_code)?;
    let near = segments
        .map(|(address, _)| address)
        .filter(|address| address.abs_diff(code) < LONGEST_BYTES);
    Some(near.min()? & !(PAGE_BYTES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_page_is_one_near_code() {
        let lowest = |segments: &[(u64, bool)]| lowest_page(segments.iter().copied());
        let segments = [(0x40_0123, false), (0x40_1000, true)];
        assert_eq!(lowest(&segments), Some(0x40_0000));
        let kernel = 0xffff_ffff_8100_0000;
        assert_eq!(lowest(&[(kernel, true), (0, false)]), Some(kernel));
        assert_eq!(lowest(&[(0x1000, false)]), None);
    }
}
