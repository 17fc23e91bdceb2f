//! Functions that a program generated at run time: their addresses, and their times.
//!
//! Input: functions as reported by the program, and the memory that can hold them. Output: symbol tables and mappings
//! for the recording. When an address is reused, the new function goes into a table of a later generation. That table
//! is mapped over the old one from that time on.

use crate::backends::process::registers::ARCH;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uprof::cold::Mapping;
use uprof::{ImageIdentity, ImagePart, Symbol};

/// Path of code without a file in a recording.
pub const PATH: &str = "[jit]";
/// Most functions of a process; further ones have no names.
pub const MOST_FUNCTIONS: usize = 1 << 18;
/// Most reuses of addresses in a process; further ones are ignored.
pub const MOST_REUSES: usize = 1 << 13;
/// Longest name in bytes; a longer one is cut.
pub const MOST_NAME_BYTES: usize = 1024;
/// Most bytes of the functions of all processes together: their names, and what else is kept of them.
pub const TABLES_BYTES_MAX: usize = 256 << 20;
/// Bytes that count for a function beside its name.
const ENTRY_BYTES: usize = 64;
/// Most pieces of memory of a process that may hold such code.
pub const MOST_PIECES: usize = 1 << 12;
/// Most pieces that a function may lie in; a compiler's lies in one or two. A target could name one function a hundred
/// thousand times.
const MOST_PIECES_OF_ONE: usize = 64;

/// A function as reported by the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Name.
    pub name: String,
    /// When it was generated.
    pub since_ns: u64,
}

/// The bytes of one table of names, among those of all tables.
#[derive(Debug, Default)]
pub struct TableBytes {
    all: Rc<Cell<usize>>,
    own: usize,
}

impl TableBytes {
    /// Those of a further table, with the same limit.
    pub fn share(&self) -> TableBytes {
        TableBytes {
            all: Rc::clone(&self.all),
            own: 0,
        }
    }

    /// Counts an entry; returns whether there is room for it.
    pub fn take(&mut self, name_bytes: usize) -> bool {
        let bytes = name_bytes + ENTRY_BYTES;
        let all = self.all.get() + bytes;
        let has_room = all <= TABLES_BYTES_MAX;
        if has_room {
            self.all.set(all);
            self.own += bytes;
        }
        has_room
    }

    /// An entry was removed.
    pub fn give_back(&mut self, name_bytes: usize) {
        let bytes = name_bytes + ENTRY_BYTES;
        self.all.set(self.all.get() - bytes);
        self.own -= bytes;
    }
}

impl Drop for TableBytes {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.own);
    }
}

/// The functions of one process.
#[derive(Debug)]
pub struct Functions {
    /// Bytes of the known ones.
    pub bytes: TableBytes,
    /// Distinguishes these tables from those of other processes.
    serial: u32,
    /// The latest table of functions at reused addresses.
    generation: u32,
    known: BTreeMap<u64, Known>,
    /// Starts of functions that are in no table yet.
    fresh: Vec<u64>,
    /// Memory without a file that may hold code, by start, without overlap.
    pieces: BTreeMap<u64, Piece>,
    reuses: usize,
}

#[derive(Debug)]
struct Known {
    length: u64,
    /// Empty for what is left of a function of which a part was used again: its table still has all of it.
    name: String,
    generation: u32,
    /// Whether it is in a table.
    recorded: bool,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    length: u64,
    since_ns: u64,
    /// Whether it was recorded as a mapping of such code.
    recorded: bool,
    /// Whether it is a copy of another process's code, which that process's tables name.
    inherited: bool,
}

/// Additions to the recording.
#[derive(Debug, Default)]
pub struct NewCode {
    /// Mappings and their times, in order.
    pub mappings: Vec<(u64, Mapping)>,
    /// Symbols.
    pub parts: Vec<ImagePart>,
    /// Functions left out for lack of room.
    pub lost: u64,
}

impl Functions {
    /// Without functions; `serial` is unique to the process.
    pub fn new(serial: u32) -> Functions {
        Functions {
            bytes: TableBytes::default(),
            serial,
            generation: 0,
            known: BTreeMap::new(),
            fresh: Vec::new(),
            pieces: BTreeMap::new(),
            reuses: 0,
        }
    }

