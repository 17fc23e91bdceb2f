//! Stubs of the procedure linkage table. Input: an address in an image. Output: the function, usually another
//! image's, that the stub there jumps to. Stubs have no symbols of their own.

use super::symbol_names::SymbolNames;
use super::{Image, ImageAddress};
use object::elf;
use object::read::elf::SectionHeader;
use object::{LittleEndian, Object, ObjectSection, SymbolIndex};
use std::collections::BTreeMap;
use uprof::Arch;

/// Most relocations of functions of an image that are read; libLLVM has 30,000.
const RELOCATIONS_MAX: usize = 1 << 17;
/// The largest total length of the functions' names, in lengths of the file; many relocations may share one.
const NAMES_PER_FILE: usize = 64;
/// Bytes that are decoded to recognize a stub.
const STUB_BYTES: u64 = 16;
/// The longest stub (bytes): that of aarch64 with branch protection.
const STUB_BYTES_MAX: u64 = 24;
/// Most bytes of all sections that are searched for stubs, of 16 bytes each.
const SECTION_BYTES_MAX: u64 = RELOCATIONS_MAX as u64 * 16;

/// The target of a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'i> {
    /// A function that the loader finds by this name.
    Named(&'i str),
    /// The choice of the indirect function at this address of the same image, such as `memcpy` in the C library.
    Chosen(ImageAddress),
}

/// A stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stub<'i> {
    /// Where it starts.
    pub start: ImageAddress,
    /// How long it is.
    pub size_bytes: u64,
    /// What it jumps to.
    pub target: Target<'i>,
}

/// The most relocations that fit into a file of so many bytes.
pub(crate) fn relocations_of(file_bytes: usize) -> usize {
    file_bytes / size_of::<elf::Rela64<LittleEndian>>()
}

/// The stubs of one image.
#[derive(Debug, Clone)]
pub struct Stubs<'i> {
    image: &'i Image,
    /// By the address of the GOT slot.
    slots: BTreeMap<u64, Target<'i>>,
}

impl<'i> Stubs<'i> {
    /// The stubs of `image`; none if it is statically linked.
    pub fn of(image: &'i Image) -> Stubs<'i> {
        let mut stubs = Stubs {
            image,
            slots: BTreeMap::new(),
        };
        let Some(elf) = image.elf() else { return stubs };
        let symbols = elf.elf_dynamic_symbol_table();
        let file_bytes = image.bytes().len();
        let most_bytes = file_bytes.saturating_mul(NAMES_PER_FILE);
        let mut names = SymbolNames::new(elf.elf_section_table(), symbols, most_bytes);
        // Sections may overlap.
        let mut left = relocations_of(file_bytes);
        for section in elf.elf_section_table().iter() {
            let flags = section.sh_flags.get(LittleEndian);
            // Those of a static program are of its own functions, and refer to another table.
            let relocations = section.rela(LittleEndian, image.bytes());
            let Ok(Some((relocations, _))) = relocations else {
                continue;
            };
            for relocation in relocations
                .iter()
                .filter(|_| flags.contains(elf::SHF_ALLOC))
            {
                if left == 0 {
                    return stubs;
                }
                left -= 1;
                let number = relocation.r_sym(LittleEndian, false);
                let target = if number != 0 {
                    let symbol = symbols.symbol(SymbolIndex(number as usize)).ok();
                    let Some(name) = symbol.map_or(Some(None), |it| names.read(it)) else {
                        return stubs;
                    };
                    name.map(Target::Named)
                } else if is_chosen(image.arch(), relocation.r_type(LittleEndian, false)) {
                    let chooser = relocation.r_addend.get(LittleEndian) as u64;
                    Some(Target::Chosen(ImageAddress(chooser)))
                } else {
                    None
                };
                let slot = relocation.r_offset.get(LittleEndian);
                stubs.slots.extend(target.map(|target| (slot, target)));
                if stubs.slots.len() >= RELOCATIONS_MAX {
                    return stubs;
                }
            }
        }
        stubs
    }

    /// The target of the stub at `address`, if there is one.
    pub fn target(&self, address: ImageAddress) -> Option<Target<'i>> {
        self.target_of(address, self.image.code_at(address, STUB_BYTES)?)
    }

