//! Where a recording goes: a new file that only its owner may read, a pipe, or a device.

use anyhow::{Context, bail};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use uniprof_record::output::Output;

/// A checked place for a recording; a file is not created yet.
pub enum Place {
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
    /// A new file, and where the previous one was moved.
    File {
        file: File,
        path: PathBuf,
        before: Option<PathBuf>,
    },
    /// A device or a pipe with a name.
    Special(File),
}

impl Place {
    /// Checks the place. Waits for the reader of a named pipe.
    ///
    /// # Errors
    /// Why nothing can be written there.
    pub fn find(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            if io::IsTerminal::is_terminal(&io::stdout()) {
                bail!("a recording is no text: send it into a file or pipe, or use -o FILE");
            }
            return Ok(Place::Stdout);
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
        match std::fs::metadata(path).ok().map(|found| found.file_type()) {
            Some(kind) if kind.is_dir() => bail!("{}: it is a folder; name a file in it", cannot()),
            Some(kind) if !kind.is_file() => {
                let mut options = OpenOptions::new();
                let file = options.write(true).open(path).with_context(cannot)?;
                Ok(Place::Special(file))
            }
            _ => Ok(Place::File(path.to_path_buf())),
        }
    }

    /// A file, whatever its name points to: it may be replaced, but nothing else is opened.
    ///
    /// # Errors
    /// There is something else.
    pub fn of_file(path: &Path) -> anyhow::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                bail!("cannot create {}: it is not a file", path.display())
            }
            _ => Ok(Place::File(path.to_path_buf())),
        }
    }

    /// Creates the file. An existing recording is renamed.
    ///
    /// # Errors
    /// Why nothing can be written there.
    pub fn create(self) -> anyhow::Result<Destination> {
        let path = match self {
            Place::Stdout => return Ok(Destination::Stdout),
            Place::Special(file) => return Ok(Destination::Special(file)),
            Place::File(path) => path,
        };
        let (file, before) =
            create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Destination::File { file, path, before })
    }
}

/// A new file at `path`, and the new name of the previous recording.
fn create(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let known = std::fs::metadata(path).ok();
    let is_empty = known.as_ref().is_some_and(|known| known.len() == 0);
    let before = match known {
        Some(_) if !is_empty => Some(keep_old(path)?),
        _ => None,
    };
    let mut options = OpenOptions::new();
    // A new file must not exist: a link in its place is not followed.
    options.write(true).create_new(!is_empty).mode(0o600);
    let file = options.open(path)?;
    if is_empty {
        // Created by someone else, perhaps readable by all.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok((file, before))
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

    /// Removes a recording without samples, and restores the previous one.
    pub fn discard(&self) {
        if let Destination::File { path, before, .. } = self {
            let _ = std::fs::remove_file(path);
            if let Some(before) = before {
                let _ = std::fs::rename(before, path);
            }
        }
    }
}

/// Renames a recording to FILE.old, replacing an older one.
fn keep_old(path: &Path) -> io::Result<PathBuf> {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    std::fs::rename(path, &old)?;
    Ok(old.into())
}
