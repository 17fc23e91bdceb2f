//! Creates every output file: new, under a temporary name, then renamed to its output path. Whatever is at that path,
//! be it another user's file or a link, is replaced and never opened; only a recorder opens a file of its own user, to
//! see whether another one has locked it. So nobody who has it open can read what is written. Pipes and devices are
//! opened if they belong to the user or to root. /dev/stdout is standard output, whatever that is.

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most links that are followed to a standard stream.
const LINKS_MAX: usize = 8;

/// A file that is not yet at its output path. It is removed when dropped, unless `put` moved it there.
pub struct NewFile {
    /// The file, open for writing.
    pub file: File,
    part: PathBuf,
}

impl NewFile {
    /// Creates one in the folder of `path`, with the permissions `mode` less those of the umask.
    ///
    /// # Errors
    /// Those of the file system, or the folder is one of devices.
    pub fn beside(path: &Path, mode: u32) -> io::Result<NewFile> {
        if is_among_devices(path) {
            return Err(io::Error::other(
                "a file would replace a device; name another file",
            ));
        }
        let part = part_path(path);
        // Left by an earlier run; unlinking does not follow a link.
        let _ = fs::remove_file(&part);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(&part);
        file.map(|file| NewFile { file, part })
    }

    /// Its temporary path.
    #[cfg(feature = "report")]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Renames the file to `path`, and replaces whatever has that name.
    ///
    /// # Errors
    /// Those of the file system. In a folder such as /tmp, nobody but root may replace what belongs to others.
    pub fn put(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.part, path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

/// Creates a folder for recordings, which only its owner can read.
///
/// # Errors
/// It is there already, or can't be created.
pub fn run_folder(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.with_context(|| {
        let remedy = match fs::symlink_metadata(path) {
            Ok(_) => "; name another one with -o, or move this one away",
            Err(_) => "",
        };
        format!(
            "cannot create the folder {} for recordings{remedy}",
            path.display()
        )
    })
}

fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Whether `path` is in the folder of devices, or in that of this program's descriptors: there is no room for a file.
pub fn is_among_devices(path: &Path) -> bool {
    let folder = fs::canonicalize(path.with_file_name("."));
    let descriptors = fs::canonicalize("/proc/self/fd").ok();
    folder.is_ok_and(|folder| folder == Path::new("/dev") || Some(folder) == descriptors)
}

/// Standard output or standard error, if `path` is a link to it, as /dev/stdout is.
fn standard_stream(path: &Path) -> Option<io::Result<OwnedFd>> {
    let descriptors = fs::canonicalize("/proc/self/fd").ok()?;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent()?;
        if folder.canonicalize().is_ok_and(|it| it == descriptors) {
            return match path.file_name()?.to_str()? {
                "1" => Some(io::stdout().as_fd().try_clone_to_owned()),
                "2" => Some(io::stderr().as_fd().try_clone_to_owned()),
                _ => None,
            };
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
}

/// Whether the file that `found` describes belongs to the user, or to root.
fn is_trusted(found: &fs::Metadata) -> bool {
    found.uid() == 0 || found.uid() == geteuid().as_raw()
}

/// Opens the pipe or device at `path`. Returns `None` if the path has to be replaced instead: there is a file, nothing,
/// or a link of another user. A link to a standard stream is not replaced, even if that is redirected to a file. Waits
/// for the reader of a pipe.
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
    if kind.is_file() {
        let stream = standard_stream(path).transpose().with_context(cannot)?;
        return Ok(stream.map(File::from));
    }
    if kind.is_dir() {
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
    // Another file may have taken its name since it was examined.
    let opened = file.metadata().with_context(cannot)?;
    check(&opened)?;
    if opened.is_file() {
        bail!("{}: it changed while it was opened", cannot());
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_a_folder_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("devices");
        std::os::unix::fs::symlink("/dev", &link).unwrap();
        assert!(is_among_devices(Path::new("/dev/x")));
        assert!(is_among_devices(&link.join("x")));
        assert!(is_among_devices(Path::new("/proc/self/fd/x")));
        assert!(!is_among_devices(&folder.path().join("x")));
        assert!(!is_among_devices(Path::new("x")));
    }

    #[test]
    fn links_lead_to_standard_streams() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, to, is_stream) in [
            ("stdout", "/proc/self/fd/1", true),
            ("link", "stdout", true),
            ("stdin", "/proc/self/fd/0", false),
            ("file", "/etc/passwd", false),
            ("circle", "circle", false),
        ] {
            std::os::unix::fs::symlink(to, at(name)).unwrap();
            assert_eq!(standard_stream(&at(name)).is_some(), is_stream, "{name}");
        }
    }
}
