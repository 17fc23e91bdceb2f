//! Jitdump: `jit-PID.dump`, in which a program records the functions that it generates, with times. The program maps a
//! page of the file as code, by which the file is found.
//!
//! Input: a file that grows while it is read. Output: functions without their code, in the order of their records.
//! Source: the kernel's `tools/perf/Documentation/jitdump-specification.txt`.

use super::functions::{Function, TableBytes};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `JiTD`, in the byte order of the machine.
const MAGIC: u32 = 0x4A69_5444;
/// Flag: times are of the processor's counter, which can't be used here.
const ARCH_TIMESTAMP: u64 = 1;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Bytes of a record's header: kind, length, time.
const RECORD_BYTES: u64 = 16;
/// Fields of a function before its name.
const LOAD_BYTES: usize = 40;
/// Most records read at a time.
pub const MOST_LOOK_RECORDS: usize = 1 << 14;
/// Most names kept for functions that move.
pub const MOST_NAMES: usize = 1 << 16;
/// Most bytes read of a name.
const MOST_NAME_BYTES: usize = super::functions::MOST_NAME_BYTES;

/// A file that is read as it grows.
#[derive(Debug)]
pub struct JitDump {
    file: File,
    /// Offset of the next record; `None` before the header was read.
    at: Option<u64>,
    has_times: bool,
    names: HashMap<u64, String>,
    /// Bytes of these.
    pub bytes: TableBytes,
    /// Whether the last look left records for the next one.
    pub is_behind: bool,
}

