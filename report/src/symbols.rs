//! Symbols: which function an address belongs to. An image, or the text that `nm`, kallsyms or
//! Xen's build print, goes in; a sorted table comes out that answers with a name and an offset.
//! Names stay as the linker wrote them until someone asks for [`demangle`].

mod demangle;
mod elf;
mod lines;
mod ocaml;
mod text;

pub use demangle::demangle;
pub use lines::{Line, LineStore, Lines};
pub use text::TextError;

use crate::images::ImageAddress;

/// A function without a size that nothing follows can't go on for ever: it is given the rest of
/// its page and one page more (bytes), as perf does.
const PAGE_BYTES: u64 = 4096;
/// How many symbols that start before an address are asked whether they reach it. Symbols nest a
/// few deep at most: a label within a function, a cold part within a section symbol.
const NESTED_MAX: usize = 8;

/// A name for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSymbol<'a> {
    /// As the linker wrote it; empty where only the unwind rules tell of the function.
    pub name: &'a str,
    /// Where the function starts.
    pub start: ImageAddress,
    /// How far into it the address is (bytes).
    pub offset_bytes: u64,
    /// How long it is (bytes).
    pub size_bytes: u64,
}

/// A function symbol before it is sorted into a table.
#[derive(Clone, Debug)]
struct Candidate<'a> {
    address: u64,
    /// 0 if nobody said.
    size_bytes: u64,
    /// Where it ends at the latest, if the size is unknown and no symbol follows.
    limit: u64,
    /// Higher wins among names for the same address.
    rank: u8,
    name: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    end: u64,
    name_start: u32,
    name_bytes: u32,
}

/// Function symbols of one image, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    entries: Vec<Entry>,
    names: String,
}

