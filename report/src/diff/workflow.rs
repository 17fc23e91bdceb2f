//! The comparison as annotations for a workflow of GitHub Actions.

use super::listing::ListingSource;
use super::sentence::verdict;
use super::table::TableOptions;
use crate::text::short;
use crate::views::workflow::annotate_changes;
use std::io::{self, Write};

/// Writes a summary, then a warning for each function that certainly takes more time or is called more often,
/// and a notice for each other certain change.
///
/// # Errors
/// The errors of `out`.
pub fn write(of: &dyn ListingSource, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listing = of.listing(options.paths);
    let mut summary = vec![verdict(&listing)];
    summary.extend(listing.warnings.iter().cloned());
    let changes = listing.rows.iter().filter(|row| row.certain).map(|row| {
        let text = format!("{} {} {}", short(&row.function), row.sentence, row.notes);
        (row.grew, text.trim_end().to_owned())
    });
    annotate_changes(&summary, &changes.collect::<Vec<_>>(), out)
}
