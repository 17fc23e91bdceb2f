//! Walks over invented tables: every page size and level, and tables that lie.

use super::*;
use std::collections::HashMap;

#[derive(Default)]
struct Tables {
    words: HashMap<(u64, usize), u64>,
    reads: usize,
}

impl Tables {
    fn put(&mut self, frame: u64, index: usize, entry: u64) {
        self.words.insert((frame, index), entry);
    }
}

impl TableReader for Tables {
    /// Frames below 100 exist, and are zero where the test has written nothing.
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        self.reads += 1;
        (frame < 100).then(|| self.words.get(&(frame, index)).copied().unwrap_or(0))
    }
}

fn x86(levels: u8) -> Paging {
    Paging::X86_64 { root: 1, levels }
}

fn at(frame: u64, offset: usize) -> Result<FrameAddress, Unmapped> {
    Ok(FrameAddress { frame, offset })
}

/// An address with these table indices, topmost first, and the offset.
fn address(indices: &[u64], offset: u64) -> u64 {
    let bits = indices
        .iter()
        .fold(0, |address, index| address << 9 | index);
    let unused = 64 - 12 - 9 * indices.len();
    ((bits << 12 << unused) as i64 >> unused) as u64 | offset
}

#[test]
fn x86_64_pages_of_every_size() {
    let mut tables = Tables::default();
    tables.put(1, 300, 2 << 12 | 7);
    tables.put(2, 5, 3 << 12 | 7);
    tables.put(3, 6, 4 << 12 | 7);
    tables.put(4, 7, 1 << 63 | 0x1234 << 12 | 0x67); // no-execute, accessed, dirty
    tables.put(3, 8, 0x80_0000_0000 | 0x1000 | X86_LARGE | 7); // 2 MiB, with the PAT bit
    tables.put(2, 9, 0x40_0000_0000 | X86_LARGE | 7); // 1 GiB
    let paging = x86(4);
    let small = address(&[300, 5, 6, 7], 0x123);
    assert!(small > 1 << 63, "the upper half is meant");
    assert_eq!(paging.translate(&mut tables, small), at(0x1234, 0x123));
    let medium = address(&[300, 5, 8, 0x1f], 0x456);
    assert_eq!(paging.translate(&mut tables, medium), at(0x800_001f, 0x456));
    let large = address(&[300, 9, 2, 3], 0x789);
    assert_eq!(
        paging.translate(&mut tables, large),
        at(0x400_0000 + 2 * 512 + 3, 0x789)
    );
}

#[test]
fn x86_64_five_levels() {
    let mut tables = Tables::default();
    tables.put(1, 0x100, 2 << 12 | 7);
    tables.put(2, 1, 3 << 12 | 7);
    tables.put(3, 2, 4 << 12 | 7);
    tables.put(4, 3, 5 << 12 | 7);
    tables.put(5, 4, 0x77 << 12 | 7);
    let deep = address(&[0x100, 1, 2, 3, 4], 8);
    assert_eq!(x86(5).translate(&mut tables, deep), at(0x77, 8));
    assert_eq!(
        x86(4).translate(&mut tables, deep),
        Err(Unmapped::NotCanonical)
    );
}

#[test]
fn x86_64_large_bit_at_the_top_is_not_a_page() {
    let mut tables = Tables::default();
    tables.put(1, 0, 2 << 12 | X86_LARGE | 7);
    assert_eq!(
        x86(4).translate(&mut tables, 0x1000),
        Err(Unmapped::NotPresent)
    );
}

#[test]
fn x86_64_says_why_not() {
    let mut tables = Tables::default();
    tables.put(1, 0, 5000 << 12 | 7);
    let paging = x86(4);
    assert_eq!(
        paging.translate(&mut tables, 0),
        Err(Unmapped::TableOutside)
    );
    assert_eq!(
        paging.translate(&mut tables, 1 << 39),
        Err(Unmapped::NotPresent)
    );
    assert_eq!(
        paging.translate(&mut tables, 1 << 47),
        Err(Unmapped::NotCanonical)
    );
    assert_eq!(
        Paging::Unsupported.translate(&mut tables, 0),
        Err(Unmapped::Mode)
    );
    assert_eq!(Paging::Off.translate(&mut tables, 0x5123), at(5, 0x123));
}

