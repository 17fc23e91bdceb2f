//! Compiles call frame information. Input: an image's .eh_frame and .debug_frame. Output: one [`RuleTable`]. Both
//! sections are read, since a unikernel may have either or both; stubs that neither describes get rules of their own.
//! Damaged entries are counted and left out; time and memory are linear in the sections' sizes.

use super::linkage::{self, Stubs};
use super::rows::Rows;
use super::table::RuleTable;
use crate::images::call_frames::{Cies, Frames, Function, Skipped, with_frames};
use crate::images::{Image, ImageAddress};
use std::convert::Infallible;
use uprof::Arch;

impl RuleTable {
    /// Compiles the unwind rules of `image`: ORC's of a kernel that has them, otherwise call frame information;
    /// `debug` is the debug file split off it, if there is one, whose .debug_frame counts as the image's own.
    ///
    /// An image without either gives an empty table: its frames then need frame pointers.
    pub fn compile(image: &Image, debug: Option<&Image>) -> RuleTable {
        // A kernel's own rules describe all of it, including its assembler.
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
            expand(frames, image, &functions, &stubs, skipped)
        })
    }
}

/// The rules of `functions`, which `frames` describe, and of `stubs`.
fn expand(
    frames: &Frames<'_>,
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
            rows.expand(
                &frames.debug_frame,
                &frames.bases,
                function,
                &mut debug_cies,
            )
        } else {
            rows.expand(&frames.eh_frame, &frames.bases, function, &mut eh_cies)
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
/// Whether none of `functions` (ascending, without overlap) has an address from `start` to `end`.
fn is_free(functions: &[Function], start: u64, end: u64) -> bool {
    let after = functions.partition_point(|function| function.start < end);
    let last = after.checked_sub(1).and_then(|last| functions.get(last));
    last.is_none_or(|function| function.end <= start)
}
