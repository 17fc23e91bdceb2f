//! The sources of the packages.

use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below `folder`, without build output and leftovers of tests.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut open, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            // Cargo builds into a folder beside the manifest.
            let is_built = path.ends_with("target") && path.with_file_name("Cargo.toml").exists();
            if path.is_dir() && !path.ends_with("tests/out") && !is_built {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
