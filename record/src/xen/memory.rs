//! A guest's memory, read through mapped frames.
//!
//! Input: frame numbers. Output: words. The cache maps frames, never virtual addresses, so that a guest that remaps
//! its stack is read correctly. It is bounded, also remembers frames that can't be mapped (a hostile page table must
//! not cost a call per sample), and is cleared periodically, since a guest that balloons may get other memory under
//! the same frame number.

use super::translations::{Place, TableWord, Translations, Walk};
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
/// The bits of an address inside a page.
const IN_PAGE: u64 = 0xfff;
/// Pages mapped together when the first of them is needed.
const PAGES_AHEAD: usize = 8;

/// Where a frame is.
#[derive(Clone, Copy)]
struct Slot {
    /// Frame number plus one; 0 is a free slot.
    key: u64,
    place: Place,
}

const FREE: Slot = Slot {
    key: 0,
    place: Place { region: 0, page: 0 },
};
/// A region number that stands for "can't be mapped".
const NOWHERE: u32 = u32::MAX;

/// Frames of one domain.
pub struct GuestMemory {
    domain: u16,
    slots: Box<[Slot]>,
    used: usize,
    regions: Vec<ForeignFrames>,
    known: Translations,
    born: Instant,
    /// How often all mappings were dropped.
    forgotten: u64,
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
            known: Translations::new(),
            born: Instant::now(),
            forgotten: 0,
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
        self.known.forget();
        self.forgotten += 1;
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

    fn remember(&mut self, frame: u64, place: Place) {
        let index = self.slot_of(frame);
        self.used += usize::from(self.slots[index].key == 0);
        self.slots[index] = Slot {
            key: frame.wrapping_add(1),
            place,
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
                let nowhere = Place {
                    region: NOWHERE,
                    page: 0,
                };
                for &frame in wanted {
                    self.remember(frame, nowhere);
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
            let page = page as u32;
            self.remember(frame, Place { region, page });
        }
        self.regions.push(region);
    }

    /// Where `frame` is mapped, if it is the guest's memory.
    fn find(&mut self, privcmd: &Privcmd, frame: u64) -> Option<Place> {
        if !self.knows(frame) {
            self.map(privcmd, &[frame]);
        }
        let slot = self.slots[self.slot_of(frame)];
        (slot.key != 0 && slot.place.region != NOWHERE).then_some(slot.place)
    }

    fn word(&self, place: Place, index: usize) -> Option<u64> {
        let region = self.regions.get(place.region as usize)?;
        region.word(place.page as usize, index)
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
            let page_address = at & !IN_PAGE;
            let is_still = |word: &TableWord| self.word(word.place, word.index) == Some(word.value);
            let known = self.known.find(paging, page_address, is_still);
            let Some(place) = known.or_else(|| self.translate(privcmd, paging, page_address))
            else {
                return done;
            };
            let Some(region) = self.regions.get(place.region as usize) else {
                return done;
            };
            let offset = (at & IN_PAGE) as usize;
            let got = region.copy_bytes(place.page as usize, offset, &mut into[done..]);
            if got == 0 {
                return done;
            }
            done += got;
        }
        done
    }

    /// Walks the page tables, and keeps what they say for the next read of the same page.
    #[cold]
    fn translate(
        &mut self,
        privcmd: &Privcmd,
        paging: &Paging,
        page_address: u64,
    ) -> Option<Place> {
        let forgotten = self.forgotten;
        let mut reader = Mapped::new(self, privcmd);
        let found = paging.translate(&mut reader, page_address).ok()?;
        let walk = reader.walk;
        if !self.knows(found.frame) {
            self.map_ahead(privcmd, paging, page_address, found.frame);
        }
        let place = self.find(privcmd, found.frame)?;
        if self.forgotten == forgotten {
            self.known.keep(paging, page_address, walk, place);
        }
        Some(place)
    }

    /// The frame and offset of `address`.
    pub fn frame_of(
        &mut self,
        privcmd: &Privcmd,
        paging: &Paging,
        address: u64,
    ) -> Option<FrameAddress> {
        let mut reader = Mapped::new(self, privcmd);
        paging.translate(&mut reader, address).ok()
    }

    /// Where the page tables of the kernel's half are mapped; see [`Paging::own_address`].
    pub fn own_address(&mut self, privcmd: &Privcmd, paging: &Paging) -> Option<u64> {
        paging.own_address(&mut Mapped::new(self, privcmd))
    }

    /// Maps the frame of `address` and those of the pages above it, which are likely to be stack too.
    fn map_ahead(&mut self, privcmd: &Privcmd, paging: &Paging, address: u64, frame: u64) {
        let mut frames = [frame; PAGES_AHEAD];
        let mut count = 1;
        while count < PAGES_AHEAD {
            let above = (address & !0xfff).wrapping_add(count as u64 * 4096);
            let mut reader = Mapped::new(self, privcmd);
            match paging.translate(&mut reader, above) {
                Ok(found) => frames[count] = found.frame,
                Err(_) => break,
            }
            count += 1;
        }
        self.map(privcmd, &frames[..count]);
    }
}

/// A [`GuestMemory`] that maps missing frames, and notes which words were read.
struct Mapped<'a> {
    memory: &'a mut GuestMemory,
    privcmd: &'a Privcmd,
    walk: Walk,
}

impl<'a> Mapped<'a> {
    fn new(memory: &'a mut GuestMemory, privcmd: &'a Privcmd) -> Self {
        Mapped {
            memory,
            privcmd,
            walk: Walk::new(),
        }
    }
}

impl TableReader for Mapped<'_> {
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        let place = self.memory.find(self.privcmd, frame)?;
        let value = self.memory.word(place, index)?;
        self.walk.add(TableWord {
            place,
            index,
            value,
        });
        Some(value)
    }
}
