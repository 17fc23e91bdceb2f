//! Section 4, lines: functions, files and lines at single addresses, with each text stored once.

use super::section::{Entries, Entry, SectionReader};
use crate::error::Fault;
use crate::varint;

/// One of the functions at an address. Function and file are numbers of texts, counted from 1; 0 is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inlined {
    /// Name, not demangled.
    pub function: u32,
    /// Source file.
    pub file: u32,
    /// Line in it, from 1; 0 is unknown.
    pub line: u32,
}

/// The functions at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    /// The address, before the load bias.
    pub address: u64,
    /// The functions, outermost first.
    pub functions: Vec<Inlined>,
}

/// The section, decoded on demand.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    /// Names and paths; the first of them is number 1.
    pub texts: Texts<'a>,
    /// In order of address.
    pub rows: Entries<'a, LineRow>,
}

/// The texts of a section in order, up to the first that can't be read. They are not kept in memory: a section may
/// consist of empty texts.
#[derive(Debug, Clone)]
pub struct Texts<'a> {
    lengths: SectionReader<'a>,
    bytes: SectionReader<'a>,
    left: usize,
}

impl<'a> Iterator for Texts<'a> {
    type Item = Result<&'a str, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let length = self.lengths.count(1);
        let text = length.and_then(|length| self.bytes.text(length));
        if text.is_err() {
            self.left = 0;
        }
        Some(text)
    }
}

impl<'a> Lines<'a> {
    pub(super) fn read(mut reader: SectionReader<'a>) -> Result<Self, Fault> {
        let left = reader.count(1)?;
        let lengths = reader;
        let mut all_bytes = 0;
        for _ in 0..left {
            all_bytes += reader.count(1)?;
        }
        let bytes = reader;
        reader.take(all_bytes)?;
        Ok(Lines {
            texts: Texts {
                lengths,
                bytes,
                left,
            },
            rows: Entries::new(reader, left)?,
        })
    }
}

pub(super) fn put<'r>(
    texts: &[impl AsRef<str>],
    rows: impl ExactSizeIterator<Item = (u64, &'r [Inlined])>,
    out: &mut Vec<u8>,
) {
    let texts = texts.iter().map(AsRef::as_ref);
    varint::put(out, texts.len() as u64);
    let lengths = texts.clone().map(|text| text.len() as u64);
    lengths.for_each(|length| varint::put(out, length));
    texts.for_each(|text| out.extend_from_slice(text.as_bytes()));
    varint::put(out, rows.len() as u64);
    let mut before = 0;
    for (address, functions) in rows {
        varint::put(out, address - before);
        before = address;
        varint::put(out, functions.len() as u64);
        for one in functions {
            for number in [one.function, one.file, one.line] {
                varint::put(out, u64::from(number));
            }
        }
    }
}

impl Entry for LineRow {
    const LEAST_BYTES: usize = 2;

    fn read(reader: &mut SectionReader<'_>, before: &mut u64, most: usize) -> Result<Self, Fault> {
        *before = reader.address(*before)?;
        let count = reader.count(3)?;
        let mut functions = Vec::with_capacity(count);
        for _ in 0..count {
            let mut text =
                || Ok(reader.up_to(most, "a text's number", "there are as many texts")? as u32);
            let (function, file) = (text()?, text()?);
            let line = reader.up_to(u32::MAX as usize, "a line", "lines have 32 bits")?;
            functions.push(Inlined {
                function,
                file,
                line: line as u32,
            });
        }
        Ok(LineRow {
            address: *before,
            functions,
        })
    }
}
