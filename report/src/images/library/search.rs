//! Where to search for images and their debug files. Input: a module. Output: paths to try. Whether a file there is
//! the right one is decided elsewhere.

use crate::images::{BuildId, Image};
use crate::recording::spaces::Module;
use std::path::{Component, Path, PathBuf};

/// Where distributions put debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Where the image of `module` may be: in the folders given by hand, by build-id, whole path or file name; then,
/// unless only named files may be opened, where it was recorded.
pub(super) fn images(module: &Module, folders: &[PathBuf], only_given: bool) -> Vec<PathBuf> {
    let recorded = Path::new(&module.path);
    // A path with `..` could lead out of the folder.
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let is_path = recorded.is_absolute()
        && recorded.components().all(plain)
        && !module.path.ends_with(" (deleted)");
    let mut paths = Vec::new();
    for folder in folders {
        paths.extend(by_build_id(folder, &module.build_id, ""));
        if is_path && let Ok(below) = recorded.strip_prefix("/") {
            paths.push(folder.join(below));
        }
        // A name with a separator would lead out of the folder.
        if !module.short_name().contains('/') && module.short_name() != ".." {
            paths.push(folder.join(module.short_name()));
        }
    }
    if is_path && !only_given {
        paths.push(recorded.to_owned());
    }
    if !only_given {
        paths.extend(by_build_id(Path::new(DEBUG_FOLDER), &module.build_id, ""));
    }
    paths
}

/// Where the debug file of an image with `build_id` may be.
pub(super) fn debug_files(build_id: &[u8], folders: &[PathBuf], only_given: bool) -> Vec<PathBuf> {
    let usual = (!only_given).then(|| PathBuf::from(DEBUG_FOLDER));
    let folders = folders.iter().cloned().chain(usual);
    folders
        .filter_map(|folder| by_build_id(&folder, build_id, ".debug"))
        .collect()
}

/// `FOLDER/.build-id/ab/cdef…`, as gdb and distributions have it.
fn by_build_id(folder: &Path, build_id: &[u8], ending: &str) -> Option<PathBuf> {
    let text = BuildId(build_id.to_vec()).to_string();
    let (first, rest) = text
        .split_at_checked(2)
        .filter(|(_, rest)| !rest.is_empty())?;
    Some(
        folder
            .join(".build-id")
            .join(first)
            .join(format!("{rest}{ending}")),
    )
}

/// The debug file that `image` names in .gnu_debuglink (a name, and the CRC of the file), beside
/// it, in a folder .debug beside it, or below the folder of debug files.
pub(super) fn linked_debug_file(image: &Image) -> Option<Image> {
    let link = image.section(".gnu_debuglink")?;
    let end = link.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&link[..end]).ok()?;
    let wanted = u32::from_le_bytes(*link.get((end + 4) & !3..)?.first_chunk::<4>()?);
    let folder = image.path()?.parent()?;
    if name.is_empty() || name.contains('/') || name == ".." {
        return None;
    }
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let places = [
        folder.to_owned(),
        folder.join(".debug"),
        Path::new(DEBUG_FOLDER).join(below),
    ];
    places.into_iter().find_map(|place| {
        let found = Image::open_named(&place.join(name)).ok()?;
        let mut crc = flate2::Crc::new();
        crc.update(found.file_bytes());
        (crc.sum() == wanted).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_given_by_hand_come_first_and_nothing_leads_out_of_them() {
        let module = |path: &str| Module {
            path: path.to_owned(),
            build_id: vec![0xab, 0xcd],
            file: None,
        };
        let folders = [PathBuf::from("/syms")];
        let paths = images(&module("/usr/bin/app"), &folders, false);
        let wanted = [
            "/syms/.build-id/ab/cd",
            "/syms/usr/bin/app",
            "/syms/app",
            "/usr/bin/app",
            "/usr/lib/debug/.build-id/ab/cd",
        ];
        assert_eq!(paths, wanted.map(PathBuf::from));
        let paths = images(&module("/usr/bin/app (deleted)"), &folders, true);
        assert_eq!(
            paths,
            ["/syms/.build-id/ab/cd", "/syms/app"].map(PathBuf::from)
        );
        let paths = images(&module("/../../etc/app"), &folders, false);
        assert!(
            paths
                .iter()
                .all(|path| !path.to_string_lossy().contains(".."))
        );
        let short = Module {
            path: "..".to_owned(),
            build_id: vec![1],
            file: None,
        };
        assert!(images(&short, &folders, true).is_empty());
    }
}
