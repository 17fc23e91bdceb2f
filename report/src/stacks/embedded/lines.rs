//! A recording's table of lines: functions and files at single addresses, each text once.

use crate::images::ImageAddress;
use crate::images::symbols::Line;
use std::collections::{BTreeMap, HashMap};
use uprof::Fault;
use uprof::image::{ImagePart, Inlined, Lines};

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
        let text = |number: u32| {
            let text = self.texts.get((number as usize).checked_sub(1)?)?;
            Some(text.to_string())
        };
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

    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Puts the table into a part of an image.
    pub(super) fn store(&self, part: &mut ImagePart) {
        let rows = self.by_address.iter();
        part.set_lines(
            &self.texts,
            rows.map(|(at, functions)| (*at, &functions[..])),
        );
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
        table.store(&mut part);
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
