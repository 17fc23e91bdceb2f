//! The tables that only a Linux kernel's image has. Input: an image. Output: its kallsyms, its ORC, and where its
//! code is patched when it starts.

use super::{Image, ImageAddress};
use std::borrow::Cow;
use uniprof_linux::{Kallsyms, Kernel, KernelMemory, Orc, find};
use uprof::cpu::is_kernel_address;

/// The part of an image to search for kallsyms (bytes); Debian's kernel has 40 MiB of code and data.
const SEARCHED_BYTES_MAX: u64 = 512 << 20;
/// Most candidates for the start of kallsyms.
const ATTEMPTS_MAX: usize = 16;

/// A kernel's memory, read from its image.
struct Loaded<'i>(&'i Image);

impl KernelMemory for Loaded<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let holds = |start: u64, bytes: u64| address.wrapping_sub(start) < bytes;
        let mut segments = self.0.segments().iter();
        let segment = segments.find(|segment| holds(segment.address, segment.file_bytes));
        let Some(segment) = segment else { return 0 };
        let left_bytes = segment.file_bytes - (address - segment.address);
        let length_bytes = left_bytes.min(into.len() as u64);
        match self.0.bytes_at(ImageAddress(address), length_bytes) {
            Some(bytes) => {
                into[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            None => 0,
        }
    }
}

impl Image {
    /// The kernel's own symbol table, which `strip` leaves.
    pub(crate) fn kallsyms(&self) -> Option<Kallsyms> {
        // Only a kernel has a table of its exports to modules.
        self.section_range("__ksymtab")?;
        let mut memory = Loaded(self);
        let (mut left_bytes, mut left_attempts) = (SEARCHED_BYTES_MAX, ATTEMPTS_MAX);
        let segments = self.segments().iter();
        let mut segments = segments.filter(|segment| is_kernel_address(segment.address));
        segments.find_map(|segment| {
            let length_bytes = segment.file_bytes.min(left_bytes);
            left_bytes -= length_bytes;
            let mut kernel = None;
            let mut look = |memory: &mut dyn KernelMemory, digits| {
                let may_try = left_attempts > 0;
                left_attempts -= usize::from(may_try);
                kernel = may_try.then(|| Kernel::read(memory, digits).ok()).flatten();
                kernel.is_some() || !may_try
            };
            find(&mut memory, segment.address, length_bytes, &mut look);
            kernel.map(|kernel| kernel.kallsyms)
        })
    }

    /// A kernel's unwind rules.
    pub(crate) fn orc(&self) -> Option<Orc> {
        let places = self.section(".orc_unwind_ip")?.into_owned();
        let rules = self.section(".orc_unwind")?.into_owned();
        let (places_at, _) = self.section_range(".orc_unwind_ip")?;
        Orc::new(places_at.0, places, rules)
    }
}

/// An x86 kernel's tables of code that is patched at boot: the section's name, the size of an entry, the number of
/// patched bytes. Each entry begins with the place, as an i32 relative to its own address
/// (arch/x86/kernel/alternative.c, include/linux/jump_label.h and static_call_types.h of Linux).
const SITES: [(&str, usize, u64); 6] = [
    (".return_sites", 4, 5),
    // A conditional branch takes one more byte.
    (".retpoline_sites", 4, 6),
    (".call_sites", 4, 5),
    (".smp_locks", 4, 1),
    ("__jump_table", 16, 5),
    (".static_call_sites", 8, 5),
];
/// `struct paravirt_patch_site` of Linux up to 6.7: has an absolute address and the number of bytes.
const PARAVIRT: (&str, usize, usize) = (".parainstructions", 16, 9);
/// `struct alt_instr` of Linux up to 5.12, up to 6.2, and later: its size, and the offset of the number of bytes.
const ALTERNATIVES: (&str, [(usize, usize); 3]) =
    (".altinstructions", [(13, 10), (12, 10), (14, 12)]);
/// Entries that determine a layout.
const LOOKED_AT: usize = 1000;
/// Most entries of one table; Debian's kernel has 60,000 of returns.
const PLACES_MAX: usize = 1 << 20;

/// Code that a kernel patches when it starts: ranges of addresses, ascending by start.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenOver(Vec<(u64, u64)>);

impl WrittenOver {
    /// Whether one of them contains `address`.
    pub(super) fn contains(&self, address: u64) -> bool {
        let behind = self.0.partition_point(|&(start, _)| start <= address);
        // None is longer than 255 bytes, and most are 5: of overlapping ones a few are checked.
        let near = self.0[..behind].iter().rev().take(4);
        near.into_iter()
            .any(|&(start, bytes)| address - start < bytes)
    }

