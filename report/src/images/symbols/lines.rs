//! Source lines and inlined functions, from DWARF or from Go's table in a stripped program. Input: an address of an
//! image. Output: the functions there, with file and line.

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
    /// Go's table beside DWARF, which up to Go 1.20 lacks the first lines of functions; read when needed.
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

    /// As [`Lines::find`], with the lines on which the functions are declared, if known. It takes longer.
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

    /// Descriptions of missing parts of the lines; of split files, only those that were needed.
    pub fn missing(&self) -> Vec<String> {
        match &self.source {
            Source::Dwarf(dwarf) => dwarf.missing(),
            Source::Go(_) => Vec::new(),
        }
    }
}
