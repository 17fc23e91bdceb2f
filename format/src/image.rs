//! Tables of an image that travel with a recording (format-spec.md, section 7).
//!
//! An image is told in parts, one block each, so that none grows past the limit of a block. Each
//! part says which image it belongs to and decodes alone; a damaged one costs its own symbols only.

use crate::error::Fault;
use crate::layout::{ImageSection, MAX_SYMBOLS};
use crate::sample::Arch;
use crate::varint::{self, Cursor};

/// A part is closed when its names take this many bytes.
const FULL_NAME_BYTES: usize = 2 << 20;

/// Most sections of a part that this package leaves to others.
const MOST_OTHERS: usize = 64;

/// Mappings start at borders of pages, of which these are the smallest.
const PAGE_BYTES: u64 = 4096;

/// No image is longer: code reaches its data by 31 bits.
const LONGEST_BYTES: u64 = 1 << 31;

/// The lowest page of an image, by which is told where it was loaded: of the addresses of its `segments`, and
/// whether they hold code. Segments far from the code aren't of one piece with it: Linux states those of each
/// processor's data at 0. `None` where there is no code.
pub fn lowest_page(segments: impl Iterator<Item = (u64, bool)> + Clone) -> Option<u64> {
    let (code, _) = segments.clone().find(|&(_, has_code)| has_code)?;
    let near = segments
        .map(|(address, _)| address)
        .filter(|address| address.abs_diff(code) < LONGEST_BYTES);
    Some(near.min()? & !(PAGE_BYTES - 1))
}

/// Which image a table describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIdentity {
    /// Path as in [`crate::cold::Mapping::path`], or a name in brackets such as `[kernel]`.
    pub path: String,
    /// GNU build-id, empty where there is none.
    pub build_id: Vec<u8>,
    /// Instruction set.
    pub arch: Arch,
    /// What to add to an address of the tables, wrapping, for the address in the guest. Zero where
    /// the tables hold guest addresses, or where [`crate::cold::Mapping`] tells the place.
    pub load_bias: u64,
    /// Where the tables come from, for people: `kallsyms`, `symtab`, …
    pub origin: String,
}

/// A function or object of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol<'a> {
    /// First address, before the load bias.
    pub address: u64,
    /// Bytes; 0 where that is not known.
    pub size_bytes: u64,
    /// Name as in the image, not demangled.
    pub name: &'a str,
}

/// One part of an image's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePart {
    /// Which image it belongs to.
    pub identity: ImageIdentity,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    /// Where each name ends in `names`.
    name_ends: Vec<u32>,
    names: String,
    /// Sections that this package leaves to others: tag and bytes.
    pub others: Vec<(u64, Vec<u8>)>,
}

impl ImagePart {
    /// A part without tables.
    pub fn new(identity: ImageIdentity) -> Self {
        ImagePart {
            identity,
            addresses: Vec::new(),
            sizes: Vec::new(),
            name_ends: Vec::new(),
            names: String::new(),
            others: Vec::new(),
        }
    }

    /// The symbols, in order of address.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> + '_ {
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

    /// Adds a symbol; none may lie below the one before. `false`: the part is full, begin another.
    pub fn push(&mut self, symbol: Symbol<'_>) -> bool {
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

    /// Appends the part as section 7 lays it out.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut section = Vec::new();
        self.identity.put(&mut section);
        put_section(out, u64::from(ImageSection::Identity.number()), &section);
        if !self.addresses.is_empty() {
            section.clear();
            self.put_symbols(&mut section);
            put_section(out, u64::from(ImageSection::Symbols.number()), &section);
        }
        for (tag, bytes) in &self.others {
            put_section(out, *tag, bytes);
        }
    }

