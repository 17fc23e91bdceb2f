//! The comparison as tables in Markdown, as GitHub and GitLab show it in a pull request.

use super::table::{Cells, TableOptions, advice, legend, sides, verdict};
use super::{Change, Diff};
use crate::recording::account::Account;
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
    let row = |change: &&Change| {
        let cells = Cells::of(diff, change);
        let [a, b] = &cells.shares;
        format!(
            "| {} | {} | {a} | {b} | {} | {} | {} |",
            cells.change,
            cells.interval,
            cells.relative,
            cells.of,
            code(&cells.named(Screen::default(), 0))
        )
    };
    let mut about = compared(&diff.names, &diff.accounts);
    about.extend([diff.warnings.clone(), advice(diff)]);
    let folded = Folded {
        certain,
        others,
        most: options.most(),
        heading: "| change | interval | A | B | relative | of | function |\n|---:|---:|---:|---:|---:|:---|:---|",
        row: &row,
        about,
        legend: legend(diff),
    };
    folded.write(out)
}

/// A comparison of which only the certain changes are seen at once.
pub(super) struct Folded<'a, C> {
    /// Changes that are certain.
    pub certain: &'a [C],
    /// All others.
    pub others: &'a [C],
    /// Most rows of both tables.
    pub most: usize,
    /// The first two lines of a table.
    pub heading: &'a str,
    /// The row of a change.
    pub row: &'a dyn Fn(&C) -> String,
    /// What is compared, list by list.
    pub about: Vec<Vec<String>>,
    /// What the numbers mean.
    pub legend: String,
}

/// What is compared: a list for each side, by the names of its recordings.
pub(super) fn compared(names: &[Vec<String>; 2], accounts: &[Account; 2]) -> Vec<Vec<String>> {
    let side = |(letter, names, account): (&str, &[String], &Account)| {
        let lines = account.lines();
        let lines = names.iter().chain(&lines);
        lines.map(|line| format!("{letter}  {line}")).collect()
    };
    sides(names, accounts).map(side).collect()
}

impl<C> Folded<'_, C> {
    /// Writes it.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "**{}**\n", verdict(self.certain.len()))?;
        self.write_table(self.certain, self.most, out)?;
        writeln!(
            out,
            "<details><summary>What is compared, and what is not certain</summary>\n"
        )?;
        for lines in &self.about {
            list(lines, out)?;
        }
        writeln!(out)?;
        let left = self.most.saturating_sub(self.certain.len());
        self.write_table(self.others, left, out)?;
        writeln!(out, "{}\n\n</details>", self.legend)
    }

    fn write_table(&self, changes: &[C], most: usize, out: &mut dyn Write) -> io::Result<()> {
        if changes.is_empty() || most == 0 {
            return Ok(());
        }
        writeln!(out, "{}", self.heading)?;
        for change in changes.iter().take(most) {
            writeln!(out, "{}", (self.row)(change))?;
        }
        match changes.len().saturating_sub(most) {
            0 => writeln!(out),
            more => writeln!(out, "\nand {more} more\n"),
        }
    }
}
