//! Messages that wait in a folder. In: messages. Out: files, each complete and durable under its name before it counts.
//! Never more bytes than the folder's limit, never a message of others, never one removed that isn't delivered, and
//! never a file that has no name of a spool.

use crate::new_file::NewFile;
use crate::quantity::bytes;
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uniprof_report::push::Message;
use uniprof_report::text::hexadecimal;

/// Extension of what a server refused, after that of its format.
const REFUSED: &str = "refused";
/// Extension of what is being written.
const PART: &str = "part";
/// Who delivers to one server holds the lock of its messages, and shares the one of the folder with others who do.
const LOCK: &str = "lock";

/// How a file of the folder is opened: no link is followed, and no pipe is waited for.
const NO_TRAP: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// Which messages of a folder are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those for this server.
    Own,
    /// Also those without a mark of their server, which older versions wrote.
    Older,
    /// Also those for other servers that take the same format.
    All,
}

/// A folder of messages. Its files have the folder's path in arguments and results, and are reached by its descriptor,
/// so that whoever may rename things around the folder can't redirect what is read or written.
pub struct Spool {
    folder: PathBuf,
    opened: File,
    size_bytes: u64,
    /// How the names of its messages end: with a mark of their server, and their format.
    ending: String,
    scope: Scope,
    /// The message that is being delivered.
    taken: Mutex<Option<PathBuf>>,
    dropped: AtomicU64,
}

/// The right to deliver messages of a spool. For each message, one process has it.
pub struct Deliverer(#[expect(dead_code, reason = "unlocks when dropped")] [Flock<File>; 2]);

impl Spool {
    /// Opens the spool of messages whose names end with `ending`, and of what else `scope` says, and makes its folder.
    ///
    /// # Errors
    /// The folder can't be made, is a link, or others may write to it.
    pub fn open(
        folder: &Path,
        size_bytes: u64,
        ending: String,
        scope: Scope,
    ) -> anyhow::Result<Spool> {
        let describe = || format!("cannot use the spool {}", folder.display());
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(describe)?;
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits());
        let cannot = || format!("{}: it must be a folder, no link", describe());
        let opened = options.open(folder).with_context(cannot)?;
        let found = opened.metadata().with_context(describe)?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            bail!(
                "{}: others can write there, and so send what they like in your name; name a folder of your own",
                describe()
            );
        }
        Ok(Spool {
            folder: folder.to_owned(),
            opened,
            size_bytes,
            ending,
            scope,
            taken: Mutex::new(None),
            dropped: AtomicU64::new(0),
        })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the folder that was opened, whatever its name leads to meanwhile.
    fn by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.opened.as_raw_fd()))
    }

    /// The path by which a file of the spool is reached.
    fn reached(&self, path: &Path) -> PathBuf {
        self.by_descriptor().join(name_of(path))
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
        let folder = File::open(self.by_descriptor())?;
        let folder = Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        let id = hexadecimal(&message.id);
        let start_ns = message.start_ns.max(0);
        let name = format!("{start_ns:020}-{id}.{}", self.ending);
        let path = self.folder.join(name);
        let reached = self.reached(&path);
        if reached.exists() {
            return Ok(None);
        }
        let mut used_bytes = self.used_bytes()?;
        let size_bytes = message.body.len() as u64;
        let mut next = 0;
        while used_bytes.saturating_add(size_bytes) > self.size_bytes
            && let Some(path) = spare.get(next)
        {
            match self.drop_one(path)? {
                Some(dropped_bytes) => {
                    used_bytes = used_bytes.saturating_sub(dropped_bytes);
                    spare.remove(next);
                }
                None => next += 1,
            }
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
        let new = NewFile::beside(&reached, 0o600)?;
        (&new.file).write_all(&message.body)?;
        new.file.sync_all()?;
        new.put(&reached)?;
        folder.sync_all()?;
        Ok(Some(path))
    }

    /// The bytes of all messages. What killed processes left behind is removed: nobody else writes now.
    fn used_bytes(&self) -> io::Result<u64> {
        let mut used_bytes = 0;
        for path in self.files()? {
            if ends_with(&path, PART) {
                self.remove(&path)?;
            } else if let Ok(found) = fs::metadata(self.reached(&path)) {
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
        let mut all = self.files()?;
        all.retain(|path| self.has_in(self.scope, path));
        all.sort_unstable();
        Ok(all)
    }

    /// The number of messages of this format that wait for other servers.
    pub fn others(&self) -> usize {
        let all = self.files().unwrap_or_default();
        let others = all
            .iter()
            .filter(|path| self.has_in(Scope::All, path) && !self.has_in(self.scope, path));
        others.count()
    }

    /// Whether a message that waits is delivered with a scope.
    fn has_in(&self, scope: Scope, path: &Path) -> bool {
        let (_, format) = self.ending.rsplit_once('.').unwrap_or_default();
        let (_, ending) = name_of(path).split_once('.').unwrap_or_default();
        match scope {
            Scope::Own => ending == self.ending,
            Scope::Older => ending == self.ending || ending == format,
            Scope::All => ends_with(path, format),
        }
    }

    /// Whether a message is there, be it refused or not.
    pub fn has(&self, path: &Path) -> bool {
        self.reached(path).exists() || self.reached(&refused(path)).exists()
    }

    /// The number of its messages that were refused.
    pub fn refused(&self) -> usize {
        let all = self.files().unwrap_or_default();
        let refused = all.iter().filter(|path| ends_with(path, REFUSED));
        refused
            .filter(|path| self.has_in(self.scope, &path.with_extension("")))
            .count()
    }

    /// The files that a spool has named. Whatever else is in the folder belongs to somebody else.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.by_descriptor())?;
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry?;
            let path = self.folder.join(entry.file_name());
            if is_spooled(&path) && entry.file_type()?.is_file() {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    /// Becomes the one that delivers its messages; `None` if another process is.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn deliverer(&self) -> anyhow::Result<Option<Deliverer>> {
        // One server that is away holds up no delivery to another.
        let folder = if self.scope == Scope::Own {
            FlockArg::LockSharedNonblock
        } else {
            FlockArg::LockExclusiveNonblock
        };
        let Some(folder) = self.locked(LOCK, folder)? else {
            return Ok(None);
        };
        let name = format!("{}.{LOCK}", self.ending);
        let own = self.locked(&name, FlockArg::LockExclusiveNonblock)?;
        Ok(own.map(|own| Deliverer([folder, own])))
    }

    fn locked(&self, name: &str, how: FlockArg) -> anyhow::Result<Option<Flock<File>>> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(NO_TRAP.bits())
            .open(self.reached(&path));
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Flock::lock(file, how).ok())
    }

    /// Reads a message, which is then not dropped for room until it is put back or the next one is read; `None` if it
    /// was before.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn take(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut taken = self.lock();
        match self.read(path) {
            Ok(message) => {
                *taken = Some(path.to_owned());
                Ok(Some(message))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(NO_TRAP.bits());
        let mut file = options.open(self.reached(path))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file; remove it"));
        }
        let mut message = Vec::new();
        file.read_to_end(&mut message)?;
        Ok(message)
    }

    /// Lets the message that was read last be dropped for room again: it is not being delivered now.
    pub fn put_back(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a message, be it refused or not, for the room that it takes. Returns its bytes; `None` if it is being
    /// delivered.
    fn drop_one(&self, path: &Path) -> io::Result<Option<u64>> {
        let taken = self.lock();
        if taken.as_deref() == Some(path) {
            return Ok(None);
        }
        for path in [refused(path), path.to_owned()] {
            if let Ok(found) = fs::metadata(self.reached(&path)) {
                self.remove(&path)?;
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(found.len()));
            }
        }
        Ok(Some(0))
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
        fs::remove_file(self.reached(path))
    }

    /// Puts a message aside that was refused.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn refuse(&self, path: &Path) -> io::Result<PathBuf> {
        let aside = refused(path);
        fs::rename(self.reached(path), self.reached(&aside))?;
        Ok(aside)
    }
}

