//! The trend as a table for a terminal: certain changes first, then the other functions by their shares.

use super::rows::{Row, notes, picture, relative};
use super::{FunctionTrend, Trend};
use crate::text::screen::{Color, Notes, Screen, width};
use crate::text::{printable, rows_max};
use std::io::{self, Write};

/// Options of the table.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Most rows; 0 for all.
    pub rows: usize,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

/// The headings, and whether their columns are text.
pub(super) const HEADINGS: [(&str, bool); 6] = [
    ("share", false),
    ("interval", false),
    ("before", false),
    ("change", false),
    ("since", true),
    ("trend", true),
];
const CHANGE: usize = 3;
/// Columns that are left out on a narrow screen, in this order.
const DISPENSABLE: [usize; 2] = [5, 1];
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
    let verdict = trend.verdict(&|name| format!("`{}`", printable(name)));
    screen.write_prose("", &verdict, 0, out)?;
    screen.write_prose("", &format!("{}.", trend.about()), 0, out)?;
    writeln!(out)?;
    let rows: Vec<Row<'_>> = trend.rows().collect();
    let shown = &rows[..rows_max(options.rows).min(rows.len())];
    let cells: Vec<[String; 6]> = shown.iter().map(|row| cells(trend, row)).collect();
    let widths = widths(&cells, screen);
    let line = |cells: [&str; 6], color: Option<Color>| {
        let mut line = String::new();
        for (column, cell) in cells.into_iter().enumerate() {
            let Some(columns) = widths[column] else {
                continue;
            };
            let room = " ".repeat(columns.saturating_sub(width(cell)));
            let cell = if HEADINGS[column].1 {
                format!("{cell}{room}")
            } else {
                format!("{room}{cell}")
            };
            line += &match color.filter(|_| column == CHANGE) {
                Some(color) => screen.colored(cell, color),
                None => cell,
            };
            line += "  ";
        }
        line
    };
    let used = 2 + widths
        .iter()
        .flatten()
        .map(|columns| columns + 2)
        .sum::<usize>();
    writeln!(out, "  {}function", line(HEADINGS.map(|it| it.0), None))?;
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
        let name = screen.name(&row.function.name, &notes, used);
        let cells = line(cells.each_ref().map(String::as_str), color);
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

/// The widths of the columns; `None` for those that are left out.
fn widths(cells: &[[String; 6]], screen: Screen) -> [Option<usize>; 6] {
    let mut widths = [0, 1, 2, 3, 4, 5].map(|column| {
        let all = cells.iter().map(|row| width(&row[column]));
        Some(all.fold(width(HEADINGS[column].0), usize::max))
    });
    if let Some(room) = screen.columns {
        for column in DISPENSABLE {
            let used: usize = widths.iter().flatten().map(|columns| columns + 2).sum();
            if used + 2 + NAME_COLUMNS > room {
                widths[column] = None;
            }
        }
    }
    widths
}
