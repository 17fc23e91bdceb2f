//! The writer of all JSON outputs. It writes serde_json's output, with characters that could control a
//! terminal or an editor as `\u` escapes, which any JSON parser decodes.

use std::fmt;
use std::io::{self, Write};
use uprof::is_control_character;
use uprof::log_commands::command_behind;

/// A character as JSON escapes, one for each of its UTF-16 units.
pub(crate) struct Escaped(pub char);

impl fmt::Display for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut units = [0; 2];
        let mut units = self.0.encode_utf16(&mut units).iter();
        units.try_for_each(|unit| write!(f, "\\u{unit:04x}"))
    }
}

/// Passes JSON on to another writer. Each call must have whole characters, as those of serde_json do.
pub(crate) struct JsonWriter<'o>(pub &'o mut dyn Write);

impl Write for JsonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        // serde_json itself escapes characters below U+007F, and puts line ends only between values.
        let steers = |letter: char| letter >= '\u{7f}' && is_control_character(letter);
        let is_command =
            |text: &str, at: usize| text[..at].ends_with('#') && command_behind(&text[at + 1..]);
        let mut rest = text;
        while let Some((at, letter)) = rest
            .char_indices()
            .find(|(at, letter)| steers(*letter) || *letter == '#' && is_command(rest, *at))
        {
            self.0.write_all(&rest.as_bytes()[..at])?;
            write!(self.0, "{}", Escaped(letter))?;
            rest = &rest[at + letter.len_utf8()..];
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_escaped_and_read_back() {
        let text = "a\x1b\u{9b}31m\u{202e}\u{61c}é\u{e0001}##[x]#[y]";
        let mut out = Vec::new();
        serde_json::to_writer(JsonWriter(&mut out), text).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert_eq!(
            written,
            "\"a\\u001b\\u009b31m\\u202e\\u061cé\\udb40\\udc01#\\u0023[x]#[y]\""
        );
        let back: String = serde_json::from_str(&written).unwrap();
        assert_eq!(back, text);
    }
}
