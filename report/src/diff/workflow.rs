//! The comparison as annotations for a workflow of GitHub Actions.

use super::table::{Cells, TableOptions, verdict};
use super::{Change, Diff};
use crate::text::short;
use crate::views::workflow::{Level, SHOWN, annotate};
use std::io::{self, Write};

/// Writes a comparison: a warning for each function that certainly takes more, a notice for each that takes less.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &Diff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let certain: Vec<&Change> = diff
        .listed(options.paths)
        .filter(|change| change.certain)
        .collect();
    let text = |change: &&Change| {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.shares;
        let text = format!(
            "{} ({}): {a}% to {b}% of the {}, change {} points ({}) {}",
            short(&cells.function),
            cells.of,
            diff.series.unit.what(),
            cells.change,
            cells.interval,
            cells.notes
        );
        text.trim_end().to_owned()
    };
    let grew = |change: &&Change| change.estimate.change() > 0.0;
    write_changes(&certain, &diff.warnings, &grew, &text, out)
}

/// Writes a summary, then a warning for each certain change that `grew`, and a notice for each other one.
///
/// # Errors
/// What `out` returns.
pub(super) fn write_changes<C>(
    certain: &[C],
    warnings: &[String],
    grew: &dyn Fn(&C) -> bool,
    text: &dyn Fn(&C) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut summary = vec![verdict(certain.len())];
    summary.extend(warnings.iter().cloned());
    annotate(Level::Notice, &summary.join("\n"), out)?;
    for (level, grows) in [(Level::Warning, true), (Level::Notice, false)] {
        let changes = certain.iter().filter(|change| grew(change) == grows);
        for change in changes.take(SHOWN) {
            annotate(level, &text(change), out)?;
        }
    }
    Ok(())
}
