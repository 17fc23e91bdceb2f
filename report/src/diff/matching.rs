//! Which function of B is which function of A. Functions are matched by name, since addresses
//! change with every build; what a compiler adds to a name doesn't make it another function.

use crate::labels::{LabelId, Labels};
use std::collections::{BTreeMap, BTreeSet};

/// How a function was matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Same name, same image.
    Same,
    /// Same name, another image.
    Moved,
    /// The compiler's suffix differs: `.constprop.0`, `.cold`, …
    Renamed,
    /// Only in B.
    New,
    /// Only in A.
    Gone,
}

impl Kind {
    /// One word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Same => "same",
            Kind::Moved => "moved",
            Kind::Renamed => "renamed",
            Kind::New => "new",
            Kind::Gone => "gone",
        }
    }
}

/// One function, as both sides have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Its name, as B has it where B has it.
    pub name: String,
    /// Its image's short name, likewise.
    pub module: String,
    /// How it was matched.
    pub kind: Kind,
}

/// Which function each label is.
#[derive(Debug, Default)]
pub(super) struct Matching {
    pub functions: Vec<Match>,
    /// By label number.
    by_label: Vec<u32>,
}

/// Suffixes that compilers add: GCC's clones and cold parts, LLVM's promoted statics.
const SUFFIXES: [&str; 8] = [
    ".constprop.",
    ".isra.",
    ".part.",
    ".cold",
    ".llvm.",
    ".lto_priv.",
    ".clone.",
    ".localalias",
];

/// `name` without what a compiler added.
fn bare(name: &str) -> &str {
    let cut = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min();
    match cut {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// `libfoo.so.1.2` and `libfoo.so.1.3` are one library.
fn unversioned(module: &str) -> &str {
    match module.find(".so.") {
        Some(at) => &module[..at + 3],
        None => module,
    }
}

/// How the names of functions without a symbol begin.
const UNKNOWN: &str = "[unknown";

/// The labels of one function in one image: on A's side and on B's.
type Sides = [BTreeSet<LabelId>; 2];

impl Matching {
    /// Matches labels; `present[label]` says on which sides it has samples.
    pub fn new(labels: &Labels, present: &[[bool; 2]]) -> Self {
        let mut named: BTreeMap<String, BTreeMap<String, Sides>> = BTreeMap::new();
        for (number, sides) in present.iter().enumerate() {
            let label = number as LabelId;
            let module = unversioned(labels.module_name(label)).to_owned();
            // Without a symbol an address means nothing in another build.
            let name = match (labels.get(label).unknown, module.as_str()) {
                (true, "") => UNKNOWN.to_owned() + "]",
                (true, _) => format!("{UNKNOWN} in {module}]"),
                (false, _) => bare(labels.name(label)).to_owned(),
            };
            let images = named.entry(name).or_default();
            let found = images.entry(module).or_default();
            for (side, set) in found.iter_mut().enumerate() {
                if sides[side] {
                    set.insert(label);
                }
            }
        }
        let mut matching = Matching {
            functions: Vec::new(),
            by_label: vec![u32::MAX; present.len()],
        };
        for (name, images) in named {
            matching.match_name(&name, images, labels);
        }
        matching
    }

    fn match_name(&mut self, name: &str, images: BTreeMap<String, Sides>, labels: &Labels) {
        let only =
            |sides: &Sides, side: usize| !sides[side].is_empty() && sides[1 - side].is_empty();
        let gone = images.iter().filter(|(_, sides)| only(sides, 0));
        let gone: Vec<String> = gone.map(|(module, _)| module.clone()).collect();
        let new = images.iter().filter(|(_, sides)| only(sides, 1));
        let new: Vec<String> = new.map(|(module, _)| module.clone()).collect();
        let moved = gone.len() == 1 && new.len() == 1;
        for (module, sides) in &images {
            let kind = match (only(sides, 0), only(sides, 1)) {
                // Told with the image that it went to.
                (true, _) if moved => continue,
                (_, true) if moved => Kind::Moved,
                (true, _) => Kind::Gone,
                (_, true) => Kind::New,
                _ if names(&sides[0], labels) == names(&sides[1], labels) => Kind::Same,
                // Every unknown address is another "name".
                _ if name.starts_with(UNKNOWN) => Kind::Same,
                _ => Kind::Renamed,
            };
            let number = self.functions.len() as u32;
            self.functions.push(Match {
                name: name.to_owned(),
                module: module.clone(),
                kind,
            });
            let mut mine: Vec<LabelId> = sides.iter().flatten().copied().collect();
            if kind == Kind::Moved {
                mine.extend(&images[&gone[0]][0]);
            }
            for label in mine {
                self.by_label[label as usize] = number;
            }
        }
    }

    /// The function of a label; `None` for a label without samples.
    pub fn function(&self, label: LabelId) -> Option<u32> {
        let number = self.by_label.get(label as usize).copied()?;
        (number != u32::MAX).then_some(number)
    }
}

fn names<'a>(labels: &BTreeSet<LabelId>, table: &'a Labels) -> BTreeSet<&'a str> {
    labels.iter().map(|label| table.name(*label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Label;

    #[test]
    fn functions_are_told_apart_by_what_happened_to_them() {
        let mut labels = Labels::new();
        let mut present = Vec::new();
        let mut add = |name: &str, module: &str, sides: [bool; 2], unknown: bool| {
            let label = Label {
                name: labels.text_id(name),
                module: labels.text_id(module),
                unknown,
                ..Label::default()
            };
            labels.id(label);
            present.push(sides);
        };
        add("main", "/bin/app", [true, true], false);
        add("parse", "/bin/app", [true, false], false);
        add("parse", "/lib/libparse.so.1", [false, true], false);
        add("walk.constprop.0", "/bin/app", [true, false], false);
        add("walk.isra.0", "/bin/app", [false, true], false);
        add("old", "/bin/app", [true, false], false);
        add("fresh", "/bin/app", [false, true], false);
        add("malloc", "/lib/libc.so.5", [true, false], false);
        add("malloc", "/lib/libc.so.6", [false, true], false);
        add("app+0x12", "/bin/app", [true, false], true);
        add("app+0x34", "/bin/app", [false, true], true);
        add("0x1234", "", [true, true], true);
        let matching = Matching::new(&labels, &present);
        let kind = |label: LabelId| {
            let found = &matching.functions[matching.function(label).unwrap() as usize];
            (found.name.as_str(), found.kind)
        };
        assert_eq!(kind(0), ("main", Kind::Same));
        assert_eq!(kind(1), ("parse", Kind::Moved));
        assert_eq!(kind(1), kind(2));
        assert_eq!(kind(3), ("walk", Kind::Renamed));
        assert_eq!(kind(3), kind(4));
        assert_eq!(kind(5), ("old", Kind::Gone));
        assert_eq!(kind(6), ("fresh", Kind::New));
        assert_eq!(kind(7), ("malloc", Kind::Same));
        assert_eq!(kind(9), ("[unknown in app]", Kind::Same));
        assert_eq!(matching.function(9), matching.function(10));
        assert_eq!(kind(11), ("[unknown]", Kind::Same));
    }
}
