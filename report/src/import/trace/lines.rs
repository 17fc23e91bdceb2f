//! Lines of an input of any length. Input: bytes. Output: lines with their numbers, which are not copied if
//! they are within the reader's buffer. A line longer than 64 KiB is cut and marked as cut.

use std::io::{self, BufRead};

/// Longest line (bytes); the rest of a longer one is skipped.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Number of the line, from 1.
    pub number: u64,
    /// Bytes of the line, at most 64 KiB.
    pub bytes: &'a [u8],
    /// Whether the line was longer and has been cut.
    pub cut: bool,
}

/// Reads lines.
pub struct Lines<'i> {
    input: &'i mut dyn BufRead,
    number: u64,
    /// A line that is not within the input's buffer as a whole.
    joined: Vec<u8>,
    /// Number of bytes of the previous line that are still in the input's buffer.
    used: usize,
}

impl<'i> Lines<'i> {
    /// Reads lines of `input`, from its current position.
    pub fn new(input: &'i mut dyn BufRead) -> Self {
        Lines {
            input,
            number: 0,
            joined: Vec::new(),
            used: 0,
        }
    }

    /// Number of lines that were read.
    pub fn count(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end of the input. A last line without a line end counts.
    ///
    /// # Errors
    /// The errors of the input.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.input.consume(std::mem::take(&mut self.used));
        self.joined.clear();
        self.number += 1;
        // The buffer is searched first and borrowed again later, because the borrow can't be kept over the
        // other branch.
        let buffer = self.input.fill_buf()?;
        if let Some(end) = memchr::memchr(b'\n', buffer) {
            self.used = end + 1;
            let buffer = self.input.fill_buf()?;
            return Ok(Some(line(self.number, &buffer[..end], false)));
        }
        let mut cut = false;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = (LINE_BYTES_MAX + 1).saturating_sub(self.joined.len());
            self.joined.extend_from_slice(&part[..part.len().min(room)]);
            cut |= part.len() > room;
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(line(self.number, &self.joined, cut)));
            }
        }
        if self.joined.is_empty() {
            self.number -= 1;
            Ok(None)
        } else {
            Ok(Some(line(self.number, &self.joined, cut)))
        }
    }
}

fn line(number: u64, bytes: &[u8], cut: bool) -> Line<'_> {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let end = bytes.len().min(LINE_BYTES_MAX);
    Line {
        number,
        bytes: &bytes[..end],
        cut: cut || bytes.len() > LINE_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_are_the_same_whatever_the_buffer_is() {
        let long = "x".repeat(LINE_BYTES_MAX);
        let text = format!("a\n\nbc\r\n{long}\n{long}y\nd");
        for capacity in [1, 2, 7, 4096, 1 << 20] {
            let mut input = BufReader::with_capacity(capacity, text.as_bytes());
            let mut lines = Lines::new(&mut input);
            let mut found = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                found.push((line.number, line.bytes.to_vec(), line.cut));
            }
            let of = |number, text: &str, cut| (number, text.as_bytes().to_vec(), cut);
            let expected = [
                of(1, "a", false),
                of(2, "", false),
                of(3, "bc", false),
                of(4, &long, false),
                of(5, &long, true),
                of(6, "d", false),
            ];
            assert!(found == expected, "with a buffer of {capacity} bytes");
            assert_eq!(lines.count(), 6);
        }
    }
}
