//! Finds functions by name in an ELF file's symbol tables, for breakpoints.
//!
//! Input: a function that reads the file, and names. Output: link-time addresses. Nothing in the file is trusted, and
//! the amount read is limited. Source: System V ABI, chapter 4 ("Sections", "Symbol Table").

use crate::elf::{Read, is_wide};
use std::ops::Range;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
/// A symbol without a type, as an assembler's label has.
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
/// Bytes of an entry of a symbol table.
const ENTRY_BYTES: u64 = 24;
/// Most section headers that are read.
const MOST_SECTIONS: u16 = 4096;
/// Most symbols of a table that are examined.
const MOST_SYMBOLS: u64 = 4 << 20;
/// Most bytes of names of a table.
const MOST_NAME_BYTES: u64 = 256 << 20;
/// Symbols that are read at a time.
const SYMBOLS_AT_ONCE: u64 = 4096;

/// A symbol table and its names: offsets in the file and lengths.
struct Table {
    symbols: (u64, u64),
    names: (u64, u64),
}

/// The functions with one of these names: the index of the name and the link-time address. Several functions may have
/// the same name. Empty if there is no symbol table.
pub fn functions(from: &Read<'_>, wanted: &[String]) -> Vec<(usize, u64)> {
    let found = ranges(from, wanted).into_iter();
    let mut found: Vec<_> = found.map(|(index, code)| (index, code.start)).collect();
    found.dedup();
    found
}

/// The same, with the range of link-time addresses. A function without a size has one byte.
pub fn ranges(from: &Read<'_>, wanted: &[String]) -> Vec<(usize, Range<u64>)> {
    let mut found = Vec::new();
    for table in tables(from).unwrap_or_default() {
        // The search ends where a table can't be read; functions found before that count.
        let _ = search(from, &table, wanted, &mut found);
    }
    found.sort_unstable_by_key(|(index, code)| (*index, code.start, code.end));
    found.dedup();
    found
}

fn tables(from: &Read<'_>) -> Option<Vec<Table>> {
    let mut header = [0; 64];
    from(&mut header, 0).ok()?;
    if !is_wide(&header) {
        return None;
    }
    let start = u64::from_le_bytes(header[40..48].try_into().ok()?);
    let entry_bytes = u64::from(u16::from_le_bytes(header[58..60].try_into().ok()?));
    let count = u16::from_le_bytes(header[60..62].try_into().ok()?).min(MOST_SECTIONS);
    let section = |index: u32| {
        let mut bytes = [0; 64];
        let at = u64::from(index).checked_mul(entry_bytes)?;
        from(&mut bytes, start.checked_add(at)?).ok()?;
        let half = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let word = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        // Type, index of the section with the names, and where the table is.
        Some((half(4)?, half(40)?, (word(24)?, word(32)?)))
    };
    let all = (0..u32::from(count)).filter_map(section);
    let symbols = all.filter(|(kind, ..)| matches!(*kind, SHT_SYMTAB | SHT_DYNSYM));
    let tables = symbols.filter_map(|(_, names, symbols)| {
        let (_, _, names) = section(names)?;
        Some(Table { symbols, names })
    });
    Some(tables.take(2).collect())
}

fn search(
    from: &Read<'_>,
    table: &Table,
    wanted: &[String],
    found: &mut Vec<(usize, Range<u64>)>,
) -> Option<()> {
    let count = (table.symbols.1 / ENTRY_BYTES).min(MOST_SYMBOLS);
    let names_bytes = table.names.1.min(MOST_NAME_BYTES);
    let longest = wanted.iter().map(String::len).max()?;
    let mut chunk = Vec::new();
    let mut text = vec![0; longest + 1];
    let mut at = 0;
    while at < count {
        let some = (count - at).min(SYMBOLS_AT_ONCE);
        chunk.resize((some * ENTRY_BYTES) as usize, 0);
        let place = table.symbols.0.checked_add(at * ENTRY_BYTES)?;
        from(&mut chunk, place).ok()?;
        for entry in chunk.chunks_exact(ENTRY_BYTES as usize) {
            let name = u64::from(u32::from_le_bytes(entry[..4].try_into().ok()?));
            let section = u16::from_le_bytes(entry[6..8].try_into().ok()?);
            let address = u64::from_le_bytes(entry[8..16].try_into().ok()?);
            let bytes = u64::from_le_bytes(entry[16..24].try_into().ok()?).max(1);
            if !matches!(entry[4] & 15, STT_NOTYPE | STT_FUNC) || section == 0 || name == 0 {
                continue;
            }
            let left = names_bytes.saturating_sub(name).min(text.len() as u64) as usize;
            let Some(start) = table.names.0.checked_add(name).filter(|_| left > 0) else {
                continue;
            };
            if from(&mut text[..left], start).is_err() {
                continue;
            }
            let length = text[..left].iter().position(|byte| *byte == 0);
            let Some(own) = length.map(|length| &text[..length]) else {
                continue;
            };
            let same = wanted.iter().position(|name| name.as_bytes() == own);
            found.extend(same.map(|index| (index, address..address.saturating_add(bytes))));
        }
        at += some;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn our_own_functions_are_found_by_name() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let names = ["main", "nobody_has_this_name"].map(str::to_owned);
        let found = functions(&|into, at| file.read_exact_at(into, at), &names);
        assert!(
            matches!(found[..], [(0, address)] if address != 0),
            "{found:?}"
        );
    }

    #[test]
    fn a_table_that_is_cut_or_lies_is_survived() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let names = ["main".to_owned()];
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let mut dice = fastrand::Rng::with_seed(18);
        let look = |bytes: &[u8]| {
            let read = |into: &mut [u8], at: u64| {
                let start = usize::try_from(at).unwrap_or(usize::MAX);
                let end = start.saturating_add(into.len());
                let from = bytes.get(start..end);
                let from = from.ok_or(std::io::ErrorKind::UnexpectedEof)?;
                into.copy_from_slice(from);
                Ok(())
            };
            functions(&read, &names).len()
        };
        assert_eq!(look(&bytes), 1);
        for _ in 0..200 {
            let at = dice.usize(headers..bytes.len());
            let before = std::mem::replace(&mut bytes[at], dice.u8(..));
            look(&bytes);
            bytes[at] = before;
        }
        assert_eq!(look(&bytes[..headers + 100]), 0);
        assert_eq!(look(b"no ELF"), 0);
    }
}
