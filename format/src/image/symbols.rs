//! Section 2, symbols: functions and objects, in columns.

use super::section::SectionReader;
use crate::error::Fault;
use crate::layout::MAX_SYMBOLS;
use crate::varint;

/// Size of names at which a part is full, in bytes.
pub(super) const FULL_NAME_BYTES: usize = 2 << 20;

/// A function or object of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol<'a> {
    /// First address, before the load bias.
    pub address: u64,
    /// Size in bytes; 0 if unknown.
    pub size_bytes: u64,
    /// Name as in the image, not demangled.
    pub name: &'a str,
}

/// The symbols of one part, in order of address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    /// End of each name in `names`.
    name_ends: Vec<u32>,
    names: String,
}

impl Symbols {
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Symbol<'_>> + '_ {
        let starts = std::iter::once(0).chain(self.name_ends.iter().copied());
        let names = starts.zip(&self.name_ends);
        let numbers = self.addresses.iter().zip(&self.sizes);
        numbers
            .zip(names)
            .map(|((&address, &size_bytes), (start, &end))| Symbol {
                address,
                size_bytes,
                name: self.names.get(start as usize..end as usize).unwrap_or(""),
            })
    }

    /// Adds a symbol; `false` if there is no room, or if its address is below the last one's.
    pub(super) fn push(&mut self, symbol: Symbol<'_>) -> bool {
        let full = self.addresses.len() >= MAX_SYMBOLS
            || self.names.len() + symbol.name.len() > FULL_NAME_BYTES
            || self
                .addresses
                .last()
                .is_some_and(|&last| last > symbol.address);
        if full && !self.addresses.is_empty() {
            return false;
        }
        self.addresses.push(symbol.address);
        self.sizes.push(symbol.size_bytes);
        self.names.push_str(symbol.name);
        self.name_ends.push(self.names.len() as u32);
        true
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.addresses.len() as u64);
        let mut before = 0;
        for &address in &self.addresses {
            varint::put(out, address - before);
            before = address;
        }
        self.sizes.iter().for_each(|&size| varint::put(out, size));
        let mut start = 0;
        for &end in &self.name_ends {
            varint::put(out, u64::from(end - start));
            start = end;
        }
        out.extend_from_slice(self.names.as_bytes());
    }

    pub(super) fn read(mut section: SectionReader<'_>) -> Result<Self, Fault> {
        let most = MAX_SYMBOLS.min(section.remaining());
        let rule = "at most 262,144 symbols in a part";
        let count = section.up_to(most, "number of symbols", rule)?;
        let mut symbols = Symbols::default();
        let mut address = 0;
        for _ in 0..count {
            address = section.address(address)?;
            symbols.addresses.push(address);
        }
        for _ in 0..count {
            symbols.sizes.push(section.number()?);
        }
        let mut end = 0;
        for _ in 0..count {
            let left = section.remaining().saturating_sub(end);
            end += section.up_to(left, "length of a name", "a name fits into its section")?;
            symbols.name_ends.push(end as u32);
        }
        let names = std::str::from_utf8(section.take(end)?).ok();
        let ends_well = |names: &&str| {
            let mut ends = symbols.name_ends.iter();
            ends.all(|&end| names.is_char_boundary(end as usize))
        };
        let names = names.filter(ends_well);
        symbols
            .names
            .push_str(names.ok_or_else(|| section.fault(Fault::Text))?);
        Ok(symbols)
    }
}
