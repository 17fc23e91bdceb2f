//! A guest's memory, read through mapped frames.
//!
//! Input: frame numbers. Output: words. The cache maps frames, never virtual addresses, so a guest that remaps its
//! stack is read correctly. The cache is bounded. It also remembers frames that can't be mapped, since a hostile page
//! table must not cost a call per sample. It is cleared periodically, since a guest that balloons may get other memory
//! under the same frame number.

use super::translations::{TableWord, Translations, Walk};
use crate::guest::page_tables::{FrameAddress, Paging, TableReader};
use crate::sys::xen::foreign::{ForeignFrames, MOST_BATCH};
use crate::sys::xen::privcmd::Privcmd;
use std::time::{Duration, Instant};

/// Most frames kept mapped: 16 MiB of address space.
pub const MOST_FRAMES: usize = 4096;
/// Slots of the table, a power of two, at most half full.
const SLOTS: usize = 2 * MOST_FRAMES;
/// Longest lifetime of a mapping.
const LIFETIME: Duration = Duration::from_secs(30);
/// The bits of an address inside a page.
const IN_PAGE: u64 = 0xfff;
/// Pages mapped together when the first of them is needed.
const PAGES_AHEAD: usize = 8;

/// The position of a frame.
#[derive(Clone, Copy)]
struct Slot {
    /// Frame number plus one; 0 is a free slot.
    key: u64,
    /// The page that it is mapped at; `None` if it can't be mapped.
    page: Option<u32>,
}

const FREE: Slot = Slot { key: 0, page: None };

/// Frames of one domain.
pub struct GuestMemory {
    domain: u16,
    slots: Box<[Slot]>,
    used: usize,
    frames: ForeignFrames,
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
            frames: ForeignFrames::new(MOST_FRAMES),
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
        self.frames.clear();
        self.used = 0;
        self.born = Instant::now();
    }

    fn slot_of(&self, frame: u64) -> usize {
        let key = frame.wrapping_add(1);
        let mut index = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SLOTS;
        // At least half of the slots are free, so this loop ends.
        while self.slots[index].key != 0 && self.slots[index].key != key {
            index = (index + 1) % SLOTS;
        }
        index
    }

    fn knows(&self, frame: u64) -> bool {
        self.slots[self.slot_of(frame)].key != 0
    }

    fn remember(&mut self, frame: u64, page: Option<u32>) {
        let index = self.slot_of(frame);
        self.used += usize::from(self.slots[index].key == 0);
        self.slots[index] = Slot {
            key: frame.wrapping_add(1),
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
        let mut pages = [None; MOST_BATCH];
        self.frames.map(privcmd, self.domain, wanted, &mut pages);
        for (&frame, page) in wanted.iter().zip(pages) {
            self.remember(frame, page);
        }
    }

    /// The page at which `frame` is mapped, if it is the guest's memory.
    fn find(&mut self, privcmd: &Privcmd, frame: u64) -> Option<u32> {
        if !self.knows(frame) {
            self.map(privcmd, &[frame]);
        }
        let slot = self.slots[self.slot_of(frame)];
        slot.page.filter(|_| slot.key != 0)
    }

    /// Reads memory from guest virtual address `address` upwards through `paging`. Returns the number of bytes read,
    /// which is smaller than requested if memory is missing.
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
            let is_still = |word: &TableWord| self.frames.word(word.number) == Some(word.value);
            let (page, next) = match self.known.find(paging, page_address, is_still) {
                Some(known) => (known.found, known.next.filter(|(word, _)| is_still(word))),
                None => match self.translate(privcmd, paging, page_address) {
                    Some(page) => (page, None),
                    None => return done,
                },
            };
            let offset = (at & IN_PAGE) as usize;
            let mut got = self.frames.copy_bytes(page, offset, &mut into[done..]);
            if let Some((_, page)) = next
                && got > 0
                && done + got < into.len()
            {
                got += self.frames.copy_bytes(page, 0, &mut into[done + got..]);
            }
            if got == 0 {
                return done;
            }
            done += got;
        }
        done
    }

    /// Walks the page tables, and keeps the translation for the next read of the same page.
    #[cold]
    fn translate(&mut self, privcmd: &Privcmd, paging: &Paging, page_address: u64) -> Option<u32> {
        let forgotten = self.forgotten;
        let mut reader = Mapped::new(self, privcmd);
        let found = paging.translate(&mut reader, page_address).ok()?;
        let walk = reader.walk;
        if !self.knows(found.frame) {
            self.map_ahead(privcmd, paging, page_address, found.frame);
        }
        let page = self.find(privcmd, found.frame)?;
        if self.forgotten == forgotten {
            self.known.keep(paging, page_address, walk, page);
        }
        Some(page)
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

    /// The address at which the page tables of the kernel's half are mapped; see [`Paging::own_address`].
    pub fn own_address(&mut self, privcmd: &Privcmd, paging: &Paging) -> Option<u64> {
        paging.own_address(&mut Mapped::new(self, privcmd))
    }

    /// Maps the frame of `address` and those of the pages above it, which are likely to be stack, too.
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
        let page = self.memory.find(self.privcmd, frame)?;
        let number = ForeignFrames::number_of_word(page, index)?;
        let value = self.memory.frames.word(number)?;
        self.walk.add(TableWord { number, value });
        Some(value)
    }
}
