//! Guest memory as part of the monitor's memory, read by the guest's page tables.
//!
//! Input: the monitor's large mappings, and registers of vCPUs. Output: bytes. KVM doesn't report which part of a
//! monitor is the guest's memory. It is found by its contents: page tables that lead each vCPU from its root to the
//! code that it runs, all marked as used by the processor. Memory that isn't found is not read.

use super::monitor::Area;
use crate::guest::page_tables::{FrameAddress, FrameReader, Paging};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Address at which memory continues above the range of 32-bit devices.
const HIGH: u64 = 4 << 30;
/// Addresses below 4 GiB at which memory may end in monitors that have both parts in one mapping: QEMU's machines
/// `q35`, `microvm` and `pc`, Firecracker and cloud-hypervisor.
const GAPS: [u64; 4] = [2 << 30, 3 << 30, 3 << 30 | 1 << 28, 3 << 30 | 1 << 29];
/// `_PAGE_PRESENT` and `_PAGE_ACCESSED`.
const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
/// Bytes of code that are examined.
const CODE_BYTES: usize = 16;

/// Number of looks that is sufficient to find it.
pub const SURE_ROUNDS: u32 = 16;
/// Number of looks that is sufficient if it isn't known by then where its low part ends.
pub const UNSURE_ROUNDS: u32 = 64;
/// Fewest pieces of evidence by which memory is found, if nothing else fits them.
const FITS_MIN: u32 = 4;

/// Evidence for the position of memory: how a vCPU translated the address of the code that it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Its page tables.
    pub paging: Paging,
    /// The address.
    pub ip: u64,
}

/// The parts of the monitor's memory that are the guest's, from address 0 on and from 4 GiB on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    low: Area,
    high: Option<Area>,
}

impl Layout {
    /// All possible layouts, likely ones first.
    fn possible(areas: &[Area]) -> impl Iterator<Item = Layout> {
        let whole = areas.iter().map(|&low| Layout { low, high: None });
        let split = areas.iter().flat_map(|area| {
            let gaps = GAPS.iter().filter(|&&gap| gap < area.bytes);
            gaps.map(|&gap| Layout {
                low: Area {
                    bytes: gap,
                    ..*area
                },
                high: Some(Area {
                    start: area.start + gap,
                    bytes: area.bytes - gap,
                }),
            })
        });
        let apart = areas.iter().flat_map(|&low| {
            let others = areas.iter().filter(move |&&high| high != low);
            others.map(move |&high| Layout {
                low,
                high: Some(high),
            })
        });
        whole
            .filter(|layout| layout.low.bytes <= HIGH)
            .chain(split)
            .chain(apart.filter(|layout| layout.low.bytes <= HIGH))
    }

    fn place(&self, physical: u64, bytes: usize) -> Option<u64> {
        let inside = |area: &Area, offset: u64| {
            let rest = area.bytes.checked_sub(offset)?;
            (bytes as u64 <= rest).then_some(area.start + offset)
        };
        match physical.checked_sub(HIGH) {
            Some(offset) => inside(self.high.as_ref()?, offset),
            None => inside(&self.low, physical),
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Layout { low, high } = self;
        write!(f, "{} MiB at {:#x}", low.bytes >> 20, low.start)?;
        match high {
            Some(high) => write!(f, ", {} MiB at {:#x}", high.bytes >> 20, high.start),
            None => Ok(()),
        }
    }
}

/// Memory of the monitor.
#[derive(Debug)]
pub struct Ram {
    /// `/proc/PID/mem`.
    memory: File,
    layout: Option<Layout>,
    /// Layouts that fit all evidence so far.
    possible: Vec<Layout>,
    /// How often evidence fitted a layout, and how often it fitted none.
    fitted: (u32, u32),
}

impl Ram {
    /// Guest memory among `areas` that is not found yet.
    pub fn new(memory: File, areas: &[Area]) -> Self {
        Ram {
            memory,
            layout: None,
            possible: Layout::possible(areas).collect(),
            fitted: (0, 0),
        }
    }