impl SymbolTable {
    /// Takes symbols that travelled with a recording: address, size in bytes (0 if nobody said)
    /// and name.
    pub fn from_symbols<'a>(symbols: impl Iterator<Item = (u64, u64, &'a str)>) -> SymbolTable {
        let candidates = symbols.map(|(address, size_bytes, name)| Candidate {
            address,
            size_bytes,
            limit: u64::MAX,
            rank: 1,
            name,
        });
        SymbolTable::build(candidates.collect(), Vec::new())
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no symbol at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The innermost function that `address` belongs to.
    pub fn find(&self, address: ImageAddress) -> Option<FoundSymbol<'_>> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address.0);
        let near = self.entries[..after].iter().rev().take(NESTED_MAX);
        let entry = near.into_iter().find(|entry| address.0 < entry.end)?;
        Some(FoundSymbol {
            name: self.name(entry),
            start: ImageAddress(entry.address),
            offset_bytes: address.0 - entry.address,
            size_bytes: entry.end - entry.address,
        })
    }

    /// Where the symbol called `name` (undecorated, as the linker wrote it) starts.
    pub fn address_of(&self, name: &str) -> Option<ImageAddress> {
        let entry = self.entries.iter().find(|entry| self.name(entry) == name)?;
        Some(ImageAddress(entry.address))
    }

    /// All symbols as (start, end, name), ascending.
    pub fn iter(&self) -> impl Iterator<Item = (ImageAddress, ImageAddress, &str)> {
        self.entries.iter().map(|entry| {
            (
                ImageAddress(entry.address),
                ImageAddress(entry.end),
                self.name(entry),
            )
        })
    }

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.name_start as usize;
        &self.names[start..start + entry.name_bytes as usize]
    }

    /// Sorts, settles which of several names an address gets, and ends what has no size.
    /// `borders` are addresses at which a function without a size ends even though no function
    /// starts there (data symbols).
    fn build(mut candidates: Vec<Candidate<'_>>, mut borders: Vec<u64>) -> SymbolTable {
        candidates.sort_by(|a, b| {
            (a.address, b.rank, b.size_bytes, a.name.len(), a.name).cmp(&(
                b.address,
                a.rank,
                a.size_bytes,
                b.name.len(),
                b.name,
            ))
        });
        candidates.dedup_by_key(|candidate| candidate.address);
        borders.sort_unstable();
        let mut table = SymbolTable::default();
        let mut sized_until = 0;
        for (index, candidate) in candidates.iter().enumerate() {
            // A label inside a function that has a size is not a function, nor is a part of it
            // that is only unwound by rules of its own.
            let is_minor = candidate.size_bytes == 0 || candidate.name.is_empty();
            if is_minor && candidate.address < sized_until {
                continue;
            }
            let end = match candidate.size_bytes {
                0 => {
                    let next = candidates.get(index + 1).map(|next| next.address);
                    let at = borders.partition_point(|border| *border <= candidate.address);
                    let border = borders.get(at).copied();
                    let page = candidate.address.saturating_add(PAGE_BYTES) & !(PAGE_BYTES - 1);
                    let alone = page.saturating_add(PAGE_BYTES);
                    let follows = next.into_iter().chain(border).min().unwrap_or(alone);
                    // A damaged image may end a section before its symbols.
                    follows.min(candidate.limit).max(candidate.address)
                }
                size_bytes => candidate.address.saturating_add(size_bytes),
            };
            let Ok(name_start) = u32::try_from(table.names.len()) else {
                break;
            };
            let Ok(name_bytes) = u32::try_from(candidate.name.len()) else {
                continue;
            };
            if name_start.checked_add(name_bytes).is_none() {
                break;
            }
            if candidate.size_bytes != 0 {
                sized_until = sized_until.max(end);
            }
            table.names.push_str(candidate.name);
            table.entries.push(Entry {
                address: candidate.address,
                end,
                name_start,
                name_bytes,
            });
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: u64, size_bytes: u64, rank: u8, name: &str) -> Candidate<'_> {
        Candidate {
            address,
            size_bytes,
            limit: u64::MAX,
            rank,
            name,
        }
    }

    fn name_at(table: &SymbolTable, address: u64) -> Option<&str> {
        table.find(ImageAddress(address)).map(|found| found.name)
    }

    #[test]
    fn sizes_nesting_and_ends_are_kept() {
        let table = SymbolTable::build(
            vec![
                candidate(0x100, 0x100, 1, "outer"),
                candidate(0x140, 0x10, 1, "inner"),
                candidate(0x180, 0, 0, "label"),
                candidate(0x300, 0, 1, "unsized"),
                candidate(0x1ff0, 0, 1, "last"),
            ],
            vec![0x380],
        );
        assert_eq!(name_at(&table, 0xff), None);
        assert_eq!(name_at(&table, 0x13f), Some("outer"));
        assert_eq!(name_at(&table, 0x14f), Some("inner"));
        assert_eq!(name_at(&table, 0x150), Some("outer"));
        assert_eq!(name_at(&table, 0x190), Some("outer"));
        assert_eq!(name_at(&table, 0x200), None);
        assert_eq!(name_at(&table, 0x37f), Some("unsized"));
        assert_eq!(name_at(&table, 0x380), None);
        assert_eq!(name_at(&table, 0x2fff), Some("last"));
        assert_eq!(name_at(&table, 0x3000), None);
        assert_eq!(table.address_of("inner"), Some(ImageAddress(0x140)));
    }

    #[test]
    fn of_several_names_the_best_ranked_and_shortest_wins() {
        let table = SymbolTable::build(
            vec![
                candidate(0x100, 8, 1, "memcpy@plain"),
                candidate(0x100, 8, 2, "memmove"),
                candidate(0x100, 8, 2, "memcpy"),
            ],
            vec![],
        );
        assert_eq!(name_at(&table, 0x104), Some("memcpy"));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn addresses_at_the_top_do_not_overflow() {
        let top = u64::MAX - 3;
        let table = SymbolTable::build(
            vec![
                candidate(top - 8, u64::MAX, 1, "huge"),
                candidate(top, 0, 1, "top"),
            ],
            vec![],
        );
        assert_eq!(name_at(&table, top - 1), Some("huge"));
    }
}
