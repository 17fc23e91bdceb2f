//! Remembers which frames were called from which (format-spec.md, section 5.2).
//!
//! A function is called from many positions of a stack table, but from each by the same few call sites. A frame that
//! was seen below the same caller before is encoded as a small number. Writer and reader keep the same lists.

use crate::samples::sample::Frame;
use crate::word_hash::WordMap;

/// Most frames remembered for one caller; this bounds the search.
const MOST: usize = 32;
const NONE: u32 = u32::MAX;

/// Number of a frame in [`Successors`]; 0 is the caller of outermost frames.
pub(crate) type FrameNumber = u32;

/// Frames by number, and the frames seen below each, in the order in which they came.
pub(crate) struct Successors {
    numbers: WordMap<(u64, u8), FrameNumber>,
    frames: Vec<Frame>,
    /// First entry of each frame's list.
    heads: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    frame: FrameNumber,
    next: u32,
}

impl Default for Successors {
    fn default() -> Self {
        let mut successors = Successors {
            numbers: WordMap::default(),
            frames: Vec::new(),
            heads: Vec::new(),
            entries: Vec::new(),
        };
        successors.clear();
        successors
    }
}

impl Successors {
    /// Without frames, but with room for so many.
    pub fn with_capacity(frames: usize) -> Self {
        let mut successors = Successors::default();
        successors.numbers.reserve(frames);
        successors.frames.reserve(frames);
        successors.heads.reserve(frames);
        successors.entries.reserve(frames);
        successors
    }

    /// Removes all frames, but keeps the memory.
    pub fn clear(&mut self) {
        self.numbers.clear();
        self.entries.clear();
        self.frames.clear();
        self.heads.clear();
        // The caller of outermost frames, to which their addresses are relative.
        self.frames.push(Frame::exact(0));
        self.heads.push(NONE);
    }

    /// The number of a frame.
    pub fn number(&mut self, frame: Frame) -> FrameNumber {
        let next = self.frames.len() as u32;
        let number = *self
            .numbers
            .entry((frame.address, frame.kind_byte()))
            .or_insert(next);
        if number == next {
            self.frames.push(frame);
            self.heads.push(NONE);
        }
        number
    }

    /// The frame with this number.
    pub fn frame(&self, number: FrameNumber) -> Frame {
        self.frames[number as usize]
    }

    /// The index of `frame` in the list of `caller`, from 1; 0 if it was not there. It is then appended, if the list
    /// has room.
    pub fn place(&mut self, caller: FrameNumber, frame: FrameNumber) -> usize {
        let mut last = NONE;
        let mut at = self.heads[caller as usize];
        let mut place = 1;
        while at != NONE {
            let entry = self.entries[at as usize];
            if entry.frame == frame {
                return place;
            }
            last = at;
            at = entry.next;
            place += 1;
        }
        if place <= MOST {
            let new = self.entries.len() as u32;
            self.entries.push(Entry { frame, next: NONE });
            match last {
                NONE => self.heads[caller as usize] = new,
                last => self.entries[last as usize].next = new,
            }
        }
        0
    }

    /// The frame with index `place`, from 1, in the list of `caller`.
    pub fn at(&self, caller: FrameNumber, place: usize) -> Option<FrameNumber> {
        let entry = |at: u32| self.entries.get(at as usize);
        let first = entry(self.heads[caller as usize]);
        let mut list = std::iter::successors(first, |before| entry(before.next));
        list.nth(place.checked_sub(1)?).map(|entry| entry.frame)
    }
}
