//! Compiles call frame information to a table: an image's .eh_frame and .debug_frame go in, one
//! [`RuleTable`] comes out. Both sections are read, since a unikernel may have either or both; stubs
//! that neither describes get rules of their own.
//! Damaged entries are counted and left out; work and memory grow with the sections' bytes only.

use super::entries::{Bytes, Cies, Function, common_entry};
use super::linkage::{self, Stubs};
use super::rows::Rows;
use super::table::{RuleTable, Skipped};
use crate::images::{Image, ImageAddress};
use gimli::{BaseAddresses, CieOrFde, DebugFrame, EhFrame, LittleEndian, UnwindSection, Vendor};
use std::borrow::Cow;
use std::convert::Infallible;
use uprof::Arch;

/// Functions described by one image beyond this many are ignored; librustc_driver has 107,000.
const FUNCTIONS_MAX: usize = 8_000_000;

/// The two sections of one image, and where they are loaded.
struct Frames<'a> {
    eh_frame: EhFrame<Bytes<'a>>,
    debug_frame: DebugFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

impl RuleTable {
    /// Compiles the unwind rules of `image`: ORC's of a kernel that has them, otherwise call frame information;
    /// `debug` is the debug file split off it, if there is one, whose .debug_frame counts as the image's own.
    ///
    /// An image without any gives an empty table: its frames then need frame pointers.
    pub fn compile(image: &Image, debug: Option<&Image>) -> RuleTable {
        // A kernel's own rules describe all of it, its assembler too.
        if let Some(orc) = image.orc() {
            let (set, rows) = orc.rules();
            let Ok(table) = RuleTable::of_rows(set, rows.into_iter().map(Ok::<_, Infallible>));
            return table;
        }
        let mut skipped = Skipped::default();
        with_frames(image, debug, |frames| {
            let functions = frames.functions(image, &mut skipped);
            let mut stubs = linkage::stubs(image);
            stubs.retain(|stubs| is_free(&functions, stubs.start, stubs.end));
            frames.expand(image, &functions, &stubs, skipped)
        })
    }
}

/// Where the functions are that `image` says how to unwind: first address and the one after the
/// last, ascending. A stripped image has these even though it has lost their names.
pub(crate) fn function_ranges(image: &Image) -> Vec<(u64, u64)> {
    let functions = |frames: &Frames<'_>| frames.functions(image, &mut Skipped::default());
    let functions = with_frames(image, None, functions);
    let ranges = functions
        .iter()
        .map(|function| (function.start, function.end));
    ranges.collect()
}

/// Passes the two sections of `image` to `use_frames`.
fn with_frames<T>(
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
    /// The functions to expand, ascending and without overlap.
    fn functions(&self, image: &Image, skipped: &mut Skipped) -> Vec<Function> {
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
        // Where two overlap, the one that starts later is the more exact.
        for index in 1..functions.len() {
            let next = functions[index].start;
            functions[index - 1].end = functions[index - 1].end.min(next);
        }
        functions
    }

    fn expand(
        &self,
        image: &Image,
        functions: &[Function],
        stubs: &[Stubs],
        skipped: Skipped,
    ) -> RuleTable {
        let arch = image.arch();
        let starts = functions.first().map(|function| function.start);
        let base = starts
            .into_iter()
            .chain(stubs.first().map(|stubs| stubs.start));
        let mut rows = Rows::new(base.min().unwrap_or(0));
        let mut stubs = stubs.iter().peekable();
        let mut broken = 0;
        let (mut eh_cies, mut debug_cies) = (Cies::new(), Cies::new());
        for function in functions {
            while let Some(before) = stubs.next_if(|stubs| stubs.start < function.start) {
                rows.push_stubs(arch, before);
            }
            let is_whole = if function.is_debug_frame {
                rows.expand(&self.debug_frame, &self.bases, function, &mut debug_cies)
            } else {
                rows.expand(&self.eh_frame, &self.bases, function, &mut eh_cies)
            };
            broken += u32::from(is_whole.is_none());
            let start = ImageAddress(function.start);
            let code = match arch {
                Arch::Aarch64 => image.code_at(start, function.end - function.start),
                Arch::X86_64 => None,
            };
            rows.push_function(function, code);
        }
        stubs.for_each(|behind| rows.push_stubs(arch, behind));
        rows.finish(Skipped {
            broken: skipped.broken + broken,
            ..skipped
        })
    }
}

/// Whether none of `functions` (ascending, without overlap) has an address from `start` to `end`.
fn is_free(functions: &[Function], start: u64, end: u64) -> bool {
    let after = functions.partition_point(|function| function.start < end);
    let last = after.checked_sub(1).and_then(|last| functions.get(last));
    last.is_none_or(|function| function.end <= start)
}

/// GNU ld's --gc-sections sets the start of what it dropped to 0. Where an image really has code
/// at 0 (Mini-OS), such leftovers lie over its first functions: they overlap or repeat.
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
            // The length of an entry is damaged: where the next one starts is unknown.
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
