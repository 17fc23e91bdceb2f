//! Copies a part of a frozen guest's stack, as far as its chain of frame pointers goes.
//!
//! Input: a reader of the guest's memory, and a frame pointer. Output: bytes for the walk, which takes place when the
//! guest runs again. Nothing here allocates, since the guest is frozen meanwhile, and only memory that is used is
//! touched.

use uprof::RawStack;

/// Reads guest memory from an address upwards; returns how many bytes it read.
pub trait MemoryReader {
    /// Returns fewer bytes than requested if memory is missing, or the time is over.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;
}

/// Bytes copied at a time when more are needed.
pub const PIECE_BYTES: usize = 1024;
/// Most bytes copied between two checks of the time.
const MOST_AT_ONCE: usize = 4096;
/// A saved frame pointer and a return address.
const FRAME_BYTES: usize = 16;
/// Frames of a chain that are counted in one step, to keep the guest's pause short.
const COUNTED_TOGETHER: usize = 4;

/// A copied part of a stack.
#[derive(Debug)]
pub struct Window<'a> {
    address: u64,
    bytes: &'a mut [u8],
    filled: usize,
    /// Whether reading ended, so that nothing more can be added.
    ended: bool,
}

impl<'a> Window<'a> {
    /// A window with `bytes` as its room.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Window {
            address: 0,
            bytes,
            filled: 0,
            ended: false,
        }
    }

    /// The bytes and their address.
    pub fn raw(&self) -> RawStack<'_> {
        RawStack {
            address: self.address,
            bytes: &self.bytes[..self.filled],
        }
    }

    /// Empties the window and sets its address.
    pub fn begin(&mut self, address: u64) {
        self.address = address;
        self.filled = 0;
        self.ended = false;
    }

    /// Copies until `wanted` bytes are there, or the room or the memory ends.
    #[inline(always)]
    pub fn fill(&mut self, wanted: usize, reader: &mut impl MemoryReader) {
        let wanted = wanted.min(self.bytes.len());
        while self.filled < wanted && !self.ended {
            let address = self.address.wrapping_add(self.filled as u64);
            let end = wanted.min(self.filled + MOST_AT_ONCE);
            let read = reader.read(address, &mut self.bytes[self.filled..end]);
            self.filled += read;
            self.ended = self.filled < end;
        }
    }

    /// Follows the chain from `frame_pointer`, and copies on the way. Returns the address at which the chain leaves the
    /// window's room, if that could be on a stack.
    pub fn follow(
        &mut self,
        frame_pointer: u64,
        most_frames: usize,
        reader: &mut impl MemoryReader,
    ) -> Option<u64> {
        self.fill(PIECE_BYTES.min(self.bytes.len()), reader);
        let mut at = frame_pointer;
        let mut frames = most_frames;
        while frames > 0 {
            // Most frames are in the bytes copied already, above the frame before.
            let (next, left) = self.climb(at, frames);
            if left == 0 {
                return None;
            }
            (at, frames) = (next, left - 1);
            let saved = if self.reaches(at) {
                self.saved_at(at, reader)
            } else {
                None
            };
            let Some(next) = saved else {
                return (at != 0 && at.is_multiple_of(8)).then_some(at);
            };
            if next <= at && self.reaches(next) {
                return None; // back where it was: a cycle
            }
            at = next;
        }
        None
    }

    /// Follows the chain from `at` within the copied bytes, for at most `frames` frames. Returns the address where that
    /// ends, and how many frames are left, or a few more. It doesn't check that each frame is above the one before,
    /// since the guest is paused. A chain that doesn't go up ends after as many frames as the room holds, and its next
    /// step is checked then.
    fn climb(&self, at: u64, frames: usize) -> (u64, usize) {
        let words = self.bytes[..self.filled].as_chunks::<8>().0;
        // The last word can't be the first of a frame.
        let [words @ .., _] = words else {
            return (at, frames);
        };
        // The index of a frame's word; beyond all words if the frame is not aligned to one.
        let word_at = |at: u64| at.wrapping_sub(self.address).rotate_right(3);
        let mut word = word_at(at);
        let most = frames.min(self.filled / FRAME_BYTES) / COUNTED_TOGETHER;
        let mut left = most;
        'up: while left > 0 {
            for _ in 0..COUNTED_TOGETHER {
                let Some(saved) = words.get(word as usize) else {
                    break 'up;
                };
                word = word_at(u64::from_le_bytes(*saved));
            }
            left -= 1;
        }
        (
            word.rotate_left(3).wrapping_add(self.address),
            frames - (most - left) * COUNTED_TOGETHER,
        )
    }

    /// Whether a frame at `at` would be in the room of this window.
    fn reaches(&self, at: u64) -> bool {
        let offset = at.wrapping_sub(self.address);
        offset < self.bytes.len().saturating_sub(FRAME_BYTES - 1) as u64
    }

    /// The frame pointer saved at `at`, in the window's room; `None` outside the guest's memory.
    #[inline(never)] // it is needed for few frames, and would take registers from those of the others
    fn saved_at(&mut self, at: u64, reader: &mut impl MemoryReader) -> Option<u64> {
        let offset = at.wrapping_sub(self.address) as usize;
        let end = offset + FRAME_BYTES;
        if end > self.filled {
            self.fill(end.next_multiple_of(PIECE_BYTES), reader);
        }
        let frame = self.bytes[..self.filled].get(offset..end)?;
        let (saved, _) = frame.split_first_chunk::<8>()?;
        Some(u64::from_le_bytes(*saved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000_1000;

    /// Memory from BASE on; counts the bytes that were requested.
    struct Memory {
        bytes: Vec<u8>,
        copied: usize,
    }

    impl MemoryReader for Memory {
        fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
            let start = (address - BASE) as usize;
            let count = into.len().min(self.bytes.len().saturating_sub(start));
            into[..count].copy_from_slice(&self.bytes[start..start + count]);
            self.copied += count;
            count
        }
    }

    /// Frames at these offsets, each with a link to the next; the last one links to `end`.
    fn chain(offsets: &[usize], end: u64, bytes: usize) -> Memory {
        let mut memory = vec![0; bytes];
        for (index, offset) in offsets.iter().enumerate() {
            let next = offsets
                .get(index + 1)
                .map_or(end, |next| BASE + *next as u64);
            memory[*offset..*offset + 8].copy_from_slice(&next.to_le_bytes());
        }
        Memory {
            bytes: memory,
            copied: 0,
        }
    }

    #[test]
    fn no_more_is_copied_than_the_chain_needs() {
        let mut memory = chain(&[64, 1000, 2000], 0, 16384);
        let mut room = [0; 16384];
        let mut window = Window::new(&mut room);
        window.begin(BASE);
        assert_eq!(window.follow(BASE + 64, 256, &mut memory), None);
        assert_eq!((window.raw().bytes.len(), memory.copied), (2048, 2048));
        assert_eq!(window.raw().bytes, &memory.bytes[..2048]);
    }

    #[test]
    fn a_chain_that_leaves_says_where_to() {
        let elsewhere = 0x9000_0000;
        let mut memory = chain(&[64], elsewhere, 8192);
        let mut room = [0; 4096];
        let mut window = Window::new(&mut room);
        window.begin(BASE);
        assert_eq!(window.follow(BASE + 64, 256, &mut memory), Some(elsewhere));
        let mut upwards = chain(&[64], BASE + 4096, 8192);
        window.begin(BASE);
        assert_eq!(
            window.follow(BASE + 64, 256, &mut upwards),
            Some(BASE + 4096)
        );
    }

    #[test]
    fn cycles_and_holes_end_it() {
        let mut room = [0; 16384];
        let mut window = Window::new(&mut room);
        let mut cycle = chain(&[64, 128], BASE + 64, 8192);
        window.begin(BASE);
        assert_eq!(window.follow(BASE + 64, 256, &mut cycle), None);
        let mut hole = chain(&[64], BASE + 5000, 4096);
        window.begin(BASE);
        assert_eq!(window.follow(BASE + 64, 256, &mut hole), Some(BASE + 5000));
        assert_eq!(window.raw().bytes.len(), 4096);
        window.begin(BASE);
        assert_eq!(
            window.follow(u64::MAX - 7, 256, &mut hole),
            Some(u64::MAX - 7)
        );
    }
}
