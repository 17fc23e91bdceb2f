//! Matches the images of A with those of B. Input: the paths of both sides' images, with build-ids and the
//! name of the program. Output: for each path, the image's name for both sides, and whether it is the same
//! build.
//!
//! Images are matched by file name (that of a library without its version); else by build-id; else by name
//! without digits that are a version; else by role: the program itself, whatever the name of its file. Images
//! that remain belong to one side only.

use std::collections::{BTreeMap, BTreeSet};

/// The images of one side: paths, each with the build-ids that were mapped from it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Images {
    pub builds: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// The file names of the recorded programs.
    pub programs: BTreeSet<String>,
}

/// An image of one or both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatchedImage {
    /// The file name: B's if B has the image, else A's.
    pub name: String,
    /// Whether both sides have it.
    pub is_found: bool,
    /// Whether all its files are the same build. An offset in it then identifies a function.
    pub is_one_build: bool,
}

/// The image of each path.
#[derive(Debug, Default)]
pub(super) struct Modules {
    by_path: BTreeMap<String, MatchedImage>,
}

/// The name of anonymous memory.
const ANONYMOUS: &str = "[anon]";
/// The name of JIT code.
pub(crate) const JIT: &str = "[jit]";

impl Modules {
    /// Matches the images of A with those of B.
    pub(crate) fn new(sides: &[Images; 2]) -> Modules {
        let mut left = sides.each_ref().map(by_name);
        let mut modules = Modules::default();
        let [in_a, in_b] = left.each_ref().map(|side| side.keys().cloned().collect());
        let both: BTreeSet<String> = BTreeSet::intersection(&in_a, &in_b).cloned().collect();
        for name in both {
            modules.join([&name, &name], &mut left, sides);
        }
        let build = |side: usize, name: &str, paths: &Paths| {
            let builds = builds(paths, &sides[side]);
            // An image without a build-id, or with several builds, can't be matched by it.
            let only = builds.first().filter(|_| builds.len() == 1)?;
            (!only.is_empty() && !is_code_at_large(name)).then(|| only.clone())
        };
        modules.join_by(&build, &mut left, sides);
        let bare = |_: usize, name: &str, _: &Paths| {
            let bare = without_version(name);
            (!is_code_at_large(name) && !bare.is_empty()).then_some(bare)
        };
        modules.join_by(&bare, &mut left, sides);
        let program = |side: usize, name: &str, _: &Paths| {
            let programs = &sides[side].programs;
            programs.contains(name).then_some(())
        };
        modules.join_by(&program, &mut left, sides);
        // Last, if each side has one program left, it is the same one under another name.
        modules.join_by(
            &|_, name, _| is_program(name).then_some(()),
            &mut left,
            sides,
        );
        for (name, paths) in left.into_iter().flatten() {
            for path in paths {
                modules.by_path.insert(
                    path,
                    MatchedImage {
                        name: name.clone(),
                        is_found: false,
                        is_one_build: false,
                    },
                );
            }
        }
        modules
    }

    /// The image of `path`; `None` for one that neither side has.
    pub(crate) fn of(&self, path: &str) -> Option<&MatchedImage> {
        self.by_path.get(path)
    }

    /// Joins unmatched images of A and B that have the same key, if each side has exactly one.
    fn join_by<Key: Ord>(
        &mut self,
        key: &dyn Fn(usize, &str, &Paths) -> Option<Key>,
        left: &mut [ByName; 2],
        sides: &[Images; 2],
    ) {
        let mut keyed: BTreeMap<Key, [Vec<String>; 2]> = BTreeMap::new();
        for (side, names) in left.iter().enumerate() {
            for (name, paths) in names {
                if let Some(key) = key(side, name, paths) {
                    keyed.entry(key).or_default()[side].push(name.clone());
                }
            }
        }
        for names in keyed.into_values() {
            if let [[in_a], [in_b]] = names.each_ref().map(Vec::as_slice) {
                self.join([in_a, in_b], left, sides);
            }
        }
    }

    fn join(&mut self, names: [&str; 2], left: &mut [ByName; 2], sides: &[Images; 2]) {
        let mut paths: [Paths; 2] = Default::default();
        for side in 0..2 {
            paths[side] = left[side].remove(names[side]).unwrap_or_default();
        }
        let [a, b] = [0, 1].map(|side| builds(&paths[side], &sides[side]));
        let image = MatchedImage {
            name: names[1].to_owned(),
            is_found: true,
            is_one_build: a == b && a.len() == 1 && !a.first().is_some_and(Vec::is_empty),
        };
        for path in paths.into_iter().flatten() {
            self.by_path.insert(path, image.clone());
        }
    }
}

type Paths = BTreeSet<String>;
type ByName = BTreeMap<String, Paths>;

/// The paths of a side, by the name that the other side may have, too.
fn by_name(side: &Images) -> ByName {
    let mut names = ByName::new();
    for path in side.builds.keys() {
        let paths = names.entry(name_of(path)).or_default();
        paths.insert(path.clone());
    }
    names
}

fn builds(paths: &Paths, side: &Images) -> BTreeSet<Vec<u8>> {
    let builds = paths.iter().filter_map(|path| side.builds.get(path));
    builds.flatten().cloned().collect()
}

