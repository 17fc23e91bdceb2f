//! The section "lines" of an embedded image (format-spec.md, section 7): functions, files and lines
//! at single addresses, each text once.

use crate::images::ImageAddress;
use crate::symbols::Line;
use std::collections::{BTreeMap, HashMap};
use uprof::varint::{self, Cursor};

/// What debug information says of some addresses.
#[derive(Debug, Clone, Default)]
pub struct LineTable {
    /// Each once: a damaged section may refer to a long text from a million places.
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    /// Outermost function first.
    by_address: BTreeMap<u64, Vec<Entry>>,
}

/// Function and file are numbers of texts counted from 1, or 0.
#[derive(Debug, Clone, Copy)]
struct Entry {
    function: u32,
    file: u32,
    line: u32,
}

impl LineTable {
    /// What is known of exactly this address; `None` if nobody asked when the table was made.
    pub fn find(&self, address: ImageAddress) -> Option<Vec<Line>> {
        let entries = self.by_address.get(&address.0)?;
        let text = |number: u32| {
            let text = self.texts.get((number as usize).checked_sub(1)?)?;
            Some(text.to_string())
        };
        let lines = entries.iter().map(|entry| Line {
            function: text(entry.function),
            file: text(entry.file),
            line: entry.line,
            // The section has no place for it.
            start_line: 0,
        });
        Some(lines.collect())
    }

    /// All addresses, ascending, with what is known of them.
    pub fn iter(&self) -> impl Iterator<Item = (ImageAddress, Vec<Line>)> {
        let addresses = self.by_address.keys().map(|address| ImageAddress(*address));
        addresses.filter_map(|address| Some((address, self.find(address)?)))
    }

    /// Adds what is known of an address.
    pub fn insert(&mut self, address: ImageAddress, lines: &[Line]) {
        let entries = lines.iter().map(|line| Entry {
            function: self.number(line.function.as_deref()),
            file: self.number(line.file.as_deref()),
            line: line.line,
        });
        let entries = entries.collect();
        self.by_address.insert(address.0, entries);
    }

    fn number(&mut self, text: Option<&str>) -> u32 {
        let Some(text) = text else { return 0 };
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        self.texts.push(text.into());
        let number = self.texts.len() as u32;
        self.numbers.insert(text.into(), number);
        number
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether nothing is known of any address.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_empty() {
            return out;
        }
        varint::put(&mut out, self.texts.len() as u64);
        self.texts
            .iter()
            .for_each(|text| varint::put(&mut out, text.len() as u64));
        self.texts
            .iter()
            .for_each(|text| out.extend_from_slice(text.as_bytes()));
        varint::put(&mut out, self.by_address.len() as u64);
        let mut before = 0;
        for (address, entries) in &self.by_address {
            varint::put(&mut out, address - before);
            before = *address;
            varint::put(&mut out, entries.len() as u64);
            for entry in entries {
                let numbers = [entry.function, entry.file, entry.line];
                numbers
                    .iter()
                    .for_each(|number| varint::put(&mut out, u64::from(*number)));
            }
        }
        out
    }

    /// Adds what a section says; `None` if it is damaged, and then what came before the damage is
    /// kept.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(bytes, "lines");
        let count = |cursor: &mut Cursor<'_>| {
            let most = cursor.remaining();
            cursor.varint_up_to(most, "each takes a byte at least").ok()
        };
        let texts = count(&mut cursor)?;
        let lengths: Vec<usize> = (0..texts)
            .map(|_| count(&mut cursor))
            .collect::<Option<_>>()?;
        let mut numbers = vec![0];
        for length in lengths {
            let text = std::str::from_utf8(cursor.take(length).ok()?).ok()?;
            numbers.push(self.number(Some(text)));
        }
        let text = |number: u64| numbers.get(usize::try_from(number).ok()?).copied();
        let mut address = 0u64;
        for _ in 0..count(&mut cursor)? {
            address = address.checked_add(cursor.varint().ok()?)?;
            let functions = count(&mut cursor)?;
            let mut entries = Vec::new();
            for _ in 0..functions {
                entries.push(Entry {
                    function: text(cursor.varint().ok()?)?,
                    file: text(cursor.varint().ok()?)?,
                    line: u32::try_from(cursor.varint().ok()?).ok()?,
                });
            }
            self.by_address.insert(address, entries);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_survive() {
        let line = |function: &str, file: Option<&str>, line| Line {
            function: Some(function.to_owned()),
            file: file.map(str::to_owned),
            line,
            start_line: 0,
        };
        let mut table = LineTable::default();
        let inlined = [line("f", Some("/home/me/a.c"), 3), line("g", None, 0)];
        let other = [line("f", Some("/home/me/a.c"), 4)];
        table.insert(ImageAddress(0x10), &inlined);
        table.insert(ImageAddress(0x1000), &[]);
        table.insert(ImageAddress(u64::MAX), &other);
        let mut read = LineTable::default();
        read.add(&table.write()).unwrap();
        assert_eq!(read.find(ImageAddress(0x10)).unwrap(), inlined);
        assert_eq!(read.find(ImageAddress(0x1000)).unwrap(), []);
        assert_eq!(read.find(ImageAddress(u64::MAX)).unwrap(), other);
        assert_eq!(read.find(ImageAddress(0x11)), None);
    }

    #[test]
    fn huge_counts_are_refused() {
        let mut bytes = vec![0];
        varint::put(&mut bytes, u64::MAX);
        assert_eq!(LineTable::default().add(&bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = LineTable::default().add(&bytes);
        }
    }
}