    fn put_symbols(&self, out: &mut Vec<u8>) {
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

    /// Reads a part.
    ///
    /// # Errors
    /// What is wrong with it; one without an identity is refused.
    pub fn parse(payload: &[u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(payload, "image section");
        let mut part: Option<ImagePart> = None;
        while !cursor.is_empty() {
            let tag = cursor.varint()?;
            let length = cursor.varint_up_to(payload.len(), "a section fits into its block")?;
            let section = Cursor::new(cursor.take(length)?, "image section");
            let known = u16::try_from(tag).ok().and_then(ImageSection::from_number);
            match (known, &mut part) {
                (Some(ImageSection::Identity), None) => {
                    part = Some(ImagePart::new(ImageIdentity::parse(section)?));
                }
                (Some(ImageSection::Symbols), Some(part)) if part.addresses.is_empty() => {
                    part.parse_symbols(section)?;
                }
                (Some(ImageSection::Identity | ImageSection::Symbols), _) | (_, None) => {
                    return Err(misplaced(tag));
                }
                (_, Some(part)) if part.may_add(tag) => {
                    part.others.push((tag, section.rest().to_vec()))
                }
                _ => return Err(misplaced(tag)),
            }
        }
        part.ok_or(Fault::Short("image identity"))
    }

    /// Whether another section with this tag may follow.
    fn may_add(&self, tag: u64) -> bool {
        self.others.len() < MOST_OTHERS && self.others.iter().all(|(known, _)| *known != tag)
    }

    /// The bytes of a section that this package leaves to others.
    pub fn section(&self, section: ImageSection) -> Option<&[u8]> {
        let tag = u64::from(section.number());
        let found = self.others.iter().find(|(known, _)| *known == tag)?;
        Some(&found.1)
    }

    fn parse_symbols(&mut self, mut section: Cursor<'_>) -> Result<(), Fault> {
        let most = MAX_SYMBOLS.min(section.remaining());
        let count = section.varint_up_to(most, "at most 262,144 symbols in a part")?;
        let mut address = 0u64;
        for _ in 0..count {
            let step = section.varint()?;
            address = address.checked_add(step).ok_or(Fault::Range {
                what: "symbol address",
                value: step,
                rule: "addresses have 64 bits",
            })?;
            self.addresses.push(address);
        }
        for _ in 0..count {
            self.sizes.push(section.varint()?);
        }
        let mut end = 0;
        for _ in 0..count {
            let left = section.remaining().saturating_sub(end);
            end += section.varint_up_to(left, "a name fits into its section")?;
            self.name_ends.push(end as u32);
        }
        let names = std::str::from_utf8(section.take(end)?).ok();
        let ends_well = |names: &&str| {
            let mut ends = self.name_ends.iter();
            ends.all(|&end| names.is_char_boundary(end as usize))
        };
        let names = names.filter(ends_well).ok_or(Fault::Short("symbol name"))?;
        self.names.push_str(names);
        Ok(())
    }
}

/// ELF machine numbers (`e_machine`), which name the instruction set in section 7.
const MACHINES: [(u64, Arch); 2] = [(62, Arch::X86_64), (183, Arch::Aarch64)];

impl ImageIdentity {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.path.as_bytes());
        put_bytes(out, &self.build_id);
        let machine = MACHINES.iter().find(|(_, arch)| *arch == self.arch);
        varint::put(out, machine.map_or(0, |(number, _)| *number));
        varint::put(out, self.load_bias);
        put_bytes(out, self.origin.as_bytes());
    }

    fn parse(mut section: Cursor<'_>) -> Result<Self, Fault> {
        let path = parse_text(&mut section)?;
        let build_id = parse_bytes(&mut section)?.to_vec();
        let number = section.varint()?;
        let machine = MACHINES.iter().find(|(known, _)| *known == number);
        let (_, arch) = *machine.ok_or(Fault::Unknown {
            what: "ELF machine",
            number,
        })?;
        Ok(ImageIdentity {
            path,
            build_id,
            arch,
            load_bias: section.varint()?,
            origin: parse_text(&mut section)?,
        })
    }
}

fn misplaced(tag: u64) -> Fault {
    Fault::Range {
        what: "image section",
        value: tag,
        rule: "the identity comes first, each section once, at most 66",
    }
}

fn put_section(out: &mut Vec<u8>, tag: u64, section: &[u8]) {
    varint::put(out, tag);
    put_bytes(out, section);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn parse_bytes<'a>(section: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let most = section.remaining();
    let length = section.varint_up_to(most, "a text fits into its section")?;
    section.take(length)
}

fn parse_text(section: &mut Cursor<'_>) -> Result<String, Fault> {
    Ok(String::from_utf8_lossy(parse_bytes(section)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity() -> ImageIdentity {
        ImageIdentity {
            path: "[kernel]".into(),
            build_id: vec![1, 2, 3],
            arch: Arch::Aarch64,
            load_bias: 0xffff_8000_0000_0000,
            origin: "kallsyms".into(),
        }
    }

    #[test]
    fn the_lowest_page_is_one_near_code() {
        let lowest = |segments: &[(u64, bool)]| lowest_page(segments.iter().copied());
        let segments = [(0x40_0123, false), (0x40_1000, true)];
        assert_eq!(lowest(&segments), Some(0x40_0000));
        let kernel = 0xffff_ffff_8100_0000;
        assert_eq!(lowest(&[(kernel, true), (0, false)]), Some(kernel));
        assert_eq!(lowest(&[(0x1000, false)]), None);
    }

    proptest! {
        #[test]
        fn parts_survive(symbols in prop::collection::vec((any::<u64>(), any::<u64>(), ".{0,9}"), 0..40),
            others in prop::collection::btree_map(3u64..200, any::<Vec<u8>>(), 0..3)) {
            let mut sorted = symbols;
            sorted.sort();
            let mut part = ImagePart::new(identity());
            for (address, size_bytes, name) in &sorted {
                let (address, size_bytes) = (*address, *size_bytes);
                let pushed = part.push(Symbol { address, size_bytes, name });
                prop_assert!(pushed);
            }
            part.others = others.into_iter().collect();
            let mut bytes = Vec::new();
            part.put(&mut bytes);
            prop_assert_eq!(ImagePart::parse(&bytes).unwrap(), part);
        }

        #[test]
        fn any_bytes_end_in_a_part_or_an_error(mut bytes: Vec<u8>, prefix in 0usize..40) {
            let mut whole = Vec::new();
            ImagePart::new(identity()).put(&mut whole);
            whole.truncate(prefix);
            whole.append(&mut bytes);
            let _ = ImagePart::parse(&whole);
        }
    }

    #[test]
    fn a_full_part_refuses_the_next_symbol() {
        let mut part = ImagePart::new(identity());
        let name = "n".repeat(FULL_NAME_BYTES / 2);
        let mut push = |address| {
            let (size_bytes, name) = (1, &name[..]);
            part.push(Symbol {
                address,
                size_bytes,
                name,
            })
        };
        assert!(push(5) && !push(4) && push(5) && !push(6));
    }
}
