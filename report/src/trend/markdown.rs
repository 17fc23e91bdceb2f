//! The trend as tables in Markdown, and as annotations for a workflow of GitHub Actions.

use super::Trend;
use super::rows::{Row, notes};
use super::table::{COLUMNS, SINCE, TableOptions, cells};
use crate::text::{printable, rows_max, short};
use crate::views::markdown::{code, list, write_table};
use crate::views::workflow::annotate_changes;
use std::io::{self, Write};

/// Writes the certain changes, and the other functions folded.
///
/// # Errors
/// The errors of `out`.
pub fn write(trend: &Trend, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let (changes, others): (Vec<Row<'_>>, Vec<Row<'_>>) =
        trend.rows().partition(|row| row.change.is_some());
    let most = rows_max(options.rows);
    let (verdict, about) = (trend.verdict(&code, &code), trend.about(&code));
    writeln!(out, "**{verdict}**\n\n{about}.\n")?;
    let line = |row: &Row<'_>| {
        let mut cells = cells(trend, row);
        if row.change.is_some() {
            cells[SINCE] = code(&cells[SINCE]);
        }
        let notes = notes(row.function);
        let name = code(format!("{}  {notes}", row.function.name).trim_end());
        format!("{} | {name}", cells.join(" | "))
    };
    write_table(COLUMNS, &changes, most, &line, out)?;
    writeln!(
        out,
        "<details><summary>Functions without a certain change</summary>\n"
    )?;
    list(&trend.warnings, out)?;
    let left = most.saturating_sub(changes.len());
    write_table(COLUMNS, &others, left, &line, out)?;
    writeln!(out, "{}\n\n</details>", trend.legend().join(" "))
}

/// Writes a summary, then a warning for each function that takes more since a change, and a notice for each other
/// change.
///
/// # Errors
/// The errors of `out`.
pub fn write_annotations(trend: &Trend, _: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let quoted = |name: &str| format!("`{}`", printable(name));
    let mut summary = vec![
        trend.verdict(&quoted, &str::to_owned),
        trend.about(&str::to_owned),
    ];
    summary.extend(trend.warnings.iter().cloned());
    let changes = trend.rows().filter_map(|Row { function, change }| {
        let change = change?;
        let what = trend.verb(change, &str::to_owned);
        let text = format!("{} {what}", short(&function.name));
        Some((change.after > change.before, text))
    });
    annotate_changes(&summary, &changes.collect::<Vec<_>>(), out)
}
