//! Texts that name addresses, and the small files that a recorder reads about its target.

use uniprof_record::process::{kernel, maps, published};
use uniprof_record::{elf::build_id, xen};
use uniprof_report::images::{ImageAddress, SymbolTable, demangle};
use uniprof_report::text::printable;

/// One text, read as each of them.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(table) = SymbolTable::from_text("fuzz", &text) {
        for (start, end, name) in table.iter() {
            assert!(start <= end && !name.is_empty());
            let _ = table.find(ImageAddress(end.0));
        }
    }
    let functions = kernel::Functions::read(text.as_bytes());
    assert!(functions.starts().is_sorted_by(|one, next| one < next));
    for mapping in text.lines().filter_map(maps::parse) {
        assert!(mapping.start.checked_add(mapping.length).is_some());
    }
    for name in text.split_ascii_whitespace() {
        let readable = demangle(name);
        let shown = printable(&readable);
        assert!(shown.len() <= 4200 && !shown.contains(char::is_control));
    }
    for (key, value) in published::parse(bytes) {
        assert!(key.len() + value.len() <= bytes.len().max(20));
    }
    let _ = xen::libxl::parse(bytes);
    let _ = build_id::of_notes(bytes);
}
