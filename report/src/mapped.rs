//! Mapped files: the bytes of a file without a copy; only texts are read. This is the only module of the
//! package with `unsafe`; it makes all mappings.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file couldn't be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is missing or access is denied.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The requested file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A folder, a pipe or a device, which has no bytes to map.
    #[error("cannot read {}: it is not a regular file", path.display())]
    NotAFile {
        /// The requested path.
        path: PathBuf,
    },
    /// The system refused the mapping.
    #[error("cannot map {}: {source}", path.display())]
    Map {
        /// The requested file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

/// The bytes of a file, mapped read-only.
///
/// If another program truncates the file while it is mapped, a read beyond the new end kills this process
/// with SIGBUS. Linkers and package managers replace files rather than truncate them. So this is left to the
/// operating system, as in every ELF reader that maps files.
#[derive(Debug)]
pub struct Mapped {
    /// `None` for an empty file, which the system won't map.
    map: Option<memmap2::Mmap>,
}

impl Mapped {
    /// Returns the memory of pages that were read to the system. They are read again when they are needed.
    pub(crate) fn release(&self) {
        if let Some(map) = &self.map {
            // SAFETY: nobody writes to this private mapping, so pages that are read again have the file's
            // bytes, as before.
            #[allow(unsafe_code)]
            let released = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // If the system refuses, the pages stay in memory, which is no error.
            drop(released);
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

/// Maps the regular file at `path`. An empty file becomes an empty slice.
///
/// # Errors
/// [`MapError`] if the file can't be opened, isn't a regular file or can't be mapped.
pub fn map(path: &Path) -> Result<Mapped, MapError> {
    let file = Place::find(path).and_then(|place| place.open());
    map_opened(&file?, path)
}

/// A path that has been resolved but not opened: opening a FIFO waits for its writer, and opening a device
/// may have side effects. Other programs may replace the file at any time.
struct Place<'p> {
    mark: File,
    path: &'p Path,
}

impl Place<'_> {
    fn find(path: &Path) -> Result<Place<'_>, MapError> {
        let mut options = File::options();
        let mark = options.read(true).custom_flags(libc::O_PATH).open(path);
        match mark {
            Ok(mark) => Ok(Place { mark, path }),
            Err(source) => Err(MapError::Open {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn by_descriptor(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.mark.as_raw_fd()).into()
    }

    /// Its path, with links resolved; `None` if the system doesn't report it.
    fn real_path(&self) -> Option<PathBuf> {
        std::fs::read_link(self.by_descriptor()).ok()
    }

    /// Opens it if it is a regular file.
    fn open(&self) -> Result<File, MapError> {
        let failed = |source| MapError::Open {
            path: self.path.to_owned(),
            source,
        };
        let found = self.mark.metadata().map_err(failed)?;
        let mut options = File::options();
        // A FIFO that has replaced the file must not block, and a terminal must not become the controlling
        // one.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let options = options.read(true).custom_flags(flags);
        // Opened by its descriptor, because the path may lead to another file by now.
        let opened = match options.open(self.by_descriptor()) {
            _ if !found.is_file() => None,
            // Without /proc, opens it by its path and checks that it is still the same file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = options.open(self.path).map_err(failed)?;
                let now = file.metadata().map_err(failed)?;
                let same = (now.dev(), now.ino()) == (found.dev(), found.ino());
                same.then_some(file)
            }
            opened => Some(opened.map_err(failed)?),
        };
        opened.ok_or_else(|| MapError::NotAFile {
            path: self.path.to_owned(),
        })
    }
}

/// Total size of opened files and other inputs (bytes).
static READ_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes of input since the program began: recordings and images without their holes, and other inputs as far
/// as they have been read. The limits of a run's memory and work depend on it.
pub fn read_bytes() -> u64 {
    READ_BYTES.load(Ordering::Relaxed)
}

/// Adds bytes to [`read_bytes`] that were not read from a file that this module counts.
pub fn add_read(bytes: u64) {
    READ_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Adds the size of a file to [`read_bytes`].
pub(crate) fn count(file: &File) {
    if let Ok(found) = file.metadata() {
        // Holes of a sparse file must not raise the limits that depend on this.
        add_read(found.len().min(found.blocks().saturating_mul(512)));
    }
}

/// Maps an open regular file; `name` is its name in messages.
///
/// # Errors
/// As for [`map`].
pub fn map_opened(file: &File, name: &Path) -> Result<Mapped, MapError> {
    let open = |source| MapError::Open {
        path: name.to_owned(),
        source,
    };
    let found = file.metadata().map_err(open)?;
    if !found.is_file() {
        return Err(MapError::NotAFile {
            path: name.to_owned(),
        });
    }
    if found.len() == 0 {
        return Ok(Mapped { map: None });
    }
    count(file);
    // SAFETY: the mapping is private to this process and read-only. That nobody truncates the file meanwhile
    // is the responsibility of the operating system and the user, see `Mapped`.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(file) };
    let map = map.map_err(|source| MapError::Map {
        path: name.to_owned(),
        source,
    })?;
    Ok(Mapped { map: Some(map) })
}

/// Trees of pseudo-files of the kernel and of devices: reading such a file may have side effects.
const SYSTEM_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// As [`map`], for an untrusted path from a recording or an image.
///
/// # Errors
/// Also [`MapError::NotAFile`] for a path below /proc, /sys or /dev, with links resolved.
pub fn map_named(path: &Path) -> Result<Mapped, MapError> {
    map_opened(&open_named(path)?, path)
}

/// As [`map_named`], but only opens the file.
pub(crate) fn open_named(path: &Path) -> Result<File, MapError> {
    let place = Place::find(path)?;
    let real = match place.real_path() {
        Some(real) => real,
        None => path.canonicalize().map_err(|source| MapError::Open {
            path: path.to_owned(),
            source,
        })?,
    };
    if SYSTEM_FOLDERS.iter().any(|folder| real.starts_with(folder)) {
        Err(MapError::NotAFile { path: real })
    } else {
        place.open()
    }
}

/// Reads a file that may be a pipe, such as a text; `None` if it has more than `bytes_max`.
pub(crate) fn read_at_most(file: File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let length_bytes = file.metadata()?.len();
    if length_bytes > bytes_max {
        return Ok(None); // the size of a pipe or a growing file is known only after reading
    }
    let mut bytes = Vec::with_capacity(length_bytes as usize + 1);
    // One byte more shows that the file is too large.
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((read as u64 <= bytes_max).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_maps_to_its_bytes_and_an_empty_one_to_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(&*map(&path).unwrap(), b"abc");
        std::fs::write(&path, b"").unwrap();
        assert_eq!(&*map(&path).unwrap(), b"");
    }

    #[test]
    fn a_stranger_names_no_file_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("libc.so.6");
        std::os::unix::fs::symlink("/proc/self/status", &link).unwrap();
        let path = folder.path().join("bytes");
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(&*map_named(&path).unwrap(), b"abc");
        let named = [
            "/proc/self/maps",
            "/sys/kernel/notes",
            "/dev/zero",
            "/dev/null",
        ]
        .map(Path::new);
        for path in named.into_iter().chain([link.as_path()]) {
            let refused = matches!(map_named(path), Err(MapError::NotAFile { .. }));
            assert!(refused || !path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_folder_and_a_missing_file_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(map(folder.path()), Err(MapError::NotAFile { .. })));
        let missing = folder.path().join("missing");
        assert!(matches!(map(&missing), Err(MapError::Open { .. })));
    }
}
