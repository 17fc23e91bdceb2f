//! The width and colours of a text output: a terminal has a width and may have colours, and anything else has
//! neither. Long names are shortened to fit. Colours are added only to text that has been made printable, so
//! that untrusted text can't set colours.

use crate::recording::unit::Unit;
use crate::text::{bare, unparenthesized};
use std::borrow::Cow;
use std::io::{self, Write};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width and colours of a text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Columns of a line; `None` means unlimited, so that all names are complete.
    pub columns: Option<usize>,
    /// Whether weights are coloured.
    pub colors: bool,
}

/// A colour of the terminal's palette, readable on any background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    /// For a large share, or a change for the worse.
    Red,
    /// For a medium share, or a change for the better.
    Green,
}

/// Shares from which perf uses red and green.
const MUCH: f64 = 0.05;
const SOME: f64 = 0.005;

/// The least columns for a name on any screen.
const NAME_COLUMNS_MIN: usize = 12;

/// Columns of `text`.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Remarks after a function's name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes<'a> {
    /// The mark of an inlined function.
    pub mark: &'a str,
    /// Its image in brackets, from [`Labels::module_suffix`](crate::profile::labels::Labels::module_suffix).
    pub module: String,
    /// Further remarks.
    pub more: String,
}

/// Least room at which a truncated name is shown with its image (columns).
const MODULE_ROOM_MIN: usize = 40;
/// Least columns for an image after a truncated name; with less it is left out.
const MODULE_COLUMNS_MIN: usize = 10;
/// Least columns for the beginning of further remarks.
const MORE_COLUMNS_MIN: usize = 8;

impl Notes<'_> {
    /// Only further remarks.
    pub(crate) fn more(more: String) -> Self {
        Notes {
            more,
            ..Notes::default()
        }
    }

    /// All remarks.
    fn all(&self) -> String {
        let Notes { mark, module, more } = self;
        format!("{mark}{module}{more}")
    }

    /// All remarks, without the version of a library.
    fn few(&self) -> String {
        format!("{}{}{}", self.mark, self.stem(), self.more)
    }

    /// `libstdc++` of `libstdc++.so.6.0.30`.
    fn stem(&self) -> Cow<'_, str> {
        let endings = [".so.", ".so]"].iter();
        match endings.filter_map(|ending| self.module.find(ending)).next() {
            Some(at) => Cow::Owned(format!("{}]", &self.module[..at])),
            None => Cow::Borrowed(&self.module),
        }
    }

    /// The remarks after a truncated name, in `columns`. Name and remarks have `room` together.
    fn least(&self, columns: usize, room: usize) -> String {
        let mark = self.mark.replace("inlined", "inl.");
        let left = columns.saturating_sub(width(&mark));
        let more = cut_end(&self.more, left);
        let more = if width(&more) < MORE_COLUMNS_MIN.min(width(&self.more)) {
            ""
        } else {
            &more
        };
        let left = left.saturating_sub(width(more));
        let module = if room >= MODULE_ROOM_MIN && left >= MODULE_COLUMNS_MIN {
            cut_middle(&self.stem(), left).into_owned()
        } else {
            String::new()
        };
        format!("{mark}{module}{more}")
    }
}

impl Screen {
    /// `cell` in the colour of its share, 0 to 1.
    pub(crate) fn weighed(&self, cell: String, part: u64, whole: u64) -> String {
        let share = part as f64 / whole.max(1) as f64;
        match share {
            MUCH.. => self.colored(cell, Color::Red),
            SOME.. => self.colored(cell, Color::Green),
            _ => cell,
        }
    }

