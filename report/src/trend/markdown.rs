//! The trend as tables in Markdown, and as annotations for a workflow of GitHub Actions.

use super::Trend;
use super::rows::{Row, notes};
use super::table::{HEADINGS, TableOptions, cells};
use crate::text::{printable, rows_max, short};
use crate::views::markdown::{code, list};
use crate::views::workflow::{Level, SHOWN, annotate};
use std::io::{self, Write};

/// Writes the certain changes, and the other functions folded.
///
/// # Errors
/// The errors of `out`.
pub fn write(trend: &Trend, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let (changes, others): (Vec<Row<'_>>, Vec<Row<'_>>) =
        trend.rows().partition(|row| row.change.is_some());
    let most = rows_max(options.rows);
    writeln!(out, "**{}**\n\n{}.\n", trend.verdict(&code), trend.about())?;
    write_table(trend, &changes, most, out)?;
    writeln!(
        out,
        "<details><summary>Functions without a certain change</summary>\n"
    )?;
    list(&trend.warnings, out)?;
    write_table(trend, &others, most.saturating_sub(changes.len()), out)?;
    writeln!(out, "{}\n\n</details>", trend.legend().join(" "))
}

fn write_table(
    trend: &Trend,
    rows: &[Row<'_>],
    most: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() || most == 0 {
        return Ok(());
    }
    let headings = HEADINGS.map(|(heading, _)| heading).join(" | ");
    let lines = HEADINGS.map(|(_, is_text)| if is_text { ":---" } else { "---:" });
    writeln!(out, "| {headings} | function |\n|{}|:---|", lines.join("|"))?;
    for row in rows.iter().take(most) {
        let cells = cells(trend, row).map(|cell| cell.replace('|', "\\|"));
        let notes = notes(row.function);
        let name = code(format!("{}  {notes}", row.function.name).trim_end());
        writeln!(out, "| {} | {name} |", cells.join(" | "))?;
    }
    match rows.len().saturating_sub(most) {
        0 => writeln!(out),
        more => writeln!(out, "\nand {more} more\n"),
    }
}

/// Writes a summary, then a warning for each function that takes more since a change, and a notice for each other
/// change.
///
/// # Errors
/// The errors of `out`.
pub fn write_annotations(trend: &Trend, _: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let quoted = |name: &str| format!("`{}`", printable(name));
    let mut summary = vec![trend.verdict(&quoted), trend.about()];
    summary.extend(trend.warnings.iter().cloned());
    annotate(Level::Notice, &summary.join("\n"), out)?;
    for (level, grew) in [(Level::Warning, true), (Level::Notice, false)] {
        let changes = trend
            .rows()
            .filter_map(|row| row.change.map(|change| (row.function, change)));
        let changes = changes.filter(|(_, change)| (change.after > change.before) == grew);
        for (function, change) in changes.take(SHOWN) {
            let text = format!("{} {}", short(&function.name), trend.verb(change));
            annotate(level, &text, out)?;
        }
    }
    Ok(())
}
