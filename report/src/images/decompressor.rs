//! The code before a compressed kernel for x86: it unpacks the kernel, and is gone when that runs. Input: a bzImage.
//! Output: an ELF file with that code as one function, since nothing says where its functions begin.

use object::elf::{EM_X86_64, ET_DYN, PF_R, PF_X, PT_LOAD, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB};
use std::ops::Range;

/// What its only function is called.
const NAME: &str = "decompressor";
/// Names of sections, at 1, 7, 15 and 23.
const SECTION_NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0";
/// A page, on which the code begins in the file, as it does in memory.
const CODE_AT: u64 = 4096;
const HEADER_BYTES: u16 = 64;
const PROGRAM_BYTES: u16 = 56;
const SECTION_BYTES: u16 = 64;
const SYMBOL_BYTES: u64 = 24;
const ALLOCATED_CODE: u64 = 6;
const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;

/// An ELF file of `code`, which is packed data at `payload`, and instructions before and after it.
pub(super) fn image(code: &[u8], payload: Range<usize>) -> Vec<u8> {
    let mut symbols = vec![0; SYMBOL_BYTES as usize];
    let name = SECTION_NAMES.len() as u32;
    let parts = [0..payload.start, payload.end..code.len()];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        symbols.extend(name.to_le_bytes());
        symbols.extend([GLOBAL_FUNCTION, 0, 1, 0]);
        symbols.extend((part.start as u64).to_le_bytes());
        symbols.extend((part.len() as u64).to_le_bytes());
    }
    let names = [SECTION_NAMES, NAME.as_bytes(), b"\0"].concat();
    let symbols_at = CODE_AT + code.len() as u64;
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = names_at + names.len() as u64;
    let mut file = header(sections_at);
    words(
        &mut file,
        &[u64::from(PT_LOAD.0) | u64::from(PF_R.0 | PF_X.0) << 32],
    );
    let length = code.len() as u64;
    words(&mut file, &[CODE_AT, 0, 0, length, length, CODE_AT]);
    file.resize(CODE_AT as usize, 0);
    file.extend_from_slice(code);
    file.extend(&symbols);
    file.extend(&names);
    file.extend([0; SECTION_BYTES as usize]);
    let names_bytes = names.len() as u64;
    let sections = [
        (1, SHT_PROGBITS, ALLOCATED_CODE, CODE_AT, length, 0_u64, 0),
        // Its names are in the next section, and no symbol is local but the first.
        (
            7,
            SHT_SYMTAB,
            0,
            symbols_at,
            symbols.len() as u64,
            3 | 1 << 32,
            SYMBOL_BYTES,
        ),
        (15, SHT_STRTAB, 0, names_at, names_bytes, 0, 0),
    ];
    for (name, kind, flags, offset, bytes, link, each) in sections {
        words(
            &mut file,
            &[
                name | u64::from(kind.0) << 32,
                flags,
                0,
                offset,
                bytes,
                link,
                1,
                each,
            ],
        );
    }
    file
}

fn header(sections_at: u64) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(ET_DYN.0.to_le_bytes());
    file.extend(EM_X86_64.0.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    words(&mut file, &[0, u64::from(HEADER_BYTES), sections_at]);
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER_BYTES, PROGRAM_BYTES, 1, SECTION_BYTES, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    file
}

fn words(file: &mut Vec<u8>, words: &[u64]) {
    words
        .iter()
        .for_each(|word| file.extend(word.to_le_bytes()));
}
