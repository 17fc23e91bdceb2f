//! The names of an ELF table of symbols. Any number of symbols may have one name, and the end of a name that has none
//! is looked for in the rest of the table; so no more is read than is allowed for all of them.

use object::elf::{FileHeader64, Sym64};
use object::read::elf::{SectionTable, Sym, SymbolTable};
use object::{LittleEndian, StringTable};

type Header = FileHeader64<LittleEndian>;

/// Reads names.
pub(super) struct SymbolNames<'data> {
    strings: StringTable<'data>,
    /// The size of their section (bytes).
    table_bytes: u64,
    left_bytes: usize,
}

impl<'data> SymbolNames<'data> {
    /// The names of `symbols`, at most `most_bytes` together.
    pub(super) fn new(
        sections: &SectionTable<'data, Header>,
        symbols: &SymbolTable<'data, Header>,
        most_bytes: usize,
    ) -> Self {
        let table = sections.section(symbols.string_section());
        SymbolNames {
            strings: symbols.strings(),
            table_bytes: table.map_or(0, |table| table.sh_size.get(LittleEndian)),
            left_bytes: most_bytes,
        }
    }

    /// The name of a symbol, if it is text; `None` once all that is allowed was read.
    pub(super) fn read(&mut self, symbol: &Sym64<LittleEndian>) -> Option<Option<&'data str>> {
        let name = symbol.name(LittleEndian, self.strings).ok();
        let start = u64::from(symbol.st_name.get(LittleEndian));
        let rest = self.table_bytes.saturating_sub(start) as usize;
        let bytes = name.map_or(rest, <[u8]>::len);
        self.left_bytes = self.left_bytes.checked_sub(bytes)?;
        Some(name.and_then(|name| std::str::from_utf8(name).ok()))
    }
}
