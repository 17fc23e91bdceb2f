//! One event of a Chrome trace. Input: the bytes of its object. Output: its members, not decoded.

use crate::import::trace::decimal::{micros_ns, unsigned};
use std::borrow::Cow;

/// A member of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id<'a> {
    None,
    /// A string without its quotes; escapes are not decoded.
    Text(&'a [u8]),
    Number(&'a [u8]),
}

impl<'a> Id<'a> {
    pub(super) fn is_none(self) -> bool {
        self == Id::None
    }

    /// The bytes, not decoded.
    pub(super) fn raw(self) -> &'a [u8] {
        match self {
            Id::None => b"",
            Id::Text(bytes) | Id::Number(bytes) => bytes,
        }
    }

    /// The bytes with escapes decoded; an invalid escape is kept.
    pub(super) fn text(self) -> Cow<'a, [u8]> {
        let raw = self.raw();
        if !raw.contains(&b'\\') {
            return Cow::Borrowed(raw);
        }
        let quoted = [b"\"", raw, b"\""].concat();
        match serde_json::from_slice::<String>(&quoted) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            Err(_) => Cow::Borrowed(raw),
        }
    }

    /// The number; 0 if it isn't one that fits into 32 bits.
    pub(super) fn number(self) -> u32 {
        let number = unsigned(self.raw()).and_then(|number| u32::try_from(number).ok());
        number.unwrap_or(0)
    }

    /// The bytes, unless they are a number that fits into 32 bits.
    pub(super) fn beyond_u32(self) -> Option<&'a [u8]> {
        let number = unsigned(self.raw()).and_then(|number| u32::try_from(number).ok());
        Some(self.raw()).filter(|raw| number.is_none() && !raw.is_empty())
    }

    /// Converts a decimal number of microseconds, which some programs write as a string, to nanoseconds.
    fn time_ns(self) -> Option<u64> {
        let raw = self.raw();
        micros_ns(raw).or_else(|| {
            let number: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
            let time_ns = number * 1000.0;
            // Later times than 2^63 ns are invalid.
            (time_ns > -0.5 && time_ns < 9.2e18).then(|| time_ns.round() as u64)
        })
    }
}

/// An event.
pub(super) struct Event<'a> {
    pub phase: &'a [u8],
    pub name: Id<'a>,
    pub process: Id<'a>,
    pub thread: Id<'a>,
    /// The thread's name in a metadata event.
    pub called: Id<'a>,
    time: Id<'a>,
    length: Id<'a>,
}

impl<'a> Event<'a> {
    /// Parses the members of an object; `None` if it isn't one.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Event<'a>> {
        let mut event = Event {
            phase: b"",
            name: Id::None,
            process: Id::None,
            thread: Id::None,
            called: Id::None,
            time: Id::None,
            length: Id::None,
        };
        members(bytes, &mut |key, value| {
            let id = match value {
                [b'"', text @ .., b'"'] => Id::Text(text),
                [b'0'..=b'9' | b'-', ..] => Id::Number(value),
                _ => Id::None,
            };
            match key {
                b"ph" => event.phase = id.raw(),
                b"name" => event.name = id,
                b"pid" => event.process = id,
                b"tid" => event.thread = id,
                b"ts" => event.time = id,
                b"dur" => event.length = id,
                b"args" if event.phase == b"M" || event.phase.is_empty() => {
                    members(value, &mut |key, value| {
                        if let (b"name", [b'"', text @ .., b'"']) = (key, value) {
                            event.called = Id::Text(text);
                        }
                    });
                }
                _ => {}
            }
        })?;
        Some(event)
    }

    pub(super) fn time_ns(&self) -> Option<u64> {
        self.time.time_ns()
    }

    pub(super) fn length_ns(&self) -> Option<u64> {
        self.length.time_ns()
    }
}

/// Calls `tell` with the key and the value of each member of an object, not decoded. `None` if it isn't an
/// object.
fn members<'a>(bytes: &'a [u8], tell: &mut dyn FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    let mut rest = bytes.strip_prefix(b"{")?;
    loop {
        rest = rest.trim_ascii_start();
        if rest.starts_with(b"}") {
            return Some(());
        }
        let (key, behind) = value(rest)?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let behind = behind
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start();
        let (found, behind) = value(behind)?;
        tell(key, found);
        rest = behind.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
}

/// Splits a value from the rest after it.
fn value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += string(&bytes[at..])?;
                if depth == 0 {
                    return Some(bytes.split_at(at));
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(bytes.split_at(at + 1));
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => break,
            _ => {}
        }
        at += 1;
    }
    (at > 0 && depth == 0).then(|| bytes.split_at(at))
}

/// Length of a string with its quotes (bytes).
fn string(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}
