//! From places to labels, once for each distinct place of a recording and in parallel.

use super::block::BlockStacks;
use super::{By, Options};
use crate::profile::labels::{Label, LabelId, Labels, TextId};
use crate::recording::Recording;
use crate::recording::spaces::{At, Module, Place};
use crate::stacks::symbolizer::{Named, Symbolizer};
use rayon::prelude::*;
use std::borrow::Cow;
use uprof::{WordMap, cold};

/// Labels of all places seen so far.
pub(super) struct Naming<'a, 's> {
    recording: &'a Recording,
    symbolizer: &'a Symbolizer<'a, 's>,
    by: By,
    inlines: bool,
    /// Each place's labels, as a range of `labels`.
    ranges: WordMap<Place, (u32, u32)>,
    labels: Vec<LabelId>,
    /// Paths of the modules seen so far.
    paths: WordMap<u32, TextId>,
}

impl<'a, 's> Naming<'a, 's> {
    pub(crate) fn new(
        recording: &'a Recording,
        symbolizer: &'a Symbolizer<'a, 's>,
        options: &Options,
    ) -> Self {
        Naming {
            recording,
            symbolizer,
            by: options.by,
            inlines: options.inlines,
            ranges: WordMap::default(),
            labels: Vec::new(),
            paths: WordMap::default(),
        }
    }

    /// Names the new places of `stacks`, and sets the ranges of each block's labels.
    pub(crate) fn add(&mut self, stacks: &mut [BlockStacks], labels: &mut Labels) {
        let places = stacks.iter().flat_map(|stacks| &stacks.places);
        self.name_new(places, labels);
        for stacks in stacks {
            let ranges = stacks.places.iter().map(|place| self.ranges[place]);
            stacks.ranges = ranges.collect();
        }
    }

    /// Names those of `places` that are new.
    pub(super) fn name_new<'p>(
        &mut self,
        places: impl Iterator<Item = &'p Place>,
        labels: &mut Labels,
    ) {
        let mut new = Vec::new();
        for place in places {
            if !self.ranges.contains_key(place) {
                // Reserved, so that the next block doesn't name it again.
                self.ranges.insert(*place, (0, 0));
                new.push(*place);
            }
        }
        let symbolizer = self.symbolizer;
        let named: Vec<Vec<Named>> = new
            .par_iter()
            .map(|place| match self.by {
                By::Declared => symbolizer.name_declared(*place),
                _ => symbolizer.name(*place),
            })
            .collect();
        for (place, functions) in new.iter().zip(&named) {
            let start = self.labels.len() as u32;
            let kept = if self.inlines { functions.len() } else { 1 };
            for named in &functions[..kept.min(functions.len())] {
                let label = self.label_of(*place, named, labels);
                self.labels.push(labels.id(label));
            }
            self.ranges
                .insert(*place, (start, self.labels.len() as u32));
        }
    }

    /// A label of a range.
    pub(crate) fn label(&self, index: u32) -> LabelId {
        self.labels[index as usize]
    }

    /// The labels of a place that has been named, outermost first.
    pub(super) fn labels_of(&self, place: &Place) -> &[LabelId] {
        let (start, end) = self.ranges.get(place).copied().unwrap_or_default();
        &self.labels[start as usize..end as usize]
    }

    fn module(&self, place: Place) -> Option<&Module> {
        let modules = self.recording.spaces().modules();
        modules.get(place.module()? as usize)
    }

    fn label_of(&mut self, place: Place, named: &Named, labels: &mut Labels) -> Label {
        let module = self.module(place);
        // A function without a name is identified by its start, if known.
        let into_function = if self.by == By::Address {
            0
        } else {
            named.into_bytes
        };
        let bare = || Cow::Owned(self.bare_name(place, into_function));
        let into_bytes = named.into_bytes + u64::from(place.is_return);
        let function = named.function.as_deref();
        let with_line = |name: &str| match (&named.file, named.line) {
            (Some(file), line) => format!("{name} ({}:{line})", short(file)),
            (None, _) => name.to_owned(),
        };
        let name = match self.by {
            By::Function | By::Place | By::Declared => function.map_or_else(bare, Cow::Borrowed),
            By::Line => with_line(&function.map_or_else(bare, Cow::Borrowed)).into(),
            By::Module => module.map_or("[unknown]", Module::short_name).into(),
            By::Address => match function {
                Some(function) => format!("{function}+{into_bytes:#x}").into(),
                None => bare(),
            },
        };
        let exact = matches!(self.by, By::Place | By::Declared);
        let file = named
            .file
            .as_deref()
            .filter(|_| exact || self.by == By::Line);
        let name = labels.text_id(&name);
        let file_id = labels.text_id(file.unwrap_or(""));
        let module = self.path_of(place, labels);
        Label {
            name,
            module,
            file: file_id,
            line: file.map_or(0, |_| named.line),
            start_line: named.start_line,
            discriminator: named.discriminator,
            offset: if exact { place.number() } else { 0 },
            in_file: exact && matches!(place.at, At::File { .. }),
            into_bytes: if exact { into_bytes } else { 0 },
            is_return: exact && place.is_return,
            kernel: place.kernel,
            inlined: named.inlined && self.by != By::Module,
            unknown: match self.by {
                // A module has its name whether those of its functions are known or not.
                By::Module => self.module(place).is_none(),
                _ => function.is_none(),
            },
            made: false,
            place: None,
        }
    }

    fn path_of(&mut self, place: Place, labels: &mut Labels) -> TextId {
        let Some(number) = place.module() else {
            return labels.text_id("");
        };
        if let Some(&known) = self.paths.get(&number) {
            return known;
        }
        let path = self.module(place).map_or("", |module| &module.path);
        let path = labels.text_id(path);
        self.paths.insert(number, path);
        path
    }

    /// The name of a place without a symbol, or of the function that begins some bytes before it: module and offset,
    /// or the address.
    fn bare_name(&self, place: Place, bytes_before: u64) -> String {
        match self.module(place) {
            Some(module) => {
                let offset = self.recording.spaces().file_offset(place);
                let offset = offset.wrapping_sub(bytes_before);
                format!("{}+{offset:#x}", module.short_name())
            }
            None => format!("{:#x}", place.number()),
        }
    }
}

fn short(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A label that isn't of code.
pub(super) fn plain(labels: &mut Labels, name: &str) -> LabelId {
    made(labels, name, None)
}

/// A label of time at a place that isn't of code.
pub(super) fn of_place(labels: &mut Labels, name: &str, place: cold::Place) -> LabelId {
    made(labels, name, Some(place))
}

fn made(labels: &mut Labels, name: &str, place: Option<cold::Place>) -> LabelId {
    let name = labels.text_id(name);
    labels.id(Label {
        name,
        made: true,
        place,
        ..Label::default()
    })
}