    /// Adds memory that may hold code from `since_ns` on. Any part of it that is known already may have held code since
    /// it was first seen. The new parts are returned: start and length.
    pub fn piece(&mut self, start: u64, length: u64, since_ns: u64) -> Vec<(u64, u64)> {
        let Some(end) = start.checked_add(length) else {
            return Vec::new();
        };
        let mut gaps = Vec::new();
        let mut reached = start;
        for at in self.touched(start, end) {
            if at > reached {
                gaps.push((reached, at - reached));
            }
            reached = at + self.pieces[&at].length;
        }
        if reached < end {
            gaps.push((reached, end - reached));
        }
        for &(start, length) in &gaps {
            if self.pieces.len() < MOST_PIECES {
                let piece = Piece {
                    length,
                    since_ns,
                    recorded: false,
                    inherited: false,
                };
                self.pieces.insert(start, piece);
            }
        }
        gaps
    }

    /// The memory that may hold code, for [`Functions::inherit`]: start, length, and whether it has code. What is
    /// behind the last function of a piece has none.
    pub fn for_copy(&self) -> Vec<(u64, u64, bool)> {
        let split = |(&start, piece): (&u64, &Piece)| {
            let end = start + piece.length;
            let last = self.known.range(..end).next_back();
            let code_end = match last {
                _ if piece.inherited => end,
                Some((at, known)) => at.saturating_add(known.length).clamp(start, end),
                None => start,
            };
            [
                (start, code_end - start, true),
                (code_end, end - code_end, false),
            ]
        };
        let parts = self.pieces.iter().flat_map(split);
        parts.filter(|(_, length, _)| *length > 0).collect()
    }

    /// Adds memory that was copied from another process at `since_ns`, with its mappings, as [`Functions::for_copy`]
    /// returns it.
    pub fn inherit(&mut self, pieces: Vec<(u64, u64, bool)>, since_ns: u64) {
        for (start, length, has_code) in pieces {
            for (at, _) in self.piece(start, length, since_ns) {
                if let Some(piece) = self.pieces.get_mut(&at) {
                    (piece.recorded, piece.inherited) = (has_code, has_code);
                }
            }
        }
    }

    /// Removes memory that was replaced by something else.
    pub fn lose(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        for at in self.touched(start, end) {
            let Some(piece) = self.pieces.remove(&at) else {
                continue;
            };
            for (from, to) in [(at, start), (end, at + piece.length)] {
                if from < to && self.pieces.len() < MOST_PIECES {
                    let length = to - from;
                    self.pieces.insert(from, Piece { length, ..piece });
                }
            }
        }
    }

    /// The starts of the pieces that have a part between two addresses.
    fn touched(&self, start: u64, end: u64) -> Vec<u64> {
        let reaches = |(at, piece): &(&u64, &Piece)| **at + piece.length > start;
        let before = self.pieces.range(..start).next_back().filter(reaches);
        let inside = self.pieces.range(start..end);
        let both = before.into_iter().chain(inside);
        both.map(|(at, _)| *at).collect()
    }

    /// The starts of the pieces that hold all of a function, if they do.
    fn pieces_of(&self, start: u64, length: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(length)?;
        let (first, _) = self.pieces.range(..=start).next_back()?;
        let mut reached = *first;
        let mut found = Vec::new();
        for (at, piece) in self.pieces.range(*first..end) {
            if *at != reached || found.len() >= MOST_PIECES_OF_ONE {
                return None;
            }
            found.push(*at);
            reached = at + piece.length;
        }
        (reached >= end).then_some(found)
    }

    /// Whether all of a function is in memory that may hold code.
    pub fn has_room(&self, function: &Function) -> bool {
        self.pieces_of(function.start, function.length).is_some()
    }

    /// Adds functions in the order in which they were generated.
    pub fn add(&mut self, functions: Vec<Function>) -> NewCode {
        let mut new = NewCode::default();
        self.generation += 1;
        for function in functions {
            // A function outside this memory would hide functions of images.
            if let Some(pieces) = self.pieces_of(function.start, function.length) {
                self.take(function, &pieces, &mut new);
            }
        }
        new.parts = self.tables();
        new
    }

