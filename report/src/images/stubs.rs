//! Stubs of the procedure linkage table: an address in an image goes in, the function of another
//! image comes out that the stub there jumps to. Stubs have no symbols of their own.

use super::{Image, ImageAddress};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use std::collections::BTreeMap;
use uprof::Arch;

/// Relocations of an image beyond this many are ignored; libLLVM has 30,000 functions to find.
const RELOCATIONS_MAX: usize = 1 << 17;
/// What a stub takes (bytes).
const STUB_BYTES: u64 = 16;

/// The stubs of one image.
#[derive(Debug, Clone)]
pub struct Stubs<'i> {
    image: &'i Image,
    /// By the address of the word that the loader writes the function's address to.
    slots: BTreeMap<u64, &'i str>,
}

impl<'i> Stubs<'i> {
    /// The stubs of `image`; none where it is not linked dynamically.
    pub fn of(image: &'i Image) -> Stubs<'i> {
        let mut slots = BTreeMap::new();
        let elf = image.elf();
        let tables = elf
            .as_ref()
            .and_then(|elf| Some((elf.dynamic_relocations()?, elf.dynamic_symbol_table()?)));
        if let Some((relocations, symbols)) = tables {
            for (slot, relocation) in relocations.take(RELOCATIONS_MAX) {
                let RelocationTarget::Symbol(index) = relocation.target() else {
                    continue;
                };
                let symbol = symbols.symbol_by_index(index);
                if let Ok(name) = symbol.and_then(|symbol| symbol.name()) {
                    slots.insert(slot, name);
                }
            }
        }
        Stubs { image, slots }
    }

    /// The function that the stub at `address` jumps to, if there is a stub.
    pub fn function(&self, address: ImageAddress) -> Option<&'i str> {
        let code = self.image.code_at(address, STUB_BYTES)?;
        let slot = match self.image.arch() {
            Arch::X86_64 => x86_64_slot(address.0, code),
            Arch::Aarch64 => aarch64_slot(address.0, code),
        };
        self.slots.get(&slot?).copied()
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
        assert_eq!(stubs.function(ImageAddress(0x1030)), Some("_exit"));
        assert_eq!(stubs.function(ImageAddress(0x1040)), Some("clock_gettime"));
        assert_eq!(stubs.function(ImageAddress(0x1031)), None);
        assert_eq!(stubs.function(ImageAddress(0x11c1)), None);
        assert_eq!(stubs.function(ImageAddress(u64::MAX)), None);
    }
}
