//! Go's function table, which `go build -ldflags=-s` and `strip` keep. Input: an image. Output: its functions, and
//! for an address the functions inlined there with file and line. Source: Go's packages debug/gosym and internal/abi,
//! and runtime/symtab.go, for the layouts of Go 1.2, 1.16, 1.18 and 1.20. Offsets are not trusted: those outside the
//! table give no name.

mod tables;
mod inlined;

use super::line::Line;
use crate::images::{Image, ImageAddress};
use inlined::Calls;
use std::borrow::Cow;
use tables::{Tables, Version, u32_at};

/// Most functions inlined into one another at one address; others are left out.
const INLINED_MAX: usize = 256;
/// The longest name or path (bytes); longer ones are dropped.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The largest total length of all names, in lengths of the table: the linker writes each once.
const NAMES_PER_TABLE: usize = 4;

/// The function table of one image.
#[derive(Debug)]
pub(super) struct GoFunctions<'i> {
    tables: Tables<'i>,
    calls: Calls<'i>,
}

/// A function of the table.
#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    end: u64,
    /// Offset of its description in the table.
    at: usize,
}

/// The section with the table, by the linker's mode.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Whether `image` is of a program in Go.
pub(crate) fn is_go(image: &Image) -> bool {
    section(image).is_some()
}

/// The name of the section with the table.
fn section(image: &Image) -> Option<&'static str> {
    let mut names = SECTIONS.into_iter();
    names.find(|name| image.section_range(name).is_some())
}

impl<'i> GoFunctions<'i> {
    /// The table of `image`; `None` if it has none, or one of an unknown layout.
    pub(crate) fn of(image: &'i Image) -> Option<GoFunctions<'i>> {
        let name = section(image)?;
        let Cow::Borrowed(bytes) = image.section(name)? else {
            return None;
        };
        let (address, _) = image.section_range(name)?;
        let calls = Calls::of(image, address, bytes);
        let mut tables = Tables::read(bytes)?;
        let start = calls.text_start().or(Some(tables.text_start));
        let text = image.section_range(".text").map(|(start, _)| start.0);
        tables.text_start = start.filter(|start| *start != 0).or(text).unwrap_or(0);
        Some(GoFunctions { tables, calls })
    }

    /// All functions: first address, the one after the last, and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64, &'i str)> {
        let mut left_bytes = self.tables.bytes.len().saturating_mul(NAMES_PER_TABLE);
        let functions = (0..self.tables.functions).filter_map(|number| self.function(number));
        let named = functions.map_while(move |function| {
            let name = self.name(function);
            // One without an end has been searched too.
            left_bytes = left_bytes.checked_sub(name.map_or(TEXT_BYTES_MAX, str::len))?;
            Some((function.start, function.end, name.unwrap_or("")))
        });
        named.filter(|(start, end, name)| start < end && !name.is_empty())
    }

    fn function(&self, number: usize) -> Option<Function> {
        let (start, at) = self.tables.entry(number)?;
        let (end, _) = self.tables.entry(number + 1)?;
        Some(Function { start, end, at })
    }

    fn name(&self, function: Function) -> Option<&'i str> {
        let offset = self.tables.field(function.at, 0)?;
        self.tables.name(offset as usize)
    }

    /// The functions at `address`, outermost first.
    pub(crate) fn find(&self, address: ImageAddress) -> Vec<Line> {
        self.lines(address.0).unwrap_or_default()
    }

    fn lines(&self, address: u64) -> Option<Vec<Line>> {
        let function = self.function_at(address)?;
        let mut lines = Vec::new();
        let mut at = address;
        let (mut file, mut line) = self.place(function, at);
        let mut call = self
            .calls
            .innermost(&self.tables, function.at, at - function.start);
        while let Some(inlined) = call.filter(|_| lines.len() < INLINED_MAX) {
            lines.push(Line {
                function: self.tables.name(inlined.name).map(str::to_owned),
                file,
                line,
                start_line: inlined.start_line,
                discriminator: 0,
            });
            match inlined.parent {
                inlined::Parent::At(into_bytes) => {
                    at = function.start.checked_add(u64::from(into_bytes))?;
                    (file, line) = self.place(function, at);
                    let into = u64::from(into_bytes);
                    call = self.calls.innermost(&self.tables, function.at, into);
                }
                inlined::Parent::Call(number, place) => {
                    file = self.file(function, i64::from(place.0));
                    line = place.1;
                    call = self.calls.call(&self.tables, function.at, number);
                }
            }
        }
        lines.push(Line {
            function: self.name(function).map(str::to_owned),
            file,
            line,
            start_line: self.tables.start_line(function.at),
            discriminator: 0,
        });
        lines.reverse();
        Some(lines)
    }

    fn function_at(&self, address: u64) -> Option<Function> {
        let (mut low, mut high) = (0, self.tables.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.tables.entry(middle)?.0 <= address {
                low = middle + 1
            } else {
                high = middle
            }
        }
        let function = self.function(low.checked_sub(1)?)?;
        (function.start <= address && address < function.end).then_some(function)
    }

    /// File and line of the innermost function.
    fn place(&self, function: Function, address: u64) -> (Option<String>, u32) {
        let into_bytes = address.wrapping_sub(function.start);
        let value = |field| {
            let table = self.tables.field(function.at, field)?;
            self.tables.value(table as usize, into_bytes)
        };
        let line = value(Tables::LINES).and_then(|line| u32::try_from(line).ok());
        let file = value(Tables::FILES).and_then(|file| self.file(function, i64::from(file)));
        (file, line.unwrap_or(0))
    }

    fn file(&self, function: Function, number: i64) -> Option<String> {
        let number = usize::try_from(number).ok()?;
        let tables = &self.tables;
        let offset = match tables.version {
            Version::Go12 => {
                let at = tables.files.checked_add(number.checked_mul(4)?)?;
                u32_at(tables.bytes, at)? as usize
            }
            _ => {
                let unit = tables.field(function.at, Tables::UNIT)? as usize;
                let at = unit.checked_add(number)?.checked_mul(4)?;
                let into = u32_at(tables.bytes, tables.units.checked_add(at)?)?;
                (into != u32::MAX).then(|| tables.files.checked_add(into as usize))??
            }
        };
        tables.text(offset).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
