//! Splits a JSON trace of any length into the bytes of its event objects. The text is `[…]`, or `{…}` with such an
//! array under `traceEvents`; as in Chrome's format, it may end anywhere.

use std::io::{self, BufRead};

/// Size of the largest event (bytes).
pub(crate) const EVENT_BYTES_MAX: usize = 64 << 10;

/// The next element of the trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Element<'a> {
    /// An event, and the number of the line on which it ends, from 1.
    Object(&'a [u8], u64),
    /// A value that isn't an event, or an invalid one, and its line.
    Broken(&'static str, u64),
}

/// Reads objects.
pub(crate) struct Objects<'i> {
    input: &'i mut dyn BufRead,
    line: u64,
    held: Vec<u8>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// Between the members of the outermost object.
    Members,
    /// Between events.
    Events {
        /// Whether the array is inside an object, so that members follow it.
        in_object: bool,
    },
    End,
}

/// How an object or another value ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueEnd {
    Whole,
    TooLong,
    /// A line ended inside a string.
    InString,
    /// The input ended.
    Cut,
}

impl<'i> Objects<'i> {
    pub(crate) fn new(input: &'i mut dyn BufRead) -> Self {
        Objects {
            input,
            line: 1,
            held: Vec::new(),
            place: Place::Start,
        }
    }

    /// Number of lines that were read so far.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The next event; `None` at the end of the input.
    ///
    /// # Errors
    /// The errors of the input.
    pub(crate) fn next_object(&mut self) -> io::Result<Option<Element<'_>>> {
        loop {
            let Some(byte) = self.next_visible()? else {
                return Ok(None);
            };
            match (self.place, byte) {
                (Place::Start, b'[') => self.enter(Place::Events { in_object: false }),
                (Place::Start, b'{') => self.enter(Place::Members),
                (Place::Start, _) => {
                    self.enter(Place::End);
                    return Ok(Some(Element::Broken(
                        "no JSON array or object begins here",
                        self.line,
                    )));
                }
                (Place::Members, b'}') => self.enter(Place::End),
                (Place::Members, _) => self.member()?,
                (Place::Events { in_object }, b']') => self.enter(if in_object {
                    Place::Members
                } else {
                    Place::End
                }),
                (Place::Events { .. }, _) => return self.event(byte).map(Some),
                // Bytes after the end belong to no event.
                (Place::End, _) => self.input.consume(1),
            }
        }
    }

    fn enter(&mut self, place: Place) {
        self.input.consume(1);
        self.place = place;
    }

    /// Reads an event; `byte` is its first byte.
    fn event(&mut self, byte: u8) -> io::Result<Element<'_>> {
        let ended = self.value(true)?;
        let line = self.line;
        Ok(match ended {
            ValueEnd::Whole if byte == b'{' => Element::Object(&self.held, line),
            ValueEnd::Whole => Element::Broken("something that is no event was left out", line),
            ValueEnd::TooLong => Element::Broken("an event longer than 64 KiB was left out", line),
            ValueEnd::InString | ValueEnd::Cut => {
                Element::Broken("an event that is cut was left out", line)
            }
        })
    }

    /// Reads a member of the outermost object. The array of events is entered, any other value is skipped.
    fn member(&mut self) -> io::Result<()> {
        self.value(true)?;
        let is_events = self.held == b"\"traceEvents\"";
        if self.next_visible()? != Some(b':') {
            return Ok(());
        }
        self.input.consume(1);
        match self.next_visible()? {
            Some(b'[') if is_events => self.enter(Place::Events { in_object: true }),
            Some(_) => {
                self.value(false)?;
            }
            None => {}
        }
        Ok(())
    }

    /// The next byte that is neither white space nor a comma; it is not consumed.
    fn next_visible(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let is_space = |byte: &u8| {
                matches!(
                    byte,
                    b' ' | b'\t' | b'\r' | b'\n' | b',' | 0xEF | 0xBB | 0xBF
                )
            };
            let end = buffer.iter().position(|byte| !is_space(byte));
            let spaces = end.unwrap_or(buffer.len());
            self.line += memchr::memchr_iter(b'\n', &buffer[..spaces]).count() as u64;
            let found = end.map(|end| buffer[end]);
            self.input.consume(spaces);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Skips a value. Its bytes are copied to `held` if they are wanted and not too many.
    fn value(&mut self, wanted: bool) -> io::Result<ValueEnd> {
        self.held.clear();
        let mut scan = Scan::default();
        let mut too_long = false;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(ValueEnd::Cut);
            }
            let (used, end) = scan.over(buffer);
            if wanted && !too_long {
                too_long = self.held.len() + used > EVENT_BYTES_MAX;
                if !too_long {
                    self.held.extend_from_slice(&buffer[..used]);
                }
            }
            self.line += memchr::memchr_iter(b'\n', &buffer[..used]).count() as u64;
            self.input.consume(used);
            match end {
                None => {}
                Some(ValueEnd::Whole) if too_long => return Ok(ValueEnd::TooLong),
                Some(end) => return Ok(end),
            }
        }
    }
}