    pub(super) fn of(image: &Image) -> WrittenOver {
        let mut places = Vec::new();
        for (name, each, bytes) in SITES {
            let Some((section, at)) = table(image, name) else {
                continue;
            };
            let starts = relative(&section, at, each);
            places.extend(starts.map(|start| (start, bytes)));
        }
        let (name, each, length_at) = PARAVIRT;
        if let Some((section, _)) = table(image, name) {
            let entries = section.chunks_exact(each).take(PLACES_MAX);
            places.extend(entries.filter_map(|entry| {
                let start = entry.first_chunk().copied().map(u64::from_le_bytes)?;
                Some((start, u64::from(entry[length_at])))
            }));
        }
        let (name, layouts) = ALTERNATIVES;
        if let Some((section, at)) = table(image, name) {
            let is_sound = |each: &usize| {
                let mut starts = relative(&section, at, *each).take(LOOKED_AT);
                section.len().is_multiple_of(*each)
                    && starts.all(|start| image.segments().is_code(ImageAddress(start)))
            };
            if let Some((each, length_at)) = layouts.into_iter().find(|(each, _)| is_sound(each)) {
                let lengths = section
                    .chunks_exact(each)
                    .map(|entry| u64::from(entry[length_at]));
                places.extend(relative(&section, at, each).zip(lengths));
            }
        }
        places.sort_unstable();
        WrittenOver(places)
    }
}

fn table<'i>(image: &'i Image, name: &str) -> Option<(Cow<'i, [u8]>, u64)> {
    let (at, _) = image.section_range(name)?;
    Some((image.section(name)?, at.0))
}

/// The places that entries of `each` bytes begin with, the first entry at address `at`; at most [`PLACES_MAX`].
fn relative(section: &[u8], at: u64, each: usize) -> impl Iterator<Item = u64> + '_ {
    let entries = section.chunks_exact(each).enumerate();
    entries.take(PLACES_MAX).filter_map(move |(index, entry)| {
        let own = at.wrapping_add((index * each) as u64);
        let step = entry.first_chunk().copied().map(i32::from_le_bytes)?;
        Some(own.wrapping_add_signed(i64::from(step)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cpu::KERNEL_HALF;

    #[test]
    fn places_that_a_kernel_writes_over_up_to_the_last_and_past_it() {
        let entries = vec![0; (PLACES_MAX + 1) * 4];
        let places = |count: usize| relative(&entries[..count * 4], 0x1000, 4);
        assert_eq!(places(PLACES_MAX).count(), PLACES_MAX);
        let last = places(PLACES_MAX + 1).last();
        assert_eq!(last, Some(0x1000 + 4 * (PLACES_MAX as u64 - 1)));
    }

    /// An image with one segment in the kernel's half, which holds `data`, and a section __ksymtab.
    fn image(data: &[u8]) -> Image {
        const NAMES: &[u8] = b"\0__ksymtab\0.shstrtab\0";
        const HEADERS_BYTES: usize = 64 + 56 + 3 * 64;
        let start = HEADERS_BYTES + NAMES.len();
        let mut file = Vec::new();
        file.extend(b"\x7fELF\x02\x01\x01");
        file.resize(16, 0);
        let put = |file: &mut Vec<u8>, number: u64, bytes: usize| {
            file.extend(&number.to_le_bytes()[..bytes]);
        };
        // e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum,
        // e_shentsize, e_shnum, e_shstrndx
        let header = [
            (2, 2),
            (62, 2),
            (1, 4),
            (0, 8),
            (64, 8),
            (120, 8),
            (0, 4),
            (64, 2),
            (56, 2),
            (1, 2),
            (64, 2),
            (3, 2),
            (2, 2),
        ];
        header
            .iter()
            .for_each(|&(number, bytes)| put(&mut file, number, bytes));
        let length = data.len() as u64;
        // p_type and p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align
        let segment = [
            5 << 32 | 1,
            start as u64,
            KERNEL_HALF,
            0,
            length,
            length,
            4096,
        ];
        segment.iter().for_each(|&number| put(&mut file, number, 8));
        file.extend([0; 64]);
        // sh_name and sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link and sh_info, sh_addralign, sh_entsize
        let names = NAMES.len() as u64;
        for section in [
            [1 << 32 | 1, 2, KERNEL_HALF, start as u64, 8, 0, 1, 0],
            [3 << 32 | 11, 0, 0, HEADERS_BYTES as u64, names, 0, 1, 0],
        ] {
            section.iter().for_each(|&number| put(&mut file, number, 8));
        }
        file.extend(NAMES);
        file.extend(data);
        Image::from_bytes("kernel", file).unwrap()
    }

    #[test]
    fn an_image_full_of_what_looks_like_kallsyms_is_given_up() {
        let digits = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
        let image = image(&digits.repeat(1 << 16));
        let mut places = 0;
        let mut count = |_: &mut dyn KernelMemory, _| {
            places += 1;
            false
        };
        find(&mut Loaded(&image), KERNEL_HALF, 1 << 20, &mut count);
        assert!(places > 1000, "{places} places");
        assert!(image.kallsyms().is_none());
    }

    #[test]
    fn what_a_kernel_writes_over_is_found_by_its_tables() {
        let places = WrittenOver(vec![(10, 5), (20, 1), (20, 6)]);
        let found: Vec<u64> = (0..40).filter(|at| places.contains(*at)).collect();
        assert_eq!(found, [10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25]);
        let section: Vec<u8> = [-8_i32, 12, 100]
            .iter()
            .flat_map(|step| step.to_le_bytes())
            .collect();
        let found: Vec<u64> = relative(&section, 1000, 4).collect();
        assert_eq!(found, [992, 1016, 1108]);
    }
}
