//! What a program that runs several times prints: whether it is the same each time, and its last messages.

use crate::terminal::printable_lines;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;

/// Most bytes of a program's messages that are quoted.
const QUOTED_BYTES: usize = 400;

/// Length and hash of all that can be read.
///
/// # Errors
/// Those of the reader.
pub fn length_and_hash(mut from: impl Read) -> io::Result<(u64, u64)> {
    let (mut length, mut hasher) = (0, DefaultHasher::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((length, hasher.finish()));
        }
        length += read as u64;
        hasher.write(&buffer[..read]);
    }
}

/// The end of a file of messages, in one line.
pub fn last_messages(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(QUOTED_BYTES)..];
    let text = printable_lines(&String::from_utf8_lossy(end));
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
