//! What a process publishes about itself for profilers: OpenTelemetry's process context (its proposal OTEP 4719), a
//! header in a mapping with a name, and a protobuf message. In: the memory of a process, which may be hostile. Out:
//! names and values of the attributes of its resource. What is damaged, too long or being written is left out.

use super::maps;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

/// How the kernel shows the mapping: of a file in memory, with and without a name given, and of other memory.
const NAMES: [&str; 3] = [
    "[anon_shmem:OTEL_CTX]",
    "/memfd:OTEL_CTX",
    "[anon:OTEL_CTX]",
];
const SIGNATURE: &[u8] = b"OTEL_CTX";
/// The version of the header, which has: signature, version, bytes of the message (4), when it was published, or 0
/// while it is written (8), and where the message is (8).
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 32;
/// The longest message that is read (bytes).
const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// Most attributes that are kept.
const ATTRIBUTES_MAX: usize = 64;
/// How often a message is read that changes meanwhile.
const TRIES: usize = 3;

/// The attributes that process `pid` publishes at present; empty if there are none.
pub fn attributes(pid: i32) -> Vec<(String, String)> {
    let read = || {
        let start = mapping(pid)?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        (0..TRIES).find_map(|_| message(&memory, start))
    };
    read().map(|message| parse(&message)).unwrap_or_default()
}

/// Where the mapping begins.
fn mapping(pid: i32) -> Option<u64> {
    let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
    let lines = BufReader::new(maps.take(maps::MOST_BYTES)).split(b'\n');
    lines.map_while(Result::ok).find_map(|line| {
        let line = String::from_utf8_lossy(&line);
        let path = line.splitn(6, ' ').nth(5)?.trim_start();
        let is_it = NAMES.iter().any(|name| path.starts_with(name));
        let (start, _) = line.split_once('-').filter(|_| is_it)?;
        u64::from_str_radix(start, 16).ok()
    })
}

/// The message, if it isn't written meanwhile.
fn message(memory: &File, start: u64) -> Option<Vec<u8>> {
    let header = || {
        let mut header = [0; HEADER_BYTES];
        memory.read_exact_at(&mut header, start).ok()?;
        Some(header)
    };
    let before = header()?;
    let word = |at: usize| before[at..at + 4].try_into().map(u32::from_ne_bytes);
    let long = |at: usize| before[at..at + 8].try_into().map(u64::from_ne_bytes);
    let (version, bytes) = (word(8).ok()?, word(12).ok()?);
    let (published, address) = (long(16).ok()?, long(24).ok()?);
    let is_it = before.starts_with(SIGNATURE) && version == VERSION && published != 0;
    if !is_it || bytes > MESSAGE_BYTES_MAX {
        return None;
    }
    let mut message = vec![0; bytes as usize];
    memory.read_exact_at(&mut message, address).ok()?;
    (header()? == before).then_some(message)
}

/// The attributes of the resource in a ProcessContext message: those that are text, numbers or truth values.
pub fn parse(message: &[u8]) -> Vec<(String, String)> {
    let resources = parts(message, 1);
    let attributes = resources.flat_map(|resource| parts(resource, 1));
    let pairs = attributes.filter_map(|attribute| {
        let key = String::from_utf8(parts(attribute, 1).last()?.to_vec()).ok()?;
        Some((key, value(parts(attribute, 2).last()?)?))
    });
    pairs.take(ATTRIBUTES_MAX).collect()
}

/// The text of a value.
fn value(message: &[u8]) -> Option<String> {
    let found = Fields(message).last()?;
    match found {
        (1, Field::Part(text)) => String::from_utf8(text.to_vec()).ok(),
        (2, Field::Number(truth)) => Some((truth != 0).to_string()),
        (3, Field::Number(number)) => Some((number as i64).to_string()),
        _ => None,
    }
}

/// The parts of a message with this field number.
fn parts(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |(number, field)| match field {
        Field::Part(part) if number == wanted => Some(part),
        _ => None,
    })
}

/// The fields of a protobuf message, up to the first damage.
struct Fields<'a>(&'a [u8]);

enum Field<'a> {
    Number(u64),
    Part(&'a [u8]),
    /// Of a type that no attribute here has.
    Other,
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(part)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Other)?,
            2 => {
                let bytes = self.varint()?;
                Field::Part(self.take(bytes)?)
            }
            5 => self.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
        part(1, &[part(1, key.as_bytes()), part(2, value)].concat())
    }

    #[test]
    fn texts_numbers_and_truths_of_the_resource_are_read() {
        let resource = [
            attribute("service.name", &part(1, b"web")),
            attribute("a.list", &part(5, b"x")),
            attribute("a.number", &[3 << 3, 0x96, 1]),
            attribute("a.truth", &[2 << 3, 1]),
            vec![2 << 3, 7],
        ];
        let other = part(2, &part(1, b"threads"));
        let message = [other, part(1, &resource.concat())].concat();
        let pairs = [
            ("service.name", "web"),
            ("a.number", "150"),
            ("a.truth", "true"),
        ];
        let wanted = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(parse(&message), wanted);
        for length in 0..message.len() {
            assert!(parse(&message[..length]).len() <= wanted.len());
        }
    }
}