    fn target_of(&self, address: ImageAddress, code: &[u8]) -> Option<Target<'i>> {
        let slot = match self.image.arch() {
            Arch::X86_64 => x86_64_slot(address.0, code),
            Arch::Aarch64 => aarch64_slot(address.0, code),
        };
        self.slots.get(&slot?).copied()
    }

    /// All stubs in the sections for them, ascending in each.
    pub fn all(&self) -> Vec<Stub<'i>> {
        let mut found = Vec::new();
        let Some(elf) = self.image.elf().filter(|_| !self.slots.is_empty()) else {
            return found;
        };
        let mut left_bytes = SECTION_BYTES_MAX;
        for section in elf.sections() {
            let is_for_stubs = section
                .name()
                .is_ok_and(|name| name.starts_with(".plt") || name == ".iplt");
            let flags = section.elf_section_header().sh_flags.get(LittleEndian);
            if !is_for_stubs || !flags.contains(elf::SHF_EXECINSTR) {
                continue;
            }
            let start = section.address();
            let Some(code) = self.image.code_at(ImageAddress(start), left_bytes) else {
                continue;
            };
            left_bytes = left_bytes.saturating_sub(code.len() as u64);
            self.find_in(start, code, &mut found);
        }
        found
    }

    fn find_in(&self, start: u64, code: &[u8], found: &mut Vec<Stub<'i>>) {
        // The size of the shortest stubs, and the alignment of all.
        let step_bytes = match self.image.arch() {
            Arch::X86_64 => 8,
            Arch::Aarch64 => 4,
        };
        let first = found.len();
        for into in (0..code.len()).step_by(step_bytes) {
            let address = ImageAddress(start.wrapping_add(into as u64));
            let Some(target) = self.target_of(address, &code[into..]) else {
                continue;
            };
            let before = found[first..].last_mut();
            if let Some(before) = before {
                let distance = address.0.wrapping_sub(before.start.0);
                before.size_bytes = before.size_bytes.min(distance);
            }
            let left_bytes = (code.len() - into) as u64;
            found.push(Stub {
                start: address,
                size_bytes: left_bytes.min(STUB_BYTES_MAX),
                target,
            });
        }
        // The last one is as long as those before it.
        let longest = found[first..]
            .iter()
            .rev()
            .skip(1)
            .map(|stub| stub.size_bytes);
        let longest = longest.max().unwrap_or(STUB_BYTES);
        if let Some(last) = found[first..].last_mut() {
            last.size_bytes = last.size_bytes.min(longest);
        }
    }
}

fn is_chosen(arch: Arch, kind: elf::RelocationType) -> bool {
    match arch {
        Arch::X86_64 => kind == elf::R_X86_64_IRELATIVE,
        Arch::Aarch64 => kind == elf::R_AARCH64_IRELATIVE,
    }
}

/// The slot of `jmp *slot(%rip)`, which an `endbr64` and a `bnd` may precede (System V ABI,
/// AMD64 supplement, "Procedure Linkage Table").
fn x86_64_slot(address: u64, code: &[u8]) -> Option<u64> {
    let after_mark = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let jump = after_mark.strip_prefix(&[0xf2]).unwrap_or(after_mark);
    let distance = jump.strip_prefix(&[0xff, 0x25])?.first_chunk()?;
    let next = code.len() - jump.len() + 6;
    let next = address.wrapping_add(next as u64);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))))
}

/// The slot of `adrp x16, page; ldr x17, [x16, #within]`, which a `bti c` may precede (AAELF64,
/// "Procedure Linkage Table").
fn aarch64_slot(address: u64, code: &[u8]) -> Option<u64> {
    let word = |number: usize| {
        let bytes = code.get(4 * number..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let first = usize::from(word(0)? == 0xd503_245f);
    let (page, load) = (word(first)?, word(first + 1)?);
    if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    // 21 bits of pages: the lowest two are in bits 29 and 30, the others from bit 5 on.
    let pages = ((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3) << 11;
    let pages = i64::from(pages as i32 >> 11) << 12;
    let here = address.wrapping_add(4 * first as u64) & !0xfff;
    let within = u64::from(load >> 10 & 0xfff) * 8;
    Some(here.wrapping_add_signed(pages).wrapping_add(within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_from_stubs_of_all_forms() {
        // As objdump shows them: _exit@plt of corpus/images/calls; with endbr64 and bnd.
        let plain = [0xff, 0x25, 0xca, 0x2f, 0, 0, 0x68];
        assert_eq!(x86_64_slot(0x1030, &plain), Some(0x4000));
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xc5, 0x2f, 0, 0];
        assert_eq!(x86_64_slot(0x1030, &marked), Some(0x4000));
        assert_eq!(x86_64_slot(0x1030, &plain[..5]), None);
        assert_eq!(x86_64_slot(0x1030, &[0xe9, 0, 0, 0, 0]), None);
        // adrp x16, 0x19f000; ldr x17, [x16, #4088], at 0x27244; with bti c four bytes before.
        let words = [0xd503_245f_u32, 0x9000_0bd0, 0xf947_fe11];
        let code = words.map(u32::to_le_bytes).concat();
        assert_eq!(aarch64_slot(0x27244, &code[4..]), Some(0x19_fff8));
        assert_eq!(aarch64_slot(0x27240, &code), Some(0x19_fff8));
        assert_eq!(aarch64_slot(0x27240, &code[..8]), None);
        // Backwards: adrp x16, -1 page.
        let back = [0xf0ff_fff0_u32, 0xf940_0211]
            .map(u32::to_le_bytes)
            .concat();
        assert_eq!(aarch64_slot(0x27244, &back), Some(0x2_6000));
    }

    #[test]
    fn stubs_of_this_program_lead_to_functions_of_the_c_library() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/images/calls");
        let image = Image::open(std::path::Path::new(path)).unwrap();
        let stubs = Stubs::of(&image);
        let exit = Some(Target::Named("_exit"));
        let clock = Some(Target::Named("clock_gettime"));
        assert_eq!(stubs.target(ImageAddress(0x1030)), exit);
        assert_eq!(stubs.target(ImageAddress(0x1040)), clock);
        assert_eq!(stubs.target(ImageAddress(0x1031)), None);
        assert_eq!(stubs.target(ImageAddress(0x11c1)), None);
        assert_eq!(stubs.target(ImageAddress(u64::MAX)), None);
        let all = stubs.all();
        let known: Vec<_> = all
            .iter()
            .filter(|stub| Some(stub.target) == clock)
            .collect();
        assert_eq!(known.len(), 1);
        assert_eq!((known[0].start.0, known[0].size_bytes), (0x1040, 16));
    }
}
