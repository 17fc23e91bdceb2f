//! What was recorded, and what of it is missing: the head of the page, and its last part.

use super::Page;
use super::text;
use crate::recording::last_part;
use crate::text::printable;
use crate::views::flame::escape;
use crate::views::info;
use std::io::{self, Write};

/// What stands at the top; the rest is below, folded.
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
/// Recordings that are described.
const RECORDINGS_MAX: usize = 20;
/// Warnings, and places of damage of each recording.
const WARNINGS_MAX: usize = 20;

/// What was recorded, in a few lines.
pub(super) fn write_summary(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (recording, survey) in page.recordings.iter().take(RECORDINGS_MAX) {
        writeln!(out, "<dl>")?;
        for (name, value) in grouped(info::lines(recording, survey, page.identify)) {
            if FIRST.contains(&name.as_str()) {
                write_fact(&name, &value, out)?;
            }
        }
        writeln!(out, "</dl>")?;
    }
    match page.recordings.len().checked_sub(RECORDINGS_MAX) {
        Some(more @ 1..) => writeln!(out, "<p class=\"note\">… and {more} more recordings.</p>"),
        _ => Ok(()),
    }
}

/// Everything that is known, folded.
pub(super) fn write_recordings(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<section id=\"recording\">\n<h2>All about the recording</h2>"
    )?;
    for (recording, survey) in page.recordings.iter().take(RECORDINGS_MAX) {
        let name = text(last_part(recording.name()));
        writeln!(
            out,
            "<details class=\"facts\"><summary><bdi>{name}</bdi></summary>\n<dl>"
        )?;
        for (name, value) in grouped(info::lines(recording, survey, page.identify)) {
            write_fact(&name, &value, out)?;
        }
        writeln!(out, "</dl></details>")?;
    }
    writeln!(out, "</section>")
}

/// What the numbers rest on. Where samples are missing, nobody shall overlook it.
pub(super) fn write_account(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let account = &page.profile.account;
    let (class, heading) = match account.is_incomplete() {
        true => ("account missing", "Samples are missing"),
        false => ("account", "What the numbers rest on"),
    };
    writeln!(out, "<section class=\"{class}\">\n<h2>{heading}</h2>\n<ul>")?;
    let mut lines = account.lines();
    if !page.chosen.is_empty() {
        lines.push(format!("chosen by {}", page.chosen));
    }
    if account.counted == 0 {
        lines.push("no sample to show".to_owned());
    }
    for line in &lines {
        writeln!(out, "<li>{}</li>", escape(&printable(line)))?;
    }
    let warnings = &page.profile.warnings;
    let damages = page.recordings.iter().flat_map(|(recording, _)| {
        let stretches = recording.damages().stretches.iter();
        stretches.map(|stretch| format!("{}: {stretch}", last_part(recording.name())))
    });
    let all: Vec<String> = warnings.iter().cloned().chain(damages).collect();
    for warning in all.iter().take(WARNINGS_MAX) {
        writeln!(
            out,
            "<li class=\"warning\">{}</li>",
            escape(&printable(warning))
        )?;
    }
    if let Some(more @ 1..) = all.len().checked_sub(WARNINGS_MAX) {
        writeln!(out, "<li class=\"warning\">… and {more} more warnings</li>")?;
    }
    writeln!(out, "</ul>\n</section>")
}

/// Lines without a name go with the one before.
fn grouped(lines: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (name, value) in lines {
        match groups.last_mut().filter(|_| name.is_empty()) {
            Some((_, before)) => *before = format!("{before}\n{value}"),
            None => groups.push((name, value)),
        }
    }
    groups
}

fn write_fact(name: &str, value: &str, out: &mut dyn Write) -> io::Result<()> {
    let (name, value) = (escape(name), escape(value));
    writeln!(out, "<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>")
}
