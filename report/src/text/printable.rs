//! Makes untrusted text printable: removes all characters that could control a terminal.

use std::borrow::Cow;
use uprof::is_control_character;
use uprof::log_commands::without_commands;

/// The longest name that is shown (bytes): templates can have kilobytes.
const NAME_BYTES_MAX: usize = 4096;

/// `text` without characters that could control a terminal, break a line or change its direction. Text that
/// the runner of a build could take for a command in its log is changed, too. This is for all outputs of
/// untrusted text except JSON and dumps, which escape such characters.
pub fn printable(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    if end == text.len() && !kept.contains(is_control_character) {
        return without_commands(text);
    }
    let mut clean = without_commands(&kept.replace(is_control_character, "\u{fffd}")).into_owned();
    if end < text.len() {
        clean.push('…');
    }
    Cow::Owned(clean)
}
