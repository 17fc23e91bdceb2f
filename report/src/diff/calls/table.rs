//! The comparison of calls as a table.

use super::{Blocks, CallChange, CallDiff, Measure, percent};
use crate::diff::matching::Kind;
use crate::diff::table::{TableOptions, sides, verdict, write_basis};
use crate::recording::unit::duration;
use crate::text::screen::{Color, Notes};
use std::io::{self, Write};

/// A row in words.
pub(crate) struct Cells {
    pub(crate) change: String,
    /// Apart from what most functions changed by.
    pub(crate) apart: String,
    pub(crate) interval: String,
    /// Of A and of B.
    pub(crate) values: [String; 2],
    pub(crate) of: &'static str,
    pub(crate) function: String,
    /// How many calls, and other remarks.
    pub(crate) notes: String,
}

impl Cells {
    pub(crate) fn of(diff: &CallDiff, change: &CallChange) -> Cells {
        let function = &diff.series.functions[change.function as usize];
        let (low, high) = change.interval();
        let [a, b] = change.calls;
        let mut notes = match change.of {
            Measure::Rate => format!("{a:.0} / {b:.0} calls"),
            _ => format!("{a:.0} / {b:.0} calls with a length"),
        };
        if function.kind != Kind::Same {
            notes += &format!("; {}", function.kind.name());
        }
        let is_new = change.of == Measure::Rate && (a == 0.0 || b == 0.0);
        Cells {
            change: match is_new {
                true if a == 0.0 => "new".to_owned(),
                true => "gone".to_owned(),
                false => percent(change.relative()),
            },
            apart: match is_new {
                true => "-".to_owned(),
                false => percent(change.apart()),
            },
            interval: format!("{} to {}", percent(low), percent(high)),
            values: change
                .values
                .map(|value| told(value, change.of, diff.series.by)),
            of: change.of.name(),
            function: function.name.clone(),
            notes: format!("  ({notes})"),
        }
    }
}

/// Nanoseconds a call, or calls a second or of a thousand.
fn told(value: f64, of: Measure, by: Blocks) -> String {
    let per = match (of, by) {
        (Measure::Own | Measure::Total, _) => return time(value),
        (Measure::Rate, Blocks::Time) => "/s",
        (Measure::Rate, Blocks::Order) => "/1000",
    };
    match value {
        0.0 => "-".to_owned(),
        100.0.. => format!("{value:.0}{per}"),
        _ => format!("{value:.2}{per}"),
    }
}

/// A mean, which may be of less than a nanosecond more.
fn time(mean_ns: f64) -> String {
    match mean_ns {
        ..100.0 => format!("{mean_ns:.1} ns"),
        _ => duration(mean_ns.round() as u64),
    }
}

/// Writes the table: certain changes first, by the time that they are certainly about.
///
/// # Errors
/// What `out` returns.
pub fn write(diff: &CallDiff, options: TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    let compared = sides(&diff.names, &diff.accounts);
    write_basis(compared, &diff.warnings, &diff.advice(), screen, out)?;
    let certain = diff.certain();
    writeln!(out, "\n{}\n", verdict(certain))?;
    let most = options.most();
    let changes = &diff.verdicts.changes;
    let heads = ["A", "B", "change", "apart", "interval", "of"].map(str::to_owned);
    writeln!(out, "  {}function", columns(&heads))?;
    for (index, change) in changes.iter().take(most).enumerate() {
        if index == certain && certain > 0 {
            writeln!(out, "  not certain:")?;
        }
        let cells = Cells::of(diff, change);
        let [a, b] = cells.values;
        let row = columns(&[
            a,
            b,
            cells.change,
            cells.apart,
            cells.interval,
            cells.of.to_owned(),
        ]);
        let used = row.len() + 2;
        let row = match (change.certain, change.estimate.change() > 0.0) {
            (true, true) => screen.colored(row, Color::Red),
            (true, false) => screen.colored(row, Color::Green),
            (false, _) => row,
        };
        let notes = Notes {
            mark: "",
            module: String::new(),
            more: cells.notes,
        };
        let mark = if change.certain { "*" } else { " " };
        writeln!(
            out,
            "{mark} {row}{}",
            screen.name(&cells.function, &notes, used)
        )?;
    }
    if let Some(more @ 1..) = changes.len().checked_sub(most) {
        writeln!(out, "… and {more} more (--rows 0 shows all)")?;
    }
    writeln!(out)?;
    screen.write_prose("", &legend(diff), 0, out)
}

fn columns([a, b, change, apart, interval, of]: &[String; 6]) -> String {
    format!("{a:>9}  {b:>9}  {change:>7}  {apart:>7}  {interval:>18}  {of:<5}  ")
}

/// What the numbers mean.
pub(crate) fn legend(diff: &CallDiff) -> String {
    let rate = match diff.series.by {
        Blocks::Time => "calls a second",
        Blocks::Order => "calls of a thousand",
    };
    format!(
        "self: time of a call itself; total: with all that it called; calls: {rate}. Changes are parts of A; apart: \
         from what most functions changed by together, with the interval. Certain: false discoveries held below {}%, \
         apart more than {}%, and the whole change as well.",
        diff.options.false_discoveries * 100.0,
        diff.options.least_change * 100.0
    )
}
