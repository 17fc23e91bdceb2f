//! Programs of 32 bits. Input: an i386 ELF file. Output: the same image as an ELF file of 64 bits, which is what all
//! that reads images expects: the bytes stay where they are, and wider headers and symbols follow them.
//!
//! What means something else in 64 bits loses its name: call frame information, relocations and the stubs that they
//! are for. Source: System V ABI, chapters 4 and 5; its Intel386 supplement.

use object::elf::{ELFCLASS32, ELFCLASS64, ELFDATA2LSB, EM_386, EM_X86_64};

/// Bytes of a header, a program header, a section header and a symbol of 64 bits.
const HEADER_BYTES: usize = 64;
const PROGRAM_BYTES: u16 = 56;
const SECTION_BYTES: u16 = 64;
const SYMBOL_BYTES: u64 = 24;
/// The same of 32 bits.
const NARROW_HEADER_BYTES: usize = 52;
const NARROW_PROGRAM_BYTES: u16 = 32;
const NARROW_SECTION_BYTES: u16 = 40;
const NARROW_SYMBOL_BYTES: usize = 16;
/// Bytes of the header of a compressed section of 32 bits.
const NARROW_PACKED_BYTES: usize = 12;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u32 = 0x800;
/// Beginnings of the names of sections that are of no use in 64 bits.
const LOST: [&[u8]; 6] = [
    b".eh_frame",
    b".debug_frame",
    b".rel",
    b".plt",
    b".dynamic",
    b".gopclntab",
];

/// Whether a file is one.
pub(super) fn is_i386(data: &[u8]) -> bool {
    data.get(4..6) == Some(&[ELFCLASS32.0, ELFDATA2LSB.0])
        && data.get(18..20) == Some(&EM_386.0.to_le_bytes())
}

/// The file with headers and symbols of 64 bits; `None` if its headers are damaged or cut short.
pub(super) fn widen(data: &[u8]) -> Option<Vec<u8>> {
    let header = data.get(..NARROW_HEADER_BYTES)?;
    let programs = table(
        data,
        word(header, 28)?,
        half(header, 42)?,
        half(header, 44)?,
    );
    let programs = programs
        .filter(|(bytes, _)| *bytes == NARROW_PROGRAM_BYTES)?
        .1;
    let sections = table(
        data,
        word(header, 32)?,
        half(header, 46)?,
        half(header, 48)?,
    );
    let sections = sections.filter(|(bytes, _)| *bytes == NARROW_SECTION_BYTES);
    let sections = sections.map_or(&[][..], |(_, table)| table);
    let sections: Vec<Section> = sections
        .chunks_exact(NARROW_SECTION_BYTES.into())
        .filter_map(Section::read)
        .collect();
    let names = half(header, 50)?;
    let all_names = sections
        .get(usize::from(names))
        .and_then(|it| it.bytes(data));
    let mut wide = data.to_vec();
    wide.resize(data.len().max(HEADER_BYTES), 0);
    let programs_at = wide.len() as u64;
    let mut count = 0;
    for program in programs.chunks_exact(NARROW_PROGRAM_BYTES.into()) {
        // Kind and flags, then offset, both addresses, both sizes and the alignment.
        wide.extend_from_slice(&program[..4]);
        wide.extend_from_slice(&program[24..28]);
        for at in [4, 8, 12, 16, 20, 28] {
            wide.extend(u64::from(word(program, at)?).to_le_bytes());
        }
        count += 1;
    }
    // What is written anew is bounded, however many sections claim the same bytes.
    let mut left_bytes = data.len().saturating_mul(2);
    let mut headers = Vec::new();
    for section in &sections {
        let name = all_names.and_then(|names| names.get(section.name as usize..));
        let is_lost = name.is_some_and(|name| LOST.iter().any(|lost| name.starts_with(lost)));
        let moved = section.moved(data, left_bytes).filter(|_| !is_lost);
        left_bytes = left_bytes.saturating_sub(moved.as_ref().map_or(0, Vec::len));
        let at = moved
            .as_ref()
            .map(|moved| (wide.len() as u64, moved.len() as u64));
        section.put(is_lost, at, &mut headers);
        wide.extend(moved.unwrap_or_default());
    }
    let sections_at = wide.len() as u64;
    wide.extend(&headers);
    let mut first = header[..24].to_vec();
    first[4] = ELFCLASS64.0;
    first[18..20].copy_from_slice(&EM_X86_64.0.to_le_bytes());
    for long in [word(header, 24)?.into(), programs_at, sections_at] {
        first.extend(u64::to_le_bytes(long));
    }
    first.extend_from_slice(&header[36..40]);
    let number = sections.len() as u16;
    let sizes = [
        HEADER_BYTES as u16,
        PROGRAM_BYTES,
        count,
        SECTION_BYTES,
        number,
        names,
    ];
    first.extend(sizes.into_iter().flat_map(u16::to_le_bytes));
    wide[..HEADER_BYTES].copy_from_slice(&first);
    Some(wide)
}

