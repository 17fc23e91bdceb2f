//! Labels: the names of frames in a view, each stored once. Names come from guests and images, which may be
//! hostile. So this module removes all control characters.

use crate::text::printable;
use indexmap::IndexSet;
use std::hash::BuildHasherDefault;
use uprof::WordHasher;
use uprof::cold::Place;

/// Number of a label in a [`Labels`] table.
pub type LabelId = u32;
/// Number of a text in a [`Labels`] table; 0 is the empty text.
pub type TextId = u32;

/// A frame's label, with as much detail as the view needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Label {
    /// Function, or the text that is shown in its place.
    pub name: TextId,
    /// Path of the image; empty if unknown.
    pub module: TextId,
    /// Source file; empty if unknown or not requested.
    pub file: TextId,
    /// Line in the file, from 1; 0 if unknown or not requested.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not requested.
    pub start_line: u32,
    /// Which of several parts of the line, as the compiler numbered them; 0 if there is one, or not requested.
    pub discriminator: u32,
    /// Offset in the image's file, or address without an image; 0 unless requested.
    pub offset: u64,
    /// Whether `offset` is one in the image's file.
    pub in_file: bool,
    /// Bytes from the start of the function to the frame's own address; 0 unless requested.
    pub into_bytes: u64,
    /// Whether the frame's own address is one higher than `offset`; `false` unless requested.
    pub is_return: bool,
    /// Whether it is in the kernel's half of the address space.
    pub kernel: bool,
    /// Whether it is inlined into the frame before it.
    pub inlined: bool,
    /// Whether there is no symbol, so that the name is module and offset.
    pub unknown: bool,
    /// Whether it stands for a process, a thread or a stack without frames rather than for code. No filter
    /// matches it.
    pub made: bool,
    /// Where its time is spent in a profile of wall time, if it is no code of the guest.
    pub place: Option<Place>,
}

impl Label {
    /// Where a frame's code is, which it has in common with what is inlined there: image, offset, and whether that is
    /// of a return address.
    pub(crate) fn code(&self) -> (TextId, u64, bool) {
        (self.module, self.offset, self.is_return)
    }
}

/// All labels of a report, by number.
#[derive(Debug, Default)]
pub struct Labels {
    labels: IndexSet<Label, BuildHasherDefault<WordHasher>>,
    texts: IndexSet<Box<str>>,
}

impl Labels {
    /// An empty table.
    pub(crate) fn new() -> Self {
        let mut labels = Labels::default();
        labels.text_id("");
        labels
    }

    /// The number of `text`, which is made printable first.
    pub(crate) fn text_id(&mut self, text: &str) -> TextId {
        if text.is_empty() && !self.texts.is_empty() {
            return 0;
        }
        // Most texts are known, and those that are kept are printable.
        let known = self.texts.get_index_of(text);
        known.unwrap_or_else(|| self.texts.insert_full(printable(text).into()).0) as TextId
    }

    /// The number of `label`.
    pub(crate) fn id(&mut self, label: Label) -> LabelId {
        self.labels.insert_full(label).0 as LabelId
    }

    /// The number of a label of another table, as code of this place.
    pub(crate) fn take(&mut self, from: &Labels, id: LabelId, place: Place) -> LabelId {
        let label = from.get(id);
        let label = Label {
            name: self.text_id(from.text(label.name)),
            module: self.text_id(from.text(label.module)),
            file: self.text_id(from.text(label.file)),
            place: Some(place),
            ..label
        };
        self.id(label)
    }

    /// The label with this number.
    pub(crate) fn get(&self, id: LabelId) -> Label {
        self.labels
            .get_index(id as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The text with this number.
    pub(crate) fn text(&self, id: TextId) -> &str {
        self.texts.get_index(id as usize).map_or("", |text| text)
    }

    /// All texts, by number.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(AsRef::as_ref)
    }

    /// The name of a label.
    pub fn name(&self, id: LabelId) -> &str {
        self.text(self.get(id).name)
    }

    /// The last component of the path of a label's module.
    pub(crate) fn module_name(&self, id: LabelId) -> &str {
        let path = self.text(self.get(id).module);
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// The module of a label, to follow its name: ` [libc.so.6]`. Empty if the module is unknown or part of
    /// the name.
    pub fn module_suffix(&self, id: LabelId) -> String {
        match self.module_name(id).trim_matches(['[', ']']) {
            "" => String::new(),
            _ if self.get(id).unknown => String::new(),
            module => format!("  [{module}]"),
        }
    }

    /// Number of labels.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_cannot_steer() {
        let mut labels = Labels::new();
        let name = labels.text_id("main");
        assert_eq!(labels.text_id("main"), name);
        let label = Label {
            name,
            ..Label::default()
        };
        assert_eq!(labels.id(label), labels.id(label));
        let evil = labels.text_id("a\x1b[31m\nb\u{202e}c");
        assert_eq!(labels.text(evil), "a\u{fffd}[31m\u{fffd}b\u{fffd}c");
        let long = labels.text_id(&"é".repeat(5000));
        assert!(labels.text(long).len() < 4200);
    }
}
