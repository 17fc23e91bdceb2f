//! Source lines and inlined functions: an address of an image goes in, the functions there come
//! out with file and line, from the image's DWARF, or from the table that Go leaves in a stripped
//! program.

use super::dwarf::{Bytes, DwarfLines};
use super::go::GoFunctions;
use crate::arena::Arena;
use crate::images::{Image, ImageAddress};
use gimli::{EndianSlice, LittleEndian};
use std::borrow::Cow;
use std::sync::Arc;

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
pub struct Lines<'a>(Source<'a>);

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
        if let Some(dwarf) = DwarfLines::new(store, image, debug, search) {
            return Some(Lines(Source::Dwarf(Box::new(dwarf))));
        }
        let image: &'a Image = store.images.keep(Arc::clone(image));
        GoFunctions::of(image).map(|functions| Lines(Source::Go(functions)))
    }

    /// The functions at `address`, outermost first; empty if nothing is known there.
    pub fn find(&self, address: ImageAddress) -> Vec<Line> {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.find(address),
            Source::Go(functions) => functions.find(address),
        }
    }

    /// What isn't here of the lines, in words; of split files only those that were asked for.
    pub fn missing(&self) -> Vec<String> {
        match &self.0 {
            Source::Dwarf(dwarf) => dwarf.missing(),
            Source::Go(_) => Vec::new(),
        }
    }
}
