//! The comparison as tables in Markdown, as GitHub and GitLab show it in a pull request.

use super::table::{Cells, TableOptions, advice, legend, sides, verdict};
use super::{Change, Diff};
use crate::text::screen::Screen;
use crate::views::markdown::{code, list};
use std::io::{self, Write};

/// Writes a comparison: the changes that are certain, and the others folded away.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &Diff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listed: Vec<&Change> = diff.listed(options.paths).collect();
    let certain = listed.iter().filter(|change| change.certain).count();
    let (certain, others) = listed.split_at(certain);
    let most = options.most();
    writeln!(out, "**{}**\n", verdict(certain.len()))?;
    write_changes(diff, certain, most, out)?;
    writeln!(
        out,
        "<details><summary>What is compared, and what is not certain</summary>\n"
    )?;
    for (letter, names, account) in sides(diff) {
        let lines = account.lines();
        let lines = names.iter().chain(&lines);
        let lines: Vec<String> = lines.map(|line| format!("{letter}  {line}")).collect();
        list(&lines, out)?;
    }
    list(&diff.warnings, out)?;
    list(&advice(diff), out)?;
    writeln!(out)?;
    write_changes(diff, others, most.saturating_sub(certain.len()), out)?;
    writeln!(out, "{}\n\n</details>", legend(diff))
}

fn write_changes(
    diff: &Diff,
    changes: &[&Change],
    most: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if changes.is_empty() || most == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "| change | interval | A | B | relative | of | function |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|:---|:---|")?;
    for change in changes.iter().take(most) {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.shares;
        writeln!(
            out,
            "| {} | {} | {a} | {b} | {} | {} | {} |",
            cells.change,
            cells.interval,
            cells.relative,
            cells.of,
            code(&cells.named(Screen::default(), 0))
        )?;
    }
    match changes.len().saturating_sub(most) {
        0 => writeln!(out),
        more => writeln!(out, "\nand {more} more\n"),
    }
}
