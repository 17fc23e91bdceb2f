//! Messages to the person at the terminal: always on stderr, so that stdout stays data.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, only what is wrong is said.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a message that nothing depends on, unless only what is wrong is to be said.
pub fn inform(message: std::fmt::Arguments<'_>) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        say(message);
    }
}

/// Writes a message; a stderr that is gone is nobody's error. Messages quote guests, stubs and
/// recordings: what could steer the terminal or turn a line's direction is replaced.
pub fn say(message: std::fmt::Arguments<'_>) {
    let text = printable_lines(&message.to_string());
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `text`, which may have several lines and tabs, without what could steer a terminal.
pub fn printable_lines(text: &str) -> String {
    let steers = |letter| uprof::is_steering(letter) && !matches!(letter, '\n' | '\t');
    text.replace(steers, "\u{fffd}")
}

/// Whether someone watches stderr: only then is there progress to show.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal() && !IS_QUIET.load(Ordering::Relaxed)
}
