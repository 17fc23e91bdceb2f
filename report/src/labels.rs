//! Labels: what a frame is called in a view, each kept once. Names come from guests and images,
//! which may be hostile: no control character leaves this file.

use std::borrow::Cow;
use std::collections::HashMap;
use uprof::WordMap;
use uprof::is_steering;

/// Number of a label in a [`Labels`] table.
pub type LabelId = u32;
/// Number of a text in a [`Labels`] table; 0 is the empty text.
pub type TextId = u32;

/// What a frame is called, at the detail that the view asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Label {
    /// Function, or what stands for it.
    pub name: TextId,
    /// Path of the image; empty if unknown.
    pub module: TextId,
    /// Source file; empty if unknown or not asked for.
    pub file: TextId,
    /// Line in it, from 1; 0 if unknown or not asked for.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not asked for.
    pub start_line: u32,
    /// Offset in the image's file, or address without an image; 0 unless asked for.
    pub offset: u64,
    /// Bytes of the frame's own address from the start of its function; 0 unless asked for.
    pub into_bytes: u64,
    /// The frame's own address is one more than `offset` says; `false` unless asked for.
    pub is_return: bool,
    /// Of the kernel's half of the address space.
    pub kernel: bool,
    /// Inlined into the frame that stands before it.
    pub inlined: bool,
    /// No symbol was found: the name is module and offset.
    pub unknown: bool,
}

/// All labels of a report.
#[derive(Debug, Default)]
pub struct Labels {
    labels: Vec<Label>,
    by_label: WordMap<Label, LabelId>,
    texts: Vec<Box<str>>,
    by_text: HashMap<Box<str>, TextId>,
}

impl Labels {
    /// An empty table.
    pub fn new() -> Self {
        let mut labels = Labels::default();
        labels.text_id("");
        labels
    }

    /// The number of `text`, made printable.
    pub fn text_id(&mut self, text: &str) -> TextId {
        let text = printable(text);
        if let Some(&id) = self.by_text.get(text.as_ref()) {
            return id;
        }
        let id = self.texts.len() as TextId;
        self.texts.push(text.as_ref().into());
        self.by_text.insert(text.into_owned().into(), id);
        id
    }

    /// The number of `label`.
    pub fn id(&mut self, label: Label) -> LabelId {
        let next = self.labels.len() as LabelId;
        let id = *self.by_label.entry(label).or_insert(next);
        if id == next {
            self.labels.push(label);
        }
        id
    }

    /// The label with this number.
    pub fn get(&self, id: LabelId) -> Label {
        self.labels.get(id as usize).copied().unwrap_or_default()
    }

    /// The text with this number.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }

    /// The name of a label.
    pub fn name(&self, id: LabelId) -> &str {
        self.text(self.get(id).name)
    }

    /// The last part of the path of a label's module.
    pub fn module_name(&self, id: LabelId) -> &str {
        let path = self.text(self.get(id).module);
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// The module of a label as it stands behind a name: ` [libc.so.6]`, or nothing where it is
    /// not known or the name says it already.
    pub fn module_suffix(&self, id: LabelId) -> String {
        match self.module_name(id).trim_matches(['[', ']']) {
            "" => String::new(),
            _ if self.get(id).unknown => String::new(),
            module => format!("  [{module}]"),
        }
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// No name is shown beyond so many bytes: templates can spell kilobytes.
const NAME_BYTES_MAX: usize = 4096;

/// `text` without what could steer a terminal, break a line or turn its direction: the way of every
/// foreign text into an output that is not JSON or a dump, which say such characters by their numbers.
pub fn printable(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    if end == text.len() && !kept.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut clean = kept.replace(is_steering, "\u{fffd}");
    if end < text.len() {
        clean.push('…');
    }
    Cow::Owned(clean)
}

/// Names longer than this are shortened in tables.
const SHORT_CHARS_MAX: usize = 80;

/// A long name as tables show it: without what its templates are made of. Exports and pictures have the whole name.
pub fn short(name: &str) -> Cow<'_, str> {
    match name.chars().count() <= SHORT_CHARS_MAX {
        true => Cow::Borrowed(name),
        false => bare(name),
    }
}

/// A name without what its templates are made of: `fold<u8, Range<u64>>` becomes `fold<…>`. What stands in
/// front of a path, as in `<Vec<u8> as Clone>::clone`, is kept.
pub(crate) fn bare(name: &str) -> Cow<'_, str> {
    let mut kept = String::with_capacity(name.len());
    // For each bracket that is open, whether it hides what is in it.
    let mut open: Vec<bool> = Vec::new();
    let mut last = ' ';
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let hidden = open.last() == Some(&true);
        if let Some(operator) = operator(rest, last) {
            if !hidden {
                kept.push_str(operator);
            }
            rest = &rest[operator.len()..];
            // Its arguments may follow.
            last = '_';
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '<' if hidden => open.push(true),
            '<' => {
                let hides = last.is_alphanumeric() || matches!(last, '_' | ':');
                open.push(hides);
                kept.push_str(if hides { "<…" } else { "<" });
            }
            '>' if last != '-' => {
                if open.pop().is_none() {
                    return Cow::Borrowed(name);
                }
                if open.last() != Some(&true) {
                    kept.push('>');
                }
            }
            _ if hidden => {}
            _ => kept.push(letter),
        }
        last = letter;
    }
    match open.is_empty() {
        true => Cow::Owned(kept),
        false => Cow::Borrowed(name),
    }
}

