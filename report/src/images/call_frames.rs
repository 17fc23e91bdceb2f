//! Call frame information of an image. Input: .eh_frame and .debug_frame. Output: the functions that they describe,
//! and the entries common to many functions (CIEs), each read once. Damaged entries are counted and left out.

use super::{Image, ImageAddress};
use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice,
    LittleEndian, UnwindOffset, UnwindSection, Vendor,
};
use std::borrow::Cow;
use std::collections::HashMap;
use uprof::Arch;

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
    pub(crate) bases: BaseAddresses,
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
pub(crate) type Cies<'a> = HashMap<usize, Option<CommonInformationEntry<Bytes<'a>>>>;

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
        let entry = section.cie_from_offset(bases, offset).ok()?;
        (entry.entry_len() <= CIE_BYTES_MAX).then_some(entry)
    });
    known.clone().ok_or(gimli::Error::NoEntryAtGivenOffset(0))
}

/// The ranges of the functions with unwind rules in `image`, ascending. A stripped image has these though it has lost
/// their names.
pub(crate) fn function_ranges(image: &Image) -> Vec<(u64, u64)> {
    let functions = |frames: &Frames<'_>| frames.functions(image, &mut Skipped::default());
    let functions = with_frames(image, None, functions);
    let ranges = functions
        .iter()
        .map(|function| (function.start, function.end));
    ranges.collect()
}

/// Passes the two sections of `image` to `use_frames`.
pub(crate) fn with_frames<T>(
    image: &Image,
    debug: Option<&Image>,
    use_frames: impl FnOnce(&Frames<'_>) -> T,
) -> T {
    let section = |name| image.section(name).unwrap_or(Cow::Borrowed(&[]));
    let eh_frame = section(".eh_frame");
    let debug_frame = match image.section(".debug_frame") {
        Some(own) => own,
        None => debug
            .and_then(|debug| debug.section(".debug_frame"))
            .unwrap_or_default(),
    };
    let address = |name| {
        image
            .section_range(name)
            .map_or(0, |(address, _)| address.0)
    };
    let mut frames = Frames {
        eh_frame: EhFrame::new(&eh_frame, LittleEndian),
        debug_frame: DebugFrame::new(&debug_frame, LittleEndian),
        bases: BaseAddresses::default()
            .set_eh_frame(address(".eh_frame"))
            .set_text(address(".text"))
            .set_got(address(".got")),
    };
    frames.debug_frame.set_address_size(8);
    if image.arch() == Arch::Aarch64 {
        frames.eh_frame.set_vendor(Vendor::AArch64);
        frames.debug_frame.set_vendor(Vendor::AArch64);
    }
    use_frames(&frames)
}

impl Frames<'_> {
    /// The functions that they describe, ascending and without overlap.
    pub(crate) fn functions(&self, image: &Image, skipped: &mut Skipped) -> Vec<Function> {
        let mut functions = Vec::new();
        list(&self.eh_frame, &self.bases, false, &mut functions, skipped);
        list(
            &self.debug_frame,
            &self.bases,
            true,
            &mut functions,
            skipped,
        );
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

/// Appends the functions that one section describes.
fn list<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    is_debug_frame: bool,
    functions: &mut Vec<Function>,
    skipped: &mut Skipped,
) where
    S: UnwindSection<Bytes<'a>>,
{
    let mut cies = Cies::new();
    let mut entries = section.entries(bases);
    while functions.len() < FUNCTIONS_MAX {
        let partial = match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => partial,
            Ok(Some(CieOrFde::Cie(_))) => continue,
            Ok(None) => break,
            // The length of an entry is damaged, so the start of the next one is unknown.
            Err(_) => {
                skipped.broken += 1;
                break;
            }
        };
        let parsed =
            partial.parse(|section, bases, offset| common_entry(&mut cies, section, bases, offset));
        let Ok(entry) = parsed else {
            skipped.broken += 1;
            continue;
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
