//! Reads the GNU build-id of an ELF file from its notes.
//!
//! Reads little of the file and trusts none of it: offsets and lengths are bounded. Sources: System V ABI, chapter 5;
//! GNU ld manual, `--build-id`.

use crate::elf::{self, PT_NOTE, Read};
use crate::sys::open;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const NT_GNU_BUILD_ID: u32 = 3;
const MOST_NOTE_BYTES: u64 = 64 << 10;

/// The build-id of the ELF file at `path`; `None` if it has none.
pub fn of_file(path: &Path) -> Option<Vec<u8>> {
    of_elf(&open::at(path).ok()?)
}

/// The build-id of an opened ELF file.
pub fn of_elf(file: &File) -> Option<Vec<u8>> {
    of_parts(&|into, at| file.read_exact_at(into, at))
}

/// The build-id of an ELF image in memory.
pub fn of_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    of_parts(&|into, at| {
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
        let from = from.and_then(|from| from.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    })
}

fn of_parts(from: &Read<'_>) -> Option<Vec<u8>> {
    elf::read(from)?.flatten().find_map(|header| {
        if header.kind != PT_NOTE || header.file_bytes > MOST_NOTE_BYTES {
            return None;
        }
        let mut notes = vec![0; header.file_bytes as usize];
        from(&mut notes, header.offset).ok()?;
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
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(of_bytes(&bytes), own);
        assert_eq!(of_bytes(&bytes[..100]), None);
        assert_ne!(own, Some(libc));
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
