//! Matches the functions of A with those of B by name. Compiler suffixes are removed, because they change
//! from build to build, as addresses do. The numbers of traces are removed, because they change from run to
//! run. In an image with the same build on both sides, an offset is as good as a name. Other code without
//! names is merged, image by image, because its functions can't be distinguished. If only one side has such
//! code, it may be new, gone or neither.

use super::modules::{self, Images, JIT, MatchedImage, Modules};
use crate::profile::labels::{LabelId, Labels};
use std::collections::{BTreeMap, BTreeSet};

/// How a function was matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Same name, same image.
    Same,
    /// Same name, another image.
    Moved,
    /// The compiler's suffix differs (`.constprop.0`, `.cold`, …), or the number of a trace.
    Renamed,
    /// Only in B.
    New,
    /// Only in A.
    Gone,
    /// All code without a name in an image that both sides have in different builds.
    Pooled,
    /// On one side only, but possibly among the other side's code without names. Or: code without names in an
    /// image (or in no image) that only one side has.
    Unmatched,
}

impl Kind {
    /// One word for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Same => "same",
            Kind::Moved => "moved",
            Kind::Renamed => "renamed",
            Kind::New => "new",
            Kind::Gone => "gone",
            Kind::Pooled => "pooled",
            Kind::Unmatched => "unmatched",
        }
    }
}

/// A function of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Its name: B's if B has the function, else A's.
    pub name: String,
    /// The short name of its image: B's if B has the function, else A's.
    pub module: String,
    /// How it was matched.
    pub kind: Kind,
    /// Whether it stands for a process, a thread or a stack without frames rather than for code.
    pub made: bool,
    /// Whether its image is the user's own: the program, or a file outside the system's folders.
    pub own: bool,
}

/// The function of each label.
#[derive(Debug, Default)]
pub(super) struct Matching {
    pub functions: Vec<Match>,
    /// Index of the function, by label number.
    by_label: Vec<u32>,
}

/// Suffixes that compilers add: those of GCC's clones and cold parts, and LLVM's promoted statics.
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

