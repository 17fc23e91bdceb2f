//! Messages to the person at the terminal: always on stderr, so that stdout stays data.

use std::io::{IsTerminal, Write};

/// Writes a message; a stderr that is gone is nobody's error. Messages quote guests, stubs and
/// recordings: what could steer the terminal or turn a line's direction is replaced.
pub fn say(message: std::fmt::Arguments<'_>) {
    let text = message.to_string().replace(is_steering, "\u{fffd}");
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn is_steering(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether someone watches stderr: only then is there progress to show.
#[cfg_attr(not(feature = "record"), allow(dead_code))] // reports leave it to their progress bar
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}
