//! The folder of the recordings of runs: kept if the user named it, else removed at the end.

use crate::new_file;
use std::fs;
use std::path::{Path, PathBuf};

/// A new folder.
pub struct RunFolder {
    path: PathBuf,
    is_kept: bool,
}

impl RunFolder {
    /// Creates the folder `kept`, or a temporary one for `subcommand`, with these folders in it. Only the owner can
    /// read recordings.
    ///
    /// # Errors
    /// Those of the file system, for example that the folder exists.
    pub fn new(kept: Option<&Path>, subcommand: &str, sides: &[&str]) -> anyhow::Result<RunFolder> {
        let path = match kept {
            Some(path) => path.to_path_buf(),
            None => {
                std::env::temp_dir().join(format!("uniprof-{subcommand}-{}", std::process::id()))
            }
        };
        new_file::run_folder(&path)?;
        let folder = RunFolder {
            path,
            is_kept: kept.is_some(),
        };
        for side in sides {
            new_file::run_folder(&folder.path.join(side))?;
        }
        Ok(folder)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
