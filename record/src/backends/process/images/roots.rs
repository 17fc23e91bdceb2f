//! The root folders of processes, in which their paths are resolved.
//!
//! Input: process ids. Output: folders to open files below. They are kept open, so that the files of a container can
//! be opened after the process that mapped them has ended.

use crate::sys::open;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Most roots held open; those of further containers are opened only while a process lives.
pub const MOST_ROOTS: usize = 64;

/// One root.
#[derive(Debug)]
pub struct Root {
    identity: Identity,
    folder: OwnedFd,
}

/// Device, inode, and the namespace that mounts files there.
type Identity = (u64, u64, Option<Box<Path>>);

/// All roots seen so far; our own is the first.
#[derive(Debug, Default)]
pub struct Roots {
    held: Vec<Arc<Root>>,
}

impl Root {
    /// The folder.
    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }
}

impl Roots {
    /// Our own root alone.
    pub fn new() -> Roots {
        Roots {
            held: find("self").map(Arc::new).into_iter().collect(),
        }
    }

    /// The root of process `pid`; `None` if it is gone or not accessible.
    pub fn of(&mut self, pid: i32) -> Option<Arc<Root>> {
        let found = find(&pid.to_string())?;
        if let Some(known) = self
            .held
            .iter()
            .find(|held| held.identity == found.identity)
        {
            return Some(Arc::clone(known));
        }
        let found = Arc::new(found);
        if self.held.len() < MOST_ROOTS {
            self.held.push(Arc::clone(&found));
        }
        Some(found)
    }

    /// All held roots.
    pub fn all(&self) -> &[Arc<Root>] {
        &self.held
    }
}

fn find(process: &str) -> Option<Root> {
    let folder = open::folder(Path::new(&format!("/proc/{process}/root"))).ok()?;
    let copy = folder.try_clone().ok()?;
    let found = File::from(copy).metadata().ok()?;
    let namespace = std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    Some(Root {
        identity: (
            found.dev(),
            found.ino(),
            namespace.map(|path| path.into_boxed_path()),
        ),
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_held_once() {
        let mut roots = Roots::new();
        let own = std::process::id() as i32;
        for _ in 0..3 {
            assert!(roots.of(own).is_some());
        }
        assert_eq!(roots.all().len(), 1);
        assert!(roots.of(i32::MAX).is_none());
        assert!(open::below(roots.all()[0].folder(), "/etc/passwd").is_ok());
    }
}
