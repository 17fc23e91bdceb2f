//! Compiles call frame information. Input: an image's .eh_frame and .debug_frame. Output: one [`RuleTable`]. Both
//! sections are read, since a unikernel may have either or both; stubs that neither describes get rules of their own.
//! Damaged entries are counted and left out; time and memory are linear in the sections' sizes.

use super::linkage::{self, Stubs};
use super::rows::Rows;
use super::table::RuleTable;
use crate::images::call_frames::{Cies, FrameSections, Frames, Function, Skipped};
use crate::images::{Image, ImageAddress};
use std::convert::Infallible;
use uprof::Arch;

impl RuleTable {
    /// Compiles the unwind rules of all of `image`: ORC's of a kernel that has them, otherwise call frame information;
    /// `debug` is the debug file split off it, if there is one, whose .debug_frame counts as the image's own.
    ///
    /// An image without either gives an empty table: its frames then need frame pointers.
    pub fn compile(image: &Image, debug: Option<&Image>) -> RuleTable {
        if let Some(table) = RuleTable::of_orc(image) {
            return table;
        }
        let mut skipped = Skipped::default();
        let sections = FrameSections::of(image, debug);
        let frames = sections.frames(image, debug);
        let functions = frames.functions(image, &mut skipped);
        let stubs = free_stubs(image, &functions);
        let mut rows = Rows::new(base(&functions, &stubs));
        let mut stubs = stubs.iter().peekable();
        let mut compiler = Compiler::new(image, &frames);
        for function in &functions {
            while let Some(before) = stubs.next_if(|stubs| stubs.start < function.start) {
                rows.push_stubs(image.arch(), before);
            }
            compiler.push(&mut rows, function);
        }
        stubs.for_each(|behind| rows.push_stubs(image.arch(), behind));
        rows.finish(Skipped {
            broken: skipped.broken + compiler.broken,
            ..skipped
        })
    }

    /// The table of a kernel that has ORC's rules. They describe all of it, including its assembler.
    pub(super) fn of_orc(image: &Image) -> Option<RuleTable> {
        let (set, rows) = image.orc()?.rules();
        let Ok(table) = RuleTable::of_rows(set, rows.into_iter().map(Ok::<_, Infallible>));
        Some(table)
    }
}

/// Runs the programs of functions, in any order.
pub(super) struct Compiler<'a> {
    image: &'a Image,
    frames: &'a Frames<'a>,
    eh_cies: Cies<'a>,
    debug_cies: Cies<'a>,
    /// Damaged programs.
    broken: u32,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(image: &'a Image, frames: &'a Frames<'a>) -> Compiler<'a> {
        Compiler {
            image,
            frames,
            eh_cies: Cies::default(),
            debug_cies: Cies::default(),
            broken: 0,
        }
    }

    /// Appends the rows of `function` to `rows`.
    pub(super) fn push(&mut self, rows: &mut Rows, function: &Function) {
        let frames = self.frames;
        let is_whole = if function.is_debug_frame {
            let section = &frames.debug_frame;
            rows.expand(section, frames.bases, function, &mut self.debug_cies)
        } else {
            rows.expand(&frames.eh_frame, frames.bases, function, &mut self.eh_cies)
        };
        self.broken += u32::from(is_whole.is_none());
        let start = ImageAddress(function.start);
        let code = match self.image.arch() {
            Arch::Aarch64 => self.image.code_at(start, function.end - function.start),
            Arch::X86_64 => None,
        };
        rows.push_function(function, code);
    }
}

/// The address to which those of a table are relative.
pub(super) fn base(functions: &[Function], stubs: &[Stubs]) -> u64 {
    let function = functions.first().map(|function| function.start);
    let stub = stubs.first().map(|stubs| stubs.start);
    function.into_iter().chain(stub).min().unwrap_or(0)
}

/// The stubs of `image` that none of `functions` describes.
pub(super) fn free_stubs(image: &Image, functions: &[Function]) -> Vec<Stubs> {
    let mut stubs = linkage::stubs(image);
    stubs.retain(|stubs| is_free(functions, stubs.start, stubs.end));
    stubs
}

/// Whether none of `functions` (ascending, without overlap) has an address from `start` to `end`.
fn is_free(functions: &[Function], start: u64, end: u64) -> bool {
    let after = functions.partition_point(|function| function.start < end);
    let last = after.checked_sub(1).and_then(|last| functions.get(last));
    last.is_none_or(|function| function.end <= start)
}