/// Operators of C++ whose names have angle brackets, longer ones first.
const ANGLED: [&str; 11] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
];

/// The name of an operator at the start of `rest`, with the space that a demangler sets before its arguments.
fn operator(rest: &str, before: char) -> Option<&str> {
    let symbols = rest.strip_prefix("operator")?;
    let symbol = ANGLED.iter().find(|symbol| symbols.starts_with(**symbol));
    let is_word = before.is_alphanumeric() || before == '_';
    let length = "operator".len() + symbol.filter(|_| !is_word)?.len();
    match rest[length..].starts_with(" <") {
        true => Some(&rest[..=length]),
        false => Some(&rest[..length]),
    }
}

/// A name without the parameters of its functions: `push(int, char)` becomes `push(…)`. Parentheses that are part
/// of a name stay: `(anonymous namespace)`, `operator()`.
pub(crate) fn unparenthesized(name: &str) -> Cow<'_, str> {
    let mut kept = String::with_capacity(name.len());
    let mut open: Vec<bool> = Vec::new();
    let mut last = ' ';
    for (at, letter) in name.char_indices() {
        let hidden = open.last() == Some(&true);
        match letter {
            '(' => {
                let names = last.is_alphanumeric() || matches!(last, '_' | '>' | ')' | '}');
                let is_empty = name[at..].starts_with("()");
                let hides = hidden || names && !is_empty;
                if !hidden {
                    kept.push_str(if hides { "(…" } else { "(" });
                }
                open.push(hides);
            }
            ')' => {
                open.pop();
                if open.last() != Some(&true) {
                    kept.push(')');
                }
            }
            _ if hidden => {}
            _ => kept.push(letter),
        }
        last = letter;
    }
    match open.is_empty() {
        true => Cow::Owned(kept),
        false => Cow::Borrowed(name),
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

    #[test]
    fn long_names_lose_their_parameters_only() {
        let types = "core::ops::range::RangeInclusive<u64>, alloc::vec::Vec<alloc::string::String>";
        let shortened = [
            (format!("fold<{types}>"), "fold<…>"),
            (format!("all<{types}>::next<{types}>"), "all<…>::next<…>"),
            (format!("run::<{types}>"), "run::<…>"),
            (
                format!("<Vec<{types}> as Clone>::clone"),
                "<Vec<…> as Clone>::clone",
            ),
            (format!("call<fn(u8) -> u8, {types}>(int)"), "call<…>(int)"),
            (
                format!("bool a::operator< <{types}>(A<{types}>)"),
                "bool a::operator< <…>(A<…>)",
            ),
            (
                format!("A<{types}>::operator->() const"),
                "A<…>::operator->() const",
            ),
            (format!("my_operator<{types}>"), "my_operator<…>"),
            (format!("less<{types}>::operator()"), "less<…>::operator()"),
        ];
        for (long, expected) in &shortened {
            assert_eq!(short(long), *expected);
        }
        let kept = [
            "fold<u8>".to_owned(),
            format!("operator<<{types}>()"),
            format!("unbalanced<{types}, {types}"),
            "a".repeat(200),
        ];
        for name in &kept {
            assert_eq!(short(name), *name);
        }
    }

    #[test]
    fn parameters_go_and_parts_of_names_stay() {
        let cases = [
            ("push(int, char)", "push(…)"),
            ("push()", "push()"),
            (
                "(anonymous namespace)::run(int)",
                "(anonymous namespace)::run(…)",
            ),
            ("operator()(int) const", "operator()(…) const"),
            (
                "run(void (*)(int))::{lambda(int)#1}::go()",
                "run(…)::{lambda(…)#1}::go()",
            ),
            ("odd(int", "odd(int"),
        ];
        for (name, expected) in cases {
            assert_eq!(unparenthesized(name), expected);
        }
    }
}
