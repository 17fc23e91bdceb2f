//! A recording's table of lines: functions and files at single addresses, each text once.

use crate::images::ImageAddress;
use crate::images::symbols::Line;
use std::collections::{BTreeMap, HashMap};
use uprof::Fault;
use uprof::image::{ImagePart, Inlined, Lines};

/// Most bytes of sections in a part, counted generously: what is more begins another part. The symbols of a part take
/// less than the rest of a block.
pub(super) const SECTIONS_BYTES_MAX: usize = 8 << 20;
/// Most bytes that a number takes in a section.
const NUMBER_BYTES: usize = 10;

/// Debug information of some addresses.
#[derive(Debug, Clone, Default)]
pub struct LineTable {
    /// Each once: a damaged section may refer to a long text a million times.
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    /// Outermost function first.
    by_address: BTreeMap<u64, Vec<Inlined>>,
}

impl LineTable {
    /// What is known of exactly this address; `None` if it isn't in the table.
    pub(crate) fn find(&self, address: ImageAddress) -> Option<Vec<Line>> {
        let entries = self.by_address.get(&address.0)?;
        let text = |number: u32| self.text(number).map(str::to_owned);
        let lines = entries.iter().map(|entry| Line {
            function: text(entry.function),
            file: text(entry.file),
            line: entry.line,
            // The section has no fields for them.
            start_line: 0,
            discriminator: 0,
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
        let entries = lines.iter().map(|line| Inlined {
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

    /// The text with this number; `None` for 0, which is unknown.
    fn text(&self, number: u32) -> Option<&str> {
        let text = self.texts.get((number as usize).checked_sub(1)?)?;
        Some(text)
    }

    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Puts what is known of addresses from `from` on into a part of an image, with the texts for that. Returns the
    /// first address for which the part has no room. What is too long alone has a part of its own.
    pub(super) fn store(&self, from: u64, part: &mut ImagePart) -> Option<u64> {
        let mut bytes = part.sections_bytes();
        let (mut texts, mut rows) = (Vec::new(), Vec::new());
        // The number of each text in the part.
        let mut numbers = HashMap::from([(0, 0)]);
        let mut next = None;
        for (address, functions) in self.by_address.range(from..) {
            let named = functions.iter().flat_map(|one| [one.function, one.file]);
            let new = named.filter(|number| !numbers.contains_key(number));
            let new = new.filter_map(|number| self.text(number));
            let is_first = bytes == 0;
            bytes += new.map(|text| NUMBER_BYTES + text.len()).sum::<usize>();
            bytes += NUMBER_BYTES * (2 + 3 * functions.len());
            if bytes > SECTIONS_BYTES_MAX && !is_first {
                next = Some(*address);
                break;
            }
            let mut number = |number: u32| {
                *numbers.entry(number).or_insert_with(|| {
                    texts.push(self.text(number).unwrap_or(""));
                    texts.len() as u32
                })
            };
            let functions = functions.iter().map(|one| Inlined {
                function: number(one.function),
                file: number(one.file),
                ..*one
            });
            rows.push((*address, functions.collect::<Vec<_>>()));
        }
        let rows = rows.iter().map(|(at, functions)| (*at, &functions[..]));
        part.set_lines(&texts, rows);
        next
    }

    /// Adds the content of a section, up to the first damage.
    pub(super) fn add(&mut self, lines: Lines<'_>) -> Result<(), Fault> {
        let mut numbers = vec![0];
        for text in lines.texts {
            numbers.push(self.number(Some(text?)));
        }
        for row in lines.rows {
            let mut row = row?;
            for one in &mut row.functions {
                one.function = numbers[one.function as usize];
                one.file = numbers[one.file as usize];
            }
            self.by_address.insert(row.address, row.functions);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::image::{ImageIdentity, Section};

    #[test]
    fn lines_survive() {
        let line = |function: &str, file: Option<&str>, line| Line {
            function: Some(function.to_owned()),
            file: file.map(str::to_owned),
            line,
            ..Line::default()
        };
        let mut table = LineTable::default();
        let inlined = [line("f", Some("/home/me/a.c"), 3), line("g", None, 0)];
        let other = [line("f", Some("/home/me/a.c"), 4)];
        table.insert(ImageAddress(0x10), &inlined);
        table.insert(ImageAddress(0x1000), &[]);
        table.insert(ImageAddress(u64::MAX), &other);
        let mut part = ImagePart::new(ImageIdentity {
            path: "/a".into(),
            build_id: Vec::new(),
            arch: uprof::Arch::X86_64,
            load_bias: 0,
            origin: "test".into(),
        });
        assert_eq!(table.store(0, &mut part), None);
        let Some(Ok(Section::Lines(lines))) = part.sections().next() else {
            panic!("{part:?}");
        };
        let mut read = LineTable::default();
        read.add(lines).unwrap();
        assert_eq!(read.find(ImageAddress(0x10)).unwrap(), inlined);
        assert_eq!(read.find(ImageAddress(0x1000)).unwrap(), []);
        assert_eq!(read.find(ImageAddress(u64::MAX)).unwrap(), other);
        assert_eq!(read.find(ImageAddress(0x11)), None);
    }
}