    /// `cell` in a colour, if the output has colours.
    pub(crate) fn colored(&self, cell: String, color: Color) -> String {
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
        };
        if self.colors {
            format!("\x1b[{code}m{cell}\x1b[m")
        } else {
            cell
        }
    }

    /// The widths of the columns of amounts and of shares; `whole` is the largest amount.
    pub(crate) fn number_columns(&self, unit: Unit, whole: u64) -> (usize, usize) {
        match (self.columns, unit) {
            (None, _) => (9, 8),
            (_, Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime) => (9, 6),
            (_, Unit::Samples) => (unit.amount(whole).len().max(5), 6),
        }
    }

    /// A function's name and its remarks, fitted into the rest of a line after `used` columns.
    pub(crate) fn name(&self, name: &str, notes: &Notes<'_>, used: usize) -> String {
        let Some(columns) = self.columns else {
            return format!("{name}{}", notes.all());
        };
        let room = columns.saturating_sub(used).max(NAME_COLUMNS_MIN);
        let bare = bare(name);
        let without = unparenthesized(&bare);
        let (all, few) = (notes.all(), notes.few());
        let forms = [(name, &all), (&bare, &all), (&bare, &few), (&without, &few)];
        let found = forms
            .into_iter()
            .find(|(name, notes)| width(name) + width(notes) <= room);
        if let Some((name, notes)) = found {
            return format!("{name}{notes}");
        }
        // The name is more important, so remarks get a third of the room, or what the name leaves.
        let wanted = width(&without).min(room - room / 3);
        let notes = notes.least(room - wanted, room);
        format!(
            "{}{notes}",
            cut_middle(&without, room.saturating_sub(width(&notes)))
        )
    }

    /// `text`, truncated at its end to fit into the rest of a line after `used` columns.
    pub(crate) fn start<'t>(&self, text: &'t str, used: usize) -> Cow<'t, str> {
        match self.room(used) {
            Some(room) => cut_end(text, room),
            None => Cow::Borrowed(text),
        }
    }

    /// `text`, shortened in its middle to fit into the rest of a line after `used` columns.
    pub(crate) fn ends<'t>(&self, text: &'t str, used: usize) -> Cow<'t, str> {
        match self.room(used) {
            Some(room) => cut_middle(text, room),
            None => Cow::Borrowed(text),
        }
    }

    fn room(&self, used: usize) -> Option<usize> {
        let columns = self.columns?;
        Some(columns.saturating_sub(used).max(NAME_COLUMNS_MIN))
    }

    /// Writes lines, broken at spaces.
    pub(crate) fn write_lines(&self, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
        let mut lines = lines.iter();
        lines.try_for_each(|line| self.write_prose("", line, 2, out))
    }

    /// Writes `text` after `head`, broken at spaces; further lines are indented.
    pub(crate) fn write_prose(
        &self,
        head: &str,
        text: &str,
        indent: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Some(columns) = self.columns else {
            return writeln!(out, "{head}{text}");
        };
        let mut line = head.to_owned();
        let mut is_empty = true;
        let words = text.split(' ');
        for word in words {
            let word = cut_middle(word, columns.saturating_sub(indent).max(NAME_COLUMNS_MIN));
            let needed = width(&word) + usize::from(!is_empty);
            if !is_empty && width(&line) + needed > columns {
                writeln!(out, "{}", line.trim_end())?;
                line = " ".repeat(indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&word);
            is_empty = false;
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// `text`, shortened in its middle to `columns`. More of its end is kept, which is more specific in functions
/// and paths.
pub(crate) fn cut_middle(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(1);
    let head = prefix(text, room / 4);
    let tail = suffix(text, room - width(head));
    Cow::Owned(format!("{head}…{tail}"))
}

/// `text`, truncated at its end to `columns`.
pub(crate) fn cut_end(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", prefix(text, columns.saturating_sub(1))))
}

fn letter_width(letter: char) -> usize {
    letter.width().unwrap_or(0)
}

/// The start of `text` that fits into `columns`.
fn prefix(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, letter)| {
        used += letter_width(*letter);
        used > columns
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// The end of `text` that fits into `columns`.
fn suffix(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let before = text.char_indices().rev().find(|(_, letter)| {
        used += letter_width(*letter);
        used > columns
    });
    let start = before.map_or(0, |(at, letter)| at + letter.len_utf8());
    // A combining mark must not be separated from its letter.
    text[start..].trim_start_matches(|letter| letter_width(letter) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(columns: usize) -> Screen {
        Screen {
            columns: Some(columns),
            colors: false,
        }
    }

    #[test]
    fn names_are_cut_where_it_hurts_least() {
        let name = "std::vector<std::basic_string<char>, Pool<std::basic_string<char>>>::push_back(\
                    std::basic_string<char>&&)";
        let cases = [
            (200, name),
            (61, "std::vector<…>::push_back(std::basic_string<…>&&)"),
            (30, "std::vector<…>::push_back(…)"),
            (20, "std:…>::push_back(…)"),
        ];
        for (columns, expected) in cases {
            let cut = screen(columns).name(name, &Notes::default(), 0);
            assert_eq!(cut, expected);
            assert!(width(&cut) <= columns);
        }
    }

    #[test]
    fn a_name_leaves_room_for_its_image() {
        let notes = Notes {
            mark: " (inlined)",
            module: "  [libstdc++.so.6.0.33]".to_owned(),
            more: String::new(),
        };
        let long = "f".repeat(60);
        for (name, columns, expected) in [
            ("push", 40, "push (inlined)  [libstdc++.so.6.0.33]"),
            (
                "push_back_and_move",
                42,
                "push_back_and_move (inlined)  [libstdc++]",
            ),
            (
                &long,
                64,
                "ffffffffff…fffffffffffffffffffffffffffffffff (inl.)  [libstdc++]",
            ),
            (&long, 39, "fffffff…ffffffffffffffffffffffff (inl.)"),
        ] {
            let line = screen(columns + 10).name(name, &notes, 10);
            assert_eq!(line, expected);
            assert!(width(&line) <= columns);
        }
        let whole = Screen::default().name("push", &notes, 1000);
        assert_eq!(whole, "push (inlined)  [libstdc++.so.6.0.33]");
    }

    #[test]
    fn columns_are_those_of_a_terminal() {
        assert_eq!(cut_middle("网络接收函数", 9), "网…收函数");
        assert_eq!(cut_middle("网络接收函数", 8), "…收函数");
        assert_eq!(
            cut_middle("e\u{301}e\u{301}e\u{301}e\u{301}", 3),
            "…e\u{301}e\u{301}"
        );
        assert_eq!(cut_end("aaaaa", 3), "aa…");
    }

    #[test]
    fn prose_breaks_at_spaces() {
        let mut out = Vec::new();
        let text = "one two three four, averyveryverylongwordindeed five";
        screen(20).write_prose("A  ", text, 3, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "A  one two three\n   four,\n   aver…ngwordindeed\n   five\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn colours_are_perfs() {
        let screen = |colors| Screen {
            columns: None,
            colors,
        };
        let cell = |part| screen(true).weighed("x".to_owned(), part, 1000);
        assert_eq!(cell(50), "\x1b[31mx\x1b[m");
        assert_eq!(cell(49), "\x1b[32mx\x1b[m");
        assert_eq!(cell(5), "\x1b[32mx\x1b[m");
        assert_eq!(cell(4), "x");
        assert_eq!(screen(false).weighed("x".to_owned(), 50, 1000), "x");
    }
}