    /// The layout, if nearly all evidence fits it. (Not all, since a vCPU may be about to fault at code that is not
    /// mapped.)
    pub fn layout(&self) -> Option<Layout> {
        let (fitted, others) = self.fitted;
        self.layout.filter(|_| fitted > 3 * others)
    }

    /// Whether enough evidence shows where it begins.
    pub fn is_found(&self) -> bool {
        let is_same = |layout: &Layout| self.layout.is_some_and(|first| first.low == layout.low);
        self.fitted.0 >= FITS_MIN && self.layout().is_some() && self.possible.iter().all(is_same)
    }

    /// Whether it is known where memory begins, but not where its low part ends. All evidence of a guest with more
    /// than 2 GiB may be in that part.
    pub fn is_unsure(&self) -> bool {
        let differs = |first: Layout| {
            let of_same = |other: &&Layout| other.low.start == first.low.start;
            let mut others = self.possible.iter().filter(of_same);
            others.any(|other| other.low != first.low)
        };
        self.layout().is_some_and(differs)
    }

    /// Whether no more than `rounds` looks at the vCPUs are needed, or `unsure_rounds` while it is unsure.
    pub fn suffices(&self, rounds: u32, unsure_rounds: u32) -> bool {
        let needed = if self.is_unsure() {
            unsure_rounds
        } else {
            SURE_ROUNDS
        };
        rounds >= needed && self.layout().is_some()
    }

    /// Where in the monitor's memory a physical address of the guest is.
    pub fn place_of(&self, physical: u64, bytes: usize) -> Option<u64> {
        self.layout?.place(physical, bytes)
    }

    /// Searches with the evidence of one paused vCPU.
    pub fn weigh(&mut self, evidence: Evidence) {
        let mut possible = std::mem::take(&mut self.possible);
        let mut fits = |layout: &Layout| {
            self.layout = Some(*layout);
            Used(self).explains(evidence)
        };
        if possible.iter().any(&mut fits) {
            possible.retain(&mut fits);
            self.fitted.0 += 1;
        } else {
            // Evidence that fits no layout excludes none: the vCPU may be about to fault.
            self.fitted.1 += 1;
        }
        self.layout = possible.first().copied();
        self.possible = possible;
    }
}

impl FrameReader for Ram {
    fn read_frame(&mut self, at: FrameAddress, into: &mut [u8]) -> bool {
        let place = at.physical().zip(self.layout);
        let place = place.and_then(|(physical, layout)| layout.place(physical, into.len()));
        place.is_some_and(|place| self.memory.read_exact_at(into, place).is_ok())
    }
}

/// Memory whose tables are read only if the processor has marked them as used.
struct Used<'a>(&'a mut Ram);

impl Used<'_> {
    fn explains(&mut self, evidence: Evidence) -> bool {
        let mut code = [0; CODE_BYTES];
        let read = evidence.paging.read(self, evidence.ip, &mut code);
        // An instruction may end where memory does. Zeros are not code that a guest runs.
        read > 0 && code[..read].iter().any(|&byte| byte != 0)
    }
}

