//! How every output file is made: new, under a name of its own, then renamed to where it belongs. Whatever lies there
//! already, another user's file, a link or nothing, is replaced and never opened, so that nobody who could open it
//! reads what is written. Pipes and devices are opened if they are the user's, or root's.

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is not yet where it belongs; unless it is put there, it is removed when dropped.
pub struct NewFile {
    /// The file, open for writing.
    pub file: File,
    part: PathBuf,
}

impl NewFile {
    /// Makes one in the folder of `path`, with these permissions less those of the umask.
    ///
    /// # Errors
    /// As of the file system.
    pub fn beside(path: &Path, mode: u32) -> io::Result<NewFile> {
        let part = part_path(path);
        // What an earlier run left; a link in its place is not followed.
        let _ = fs::remove_file(&part);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(&part);
        file.map(|file| NewFile { file, part })
    }

    /// Its name until then.
    #[cfg(feature = "report")]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Gives it the name `path`, in place of what has that name.
    ///
    /// # Errors
    /// As of the file system: in a folder such as /tmp, nobody but root replaces what belongs to others.
    pub fn put(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.part, path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Whether what `found` describes was put there by the user, or by root.
fn is_trusted(found: &fs::Metadata) -> bool {
    found.uid() == 0 || found.uid() == geteuid().as_raw()
}

/// Opens the pipe or device at `path`; `None` if there is a file, nothing, or a link of another user, which is to be
/// replaced. Waits for the reader of a pipe.
///
/// # Errors
/// It belongs to another user, or can't be opened.
pub fn special(path: &Path) -> anyhow::Result<Option<File>> {
    let cannot = || format!("cannot write to {}", path.display());
    let Ok(named) = fs::symlink_metadata(path) else {
        return Ok(None);
    };
    if named.is_symlink() && !is_trusted(&named) {
        return Ok(None);
    }
    let Ok(found) = fs::metadata(path) else {
        return Ok(None);
    };
    let kind = found.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(None);
    }
    let what = match () {
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () => "device",
    };
    let check = |found: &fs::Metadata| {
        if !is_trusted(found) {
            bail!(
                "{}: it is a {what} of another user ({}), who could read all of it; name another file",
                cannot(),
                found.uid()
            );
        }
        Ok(())
    };
    check(&found)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).open(path).with_context(cannot)?;
    // It may have been exchanged meanwhile.
    let opened = file.metadata().with_context(cannot)?;
    check(&opened)?;
    if opened.is_file() {
        bail!("{}: it changed while it was opened", cannot());
    }
    Ok(Some(file))
}
