//! The comparison as tables in Markdown, as GitHub and GitLab show it in a pull request.

use super::listing::{Column, Listing, ListingSource, Row};
use super::sentence::verdict_in_markdown;
use super::table::TableOptions;
use crate::text::rows_max;
use crate::text::screen::Screen;
use crate::views::markdown::{code, list};
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
    write_table(&listing, certain, most, out)?;
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
    write_table(&listing, others, most.saturating_sub(certain.len()), out)?;
    writeln!(out, "{}. {}\n\n</details>", listing.asked, listing.legend)
}

fn write_table(
    listing: &Listing<'_>,
    rows: &[Row],
    most: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() || most == 0 {
        return Ok(());
    }
    let headings = listing.columns.iter().map(|column| column.heading);
    let headings: Vec<&str> = headings.chain(["function"]).collect();
    let is_text = listing.columns.iter().map(Column::is_text);
    let lines = is_text
        .chain([true])
        .map(|text| if text { ":---" } else { "---:" });
    let lines: Vec<&str> = lines.collect();
    writeln!(out, "| {} |\n|{}|", headings.join(" | "), lines.join("|"))?;
    for row in rows.iter().take(most) {
        let name = code(&row.named(Screen::default(), 0));
        writeln!(out, "| {} | {name} |", row.cells.join(" | "))?;
    }
    match rows.len().saturating_sub(most) {
        0 => writeln!(out),
        more => writeln!(out, "\nand {more} more\n"),
    }
}