impl FrameReader for Used<'_> {
    fn read_frame(&mut self, at: FrameAddress, into: &mut [u8]) -> bool {
        let is_there = self.0.read_frame(at, into);
        let entry = <[u8; 8]>::try_from(&*into).map(u64::from_le_bytes);
        let is_unused = entry.is_ok_and(|entry| entry & PRESENT != 0 && entry & ACCESSED == 0);
        is_there && !is_unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: u64 = PRESENT | ACCESSED | 2;
    const IP: u64 = 0x20_0010;

    /// Memory of a monitor with two areas of 16 pages. The second is a guest's, whose code is in its page 7.
    fn monitor(entry: u64, code: u8) -> (File, [Area; 2]) {
        let mut bytes = vec![0; 32 * 4096];
        let guest = 16 * 4096;
        let mut put = |page: usize, index: usize, value: u64| {
            let at = guest + page * 4096 + index * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(1, 0, 0x2000 | entry);
        put(2, 0, 0x3000 | ENTRY);
        put(3, 1, 0x4000 | ENTRY);
        put(4, 0, 0x7000 | ENTRY);
        bytes[guest + 7 * 4096..guest + 8 * 4096].fill(code);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let area = |start| Area {
            start,
            bytes: 16 * 4096,
        };
        (file, [area(0), area(guest as u64)])
    }

    fn evidence(ip: u64) -> Evidence {
        Evidence {
            paging: Paging::of_x86_64(1 << 31, 0x1000, 1 << 5, true),
            ip,
        }
    }

    #[test]
    fn memory_is_where_the_page_tables_lead_to_code() {
        let (file, areas) = monitor(ENTRY, 0x90);
        let mut ram = Ram::new(file, &areas);
        assert_eq!(ram.layout(), None);
        (0..4).for_each(|_| ram.weigh(evidence(IP)));
        assert_eq!(ram.layout().unwrap().low, areas[1]);
        let mut read = [0; 8192];
        assert_eq!(evidence(IP).paging.read(&mut ram, IP, &mut read), 4096 - 16);
        // One contradiction in five samples is tolerated, two in six are not.
        ram.weigh(evidence(0x40_0000));
        assert_eq!(ram.layout().unwrap().low, areas[1]);
        ram.weigh(evidence(0x40_0000));
        assert_eq!(ram.layout(), None);
    }

    #[test]
    fn memory_that_may_go_on_at_several_addresses_is_looked_at_longer() {
        let (file, [_, guest]) = monitor(ENTRY, 0x90);
        let ram = |bytes| {
            let area = Area { bytes, ..guest };
            let mut ram = Ram::new(file.try_clone().unwrap(), &[area]);
            (0..4).for_each(|_| ram.weigh(evidence(IP)));
            ram
        };
        let small = ram(guest.bytes);
        let suffices = |ram: &Ram, rounds| ram.suffices(rounds, UNSURE_ROUNDS);
        assert!(!small.is_unsure());
        assert!(suffices(&small, SURE_ROUNDS) && !suffices(&small, SURE_ROUNDS - 1));
        // It may go on above 4 GiB from 2 GiB on, or from 3 GiB on.
        let large = ram(6 << 30);
        assert!(large.is_unsure());
        assert!(suffices(&large, UNSURE_ROUNDS) && !suffices(&large, UNSURE_ROUNDS - 1));
        // Unless there are many guests to look at.
        assert!(large.suffices(SURE_ROUNDS, SURE_ROUNDS));
    }

    #[test]
    fn tables_that_no_processor_used_and_empty_code_show_nothing() {
        for (entry, code) in [(PRESENT | 2, 0x90), (ENTRY, 0)] {
            let (file, areas) = monitor(entry, code);
            let mut ram = Ram::new(file, &areas);
            ram.weigh(evidence(IP));
            assert_eq!(ram.layout(), None);
        }
    }

    #[test]
    fn memory_above_four_gibibytes_is_in_a_part_of_its_own() {
        let area = |start, bytes| Area { start, bytes };
        let all: Vec<_> =
            Layout::possible(&[area(0x1000, 6 << 30), area(0x9000, 1 << 20)]).collect();
        let split = Layout {
            low: area(0x1000, 2 << 30),
            high: Some(area(0x1000 + (2 << 30), 4 << 30)),
        };
        assert!(all.contains(&split));
        assert_eq!(split.place(0x10, 8), Some(0x1010));
        assert_eq!(split.place((2 << 30) - 4, 8), None);
        assert_eq!(split.place(HIGH + 0x10, 8), Some(0x1010 + (2 << 30)));
        assert_eq!(split.place(u64::MAX, 8), None);
        let low = Layout {
            high: None,
            ..split
        };
        assert_eq!(low.place(HIGH, 8), None);
        assert!(low.to_string().ends_with("2048 MiB at 0x1000"));
    }
}
