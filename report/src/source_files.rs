//! Decides which source files of this machine a report may show. The paths in a recording are untrusted,
//! unless it was made on this machine or the reader has named images.

use crate::mapped::{open_named, read_at_most};
use std::path::{Component, Path, PathBuf};

/// Size of the largest source file that is shown (bytes).
const SOURCE_BYTES_MAX: u64 = 64 << 20;

/// File name extensions of source files: no other file is shown, whatever path a recording has.
const SOURCE_ENDINGS: [&str; 22] = [
    "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "inc", "s", "S", "asm", "rs", "ml", "mli",
    "go", "zig", "d", "f90", "py", "nim", "swift",
];

/// Folders and paths from which source files may be shown.
#[derive(Debug, Clone, Default)]
pub struct SourceFiles {
    /// Whether the paths in recordings and images are trusted.
    is_trusted: bool,
    /// Folders that the reader has named.
    folders: Vec<PathBuf>,
}

impl SourceFiles {
    /// Allows no file.
    pub fn none() -> Self {
        SourceFiles::default()
    }

    /// Allows files below `folders`. If `is_trusted`, it allows the recorded paths, too: the recording was
    /// made here, or its reader has named images.
    pub fn of(is_trusted: bool, folders: Vec<PathBuf>) -> Self {
        SourceFiles {
            is_trusted,
            folders,
        }
    }

    /// Whether any file may be opened.
    pub fn may_open(&self) -> bool {
        self.is_trusted || !self.folders.is_empty()
    }

    /// The text of `file`, a path from a recording or an image.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        let path = Path::new(file);
        let below = |folder: &PathBuf| read_below(folder, path);
        let found = self.folders.iter().find_map(below);
        found.or_else(|| self.is_trusted.then(|| read(path)).flatten())
    }
}

/// The file in `folder` whose path shares the longest end with `path`. Only a link in the folder can lead out
/// of it.
fn read_below(folder: &Path, path: &Path) -> Option<String> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
    // Only components after the last `..` or root are used, so that the path can't lead out of the folder.
    let begin = parts.iter().rposition(|part| !is_plain(part));
    let plain = &parts[begin.map_or(0, |begin| begin + 1)..];
    (0..plain.len()).find_map(|from| {
        let end: PathBuf = plain[from..].iter().collect();
        read(&folder.join(end))
    })
}

/// The text of the file at `path`, if it is a source file of plausible size.
fn read(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?;
    if !SOURCE_ENDINGS.contains(&ending) {
        return None;
    }
    let path = path.canonicalize().ok()?;
    // A link with a harmless name may lead to a file that is no source.
    if path.extension()?.to_str()? != ending {
        return None;
    }
    let file = open_named(&path).ok()?;
    let bytes = read_at_most(file, SOURCE_BYTES_MAX).ok()??;
    // Most files are valid UTF-8, which needs no copy.
    let text = String::from_utf8(bytes);
    Some(text.unwrap_or_else(|other| String::from_utf8_lossy(other.as_bytes()).into_owned()))
}

#[cfg(test)]
impl SourceFiles {
    /// Allows any path; for tests.
    pub(crate) fn anywhere() -> Self {
        SourceFiles {
            is_trusted: true,
            folders: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_folder_are_found_by_the_end_of_their_path_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("sources");
        std::fs::create_dir_all(root.join("src")).unwrap();
        for (name, text) in [
            ("sources/src/a.c", "a"),
            ("sources/b.c", "b"),
            ("secret.c", "c"),
            ("sources/passwd", "d"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let files = SourceFiles {
            is_trusted: false,
            folders: vec![root],
        };
        let secret = folder.path().join("secret.c");
        for (file, text) in [
            ("/build/of/somebody/src/a.c", Some("a")),
            ("b.c", Some("b")),
            ("/somewhere/../b.c", Some("b")),
            ("../secret.c", None),
            ("src/../../secret.c", None),
            (secret.to_str().unwrap(), None),
            ("/etc/passwd", None),
            ("..", None),
            ("", None),
        ] {
            assert_eq!(files.read(file).as_deref(), text, "{file}");
        }
        assert!(SourceFiles::none().read(secret.to_str().unwrap()).is_none());
        assert!(
            SourceFiles::anywhere()
                .read(secret.to_str().unwrap())
                .is_some()
        );
    }
}
