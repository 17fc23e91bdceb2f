//! The instructions of a function, with their samples.

use super::source::{self, SourceLine};
use super::{AROUND, Annotation, Counts, Form, LINES_MAX, module_name};
use crate::images::disassembly::{self, Instruction};
use crate::stacks::code::{CODE_BYTES_MAX, Codes, Function, NoCode};
use crate::text::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A function, and the starts of its instructions.
pub(in crate::views) struct Listing<'c> {
    function: Function<'c>,
    /// Offsets of the instructions from the function's start (bytes), ascending from 0.
    starts: Vec<usize>,
}

impl<'c> Listing<'c> {
    pub(crate) fn new(function: Function<'c>) -> Listing<'c> {
        let starts = disassembly::starts(function.arch, function.bytes);
        Listing { function, starts }
    }

    /// The number of the instruction at `into_bytes` from the function's start.
    pub(crate) fn index_of(&self, into_bytes: u64) -> Result<usize, NoCode> {
        if into_bytes >= CODE_BYTES_MAX {
            return Err(NoCode::TooFar);
        }
        if into_bytes >= self.function.bytes.len() as u64 {
            return Err(NoCode::NoBytes);
        }
        let after = self
            .starts
            .partition_point(|start| *start as u64 <= into_bytes);
        after.checked_sub(1).ok_or(NoCode::NoBytes)
    }

    /// The name of the function, and the syntax of its instructions.
    pub(crate) fn title(&self) -> (String, Option<&'static str>) {
        let function = &self.function;
        let name = match function.name.as_str() {
            "" => format!("{:#x}", function.start),
            name => printable(name).into_owned(),
        };
        (name, disassembly::syntax(function.arch))
    }

    /// The instructions with samples and those around them; at most `LINES_MAX`.
    pub(crate) fn shown(&self, sampled: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let around = AROUND as usize;
        let last = self.starts.len().saturating_sub(1);
        let mut shown = BTreeSet::new();
        for index in sampled {
            shown.extend(index.saturating_sub(around)..=(index + around).min(last));
            if shown.len() >= LINES_MAX {
                break;
            }
        }
        shown.into_iter().take(LINES_MAX).collect()
    }

    /// The source line of an instruction, if it is known.
    pub(crate) fn line(&self, codes: &Codes<'_>, index: usize) -> Option<SourceLine> {
        let line = codes.line(&self.function, self.starts[index] as u64)?;
        Some(SourceLine {
            file: line.file?,
            line: line.line,
        })
    }

    /// Address, offset in the function and text of an instruction.
    pub(crate) fn row(&self, codes: &Codes<'_>, index: usize) -> [String; 3] {
        let (address, instruction) = self.instruction(index);
        let mut text = instruction.text;
        let name = instruction
            .target
            .and_then(|target| codes.name_of(&self.function, target));
        if let Some(name) = name {
            text.push_str(&format!(" <{name}>"));
        }
        let into = format!("+{:#x}", self.starts[index]);
        [format!("{address:x}"), into, printable(&text).into_owned()]
    }

    fn instruction(&self, index: usize) -> (u64, Instruction) {
        let into = self.starts[index];
        let address = self.function.start.wrapping_add(into as u64);
        let code = &self.function.bytes[into..];
        let instruction = disassembly::instruction(self.function.arch, address, code);
        (address, instruction)
    }
}

/// Writes the instructions with samples and those around them.
pub(super) fn write_listing(
    (module, listing): (&str, &Listing<'_>),
    what: &Annotation<'_, '_>,
    counts: &BTreeMap<usize, Counts>,
    form: Form,
    out: &mut dyn Write,
) -> io::Result<()> {
    let codes = what.codes;
    let (name, syntax) = listing.title();
    let syntax = syntax.map_or(String::new(), |syntax| format!("  ({syntax})"));
    let module = module_name(module);
    form.write_heading(&format!("{name} in {module}{syntax}"), out)?;
    let shown = listing.shown(counts.keys().copied());
    let lines = shown.iter().map(|index| listing.line(codes, *index));
    let lines: Vec<Option<SourceLine>> = lines.collect();
    let looked_for = lines.iter().flatten().filter(|_| what.sources.may_open());
    let texts = source::texts(looked_for, what.sources);
    let (mut before, mut line_before) = (None, None);
    for (index, line) in shown.iter().copied().zip(&lines) {
        if before.is_some_and(|before: usize| before + 1 != index) {
            form.write_between("    …", out)?;
        }
        before = Some(index);
        if let Some(line) = line
            && line_before != Some(line)
        {
            let text = texts.get(line).map_or("", |text| text.trim());
            let place = format!("{}:{}", line.short_file(), line.line);
            let heading = printable(&format!("{place}  {text}")).into_owned();
            form.write_between(heading.trim_end(), out)?;
        }
        line_before = line.as_ref().or(line_before);
        let count = counts.get(&index).copied().unwrap_or_default();
        let [address, into, text] = listing.row(codes, index);
        let row = format!("{address:>8}  {into:<7} {text}");
        form.write_row(count, &row, out)?;
    }
    let left_out = counts.keys().filter(|index| !shown.contains(index)).count();
    if left_out > 0 {
        let note = format!("{left_out} more instructions with samples are not shown");
        form.write_heading(&note, out)?;
    }
    writeln!(out)
}
