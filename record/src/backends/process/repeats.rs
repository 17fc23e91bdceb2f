//! Detects mappings that are reported again and change nothing.
//!
//! The kernel reports a mapping whenever it becomes executable. Programs that generate code as they run remove that
//! right from their pages and restore it, thousands of times a second. Must not allocate.

use std::hash::{DefaultHasher, Hash, Hasher};
use uprof::cold::MappedFile;

/// Number of mappings that are remembered.
const REMEMBERED: usize = 16;

/// A mapping as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// The process.
    pub space: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// The mapped file; `None` for anonymous memory.
    pub file: Option<MappedFile>,
}

/// The latest mappings of all processes, without those that were covered since.
#[derive(Debug, Default)]
pub struct Repeats {
    known: [Option<(Reported, u64)>; REMEMBERED],
    next: usize,
}

impl Repeats {
    /// Whether `mapping` of the file at `path` is known already; otherwise it is remembered.
    pub fn is_there(&mut self, mapping: Reported, path: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let entry = Some((mapping, hasher.finish()));
        if self.known.contains(&entry) {
            return true;
        }
        let end = mapping.start.saturating_add(mapping.length);
        self.forget_if(|known| {
            known.space == mapping.space
                && known.start < end
                && mapping.start < known.start.saturating_add(known.length)
        });
        self.known[self.next] = entry;
        self.next = (self.next + 1) % REMEMBERED;
        false
    }

    /// Forgets a process, as it executes another program or its id is reused.
    pub fn forget(&mut self, space: u32) {
        self.forget_if(|known| known.space == space);
    }

    fn forget_if(&mut self, is_over: impl Fn(&Reported) -> bool) {
        for known in &mut self.known {
            if known.is_some_and(|(known, _)| is_over(&known)) {
                *known = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(space: u32, start: u64) -> Reported {
        Reported {
            space,
            start,
            length: 0x2000,
            file_offset: 0,
            file: None,
        }
    }

    #[test]
    fn a_mapping_is_repeated_until_another_covers_it() {
        let mut repeats = Repeats::default();
        assert!(!repeats.is_there(mapping(7, 0x1000), b"a"));
        assert!(repeats.is_there(mapping(7, 0x1000), b"a"));
        assert!(!repeats.is_there(mapping(8, 0x1000), b"a"));
        assert!(!repeats.is_there(mapping(7, 0x5000), b"a"));
        assert!(repeats.is_there(mapping(7, 0x1000), b"a"));
        // A mapping at its second page.
        assert!(!repeats.is_there(mapping(7, 0x2000), b"b"));
        assert!(!repeats.is_there(mapping(7, 0x1000), b"a"));
        assert!(repeats.is_there(mapping(8, 0x1000), b"a"));
        // Another file at the same address.
        assert!(!repeats.is_there(mapping(8, 0x1000), b"b"));
        repeats.forget(8);
        assert!(!repeats.is_there(mapping(8, 0x1000), b"b"));
    }

    #[test]
    fn the_oldest_of_many_mappings_is_forgotten() {
        let mut repeats = Repeats::default();
        for page in 0..=REMEMBERED as u64 {
            assert!(!repeats.is_there(mapping(7, page << 16), b"a"));
        }
        assert!(repeats.is_there(mapping(7, 1 << 16), b"a"));
        assert!(!repeats.is_there(mapping(7, 0), b"a"));
    }
}
