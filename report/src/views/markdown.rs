//! The table of functions in Markdown, as GitHub and GitLab show it in a pull request, and helpers for other tables.
//!
//! Names are untrusted. They are put into code spans, in which nothing is markup, a link or a mention.

use crate::profile::Profile;
use crate::profile::functions::{TopOptions, named, shown};
use crate::text::printable;
use crate::text::screen::Screen;
use crate::views::columns::Column;
use std::io::{self, Write};
use uprof::words::share;

/// `text` as a code span in a cell of a table. It is enclosed in more backticks than it has in a row, and
/// without the characters that would end the cell.
pub(crate) fn code(text: &str) -> String {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let ticks = "`".repeat(runs.max().unwrap_or(0) + 1);
    // A blank at each end is not shown, and separates the text's backticks from those around it.
    let edge = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        " "
    } else {
        ""
    };
    let text = printable(text).replace('|', "\\|");
    format!("{ticks}{edge}{text}{edge}{ticks}")
}

/// Writes a list with a code span for each line.
pub(crate) fn list(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut lines = lines.iter();
    lines.try_for_each(|line| writeln!(out, "- {}", code(line)))
}

/// Writes `most` of the rows of a table, if there are any. `line` is a row's cells and its function.
pub(crate) fn write_table<R>(
    columns: &[Column],
    rows: &[R],
    most: usize,
    line: &dyn Fn(&R) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() || most == 0 {
        return Ok(());
    }
    let headings = columns.iter().map(|column| column.heading);
    let headings: Vec<&str> = headings.chain(["function"]).collect();
    let is_text = columns.iter().map(|column| column.is_text);
    let lines = is_text
        .chain([true])
        .map(|text| if text { ":---" } else { "---:" });
    let lines: Vec<&str> = lines.collect();
    writeln!(out, "| {} |\n|{}|", headings.join(" | "), lines.join("|"))?;
    for row in rows.iter().take(most) {
        writeln!(out, "| {} |", line(row))?;
    }
    match rows.len().saturating_sub(most) {
        0 => writeln!(out),
        more => writeln!(out, "\nand {more} more\n"),
    }
}

/// Longer names are shortened: a table that scrolls sideways is hard to read.
const SCREEN: Screen = Screen {
    columns: Some(120),
    colors: false,
};

/// Writes the functions of a profile.
pub(crate) fn write_top(
    profile: &Profile,
    options: TopOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown = shown(profile, options);
    list(&profile.account.lines(), out)?;
    writeln!(out, "\n| self | % | total | % | function |")?;
    writeln!(out, "|---:|---:|---:|---:|:---|")?;
    let (counted, unit) = (profile.account.counted, profile.unit());
    for row in &shown.rows {
        let (own, total) = (share(row.own, counted), share(row.total, counted));
        let [own_amount, total_amount] = [row.own, row.total].map(|amount| unit.amount(amount));
        let name = code(&named(profile, row, SCREEN, 0));
        writeln!(
            out,
            "| {own_amount} | {own} | {total_amount} | {total} | {name} |"
        )?;
    }
    let more = (shown.more > 0).then(|| format!("{} more", shown.more));
    let (below, share) = &shown.below;
    let below = (*below > 0).then(|| format!("{below} below {share}"));
    let left_out: Vec<String> = more.into_iter().chain(below).collect();
    match left_out.join(" and ").as_str() {
        "" => Ok(()),
        left_out => writeln!(out, "\nand {left_out}"),
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