#[test]
fn a_table_that_maps_itself_ends_after_four_words() {
    let mut tables = Tables::default();
    for index in 0..512 {
        tables.put(1, index, 1 << 12 | 7);
    }
    assert_eq!(x86(4).translate(&mut tables, 0x1_2345_6789), at(1, 0x789));
    assert_eq!(tables.reads, 4);
}

/// TCR_EL1 with 4 KiB granules and these sizes.
fn tcr(t0sz: u64, t1sz: u64) -> u64 {
    t0sz | t1sz << 16 | 2 << 30
}

fn arm(tcr: u64) -> Paging {
    Paging::Aarch64 {
        ttbr0: 1 << 12,
        ttbr1: 2 << 12 | 1 << 48, // an address space number in the top bits
        tcr,
    }
}

#[test]
fn aarch64_both_halves_and_block_sizes() {
    let mut tables = Tables::default();
    tables.put(1, 3, 4 << 12 | 3);
    tables.put(4, 5, 6 << 12 | 3);
    tables.put(6, 7, 8 << 12 | 3);
    tables.put(8, 9, 0x60_0000_0000_0000 | 0x4321 << 12 | 0x703);
    tables.put(6, 10, 0x8000_0000 | 0x701);
    tables.put(4, 11, 0x40_0000_0000 | 0x701);
    let paging = arm(tcr(16, 25));
    let page = 3 << 39 | 5 << 30 | 7 << 21 | 9 << 12 | 0xabc;
    assert_eq!(paging.translate(&mut tables, page), at(0x4321, 0xabc));
    let block = 3 << 39 | 5 << 30 | 10 << 21 | 0x1_2345;
    assert_eq!(paging.translate(&mut tables, block), at(0x8_0012, 0x345));
    let giant = 3 << 39 | 11 << 30 | 0x1234_5678;
    assert_eq!(
        paging.translate(&mut tables, giant),
        at(0x40_0000_0000 / 4096 + 0x12345, 0x678)
    );
    // 39 bits: three levels, from all ones down.
    tables.put(2, 1, 0x4000_0000 | 0x701);
    let high = 0xffff_ff80_4008_0000;
    assert_eq!(paging.translate(&mut tables, high), at(0x4_0080, 0));
}

#[test]
fn aarch64_granules_of_16_and_64_kib() {
    let mut tables = Tables::default();
    // 16 KiB, 48 bits: four levels of one bit and three times eleven; a table is four frames.
    tables.put(1, 1, 4 << 12 | 3);
    tables.put(4 + 3, 511, 8 << 12 | 3); // entry 2047 of it
    tables.put(8 + 1, 0, 12 << 12 | 3); // 512
    tables.put(12, 5, 0x4320 << 12 | 0x703);
    tables.put(8 + 1, 1, 0x8200_0000 | 0x701); // a block of 32 MiB
    let paging = arm(tcr(16, 16) | 2 << 14);
    let table = 1 << 47 | 2047 << 36 | 512 << 25;
    let page = table | 5 << 14 | 0x2abc;
    assert_eq!(paging.translate(&mut tables, page), at(0x4322, 0xabc));
    let block = 1 << 47 | 2047 << 36 | 513 << 25 | 0x123_4567;
    assert_eq!(paging.translate(&mut tables, block), at(0x8_3234, 0x567));
    // A block at the level above exists with 4 KiB granules only.
    tables.put(4 + 3, 510, 0x40_0000_0000 | 0x701);
    let above = 1 << 47 | 2046 << 36;
    assert_eq!(
        paging.translate(&mut tables, above),
        Err(Unmapped::NotPresent)
    );

    // 64 KiB in the upper half, 52 bits: three levels of ten bits and twice thirteen.
    let mut tables = Tables::default();
    tables.put(2 + 1, 511, 16 << 12 | 3); // entry 1023
    tables.put(16, 2, 32 << 12 | 3);
    tables.put(32 + 15, 511, 0x5550 << 12 | 0x703); // entry 8191
    tables.put(16, 3, 0x6000_0000 | 0x701); // a block of 512 MiB
    let paging = arm(tcr(25, 12) ^ 1 << 30); // 2 is 4 KiB, 3 is 64
    let upper = 0xfff0_0000_0000_0000 | 1023 << 42;
    let page = upper | 2 << 29 | 8191 << 16 | 0x9def;
    assert_eq!(paging.translate(&mut tables, page), at(0x5559, 0xdef));
    let block = upper | 3 << 29 | 0x1234_5678;
    assert_eq!(paging.translate(&mut tables, block), at(0x7_2345, 0x678));
}

