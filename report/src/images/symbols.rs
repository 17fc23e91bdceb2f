//! Symbols: which function an address belongs to. Input: an image, or the output of `nm`, kallsyms or Xen's build.
//! Output: a sorted table that gives a name and an offset for an address. Names stay as the linker wrote them;
//! [`demangle`] makes them readable.

pub(crate) mod arena;
mod ghc;
mod ocaml;
mod demangle;
mod line;
mod go;
mod local;
mod text;
mod elf;
mod sections;
mod units;
mod paths;
mod discriminators;
mod dwarf;
mod lines;

pub use demangle::demangle;
pub(crate) use go::is_go;
pub use line::Line;
pub(crate) use line::{declare, has_undeclared};
pub use lines::Lines;
pub use sections::LineStore;
pub use text::TextError;

use crate::images::ImageAddress;
use crate::images::hypercalls;
use std::borrow::Cow;
use std::collections::HashSet;
use uprof::alias::{Alias, Binding, Kind};

/// A function without a size and without a successor gets the rest of its page and one more page (bytes), as in perf.
const PAGE_BYTES: u64 = 4096;
/// How deep symbols nest at most: a label within a function, a cold part within a section symbol.
const NESTED_MAX: usize = 8;

/// A name for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSymbol<'a> {
    /// As the linker wrote it; empty where the function is known only from unwind rules.
    pub name: &'a str,
    /// Where the function starts.
    pub start: ImageAddress,
    /// Offset of the address in it (bytes).
    pub offset_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// A function symbol before it is sorted into a table.
#[derive(Clone, Debug)]
struct Candidate<'a> {
    address: u64,
    /// 0 if unknown.
    size_bytes: u64,
    /// The limit of its end, if the size is unknown and no symbol follows.
    limit: u64,
    kind: Kind,
    binding: Binding,
    /// Empty where it is known only from unwind rules.
    name: Cow<'a, str>,
}

impl Candidate<'_> {
    fn alias(&self) -> Alias<'_> {
        Alias {
            name: &self.name,
            kind: self.kind,
            binding: self.binding,
            has_size: self.size_bytes != 0,
        }
    }

    /// Whether it may be a local label of an assembler.
    fn may_be_local_label(&self) -> bool {
        let is_label = match self.kind {
            Kind::Label => true,
            Kind::Unsaid => !local::is_split_off(&self.name),
            Kind::Object | Kind::Function => false,
        };
        is_label && self.size_bytes == 0 && self.binding == Binding::Local
    }
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
    /// Of each entry that starts within another, ascending: its number, and that of the innermost around it.
    around: Vec<(usize, usize)>,
}

impl SymbolTable {
    /// Builds a table from symbols embedded in a recording: address, size in bytes (0 if unknown) and name.
    pub(crate) fn from_symbols<'a>(
        symbols: impl Iterator<Item = (u64, u64, &'a str)>,
    ) -> SymbolTable {
        let candidates = symbols.map(|(address, size_bytes, name)| Candidate {
            address,
            size_bytes,
            limit: u64::MAX,
            kind: Kind::Function,
            binding: Binding::Global,
            name: Cow::Borrowed(name),
        });
        SymbolTable::build(candidates.collect(), Vec::new())
    }

    /// Number of symbols.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The innermost function that `address` belongs to.
    pub fn find(&self, address: ImageAddress) -> Option<FoundSymbol<'_>> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address.0);
        let near = std::iter::successors(after.checked_sub(1), |inner| self.around(*inner));
        let mut near = near.take(NESTED_MAX).map(|number| &self.entries[number]);
        let entry = near.find(|entry| address.0 < entry.end)?;
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