    fn take(&mut self, function: Function, pieces: &[u64], new: &mut NewCode) {
        let Function {
            start,
            length,
            mut name,
            since_ns,
        } = function;
        cut(&mut name);
        let same = |known: &Known| known.length == length && known.name == name;
        if self.known.get(&start).is_some_and(same) {
            return;
        }
        let is_copy = |at: &u64| self.pieces.get(at).is_some_and(|piece| piece.inherited);
        let is_inherited = pieces.iter().any(is_copy);
        // Many long functions may each overlap many others: those are looked at only if they will be replaced.
        let is_full = if is_inherited || self.overlapping(start, length).next().is_some() {
            self.reuses >= MOST_REUSES
        } else {
            self.known.len() >= MOST_FUNCTIONS
        };
        if is_full || !self.bytes.take(name.capacity()) {
            new.lost += 1;
            return;
        }
        let before: Vec<u64> = self.overlapping(start, length).collect();
        let now = self.generation;
        let is_recorded = |at: &u64| self.known[at].recorded || self.known[at].generation == now;
        let is_reuse = is_inherited || before.iter().any(is_recorded);
        for at in before {
            let Some(known) = self.known.remove(&at) else {
                continue;
            };
            self.bytes.give_back(known.name.capacity());
            let is_recorded = known.recorded || known.generation == now;
            for (from, to) in [(at, start), (start + length, at + known.length)] {
                if is_recorded && from < to && self.bytes.take(0) {
                    let rest = Known {
                        length: to - from,
                        name: String::new(),
                        recorded: true,
                        ..known
                    };
                    self.known.insert(from, rest);
                }
            }
        }
        self.record_pieces(pieces, new);
        if is_reuse {
            self.reuses += 1;
            new.mappings
                .push((since_ns, self.mapping(start, length, now)));
        }
        self.fresh.push(start);
        let generation = if is_reuse { now } else { 0 };
        let known = Known {
            length,
            name,
            generation,
            recorded: false,
        };
        self.known.insert(start, known);
    }

    fn record_pieces(&mut self, pieces: &[u64], new: &mut NewCode) {
        for at in pieces {
            let Some(piece) = self.pieces.get_mut(at) else {
                continue;
            };
            if !std::mem::replace(&mut piece.recorded, true) {
                let (since_ns, length) = (piece.since_ns, piece.length);
                new.mappings.push((since_ns, self.mapping(*at, length, 0)));
            }
        }
    }

    fn overlapping(&self, start: u64, length: u64) -> impl Iterator<Item = u64> {
        let reaches = |(at, known): &(&u64, &Known)| **at + known.length > start;
        let before = self.known.range(..start).next_back().filter(reaches);
        let inside = self.known.range(start..start + length);
        before.into_iter().chain(inside).map(|(at, _)| *at)
    }

    /// Tables of the functions that are in no table yet.
    fn tables(&mut self) -> Vec<ImagePart> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_unstable();
        fresh.dedup();
        let mut parts: Vec<ImagePart> = Vec::new();
        for generation in [0, self.generation] {
            let mut part = ImagePart::new(self.identity(generation));
            let mut is_empty = true;
            for at in &fresh {
                let Some(known) = self.known.get_mut(at) else {
                    continue;
                };
                if known.generation != generation || known.recorded {
                    continue;
                }
                known.recorded = true;
                is_empty = false;
                let symbol = Symbol {
                    address: *at,
                    size_bytes: known.length,
                    name: &known.name,
                };
                if !part.push(symbol) {
                    let next = ImagePart::new(part.identity.clone());
                    parts.push(std::mem::replace(&mut part, next));
                    part.push(symbol);
                }
            }
            if !is_empty {
                parts.push(part);
            }
        }
        parts
    }

    fn id(&self, generation: u32) -> Vec<u8> {
        [self.serial.to_le_bytes(), generation.to_le_bytes()].concat()
    }

    fn identity(&self, generation: u32) -> ImageIdentity {
        ImageIdentity {
            path: PATH.into(),
            build_id: self.id(generation),
            arch: ARCH,
            load_bias: 0,
            origin: "made at run time".into(),
        }
    }

    /// A mapping whose file offset is the address.
    fn mapping(&self, start: u64, length: u64, generation: u32) -> Mapping {
        Mapping {
            start,
            length,
            file_offset: start,
            path: PATH.into(),
            build_id: self.id(generation),
            file: None,
        }
    }
}

