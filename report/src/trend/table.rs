//! The trend as a table for a terminal: certain changes first, then the other functions by their shares.

use super::rows::{Row, notes, picture, relative};
use super::{FunctionTrend, Trend};
use crate::text::screen::{Color, Notes, Screen};
use crate::text::{printable, rows_max};
use crate::views::columns::{CHANGE, Column, Columns};
use std::io::{self, Write};

/// Options of the table.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Most rows; 0 for all.
    pub rows: usize,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

/// Columns that are left out on a narrow screen have a number.
pub(super) const COLUMNS: &[Column] = &[
    Column::new("share"),
    Column::new("interval").dispensable(1),
    Column::new("before"),
    Column::new(CHANGE),
    Column::new("since").text(),
    Column::new("trend").text().dispensable(0),
];
/// The column of a recording: a label or a file name, which may be any text.
pub(super) const SINCE: usize = 4;
/// The least width for names; if less remains, columns are left out.
const NAME_COLUMNS: usize = 28;

/// The cells of a row: shares in percent of all samples.
pub(super) fn cells(trend: &Trend, row: &Row<'_>) -> [String; 6] {
    let share = |share: f64| format!("{:.2}", share * 100.0);
    let interval = |(low, high): (f64, f64)| format!("{} to {}", share(low), share(high));
    let FunctionTrend { shares, .. } = row.function;
    match row.change {
        Some(change) => [
            share(change.after),
            interval(change.after_interval),
            share(change.before),
            relative(change),
            trend.place(&trend.points[change.at]),
            picture(shares),
        ],
        None => [
            share(row.function.share),
            interval(row.function.interval),
            String::new(),
            String::new(),
            String::new(),
            picture(shares),
        ],
    }
}

/// Writes the verdict and the table.
///
/// # Errors
/// The errors of `out`.
pub fn write(trend: &Trend, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    let verdict = trend.verdict(&|name| format!("`{}`", printable(name)), &str::to_owned);
    screen.write_prose("", &verdict, 0, out)?;
    screen.write_prose("", &format!("{}.", trend.about(&str::to_owned)), 0, out)?;
    writeln!(out)?;
    let rows: Vec<Row<'_>> = trend.rows().collect();
    let shown = &rows[..rows_max(options.rows).min(rows.len())];
    let cells: Vec<[String; 6]> = shown.iter().map(|row| cells(trend, row)).collect();
    let rows_of_cells = cells.iter().map(|cells| &cells[..]);
    let columns = Columns::new(COLUMNS, rows_of_cells, NAME_COLUMNS, screen);
    writeln!(out, "{}", columns.heading())?;
    let mut has_changes = false;
    for (row, cells) in shown.iter().zip(&cells) {
        if row.change.is_none() && std::mem::take(&mut has_changes) {
            writeln!(out, "  no certain change:")?;
        }
        has_changes |= row.change.is_some();
        let color = row.change.map(|change| {
            let grew = change.after > change.before;
            if grew { Color::Red } else { Color::Green }
        });
        let mark = if row.change.is_some() { "*" } else { " " };
        let notes = Notes {
            module: format!("  {}", notes(row.function)),
            ..Notes::default()
        };
        let name = screen.name(&row.function.name, &notes, columns.used());
        let cells = columns.row(cells.iter().map(String::as_str), color);
        writeln!(out, "{mark} {cells}{}", name.trim_end())?;
    }
    write_end(trend, rows.len() - shown.len(), screen, out)
}

/// Writes what follows the table: how many rows are left out, warnings, and what the numbers mean.
fn write_end(trend: &Trend, left: usize, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    if left > 0 {
        let note = format!("… and {left} more (--rows 0 shows all)");
        screen.write_prose("", &note, 2, out)?;
    }
    writeln!(out)?;
    for warning in &trend.warnings {
        screen.write_prose("warning: ", &printable(warning), 2, out)?;
    }
    for line in trend.legend() {
        screen.write_prose("", &line, 0, out)?;
    }
    Ok(())
}
