//! What was recorded and what is missing: the head of the page, and its last part.

use super::shell::text;
use crate::recording::survey::Survey;
use crate::recording::{Recording, last_part};
use crate::text::printable;
use crate::views::flame::escape;
use crate::views::info;
use std::io::{self, Write};

/// The lines at the top of the page; the others are folded below.
const FIRST: [&str; 14] = [
    "recording",
    "started",
    "length",
    "target",
    "kernel",
    "guest",
    "architecture",
    "vCPUs",
    "host",
    "rate requested",
    "rate achieved",
    "freeze time",
    "late by",
    "ended",
];
/// Most recordings that are described.
const RECORDINGS_MAX: usize = 20;
/// Most warnings, and most damaged ranges of each recording.
const WARNINGS_MAX: usize = 20;

/// A recording, and its survey.
pub(crate) type RecordingSurvey<'a> = (&'a Recording, Survey);

/// Writes what was recorded, in a few lines.
pub(crate) fn write_summary(
    recordings: &[RecordingSurvey<'_>],
    identify: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (recording, survey) in recordings.iter().take(RECORDINGS_MAX) {
        writeln!(out, "<dl>")?;
        for (name, value) in grouped(info::lines(recording, survey, identify)) {
            if FIRST.contains(&name.as_str()) {
                write_fact(&name, &value, out)?;
            }
        }
        writeln!(out, "</dl>")?;
    }
    match recordings.len().checked_sub(RECORDINGS_MAX) {
        Some(more @ 1..) => writeln!(out, "<p class=\"note\">… and {more} more recordings.</p>"),
        _ => Ok(()),
    }
}

/// Writes everything that is known, folded.
pub(crate) fn write_recordings<'a>(
    recordings: impl Iterator<Item = &'a RecordingSurvey<'a>>,
    identify: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<section id=\"recording\">\n<h2>All that is known of what was recorded</h2>"
    )?;
    for (recording, survey) in recordings.take(RECORDINGS_MAX) {
        let name = text(last_part(recording.name()));
        writeln!(
            out,
            "<details class=\"facts\"><summary><bdi>{name}</bdi></summary>\n<dl>"
        )?;
        for (name, value) in grouped(info::lines(recording, survey, identify)) {
            write_fact(&name, &value, out)?;
        }
        writeln!(out, "</dl></details>")?;
    }
    writeln!(out, "</section>")
}

/// The basis of the numbers: the account and its warnings.
pub(crate) struct Basis {
    /// Whether samples are missing.
    pub(crate) is_incomplete: bool,
    /// The lines of the account.
    pub(crate) lines: Vec<String>,
    /// What makes the numbers weaker than they look.
    pub(crate) warnings: Vec<String>,
}

impl Basis {
    /// What the header shows of it: the first line, and whether samples are missing.
    pub(crate) fn head(&self) -> (&str, bool) {
        (
            self.lines.first().map_or("", String::as_str),
            self.is_incomplete,
        )
    }
}

/// Writes the basis. If samples are missing, it is shown prominently.
pub(crate) fn write_basis(basis: &Basis, out: &mut dyn Write) -> io::Result<()> {
    let (class, heading) = if basis.is_incomplete {
        ("account missing", "Samples are missing")
    } else {
        ("account", "What the numbers rest on")
    };
    writeln!(out, "<section class=\"{class}\">\n<h2>{heading}</h2>\n<ul>")?;
    for line in &basis.lines {
        writeln!(out, "<li>{}</li>", escape(&printable(line)))?;
    }
    for warning in basis.warnings.iter().take(WARNINGS_MAX) {
        writeln!(
            out,
            "<li class=\"warning\">{}</li>",
            escape(&printable(warning))
        )?;
    }
    if let Some(more @ 1..) = basis.warnings.len().checked_sub(WARNINGS_MAX) {
        writeln!(out, "<li class=\"warning\">… and {more} more warnings</li>")?;
    }
    writeln!(out, "</ul>\n</section>")
}

/// The damage of a recording, as warnings.
pub(crate) fn damages(recording: &Recording) -> impl Iterator<Item = String> {
    let stretches = recording.damages().stretches.iter();
    stretches.map(|stretch| format!("{}: {stretch}", last_part(recording.name())))
}

/// Joins the values of lines without a name to the line before.
fn grouped(lines: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (name, value) in lines {
        match groups.last_mut().filter(|_| name.is_empty()) {
            Some((_, before)) => {
                before.push('\n');
                before.push_str(&value);
            }
            None => groups.push((name, value)),
        }
    }
    groups
}

fn write_fact(name: &str, value: &str, out: &mut dyn Write) -> io::Result<()> {
    let (name, value) = (escape(name), escape(value));
    writeln!(out, "<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>")
}
