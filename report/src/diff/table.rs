//! The comparison as a table.

use super::Diff;
use super::matching::Kind;
use super::plan::RECORDINGS_MAX;
use super::verdict::{Change, DETECTABLE_AT};
use crate::account::Account;
use crate::unit::Unit;
use std::io::{self, Write};

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Most lines; 0 for all.
    pub rows: usize,
    /// Call paths too.
    pub paths: bool,
}

impl TableOptions {
    /// Most lines, in a number.
    pub(crate) fn most(self) -> usize {
        match self.rows {
            0 => usize::MAX,
            rows => rows,
        }
    }
}

/// The letters of both sides, with their recordings and what these rest on.
pub(crate) fn sides(diff: &Diff) -> impl Iterator<Item = (&'static str, &[String], &Account)> {
    let sides = ["A", "B"].into_iter().zip(&diff.names).zip(&diff.accounts);
    sides.map(|((letter, names), account)| (letter, &names[..], account))
}

/// Writes the table: certain changes first, by how much of them is certain.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &Diff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    for (letter, names, account) in sides(diff) {
        for name in names {
            writeln!(out, "{letter}  {}", crate::labels::printable(name))?;
        }
        for line in account.lines() {
            writeln!(out, "   {line}")?;
        }
    }
    for warning in &diff.warnings {
        writeln!(out, "warning: {}", crate::labels::printable(warning))?;
    }
    for line in advice(diff) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    let changes: Vec<&Change> = diff.listed(options.paths).collect();
    let certain = changes.iter().filter(|change| change.certain).count();
    writeln!(out, "{}", verdict(certain))?;
    writeln!(
        out,
        "\n  {:>8}  {:>17}  {:>7}  {:>7}  {:>8}  {:<5}  function",
        "change", "interval", "A", "B", "relative", "of"
    )?;
    let most = options.most();
    for (index, change) in changes.iter().take(most).enumerate() {
        if index == certain && certain > 0 {
            writeln!(out, "  not certain:")?;
        }
        write_row(diff, change, out)?;
    }
    if changes.len() > most {
        let left = changes.len() - most;
        let sure = match certain.saturating_sub(most) {
            0 => "none".to_owned(),
            sure => format!("{sure} of them"),
        };
        writeln!(
            out,
            "… and {left} more, {sure} certain (--rows 0 shows all)"
        )?;
    }
    writeln!(out, "\n{}", legend(diff))
}

/// How many changes are certain, in words.
pub(crate) fn verdict(certain: usize) -> String {
    match certain {
        0 => "No change is certain.".to_owned(),
        _ => format!("Certain changes: {certain}"),
    }
}

/// What the numbers of a table are.
pub(crate) fn legend(diff: &Diff) -> String {
    format!(
        "Shares of {} in percent, changes in points. Certain: false discoveries \
         held below {}%, change more than {} points, and not only because others changed.",
        match diff.series.unit {
            Unit::Samples => "on-CPU samples",
            Unit::OffCpu => "time off CPU",
        },
        diff.options.false_discoveries * 100.0,
        diff.options.least_change * 100.0
    )
}

/// What the recordings could have shown, and what would show more.
pub(crate) fn advice(diff: &Diff) -> Vec<String> {
    [Some(could_have_shown(diff)), what_next(diff)]
        .into_iter()
        .flatten()
        .collect()
}

fn could_have_shown(diff: &Diff) -> String {
    let parts = DETECTABLE_AT.iter().zip(diff.verdicts.detectable);
    let parts = parts.map(|(share, change)| {
        let (percent, points) = (share * 100.0, change * 100.0);
        format!(
            "±{points:.2} points ({:.1}%) at a share of {percent}%",
            change / share * 100.0
        )
    });
    let parts: Vec<String> = parts.collect();
    format!(
        "Changes that these recordings would have shown with a probability of 80%: {}.",
        parts.join(", ")
    )
}