/// `name` without the compiler's suffixes.
pub(crate) fn bare(name: &str) -> &str {
    let cut = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min();
    match cut {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Prefixes of the number of a piece of JIT code: PHP has `TRACE-8$mandel$3` and `ESCAPE-8-1`, LuaJIT has
/// `TRACE_8::mandel.lua:3`.
const NUMBERED: [&str; 3] = ["TRACE-", "TRACE_", "ESCAPE-"];

/// `name` without the number of its trace, which depends on the time of compilation; `None` if it has none.
pub(crate) fn without_number(name: &str) -> Option<String> {
    let mut starts = NUMBERED.iter();
    let start = starts.find(|start| name.starts_with(**start))?;
    let rest = name[start.len()..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
    Some(format!("{}{rest}", start.trim_end_matches(['-', '_'])))
}

/// The name of merged functions without names.
pub(crate) const UNKNOWN: &str = "[unknown";
/// A function may be among the other side's code without names if that has at least this many times its samples.
const MAY_HOLD: f64 = 0.5;

/// The labels of one function in one image: A's and B's.
type Sides = [BTreeSet<LabelId>; 2];

/// The images that have a function's name, each with its labels.
type ByImage = BTreeMap<String, Sides>;

impl Matching {
    /// Matches labels. `shares[label]` are the parts of A's and B's samples, 0 to 1, with the label in their
    /// stacks; `images` are the images of both sides.
    pub(crate) fn new(labels: &Labels, shares: &[[f64; 2]], images: &[Images; 2]) -> Self {
        let modules = Modules::new(images);
        let mut named: BTreeMap<String, ByImage> = BTreeMap::new();
        let mut pooled: BTreeMap<String, ByImage> = BTreeMap::new();
        // The shares of both sides' code without names, by image.
        let mut without_names: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for (number, sides) in shares.iter().enumerate() {
            let label = number as LabelId;
            let path = labels.text(labels.get(label).module);
            let image = modules.of(path);
            let name = name_of(label, labels, image);
            let module = image.map_or("", |image| image.name.as_str()).to_owned();
            let (table, module) = match (&name, image) {
                (Some(_), _) => (&mut named, module),
                (None, Some(image)) if image.is_found => (&mut pooled, module),
                (None, _) => (&mut pooled, String::new()),
            };
            if name.is_none() {
                let sum = without_names.entry(module.clone()).or_default();
                (0..2).for_each(|side| sum[side] += sides[side]);
            }
            let name = name.unwrap_or_else(|| match module.as_str() {
                "" => UNKNOWN.to_owned() + "]",
                _ => format!("{UNKNOWN} in {}]", module.trim_matches(['[', ']'])),
            });
            let found = table.entry(name).or_default().entry(module).or_default();
            for (side, set) in found.iter_mut().enumerate() {
                // A label without samples doesn't show that the side has the function.
                if sides[side] > 0.0 {
                    set.insert(label);
                }
            }
        }
        let mut matching = Matching {
            functions: Vec::new(),
            by_label: vec![u32::MAX; shares.len()],
        };
        for (name, images) in named {
            matching.match_name(&name, images, labels, &|labels: &Sides, module: &str| {
                let hidden = without_names.get(module).copied().unwrap_or_default();
                may_be_hidden(labels, shares, hidden)
            });
        }
        for (name, images) in pooled {
            for (module, sides) in images {
                let kind = if sides.iter().any(BTreeSet::is_empty) {
                    Kind::Unmatched
                } else {
                    Kind::Pooled
                };
                matching.add(&name, &module, kind, sides.iter().flatten().copied());
            }
        }
        for label in (0..shares.len() as LabelId).filter(|label| labels.get(*label).made) {
            if let Some(function) = matching.function(label) {
                matching.functions[function as usize].made = true;
            }
        }
        for label in 0..shares.len() as LabelId {
            let is_own = modules::is_own(labels.text(labels.get(label).module));
            if let Some(function) = matching.function(label).filter(|_| is_own) {
                matching.functions[function as usize].own = true;
            }
        }
        matching
    }

    fn match_name(
        &mut self,
        name: &str,
        images: ByImage,
        labels: &Labels,
        is_hidden: &dyn Fn(&Sides, &str) -> bool,
    ) {
        let only =
            |sides: &Sides, side: usize| !sides[side].is_empty() && sides[1 - side].is_empty();
        let gone = images.iter().filter(|(_, sides)| only(sides, 0));
        let gone: Vec<String> = gone.map(|(module, _)| module.clone()).collect();
        let new = images.iter().filter(|(_, sides)| only(sides, 1));
        let new: Vec<String> = new.map(|(module, _)| module.clone()).collect();
        // With several candidates, it is unknown which image the function moved to.
        let moved = gone.len() == 1 && new.len() == 1;
        for (module, sides) in &images {
            let kind = match (only(sides, 0), only(sides, 1)) {
                // It is shown with the image that it moved to.
                (true, _) if moved => continue,
                (_, true) if moved => Kind::Moved,
                (true, _) | (_, true) if is_hidden(sides, module) => Kind::Unmatched,
                (true, _) => Kind::Gone,
                (_, true) => Kind::New,
                _ if names(&sides[0], labels) == names(&sides[1], labels) => Kind::Same,
                // An offset in the same build under another file name.
                _ if is_offset(&sides[0], labels) => Kind::Same,
                _ => Kind::Renamed,
            };
            let mut mine: Vec<LabelId> = sides.iter().flatten().copied().collect();
            if kind == Kind::Moved {
                mine.extend(&images[&gone[0]][0]);
            }
            self.add(name, module, kind, mine.into_iter());
        }
    }

    fn add(&mut self, name: &str, module: &str, kind: Kind, labels: impl Iterator<Item = LabelId>) {
        let number = self.functions.len() as u32;
        self.functions.push(Match {
            name: name.to_owned(),
            module: module.to_owned(),
            kind,
            made: false,
            own: false,
        });
        labels.for_each(|label| self.by_label[label as usize] = number);
    }

    /// The function of a label; `None` for a label without samples.
    pub(crate) fn function(&self, label: LabelId) -> Option<u32> {
        let number = self.by_label.get(label as usize).copied()?;
        (number != u32::MAX).then_some(number)
    }
}

/// The name that identifies a function in its image; `None` if there is none.
fn name_of(label: LabelId, labels: &Labels, image: Option<&MatchedImage>) -> Option<String> {
    let name = labels.name(label);
    if !labels.get(label).unknown {
        let is_made = image.is_some_and(|image| image.name == JIT);
        return Some(match is_made.then(|| without_number(name)).flatten() {
            Some(name) => name,
            None => bare(name).to_owned(),
        });
    }
    let image = image.filter(|image| image.is_one_build)?;
    let (_, offset) = name.rsplit_once('+')?;
    Some(format!("{}+{offset}", image.name))
}

/// Whether a function that only one side has may be among the other side's code without names. `hidden` is
/// the share of samples with such code of the same image in their stacks.
fn may_be_hidden(sides: &Sides, shares: &[[f64; 2]], hidden: [f64; 2]) -> bool {
    let side = usize::from(sides[0].is_empty());
    let own = sides[side]
        .iter()
        .map(|label| shares[*label as usize][side]);
    // Labels of the same function may share samples, so their shares can't be added.
    let own = own.fold(0.0, f64::max);
    hidden[1 - side] > 0.0 && hidden[1 - side] >= MAY_HOLD * own
}

fn names<'a>(labels: &BTreeSet<LabelId>, table: &'a Labels) -> BTreeSet<&'a str> {
    labels.iter().map(|label| table.name(*label)).collect()
}

fn is_offset(labels: &BTreeSet<LabelId>, table: &Labels) -> bool {
    labels.iter().all(|label| table.get(*label).unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::labels::Label;

    /// Labels with their parts of the samples, and the images they are in.
    #[derive(Default)]
    struct Sides {
        labels: Labels,
        shares: Vec<[f64; 2]>,
        images: [Images; 2],
    }

    impl Sides {
        fn new() -> Self {
            Sides {
                labels: Labels::new(),
                ..Sides::default()
            }
        }

        /// The images of each side, as `PATH=BUILD`.
        fn map(mut self, a: &[&str], b: &[&str]) -> Self {
            for (images, list) in self.images.iter_mut().zip([a, b]) {
                for (path, build) in list.iter().filter_map(|one| one.split_once('=')) {
                    let builds = images.builds.entry(path.to_owned()).or_default();
                    builds.insert(build.as_bytes().to_vec());
                }
            }
            self
        }

        fn add(&mut self, name: &str, module: &str, sides: [f64; 2], unknown: bool) -> LabelId {
            let label = Label {
                name: self.labels.text_id(name),
                module: self.labels.text_id(module),
                unknown,
                ..Label::default()
            };
            self.shares.push(sides);
            self.labels.id(label)
        }

        fn matching(&self) -> Matching {
            Matching::new(&self.labels, &self.shares, &self.images)
        }
    }

    fn of(matching: &Matching, label: LabelId) -> (&str, Kind) {
        let found = &matching.functions[matching.function(label).unwrap() as usize];
        (found.name.as_str(), found.kind)
    }

    const A: [f64; 2] = [0.1, 0.0];
    const B: [f64; 2] = [0.0, 0.1];
    const BOTH: [f64; 2] = [0.1, 0.1];

    #[test]
    fn functions_are_told_apart_by_what_happened_to_them() {
        let mut found = Sides::new().map(
            &["/bin/app=1", "/lib/libc.so.5=2"],
            &["/bin/app=3", "/lib/libc.so.6=4", "/lib/libparse.so.1=5"],
        );
        let main = found.add("main", "/bin/app", BOTH, false);
        let parse = found.add("parse", "/bin/app", A, false);
        let moved = found.add("parse", "/lib/libparse.so.1", B, false);
        let walk = found.add("walk.constprop.0", "/bin/app", A, false);
        let cloned = found.add("walk.isra.0", "/bin/app", B, false);
        let old = found.add("old", "/bin/app", A, false);
        let fresh = found.add("fresh", "/bin/app", B, false);
        let malloc = found.add("malloc", "/lib/libc.so.5", A, false);
        found.add("malloc", "/lib/libc.so.6", B, false);
        let matching = found.matching();
        assert_eq!(of(&matching, main), ("main", Kind::Same));
        assert_eq!(of(&matching, parse), ("parse", Kind::Moved));
        assert_eq!(matching.function(parse), matching.function(moved));
        assert_eq!(of(&matching, walk), ("walk", Kind::Renamed));
        assert_eq!(matching.function(walk), matching.function(cloned));
        assert_eq!(of(&matching, old), ("old", Kind::Gone));
        assert_eq!(of(&matching, fresh), ("fresh", Kind::New));
        assert_eq!(of(&matching, malloc), ("malloc", Kind::Same));
    }

    #[test]
    fn a_trace_is_what_it_is_of_whatever_its_number() {
        let builds = ["[jit]=1", "/bin/app=2"];
        let mut found = Sides::new().map(&builds, &["[jit]=3", "/bin/app=2"]);
        let in_a = found.add("TRACE-8$mandel$3", "[jit]", A, false);
        let in_b = found.add("TRACE-11$mandel$3", "[jit]", B, false);
        let second = found.add("TRACE-14$mandel$3", "[jit]", B, false);
        let other = found.add("TRACE-8$mandel$7", "[jit]", B, false);
        let escape_a = found.add("ESCAPE-8-1", "[jit]", A, false);
        let escape_b = found.add("ESCAPE-9-0", "[jit]", B, false);
        let lua_a = found.add("TRACE_8::a.lua:3", "[jit]", A, false);
        let lua_b = found.add("TRACE_9::a.lua:3", "[jit]", B, false);
        let named_so = found.add("TRACE_8", "/bin/app", A, false);
        let matching = found.matching();
        assert_eq!(of(&matching, in_a), ("TRACE$mandel$3", Kind::Renamed));
        assert_eq!(matching.function(in_a), matching.function(in_b));
        assert_eq!(matching.function(in_a), matching.function(second));
        assert_eq!(of(&matching, other), ("TRACE$mandel$7", Kind::New));
        assert_eq!(matching.function(escape_a), matching.function(escape_b));
        assert_eq!(matching.function(lua_a), matching.function(lua_b));
        assert_eq!(of(&matching, named_so), ("TRACE_8", Kind::Gone));
    }

    #[test]
    fn unnamed_code_of_a_program_under_another_name_is_not_new() {
        let mut found = Sides::new().map(&["/tmp/a=1"], &["/tmp/b=2"]);
        let in_a = found.add("a+0x1130", "/tmp/a", A, true);
        let in_b = found.add("b+0x1150", "/tmp/b", B, true);
        let main_a = found.add("main", "/tmp/a", A, false);
        let main_b = found.add("main", "/tmp/b", B, false);
        let matching = found.matching();
        assert_eq!(of(&matching, in_a), ("[unknown in b]", Kind::Pooled));
        assert_eq!(matching.function(in_a), matching.function(in_b));
        assert_eq!(of(&matching, main_a), ("main", Kind::Same));
        assert_eq!(matching.function(main_a), matching.function(main_b));
    }

    #[test]
    fn an_offset_is_a_name_in_one_build_only() {
        let mut found = Sides::new().map(
            &["/lib/liblzma.so.5.4.1=1", "/lib/libz.so.1=2", "[anon]="],
            &["/opt/liblzma.so.5.4.1=1", "/lib/libz.so.1=3", "[anon]="],
        );
        let one = found.add("liblzma.so.5.4.1+0x15ae0", "/lib/liblzma.so.5.4.1", A, true);
        let same = found.add("liblzma.so.5.4.1+0x15ae0", "/opt/liblzma.so.5.4.1", B, true);
        let other = found.add("liblzma.so.5.4.1+0x17", "/lib/liblzma.so.5.4.1", A, true);
        let zlib = found.add("libz.so.1+0x10", "/lib/libz.so.1", BOTH, true);
        let anon = found.add("[anon]+0x10", "[anon]", A, true);
        let nowhere = found.add("0x1234", "", BOTH, true);
        let matching = found.matching();
        assert_eq!(of(&matching, one), ("liblzma.so+0x15ae0", Kind::Same));
        assert_eq!(matching.function(one), matching.function(same));
        assert_eq!(of(&matching, other), ("liblzma.so+0x17", Kind::Gone));
        assert_eq!(of(&matching, zlib), ("[unknown in libz.so]", Kind::Pooled));
        assert_eq!(of(&matching, anon), ("[unknown in anon]", Kind::Unmatched));
        assert_eq!(of(&matching, nowhere), ("[unknown]", Kind::Pooled));
    }

    #[test]
    fn what_may_be_among_code_without_names_is_neither_new_nor_gone() {
        let mut found = Sides::new().map(&["/bin/app=1"], &["/bin/app=2"]);
        let parse = found.add("parse", "/bin/app", [0.3, 0.0], false);
        let hash = found.add("hash", "/bin/app", [0.0, 0.3], false);
        let stripped = found.add("app+0x10", "/bin/app", [0.0, 0.4], true);
        let matching = found.matching();
        assert_eq!(of(&matching, parse), ("parse", Kind::Unmatched));
        // A has no code without a name.
        assert_eq!(of(&matching, hash), ("hash", Kind::New));
        assert_eq!(of(&matching, stripped).1, Kind::Unmatched);
    }
}