#[test]
fn aarch64_says_why_not() {
    let mut tables = Tables::default();
    let paging = arm(tcr(16, 16));
    assert_eq!(
        paging.translate(&mut tables, 0x1000),
        Err(Unmapped::NotPresent)
    );
    assert_eq!(
        paging.translate(&mut tables, 0x00ff_0000_0000_0000),
        Err(Unmapped::NotCanonical)
    );
    for no_mode in [tcr(16, 16) | 3 << 14, tcr(12, 16), tcr(12, 16) | 2 << 14] {
        assert_eq!(
            arm(no_mode).translate(&mut tables, 0x1000),
            Err(Unmapped::Mode)
        );
    }
    let no_lower_half = arm(tcr(16, 16) | 1 << 7);
    assert_eq!(
        no_lower_half.translate(&mut tables, 0x1000),
        Err(Unmapped::NotPresent)
    );
}

#[test]
fn aarch64_tags_are_ignored_where_the_guest_asks_for_it() {
    let mut tables = Tables::default();
    tables.put(1, 0, 0x4000_0000 | 0x701);
    let tagged = 0x5a00_0000_0000_1234;
    let plain = arm(tcr(25, 25));
    assert_eq!(
        plain.translate(&mut tables, tagged),
        Err(Unmapped::NotCanonical)
    );
    let ignoring = arm(tcr(25, 25) | 1 << 37);
    assert_eq!(ignoring.translate(&mut tables, tagged), at(0x4_0001, 0x234));
}

#[test]
fn arbitrary_memory_ends_in_five_reads() {
    struct Noise(u64, usize);
    impl TableReader for Noise {
        fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
            self.1 += 1;
            assert!(index < 512);
            let mixed =
                (self.0 ^ frame.rotate_left(21) ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 29;
            (self.0 & 15 != 0).then_some(self.0)
        }
    }
    let mut noise = Noise(0x1234_5678, 0);
    for round in 0..200_000u64 {
        let word = round.wrapping_mul(0xd134_2543_de82_ef95);
        let paging = match round % 3 {
            0 => x86(4 + (round / 3 % 2) as u8),
            _ => Paging::Aarch64 {
                ttbr0: word,
                ttbr1: !word,
                tcr: word.rotate_left(17),
            },
        };
        noise.1 = 0;
        if let Ok(found) = paging.translate(&mut noise, word.rotate_right(9)) {
            assert!(found.offset < 4096);
        }
        assert!(noise.1 <= 5);
    }
}

/// As in Linux: the root of the upper half, frame 1, is in a page of the kernel's image.
#[test]
fn the_kernels_own_tables_are_found_where_they_are_mapped() {
    let mut tables = Tables::default();
    let table = |frame: u64| frame << 12 | 3;
    tables.put(1, 0, table(1)); // the lower part, where all memory is, is left out
    tables.put(1, 256, table(2));
    tables.put(1, 300, table(200)); // outside memory
    tables.put(1, 400, table(2));
    tables.put(2, 3, table(3));
    tables.put(3, 4, 1 << 30 | 1); // a block elsewhere
    tables.put(3, 5, table(4));
    tables.put(4, 7, table(1));
    let paging = |tcr| Paging::of_aarch64(1, 0, 0x12_0000_0000_1001, tcr);
    let paging = paging(tcr(16, 16));
    let first: u64 = 0xffff_8000_0000_0000;
    let own = first | 3 << 30 | 5 << 21 | 7 << 12;
    assert_eq!(paging.own_address(&mut tables), Some(own));
    assert_eq!(paging.translate(&mut tables, own), at(1, 0));
    tables.put(3, 4, 1); // a block of 2 MiB with it
    let own = first | 3 << 30 | 4 << 21 | 1 << 12;
    assert_eq!(paging.own_address(&mut tables), Some(own));
    let none = Paging::of_aarch64(1, 0, 0x2000, tcr(16, 16));
    assert_eq!(none.own_address(&mut tables), None);
    for tcr in [tcr(16, 16) | 1 << 23, tcr(16, 12)] {
        let paging = Paging::of_aarch64(1, 0, 0x1000, tcr);
        assert_eq!(paging.own_address(&mut tables), None);
    }
    assert_eq!(x86(4).own_address(&mut tables), None);
}

