//! Checks whether an opened file is the one that was mapped.
//!
//! Input: a mapping as reported by the kernel, and a file. Output: whether they match, and the file's identity for
//! the recording. Without evidence they don't match.

use super::progress::Progress;
use crate::elf::{self, build_id};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use uprof::cold::{Contents, MappedFile, Mapping};

/// The identity of a file in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Build-id, empty if it has none.
    pub build_id: Vec<u8>,
    /// Device, inode and so on.
    pub file: MappedFile,
}

/// Evidence that a file is the one that was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    /// The state of an opened file.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(file: &File) -> io::Result<State> {
        let found = file.metadata()?;
        Ok(State {
            device: found.dev(),
            inode: found.ino(),
            size_bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether the file was not written since. A file that is only renamed or removed has the same contents.
    pub fn has_contents_of(&self, other: &State) -> bool {
        let contents = |of: &State| (of.device, of.inode, of.size_bytes, of.modified);
        contents(self) == contents(other)
    }

    /// When it was last changed, by the wall clock.
    pub fn changed_ns(&self) -> i64 {
        let (seconds, rest_ns) = self.changed;
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(rest_ns)
    }
}

impl Identity {
    /// Adds it to a mapping of the file.
    pub fn tell(&self, mapping: &mut Mapping) {
        mapping.build_id.clone_from(&self.build_id);
        mapping.file = Some(self.file);
    }

    /// Reads it from the file, in steps of `progress`. Device and inode are those that the kernel `reported`, if any,
    /// since some file systems show others for an opened file.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of(
        file: &File,
        reported: Option<MappedFile>,
        progress: &Progress,
    ) -> io::Result<Identity> {
        let found = file.metadata()?;
        let build_id = build_id::of_elf(file).unwrap_or_default();
        let mut magic = [0; 4];
        let is_image = file.read_at(&mut magic, 0)? == magic.len() && elf::is_elf(&magic);
        let contents = if build_id.is_empty() && is_image {
            let reader = Positioned {
                file,
                at: 0,
                progress,
            };
            Some(Contents::of(found.len(), reader)?)
        } else {
            None
        };
        let own = MappedFile {
            device_major: libc::major(found.dev()),
            device_minor: libc::minor(found.dev()),
            inode: found.ino(),
            contents,
        };
        Ok(Identity {
            build_id,
            file: own,
        }
        .reported_as(reported))
    }

    /// The same file with the device and inode that the kernel `reported`, if any.
    pub fn reported_as(mut self, reported: Option<MappedFile>) -> Identity {
        if let Some(reported) = reported {
            let contents = self.file.contents;
            self.file = MappedFile {
                contents,
                ..reported
            };
        }
        self
    }
}

/// Whether `file`, found by its path, is the file that was mapped at `mapped_ns` (wall clock).
pub fn is_mapped(mapping: &Mapping, mapped_ns: i64, file: &File) -> bool {
    if !mapping.build_id.is_empty() {
        return build_id::of_elf(file).is_some_and(|id| id == mapping.build_id);
    }
    let Some((reported, found)) = mapping.file.zip(State::of(file).ok()) else {
        return false;
    };
    // A reused inode or a rewritten file shows as a later change.
    is_same_inode(reported, &found) && found.changed_ns() <= mapped_ns
}

/// File systems without a device of their own (overlayfs, btrfs) report several numbers for a device.
fn is_same_inode(reported: MappedFile, found: &State) -> bool {
    let device = (libc::major(found.device), libc::minor(found.device));
    let same = device == (reported.device_major, reported.device_minor);
    reported.inode == found.inode && (same || (reported.device_major, device.0) == (0, 0))
}

/// Reads from the start, independently of the file's own position.
struct Positioned<'f> {
    file: &'f File,
    at: u64,
    progress: &'f Progress,
}

impl io::Read for Positioned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.progress.step();
        let count = self.file.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = i64::MAX;

    #[test]
    fn a_file_is_known_by_build_id_or_by_inode_and_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "\x7fELF no more").unwrap();
        let file = File::open(&path).unwrap();
        let identity = Identity::of(&file, None, &Progress::default()).unwrap();
        assert_eq!(identity.build_id, Vec::<u8>::new());
        assert_eq!(identity.file.contents.unwrap().size_bytes, 12);
        let mut mapping = Mapping {
            file: Some(identity.file),
            ..Mapping::default()
        };
        assert!(is_mapped(&mapping, NOW, &file));
        let changed_ns = State::of(&file).unwrap().changed_ns();
        assert!(is_mapped(&mapping, changed_ns, &file));
        assert!(!is_mapped(&mapping, changed_ns - 1, &file));
        mapping.file.as_mut().unwrap().inode += 1;
        assert!(!is_mapped(&mapping, NOW, &file));
        mapping.file = None;
        assert!(!is_mapped(&mapping, NOW, &file), "nothing tells");
        let own = File::open("/proc/self/exe").unwrap();
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.split_whitespace().find(|word| word.contains("libc"));
        let libc = File::open(libc.unwrap()).unwrap();
        mapping.build_id = build_id::of_elf(&libc).unwrap();
        assert!(is_mapped(&mapping, 0, &libc));
        assert!(!is_mapped(&mapping, NOW, &own));
    }
}
