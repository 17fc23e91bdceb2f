//! The output of a recording: a new file that only its owner may read, a pipe, or a device.

use crate::new_file::{self, NewFile};
use anyhow::{Context, bail};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use uniprof_record::output::Output;

/// A checked output path of a recording; a file is not created yet.
pub enum OutputPath {
    /// Standard output.
    Stdout,
    /// A file, existing or not.
    File(PathBuf),
    /// A device or a pipe with a name, open.
    Special(File),
}

/// The output, and how to undo it.
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A new file, and where the previous ones were moved.
    File {
        file: File,
        path: PathBuf,
        before: Option<Before>,
    },
    /// A device or a pipe with a name.
    Special(File),
}

/// The recordings that a new one moved out of its way.
pub struct Before {
    /// FILE.old, which was FILE.
    old: PathBuf,
    /// FILE.older, which was FILE.old, until the new recording has samples.
    older: Option<PathBuf>,
}

impl OutputPath {
    /// Checks the path. Waits for the reader of a named pipe.
    ///
    /// # Errors
    /// Says why nothing can be written there.
    pub fn find(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            if io::IsTerminal::is_terminal(&io::stdout()) {
                bail!("a recording is no text: send it into a file or pipe, or use -o FILE");
            }
            return Ok(OutputPath::Stdout);
        }
        let cannot = || format!("cannot create {}", path.display());
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            bail!(
                "{}: there is no folder {}; create it first",
                cannot(),
                folder.display()
            );
        }
        if path.is_dir() {
            bail!("{}: it is a folder; name a file in it", cannot());
        }
        Ok(match new_file::special(path)? {
            Some(file) => OutputPath::Special(file),
            None => OutputPath::File(path.to_path_buf()),
        })
    }

    /// Takes the path as a file, which may be replaced. Nothing else is opened.
    ///
    /// # Errors
    /// There is something else at the path.
    pub fn of_file(path: &Path) -> anyhow::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                bail!("cannot create {}: it is not a file", path.display())
            }
            _ => Ok(OutputPath::File(path.to_path_buf())),
        }
    }

    /// Creates the file. An existing recording is renamed.
    ///
    /// # Errors
    /// Says why nothing can be written there.
    pub fn create(self) -> anyhow::Result<Destination> {
        let path = match self {
            OutputPath::Stdout => return Ok(Destination::Stdout),
            OutputPath::Special(file) => return Ok(Destination::Special(file)),
            OutputPath::File(path) => path,
        };
        let (file, before) =
            create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Destination::File { file, path, before })
    }
}

/// Creates a file at `path`, and returns where the previous recordings are now. Empty files, and links that lead
/// nowhere, are replaced.
fn create(path: &Path) -> io::Result<(File, Option<Before>)> {
    let new = NewFile::beside(path, 0o600)?;
    let file = new.file.try_clone()?;
    let is_there = std::fs::metadata(path).is_ok_and(|known| known.len() > 0);
    let before = is_there.then(|| Before::moved(path)).transpose()?;
    match new.put(path) {
        Ok(()) => Ok((file, before)),
        Err(error) => {
            before.iter().for_each(|before| before.restore(path));
            Err(error)
        }
    }
}

impl Destination {
    /// The output to write to.
    ///
    /// # Errors
    /// The file can't be opened a second time.
    pub fn writer(&self) -> anyhow::Result<Output> {
        let descriptor = match self {
            // Not through the standard library's buffer, which would split blocks at line ends.
            Destination::Stdout => io::stdout().as_fd().try_clone_to_owned()?,
            Destination::File { file, .. } | Destination::Special(file) => file.try_clone()?.into(),
        };
        Ok(descriptor.into())
    }

    /// Whether the path held a recording before.
    pub fn replaces(&self) -> bool {
        matches!(
            self,
            Destination::File {
                before: Some(_),
                ..
            }
        )
    }

    /// Removes a recording that holds nothing, and restores the previous ones.
    pub fn discard(&self) {
        if let Destination::File { path, before, .. } = self {
            let _ = std::fs::remove_file(path);
            before.iter().for_each(|before| before.restore(path));
        }
    }

    /// Keeps the recording, and the last one before it.
    pub fn keep(&self) {
        if let Destination::File {
            before: Some(before),
            ..
        } = self
            && let Some(older) = &before.older
        {
            let _ = std::fs::remove_file(older);
        }
    }

    /// Cuts off the partial block that an output wrote before it failed, so that only whole blocks are left.
    pub fn cut_to(&self, whole_bytes: u64) {
        if let Destination::File { file, .. } = self {
            let _ = file.set_len(whole_bytes);
        }
    }
}

impl Before {
    /// Renames a recording to FILE.old, and an older one to FILE.older.
    fn moved(path: &Path) -> io::Result<Before> {
        let with = |ending: &str| -> PathBuf {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            name.into()
        };
        let (old, older) = (with(".old"), with(".older"));
        let older = std::fs::rename(&old, &older).is_ok().then_some(older);
        let before = Before { old, older };
        match std::fs::rename(path, &before.old) {
            Ok(()) => Ok(before),
            Err(error) => {
                before.restore_older();
                Err(error)
            }
        }
    }

    fn restore(&self, path: &Path) {
        let _ = std::fs::rename(&self.old, path);
        self.restore_older();
    }

    fn restore_older(&self) {
        if let Some(older) = &self.older {
            let _ = std::fs::rename(older, &self.old);
        }
    }
}
