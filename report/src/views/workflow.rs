//! Annotations for a workflow of GitHub Actions, as commands for the runner.
//!
//! Source: GitHub's documentation, "Workflow commands for GitHub Actions". A step shows at most ten
//! annotations of each level.

use crate::profile::Profile;
use crate::profile::functions::{TopOptions, shown};
use crate::text::{printable, short};
use std::io::{self, Write};
use uprof::words::share;

/// Most annotations of one level.
const SHOWN: usize = 10;

/// The level of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For information.
    Notice,
    /// A fact to check.
    Warning,
    /// The reason for a failure.
    Error,
}

/// Writes an annotation. `text` may have several lines; nothing in it is interpreted as a command.
///
/// # Errors
/// The errors of `out`.
pub fn annotate(level: Level, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let level = match level {
        Level::Notice => "notice",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let lines: Vec<_> = text.lines().map(printable).collect();
    let text = lines.join("\n").replace('%', "%25").replace('\n', "%0A");
    writeln!(out, "::{level} title=uniprof::{text}")
}

/// Writes a summary, then a warning for each change that is a growth, and a notice for each other one.
pub(crate) fn annotate_changes(
    summary: &[String],
    changes: &[(bool, String)],
    out: &mut dyn Write,
) -> io::Result<()> {
    annotate(Level::Notice, &summary.join("\n"), out)?;
    for (level, grew) in [(Level::Warning, true), (Level::Notice, false)] {
        let changes = changes.iter().filter(|change| change.0 == grew);
        for (_, text) in changes.take(SHOWN) {
            annotate(level, text, out)?;
        }
    }
    Ok(())
}

/// Writes the functions of a profile.
pub(crate) fn write_top(
    profile: &Profile,
    options: TopOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = shown(profile, options).rows;
    let lines = profile.account.lines();
    let Some((counted, missing)) = lines.split_first() else {
        return Ok(());
    };
    let mut text = counted.clone();
    for row in rows.iter().take(SHOWN) {
        let own = share(row.own, profile.account.counted);
        text += &format!("\n{own:>7}  {}", short(profile.labels.name(row.label)));
    }
    annotate(Level::Notice, &text, out)?;
    match missing {
        [] => Ok(()),
        lines => annotate(Level::Warning, &lines.join("\n"), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_command() {
        let mut out = Vec::new();
        annotate(Level::Warning, "a%b\n::error::x\u{1b}", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "::warning title=uniprof::a%25b%0A: :error::x\u{fffd}\n"
        );
    }
}
