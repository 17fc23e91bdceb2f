//! Function symbols of an ELF image. Input: `.symtab`, `.dynsym`, the packed `.gnu_debugdata`, Go's table, a kernel's
//! kallsyms and the procedure linkage table. Output: a table, without data symbols and assemblers' mapping symbols.

use super::demangle::STUB_ENDING;
use super::go::GoFunctions;
use super::local::is_mark;
use super::text::Line;
use super::{Candidate, SymbolTable};
use crate::images::call_frames::function_ranges;
use crate::images::symbol_names::SymbolNames;
use crate::images::{Image, Stub, Stubs, Target};
use object::elf;
use object::read::elf::{ElfFile64, Sym, SymbolTable as ElfSymbols};
use object::{LittleEndian, SymbolIndex};
use std::borrow::Cow;
use std::collections::BTreeMap;
use uprof::alias::{Alias, Binding, Kind, unversioned};

type Header = elf::FileHeader64<LittleEndian>;

/// Most symbols of one image that are read; Chromium has 1.5 million.
const SYMBOLS_MAX: usize = 16_000_000;

/// The largest total length of an image's names, in lengths of its file: linkers write each once, or as the end of
/// another. More is not read.
const NAMES_PER_FILE: usize = 4;

/// The last function of gcc's crtbegin.o, before the program's own: a jump on x86 and a branch on Arm. It has no
/// size, and the code without names after it must not get its name (GHC's code, 45 % of a program's samples).
const LAST_OF_CRTSTUFF: &str = "frame_dummy";
const LAST_BYTES: u64 = 16;

impl SymbolTable {
    /// The functions that `image` names, in `.symtab` and `.dynsym`. A damaged or missing table gives fewer symbols,
    /// never an error: the report then shows module and offset.
    pub fn from_image(image: &Image) -> SymbolTable {
        SymbolTable::from_images(&[image])
    }

    /// The functions that several files of one build name: an image, and its debug file.
    pub fn from_images(images: &[&Image]) -> SymbolTable {
        SymbolTable::with_functions(images, None)
    }

    /// The same; `functions` are the ranges that the first of them has unwind rules for, if they are known already:
    /// it takes long to list those of a large library.
    pub(crate) fn with_functions(
        images: &[&Image],
        functions: Option<Vec<(u64, u64)>>,
    ) -> SymbolTable {
        let has_all = |image: &&Image| image.section_range(".symtab").is_some();
        // The rest in the image has nothing that the whole table doesn't.
        let stripped = images.first().filter(|_| !images.iter().any(has_all));
        let packed = stripped.and_then(|image| image.debugdata());
        let files = images.iter().copied().chain(&packed);
        let files: Vec<_> = files.filter_map(Image::elf).collect();
        let mut candidates = Vec::new();
        let mut borders = Vec::new();
        if let Some(kallsyms) = stripped.and_then(|image| image.kallsyms()) {
            kallsyms.each(|address, symbol| {
                let line = Line {
                    address,
                    size_bytes: 0,
                    kind: u8::try_from(symbol.kind).unwrap_or(b'?'),
                    name: Cow::Owned(symbol.name),
                };
                line.take(&mut candidates, &mut borders);
            });
        }
        if let Some(functions) = stripped.and_then(|image| GoFunctions::of(image)) {
            candidates.extend(functions.all().take(SYMBOLS_MAX).map(of_go));
        }
        for file in &files {
            collect(file, file.elf_symbol_table(), &mut candidates);
            collect(file, file.elf_dynamic_symbol_table(), &mut candidates);
        }
        if let Some(image) = images.first() {
            let stubs = stubs(&Stubs::of(image).all(), &candidates);
            candidates.extend(stubs);
            candidates.extend(unnamed(functions.unwrap_or_else(|| function_ranges(image))));
        }
        SymbolTable::build(candidates, borders)
    }
}

fn of_go((start, end, name): (u64, u64, &str)) -> Candidate<'_> {
    Candidate {
        address: start,
        size_bytes: end - start,
        limit: end,
        kind: Kind::Function,
        binding: Binding::Global,
        name: Cow::Borrowed(name),
    }
}

/// The names of stubs of the procedure linkage table: `read@plt`.
fn stubs<'a>(stubs: &[Stub<'_>], named: &[Candidate<'_>]) -> Vec<Candidate<'a>> {
    let chosen = stubs.iter().filter_map(|stub| match stub.target {
        Target::Chosen(address) => Some((address.0, None)),
        Target::Named(_) => None,
    });
    let mut chosen: BTreeMap<u64, Option<Alias<'_>>> = chosen.collect();
    for candidate in named {
        if let Some(best) = chosen.get_mut(&candidate.address) {
            let alias = candidate.alias();
            let better = best.is_none_or(|best| alias.compare(&best).is_lt());
            *best = if better { Some(alias) } else { *best };
        }
    }
    let candidates = stubs.iter().filter_map(|stub| {
        let name = match stub.target {
            Target::Named(name) => name,
            Target::Chosen(address) => chosen.get(&address.0).copied().flatten()?.name,
        };
        (!name.is_empty()).then(|| Candidate {
            address: stub.start.0,
            size_bytes: stub.size_bytes,
            limit: u64::MAX,
            kind: Kind::Label,
            binding: Binding::Local,
            name: Cow::Owned(format!("{name}{STUB_ENDING}")),
        })
    });
    candidates.collect()
}

/// The functions that are known only from unwind rules, with empty names.
fn unnamed<'a>(ranges: Vec<(u64, u64)>) -> impl Iterator<Item = Candidate<'a>> {
    ranges
        .into_iter()
        .take(SYMBOLS_MAX)
        .map(|(start, end)| Candidate {
            address: start,
            size_bytes: end - start,
            limit: end,
            kind: Kind::Label,
            binding: Binding::Local,
            name: Cow::Borrowed(""),
        })
}

fn collect<'data>(
    file: &ElfFile64<'data, LittleEndian>,
    symbols: &ElfSymbols<'data, Header>,
    candidates: &mut Vec<Candidate<'data>>,
) {
    let sections = file.elf_section_table();
    let most_bytes = file.data().len().saturating_mul(NAMES_PER_FILE);
    let mut names = SymbolNames::new(sections, symbols, most_bytes);
    for (index, symbol) in symbols.iter().enumerate() {
        if candidates.len() >= SYMBOLS_MAX {
            break;
        }
        let kind = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => Kind::Function,
            // GHC's code begins with its tables.
            elf::STT_OBJECT => Kind::Object,
            elf::STT_NOTYPE => Kind::Label,
            _ => continue,
        };
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
            // An absolute symbol can be code only if its type is a function.
            None if kind != Kind::Function => continue,
            None => u64::MAX,
        };
        let Some(name) = names.read(symbol) else {
            break;
        };
        let Some(name) = name else {
            continue;
        };
        if is_mark(name) {
            continue;
        }
        let limit = match name {
            LAST_OF_CRTSTUFF => {
                limit.min(symbol.st_value.get(LittleEndian).saturating_add(LAST_BYTES))
            }
            _ => limit,
        };
        // Linkers put symbols such as `_end` after the last section.
        if symbol.st_value.get(LittleEndian) >= limit {
            continue;
        }
        candidates.push(Candidate {
            address: symbol.st_value.get(LittleEndian),
            size_bytes: symbol.st_size.get(LittleEndian),
            limit,
            kind,
            binding: match symbol.st_bind() {
                elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => Binding::Global,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Local,
            },
            name: Cow::Borrowed(unversioned(name)),
        });
    }
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
