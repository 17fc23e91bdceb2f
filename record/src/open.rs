//! Opens files at paths that someone else controls: what lies there may be swapped for a pipe, a
//! device or a link at any time.
//!
//! Enters: a folder and a path. Leaves: a regular file, opened without waiting for anybody, or
//! nothing. It must never open what is no regular file: to open a device may do something.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A place in a tree of files, of which nothing has been opened yet.
fn mark() -> OFlag {
    OFlag::O_PATH | OFlag::O_CLOEXEC
}

/// The folder at `path`, as a root to open files below.
///
/// # Errors
/// What the system returns.
pub fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::open(
        path,
        mark() | OFlag::O_DIRECTORY,
        Mode::empty(),
    )?)
}

/// The regular file at the absolute `path` below `root`. The kernel tells paths without links: a link
/// on the way was laid later, and is not followed.
///
/// # Errors
/// What the system returns; a message for what is no regular file.
pub fn below(root: impl AsFd, path: &str) -> io::Result<File> {
    let inside = path.trim_start_matches('/');
    let resolve = ResolveFlag::RESOLVE_IN_ROOT
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(mark()).resolve(resolve);
    let found = match openat2(root.as_fd(), inside, how) {
        // A kernel before 5.6, or a filter that doesn't know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let flags = mark() | OFlag::O_NOFOLLOW;
            openat(root.as_fd(), inside, flags, Mode::empty())?
        }
        result => result?,
    };
    regular(found)
}

/// As [`below`], for a path that a program and we agree upon, not the kernel: folders on the way may be
/// links, which lead nowhere out of `root`; the file may not.
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

/// The file that a link of `/proc/PID` leads to, whatever its path is now.
///
/// # Errors
/// As for [`below`].
pub fn by_link(link: &str) -> io::Result<File> {
    at(Path::new(link))
}

/// The regular file at `path`, to which links may lead: a path that the user, a monitor or a toolstack
/// names.
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
    // The same file by its descriptor: nothing can be swapped in between.
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
        // What lies above the root can't be named.
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
