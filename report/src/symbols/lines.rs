//! Source lines and inlined functions: an address of an image goes in, the functions there come
//! out with file and line, from the image's DWARF, or from the table that Go leaves in a stripped
//! program.

use super::dwarf::{Bytes, DwarfLines};
use super::go::GoFunctions;
use crate::arena::Arena;
use crate::images::{Image, ImageAddress};
use gimli::{EndianSlice, LittleEndian};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// What is known of one function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// As the linker would write it, or its name with its path where no linker has seen it; `None`
    /// if only the line is known.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not asked for.
    pub start_line: u32,
}

/// Owns images and unpacked sections for as long as lines are asked for.
#[derive(Debug, Default)]
pub struct LineStore {
    pub(super) images: Arena<Arc<Image>>,
    sections: Arena<Vec<u8>>,
}

impl LineStore {
    pub(super) fn section<'a>(&'a self, image: &'a Image, name: &str) -> Bytes<'a> {
        let bytes = match image.section(name) {
            Some(Cow::Borrowed(bytes)) => bytes,
            Some(Cow::Owned(bytes)) => self.sections.keep(bytes),
            None => &[],
        };
        EndianSlice::new(bytes, LittleEndian)
    }
}

/// The lines of one image.
#[derive(Debug)]
pub struct Lines<'a> {
    source: Source<'a>,
    image: &'a Image,
    /// Go's own table beside DWARF, which up to 1.20 doesn't say where Go's functions begin; read when asked for.
    go: OnceLock<Option<GoFunctions<'a>>>,
}

#[derive(Debug)]
enum Source<'a> {
    Dwarf(Box<DwarfLines<'a>>),
    Go(GoFunctions<'a>),
}

impl<'a> Lines<'a> {
    /// The lines of `image`, whose DWARF may lie in the file `debug` split off it. `None` if there
    /// are none. `search`: whether to open files that DWARF names.
    pub fn new(
        store: &'a LineStore,
        image: &Arc<Image>,
        debug: Option<&Arc<Image>>,
        search: bool,
    ) -> Option<Lines<'a>> {
        let dwarf = DwarfLines::new(store, image, debug, search);
        let image: &'a Image = store.images.keep(Arc::clone(image));
        let source = match dwarf {
            Some(dwarf) => Source::Dwarf(Box::new(dwarf)),
            None => Source::Go(GoFunctions::of(image)?),
        };
        let go = OnceLock::new();
        Some(Lines { source, image, go })
    }

    /// The functions at `address`, outermost first; empty if nothing is known there.
    pub fn find(&self, address: ImageAddress) -> Vec<Line> {
        match &self.source {
            Source::Dwarf(dwarf) => dwarf.find(address, false),
            Source::Go(functions) => functions.find(address),
        }
    }

    /// The functions at `address` as [`Lines::find`] gives them, with the lines on which they are declared,
    /// as far as that is known. It takes longer.
    pub fn find_declared(&self, address: ImageAddress) -> Vec<Line> {
        let mut lines = match &self.source {
            Source::Dwarf(dwarf) => dwarf.find(address, true),
            Source::Go(functions) => return functions.find(address),
        };
        if has_undeclared(&lines)
            && let Some(go) = self.go.get_or_init(|| GoFunctions::of(self.image))
        {
            declare(&mut lines, &go.find(address));
        }
        lines
    }

    /// What isn't here of the lines, in words; of split files only those that were asked for.
    pub fn missing(&self) -> Vec<String> {
        match &self.source {
            Source::Dwarf(dwarf) => dwarf.missing(),
            Source::Go(_) => Vec::new(),
        }
    }
}

/// Whether it isn't known of all functions where they begin.
pub(crate) fn has_undeclared(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.start_line == 0)
}

/// Takes from `known`, functions of the same address, where those of `lines` begin.
pub(crate) fn declare(lines: &mut [Line], known: &[Line]) {
    for line in lines.iter_mut().filter(|line| line.start_line == 0) {
        let mut same = known.iter().filter(|one| one.function == line.function);
        line.start_line = same.next().map_or(0, |one| one.start_line);
    }
}
