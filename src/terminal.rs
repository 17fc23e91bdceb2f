//! Messages to the user: always on stderr, so that stdout contains only data.

#[cfg(feature = "report")]
pub mod full_screen;

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Suppresses all messages but errors and warnings from now on.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// A word, quoted for a shell where needed.
#[cfg(feature = "report")]
pub fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@%,".contains(letter);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Whether messages but errors and warnings are suppressed.
#[cfg(all(feature = "record", feature = "report"))]
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes a message, unless only errors and warnings are to be printed.
pub fn inform(message: std::fmt::Arguments<'_>) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        say(message);
    }
}

/// Writes a message, and ignores a closed stderr. Messages quote guests, stubs and recordings, so control characters
/// are replaced.
pub fn say(message: std::fmt::Arguments<'_>) {
    let text = printable_lines(&message.to_string());
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `text`, which may have several lines and tabs, without control characters and commands for a build runner.
pub fn printable_lines(text: &str) -> String {
    let steers = |letter| uprof::is_control_character(letter) && !matches!(letter, '\n' | '\t');
    let text = text.replace(steers, "\u{fffd}");
    uprof::log_commands::without_commands(&text).into_owned()
}

/// Wraps `text` at spaces to `columns`, with all lines but the first indented by `indent`. The first line is already
/// indented. Every character counts as one column.
pub fn in_columns(text: &str, indent: usize, columns: Option<usize>) -> String {
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(20));
    let mut broken = String::new();
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            broken.push('\n');
        }
        let mut used = 0;
        for (place, word) in line.split(' ').enumerate() {
            let letters = word.chars().count();
            if used > 0 && used + 1 + letters > room {
                broken.push('\n');
                broken.extend(std::iter::repeat_n(' ', indent));
                used = 0;
            } else if place > 0 {
                broken.push(' ');
                used += 1;
            }
            broken.push_str(word);
            used += letters;
        }
    }
    broken
}

/// Columns of the terminal on standard output; COLUMNS overrides it, as in a shell.
pub fn columns() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    let set = std::env::var("COLUMNS").ok();
    let set = set.and_then(|columns| columns.parse().ok());
    Some(
        set.filter(|columns| *columns > 0)
            .unwrap_or(usize::from(width.0)),
    )
}

/// Lines of the terminal on standard output.
#[cfg(feature = "report")]
pub fn rows() -> Option<usize> {
    let (_, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(height.0))
}

/// Whether standard output is a terminal that can be drawn on.
pub fn is_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// Whether standard output supports colours and they are enabled (no-color.org).
pub fn has_colors() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_screen() && !is_set("NO_COLOR")
}

/// Whether progress is shown: only if stderr is a terminal.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal() && !IS_QUIET.load(Ordering::Relaxed)
}

/// Shows a line in the place of the one before, if progress is shown. It may have the text of a stranger in it.
pub fn show_line(line: &str) {
    if is_watched() {
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", printable_lines(line));
    }
}

/// Clears the line that shows the progress, as before a message.
pub fn clear_line() {
    show_line("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        let text = "one two three four five six seven eight";
        let expected = "one two three four\n    five six seven eight";
        assert_eq!(in_columns(text, 4, Some(24)), expected);
        assert_eq!(in_columns("a b\n  c d", 4, Some(24)), "a b\n  c d");
        assert_eq!(in_columns(text, 4, None), text);
    }
}
