//! Opens files at paths that someone else controls and may replace at any time by a pipe, a device or a link.
//!
//! Input: a folder and a path. Output: a regular file, opened without blocking, or an error. Other files are never
//! opened, since opening a device may have an effect.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Flags for a descriptor that identifies a file without opening it.
fn mark() -> OFlag {
    OFlag::O_PATH | OFlag::O_CLOEXEC
}

/// Opens the folder at `path`, so that files below it can be opened.
///
/// # Errors
/// The system's error.
pub fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::open(
        path,
        mark() | OFlag::O_DIRECTORY,
        Mode::empty(),
    )?)
}

/// Opens the regular file at the absolute `path` below `root`. The kernel reports paths without links, so a link on the
/// way was made later, and is not followed.
///
/// # Errors
/// The system's error, or a message if it is not a regular file.
pub fn below(root: impl AsFd, path: &str) -> io::Result<File> {
    let inside = path.trim_start_matches('/');
    let resolve = ResolveFlag::RESOLVE_IN_ROOT
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(mark()).resolve(resolve);
    let found = match openat2(root.as_fd(), inside, how) {
        // A kernel before 5.6, or a seccomp filter without this call.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let flags = mark() | OFlag::O_NOFOLLOW;
            openat(root.as_fd(), inside, flags, Mode::empty())?
        }
        result => result?,
    };
    regular(found)
}

/// As [`below`], for a path by convention rather than from the kernel: folders on the way may be links that stay below
/// `root`, but the file itself may not be a link.
///
/// # Errors
/// As for [`below`].
pub fn named(root: impl AsFd, path: &str) -> io::Result<File> {
    let flags = mark() | OFlag::O_NOFOLLOW;
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let inside = path.trim_start_matches('/');
    let how = OpenHow::new().flags(flags).resolve(resolve);
    regular(openat2(root.as_fd(), inside, how)?)
}

/// Opens the file behind a link in `/proc/PID`, whatever its path is now.
///
/// # Errors
/// As for [`below`].
pub fn by_link(link: &str) -> io::Result<File> {
    at(Path::new(link))
}

/// Opens the regular file at `path`, and follows links: a path from the user, a monitor or a toolstack.
///
/// # Errors
/// As for [`below`].
pub fn at(path: &Path) -> io::Result<File> {
    regular(nix::fcntl::open(path, mark(), Mode::empty())?)
}

fn regular(mark: OwnedFd) -> io::Result<File> {
    let mark = File::from(mark);
    if !mark.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // The file is opened by its descriptor, so that it can't be replaced in between.
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", mark.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_regular_files_are_opened_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = super::folder(folder.path()).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        std::os::unix::fs::symlink(&file, folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("way")).unwrap();
        std::os::unix::fs::symlink(".", folder.path().join("here")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::S_IRWXU).unwrap();
        let mut text = String::new();
        let mut opened = below(&root, "/file").unwrap();
        opened.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        for path in ["/fifo", "/link", "/way/file", "/none", "/", "/../../file/x"] {
            assert!(below(&root, path).is_err(), "{path}");
        }
        for (path, opens) in [
            ("/file", true),
            ("/here/file", true),
            ("/way/file", false),
            ("/link", false),
            ("/fifo", false),
        ] {
            assert_eq!(named(&root, path).is_ok(), opens, "{path}");
        }
        // A path can't lead above the root.
        assert!(below(&root, "/../../../../../../file").is_ok());
        for (name, opens) in [
            ("file", true),
            ("link", true),
            ("fifo", false),
            (".", false),
        ] {
            assert_eq!(at(&folder.path().join(name)).is_ok(), opens, "{name}");
        }
        assert!(at(Path::new("/dev/zero")).is_err());
        let fifo = folder.path().join("fifo");
        assert!(by_link(fifo.to_str().unwrap()).is_err());
        assert!(by_link("/dev/null").is_err());
        assert!(by_link("/proc/self/exe").is_ok());
    }
}