/// The bytes of each entry of a table, and the table.
fn table(data: &[u8], at: u32, entry_bytes: u16, count: u16) -> Option<(u16, &[u8])> {
    let length = usize::from(entry_bytes) * usize::from(count);
    let table = data.get(at as usize..)?.get(..length)?;
    Some((entry_bytes, table))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// A section header of 32 bits.
struct Section {
    name: u32,
    kind: u32,
    flags: u32,
    address: u32,
    offset: u32,
    size_bytes: u32,
    link: u32,
    info: u32,
    align: u32,
    entry_bytes: u32,
}

impl Section {
    fn read(bytes: &[u8]) -> Option<Section> {
        let field = |number: usize| word(bytes, number * 4);
        Some(Section {
            name: field(0)?,
            kind: field(1)?,
            flags: field(2)?,
            address: field(3)?,
            offset: field(4)?,
            size_bytes: field(5)?,
            link: field(6)?,
            info: field(7)?,
            align: field(8)?,
            entry_bytes: field(9)?,
        })
    }

    fn bytes<'d>(&self, data: &'d [u8]) -> Option<&'d [u8]> {
        data.get(self.offset as usize..)?
            .get(..self.size_bytes as usize)
    }

    fn is_symbols(&self) -> bool {
        matches!(self.kind, SHT_SYMTAB | SHT_DYNSYM)
    }

    /// Its bytes, if they are others in 64 bits: symbols, and what is compressed.
    fn moved(&self, data: &[u8], most_bytes: usize) -> Option<Vec<u8>> {
        let bytes = self
            .bytes(data)
            .filter(|bytes| bytes.len() <= most_bytes / 2)?;
        let mut moved = Vec::new();
        if self.is_symbols() {
            for symbol in bytes.chunks_exact(NARROW_SYMBOL_BYTES) {
                // Name, then kind, visibility and section, then value and size.
                moved.extend_from_slice(&symbol[..4]);
                moved.extend_from_slice(&symbol[12..16]);
                moved.extend(u64::from(word(symbol, 4)?).to_le_bytes());
                moved.extend(u64::from(word(symbol, 8)?).to_le_bytes());
            }
            return Some(moved);
        }
        if self.flags & SHF_COMPRESSED == 0 {
            return None;
        }
        let (head, packed) = bytes.split_at_checked(NARROW_PACKED_BYTES)?;
        moved.extend(u64::from(word(head, 0)?).to_le_bytes());
        moved.extend(u64::from(word(head, 4)?).to_le_bytes());
        moved.extend(u64::from(word(head, 8)?).to_le_bytes());
        moved.extend_from_slice(packed);
        Some(moved)
    }

    /// Writes it in 64 bits, with its new place and size if it has some.
    fn put(&self, is_lost: bool, moved: Option<(u64, u64)>, out: &mut Vec<u8>) {
        let (offset, size_bytes) = moved.unwrap_or((self.offset.into(), self.size_bytes.into()));
        // Symbols that were not written anew can't be read.
        let is_whole = !is_lost && (moved.is_some() || !self.is_symbols());
        let kind = if is_whole { self.kind } else { 0 };
        let entry_bytes = if self.is_symbols() {
            SYMBOL_BYTES
        } else {
            self.entry_bytes.into()
        };
        let name = if is_lost { 0 } else { self.name };
        out.extend([name, kind].into_iter().flat_map(u32::to_le_bytes));
        let longs = [self.flags.into(), self.address.into(), offset, size_bytes];
        out.extend(longs.into_iter().flat_map(u64::to_le_bytes));
        out.extend(
            [self.link, self.info]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        let longs = [self.align.into(), entry_bytes];
        out.extend(longs.into_iter().flat_map(u64::to_le_bytes));
    }
}