    /// The number of the entry that entry `inner` starts within.
    fn around(&self, inner: usize) -> Option<usize> {
        let at = self
            .around
            .binary_search_by_key(&inner, |(inner, _)| *inner);
        Some(self.around[at.ok()?].1)
    }

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.name_start as usize;
        &self.names[start..start + entry.name_bytes as usize]
    }

    /// Sorts, chooses one of several names of an address, and ends functions without a size. `borders` are addresses
    /// at which such a function ends even though no function starts there (data symbols).
    fn build(candidates: Vec<Candidate<'_>>, mut borders: Vec<u64>) -> SymbolTable {
        let candidates = one_for_each_address(with_hypercalls(candidates));
        borders.sort_unstable();
        let mut table = SymbolTable::default();
        // Until where unwind rules or a size say that a function reaches, and until where one with a name does.
        let (mut sized_until, mut named_until) = (0, 0);
        // Entries that reach beyond the last one's start, innermost last.
        let mut open: Vec<usize> = Vec::new();
        for (index, candidate) in candidates.iter().enumerate() {
            // A label inside a function with a size is not a function, nor is a part that only has unwind rules of
            // its own.
            let is_inside = match (&*candidate.name, candidate.size_bytes) {
                ("", _) => candidate.address < sized_until,
                (_, 0) => candidate.address < named_until,
                _ => false,
            };
            if is_inside {
                continue;
            }
            let end = match candidate.size_bytes {
                0 => {
                    let next = candidates.get(index + 1).map(|next| next.address);
                    let at = borders.partition_point(|border| *border <= candidate.address);
                    let border = borders.get(at).copied();
                    let follows = next.into_iter().chain(border).min();
                    let follows = follows.unwrap_or_else(|| end_alone(candidate.address));
                    let around = Some(sized_until).filter(|until| candidate.address < *until);
                    let limit = candidate.limit.min(around.unwrap_or(u64::MAX));
                    // A damaged image may end a section before its symbols.
                    follows.min(limit).max(candidate.address)
                }
                size_bytes => candidate.address.saturating_add(size_bytes),
            };
            if candidate.size_bytes != 0 {
                sized_until = sized_until.max(end);
                if !candidate.name.is_empty() {
                    named_until = named_until.max(end);
                }
            }
            let number = table.entries.len();
            if !table.push(candidate.address, end, &candidate.name) {
                break;
            }
            while open
                .pop_if(|outer| table.entries[*outer].end <= candidate.address)
                .is_some()
            {}
            table
                .around
                .extend(open.last().map(|outer| (number, *outer)));
            open.push(number);
        }
        table.around.shrink_to_fit();
        table.entries.shrink_to_fit();
        table.names.shrink_to_fit();
        table
    }

    /// Whether there was room.
    fn push(&mut self, address: u64, end: u64, name: &str) -> bool {
        let name_start = self.names.len();
        let (Ok(start), Ok(_)) = (
            u32::try_from(name_start),
            u32::try_from(name_start.saturating_add(name.len())),
        ) else {
            return false;
        };
        self.names.push_str(name);
        self.entries.push(Entry {
            address,
            end,
            name_start: start,
            name_bytes: name.len() as u32,
        });
        true
    }
}

/// Where the function at `address` ends at most, if it has no size and no successor.
fn end_alone(address: u64) -> u64 {
    let page = address.saturating_add(PAGE_BYTES) & !(PAGE_BYTES - 1);
    page.saturating_add(PAGE_BYTES)
}

/// Names the stubs of Xen's hypercall page, if there is one, that have no symbols of their own.
fn with_hypercalls(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let mut all = candidates.iter();
    let page = all.find(|one| one.name == hypercalls::SYMBOL && hypercalls::is_page(one.address));
    let Some(page) = page.cloned() else {
        return candidates;
    };
    let end = page.address + hypercalls::PAGE_BYTES;
    let inside = candidates.iter().map(|one| one.address);
    let named: HashSet<u64> = inside
        .filter(|address| (page.address + 1..end).contains(address))
        .collect();
    let stubs = hypercalls::stubs(page.address).filter(|(start, _)| !named.contains(start));
    candidates.extend(stubs.map(|(address, name)| Candidate {
        address,
        size_bytes: hypercalls::STUB_BYTES,
        name: Cow::Owned(name),
        ..page.clone()
    }));
    candidates
}

