//! Images: ELF files, and the debug information in them.

use crate::take::Take;
use std::sync::Arc;
use uniprof_report::images::disassembly::{instruction, starts};
use uniprof_report::images::{Image, ImageAddress, LineStore, Lines, Stubs, SymbolTable};
use uniprof_report::unwind::RuleTable;
use uprof::Arch;

/// An ELF file.
pub fn elf(bytes: &[u8]) {
    match Image::from_bytes("fuzz", bytes.to_vec()) {
        Ok(image) => use_image(&Arc::new(image)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn use_image(image: &Arc<Image>) {
    let table = SymbolTable::from_image(image);
    let mut last = 0;
    for (start, end, name) in table.iter() {
        assert!(last <= start.0 && start <= end, "{name} lies before others");
        last = start.0;
        let _ = table.find(start);
    }
    let stubs = Stubs::of(image);
    for (start, end, name) in table.iter().take(64) {
        let _ = stubs.target(start);
        if let Some(code) = image.code_at(start, end.0 - start.0) {
            assert!(code.len() as u64 <= end.0 - start.0, "{name} is cut");
        }
    }
    for stub in stubs.all() {
        assert!(stub.size_bytes > 0 && stub.size_bytes <= 24);
    }
    let rules = RuleTable::compile(image, Some(image));
    assert!(rules.ranges() <= 1 << 24);
    for section in [".text", ".debug_info", ".note.gnu.build-id"] {
        let _ = image.section(section);
        if let Some((address, length)) = image.section_range(section) {
            let _ = image.bytes_at(address, length);
        }
    }
    let segments = image.segments();
    let _ = segments.bias_of_mapping(0x7f00_0000_0000, 0x1000);
    let _ = segments.bias_of_load_address(0xffff_8000_0000_0000);
    let _ = segments.address_of_offset(0x1000);
    let store = LineStore::default();
    if let Some(lines) = Lines::new(&store, image, None, false) {
        for address in (0x1000..0x1800).step_by(64).chain([0, u64::MAX]) {
            let _ = lines.find(ImageAddress(address));
        }
    }
}

/// Code of either processor.
pub fn instructions(bytes: &[u8]) {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let starts = starts(arch, bytes);
        assert_eq!(starts.first().copied(), (!bytes.is_empty()).then_some(0));
        let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
        for (start, end) in starts.iter().copied().zip(ends) {
            let address = u64::MAX - bytes.len() as u64 / 2 + start as u64 / 2;
            let found = instruction(arch, address, &bytes[start..]);
            assert_eq!(found.length_bytes, end - start, "{}", found.text);
            assert!(!found.text.is_empty() && !found.text.contains(char::is_control));
        }
    }
}

/// The sections of [`dwarf`]'s input, in order.
pub const SECTIONS: [&str; 13] = [
    ".eh_frame",
    ".debug_frame",
    ".debug_abbrev",
    ".debug_info",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_aranges",
    ".debug_rnglists",
    ".debug_loclists",
    ".debug_addr",
    ".gopclntab",
    ".gnu_debugdata",
];

/// Pieces that become sections of an ELF file with nothing wrong around them.
pub fn dwarf(bytes: &[u8]) {
    let mut take = Take(bytes);
    let sections = SECTIONS.map(|name| (name, take.piece()));
    let image = Image::from_bytes("fuzz", elf_of(&sections)).expect("its headers are sound");
    use_image(&Arc::new(image));
}

/// A 64-bit x86-64 library with these sections, all of it mapped at 0.
fn elf_of(sections: &[(&str, &[u8])]) -> Vec<u8> {
    const HEADERS: usize = 64 + 56;
    let mut names = vec![0];
    let mut headers = section_header(0, 0, 0, 0);
    let mut body = Vec::new();
    for (name, bytes) in sections {
        let offset = (HEADERS + body.len()) as u64;
        headers.extend(section_header(names.len(), 1, offset, bytes.len()));
        names.extend(name.as_bytes());
        names.push(0);
        body.extend_from_slice(bytes);
    }
    let own_name = names.len();
    names.extend(b".shstrtab\0");
    let offset = (HEADERS + body.len()) as u64;
    headers.extend(section_header(own_name, 3, offset, names.len()));
    body.extend(names);
    let headers_at = (HEADERS + body.len()) as u64;

    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    // ET_DYN, EM_X86_64, version 1; entry, program headers, section headers.
    out.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    out.extend([0, 64, headers_at].into_iter().flat_map(u64::to_le_bytes));
    let count = sections.len() as u16 + 2;
    out.extend([0; 4]);
    out.extend(
        [64, 56, 1, 64, count, count - 1]
            .into_iter()
            .flat_map(u16::to_le_bytes),
    );
    // PT_LOAD, readable and executable.
    out.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    out.extend(
        [0, 0, 0, headers_at, headers_at, 4096]
            .into_iter()
            .flat_map(u64::to_le_bytes),
    );
    [out, body, headers].concat()
}

fn section_header(name: usize, kind: u32, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = (name as u32).to_le_bytes().to_vec();
    out.extend(kind.to_le_bytes());
    // Allocated, at the address that is its place in the file.
    out.extend(
        [2, offset, offset, bytes as u64]
            .into_iter()
            .flat_map(u64::to_le_bytes),
    );
    out.extend([0; 8]);
    out.extend([1, 0].into_iter().flat_map(u64::to_le_bytes));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_where_they_were_put() {
        let image = Image::from_bytes("t", elf_of(&[(".text", b"abc"), (".eh_frame", b"xy")]));
        let image = image.unwrap();
        assert_eq!(image.section(".text").as_deref(), Some(&b"abc"[..]));
        assert_eq!(image.section(".eh_frame").as_deref(), Some(&b"xy"[..]));
    }
}