/// Whether a mapped file has the name of a jitdump.
pub fn is_named_so(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or("");
    let number = name
        .strip_prefix("jit-")
        .and_then(|rest| rest.strip_suffix(".dump"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

impl JitDump {
    /// Reads `file` from its start.
    pub fn new(file: File) -> JitDump {
        JitDump {
            file,
            at: None,
            has_times: true,
            names: HashMap::new(),
            bytes: TableBytes::default(),
            is_behind: false,
        }
    }

    /// The functions added since the last call, in the order of their records. Their times are clamped to the range
    /// from `since_ns`, the time of the last call, to `now_ns`.
    pub fn look(&mut self, since_ns: u64, now_ns: u64) -> Vec<Function> {
        let mut functions = Vec::new();
        let Some(mut at) = self.at.or_else(|| self.header()) else {
            return functions;
        };
        let mut left = MOST_LOOK_RECORDS;
        while left > 0 {
            let Some(head) = self.bytes::<{ RECORD_BYTES as usize }>(at) else {
                break;
            };
            let (kind, length, time_ns) = (word(&head, 0), word(&head, 4), long(&head, 8));
            let end = at.saturating_add(u64::from(length));
            let there = self.file.metadata().map_or(0, |found| found.len());
            if u64::from(length) < RECORD_BYTES || end > there {
                // The record is still being written, or is not valid.
                break;
            }
            let time_ns = if self.has_times && time_ns >= since_ns {
                time_ns.min(now_ns)
            } else {
                since_ns
            };
            functions.extend(self.record(kind, at + RECORD_BYTES, end, time_ns));
            at = end;
            left -= 1;
        }
        self.is_behind = left == 0;
        self.at = Some(at);
        functions
    }

    /// Reads the header; returns the offset of the first record.
    fn header(&mut self) -> Option<u64> {
        let header: [u8; 40] = self.bytes(0)?;
        if word(&header, 0) != MAGIC {
            return None;
        }
        self.has_times = long(&header, 32) & ARCH_TIMESTAMP == 0;
        Some(u64::from(word(&header, 8)).max(header.len() as u64))
    }

    fn record(&mut self, kind: u32, at: u64, end: u64, since_ns: u64) -> Option<Function> {
        match kind {
            CODE_LOAD => {
                let fields: [u8; LOAD_BYTES] = self.bytes(at)?;
                let name_at = at + LOAD_BYTES as u64;
                let name = self.name(name_at, end.checked_sub(name_at)?)?;
                let kept = name.clone();
                if self.names.len() < MOST_NAMES
                    && self.bytes.take(kept.capacity())
                    && let Some(before) = self.names.insert(long(&fields, 32), kept)
                {
                    self.bytes.give_back(before.capacity());
                }
                Some(Function {
                    start: long(&fields, 16),
                    length: long(&fields, 24),
                    name,
                    since_ns,
                })
            }
            CODE_MOVE => {
                let fields: [u8; 48] = self.bytes(at)?;
                Some(Function {
                    start: long(&fields, 24),
                    length: long(&fields, 32),
                    name: self.names.get(&long(&fields, 40))?.clone(),
                    since_ns,
                })
            }
            _ => None,
        }
        .filter(|function| function.length > 0)
    }

    fn name(&self, at: u64, room: u64) -> Option<String> {
        let mut bytes = vec![0; room.min(MOST_NAME_BYTES as u64) as usize];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let end = bytes.iter().position(|&byte| byte == 0);
        let name = &bytes[..end.unwrap_or(bytes.len())];
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..at + 4).and_then(|it| it.try_into().ok());
    found.map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
    found.map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn header(flags: u64) -> Vec<u8> {
        let words = [MAGIC, 1, 40, 62, 0, 7];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend([0u64, flags].into_iter().flat_map(u64::to_ne_bytes));
        bytes
    }

    fn record(kind: u32, time_ns: u64, fields: &[u64], tail: &[u8]) -> Vec<u8> {
        let length = (16 + 8 + 8 * fields.len() + tail.len()) as u32;
        let mut bytes = [kind.to_ne_bytes(), length.to_ne_bytes()].concat();
        bytes.extend(time_ns.to_ne_bytes());
        // Process and thread.
        bytes.extend([0; 8]);
        bytes.extend(fields.iter().flat_map(|field| field.to_ne_bytes()));
        bytes.extend(tail);
        bytes
    }

    fn load(time_ns: u64, start: u64, index: u64, name: &str) -> Vec<u8> {
        let tail = [name.as_bytes(), b"\0\x90\x90"].concat();
        record(CODE_LOAD, time_ns, &[0, start, 2, index], &tail)
    }

    #[test]
    fn records_are_read_as_they_come() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut dump = JitDump::new(file.reopen().unwrap());
        assert!(dump.look(0, 100).is_empty());
        file.write_all(&header(0)).unwrap();
        let first = load(50, 0x1000, 3, "f");
        let (begun, rest) = first.split_at(30);
        file.write_all(begun).unwrap();
        assert!(dump.look(0, 100).is_empty(), "it is being written");
        file.write_all(rest).unwrap();
        file.write_all(&record(9, 60, &[], b"unknown")).unwrap();
        let moved = record(CODE_MOVE, 70, &[0, 0x1000, 0x2000, 2, 3], b"");
        file.write_all(&moved).unwrap();
        file.write_all(&load(500, 0x3000, 4, "late")).unwrap();
        file.write_all(&load(5, 0x4000, 5, "early")).unwrap();
        let found: Vec<_> = dump
            .look(20, 100)
            .into_iter()
            .map(|it| (it.start, it.length, it.name, it.since_ns))
            .collect();
        let expected = [
            (0x1000, 2, "f".to_owned(), 50),
            (0x2000, 2, "f".to_owned(), 70),
            (0x3000, 2, "late".to_owned(), 100),
            (0x4000, 2, "early".to_owned(), 20),
        ];
        assert_eq!(found, expected);
        assert!(dump.look(100, 200).is_empty());
    }

    #[test]
    fn what_is_no_jitdump_gives_nothing_and_every_cut_is_survived() {
        let whole = [
            header(1),
            load(50, 0x1000, 3, "f"),
            load(50, 0x1000, 3, "g"),
        ]
        .concat();
        for length in 0..whole.len() {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&whole[..length]).unwrap();
            let mut dump = JitDump::new(file.reopen().unwrap());
            let found = dump.look(7, 9);
            assert!(found.iter().all(|it| it.since_ns == 7), "no times of ours");
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[header(0), vec![0; 4096]].concat())
            .unwrap();
        let mut dump = JitDump::new(file.reopen().unwrap());
        for _ in 0..3 {
            assert!(dump.look(0, 9).is_empty(), "records of no length");
        }
    }

    #[test]
    fn looks_and_names_are_bounded() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = header(0);
        for n in 0..MOST_NAMES as u64 + 9 {
            bytes.extend(load(1, n * 16, n, "f"));
        }
        file.write_all(&bytes).unwrap();
        let mut dump = JitDump::new(file.reopen().unwrap());
        let mut reads = 0;
        while !dump.look(0, 9).is_empty() {
            reads += 1;
        }
        assert_eq!(reads, MOST_NAMES / MOST_LOOK_RECORDS + 1);
        assert_eq!(dump.names.len(), MOST_NAMES);
    }

    #[test]
    fn its_name_tells() {
        assert!(is_named_so("/tmp/jit-12.dump") && is_named_so("jit-7.dump"));
        for other in [
            "/tmp/jit-.dump",
            "/tmp/jit-x.dump",
            "/jit-1.dump/x",
            "[vdso]",
            "",
        ] {
            assert!(!is_named_so(other), "{other}");
        }
    }
}
