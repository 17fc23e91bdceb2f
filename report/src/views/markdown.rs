//! Tables in Markdown, as GitHub and GitLab show it in a pull request: functions by their samples, and comparisons.
//!
//! Names are a stranger's. They stand in code spans, in which nothing is markup, a link or a mention.

use super::screen::Screen;
use super::top::{self, TopOptions};
use crate::account::share;
use crate::diff::table::{Cells, TableOptions, advice, legend, sides, verdict};
use crate::diff::{Change, Diff};
use crate::gather::Profile;
use crate::labels::printable;
use std::io::{self, Write};

/// `text` as a code span in a cell of a table: in backticks of which it has none as many, without what would end the
/// cell.
fn code(text: &str) -> String {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let ticks = "`".repeat(runs.max().unwrap_or(0) + 1);
    // One space within each end is not shown, and keeps backticks apart.
    let edge = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        " "
    } else {
        ""
    };
    let text = printable(text).replace('|', "\\|");
    format!("{ticks}{edge}{text}{edge}{ticks}")
}

/// A list of lines, each a code span.
fn list(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut lines = lines.iter();
    lines.try_for_each(|line| writeln!(out, "- {}", code(line)))
}

/// Writes the functions of a profile.
///
/// # Errors
/// What `out` returns.
pub fn write_top(profile: &Profile, options: TopOptions, out: &mut dyn Write) -> io::Result<()> {
    let (all, shown) = top::shown(profile, options);
    list(&profile.account.lines(), out)?;
    writeln!(out, "\n| self | % | total | % | function |")?;
    writeln!(out, "|---:|---:|---:|---:|:---|")?;
    let (counted, unit) = (profile.account.counted, profile.unit());
    for row in &shown {
        let (own, total) = (share(row.own, counted), share(row.total, counted));
        let [own_amount, total_amount] = [row.own, row.total].map(|amount| unit.amount(amount));
        let name = code(&top::named(profile, row, Screen::default(), 0));
        writeln!(
            out,
            "| {own_amount} | {own} | {total_amount} | {total} | {name} |"
        )?;
    }
    match all - shown.len() {
        0 => Ok(()),
        more => writeln!(out, "\nand {more} more"),
    }
}

/// Writes a comparison: the changes that are certain, and the others folded away.
///
/// # Errors
/// What `out` returns.
pub fn write_diff(diff: &Diff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(code("f<a|b>(*)"), "`f<a\\|b>(*)`");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`x`"), "`` `x` ``");
        assert_eq!(code("a\n| b"), "`a\u{fffd}\\| b`");
    }
}
