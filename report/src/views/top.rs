//! `--top`: functions by the samples, or the time, that were in them.

use super::screen::{Notes, Screen};
use super::{Needs, Output, Shown, TableForm, View, markdown, workflow};
use crate::account::share;
use crate::gather::Profile;
use crate::labels::LabelId;
use std::io::{self, Write};

/// The view.
pub const VIEW: View = View {
    name: "top",
    about: "Functions by their samples (the default)",
    output: Output::Text,
    needs: Needs::Counts,
    begin: |_| Box::new(write_shown),
};

fn write_shown(shown: &Shown<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let options = TopOptions {
        rows: shown.form.rows,
        least_share: shown.form.least_share.unwrap_or(0.0),
        screen: shown.form.screen,
    };
    match shown.form.table {
        TableForm::Text => write(shown.profile, options, out)?,
        TableForm::Markdown => markdown::write_top(shown.profile, options, out)?,
        TableForm::Github => workflow::write_top(shown.profile, options, out)?,
    }
    Ok(true)
}

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct TopOptions {
    /// Most lines; 0 for all.
    pub rows: usize,
    /// Least share of the samples, 0 to 1, that a function must have in its stacks.
    pub least_share: f64,
    /// What the table is written on.
    pub screen: Screen,
}

impl Default for TopOptions {
    fn default() -> Self {
        TopOptions {
            rows: 30,
            least_share: 0.0,
            screen: Screen::default(),
        }
    }
}

/// One function's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopRow {
    /// The function.
    pub label: LabelId,
    /// Samples whose innermost frame it was.
    pub own: u64,
    /// Samples in whose stack it was.
    pub total: u64,
}

/// All functions, most own samples first, then most in all, then by name.
pub fn rows(profile: &Profile) -> Vec<TopRow> {
    let counts = profile.tree.by_label(&profile.labels);
    let rows = counts.iter().enumerate().filter(|(_, count)| count.1 > 0);
    let mut rows: Vec<TopRow> = rows
        .map(|(label, (own, total))| TopRow {
            label: label as LabelId,
            own: *own,
            total: *total,
        })
        .collect();
    let labels = &profile.labels;
    rows.sort_by(|a, b| {
        let counts = (b.own, b.total).cmp(&(a.own, a.total));
        let names = labels.name(a.label).cmp(labels.name(b.label));
        let modules = labels.module_name(a.label).cmp(labels.module_name(b.label));
        counts.then(names).then(modules)
    });
    rows
}

/// How many functions there are, and those that are shown.
pub fn shown(profile: &Profile, options: TopOptions) -> (usize, Vec<TopRow>) {
    let all = rows(profile);
    let least = (options.least_share * profile.account.counted as f64).ceil() as u64;
    let most = match options.rows {
        0 => usize::MAX,
        rows => rows,
    };
    let count = all.len();
    let shown = all.into_iter().filter(|row| row.total >= least).take(most);
    (count, shown.collect())
}

/// What a row is called: its function, and where that is, behind `used` columns.
pub(crate) fn named(profile: &Profile, row: &TopRow, screen: Screen, used: usize) -> String {
    let labels = &profile.labels;
    let mark = match labels.get(row.label).inlined {
        true => " (inlined)",
        false => "",
    };
    let notes = Notes {
        mark,
        module: labels.module_suffix(row.label),
        more: String::new(),
    };
    screen.name(labels.name(row.label), &notes, used)
}

/// Writes the table.
///
/// # Errors
/// What `out` returns.
pub fn write(profile: &Profile, options: TopOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    for line in profile.account.lines() {
        screen.write_prose("", &line, 2, out)?;
    }
    let (all, shown) = shown(profile, options);
    let (counted, unit) = (profile.account.counted, profile.unit());
    writeln!(out)?;
    let (amounts, shares) = screen.number_columns(unit, counted);
    let heading = |what| format!("{what:>amounts$} {:>shares$}", "%");
    writeln!(out, "{}  {}  function", heading("self"), heading("total"))?;
    let used = 2 * (amounts + 1 + shares + 2);
    for row in &shown {
        let [own, total] = [row.own, row.total].map(|part| {
            let share = format!("{:>shares$}", share(part, counted));
            let share = screen.weighed(share, part, counted);
            format!("{:>amounts$} {share}", unit.amount(part))
        });
        let name = named(profile, row, screen, used);
        writeln!(out, "{own}  {total}  {name}")?;
    }
    match all - shown.len() {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more (--rows 0 shows all)"),
    }
}
