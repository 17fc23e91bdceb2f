//! The comparison as tables in Markdown, as GitHub and GitLab show it in a pull request.

use super::listing::{ListingSource, Row};
use super::sentence::verdict_in_markdown;
use super::table::TableOptions;
use crate::text::rows_max;
use crate::text::screen::Screen;
use crate::views::markdown::{code, list, write_table};
use std::io::{self, Write};

/// Writes a comparison: the certain changes, and the others folded.
///
/// # Errors
/// The errors of `out`.
pub fn write(of: &dyn ListingSource, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listing = of.listing(options.paths);
    let (certain, others) = listing.rows.split_at(listing.certain());
    let most = rows_max(options.rows);
    writeln!(out, "**{}**\n", verdict_in_markdown(&listing))?;
    let line = |row: &Row| {
        let name = code(&row.named(Screen::default(), 0));
        format!("{} | {name}", row.cells.join(" | "))
    };
    write_table(listing.columns, certain, most, &line, out)?;
    writeln!(
        out,
        "<details><summary>What is compared, and what is not certain</summary>\n"
    )?;
    for lines in listing.compared() {
        list(&lines, out)?;
    }
    list(listing.warnings, out)?;
    list(&listing.advice, out)?;
    writeln!(out)?;
    let left = most.saturating_sub(certain.len());
    write_table(listing.columns, others, left, &line, out)?;
    writeln!(out, "{}. {}\n\n</details>", listing.asked, listing.legend)
}
