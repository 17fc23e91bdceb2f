//! The way of every foreign text into an output: no character that could steer a terminal leaves this file.

use std::borrow::Cow;
use uprof::is_steering;

/// No name is shown beyond so many bytes: templates can spell kilobytes.
const NAME_BYTES_MAX: usize = 4096;

/// `text` without what could steer a terminal, break a line or turn its direction: the way of every
/// foreign text into an output that is not JSON or a dump, which say such characters by their numbers.
pub fn printable(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    if end == text.len() && !kept.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut clean = kept.replace(is_steering, "\u{fffd}");
    if end < text.len() {
        clean.push('…');
    }
    Cow::Owned(clean)
}
