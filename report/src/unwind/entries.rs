//! Entries of call frame information: which function one describes, and the entries that many functions have in
//! common, each of which is read once.

use gimli::{
    BaseAddresses, CommonInformationEntry, EndianSlice, LittleEndian, UnwindOffset, UnwindSection,
};
use std::collections::HashMap;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Real entries common to many functions have some 30 bytes. Every function that refers to one
/// carries out all of it, so that a long one would make compiling quadratic.
const CIE_BYTES_MAX: usize = 256;

/// A function that the image describes: where it is, and where its description is.
pub(super) struct Function {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of its description, from the start of its section.
    pub(super) offset: usize,
    pub(super) is_debug_frame: bool,
}

/// Entries common to many functions, by their offset; `None` is one that is damaged.
pub(super) type Cies<'a> = HashMap<usize, Option<CommonInformationEntry<Bytes<'a>>>>;

/// Reads the common entry at `offset` of `section`, or finds it among those read before.
pub(super) fn common_entry<'a, S>(
    cies: &mut Cies<'a>,
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Bytes<'a>>>
where
    S: UnwindSection<Bytes<'a>>,
{
    let known = cies.entry(UnwindOffset::into(offset)).or_insert_with(|| {
        let entry = section.cie_from_offset(bases, offset).ok()?;
        (entry.entry_len() <= CIE_BYTES_MAX).then_some(entry)
    });
    known.clone().ok_or(gimli::Error::NoEntryAtGivenOffset(0))
}
