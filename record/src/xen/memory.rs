//! A guest's memory, as frames mapped into ours.
//!
//! Enters: frame numbers. Leaves: words. The cache goes from frame to mapping and never from a
//! virtual address to anything, so that a guest that remaps its stack is seen as it is now. It is
//! bounded, remembers frames that can't be mapped too (a hostile page table must not cost a call at
//! every sample), and forgets everything now and then, since a guest that balloons may get other
//! memory under the same frame number.

use super::page_tables::{Paging, TableReader, Unmapped};
use crate::sys::xen::XenError;
use crate::sys::xen::foreign::{FRAME_WORDS, ForeignFrames};
use crate::sys::xen::privcmd::Privcmd;
use std::time::{Duration, Instant};

/// Most frames kept mapped: 16 MiB of address space.
pub const MOST_FRAMES: usize = 4096;
/// Slots of the table, a power of two, at most half full.
const SLOTS: usize = 2 * MOST_FRAMES;
/// Longest life of a mapping.
const LIFETIME: Duration = Duration::from_secs(30);
/// Most frames mapped by one call.
pub const MOST_BATCH: usize = 64;

/// Where a frame is.
#[derive(Clone, Copy)]
struct Slot {
    /// Frame number plus one; 0 is a free slot.
    key: u64,
    region: u32,
    page: u32,
}

const FREE: Slot = Slot {
    key: 0,
    region: 0,
    page: 0,
};
/// A region number that stands for "can't be mapped".
const NOWHERE: u32 = u32::MAX;

/// Frames of one domain.
pub struct GuestMemory {
    domain: u16,
    slots: Box<[Slot]>,
    used: usize,
    regions: Vec<ForeignFrames>,
    born: Instant,
    /// Calls made to map frames.
    pub map_calls: u64,
}

impl GuestMemory {
    /// Nothing mapped yet.
    pub fn new(domain: u16) -> Self {
        GuestMemory {
            domain,
            slots: vec![FREE; SLOTS].into(),
            used: 0,
            regions: Vec::new(),
            born: Instant::now(),
            map_calls: 0,
        }
    }

    /// Forgets all mappings if they are old or many. To be called while the guest runs.
    pub fn expire(&mut self) {
        if self.used > MOST_FRAMES - MOST_FRAMES / 4 || self.born.elapsed() > LIFETIME {
            self.forget();
        }
    }

    /// Forgets all mappings.
    pub fn forget(&mut self) {
        self.slots.fill(FREE);
        self.regions.clear();
        self.used = 0;
        self.born = Instant::now();
    }

    fn slot_of(&self, frame: u64) -> usize {
        let key = frame.wrapping_add(1);
        let mut index = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SLOTS;
        // At least half of the slots are free, so that this ends.
        while self.slots[index].key != 0 && self.slots[index].key != key {
            index = (index + 1) % SLOTS;
        }
        index
    }

    fn knows(&self, frame: u64) -> bool {
        self.slots[self.slot_of(frame)].key != 0
    }

    fn remember(&mut self, frame: u64, region: u32, page: u32) {
        let index = self.slot_of(frame);
        self.used += usize::from(self.slots[index].key == 0);
        self.slots[index] = Slot {
            key: frame.wrapping_add(1),
            region,
            page,
        };
    }

    /// Maps those of `frames` (at most [`MOST_BATCH`]) that aren't yet, by one call.
    fn map(&mut self, privcmd: &Privcmd, frames: &[u64]) {
        let mut wanted = [0; MOST_BATCH];
        let mut count = 0;
        for &frame in frames.iter().take(MOST_BATCH) {
            if !self.knows(frame) && !wanted[..count].contains(&frame) {
                wanted[count] = frame;
                count += 1;
            }
        }
        let wanted = &wanted[..count];
        if count == 0 {
            return;
        }
        if self.used + count > MOST_FRAMES {
            self.forget();
        }
        self.map_calls += 1;
        match ForeignFrames::map(privcmd, self.domain, wanted) {
            Ok(region) => self.keep(region, wanted),
            Err(XenError { .. }) => {
                for &frame in wanted {
                    self.remember(frame, NOWHERE, 0);
                }
            }
        }
    }

    fn keep(&mut self, region: ForeignFrames, frames: &[u64]) {
        let number = self.regions.len() as u32;
        for (page, &frame) in frames.iter().enumerate() {
            let region = if region.is_present(page) {
                number
            } else {
                NOWHERE
            };
            self.remember(frame, region, page as u32);
        }
        self.regions.push(region);
    }

    fn find(&self, frame: u64) -> Option<(&ForeignFrames, usize)> {
        let slot = self.slots[self.slot_of(frame)];
        if slot.key == 0 {
            return None;
        }
        let region = self.regions.get(slot.region as usize)?;
        Some((region, slot.page as usize))
    }

    /// The memory together with what it takes to map more of it.
    pub fn with<'a>(&'a mut self, privcmd: &'a Privcmd) -> MappedMemory<'a> {
        MappedMemory {
            memory: self,
            privcmd,
        }
    }
}

/// [`GuestMemory`] that can map what it misses.
pub struct MappedMemory<'a> {
    memory: &'a mut GuestMemory,
    privcmd: &'a Privcmd,
}

impl TableReader for MappedMemory<'_> {
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        if !self.memory.knows(frame) {
            self.memory.map(self.privcmd, &[frame]);
        }
        let (region, page) = self.memory.find(frame)?;
        region.word(page, index)
    }
}

