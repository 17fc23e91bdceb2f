//! `--top`: functions by their samples or time.

use super::{Content, Needs, Output, TableForm, View, markdown, workflow, write_left_out};
use crate::profile::Profile;
use crate::profile::functions::{TopOptions, named, shown};
use std::io::{self, Write};
use uprof::words::share;

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "top",
    about: "Functions by their samples (the default)",
    output: Output::Text,
    needs: Needs::Counts,
    begin: |_| Box::new(write_view),
};

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let options = TopOptions {
        rows: content.form.rows,
        least_share: content.form.least_share.unwrap_or(0.0),
        screen: content.form.screen,
    };
    match content.form.table {
        TableForm::Text => write(content.profile, options, out)?,
        TableForm::Markdown => markdown::write_top(content.profile, options, out)?,
        TableForm::Github => workflow::write_top(content.profile, options, out)?,
    }
    Ok(true)
}

/// Writes the table.
///
/// # Errors
/// The errors of `out`.
pub fn write(profile: &Profile, options: TopOptions, out: &mut dyn Write) -> io::Result<()> {
    let screen = options.screen;
    screen.write_lines(&profile.account.lines(), out)?;
    let shown = shown(profile, options);
    let (counted, unit) = (profile.account.counted, profile.unit());
    writeln!(out)?;
    let (amounts, shares) = screen.number_columns(unit, counted);
    let heading = |what| format!("{what:>amounts$} {:>shares$}", "%");
    writeln!(out, "{}  {}  function", heading("self"), heading("total"))?;
    let used = 2 * (amounts + 1 + shares + 2);
    for row in &shown.rows {
        let [own, total] = [row.own, row.total].map(|part| {
            let share = format!("{:>shares$}", share(part, counted));
            let share = screen.weighed(share, part, counted);
            format!("{:>amounts$} {share}", unit.amount(part))
        });
        let name = named(profile, row, screen, used);
        writeln!(out, "{own}  {total}  {name}")?;
    }
    write_left_out(shown.rows.len() + shown.more, shown.rows.len(), out)?;
    match &shown.below {
        (0, _) => Ok(()),
        (below, share) => writeln!(out, "… and {below} below {share}"),
    }
}
