//! Call frame information of an image. Input: .eh_frame and .debug_frame. Output: the functions that they describe,
//! and the entries common to many functions (CIEs), each read once. Damaged entries are counted and left out.

use super::{Image, ImageAddress};
use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, LittleEndian, Reader,
    Section, UnwindOffset, UnwindSection, Vendor,
};
use std::borrow::Cow;
use std::ops::Range;
use uprof::{Arch, WordMap};

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Real CIEs have about 30 bytes. Every function that refers to one executes all of it, so that a long one would make
/// compiling quadratic.
const CIE_BYTES_MAX: usize = 256;

/// Functions described by one image beyond this many are ignored; librustc_driver has 107,000.
const FUNCTIONS_MAX: usize = 8_000_000;

/// What was left out of a table, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Functions described at addresses where the image has no code, as GNU ld leaves at 0 for
    /// sections it has dropped.
    pub outside: u32,
    /// Functions of no length.
    pub empty: u32,
    /// Functions described twice, in both sections or by a linker's leftovers.
    pub repeated: u32,
    /// Functions whose description is damaged, completely or from some row on.
    pub broken: u32,
}

/// The two sections of one image, and where they are loaded.
pub(crate) struct Frames<'a> {
    pub(crate) eh_frame: EhFrame<Bytes<'a>>,
    pub(crate) debug_frame: DebugFrame<Bytes<'a>>,
    pub(crate) bases: &'a BaseAddresses,
}

/// A function that the image describes.
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Of its description (FDE), from the start of its section.
    pub(crate) offset: usize,
    pub(crate) is_debug_frame: bool,
}

/// CIEs by their offset; `None` for a damaged one.
pub(crate) type Cies<'a> = WordMap<usize, Option<CommonInformationEntry<Bytes<'a>>>>;

/// Reads the CIE at `offset` of `section`, or finds it among those read before.
pub(crate) fn common_entry<'a, S>(
    cies: &mut Cies<'a>,
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Bytes<'a>>>
where
    S: UnwindSection<Bytes<'a>>,
{
    let known = cies.entry(UnwindOffset::into(offset)).or_insert_with(|| {
        // Its length first: the end of its text would be looked for in all of it.
        let mut start = *section.section();
        start.skip(UnwindOffset::into(offset)).ok()?;
        let (length, _) = start.read_initial_length().ok()?;
        (length <= CIE_BYTES_MAX).then(|| section.cie_from_offset(bases, offset).ok())?
    });
    known.clone().ok_or(gimli::Error::NoEntryAtGivenOffset(0))
}

/// The ranges of the functions with unwind rules in `image`, ascending. A stripped image has these though it has lost
/// their names.
pub(crate) fn function_ranges(image: &Image) -> Vec<(u64, u64)> {
    let sections = FrameSections::of(image, None);
    let functions = sections
        .frames(image, None)
        .functions(image, &mut Skipped::default());
    let ranges = functions
        .iter()
        .map(|function| (function.start, function.end));
    ranges.collect()
}

/// The bytes of a section.
#[derive(Debug)]
enum SectionBytes {
    /// A range of the image's file.
    InImage(Range<usize>),
    /// A range of the file that has its debug information.
    InDebug(Range<usize>),
    /// The section is compressed in its file.
    Unpacked(Vec<u8>),
}

/// Where the two sections of one image are, so that they can be read again without a search.
#[derive(Debug)]
pub(crate) struct FrameSections {
    eh_frame: SectionBytes,
    debug_frame: SectionBytes,
    bases: BaseAddresses,
    arch: Arch,
}

impl FrameSections {
    /// The sections of `image`; `debug` is the debug file split off it, if there is one, whose .debug_frame counts as
    /// the image's own.
    pub(crate) fn of(image: &Image, debug: Option<&Image>) -> FrameSections {
        let bytes = |image: &Image, name, in_file: fn(Range<usize>) -> SectionBytes| {
            Some(match (image.section(name)?, image.section_in_file(name)) {
                (Cow::Borrowed(_), Some(range)) => in_file(range),
                (section, _) => SectionBytes::Unpacked(section.into_owned()),
            })
        };
        let of_debug = || bytes(debug?, ".debug_frame", SectionBytes::InDebug);
        let nothing = SectionBytes::InImage(0..0);
        let own = |name| bytes(image, name, SectionBytes::InImage);
        let address = |name| {
            image
                .section_range(name)
                .map_or(0, |(address, _)| address.0)
        };
        FrameSections {
            eh_frame: own(".eh_frame").unwrap_or(SectionBytes::InImage(0..0)),
            debug_frame: own(".debug_frame").or_else(of_debug).unwrap_or(nothing),
            bases: BaseAddresses::default()
                .set_eh_frame(address(".eh_frame"))
                .set_text(address(".text"))
                .set_got(address(".got")),
            arch: image.arch(),
        }
    }

    /// Their contents, from the files that [`FrameSections::of`] had.
    pub(crate) fn frames<'a>(&'a self, image: &'a Image, debug: Option<&'a Image>) -> Frames<'a> {
        let bytes = |section: &'a SectionBytes| match section {
            SectionBytes::InImage(range) => image.bytes().get(range.clone()).unwrap_or_default(),
            SectionBytes::InDebug(range) => debug
                .and_then(|debug| debug.bytes().get(range.clone()))
                .unwrap_or_default(),
            SectionBytes::Unpacked(bytes) => bytes,
        };
        let mut frames = Frames {
            eh_frame: EhFrame::new(bytes(&self.eh_frame), LittleEndian),
            debug_frame: DebugFrame::new(bytes(&self.debug_frame), LittleEndian),
            bases: &self.bases,
        };
        frames.debug_frame.set_address_size(8);
        if self.arch == Arch::Aarch64 {
            frames.eh_frame.set_vendor(Vendor::AArch64);
            frames.debug_frame.set_vendor(Vendor::AArch64);
        }
        frames
    }
}

