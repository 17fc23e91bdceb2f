//! Tables of an image that travel with a recording (format-spec.md, section 7), one module a section.
//!
//! An image is stored in parts of one block each, so that none exceeds the limit of a block. Each part names its image
//! and is decoded alone; a damaged one costs only its own entries. Symbols are decoded with the part, the other
//! sections on demand.

mod section;
mod identity;
mod symbols;
mod segments;
mod lines;
mod rules;
mod callers;

pub use callers::MissedCaller;
pub use identity::ImageIdentity;
pub use lines::{Inlined, LineRow, Lines, Texts};
pub use rules::{
    Cfa, CfaKind, Place, PlaceKind, REGISTERS_MAX, Rule, RuleRow, RuleSet, Rules, Save,
};
pub use section::Entries;
pub use segments::{Segment, lowest_page};
pub use symbols::Symbol;

use crate::error::Fault;
use crate::layout::ImageSection;
use crate::varint::{self, Cursor};
use section::SectionReader;
use symbols::Symbols;

/// Most sections of a part, not counting identity and symbols.
const MOST_OTHERS: usize = 64;

/// One part of an image's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePart {
    /// The image that it belongs to.
    pub identity: ImageIdentity,
    symbols: Symbols,
    /// The other sections: tag and bytes.
    others: Vec<(u64, Vec<u8>)>,
}

