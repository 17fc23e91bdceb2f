//! The comparison of calls for a pull request: tables in Markdown, and annotations for a workflow of GitHub Actions.

use super::table::{Cells, legend, sides};
use super::{CallChange, CallDiff};
use crate::diff::table::{TableOptions, verdict};
use crate::text::short;
use crate::views::markdown::{code, list};
use crate::views::workflow::{Level, SHOWN, annotate};
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
    let most = options.most();
    writeln!(out, "**{}**\n", verdict(certain.len()))?;
    write_changes(diff, certain, most, out)?;
    writeln!(
        out,
        "<details><summary>What is compared, and what is not certain</summary>\n"
    )?;
    for (letter, names, account) in sides(diff) {
        let lines = names.iter().chain(&account);
        let lines: Vec<String> = lines.map(|line| format!("{letter}  {line}")).collect();
        list(&lines, out)?;
    }
    list(&diff.warnings, out)?;
    list(&diff.advice(), out)?;
    writeln!(out)?;
    write_changes(diff, others, most.saturating_sub(certain.len()), out)?;
    writeln!(out, "{}\n\n</details>", legend(diff))
}

fn write_changes(
    diff: &CallDiff,
    changes: &[CallChange],
    most: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if changes.is_empty() || most == 0 {
        return Ok(());
    }
    writeln!(out, "| A | B | change | apart | interval | of | function |")?;
    writeln!(out, "|---:|---:|---:|---:|---:|:---|:---|")?;
    for change in changes.iter().take(most) {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.values;
        writeln!(
            out,
            "| {a} | {b} | {} | {} | {} | {} | {} |",
            cells.change,
            cells.apart,
            cells.interval,
            cells.of,
            code(&format!("{}{}", short(&cells.function), cells.notes))
        )?;
    }
    match changes.len().saturating_sub(most) {
        0 => writeln!(out),
        more => writeln!(out, "\nand {more} more\n"),
    }
}

/// Writes a warning for each function whose calls certainly take longer or are more, a notice for each other change
/// that is certain.
///
/// # Errors
/// What `out` returns.
pub fn write_annotations(diff: &CallDiff, _: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let certain = &diff.verdicts.changes[..diff.certain()];
    let mut summary = vec![verdict(certain.len())];
    summary.extend(diff.warnings.iter().cloned());
    annotate(Level::Notice, &summary.join("\n"), out)?;
    for (level, grows) in [(Level::Warning, true), (Level::Notice, false)] {
        let changes = certain
            .iter()
            .filter(|change| (change.estimate.change() > 0.0) == grows);
        for change in changes.take(SHOWN) {
            let cells = Cells::of(diff, change);
            let [a, b] = &cells.values;
            let text = format!(
                "{} ({}): {a} to {b}, change {}, apart from what most functions changed by {} ({}){}",
                short(&cells.function),
                cells.of,
                cells.change,
                cells.apart,
                cells.interval,
                cells.notes
            );
            annotate(level, &text, out)?;
        }
    }
    Ok(())
}
