//! Values in the forms of format-spec.md, section 10.

use crate::text::json_writer::Escaped;
use std::fmt::Write as _;
use uprof::Task;
use uprof::log_commands::command_behind;

pub(super) fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` can't fail.
    let _ = line.write_fmt(text);
}

pub(super) fn yes_or_no(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

pub(super) fn known(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

pub(super) fn task(task: Option<Task>) -> String {
    task.map_or("-".to_owned(), |task| {
        format!("{}/{}", task.space, task.vcpu)
    })
}

pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for (at, letter) in text.char_indices() {
        let is_command = || text[..at].ends_with('#') && command_behind(&text[at + 1..]);
        match letter {
            '#' if is_command() => put(&mut out, format_args!("{}", Escaped(letter))),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ if uprof::is_control_character(letter) => {
                put(&mut out, format_args!("{}", Escaped(letter)))
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_are_one_line() {
        let quoted = quoted("a \"b\"\\\n\u{9f}é\u{202e}\u{e0001}");
        assert_eq!(
            quoted,
            "\"a \\\"b\\\"\\\\\\u000a\\u009fé\\u202e\\udb40\\udc01\""
        );
    }
}