#[test]
fn the_kernels_own_tables_are_found_in_each_granule() {
    // The size of addresses, the granule field, a page's frames, and the entry of each level down to the root's page.
    let kinds: [(u64, u64, u64, &[usize]); 3] = [
        (39, 2, 1, &[300, 2, 3]),
        (47, 1, 4, &[1030, 5, 6]),
        (48, 3, 16, &[33, 2, 3]),
    ];
    for (bits, field, frames, indices) in kinds {
        let mut tables = Tables::default();
        for (place, &index) in (1..).zip(indices) {
            let next = if place == indices.len() as u64 {
                1
            } else {
                place + 1
            };
            let word = index * 8;
            let frame = place * frames + (word >> 12) as u64;
            tables.put(frame, (word & 0xfff) / 8, (next * frames) << 12 | 3);
        }
        let tcr = tcr(16, 64 - bits) & !(3 << 30) | field << 30;
        let paging = Paging::of_aarch64(1, 0, frames << 12, tcr);
        let own = paging.own_address(&mut tables).unwrap();
        assert_eq!(paging.translate(&mut tables, own), at(frames, 0));
    }
}

#[test]
fn tables_that_lead_to_themselves_are_searched_in_bounds() {
    struct Everywhere(usize);
    impl TableReader for Everywhere {
        fn table_word(&mut self, _: u64, _: usize) -> Option<u64> {
            self.0 += 1;
            Some(2 << 12 | 3)
        }
    }
    let mut tables = Everywhere(0);
    let paging = Paging::of_aarch64(1, 0, 0x1000, tcr(16, 16));
    assert_eq!(paging.own_address(&mut tables), None);
    assert_eq!(tables.0, search::MOST_WORDS);
}

#[test]
fn x86_64_paging_follows_the_control_registers() {
    let mode = |cr0, cr4, long| Paging::of_x86_64(cr0, 0x8000_0000_0000_5fff, cr4, long);
    let on = CR0_PAGING;
    let extended = CR4_PHYSICAL_ADDRESS_EXTENSION;
    assert_eq!(mode(0, 0, false), Paging::Off);
    assert_eq!(mode(on, 0, false), Paging::Unsupported);
    assert_eq!(mode(on, extended, false), Paging::Unsupported);
    let four = Paging::X86_64 { root: 5, levels: 4 };
    assert_eq!(mode(on, extended, true), four);
    let five = mode(on, extended | CR4_FIVE_LEVELS, true);
    assert_eq!(five, Paging::X86_64 { root: 5, levels: 5 });
}

#[test]
fn roots_tell_processes_apart_and_not_their_halves() {
    let paging = Paging::of_x86_64(CR0_PAGING, 1 << 63 | 0x1a2_bfff, 1 << 5, true);
    assert_eq!(paging.root(), Some(0x1a2_b000));
    let arm = Paging::of_aarch64(1, 0x1234_0000_8642_0041, 0, 0);
    assert_eq!(arm.root(), Some(0x8642_0040));
    assert_eq!(Paging::Off.root(), None);
    let (user, kernel) = (Some(0x40_1000), Some(0xffff_ffff_8100_0000));
    let mut isolated = Roots::default();
    assert_eq!(isolated.of(Some(0x8000), kernel), Some(0x8000));
    assert_eq!(isolated.of(Some(0x9000), user), Some(0x8000));
    // Between an interrupt and the switch of tables.
    assert_eq!(isolated.of(Some(0x9000), kernel), Some(0x8000));
    let mut single = Roots::default();
    assert_eq!(single.of(Some(0x8000), user), Some(0x8000));
    assert_eq!(single.of(Some(0x9000), user), Some(0x9000));
    assert_eq!(single.of(None, user), None);
}
