//! The comparison as a table.

use super::Diff;
use super::matching::Kind;
use super::plan::RECORDINGS_MAX;
use super::verdict::{Change, DETECTABLE_AT};
use crate::recording::account::Account;
use crate::recording::unit::Unit;
use crate::text::screen::{Color, Notes, Screen, width};
use std::io::{self, Write};

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Most lines; 0 for all.
    pub rows: usize,
    /// Call paths too.
    pub paths: bool,
    /// The terminal.
    pub screen: Screen,
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

/// The letters of both sides, with their recordings and samples.
pub(crate) fn sides<'d>(
    names: &'d [Vec<String>; 2],
    accounts: &'d [Account; 2],
) -> impl Iterator<Item = (&'static str, &'d [String], &'d Account)> {
    let sides = ["A", "B"].into_iter().zip(names).zip(accounts);
    sides.map(|((letter, names), account)| (letter, &names[..], account))
}

/// Writes the table: certain changes first, by the size that is certain.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &Diff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    let compared = sides(&diff.names, &diff.accounts);
    write_basis(compared, &diff.warnings, &advice(diff), screen, out)?;
    writeln!(out)?;
    let changes: Vec<&Change> = diff.listed(options.paths).collect();
    let certain = changes.iter().filter(|change| change.certain).count();
    writeln!(out, "{}\n", verdict(certain))?;
    let most = options.most();
    let shown = changes.iter().take(most);
    let rows: Vec<Cells> = shown.map(|change| Cells::of(diff, change)).collect();
    let columns = Columns::of(&rows, screen);
    columns.write_heading(out)?;
    for (index, (change, cells)) in changes.iter().zip(&rows).enumerate() {
        if index == certain && certain > 0 {
            writeln!(out, "  not certain:")?;
        }
        columns.write_row(change, cells, out)?;
    }
    if changes.len() > most {
        let left = changes.len() - most;
        let sure = match certain.saturating_sub(most) {
            0 => "none".to_owned(),
            sure => format!("{sure} of them"),
        };
        let note = format!("… and {left} more, {sure} certain (--rows 0 shows all)");
        screen.write_prose("", &note, 2, out)?;
    }
    writeln!(out)?;
    screen.write_prose("", &legend(diff), 0, out)
}

/// Writes what the table below rests on: the sides, warnings and advice.
///
/// # Errors
/// What `out` returns.
pub(super) fn write_basis<'d>(
    sides: impl Iterator<Item = (&'static str, &'d [String], &'d Account)>,
    warnings: &[String],
    advice: &[String],
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (letter, names, account) in sides {
        for name in names {
            let name = crate::text::printable(name).into_owned();
            writeln!(out, "{letter}  {}", screen.ends(&name, 3))?;
        }
        for line in account.lines() {
            screen.write_prose("   ", &line, 5, out)?;
        }
    }
    for warning in warnings {
        let warning = crate::text::printable(warning);
        screen.write_prose("warning: ", &warning, 2, out)?;
    }
    for line in advice {
        screen.write_prose("", line, 2, out)?;
    }
    Ok(())
}

/// How many changes are certain, in words.
pub(crate) fn verdict(certain: usize) -> String {
    match certain {
        0 => "No change is certain.".to_owned(),
        _ => format!("Certain changes: {certain}"),
    }
}

/// What the numbers of a table mean.
pub(crate) fn legend(diff: &Diff) -> String {
    format!(
        "Shares of {} in percent, changes in points. Certain: false discoveries \
         held below {}%, change more than {} points, and not only because others changed.",
        match diff.series.unit {
            Unit::Samples => "on-CPU samples",
            Unit::OffCpu => "time off CPU",
            Unit::Calls => "time in calls",
        },
        diff.options.false_discoveries * 100.0,
        diff.options.least_change * 100.0
    )
}

/// The sensitivity of the comparison, and what would increase it.
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
            "Next: how much runs of this program differ isn't known from one recording of each side, so \
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
        false => " Recorded in turns, A B A B, they may show more.",
    };
    Some(format!(
        "Next: to show a slowdown of {slower}% with a probability of 80%, record {}.{turns}",
        parts.join("; ")
    ))
}

/// A remark on a function without a counterpart.
const UNMATCHED: &str = "unmatched: it isn't known whether the other side has it";

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
    /// The image in brackets and other remarks, or nothing.
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
            Kind::Unmatched => UNMATCHED,
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
            function: series.item_name(item),
            notes,
        }
    }

    /// The function with its notes, behind `used` columns.
    pub(crate) fn named(&self, screen: Screen, used: usize) -> String {
        let apart = if self.notes.is_empty() { "" } else { "  " };
        // In little room, only the word is shown.
        let text = match screen.columns {
            Some(_) => self.notes.replace(UNMATCHED, Kind::Unmatched.name()),
            None => self.notes.clone(),
        };
        let notes = Notes {
            module: format!("{apart}{text}"),
            ..Notes::default()
        };
        screen.name(&self.function, &notes, used)
    }

    /// What is shown before it.
    fn numbers(&self) -> [&str; 6] {
        let [a, b] = &self.shares;
        [&self.change, &self.interval, a, b, &self.relative, self.of]
    }
}

const HEADINGS: [&str; 6] = ["change", "interval", "A", "B", "relative", "of"];
/// The columns' widths where there is room for everything.
const WIDTHS: [usize; 6] = [8, 17, 7, 7, 8, 5];
/// Columns that a narrow screen omits, in this order; the change and B imply both.
const LEFT_OUT: [usize; 2] = [4, 2];
/// The least width for names; with less, columns are omitted.
const NAME_COLUMNS: usize = 32;

/// The columns in front of functions.
struct Columns {
    /// Omitted columns have no width.
    widths: [Option<usize>; 6],
    screen: Screen,
}

impl Columns {
    fn of(rows: &[Cells], screen: Screen) -> Columns {
        let mut columns = Columns {
            widths: WIDTHS.map(Some),
            screen,
        };
        let Some(all) = screen.columns else {
            return columns;
        };
        for (index, column) in columns.widths.iter_mut().enumerate() {
            let cells = rows.iter().map(|row| width(row.numbers()[index]));
            *column = Some(cells.fold(width(HEADINGS[index]), usize::max));
        }
        for index in LEFT_OUT {
            if columns.used() + NAME_COLUMNS > all {
                columns.widths[index] = None;
            }
        }
        columns
    }

    /// The column where functions begin.
    fn used(&self) -> usize {
        let widths = self.widths.iter().flatten();
        2 + widths.map(|width| width + 2).sum::<usize>()
    }

    /// `cells` in their columns, the first one coloured.
    fn row(&self, cells: [&str; 6], color: Option<Color>) -> String {
        let mut row = String::new();
        for (index, cell) in cells.into_iter().enumerate() {
            let Some(width) = self.widths[index] else {
                continue;
            };
            let cell = match index {
                5 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            row += &match color.filter(|_| index == 0) {
                Some(color) => self.screen.colored(cell, color),
                None => cell,
            };
            row += "  ";
        }
        row
    }

    fn write_heading(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  {}function", self.row(HEADINGS, None))
    }

    fn write_row(&self, change: &Change, cells: &Cells, out: &mut dyn Write) -> io::Result<()> {
        let mark = if change.certain { "*" } else { " " };
        let color = match change.estimate.change() > 0.0 {
            true => Color::Red,
            false => Color::Green,
        };
        let numbers = self.row(cells.numbers(), change.certain.then_some(color));
        let name = cells.named(self.screen, self.used());
        writeln!(out, "{mark} {numbers}{name}")
    }
}
