//! The bytes of one section: encoding and decoding of numbers and texts. Errors carry the name of the section and the
//! byte at which the wrong value begins.

use crate::error::Fault;
use crate::layout::ImageSection;
use crate::varint::{self, Cursor};

/// Appends a section.
pub(super) fn put(out: &mut Vec<u8>, tag: u64, section: &[u8]) {
    varint::put(out, tag);
    put_bytes(out, section);
}

/// Appends the length of `bytes`, then `bytes`.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a section from front to back.
#[derive(Debug, Clone, Copy)]
pub struct SectionReader<'a> {
    cursor: Cursor<'a>,
    section: ImageSection,
    section_bytes: usize,
    /// Start of the last value, counted from the section's end.
    from_end: usize,
}

impl<'a> SectionReader<'a> {
    pub(super) fn new(section: ImageSection, bytes: &'a [u8]) -> Self {
        SectionReader {
            cursor: Cursor::new(bytes, "a value"),
            section,
            section_bytes: bytes.len(),
            from_end: bytes.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cursor.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.cursor.remaining()
    }

    /// Adds the position of the last value to a fault.
    #[cold]
    pub(super) fn fault(&self, what: Fault) -> Fault {
        Fault::Section {
            section: self.section.name(),
            at: self.section_bytes - self.from_end,
            what: Box::new(what),
        }
    }

    /// The fault of a last value outside its range.
    #[cold]
    pub(super) fn refuse(&self, what: &'static str, value: u64, rule: &'static str) -> Fault {
        self.fault(Fault::Range { what, value, rule })
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        self.from_end = self.cursor.remaining();
        self.cursor.varint().map_err(|fault| self.fault(fault))
    }

    /// The next number, at most `most`.
    #[inline]
    pub(super) fn up_to(
        &mut self,
        most: usize,
        what: &'static str,
        rule: &'static str,
    ) -> Result<usize, Fault> {
        let value = self.number()?;
        match usize::try_from(value) {
            Ok(small) if small <= most => Ok(small),
            _ => Err(self.refuse(what, value, rule)),
        }
    }

    /// The next number as a count of entries that take at least `least_bytes` each.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize, Fault> {
        let value = self.number()?;
        match usize::try_from(value) {
            Ok(count) if count <= self.remaining() / least_bytes => Ok(count),
            _ => Err(self.refuse("a count", value, "what is counted fits into its section")),
        }
    }

    /// The next number as a difference, which may be negative.
    pub(super) fn signed(&mut self) -> Result<i64, Fault> {
        self.from_end = self.cursor.remaining();
        let delta = self.cursor.delta(0).map_err(|fault| self.fault(fault))?;
        Ok(delta.cast_signed())
    }

    /// The next address, encoded as its difference from `before`.
    #[inline]
    pub(super) fn address(&mut self, before: u64) -> Result<u64, Fault> {
        let step = self.number()?;
        let address = before.checked_add(step);
        address.ok_or_else(|| self.refuse("step to an address", step, "addresses have 64 bits"))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        self.from_end = self.cursor.remaining();
        self.cursor.take(length).map_err(|fault| self.fault(fault))
    }

    pub(super) fn text(&mut self, length: usize) -> Result<&'a str, Fault> {
        let text = std::str::from_utf8(self.take(length)?);
        text.map_err(|_| self.fault(Fault::Text))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.count(1)?;
        self.take(length)
    }
}

/// One of many entries that follow each other in a section.
pub trait Entry: Sized {
    /// Fewest bytes of an entry.
    const LEAST_BYTES: usize;

    /// Reads one entry. `before` is the address that this entry's address is relative to, and is set to this entry's
    /// address or end. `most` is the largest number that the entry may refer to.
    fn read(reader: &mut SectionReader<'_>, before: &mut u64, most: usize) -> Result<Self, Fault>;
}

/// Entries of a section, in order. The iterator ends after the first that can't be read.
#[derive(Debug, Clone)]
pub struct Entries<'a, T> {
    pub(super) reader: SectionReader<'a>,
    left: usize,
    before: u64,
    most: usize,
    entry: std::marker::PhantomData<T>,
}

impl<'a, T: Entry> Entries<'a, T> {
    /// Reads the number of entries; the entries follow.
    pub(super) fn new(mut reader: SectionReader<'a>, most: usize) -> Result<Self, Fault> {
        Ok(Entries {
            left: reader.count(T::LEAST_BYTES)?,
            reader,
            before: 0,
            most,
            entry: std::marker::PhantomData,
        })
    }
}

impl<T: Entry> Iterator for Entries<'_, T> {
    type Item = Result<T, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = T::read(&mut self.reader, &mut self.before, self.most);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}