fn cut(name: &mut String) {
    let mut end = name.len().min(MOST_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(start: u64, length: u64, name: &str, since_ns: u64) -> Function {
        Function {
            start,
            length,
            name: name.into(),
            since_ns,
        }
    }

    /// Start, length, generation and time of each mapping.
    fn places(new: &NewCode) -> Vec<(u64, u64, u8, u64)> {
        let mappings = new.mappings.iter();
        mappings
            .map(|(time_ns, it)| (it.start, it.length, it.build_id[4], *time_ns))
            .collect()
    }

    /// Start and length of the memory that may hold code.
    fn pieces(functions: &Functions) -> Vec<(u64, u64)> {
        let pieces = functions.pieces.iter();
        pieces.map(|(at, piece)| (*at, piece.length)).collect()
    }

    /// Generation, address and name of each symbol.
    fn names(new: &NewCode) -> Vec<(u8, u64, String)> {
        let of = |part: &ImagePart| -> Vec<_> {
            let generation = part.identity.build_id[4];
            let symbols = part.symbols();
            symbols
                .map(|it| (generation, it.address, it.name.to_owned()))
                .collect()
        };
        new.parts.iter().flat_map(of).collect()
    }

    #[test]
    fn code_is_where_its_memory_is_and_an_address_used_again_has_its_new_name_later() {
        let mut functions = Functions::new(7);
        assert_eq!(functions.piece(0x1000, 0x1000, 5), [(0x1000, 0x1000)]);
        // Its protection changed before there was a name.
        assert!(functions.piece(0x1000, 0x1000, 8).is_empty());
        let made = vec![
            function(0x1000, 16, "old", 9),
            function(0x1000, 16, "a", 10),
            function(0x1100, 16, "b", 10),
            function(0x9000, 16, "outside", 10),
        ];
        let new = functions.add(made);
        assert_eq!(places(&new), [(0x1000, 0x1000, 0, 5)]);
        let expected = [(0, 0x1000, "a".to_owned()), (0, 0x1100, "b".to_owned())];
        assert_eq!(names(&new), expected);
        assert_eq!(new.lost, 0, "an image names what is outside");
        let again = functions.add(vec![function(0x1000, 16, "a", 20)]);
        assert!(again.mappings.is_empty() && again.parts.is_empty());
        // Three rounds so far: the generation is that of the third.
        let reused = functions.add(vec![
            function(0x1008, 32, "lost", 30),
            function(0x1004, 32, "c", 31),
            function(0x1200, 8, "d", 30),
        ]);
        assert_eq!(places(&reused), [(0x1008, 32, 3, 30), (0x1004, 32, 3, 31)]);
        let expected = [(0, 0x1200, "d".to_owned()), (3, 0x1004, "c".to_owned())];
        assert_eq!(names(&reused), expected);
        assert!(functions.piece(0x1000, 0x1000, 40).is_empty());
    }

    /// The first function stays in its table as a whole: what is made behind the second one must not be in that table.
    #[test]
    fn the_rest_of_a_function_is_used_again_in_a_later_table() {
        let mut functions = Functions::new(1);
        functions.piece(0x1000, 0x1000, 5);
        functions.add(vec![function(0x1000, 0x100, "a", 10)]);
        functions.add(vec![function(0x1040, 0x40, "b", 20)]);
        let rests = functions.add(vec![
            function(0x1080, 0xa0, "behind", 30),
            function(0x1020, 0x20, "before", 31),
            function(0x1200, 0x20, "elsewhere", 32),
        ]);
        assert_eq!(
            places(&rests),
            [(0x1080, 0xa0, 3, 30), (0x1020, 0x20, 3, 31)]
        );
        let expected = [
            (0, 0x1200, "elsewhere".to_owned()),
            (3, 0x1020, "before".to_owned()),
            (3, 0x1080, "behind".to_owned()),
        ];
        assert_eq!(names(&rests), expected);
        let first = functions.add(vec![function(0x1000, 0x10, "first", 40)]);
        assert_eq!(places(&first), [(0x1000, 0x10, 4, 40)]);
    }

    /// The mapping of the whole memory would hide the functions of the process that it was copied from.
    #[test]
    fn memory_of_another_process_is_not_mapped_again() {
        let mut parent = Functions::new(1);
        parent.piece(0x1000, 0x1000, 1);
        parent.piece(0x8000, 0x1000, 1);
        parent.add(vec![function(0x1200, 16, "parent", 2)]);
        let mut functions = Functions::new(2);
        functions.inherit(parent.for_copy(), 5);
        functions.piece(0x2000, 0x1000, 6);
        let new = functions.add(vec![
            function(0x1100, 16, "child", 10),
            function(0x2000, 16, "own", 11),
        ]);
        assert_eq!(places(&new), [(0x1100, 16, 1, 10), (0x2000, 0x1000, 0, 6)]);
        let expected = [
            (0, 0x2000, "own".to_owned()),
            (1, 0x1100, "child".to_owned()),
        ];
        assert_eq!(names(&new), expected);
        // What holds no code of the parent is mapped as a whole, and nothing there is a reuse.
        let free = functions.add(vec![
            function(0x1210, 16, "behind", 12),
            function(0x1240, 16, "later", 13),
            function(0x8000, 16, "elsewhere", 14),
        ]);
        assert_eq!(
            places(&free),
            [(0x1210, 0xdf0, 0, 5), (0x8000, 0x1000, 0, 5)]
        );
        assert_eq!(functions.reuses, 1);
        // A child of the child has both parents' code.
        let copied = functions.for_copy();
        assert_eq!(copied[..2], [(0x1000, 0x210, true), (0x1210, 0x40, true)]);
    }

    #[test]
    fn pieces_do_not_overlap_and_a_function_may_lie_in_several() {
        let mut functions = Functions::new(1);
        functions.piece(0x2000, 0x1000, 1);
        let around = functions.piece(0x1000, 0x3000, 2);
        assert_eq!(around, [(0x1000, 0x1000), (0x3000, 0x1000)]);
        assert_eq!(
            pieces(&functions),
            [(0x1000, 0x1000), (0x2000, 0x1000), (0x3000, 0x1000)]
        );
        let new = functions.add(vec![function(0x1ff0, 0x1020, "long", 3)]);
        let times: Vec<u64> = places(&new).iter().map(|place| place.3).collect();
        assert_eq!(times, [2, 1, 2]);
        functions.lose(0x1800, 0x1000);
        assert_eq!(
            pieces(&functions),
            [(0x1000, 0x800), (0x2800, 0x800), (0x3000, 0x1000)]
        );
        for (start, length) in [(0xfff, 8), (0x3fff, 2), (u64::MAX, 2), (0x8000, 1)] {
            assert!(!functions.has_room(&function(start, length, "x", 0)));
        }
    }

    #[test]
    fn functions_pieces_and_reuses_are_bounded() {
        let mut functions = Functions::new(1);
        functions.piece(0, 1 << 40, 1);
        let many = (0..MOST_FUNCTIONS as u64 + 3).map(|n| function(n * 16, 16, "f", 2));
        assert_eq!(functions.add(many.collect()).lost, 3);
        for round in 0..2 {
            let other = (0..MOST_REUSES as u64).map(|n| function(n * 16, 16, "g", 3 + round));
            functions.add(other.collect());
        }
        let lost = functions.add(vec![function(0, 16, "h", 9)]).lost;
        assert_eq!(lost, 1);
        for n in 0..MOST_PIECES as u64 + 9 {
            functions.piece((1 << 41) + n * 0x2000, 0x1000, 1);
        }
        assert!(functions.pieces.len() <= MOST_PIECES);
        let name = "é".repeat(MOST_NAME_BYTES);
        functions.add(vec![function(1 << 39, 16, &name, 1)]);
        let kept = functions.known.get(&(1 << 39)).map(|it| it.name.len());
        assert!(kept.is_none_or(|bytes| bytes <= MOST_NAME_BYTES));
    }

    #[test]
    fn what_overlaps_is_refused_once_all_reuses_are_made() {
        let mut functions = Functions::new(1);
        functions.piece(0, 1 << 20, 1);
        functions.add(vec![function(0, 16, "f", 1)]);
        let names = ["f", "g"];
        let again = (1..=MOST_REUSES).map(|n| function(0, 16, names[n % 2], 2));
        assert_eq!(functions.add(again.collect()).lost, 0);
        // None of them is in a table yet, and still the second one is not compared with all that it overlaps.
        let long = vec![function(16, 16, "h", 3), function(16, 1 << 16, "i", 3)];
        assert_eq!(functions.add(long).lost, 1);
    }

    #[test]
    fn functions_of_all_processes_share_a_limit() {
        let all = TableBytes::default();
        let of = |serial| {
            let mut functions = Functions::new(serial);
            functions.bytes = all.share();
            functions.piece(0, 1 << 20, 1);
            functions
        };
        let mut other = all.share();
        // As if it had names already.
        other.own = TABLES_BYTES_MAX - ENTRY_BYTES - 1;
        all.all.set(other.own);
        let mut functions = of(1);
        let two = || vec![function(0, 16, "f", 2), function(16, 16, "g", 2)];
        assert_eq!(functions.add(two()).lost, 1);
        assert_eq!(all.all.get(), TABLES_BYTES_MAX);
        drop(other);
        assert_eq!(functions.add(two()).lost, 0);
        assert_eq!(all.all.get(), 2 * (ENTRY_BYTES + 1));
        functions.add(vec![function(0, 32, "h", 3)]);
        assert_eq!(all.all.get(), ENTRY_BYTES + 1, "it replaced both");
        drop(functions);
        assert_eq!(all.all.get(), 0);
    }
}