/// How many recordings would show a slowdown.
fn what_next(diff: &Diff) -> Option<String> {
    let verdicts = &diff.verdicts;
    let plan = verdicts.plans.first()?;
    let slower = plan.slower * 100.0;
    if !verdicts.runs_measured {
        return Some(
            "Next: how much runs of this program differ can't be told from one recording of each side, so \
             only large changes are certain. Record two or more a side, in turns: A B A B."
                .to_owned(),
        );
    }
    let have = diff
        .series
        .sides
        .each_ref()
        .map(|side| side.recordings.len());
    let have = have[0].min(have[1]);
    let parts = verdicts.plans.iter().map(|plan| {
        let share = plan.share * 100.0;
        let of = format!("for a function with {share}% of the samples");
        match plan.recordings {
            Some(enough) if enough <= have => format!("no more {of}"),
            Some(enough) => format!("{} more a side {of}", enough - have),
            None => format!("more than {RECORDINGS_MAX} a side {of}"),
        }
    });
    let parts: Vec<String> = parts.collect();
    let turns = match diff.series.in_turns {
        true => "",
        false => " Recorded in turns, A B A B, they may tell more.",
    };
    Some(format!(
        "Next: to show a slowdown of {slower}% with a probability of 80%, record {}.{turns}",
        parts.join("; ")
    ))
}

/// A change in words and numbers: shares in percent, changes in points.
pub(crate) struct Cells {
    pub(crate) change: String,
    pub(crate) interval: String,
    /// Shares of A and B.
    pub(crate) shares: [String; 2],
    pub(crate) relative: String,
    /// What is counted of the function.
    pub(crate) of: &'static str,
    pub(crate) function: String,
    /// The image in brackets, and what else is to be said, or nothing.
    pub(crate) notes: String,
}

impl Cells {
    pub(crate) fn of(diff: &Diff, change: &Change) -> Cells {
        let series = &diff.series;
        let item = &series.items[change.item];
        let function = &series.functions[item.function as usize];
        let estimate = &change.estimate;
        let (low, high) = change.interval;
        let mut notes = match function.module.as_str() {
            "" => String::new(),
            module => format!("[{}]", module.trim_matches(['[', ']'])),
        };
        let kind = match function.kind {
            Kind::Same => "",
            Kind::Unmatched => "unmatched: it can't be told whether the other side has it",
            kind => kind.name(),
        };
        let pushed = match change.pushed {
            true => "pushed: others changed",
            false => "",
        };
        for note in [kind, pushed].iter().filter(|note| !note.is_empty()) {
            let apart = if notes.is_empty() { "" } else { "  " };
            notes += &format!("{apart}({note})");
        }
        Cells {
            change: format!("{:+.2}", estimate.change() * 100.0),
            interval: format!("{:+.2} to {:+.2}", low * 100.0, high * 100.0),
            shares: [estimate.a, estimate.b].map(|share| format!("{:.2}", share * 100.0)),
            relative: match estimate.relative() {
                Some(relative) => format!("{:+.1}%", relative * 100.0),
                None => "new".to_owned(),
            },
            of: item.counted.name(),
            function: crate::labels::short(&series.item_name(item)).into_owned(),
            notes,
        }
    }

    /// The function with its notes.
    pub(crate) fn named(&self) -> String {
        match self.notes.as_str() {
            "" => self.function.clone(),
            notes => format!("{}  {notes}", self.function),
        }
    }
}

fn write_row(diff: &Diff, change: &Change, out: &mut dyn Write) -> io::Result<()> {
    let cells = Cells::of(diff, change);
    let [a, b] = &cells.shares;
    writeln!(
        out,
        "{} {:>8}  {:>17}  {a:>7}  {b:>7}  {:>8}  {:<5}  {}",
        if change.certain { "*" } else { " " },
        cells.change,
        cells.interval,
        cells.relative,
        cells.of,
        cells.named()
    )
}
