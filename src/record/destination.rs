//! The output of a recording: a new file that only its owner may read, a pipe, or a device.

use crate::new_file::{self, NewFile};
use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;
use std::fs::{File, Metadata, OpenOptions, symlink_metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
        /// Keeps other recorders from the path; `None` where the file system has no locks.
        _lock: Option<Lock>,
    },
    /// A device or a pipe with a name.
    Special(File),
}

/// A lock of a file. Without this, one that can't be unlocked any more, as its server is gone, would end in a panic.
pub struct Lock(Option<Flock<File>>);

impl Lock {
    /// Locks `file`, or returns why not.
    fn of(file: File) -> Result<Lock, Errno> {
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        locked
            .map(|lock| Lock(Some(lock)))
            .map_err(|(_, error)| error)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(Err((lock, _))) = self.0.take().map(Flock::unlock) {
            std::mem::forget(lock);
        }
    }
}

/// Locks the file at `path` against other recorders; `None` if there is no file of ours, or no lock. Nothing else is
/// opened, and a link is not followed: whoever holds a lock of a file of theirs would keep us from the path.
///
/// # Errors
/// Another recorder writes to it.
pub fn lock(path: &Path) -> anyhow::Result<Option<Lock>> {
    let is_ours = |found: Metadata| found.is_file() && found.uid() == geteuid().as_raw();
    if !symlink_metadata(path).is_ok_and(is_ours) {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    // Some file systems lock only what is open for writing. Nothing is written, and a pipe is not waited for.
    options.read(true).write(true);
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    let found = options.open(path).ok();
    // Another file may have taken its name since it was examined.
    let found = found.filter(|found| found.metadata().is_ok_and(is_ours));
    match found.map(Lock::of) {
        Some(Err(Errno::EWOULDBLOCK)) => {
            bail!("another recorder writes to it; name another one with -o, or end that recorder")
        }
        Some(Ok(lock)) => Ok(Some(lock)),
        Some(Err(_)) | None => Ok(None),
    }
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
        if let Some(file) = new_file::special(path)? {
            return Ok(OutputPath::Special(file));
        }
        lock(path).with_context(cannot)?;
        Ok(OutputPath::File(path.to_path_buf()))
    }

    /// Takes the path as a file, which may be replaced. Nothing else is opened.
    ///
    /// # Errors
    /// There is something else at the path.
    pub fn of_file(path: &Path) -> anyhow::Result<Self> {
        match symlink_metadata(path) {
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
        let created = create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))
    }
}

/// Creates a file at `path`, and moves the previous recordings away. Empty files, and links that lead nowhere, are
/// replaced.
fn create(path: &Path) -> anyhow::Result<Destination> {
    let new = NewFile::beside(path, 0o600)?;
    // It is locked before it has its name, and what had that name is until then.
    let own = Lock::of(new.file.try_clone()?).ok();
    let _other = lock(path)?;
    let file = new.file.try_clone()?;
    let is_there = std::fs::metadata(path).is_ok_and(|known| known.len() > 0);
    let before = is_there.then(|| Before::moved(path)).transpose()?;
    if let Err(error) = new.put(path) {
        before.iter().for_each(|before| before.restore(path));
        return Err(error.into());
    }
    Ok(Destination::File {
        file,
        path: path.to_path_buf(),
        before,
        _lock: own,
    })
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
        if let Destination::File { path, before, .. } = self
            && self.is_in_place()
        {
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
            && self.is_in_place()
        {
            let _ = std::fs::remove_file(older);
        }
    }

    /// Whether the file is still at its path, and nobody has put another one there.
    pub fn is_in_place(&self) -> bool {
        let Destination::File { file, path, .. } = self else {
            return false;
        };
        let place = |found: Metadata| (found.dev(), found.ino());
        let there = symlink_metadata(path).map(place).ok();
        there.is_some() && there == file.metadata().map(place).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read, read_dir, remove_file, write};
    use std::io::Write;

    fn create(path: &Path) -> anyhow::Result<Destination> {
        OutputPath::find(path)?.create()
    }

    #[test]
    fn a_file_that_another_recorder_writes_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.uprof");
        write(&path, "before").unwrap();
        let first = create(&path).unwrap();
        first.writer().unwrap().write_all(b"first").unwrap();
        for create in [create(&path), OutputPath::File(path.clone()).create()] {
            let error = crate::outcome::describe(&create.err().unwrap());
            let told = "run.uprof: another recorder writes to it";
            assert!(error.contains(told), "{error}");
        }
        assert!(lock(&path).is_err());
        assert_eq!(read(&path).unwrap(), b"first");
        first.keep();
        drop(first);
        let names = read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "run.uprof and run.uprof.old");
        assert!(lock(&path).unwrap().is_some());
        create(&path).unwrap().discard();
        assert_eq!(read(&path).unwrap(), b"first");
        let old = folder.path().join("run.uprof.old");
        assert_eq!(read(old).unwrap(), b"before");
    }

    #[test]
    fn a_file_that_was_removed_is_not_taken_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.uprof");
        let at = |ending: &str| folder.path().join(format!("run.uprof{ending}"));
        write(at(".old"), "older").unwrap();
        write(&path, "old").unwrap();
        let first = create(&path).unwrap();
        remove_file(&path).unwrap();
        let second = create(&path).unwrap();
        second.writer().unwrap().write_all(b"second").unwrap();
        first.discard();
        first.keep();
        assert_eq!(read(&path).unwrap(), b"second");
        assert_eq!(read(at(".old")).unwrap(), b"old");
        assert_eq!(read(at(".older")).unwrap(), b"older");
    }
}
