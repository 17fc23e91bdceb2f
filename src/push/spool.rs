//! Messages that wait in a folder. In: messages. Out: files, each complete and durable under its name before it counts.
//! Never more bytes than the folder's limit, never a message of others, never one removed that isn't delivered.

use crate::new_file::NewFile;
use crate::quantity::bytes;
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uniprof_report::push::Message;
use uniprof_report::text::hexadecimal;

/// Extension of what a server refused, after that of its format.
const REFUSED: &str = "refused";
/// Who holds this file delivers.
const LOCK: &str = "lock";

/// A folder of messages.
pub struct Spool {
    folder: PathBuf,
    size_bytes: u64,
    format: &'static str,
    /// The message that is being delivered.
    taken: Mutex<Option<PathBuf>>,
    dropped: AtomicU64,
}

/// The right to deliver from a spool. One process has it.
pub struct Deliverer(#[expect(dead_code, reason = "unlocks when dropped")] Flock<File>);

impl Spool {
    /// Opens the spool of messages of `format`, and makes its folder.
    ///
    /// # Errors
    /// The folder can't be made, or others may write to it.
    pub fn open(folder: &Path, size_bytes: u64, format: &'static str) -> anyhow::Result<Spool> {
        let describe = || format!("cannot use the spool {}", folder.display());
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(describe)?;
        let found = fs::metadata(folder).with_context(describe)?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            bail!(
                "{}: others can write there, and so send what they like in your name; name a folder of your own",
                describe()
            );
        }
        Ok(Spool {
            folder: folder.to_owned(),
            size_bytes,
            format,
            taken: Mutex::new(None),
            dropped: AtomicU64::new(0),
        })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes a message, and drops the first ones of `spare` if it has no room. Once this returns, the message survives
    /// a crash of the machine. Returns its path; `None` if one with this id is there already.
    ///
    /// # Errors
    /// The spool is full, or those of the file system.
    pub fn add(
        &self,
        message: &Message,
        spare: &mut VecDeque<PathBuf>,
    ) -> io::Result<Option<PathBuf>> {
        let folder = File::open(&self.folder)?;
        let folder = Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        let id = hexadecimal(&message.id);
        let start_ns = message.start_ns.max(0);
        let name = format!("{start_ns:020}-{id}.{}", self.format);
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(None);
        }
        let mut used_bytes = self.used_bytes()?;
        let size_bytes = message.body.len() as u64;
        while used_bytes.saturating_add(size_bytes) > self.size_bytes
            && let Some(path) = spare.pop_front()
        {
            used_bytes = used_bytes.saturating_sub(self.drop_one(&path)?);
        }
        if used_bytes.saturating_add(size_bytes) > self.size_bytes {
            return Err(io::Error::other(format!(
                "the spool {0} is full ({1} of {2}); deliver what waits there (`uniprof push --spool {0} --to URL`), \
                 remove what was refused (*.{REFUSED}), or raise --spool-size",
                self.folder.display(),
                bytes(used_bytes),
                bytes(self.size_bytes)
            )));
        }
        let new = NewFile::beside(&path, 0o600)?;
        (&new.file).write_all(&message.body)?;
        new.file.sync_all()?;
        new.put(&path)?;
        folder.sync_all()?;
        Ok(Some(path))
    }

    /// The bytes of all messages. What killed processes left behind is removed: nobody else writes now.
    fn used_bytes(&self) -> io::Result<u64> {
        let mut used_bytes = 0;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if has_extension(&entry.path(), "part") {
                fs::remove_file(entry.path())?;
            } else if let Ok(found) = entry.metadata() {
                // A file may have been delivered and removed since.
                used_bytes += found.len();
            }
        }
        Ok(used_bytes)
    }

    /// The messages that wait, the oldest first.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn waiting(&self) -> io::Result<Vec<PathBuf>> {
        let mut all = self.with_extension(self.format)?;
        all.sort_unstable();
        Ok(all)
    }

    /// The number of messages that were refused.
    pub fn refused(&self) -> usize {
        self.with_extension(REFUSED).map_or(0, |all| all.len())
    }

    fn with_extension(&self, extension: &str) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path()));
        let paths = paths.collect::<io::Result<Vec<PathBuf>>>()?;
        let chosen = paths
            .into_iter()
            .filter(|path| has_extension(path, extension));
        Ok(chosen.collect())
    }

    /// Becomes the one that delivers; `None` if another process is.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn deliverer(&self) -> anyhow::Result<Option<Deliverer>> {
        let path = self.folder.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .ok()
            .map(Deliverer))
    }

    /// Reads a message, which is then not dropped for room until the next one is read; `None` if it was before.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn take(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut taken = self.lock();
        match fs::read(path) {
            Ok(message) => {
                *taken = Some(path.to_owned());
                Ok(Some(message))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a message for the room that it takes, unless it is being delivered or was. Returns its bytes.
    fn drop_one(&self, path: &Path) -> io::Result<u64> {
        let taken = self.lock();
        if taken.as_deref() == Some(path) {
            return Ok(0);
        }
        let Ok(found) = fs::metadata(path) else {
            return Ok(0);
        };
        fs::remove_file(path)?;
        self.dropped.fetch_add(1, Ordering::Relaxed);
        Ok(found.len())
    }

    /// The number of messages that were dropped for room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Removes a message that was delivered.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Puts a message aside that was refused.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn refuse(&self, path: &Path) -> io::Result<PathBuf> {
        let aside = path.with_extension(format!("{}.{REFUSED}", self.format));
        fs::rename(path, &aside)?;
        Ok(aside)
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}
