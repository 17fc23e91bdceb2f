//! Reads the GNU build-id of an ELF file, by the notes that its program headers name.
//!
//! Enters: a path. Leaves: the id. Reads little of the file and believes none of it: offsets and
//! lengths are bounded. Sources: System V ABI, chapter 5; GNU ld manual, `--build-id`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const MOST_HEADERS: u16 = 128;
const MOST_NOTE_BYTES: u64 = 64 << 10;

/// The build-id of the ELF file at `path`; `None` where it has none.
///
/// # Errors
/// What reading returns.
pub fn of_file(path: &Path) -> Option<Vec<u8>> {
    // Only regular files: opening a device or a pipe could do something or wait.
    let regular = std::fs::metadata(path).ok()?.is_file();
    of_elf(&File::open(path).ok().filter(|_| regular)?)
}

/// Build-ids that were read, by path, as long as the file is the same.
#[derive(Debug, Default)]
pub struct BuildIds {
    known: HashMap<String, (Identity, Vec<u8>)>,
}

/// Device, inode, and seconds and nanoseconds of the last change: a program that was built again
/// while a recording goes on has another.
type Identity = (u64, u64, i64, i64);

/// Most paths remembered; a program that maps ever new files must not fill our memory.
const MOST_PATHS: usize = 4096;

impl BuildIds {
    /// The build-id of the ELF file at `path`; empty where there is none.
    pub fn of(&mut self, path: &str) -> Vec<u8> {
        if !path.starts_with('/') {
            return Vec::new();
        }
        let identity = std::fs::metadata(path).map_or(Identity::default(), |file| {
            (file.dev(), file.ino(), file.mtime(), file.mtime_nsec())
        });
        if let Some((same, known)) = self.known.get(path)
            && *same == identity
        {
            return known.clone();
        }
        let found = of_file(Path::new(path)).unwrap_or_default();
        if self.known.len() >= MOST_PATHS {
            self.known.clear();
        }
        self.known
            .insert(path.to_string(), (identity, found.clone()));
        found
    }
}

fn of_elf(file: &File) -> Option<Vec<u8>> {
    let header: [u8; 64] = read(file, 0).ok()?;
    // 64-bit, little-endian.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let headers_at = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let header_bytes = u64::from(u16::from_le_bytes(header[54..56].try_into().ok()?));
    let count = u16::from_le_bytes(header[56..58].try_into().ok()?).min(MOST_HEADERS);
    (0..u64::from(count)).find_map(|index| {
        let at = headers_at.checked_add(index * header_bytes)?;
        let program: [u8; 56] = read(file, at).ok()?;
        let kind = u32::from_le_bytes(program[..4].try_into().ok()?);
        let offset = u64::from_le_bytes(program[8..16].try_into().ok()?);
        let bytes = u64::from_le_bytes(program[32..40].try_into().ok()?);
        if kind != PT_NOTE || bytes > MOST_NOTE_BYTES {
            return None;
        }
        let mut notes = vec![0; bytes as usize];
        file.read_exact_at(&mut notes, offset).ok()?;
        of_notes(&notes)
    })
}

/// The build-id among the notes of a segment or of `/sys/kernel/notes`.
pub fn of_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| {
            header[at..at + 4]
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let (name_bytes, id_bytes) = (word(0) as usize, word(4) as usize);
        let id_at = name_bytes.checked_next_multiple_of(4)?;
        let id = rest.get(id_at..)?.get(..id_bytes)?;
        if word(8) == NT_GNU_BUILD_ID && rest.get(..name_bytes)? == b"GNU\0" {
            return Some(id.to_vec());
        }
        notes = rest
            .get(id_at + id_bytes.checked_next_multiple_of(4)?..)
            .unwrap_or(&[]);
    }
    None
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_test_has_the_id_that_the_linker_gave_it() {
        let own = of_file(Path::new("/proc/self/exe"));
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().find_map(|line| {
            line.split_whitespace()
                .nth(5)
                .filter(|p| p.contains("libc"))
        });
        let libc = of_file(Path::new(libc.expect("tests link libc"))).expect("libc has a build-id");
        assert_eq!(libc.len(), 20);
        assert_ne!(own, Some(libc));
    }

    #[test]
    fn a_file_that_is_replaced_is_read_again() {
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.split_whitespace().find(|word| word.contains("libc"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let text = path.to_str().unwrap();
        let mut ids = BuildIds::default();
        assert_eq!(ids.of(text), Vec::<u8>::new());
        std::fs::copy(libc.unwrap(), &path).unwrap();
        assert_eq!(ids.of(text).len(), 20);
        std::fs::write(folder.path().join("next"), "a script").unwrap();
        std::fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(ids.of(text), Vec::<u8>::new());
        for number in 0..2 * MOST_PATHS {
            ids.of(&format!("/none/{number}"));
        }
        assert!(ids.known.len() <= MOST_PATHS);
    }

    #[test]
    fn notes_that_lie_about_their_length_are_no_build_id() {
        for notes in [
            &[][..],
            &[0xff; 12],
            &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0],
        ] {
            assert_eq!(of_notes(notes), None);
        }
        let note = b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\xcd\0\0";
        assert_eq!(of_notes(note), Some(vec![0xab, 0xcd]));
    }
}
