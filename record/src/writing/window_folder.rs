//! The folder of a flight recorder's window: FILE.keep beside FILE, with a lock.
//!
//! Nobody else may write to it, and it is reached by its descriptor, so that whoever may rename things in the folder
//! around it can't redirect what is written. A killed recorder's folder is kept as FILE.keep.old.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of what exists when the window begins.
pub const STATE: &str = "state.uprof";
/// The file of symbol tables and code that are needed however old they are.
pub const TABLES: &str = "tables.uprof";
const LOCK: &str = "lock";
/// Why a folder is left alone.
const OTHER_FILES: &str = "it has other files than a window's, or belongs to another user";
/// Most files of a folder that are deleted.
const MOST_FILES: usize = 1 << 16;

/// Why there is no folder for a window.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another recorder writes to it.
    #[error(
        "cannot keep a window in {folder}: the recorder with process id {pid} does; choose another file with -o, or \
         end that one"
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The recorder's process id.
        pid: String,
    },
    /// Something else has its name, or it belongs to someone else.
    #[error(
        "cannot keep a window in {folder}: {why}; choose another file with -o, or move that away"
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// The file system refused.
    #[error("cannot keep a window in {folder}: {error}")]
    System {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A folder that this process alone writes to.
#[derive(Debug)]
pub struct WindowFolder {
    path: PathBuf,
    folder: File,
    _lock: Flock<File>,
}

/// The folder of the window of the recording at `file`.
pub fn folder_of(file: &Path) -> PathBuf {
    with_ending(file, ".keep")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The path of an open folder, wherever it is now.
fn path_of(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Opens a folder, but no link to one.
fn open_folder(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    options.open(path)
}

/// Whether it belongs to this user.
fn is_ours(folder: &Metadata) -> bool {
    folder.uid() == nix::unistd::geteuid().as_raw()
}

/// Whether nobody else may write to it, either.
fn is_ours_alone(folder: &Metadata) -> bool {
    is_ours(folder) && folder.mode() & 0o022 == 0
}

/// Opens the lock of an open folder, and creates it if there is none.
fn open_lock(folder: &File) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path_of(folder).join(LOCK))
}

impl WindowFolder {
    /// Creates the folder of the window of the recording at `file`. One that a killed recorder left is kept under
    /// another name.
    ///
    /// # Errors
    /// Another recorder uses it, it belongs to someone else, or it can't be created.
    pub fn create(file: &Path) -> Result<Self, FolderError> {
        let path = folder_of(file);
        let failed = |error| FolderError::System {
            folder: path.clone(),
            error,
        };
        // Locked before it has its name, so that nobody takes it for one that was left.
        let part = with_ending(&path, &format!(".{}.part", std::process::id()));
        let _ = clear(&part);
        DirBuilder::new()
            .mode(0o700)
            .create(&part)
            .map_err(failed)?;
        let folder = open_folder(&part).map_err(failed)?;
        // Whoever may rename things around it may have put another folder there since.
        if !is_ours_alone(&folder.metadata().map_err(failed)?) {
            let _ = clear(&part);
            return Err(FolderError::Foreign {
                folder: path.clone(),
                why: "a new folder there is another user's, or others may write to it",
            });
        }
        let locked = open_lock(&folder).map_err(failed)?;
        let lock = Flock::lock(locked, FlockArg::LockExclusiveNonblock);
        let mut lock = lock.map_err(|(_, errno)| failed(errno.into()))?;
        let _ = write!(&mut *lock, "{}", std::process::id());
        let mut moved = Ok(());
        // Another recorder that begins at the same moment may be faster.
        for _ in 0..3 {
            moved = fs::rename(&part, &path);
            if moved.is_ok() {
                break;
            }
            if let Err(error) = move_away(&path) {
                let _ = clear(&part);
                return Err(error);
            }
        }
        moved.map_err(failed)?;
        Ok(WindowFolder {
            path,
            folder,
            _lock: lock,
        })
    }

    /// The path by which its files are reached, whatever its name leads to meanwhile.
    pub fn by_descriptor(&self) -> PathBuf {
        path_of(&self.folder)
    }

    /// The path that the user knows.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Deletes the files of a window, and its folder.
///
/// # Errors
/// It is no folder of ours, or has other files in it: nothing is deleted then.
pub fn clear(path: &Path) -> io::Result<()> {
    let folder = open_folder(path)?;
    if !is_ours(&folder.metadata()?) {
        return Err(Errno::EPERM.into());
    }
    let inside = path_of(&folder);
    let entries = fs::read_dir(&inside)?.take(MOST_FILES);
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let is_window = names.is_empty() || names.iter().any(|name| name == LOCK);
    if !is_window || !names.iter().all(|name| is_of_window(name)) {
        return Err(Errno::ENOTEMPTY.into());
    }
    // By its lock, what is left of a folder is known.
    for name in names.iter().filter(|name| *name != LOCK) {
        fs::remove_file(inside.join(name))?;
    }
    if !names.is_empty() {
        fs::remove_file(inside.join(LOCK))?;
    }
    fs::remove_dir(path)
}

/// Whether a file of this name is a recorder's, or was to become one.
fn is_of_window(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        let name = name.strip_suffix(".part").unwrap_or(name);
        [LOCK, STATE, TABLES].contains(&name) || is_segment(name)
    })
}