/// A section of a part, other than identity and symbols.
#[derive(Debug, Clone)]
pub enum Section<'a> {
    /// Load addresses of the parts of the image's file.
    Segments(Entries<'a, Segment>),
    /// Functions, files and lines.
    Lines(Lines<'a>),
    /// Unwind rules.
    Rules(Rules<'a>),
    /// The whole image, if it is not a file that could be found later.
    File(&'a [u8]),
    /// Callers that chains of frame pointers miss.
    Callers(Entries<'a, MissedCaller>),
}

impl ImagePart {
    /// A part without tables.
    pub fn new(identity: ImageIdentity) -> Self {
        ImagePart {
            identity,
            symbols: Symbols::default(),
            others: Vec::new(),
        }
    }

    /// The symbols, in order of address.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> + '_ {
        self.symbols.iter()
    }

    /// Adds a symbol, in order of address. `false` if the part is full and another must be begun.
    pub fn push(&mut self, symbol: Symbol<'_>) -> bool {
        self.symbols.push(symbol)
    }

    /// The other sections that are known to this version, in the order of the file.
    pub fn sections(&self) -> impl Iterator<Item = Result<Section<'_>, Fault>> {
        self.others.iter().filter_map(|(tag, bytes)| {
            let section = known(*tag)?;
            let reader = SectionReader::new(section, bytes);
            Some(match section {
                ImageSection::Identity | ImageSection::Symbols => return None,
                ImageSection::Segments => Entries::new(reader, 0).map(Section::Segments),
                ImageSection::Lines => Lines::read(reader).map(Section::Lines),
                ImageSection::Rules => Rules::read(reader).map(Section::Rules),
                ImageSection::File => Ok(Section::File(bytes)),
                ImageSection::Callers => Entries::new(reader, 0).map(Section::Callers),
            })
        })
    }

    /// The faults in those sections.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        self.sections()
            .filter_map(|section| section.and_then(|section| section.check()).err())
    }

    /// Sets the load addresses of the parts of the image's file.
    pub fn set_segments(&mut self, segments: impl ExactSizeIterator<Item = Segment>) {
        self.set(ImageSection::Segments, segments.len() == 0, |out| {
            varint::put(out, segments.len() as u64);
            segments.for_each(|segment| segment.put(out));
        });
    }

    /// Sets the functions, files and lines at ascending addresses. Functions and files are numbers of `texts`, counted
    /// from 1.
    pub fn set_lines<'r>(
        &mut self,
        texts: &[impl AsRef<str>],
        rows: impl ExactSizeIterator<Item = (u64, &'r [Inlined])>,
    ) {
        self.set(ImageSection::Lines, rows.len() == 0, |out| {
            lines::put(texts, rows, out);
        });
    }

    /// Sets the unwind rules. Ascending `rows` show where each rule of `set` holds, and `returns` are the return
    /// addresses, if known. Rules that no row refers to are left out.
    pub fn set_rules(
        &mut self,
        set: &RuleSet,
        rows: impl Iterator<Item = RuleRow> + Clone,
        returns: Option<&[u64]>,
    ) {
        let is_empty = rows.clone().next().is_none() && returns.is_none();
        self.set(ImageSection::Rules, is_empty, |out| {
            set.put(rows, returns, out);
        });
    }

    /// Sets the whole image.
    pub fn set_file(&mut self, bytes: Vec<u8>) {
        self.set(ImageSection::File, false, |out| *out = bytes);
    }

    /// Sets the callers that chains of frame pointers miss.
    pub fn set_callers(&mut self, callers: &[MissedCaller]) {
        self.set(ImageSection::Callers, callers.is_empty(), |out| {
            varint::put(out, callers.len() as u64);
            callers.iter().for_each(|caller| caller.put(out));
        });
    }

    fn set(&mut self, section: ImageSection, is_empty: bool, put: impl FnOnce(&mut Vec<u8>)) {
        let tag = u64::from(section.number());
        self.others.retain(|(known, _)| *known != tag);
        if !is_empty {
            let mut bytes = Vec::new();
            put(&mut bytes);
            self.others.push((tag, bytes));
        }
    }

    /// The size of its sections in bytes, without identity and symbols.
    pub fn sections_bytes(&self) -> usize {
        self.others.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Appends the encoded part.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        self.identity.put(&mut bytes);
        section::put(out, u64::from(ImageSection::Identity.number()), &bytes);
        if !self.symbols.is_empty() {
            bytes.clear();
            self.symbols.put(&mut bytes);
            section::put(out, u64::from(ImageSection::Symbols.number()), &bytes);
        }
        for (tag, bytes) in &self.others {
            section::put(out, *tag, bytes);
        }
    }

    /// Reads a part.
    ///
    /// # Errors
    /// A fault in its identity, its symbols or the list of its sections, or a missing identity. Faults inside other
    /// sections are reported by [`ImagePart::sections`].
    pub fn parse(payload: &[u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(payload, "image section");
        let mut part: Option<ImagePart> = None;
        while !cursor.is_empty() {
            let tag = cursor.varint()?;
            let length = cursor.varint_up_to(payload.len(), "a section fits into its block")?;
            let bytes = cursor.take(length)?;
            match (known(tag), &mut part) {
                (Some(section @ ImageSection::Identity), None) => {
                    let identity = ImageIdentity::read(SectionReader::new(section, bytes))?;
                    part = Some(ImagePart::new(identity));
                }
                (Some(section @ ImageSection::Symbols), Some(part)) if part.symbols.is_empty() => {
                    part.symbols = Symbols::read(SectionReader::new(section, bytes))?;
                }
                (Some(ImageSection::Identity | ImageSection::Symbols), _) | (_, None) => {
                    return Err(misplaced(tag));
                }
                (_, Some(part)) if part.may_add(tag) => part.others.push((tag, bytes.to_vec())),
                _ => return Err(misplaced(tag)),
            }
        }
        part.ok_or(Fault::Short("image identity"))
    }

    /// Whether another section with this tag may follow.
    fn may_add(&self, tag: u64) -> bool {
        self.others.len() < MOST_OTHERS && self.others.iter().all(|(known, _)| *known != tag)
    }
}

impl Section<'_> {
    /// Decodes all sections and keeps nothing.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), Fault> {
        fn all<T>(mut entries: impl Iterator<Item = Result<T, Fault>>) -> Result<(), Fault> {
            entries.try_for_each(|entry| entry.map(drop))
        }
        match self {
            Section::Segments(segments) => all(segments.clone()),
            Section::Lines(lines) => {
                all(lines.texts.clone()).and_then(|()| all(lines.rows.clone()))
            }
            Section::Rules(rules) => all(rules.returns()?.into_iter().flatten()),
            Section::File(_) => Ok(()),
            Section::Callers(callers) => all(callers.clone()),
        }
    }
}

fn known(tag: u64) -> Option<ImageSection> {
    u16::try_from(tag).ok().and_then(ImageSection::from_number)
}

fn misplaced(tag: u64) -> Fault {
    Fault::Range {
        what: "image section",
        value: tag,
        rule: "the identity comes first, each section once, at most 66",
    }
}

#[cfg(test)]
mod tests;
