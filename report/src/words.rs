//! Hash maps whose keys are a few machine words: quick, with the same order of nothing in every
//! run, since no output may depend on a map's order anyway.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds. Whoever forges collisions slows his own report down.
#[derive(Clone, Copy, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word) | 1 << 40);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;
