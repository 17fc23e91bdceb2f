//! The comparison as a table for a terminal.

pub(crate) use super::listing::sides;
use super::listing::{Listing, ListingSource};
use super::sentence::verdict;
pub(crate) use super::shares::{Cells, advice, legend};
use crate::text::screen::{Color, Screen};
use crate::text::{printable, rows_max};
use crate::views::columns::Columns;
use std::io::{self, Write};

/// The least width for names; if less remains, columns are omitted.
const NAME_COLUMNS: usize = 32;

/// Options of the table.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Most rows; 0 for all.
    pub rows: usize,
    /// Whether to list call paths.
    pub paths: bool,
    /// Whether to show the reasoning: what is compared, its warnings, what could have been found.
    pub explain: bool,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

/// Writes the verdict and the table: certain changes first, then by the size that is certain.
///
/// # Errors
/// The errors of `out`.
pub fn write(of: &dyn ListingSource, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    let listing = of.listing(options.paths);
    let certain = listing.certain();
    screen.write_prose("", &verdict(&listing), 0, out)?;
    writeln!(out)?;
    let most = rows_max(options.rows);
    let rows = &listing.rows[..most.min(listing.rows.len())];
    let cells = rows.iter().map(|row| &row.cells[..]);
    let columns = Columns::new(listing.columns, cells, NAME_COLUMNS, screen);
    writeln!(out, "{}", columns.heading())?;
    for (index, row) in rows.iter().enumerate() {
        if index == certain && certain > 0 {
            writeln!(out, "  not certain:")?;
        }
        let mark = if row.certain { "*" } else { " " };
        let color = if row.grew { Color::Red } else { Color::Green };
        let cells = row.cells.iter().map(String::as_str);
        let numbers = columns.row(cells, row.certain.then_some(color));
        let name = row.named(screen, columns.used());
        writeln!(out, "{mark} {numbers}{name}")?;
    }
    if listing.rows.len() > most {
        let left = listing.rows.len() - most;
        let sure = match certain.saturating_sub(most) {
            0 => "none".to_owned(),
            sure => format!("{sure} of them"),
        };
        let note = format!("… and {left} more, {sure} certain (--rows 0 shows all)");
        screen.write_prose("", &note, 2, out)?;
    }
    writeln!(out)?;
    if !options.explain {
        let asked = match listing.warnings.len() {
            0 => format!("{}. --explain: why.", listing.asked),
            1 => format!("{}; 1 warning. --explain: which, and why.", listing.asked),
            count => format!(
                "{}; {count} warnings. --explain: which, and why.",
                listing.asked
            ),
        };
        return screen.write_prose("", &asked, 0, out);
    }
    write_basis(&listing, screen, out)?;
    screen.write_prose("", &format!("{}.", listing.asked), 2, out)?;
    screen.write_prose("", &listing.legend, 2, out)
}

/// Writes the basis of the table: the sides, warnings and advice.
fn write_basis(listing: &Listing<'_>, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    for (letter, names, account) in sides(listing.names, listing.accounts) {
        for name in names {
            let name = printable(name).into_owned();
            writeln!(out, "{letter}  {}", screen.ends(&name, 3))?;
        }
        for line in account.lines() {
            screen.write_prose("   ", &line, 5, out)?;
        }
    }
    for warning in listing.warnings {
        screen.write_prose("warning: ", &printable(warning), 2, out)?;
    }
    for line in &listing.advice {
        screen.write_prose("", line, 2, out)?;
    }
    Ok(())
}
