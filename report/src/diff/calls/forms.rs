//! The comparison of calls for a pull request: tables in Markdown, and annotations for a workflow of GitHub Actions.

use super::table::{Cells, legend};
use super::{CallChange, CallDiff};
use crate::diff::markdown::{Folded, compared};
use crate::diff::table::TableOptions;
use crate::diff::workflow::write_changes;
use crate::text::short;
use crate::views::markdown::code;
use std::io::{self, Write};

/// Writes the changes that are certain, and the others folded away.
///
/// # Errors
/// What `out` returns.
pub fn write_markdown(
    diff: &CallDiff,
    options: TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (certain, others) = diff.verdicts.changes.split_at(diff.certain());
    let row = |change: &CallChange| {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.values;
        format!(
            "| {a} | {b} | {} | {} | {} | {} | {} |",
            cells.change,
            cells.apart,
            cells.interval,
            cells.of,
            code(&format!("{}{}", short(&cells.function), cells.notes))
        )
    };
    let mut about = compared(&diff.names, &diff.accounts);
    about.extend([diff.warnings.clone(), diff.advice()]);
    let folded = Folded {
        certain,
        others,
        most: options.most(),
        heading: "| A | B | change | apart | interval | of | function |\n|---:|---:|---:|---:|---:|:---|:---|",
        row: &row,
        about,
        legend: legend(diff),
    };
    folded.write(out)
}

/// Writes a warning for each function whose calls certainly take longer or are more, a notice for each other change
/// that is certain.
///
/// # Errors
/// What `out` returns.
pub fn write_annotations(diff: &CallDiff, _: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let certain = &diff.verdicts.changes[..diff.certain()];
    let text = |change: &CallChange| {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.values;
        format!(
            "{} ({}): {a} to {b}, change {}, apart from what most functions changed by {} ({}){}",
            short(&cells.function),
            cells.of,
            cells.change,
            cells.apart,
            cells.interval,
            cells.notes
        )
    };
    let grew = |change: &CallChange| change.estimate.change() > 0.0;
    write_changes(certain, &diff.warnings, &grew, &text, out)
}
