//! A guest's memory, read through mapped frames.
//!
//! Input: frame numbers. Output: words. The cache maps frames, never virtual addresses, so that a guest that remaps
//! its stack is read correctly. It is bounded, also remembers frames that can't be mapped (a hostile page table must
//! not cost a call per sample), and is cleared periodically, since a guest that balloons may get other memory under
//! the same frame number.

use crate::guest::page_tables::{FrameAddress, Paging, TableReader};
use crate::sys::xen::foreign::{ForeignFrames, MOST_BATCH};
use crate::sys::xen::privcmd::Privcmd;
use std::time::{Duration, Instant};

/// Most frames kept mapped: 16 MiB of address space.
pub const MOST_FRAMES: usize = 4096;
/// Slots of the table, a power of two, at most half full.
const SLOTS: usize = 2 * MOST_FRAMES;
/// Longest life of a mapping.
const LIFETIME: Duration = Duration::from_secs(30);
/// Pages mapped together when the first of them is needed.
const PAGES_AHEAD: usize = 8;

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
    /// Without mappings.
    pub fn new(domain: u16) -> Self {
        GuestMemory {
            domain,
            slots: vec![FREE; SLOTS].into(),
            used: 0,
            regions: Vec::with_capacity(MOST_FRAMES),
            born: Instant::now(),
            map_calls: 0,
        }
    }

    /// Whether it is time to drop all mappings: they are old or many.
    pub fn is_stale(&self) -> bool {
        self.used > MOST_FRAMES - MOST_FRAMES / 4 || self.born.elapsed() > LIFETIME
    }

    /// Drops all mappings.
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

    /// Maps those of `frames` (at most [`MOST_BATCH`]) that aren't mapped yet, in one call.
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
            Err(_) => {
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

    /// Reads memory from guest-virtual `address` upwards through `paging`. Returns the number of bytes read: fewer
    /// than requested where memory is missing.
    pub fn read(
        &mut self,
        privcmd: &Privcmd,
        paging: &Paging,
        address: u64,
        into: &mut [u8],
    ) -> usize {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            let mut reader = Mapped {
                memory: self,
                privcmd,
            };
            let Ok(found) = paging.translate(&mut reader, at) else {
                return done;
            };
            if !self.knows(found.frame) {
                self.map_ahead(privcmd, paging, at, found.frame);
            }
            let Some((region, page)) = self.find(found.frame) else {
                return done;
            };
            let got = region.copy_bytes(page, found.offset, &mut into[done..]);
            if got == 0 {
                return done;
            }
            done += got;
        }
        done
    }

    /// The frame and offset of `address`.
    pub fn frame_of(
        &mut self,
        privcmd: &Privcmd,
        paging: &Paging,
        address: u64,
    ) -> Option<FrameAddress> {
        let mut reader = Mapped {
            memory: self,
            privcmd,
        };
        paging.translate(&mut reader, address).ok()
    }

    /// Maps the frame of `address` and those of the pages above it, which are likely to be stack too.
    fn map_ahead(&mut self, privcmd: &Privcmd, paging: &Paging, address: u64, frame: u64) {
        let mut frames = [frame; PAGES_AHEAD];
        let mut count = 1;
        while count < PAGES_AHEAD {
            let above = (address & !0xfff).wrapping_add(count as u64 * 4096);
            let mut reader = Mapped {
                memory: self,
                privcmd,
            };
            match paging.translate(&mut reader, above) {
                Ok(found) => frames[count] = found.frame,
                Err(_) => break,
            }
            count += 1;
        }
        self.map(privcmd, &frames[..count]);
    }
}

/// A [`GuestMemory`] that maps missing frames.
struct Mapped<'a> {
    memory: &'a mut GuestMemory,
    privcmd: &'a Privcmd,
}

impl TableReader for Mapped<'_> {
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        if !self.memory.knows(frame) {
            self.memory.map(self.privcmd, &[frame]);
        }
        let (region, page) = self.memory.find(frame)?;
        region.word(page, index)
    }
}
