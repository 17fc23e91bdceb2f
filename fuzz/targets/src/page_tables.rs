//! Page-table walks over memory that holds anything.

use crate::take::Take;
use uniprof_record::guest::page_tables::{Paging, TableReader};

/// Frames of 4 KiB that repeat the input, up to a frame number; beyond it there is no memory.
struct Memory<'a> {
    bytes: &'a [u8],
    frames: u64,
    reads: u32,
}

impl TableReader for Memory<'_> {
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        self.reads += 1;
        assert!(index < 512, "word {index} of a frame");
        if frame >= self.frames || self.bytes.len() < 8 {
            return None;
        }
        let words = self.bytes.len() as u64 / 8;
        let place = (frame.wrapping_mul(512).wrapping_add(index as u64) % words) as usize * 8;
        let word = self.bytes[place..].first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }
}

/// Translation registers, addresses, then memory.
pub fn run(bytes: &[u8]) {
    let mut take = Take(bytes);
    let [a, b, c, d] = [(); 4].map(|()| take.word());
    let addresses = [(); 4].map(|()| take.word());
    let frames = 1 << (take.byte() % 53);
    let memory = take.rest();
    let modes = [
        Paging::of_x86_64(a | 1 << 31, b, c | 1 << 5, true),
        Paging::of_x86_64(a, b, c, d & 1 != 0),
        Paging::of_aarch64(a | 1, b, c, d),
        // 4 KiB granules and 48 bits in both halves, which most systems use.
        Paging::of_aarch64(1, b, c, 16 | 16 << 16 | 2 << 30 | d & 3 << 37),
    ];
    for mode in modes {
        for address in addresses.into_iter().chain([0, u64::MAX, a, 1 << 47]) {
            let mut memory = Memory {
                bytes: memory,
                frames,
                reads: 0,
            };
            let found = mode.translate(&mut memory, address);
            assert!(memory.reads <= 5, "{} reads", memory.reads);
            if let Ok(found) = found {
                assert!(found.offset < 4096 && found.frame < 1 << 52);
            }
        }
    }
}
