//! Source lines and inlined functions: an address of an image goes in, the functions there come
//! out with file and line, from the image's DWARF, or from the table that Go leaves in a stripped
//! program.

use super::dwarf::DwarfLines;
use super::go::GoFunctions;
use super::line::{Line, declare, has_undeclared};
use super::sections::LineStore;
use crate::images::{Image, ImageAddress};
use std::sync::{Arc, OnceLock};

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
    pub(crate) fn find_declared(&self, address: ImageAddress) -> Vec<Line> {
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