/// The best name of each address, ascending, without local labels.
fn one_for_each_address(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    candidates.sort_by(|a, b| {
        let same = || a.alias().compare(&b.alias());
        let then = || same().then(b.size_bytes.cmp(&a.size_bytes));
        a.address.cmp(&b.address).then_with(then)
    });
    let mut best: Vec<Candidate<'_>> = Vec::new();
    // Names of the last address that isn't a local label.
    let mut owners: Vec<Cow<'_, str>> = Vec::new();
    let mut last = None;
    for candidate in candidates {
        if last == Some(candidate.address) {
            let kept = best
                .last_mut()
                .filter(|kept| kept.address == candidate.address);
            let Some(kept) = kept else { continue };
            // A function without a size ends where its unwind rules end.
            if candidate.name.is_empty() && candidate.size_bytes != 0 {
                kept.limit = kept.limit.min(candidate.limit);
            }
            if owners.len() < NESTED_MAX {
                owners.push(candidate.name);
            }
            continue;
        }
        last = Some(candidate.address);
        let below = |owner: &Cow<'_, str>| local::is_below(&candidate.name, owner);
        if candidate.may_be_local_label() && owners.iter().any(below) {
            continue;
        }
        owners.clear();
        owners.push(candidate.name.clone());
        best.push(candidate);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: u64, size_bytes: u64, kind: Kind, name: &str) -> Candidate<'_> {
        Candidate {
            address,
            size_bytes,
            limit: u64::MAX,
            kind,
            binding: Binding::Global,
            name: Cow::Borrowed(name),
        }
    }

    fn local(mut candidate: Candidate<'_>) -> Candidate<'_> {
        candidate.binding = Binding::Local;
        candidate
    }

    fn name_at(table: &SymbolTable, address: u64) -> Option<&str> {
        table.find(ImageAddress(address)).map(|found| found.name)
    }

    /// glibc's unwind rules of `__restore_rt` begin one byte before it, and the symbol has no size.
    #[test]
    fn a_function_without_a_size_within_unwind_rules_keeps_its_name() {
        let table = SymbolTable::build(
            vec![
                candidate(0xff, 10, Kind::Function, ""),
                candidate(0x100, 0, Kind::Function, "__restore_rt"),
                candidate(0x200, 0x40, Kind::Function, "sized"),
                candidate(0x210, 0, Kind::Function, "label"),
            ],
            Vec::new(),
        );
        assert_eq!(name_at(&table, 0xff), Some(""));
        assert_eq!(name_at(&table, 0x100), Some("__restore_rt"));
        assert_eq!(name_at(&table, 0x108), Some("__restore_rt"));
        assert_eq!(name_at(&table, 0x109), None);
        assert_eq!(name_at(&table, 0x210), Some("sized"));
    }

    #[test]
    fn sizes_nesting_and_ends_are_kept() {
        let table = SymbolTable::build(
            vec![
                candidate(0x100, 0x100, Kind::Function, "outer"),
                candidate(0x140, 0x10, Kind::Function, "inner"),
                candidate(0x180, 0, Kind::Label, "label"),
                candidate(0x300, 0, Kind::Function, "unsized"),
                candidate(0x1ff0, 0, Kind::Function, "last"),
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
    fn a_function_is_found_behind_many_within_it() {
        let many = (1..=2 * NESTED_MAX as u64).map(|number| number * 0x10);
        let inner = many.map(|at| candidate(at, 8, Kind::Function, "inner"));
        let outer = candidate(0, 0x1000, Kind::Function, "outer");
        let deepest = candidate(0x200, 0x100, Kind::Function, "middle");
        let last = candidate(0x210, 8, Kind::Function, "last");
        let all = [outer].into_iter().chain(inner).chain([deepest, last]);
        let table = SymbolTable::build(all.collect(), vec![]);
        assert_eq!(name_at(&table, 0x107), Some("inner"));
        assert_eq!(name_at(&table, 0x108), Some("outer"));
        assert_eq!(name_at(&table, 0x218), Some("middle"));
        assert_eq!(name_at(&table, 0x300), Some("outer"));
        assert_eq!(name_at(&table, 0x1000), None);
    }

    #[test]
    fn stubs_of_a_hypercall_page_have_names() {
        let mut candidates = vec![
            candidate(0x1000, 0, Kind::Label, "hypercall_page"),
            candidate(0x1000 + 32 * 32, 0, Kind::Label, "its_own"),
            candidate(0x2000, 0, Kind::Label, "next"),
        ];
        let table = SymbolTable::build(candidates.clone(), vec![]);
        assert_eq!(
            name_at(&table, 0x1000 + 29 * 32 + 10),
            Some("xen_hypercall_sched_op")
        );
        assert_eq!(name_at(&table, 0x1000 + 32 * 32 + 8), Some("its_own"));
        assert_eq!(name_at(&table, 0x2000), Some("next"));
        candidates[0].size_bytes = 4096;
        let table = SymbolTable::build(candidates.clone(), vec![]);
        assert_eq!(
            name_at(&table, 0x1000 + 29 * 32 + 31),
            Some("xen_hypercall_sched_op")
        );
        assert_eq!(name_at(&table, 0x1000 + 11 * 32), Some("xen_hypercall_11"));
        candidates[0].address = 0x1010;
        let table = SymbolTable::build(candidates, vec![]);
        assert_eq!(name_at(&table, 0x1000 + 29 * 32), Some("hypercall_page"));
    }

    #[test]
    fn of_several_names_the_best_wins() {
        let table = SymbolTable::build(
            vec![
                local(candidate(0x100, 8, Kind::Function, "__GI_memcpy")),
                candidate(0x100, 8, Kind::Function, "memmove"),
                candidate(0x100, 8, Kind::Function, "memcpy"),
                candidate(0x100, 0, Kind::Label, "m"),
            ],
            vec![],
        );
        assert_eq!(name_at(&table, 0x104), Some("memcpy"));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn local_labels_do_not_end_a_function() {
        let table = SymbolTable::build(
            vec![
                candidate(0x100, 0, Kind::Label, "main"),
                candidate(0x100, 0, Kind::Label, "_main"),
                local(candidate(0x110, 0, Kind::Label, "main.loop")),
                local(candidate(0x118, 0, Kind::Label, "_main.end")),
                local(candidate(0x120, 0, Kind::Label, "helper")),
                local(candidate(0x130, 0, Kind::Label, "main.not_its_own")),
                local(candidate(0x140, 0, Kind::Unsaid, "main.not_its_own.part.0")),
                candidate(0x150, 0, Kind::Label, "main.global"),
            ],
            vec![0x160],
        );
        assert_eq!(name_at(&table, 0x11f), Some("main"));
        assert_eq!(name_at(&table, 0x120), Some("helper"));
        assert_eq!(name_at(&table, 0x130), Some("main.not_its_own"));
        assert_eq!(name_at(&table, 0x140), Some("main.not_its_own.part.0"));
        assert_eq!(name_at(&table, 0x150), Some("main.global"));
        assert_eq!(table.len(), 5);
    }

    #[test]
    fn what_has_no_size_ends_with_the_rules_that_unwind_it() {
        let mut rules = candidate(0x100, 0x20, Kind::Label, "");
        rules.limit = 0x120;
        let table = SymbolTable::build(
            vec![candidate(0x100, 0, Kind::Function, "memcpy"), rules],
            vec![],
        );
        assert_eq!(name_at(&table, 0x11f), Some("memcpy"));
        assert_eq!(name_at(&table, 0x120), None);
    }

    #[test]
    fn addresses_at_the_top_do_not_overflow() {
        let top = u64::MAX - 3;
        let table = SymbolTable::build(
            vec![
                candidate(top - 8, u64::MAX, Kind::Function, "huge"),
                candidate(top, 0, Kind::Function, "top"),
            ],
            vec![],
        );
        assert_eq!(name_at(&table, top - 1), Some("huge"));
    }
}