fn is_segment(name: &str) -> bool {
    let number = name.strip_suffix(".uprof");
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Whether a folder has a part of a window.
fn has_segments(folder: &File) -> bool {
    let entries = fs::read_dir(path_of(folder));
    let mut entries = entries.into_iter().flatten().flatten().take(MOST_FILES);
    entries.any(|entry| entry.file_name().to_str().is_some_and(is_segment))
}

/// Renames the folder of a recorder that was killed to FILE.keep.old, and deletes the one before it.
fn move_away(path: &Path) -> Result<(), FolderError> {
    let foreign = |why| FolderError::Foreign {
        folder: path.to_path_buf(),
        why,
    };
    let failed = |error| FolderError::System {
        folder: path.to_path_buf(),
        error,
    };
    let folder = open_folder(path).map_err(|_| foreign("it is not a folder"))?;
    if !is_ours(&folder.metadata().map_err(failed)?) {
        return Err(foreign("it belongs to another user"));
    }
    if !path_of(&folder).join(LOCK).exists() {
        return Err(foreign("it is a folder of something else"));
    }
    let locked = open_lock(&folder).map_err(failed)?;
    let lock = match Flock::lock(locked, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((file, _)) => {
            let mut pid = String::new();
            let _ = file.take(20).read_to_string(&mut pid);
            return Err(FolderError::InUse {
                folder: path.to_path_buf(),
                pid,
            });
        }
    };
    if !has_segments(&folder) {
        // A start that failed left it. What a killed recorder left before stays.
        return clear(path).map_err(|_| foreign(OTHER_FILES));
    }
    let old = with_ending(path, ".old");
    if old.symlink_metadata().is_ok() && clear(&old).is_err() {
        return Err(FolderError::Foreign {
            folder: old,
            why: OTHER_FILES,
        });
    }
    fs::rename(path, &old).map_err(failed)?;
    drop(lock);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_has_one_recorder_and_what_a_killed_one_left_is_kept() {
        let around = tempfile::tempdir().unwrap();
        let file = around.path().join("run.uprof");
        let first = WindowFolder::create(&file).unwrap();
        fs::write(first.by_descriptor().join("00000001.uprof"), "window").unwrap();
        let second = WindowFolder::create(&file).unwrap_err().to_string();
        assert!(second.contains(&format!("process id {}", std::process::id())));
        drop(first);
        let third = WindowFolder::create(&file).unwrap();
        let old = around.path().join("run.uprof.keep.old/00000001.uprof");
        assert_eq!(fs::read(old).unwrap(), b"window");
        assert!(!third.by_descriptor().join("00000001.uprof").exists());
        // Neither this start nor the next one recorded anything.
        drop(third);
        WindowFolder::create(&file).unwrap();
        let old = around.path().join("run.uprof.keep.old/00000001.uprof");
        assert_eq!(fs::read(old).unwrap(), b"window");
        assert_eq!(fs::read_dir(around.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_ours_alone() {
        let around = tempfile::tempdir().unwrap();
        let is_ours = |mode: u32| {
            fs::set_permissions(around.path(), Permissions::from_mode(mode)).unwrap();
            is_ours_alone(&fs::metadata(around.path()).unwrap())
        };
        assert!(is_ours(0o700) && is_ours(0o755));
        assert!(!is_ours(0o720) && !is_ours(0o702));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(around.path(), Some(65534), None).unwrap();
            assert!(!is_ours(0o700));
        }
    }

    #[test]
    fn what_is_something_elses_is_left_alone() {
        let around = tempfile::tempdir().unwrap();
        let elsewhere = around.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("lock"), "").unwrap();
        fs::write(elsewhere.join("mine.uprof"), "mine").unwrap();
        let refused = |file: &Path| {
            let error = WindowFolder::create(file).unwrap_err();
            assert!(matches!(error, FolderError::Foreign { .. }), "{error}");
        };
        let link = around.path().join("link.uprof");
        std::os::unix::fs::symlink(&elsewhere, folder_of(&link)).unwrap();
        refused(&link);
        let plain = around.path().join("plain.uprof");
        fs::write(folder_of(&plain), "a file").unwrap();
        refused(&plain);
        let other = around.path().join("other.uprof");
        fs::create_dir(folder_of(&other)).unwrap();
        fs::write(folder_of(&other).join("letter"), "dear").unwrap();
        refused(&other);
        // Somebody's own files in what looks like a window's folder, or like what a killed recorder left.
        let copied = around.path().join("copied.uprof");
        drop(WindowFolder::create(&copied).unwrap());
        fs::write(folder_of(&copied).join("mine.uprof"), "mine").unwrap();
        refused(&copied);
        assert!(folder_of(&copied).join("mine.uprof").exists());
        let killed = around.path().join("killed.uprof");
        drop(WindowFolder::create(&killed).unwrap());
        fs::write(folder_of(&killed).join("00000001.uprof"), "window").unwrap();
        let old = with_ending(&folder_of(&killed), ".old");
        fs::create_dir(&old).unwrap();
        fs::write(old.join("mine.uprof"), "mine").unwrap();
        refused(&killed);
        assert!(old.join("mine.uprof").exists());
        assert!(folder_of(&killed).join("00000001.uprof").exists());
        assert_eq!(fs::read(elsewhere.join("mine.uprof")).unwrap(), b"mine");
        assert!(folder_of(&other).join("letter").exists());
    }
}