/// Where a message is put aside.
fn refused(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".");
    aside.push(REFUSED);
    aside.into()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Whether a file has a name of a spool: its time, its id, and what it is.
fn is_spooled(path: &Path) -> bool {
    let (time, rest) = name_of(path).split_once('-').unwrap_or_default();
    let (id, _) = rest.split_once('.').unwrap_or_default();
    let is_number = |text: &str, length, base| {
        text.len() == length && text.chars().all(|digit| digit.is_digit(base))
    };
    is_number(time, 20, 10) && is_number(id, 32, 16)
}

/// Whether a name ends with these extensions.
fn ends_with(path: &Path, ending: &str) -> bool {
    let rest = name_of(path).strip_suffix(ending);
    rest.is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(folder: &Path) -> Spool {
        Spool::open(folder, 1 << 20, "00.pyroscope".into(), Scope::Own).unwrap()
    }

    #[test]
    fn another_folder_at_its_path_gets_nothing_and_sends_nothing() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("spool");
        let spool = spool(&folder);
        fs::rename(&folder, around.path().join("moved")).unwrap();
        fs::create_dir(&folder).unwrap();
        let message = Message {
            id: [1; 16],
            start_ns: 1,
            body: b"message".to_vec(),
        };
        let path = spool.add(&message, &mut VecDeque::new()).unwrap().unwrap();
        assert!(path.starts_with(&folder), "{}", path.display());
        assert!(spool.deliverer().unwrap().is_some());
        assert_eq!(spool.waiting().unwrap(), std::slice::from_ref(&path));
        assert_eq!(spool.take(&path).unwrap().unwrap(), b"message");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(&path, "of others").unwrap();
        let aside = spool.refuse(&path).unwrap();
        assert!(spool.has(&path) && !aside.exists());
        assert_eq!(fs::read(&path).unwrap(), b"of others");
    }

    #[test]
    fn links_and_pipes_are_neither_read_nor_locked() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("spool");
        let spool = spool(&folder);
        let secret = around.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(spool.take(&link).is_err());
        let pipe = folder.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = spool.take(&pipe).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        std::os::unix::fs::symlink(&secret, folder.join(LOCK)).unwrap();
        assert!(spool.deliverer().is_err());
    }
}
