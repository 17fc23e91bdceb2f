//! Source files: a whole file with its samples, or the texts of single lines.

use super::{AROUND, Counts, Form, LINES_MAX};
use crate::source_files::SourceFiles;
use crate::text::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::views) struct SourceLine {
    /// Path of the file.
    pub file: String,
    /// Line in the file, from 1.
    pub line: u32,
}

impl SourceLine {
    /// The last component of the file's path.
    pub(crate) fn short_file(&self) -> &str {
        let cut = self.file.rsplit_once('/');
        cut.map_or(&self.file, |(_, name)| name)
    }
}

/// The texts of those lines whose files are available.
pub(super) fn texts<'l>(
    lines: impl Iterator<Item = &'l SourceLine>,
    files: &SourceFiles,
) -> BTreeMap<&'l SourceLine, String> {
    let mut by_file: BTreeMap<&str, BTreeSet<&SourceLine>> = BTreeMap::new();
    for line in lines {
        by_file.entry(&line.file).or_default().insert(line);
    }
    let mut texts = BTreeMap::new();
    for (file, lines) in by_file {
        let Some(source) = files.read(file) else {
            continue;
        };
        let source: Vec<&str> = source.lines().collect();
        for line in lines {
            if let Some(text) = source.get((line.line as usize).wrapping_sub(1)) {
                texts.insert(line, (*text).to_owned());
            }
        }
    }
    texts
}

/// Writes the lines of a file that have samples, and those around them. They have text if the file is
/// available.
pub(super) fn write_file(
    file: &str,
    files: &SourceFiles,
    lines: &BTreeMap<u32, Counts>,
    form: Form,
    out: &mut dyn Write,
) -> io::Result<()> {
    let source = files.may_open().then(|| files.read(file));
    let note = match &source {
        None => "  (not looked for)",
        Some(None) => "  (not readable here)",
        Some(Some(_)) => "",
    };
    let source = source.flatten();
    form.write_heading(&format!("{file}{note}"), out)?;
    let source: Vec<&str> = source
        .as_deref()
        .map_or(Vec::new(), |text| text.lines().collect());
    let mut shown: BTreeSet<u32> = BTreeSet::new();
    for line in lines.keys() {
        if source.is_empty() {
            shown.extend([*line])
        } else {
            shown.extend(line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND))
        }
    }
    let end = shown.iter().nth(LINES_MAX).copied();
    let left_out = end.map_or(0, |end| lines.range(end..).count());
    let mut before = None;
    for line in shown.into_iter().take(LINES_MAX) {
        let text = source
            .get((line as usize).wrapping_sub(1))
            .copied()
            .unwrap_or("");
        if !source.is_empty() && line as usize > source.len() && !lines.contains_key(&line) {
            continue;
        }
        if before.is_some_and(|before: u32| before + 1 != line) {
            form.write_between("    …", out)?;
        }
        before = Some(line);
        let count = lines.get(&line).copied().unwrap_or_default();
        // Tabs are kept as blanks, because they indent the line.
        let text = text.replace('\t', "    ");
        form.write_row(count, &format!("{line:>6}  {}", printable(&text)), out)?;
    }
    if left_out > 0 {
        form.write_heading(
            &format!("{left_out} more lines with samples are not shown"),
            out,
        )?;
    }
    writeln!(out)
}
