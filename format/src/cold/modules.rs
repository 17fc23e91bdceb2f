//! Events of address spaces: mappings of parts of images (format-spec.md, section 6.4).

use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// An event of an address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleEvent {
    /// Time on the recording's monotonic clock.
    pub time_ns: u64,
    /// Address space; 0 with a process target is the kernel's.
    pub space: u32,
    /// The change.
    pub what: ModuleChange,
}

impl ModuleEvent {
    /// Part of an image was mapped.
    pub fn mapped(time_ns: u64, space: u32, mapping: Mapping) -> Self {
        ModuleEvent {
            time_ns,
            space,
            what: ModuleChange::Mapped(mapping),
        }
    }
}

/// A change of an address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredChange", into = "StoredChange")]
pub enum ModuleChange {
    /// Part of an image was mapped; it replaces earlier mappings of these addresses.
    Mapped(Mapping),
    /// All mappings were removed: the process runs another program.
    Cleared,
    /// The address space began as a copy of another.
    CopiedFrom(u32),
}

/// Part of an image in an address space.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of the first byte in the image file.
    pub file_offset: u64,
    /// Path of the image as the process saw it, or a name in brackets.
    pub path: String,
    /// GNU build-id, empty if there is none. For code generated at run time, a number that distinguishes its tables.
    pub build_id: Vec<u8>,
    /// The mapped file; `None` if there is none or it is unknown. It is stored beside the other fields, if known.
    #[serde(skip)]
    pub file: Option<MappedFile>,
}

/// Identity of the mapped file, whatever file has its path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MappedFile {
    /// Device of its file system, major number.
    pub device_major: u32,
    /// Minor number.
    pub device_minor: u32,
    /// Its inode number.
    pub inode: u64,
    /// Its contents, if there is no build-id.
    pub contents: Option<Contents>,
}

impl MappedFile {
    /// A file with known contents and an unknown device and inode.
    pub const fn anywhere(contents: Option<Contents>) -> Self {
        MappedFile {
            device_major: 0,
            device_minor: 0,
            inode: 0,
            contents,
        }
    }
}

/// Identifies the contents of a file. Another file has the same identity by chance in one of four thousand million
/// cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Contents {
    /// Length of the file.
    pub size_bytes: u64,
    /// CRC (format-spec.md, section 1) of its first [`Contents::MOST_BYTES`].
    pub crc: u32,
}

impl Contents {
    /// Most bytes that are read of a file.
    pub const MOST_BYTES: u64 = 64 << 20;

    /// The contents of a file of `size_bytes` bytes that `file` reads from its start.
    ///
    /// # Errors
    /// Those of `file`.
    pub fn of(size_bytes: u64, file: impl Read) -> io::Result<Contents> {
        let mut file = file.take(Contents::MOST_BYTES);
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => hasher.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Contents {
            size_bytes,
            crc: hasher.finalize(),
        })
    }

    /// Twelve bytes that serve as the build-id of an image that has none.
    pub fn as_id(self) -> Vec<u8> {
        let mut id = self.size_bytes.to_le_bytes().to_vec();
        id.extend(self.crc.to_le_bytes());
        id
    }
}

/// A change as stored. A mapping whose file is known has a variant of its own.
#[derive(Serialize, Deserialize)]
enum StoredChange {
    Mapped(Mapping),
    Cleared,
    CopiedFrom(u32),
    MappedFile(Mapping, MappedFile),
}

impl From<ModuleChange> for StoredChange {
    fn from(change: ModuleChange) -> StoredChange {
        match change {
            ModuleChange::Mapped(mapping) => match mapping.file {
                Some(file) => StoredChange::MappedFile(mapping, file),
                None => StoredChange::Mapped(mapping),
            },
            ModuleChange::Cleared => StoredChange::Cleared,
            ModuleChange::CopiedFrom(space) => StoredChange::CopiedFrom(space),
        }
    }
}

impl From<StoredChange> for ModuleChange {
    fn from(change: StoredChange) -> ModuleChange {
        match change {
            StoredChange::Mapped(mapping) => ModuleChange::Mapped(mapping),
            StoredChange::MappedFile(mapping, file) => ModuleChange::Mapped(Mapping {
                file: Some(file),
                ..mapping
            }),
            StoredChange::Cleared => ModuleChange::Cleared,
            StoredChange::CopiedFrom(space) => ModuleChange::CopiedFrom(space),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_by_length_and_crc() {
        let check = Contents::of(9, &b"123456789"[..]).unwrap();
        assert_eq!(check.crc, 0xcbf4_3926);
        assert_eq!(
            check.as_id(),
            [9, 0, 0, 0, 0, 0, 0, 0, 0x26, 0x39, 0xf4, 0xcb]
        );
        // Only the first bytes of a longer file are read.
        let zeros = Contents::of(7, io::repeat(0)).unwrap();
        let as_many = Contents::of(7, io::repeat(0).take(Contents::MOST_BYTES)).unwrap();
        assert_eq!(zeros, as_many);
    }
}