/// Memory that stack bytes can be copied from.
pub trait FrameSource: TableReader {
    /// Makes `frames` ready in one go.
    fn prepare(&mut self, frames: &[u64]);

    /// Copies words of `frame` from word `index` on; returns how many there were.
    fn copy_words(&mut self, frame: u64, index: usize, out: &mut [u64]) -> usize;
}

impl FrameSource for MappedMemory<'_> {
    fn prepare(&mut self, frames: &[u64]) {
        self.memory.map(self.privcmd, frames);
    }

    fn copy_words(&mut self, frame: u64, index: usize, out: &mut [u64]) -> usize {
        if !self.memory.knows(frame) {
            self.memory.map(self.privcmd, &[frame]);
        }
        match self.memory.find(frame) {
            Some((region, page)) => region.copy_words(page, index, out),
            None => 0,
        }
    }
}

/// Why a copy of the stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnd {
    /// All that was asked for is there.
    Full,
    /// The next page has no frame that could be read.
    Unmapped(Unmapped),
    /// The frame is not the guest's memory.
    Outside,
    /// The time allowed was over.
    Late,
}

/// Copies the guest's memory from `address` (rounded down to a word) upwards into `out`, until `late`
/// says that time is over. Returns how many words, and why no more.
pub fn copy_range(
    source: &mut impl FrameSource,
    paging: &Paging,
    address: u64,
    out: &mut [u64],
    mut late: impl FnMut() -> bool,
) -> (usize, CopyEnd) {
    let start = address & !7;
    let first_words = FRAME_WORDS - (start as usize & 0xfff) / 8;
    let pages = if out.len() <= first_words {
        1
    } else {
        1 + (out.len() - first_words).div_ceil(FRAME_WORDS)
    };
    let mut frames = [0; MOST_BATCH];
    let (mut known, mut problem) = (0, None);
    for page in 0..pages.min(MOST_BATCH) {
        let page_address = (start & !0xfff).wrapping_add(page as u64 * 4096);
        match paging.translate(source, page_address) {
            Ok(found) => frames[known] = found.frame,
            Err(why) => {
                problem = Some(CopyEnd::Unmapped(why));
                break;
            }
        }
        known += 1;
        if late() {
            problem = Some(CopyEnd::Late);
            break;
        }
    }
    source.prepare(&frames[..known]);
    let mut copied = 0;
    for (page, &frame) in frames[..known].iter().enumerate() {
        if page > 0 && late() {
            return (copied, CopyEnd::Late);
        }
        let word = if page == 0 {
            FRAME_WORDS - first_words
        } else {
            0
        };
        let wanted = (FRAME_WORDS - word).min(out.len() - copied);
        let got = source.copy_words(frame, word, &mut out[copied..copied + wanted]);
        copied += got;
        if got < wanted {
            return (copied, CopyEnd::Outside);
        }
    }
    (copied, problem.unwrap_or(CopyEnd::Full))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Physical memory of eight frames whose words are their own physical addresses.
    struct Flat {
        prepared: Vec<Vec<u64>>,
    }

    impl TableReader for Flat {
        fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
            (frame < 8).then_some(frame << 12 | (index as u64) << 3)
        }
    }

    impl FrameSource for Flat {
        fn prepare(&mut self, frames: &[u64]) {
            self.prepared.push(frames.to_vec());
        }

        fn copy_words(&mut self, frame: u64, index: usize, out: &mut [u64]) -> usize {
            let count = out.len().min(FRAME_WORDS - index);
            for (at, slot) in out[..count].iter_mut().enumerate() {
                match self.table_word(frame, index + at) {
                    Some(word) => *slot = word,
                    None => return at,
                }
            }
            count
        }
    }

    fn flat() -> Flat {
        Flat {
            prepared: Vec::new(),
        }
    }

    #[test]
    fn a_copy_crosses_pages_and_maps_them_together() {
        let mut memory = flat();
        let mut out = [0; 1100];
        let end = copy_range(&mut memory, &Paging::Off, 0x1ff4, &mut out, || false);
        assert_eq!(end, (1100, CopyEnd::Full));
        for (index, word) in out.iter().enumerate() {
            assert_eq!(*word, 0x1ff0 + index as u64 * 8);
        }
        assert_eq!(memory.prepared, [[1, 2, 3, 4]]);
    }

    #[test]
    fn a_copy_ends_where_memory_ends() {
        let mut out = [0; 1024];
        let end = copy_range(&mut flat(), &Paging::Off, 0x7800, &mut out, || false);
        assert_eq!(end, (256, CopyEnd::Outside));
    }

    #[test]
    fn a_copy_ends_when_time_is_over() {
        let mut out = [0; 4096];
        let mut asked = 0;
        let (copied, why) = copy_range(&mut flat(), &Paging::Off, 0, &mut out, || {
            asked += 1;
            asked >= 2
        });
        assert_eq!(why, CopyEnd::Late);
        assert!(copied < 4096);
    }

    #[test]
    fn an_untranslatable_start_copies_nothing() {
        let mut out = [0; 16];
        let end = copy_range(&mut flat(), &Paging::Unsupported, 0, &mut out, || false);
        assert_eq!(end, (0, CopyEnd::Unmapped(Unmapped::Mode)));
    }
}
