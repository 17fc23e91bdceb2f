//! Calls that Go's compiler inlined. They are described outside the function table, behind a pointer in
//! `runtime.moduledata`, which has no symbol in a stripped program: it is found by its first words, which point to
//! parts of the table.

use super::tables::{Tables, Version, u32_at, u64_at};
use crate::images::{Image, ImageAddress, relocations_of};
use object::elf;
use object::read::elf::SectionHeader;
use object::{LittleEndian, Object, ObjectSection};
use std::collections::BTreeMap;

/// Most relocated words of a position-independent program that are read; kubelet has 600,000.
const FILLED_MAX: usize = 4 << 20;

/// Numbers of the table of values with an instruction's call, and of the data that describes the calls (internal/abi:
/// PCDATA_InlTreeIndex, FUNCDATA_InlTree).
const CALL_VALUES: usize = 2;
const CALL_DATA: usize = 3;

/// Words of `runtime.moduledata`: the start of code, and the data of functions.
const TEXT_WORD: u64 = 22;
const DATA_WORD: [(Version, u64); 2] = [(Version::Go118, 38), (Version::Go120, 40)];

/// An inlined call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Offset of the function's name.
    pub name: usize,
    /// The line on which that function starts; 0 before Go 1.20.
    pub start_line: u32,
    pub parent: Parent,
}

/// The origin of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parent {
    /// Where this instruction (bytes from the function's start) belongs.
    At(u32),
    /// That call, if it is one, at this file and line.
    Call(i32, (i32, u32)),
}

/// The inlined calls of one image.
#[derive(Debug)]
pub(super) struct Calls<'i> {
    image: &'i Image,
    text_start: Option<u64>,
    /// Where the data of functions is.
    data: Option<u64>,
}

impl<'i> Calls<'i> {
    /// Those of `image`, whose function table is `table` at `address`.
    pub(crate) fn of(image: &'i Image, address: ImageAddress, table: &[u8]) -> Calls<'i> {
        let mut calls = Calls {
            image,
            text_start: None,
            data: None,
        };
        let layout = match u32_at(table, 0) {
            Some(0xffff_fff0) => DATA_WORD[0],
            Some(0xffff_fff1) => DATA_WORD[1],
            _ => return calls,
        };
        // The second word of the record points to the names, whose offset is the header's word 3.
        let words = Words::of(image);
        let names = u64_at(table, 32).map(|offset| address.0.wrapping_add(offset));
        let Some(record) = names.and_then(|names| words.find(address.0, names)) else {
            return calls;
        };
        let word = |number: u64| words.at(record.wrapping_add(8 * number));
        calls.text_start = word(TEXT_WORD);
        calls.data = word(layout.1).filter(|data| *data != 0);
        calls
    }

    pub(crate) fn text_start(&self) -> Option<u64> {
        self.text_start.filter(|start| *start != 0)
    }

    /// The innermost call of the instruction `into_bytes` from the start of the function described at `at`.
    pub(crate) fn innermost(
        &self,
        tables: &Tables<'_>,
        at: usize,
        into_bytes: u64,
    ) -> Option<Call> {
        self.data?;
        let count = tables.field(at, Tables::VALUES)? as usize;
        if CALL_VALUES >= count {
            return None;
        }
        let first = first_values(tables.version);
        let table = tables.field(at, first + CALL_VALUES)?;
        let number = tables.value(table as usize, into_bytes)?;
        self.call(tables, at, number)
    }

    /// Call `number` of the function described at `at`.
    pub(crate) fn call(&self, tables: &Tables<'_>, at: usize, number: i32) -> Option<Call> {
        let number = u64::try_from(number).ok()?;
        let count = tables.field(at, Tables::VALUES)? as usize;
        let first = first_values(tables.version);
        // It is the last of the four bytes before the tables of values.
        let data = tables.field(at, first - 1)?.to_le_bytes()[3];
        if CALL_DATA >= usize::from(data) {
            return None;
        }
        let offset = tables.field(at, first.checked_add(count)?.checked_add(CALL_DATA)?)?;
        if offset == u32::MAX {
            return None;
        }
        let calls = self.data?.checked_add(u64::from(offset))?;
        let call = |bytes: u64| {
            let start = calls.checked_add(number.checked_mul(bytes)?)?;
            self.image.bytes_at(ImageAddress(start), bytes)
        };
        match tables.version {
            Version::Go120 => {
                let call = call(16)?;
                Some(Call {
                    name: u32_at(call, 4)? as usize,
                    start_line: u32_at(call, 12)?,
                    parent: Parent::At(u32_at(call, 8)?),
                })
            }
            _ => {
                let call = call(20)?;
                let parent = i16::from_le_bytes(*call.first_chunk()?);
                let (file, line) = (u32_at(call, 4)? as i32, u32_at(call, 8)?);
                Some(Call {
                    name: u32_at(call, 12)? as usize,
                    start_line: 0,
                    parent: Parent::Call(i32::from(parent), (file, line)),
                })
            }
        }
    }
}

/// Number of the first field of the tables of values; Go 1.20 put the first line before it.
fn first_values(version: Version) -> usize {
    match version {
        Version::Go120 => 10,
        _ => 9,
    }
}

/// Words of a program's data, as relocated.
struct Words<'i> {
    image: &'i Image,
    /// Relocated words, by address.
    filled: BTreeMap<u64, u64>,
}

impl<'i> Words<'i> {
    fn of(image: &'i Image) -> Words<'i> {
        let mut filled = BTreeMap::new();
        let elf = image.elf().filter(|_| image.is_position_independent());
        // Sections may overlap.
        let mut left = relocations_of(image.bytes().len());
        let sections = elf.iter().flat_map(|elf| elf.elf_section_table().iter());
        for section in sections {
            let Ok(Some((relocations, _))) = section.rela(LittleEndian, image.bytes()) else {
                continue;
            };
            for relocation in relocations.iter().take(left) {
                let kind = relocation.r_type(LittleEndian, false);
                let known = [elf::R_X86_64_RELATIVE, elf::R_AARCH64_RELATIVE];
                if known.contains(&kind) && filled.len() < FILLED_MAX {
                    let value = relocation.r_addend.get(LittleEndian) as u64;
                    filled.insert(relocation.r_offset.get(LittleEndian), value);
                }
            }
            left = left.saturating_sub(relocations.len());
        }
        Words { image, filled }
    }

    fn at(&self, address: u64) -> Option<u64> {
        let filled = self.filled.get(&address).copied();
        filled.or_else(|| u64_at(self.image.bytes_at(ImageAddress(address), 8)?, 0))
    }

    /// The address of two words with these values.
    fn find(&self, first: u64, second: u64) -> Option<u64> {
        let is_it = |address: &u64| self.at(address.wrapping_add(8)) == Some(second);
        let filled = self.filled.iter().filter(|(_, value)| **value == first);
        let filled = filled.map(|(address, _)| *address).find(is_it);
        filled.or_else(|| {
            let elf = self.image.elf()?;
            elf.sections().find_map(|section| {
                let flags = section.elf_section_header().sh_flags.get(LittleEndian);
                let bytes = section
                    .data()
                    .ok()
                    .filter(|_| flags.contains(elf::SHF_WRITE) && flags.contains(elf::SHF_ALLOC))?;
                let words = bytes.chunks_exact(8).enumerate();
                let first = first.to_le_bytes();
                let equal = words.filter(|(_, word)| *word == first);
                let addresses = equal.map(|(at, _)| section.address().wrapping_add(8 * at as u64));
                addresses.into_iter().find(is_it)
            })
        })
    }
}
