//! Finds an AArch64 guest's kernel by its page tables. Linux has the root table of the upper half in its own image
//! (`swapper_pg_dir`), wherever the image was moved to.

use super::{ARM_ROOT, Descriptor, Half, Paging, TableReader};
use std::ops::Range;

/// Most words that a search reads: 4096 tables of 4 KiB. Of Linux it reads the tables of the kernel's modules, of
/// memory that was allocated in pieces, and of its image.
pub const MOST_WORDS: usize = 1 << 21;

impl Paging {
    /// The address at which the upper half's root is mapped, in the upper part of that half, since Linux maps all
    /// memory in the lower part. `None` if it isn't mapped there, or if there is no such root.
    #[cold]
    pub fn own_address(&self, memory: &mut impl TableReader) -> Option<u64> {
        let Paging::Aarch64 { ttbr1, tcr, .. } = *self else {
            return None;
        };
        let half = Half::of(tcr, true);
        let (granule_bits, levels) = half.levels().ok()?;
        let mut search = Search {
            memory,
            granule_bits,
            wanted: ttbr1 & ARM_ROOT,
            words: MOST_WORDS,
        };
        let entries = 1 << (half.input_bits - search.shift(levels - 1));
        let first = u64::MAX << half.input_bits;
        search.look(search.wanted, levels - 1, entries / 2..entries, first)
    }
}

struct Search<'a, Memory> {
    memory: &'a mut Memory,
    granule_bits: u32,
    /// The physical address to find.
    wanted: u64,
    /// Number of words that may still be read.
    words: usize,
}

impl<Memory: TableReader> Search<'_, Memory> {
    /// Number of address bits that an entry of `level` maps.
    fn shift(&self, level: u32) -> u32 {
        self.granule_bits + (self.granule_bits - 3) * level
    }

    /// Searches `entries` of `table`, which maps addresses from `first` on.
    fn look(&mut self, table: u64, level: u32, entries: Range<u64>, first: u64) -> Option<u64> {
        let shift = self.shift(level);
        for index in entries {
            self.words = self.words.checked_sub(1)?;
            let word = table + index * 8;
            let entry = self
                .memory
                .table_word(word >> 12, (word & 0xfff) as usize / 8)?;
            let address = first + (index << shift);
            let inside = (1 << shift) - 1;
            let found = match Descriptor::of(entry, level, self.granule_bits) {
                Ok(Descriptor::Memory(base)) if base & !inside == self.wanted & !inside => {
                    Some(address | self.wanted & inside)
                }
                Ok(Descriptor::Table(table)) => {
                    let all = 0..1 << (self.granule_bits - 3);
                    self.look(table, level - 1, all, address)
                }
                Ok(Descriptor::Memory(_)) | Err(_) => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
