//! A hash for maps whose keys are a few machine words: frames, nodes, tasks, rules. It is fast and the same in every
//! run; nevertheless, no output may depend on a map's order.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds. Forged collisions slow down the reading of the file that has them, within the limits on rows,
/// nodes and rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word) | 1 << 40);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map whose keys are a few words.
pub type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;
