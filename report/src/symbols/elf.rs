//! Function symbols of an ELF image: `.symtab` and `.dynsym` go in, a table comes out.
//! Says nothing about data, and skips the assembler's own marks.

use super::{Candidate, SymbolTable};
use crate::images::Image;
use object::elf;
use object::read::elf::{ElfFile64, Sym, SymbolTable as ElfSymbols};
use object::{LittleEndian, SymbolIndex};

type Header = elf::FileHeader64<LittleEndian>;

/// Symbols of one image beyond this many are ignored; Chromium has 1.5 million.
const SYMBOLS_MAX: usize = 16_000_000;

impl SymbolTable {
    /// The functions that `image` names: `.symtab` where it has one, `.dynsym` besides.
    /// A damaged or missing table gives fewer symbols, never an error: the report then shows
    /// module and offset.
    pub fn from_image(image: &Image) -> SymbolTable {
        SymbolTable::from_images(&[image])
    }

    /// The functions that several files of one build name together: an image, and the debug file
    /// that was split off it.
    pub fn from_images(images: &[&Image]) -> SymbolTable {
        let files: Vec<_> = images.iter().filter_map(|image| image.elf()).collect();
        let mut candidates = Vec::new();
        for file in &files {
            collect(file, file.elf_symbol_table(), &mut candidates);
            collect(file, file.elf_dynamic_symbol_table(), &mut candidates);
        }
        if let Some(image) = images.first() {
            candidates.extend(unnamed(image));
        }
        SymbolTable::build(candidates, Vec::new())
    }
}

/// The functions that a stripped image only says how to unwind: their names are empty.
fn unnamed<'a>(image: &Image) -> impl Iterator<Item = Candidate<'a>> + use<'a> {
    let ranges = crate::unwind::function_ranges(image).into_iter();
    ranges.take(SYMBOLS_MAX).map(|(start, end)| Candidate {
        address: start,
        size_bytes: end - start,
        limit: end,
        rank: 0,
        name: "",
    })
}

fn collect<'data>(
    file: &ElfFile64<'data, LittleEndian>,
    symbols: &ElfSymbols<'data, Header>,
    candidates: &mut Vec<Candidate<'data>>,
) {
    let sections = file.elf_section_table();
    for (index, symbol) in symbols.iter().enumerate() {
        if candidates.len() >= SYMBOLS_MAX {
            break;
        }
        let kind = symbol.st_type();
        if !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE) {
            continue;
        }
        if symbol.is_undefined(LittleEndian) {
            continue;
        }
        let Ok(index) = symbols.symbol_section(LittleEndian, symbol, SymbolIndex(index)) else {
            continue;
        };
        let section = index.and_then(|index| sections.section(index).ok());
        let limit = match section {
            Some(section) => {
                let flags = section.sh_flags.get(LittleEndian);
                if !flags.contains(elf::SHF_EXECINSTR) {
                    continue;
                }
                let start = section.sh_addr.get(LittleEndian);
                start.saturating_add(section.sh_size.get(LittleEndian))
            }
            // An absolute address can be code only if it says that it is a function.
            None if kind == elf::STT_NOTYPE => continue,
            None => u64::MAX,
        };
        let Ok(name) = symbol.name(LittleEndian, symbols.strings()) else {
            continue;
        };
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        if is_mark(name) {
            continue;
        }
        candidates.push(Candidate {
            address: symbol.st_value.get(LittleEndian),
            size_bytes: symbol.st_size.get(LittleEndian),
            limit,
            rank: rank(kind, symbol.st_bind()),
            name,
        });
    }
}

/// Mapping symbols (`$a $t $d $x`, AAELF64 "Mapping symbols") and assembler-local labels.
fn is_mark(name: &str) -> bool {
    let bytes = name.as_bytes();
    let is_mapping = matches!(bytes, [b'$', b'a' | b't' | b'd' | b'x'])
        || matches!(bytes, [b'$', b'a' | b't' | b'd' | b'x', b'.', ..]);
    name.is_empty() || is_mapping || name.starts_with(".L")
}

/// Functions before labels, exported names before local ones.
fn rank(kind: elf::SymbolType, binding: elf::SymbolBind) -> u8 {
    let is_function = u8::from(kind != elf::STT_NOTYPE);
    let binding = match binding {
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 2,
        elf::STB_WEAK => 1,
        _ => 0,
    };
    is_function * 4 + binding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::ImageAddress;

    #[test]
    fn a_function_of_this_program_is_found_by_name_and_address() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let table = SymbolTable::from_image(&image);
        assert!(table.len() > 1000, "{} symbols", table.len());
        let main = table.address_of("main").expect("no main");
        let found = table.find(ImageAddress(main.0 + 1)).unwrap();
        assert_eq!(
            (found.name, found.start, found.offset_bytes),
            ("main", main, 1)
        );
    }

    #[test]
    fn marks_are_known_from_names() {
        for mark in ["", "$x", "$d", "$t.17", ".L42"] {
            assert!(is_mark(mark), "{mark}");
        }
        for name in ["$", "$xyz", "main", "x$d", ".plt"] {
            assert!(!is_mark(name), "{name}");
        }
    }

    #[test]
    fn every_cut_of_an_image_gives_some_table() {
        let whole = Image::open(&std::env::current_exe().unwrap())
            .unwrap()
            .bytes()
            .to_vec();
        for length_bytes in (0..whole.len()).step_by(whole.len() / 40) {
            if let Ok(image) = Image::from_bytes("cut", whole[..length_bytes].to_vec()) {
                let _ = SymbolTable::from_image(&image);
            }
        }
    }
}