/// The file name; that of a library without its version. All anonymous memory has one name, and so has all
/// JIT code.
pub(crate) fn name_of(path: &str) -> String {
    let path = path.trim_end_matches(" (deleted)");
    let name = match path.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name,
        _ => path,
    };
    let is_map = name.starts_with("perf-") && name.ends_with(".map");
    let is_dump = name.starts_with("jit-") && name.ends_with(".dump");
    let is_shared = ["/memfd:", "/dev/zero", "/SYSV"]
        .iter()
        .any(|start| path.starts_with(start));
    match name {
        _ if is_map || is_dump || name.starts_with("jitted-") => JIT.to_owned(),
        _ if is_shared || name.starts_with("[anon") || name == "//anon" => ANONYMOUS.to_owned(),
        _ => match name.find(".so.") {
            Some(at) => name[..at + 3].to_owned(),
            None => name.to_owned(),
        },
    }
}

/// Whether a name may belong to code of any origin.
fn is_code_at_large(name: &str) -> bool {
    name.is_empty() || name == ANONYMOUS || name == JIT
}

/// Whether a name can be a program's: a file, and not a library.
fn is_program(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('[') && !name.contains(".so") && !name.ends_with(".ko")
}

/// `name` without digits that look like a version: `app-v1` and `app-v2`, `libc-2.31.so`, `python3.11`.
pub(crate) fn without_version(name: &str) -> String {
    let (stem, rest) = match name.find(".so") {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    let mut stem = stem;
    loop {
        let digits = stem.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if digits.len() == stem.len() {
            break;
        }
        let signs = digits.trim_end_matches(['.', '-', '_', '+', '~']);
        // The `v` of `-v2` belongs to a version only after punctuation.
        let bare = digits.strip_suffix(['v', 'V', 'r']).unwrap_or(digits);
        let unmarked = bare.trim_end_matches(['.', '-', '_']);
        stem = if bare.len() < digits.len() && unmarked.len() < bare.len() {
            unmarked
        } else {
            signs
        };
    }
    stem.to_owned() + rest
}

/// Whether an image is the user's own rather than the system's: not its kernel, nor a library in its folders.
pub(crate) fn is_own(path: &str) -> bool {
    let is_of_system = ["/lib", "/usr/lib", "["];
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_library = name.ends_with(".so") || name.contains(".so.");
    path == JIT
        || !(is_library && !path.contains('/')
            || is_of_system.iter().any(|it| path.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(list: &[(&str, &str)], program: &str) -> Images {
        let mut images = Images::default();
        for (path, build) in list {
            let builds = images.builds.entry((*path).to_owned()).or_default();
            builds.insert(build.as_bytes().to_vec());
        }
        images.programs.insert(program.to_owned());
        images
    }

    #[test]
    fn an_image_is_found_again_by_name_build_version_or_part() {
        let a = images(
            &[
                ("/bin/before", "1"),
                ("/lib/liblzma.so.5.4.1", "2"),
                ("/lib/libz-1.2.so", "3"),
                ("/opt/old/plugin", "4"),
                ("/opt/tool-v1", "5"),
                ("[anon]", ""),
                ("/tmp/perf-12.map", ""),
                ("/lib/libonce.so", "6"),
                ("/bin/helper", "7"),
            ],
            "before",
        );
        let b = images(
            &[
                ("/bin/after", "a"),
                ("/lib/liblzma.so.5.6.2", "b"),
                ("/lib/libz-1.3.so", "c"),
                ("/opt/new/module", "4"),
                ("/opt/tool-v2", "d"),
                ("[anon]", ""),
                ("/tmp/perf-77.map", ""),
                ("/lib/libother.so", "e"),
                ("/bin/helper", "7"),
            ],
            "after",
        );
        let modules = Modules::new(&[a, b]);
        let of = |path: &str| {
            let image = modules.of(path).unwrap();
            (image.name.as_str(), image.is_found, image.is_one_build)
        };
        assert_eq!(of("/bin/before"), ("after", true, false));
        assert_eq!(of("/bin/before"), of("/bin/after"));
        assert_eq!(of("/lib/liblzma.so.5.4.1"), ("liblzma.so", true, false));
        assert_eq!(of("/lib/libz-1.2.so"), ("libz-1.3.so", true, false));
        assert_eq!(of("/opt/old/plugin"), ("module", true, true));
        assert_eq!(of("/opt/tool-v1"), ("tool-v2", true, false));
        assert_eq!(of("[anon]"), ("[anon]", true, false));
        assert_eq!(of("/tmp/perf-12.map"), ("[jit]", true, false));
        assert_eq!(of("/tmp/perf-12.map"), of("/tmp/perf-77.map"));
        assert_eq!(of("/bin/helper"), ("helper", true, true));
        assert_eq!(of("/lib/libonce.so"), ("libonce.so", false, false));
        assert_eq!(of("/lib/libother.so"), ("libother.so", false, false));
        assert_eq!(modules.of("/nowhere"), None);
    }

    #[test]
    fn one_program_of_each_side_is_the_same_and_of_several_none() {
        let one = Modules::new(&[
            images(&[("/x/a", "1")], "sh"),
            images(&[("/y/b", "2")], "sh"),
        ]);
        assert!(one.of("/x/a").unwrap().is_found);
        let two = images(&[("/x/a", "1"), ("/x/c", "3")], "sh");
        let several = Modules::new(&[two, images(&[("/y/b", "2")], "sh")]);
        assert!(!several.of("/x/a").unwrap().is_found);
        assert!(!several.of("/y/b").unwrap().is_found);
    }

    #[test]
    fn versions_are_cut_off_and_names_that_end_in_digits_are_not_emptied() {
        let cut = [
            ("app-v1", "app"),
            ("app_v2.10", "app"),
            ("python3.11", "python"),
            ("libc-2.31.so", "libc.so"),
            ("server", "server"),
            ("v8", "v"),
            ("env1", "env"),
            ("7", ""),
        ];
        for (name, bare) in cut {
            assert_eq!(without_version(name), bare, "{name}");
        }
    }
}
