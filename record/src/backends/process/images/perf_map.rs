//! Perf maps: `/tmp/perf-PID.map`, with a line for each function that a program generated at run time.
//!
//! Input: a file that grows while it is read. Output: functions, in the order of their lines. Source: the kernel's
//! `tools/perf/Documentation/jit-interface.txt`: `START SIZE name`, numbers hexadecimal.

use super::functions::Function;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most bytes read of a file at a time.
pub const MOST_LOOK_BYTES: usize = 4 << 20;
/// Most bytes read of a file in all, since it was last rewritten.
pub const MOST_MAP_BYTES: u64 = 256 << 20;
/// Longest line in bytes; a longer one is skipped.
pub const MOST_LINE_BYTES: usize = 4096;
/// Largest function in bytes.
const MOST_FUNCTION_BYTES: u64 = 1 << 30;

/// A file that is read as it grows.
#[derive(Debug)]
pub struct PerfMap {
    file: File,
    at: u64,
    /// The first part of an incomplete line.
    begun: Vec<u8>,
    /// Whether the rest of the line is skipped.
    skipping: bool,
    /// The last bytes read. If they changed, the file was rewritten.
    tail: Vec<u8>,
    /// Whether the last look left lines for the next one.
    pub is_behind: bool,
}

/// Bytes of the tail.
const TAIL_BYTES: usize = 64;

impl PerfMap {
    /// Reads `file` from its start.
    pub fn new(file: File) -> PerfMap {
        PerfMap {
            file,
            at: 0,
            begun: Vec::new(),
            skipping: false,
            tail: Vec::new(),
            is_behind: false,
        }
    }

    /// Whether there may be more to read.
    pub fn has_more(&self) -> bool {
        let length = self.file.metadata().map_or(0, |found| found.len());
        length != self.at && self.at < MOST_MAP_BYTES
    }

    /// The functions of the lines added since the last call, generated after `since_ns`.
    pub fn look(&mut self, since_ns: u64) -> Vec<Function> {
        let mut functions = Vec::new();
        if self.is_written_anew() {
            (self.at, self.skipping) = (0, false);
            self.begun.clear();
            self.tail.clear();
        }
        let mut left = MOST_LOOK_BYTES;
        let mut buffer = vec![0; 64 << 10];
        while left > 0 && self.at < MOST_MAP_BYTES {
            let room = left.min(buffer.len());
            let Ok(count @ 1..) = self.file.read_at(&mut buffer[..room], self.at) else {
                break;
            };
            self.at += count as u64;
            left -= count;
            self.lines(&buffer[..count], since_ns, &mut functions);
            self.tail
                .extend_from_slice(&buffer[count.saturating_sub(TAIL_BYTES)..count]);
            let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
            self.tail.drain(..surplus);
        }
        self.is_behind = left == 0 && self.has_more();
        functions
    }

    fn is_written_anew(&self) -> bool {
        let mut now = vec![0; self.tail.len()];
        let from = self.at.saturating_sub(now.len() as u64);
        self.file.read_exact_at(&mut now, from).is_err() || now != self.tail
    }

    fn lines(&mut self, bytes: &[u8], since_ns: u64, functions: &mut Vec<Function>) {
        let mut pieces = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            if self.begun.len() + piece.len() > MOST_LINE_BYTES {
                self.skipping = true;
                self.begun.clear();
            } else if !self.skipping {
                self.begun.extend_from_slice(piece);
            }
            // An incomplete line follows the last line end.
            if pieces.peek().is_some() {
                let line = String::from_utf8_lossy(&self.begun);
                functions.extend(parse(&line, since_ns));
                self.begun.clear();
                self.skipping = false;
            }
        }
    }
}

fn parse(line: &str, since_ns: u64) -> Option<Function> {
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        let digits = word.strip_prefix("0x").unwrap_or(word);
        u64::from_str_radix(digits, 16).ok()
    };
    let (start, length) = (number()?, number()?);
    let name = words.next()?.trim();
    let sane = (1..=MOST_FUNCTION_BYTES).contains(&length) && !name.is_empty();
    sane.then(|| Function {
        start,
        length,
        name: name.to_owned(),
        since_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_read_as_they_come() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut map = PerfMap::new(file.reopen().unwrap());
        assert!(!map.has_more());
        file.write_all(b"7f00 1a LazyCompile:~f a.js:1\n0x7f20 10 g\nzz 1 x\n7f40 0 none\n7f5")
            .unwrap();
        assert!(map.has_more());
        let functions = map.look(5);
        let found: Vec<_> = functions
            .iter()
            .map(|it| (it.start, it.length, &it.name[..], it.since_ns))
            .collect();
        let expected = [
            (0x7f00, 0x1a, "LazyCompile:~f a.js:1", 5),
            (0x7f20, 0x10, "g", 5),
        ];
        assert_eq!(found, expected);
        file.write_all(b"0 8 h\n").unwrap();
        assert_eq!(map.look(6)[0].start, 0x7f50);
        assert!(map.look(7).is_empty());
        // The file is rewritten.
        file.as_file().set_len(0).unwrap();
        std::fs::write(file.path(), "1000 8 again\n").unwrap();
        assert_eq!(map.look(8)[0].name, "again");
        // It is rewritten again, with more bytes than before.
        std::fs::write(file.path(), "2000 8 longer\n2010 8 than before\n").unwrap();
        let names: Vec<_> = map.look(9).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["longer", "than before"]);
    }

    #[test]
    fn a_file_that_is_endless_or_has_no_lines_is_read_in_bounds() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10 << 30).unwrap();
        let mut map = PerfMap::new(file.reopen().unwrap());
        let mut reads = 0;
        while map.has_more() && reads < 1000 {
            assert!(map.look(0).is_empty());
            assert!(map.begun.len() <= MOST_LINE_BYTES);
            reads += 1;
            assert_eq!(map.is_behind, map.has_more());
        }
        assert_eq!(reads as u64, MOST_MAP_BYTES / MOST_LOOK_BYTES as u64);
        assert!(map.look(0).is_empty());
        file.as_file().set_len(0).unwrap();
        let long = "a".repeat(MOST_LINE_BYTES);
        writeln!(file, "10 10 {long}\n20 10 ok").unwrap();
        let mut map = PerfMap::new(file.reopen().unwrap());
        let names: Vec<_> = map.look(0).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["ok"]);
    }

    #[test]
    fn any_line_is_read_or_skipped() {
        for line in [
            "",
            " ",
            "1",
            "1 2",
            "1 2 ",
            "-1 2 x",
            "1 ffffffffffffffff x",
            "g 1 x",
        ] {
            assert_eq!(parse(line, 0), None, "{line}");
        }
        assert_eq!(parse("ffffffffffffffff 1 \u{1b}[2J", 0).unwrap().length, 1);
    }
}