impl Frames<'_> {
    /// The functions that they describe, ascending and without overlap.
    pub(crate) fn functions(&self, image: &Image, skipped: &mut Skipped) -> Vec<Function> {
        let mut functions = Vec::new();
        list(&self.eh_frame, self.bases, false, &mut functions, skipped);
        list(&self.debug_frame, self.bases, true, &mut functions, skipped);
        functions.retain(|function| {
            let is_inside = image.segments().is_code(ImageAddress(function.start));
            skipped.outside += u32::from(!is_inside);
            is_inside
        });
        functions
            .sort_by_key(|function| (function.start, function.is_debug_frame, function.offset));
        drop_leftovers_at_zero(&mut functions, skipped);
        let before = functions.len();
        functions.dedup_by_key(|function| function.start);
        skipped.repeated += (before - functions.len()) as u32;
        // Where two overlap, the one that starts later is more exact.
        for index in 1..functions.len() {
            let next = functions[index].start;
            functions[index - 1].end = functions[index - 1].end.min(next);
        }
        functions
    }
}

/// GNU ld's --gc-sections sets the start of what it dropped to 0. In an image with code at 0 (Mini-OS), such
/// leftovers overlap or repeat its first functions.
fn drop_leftovers_at_zero(functions: &mut Vec<Function>, skipped: &mut Skipped) {
    let at_zero = functions.partition_point(|function| function.start == 0);
    let overlaps = match functions.get(at_zero) {
        Some(next) => functions[..at_zero]
            .iter()
            .any(|function| function.end > next.start),
        None => false,
    };
    if at_zero > 1 || overlaps {
        functions.drain(..at_zero);
        skipped.outside += at_zero as u32;
    }
}

/// Appends the functions that one section describes. Of a CIE that isn't understood, such as those with pointers signed
/// by the other key of aarch64 (augmentation `B`), only the functions that refer to it are lost.
fn list<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    is_debug_frame: bool,
    functions: &mut Vec<Function>,
    skipped: &mut Skipped,
) where
    S: UnwindSection<Bytes<'a>> + Section<Bytes<'a>>,
{
    let mut cies = Cies::default();
    let whole = *section.reader();
    let mut rest = whole;
    while functions.len() < FUNCTIONS_MAX && !rest.is_empty() {
        let offset = S::Offset::from(rest.offset_from(whole));
        let length = rest.read_initial_length().map(|(length, _)| length);
        match length.and_then(|length| rest.skip(length).map(|()| length)) {
            // A zero ends .eh_frame alone.
            Ok(0) if is_debug_frame => continue,
            Ok(0) => break,
            Ok(_) => {}
            // The length of an entry is damaged, so the start of the next one is unknown.
            Err(_) => {
                skipped.broken += 1;
                break;
            }
        }
        let parsed = section.fde_from_offset(bases, offset, |section, bases, offset| {
            common_entry(&mut cies, section, bases, offset)
        });
        let entry = match parsed {
            Ok(entry) => entry,
            // It is a CIE.
            Err(gimli::Error::NotCiePointer(_)) => continue,
            Err(_) => {
                skipped.broken += 1;
                continue;
            }
        };
        let (start, end) = (entry.initial_address(), entry.end_address());
        if entry.len() == 0 {
            skipped.empty += 1;
        } else if end <= start {
            skipped.broken += 1;
        } else {
            functions.push(Function {
                start,
                end,
                offset: entry.offset(),
                is_debug_frame,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_entry_that_is_not_understood_costs_its_own_functions_alone() {
        let mut bytes = Vec::new();
        // The second field is how far before it the CIE begins, and 0 in a CIE.
        let mut entry = |cie: Option<usize>, body: &[u8]| {
            let at = bytes.len();
            let before = cie.map_or(0, |cie| at + 4 - cie);
            let padded = body.len().next_multiple_of(4);
            bytes.extend((padded as u32 + 4).to_le_bytes());
            bytes.extend((before as u32).to_le_bytes());
            bytes.extend(body);
            bytes.resize(at + 8 + padded, 0);
            at
        };
        // Factors 1 and -8, return address in x30, absolute addresses.
        let common = |augmentation: &str| {
            let rest = [0, 1, 0x78, 30, 1, 0];
            [&[1][..], augmentation.as_bytes(), &rest].concat()
        };
        let function = |start: u64| {
            let range = [start, 0x10].map(u64::to_le_bytes).concat();
            [&range[..], &[0]].concat()
        };
        for (augmentation, start) in [("zRB", 0x1000), ("zR", 0x2000), ("zRB", 0x3000)] {
            let cie = entry(None, &common(augmentation));
            entry(Some(cie), &function(start));
        }
        bytes.extend([0; 4]);
        let bases = BaseAddresses::default();
        let section = EhFrame::new(&bytes, LittleEndian);
        let (mut functions, mut skipped) = (Vec::new(), Skipped::default());
        list(&section, &bases, false, &mut functions, &mut skipped);
        let ranges: Vec<_> = functions.iter().map(|one| (one.start, one.end)).collect();
        assert_eq!(ranges, [(0x2000, 0x2010)]);
        assert_eq!(skipped.broken, 2);
    }
}