/// The position of the reader in a value.
#[derive(Default)]
struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl Scan {
    /// Continues with further bytes. Returns how many of them belong to the value, and whether it ends with
    /// them.
    fn over(&mut self, bytes: &[u8]) -> (usize, Option<ValueEnd>) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.in_string {
                // Most bytes of an event are in strings, so these are searched, not stepped through.
                let rest = &bytes[at..];
                let step = if self.escaped {
                    1
                } else {
                    memchr::memchr3(b'"', b'\\', b'\n', rest).map_or(rest.len(), |end| end + 1)
                };
                at += step;
                let was_escaped = std::mem::take(&mut self.escaped);
                match bytes[at - 1] {
                    b'\n' => return (at, Some(ValueEnd::InString)),
                    b'\\' if !was_escaped => self.escaped = true,
                    b'"' if !was_escaped => {
                        self.in_string = false;
                        if self.depth == 0 {
                            return (at, Some(ValueEnd::Whole));
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' if self.depth > 0 || !self.begun => self.in_string = true,
                b'{' | b'[' if self.depth > 0 || !self.begun => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return (at + 1, Some(ValueEnd::Whole));
                    }
                }
                // A number or a word ends before the character that follows it.
                b'}' | b']' | b'{' | b'[' | b'"' | b',' | b':' | b' ' | b'\n' | b'\r' | b'\t'
                    if self.depth == 0 =>
                {
                    return (at.max(usize::from(!self.begun)), Some(ValueEnd::Whole));
                }
                _ => {}
            }
            self.begun = true;
            at += 1;
        }
        (at, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn found(text: &str, capacity: usize) -> Vec<(String, u64)> {
        let mut input = BufReader::with_capacity(capacity, text.as_bytes());
        let mut objects = Objects::new(&mut input);
        let mut all = Vec::new();
        while let Some(found) = objects.next_object().unwrap() {
            all.push(match found {
                Element::Object(bytes, line) => (String::from_utf8_lossy(bytes).into_owned(), line),
                Element::Broken(what, line) => (what.to_owned(), line),
            });
        }
        all
    }

    #[test]
    fn events_are_found_whatever_the_buffer_is() {
        let cases = [
            (
                "[{\"a\":1},\n{\"b\":\"}\\\"]\"}\n]",
                vec![("{\"a\":1}", 1), ("{\"b\":\"}\\\"]\"}", 2)],
            ),
            (
                "{\"x\":{\"traceEvents\":[{}]},\"traceEvents\":[{\"c\":[{}]}],\"y\":3,\"traceEvents\":[{}]}",
                vec![("{\"c\":[{}]}", 1), ("{}", 1)],
            ),
            (
                "[{\"a\":1},\n{\"b\":2",
                vec![("{\"a\":1}", 1), ("an event that is cut was left out", 2)],
            ),
            (
                "[{\"a\":\"x\n{\"b\":2}]",
                vec![("an event that is cut was left out", 2), ("{\"b\":2}", 2)],
            ),
            (
                "[1,\"a\",[{}],{}]",
                vec![
                    ("something that is no event was left out", 1),
                    ("something that is no event was left out", 1),
                    ("something that is no event was left out", 1),
                    ("{}", 1),
                ],
            ),
            ("hello", vec![("no JSON array or object begins here", 1)]),
            ("", vec![]),
        ];
        for (text, expected) in cases {
            let expected: Vec<(String, u64)> = expected
                .iter()
                .map(|(text, line)| (text.to_string(), *line))
                .collect();
            for capacity in [1, 2, 3, 5, 64, 4096] {
                assert_eq!(
                    found(text, capacity),
                    expected,
                    "{text} with a buffer of {capacity} bytes"
                );
            }
        }
    }

    #[test]
    fn an_event_that_is_too_long_costs_only_itself() {
        let text = format!("[{{\"a\":\"{}\"}},{{}}]", "x".repeat(EVENT_BYTES_MAX));
        let expected = [
            ("an event longer than 64 KiB was left out".to_owned(), 1),
            ("{}".to_owned(), 1),
        ];
        assert_eq!(found(&text, 4096), expected);
    }
}
