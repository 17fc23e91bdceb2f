//! The kernel's tracepoints, as tracefs describes them (Documentation/trace/events.rst): their numbers, and where their
//! fields are in a record.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Largest description of a tracepoint that is read, in bytes.
const FORMAT_BYTES_MAX: usize = 64 << 10;

/// A tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number, with which each of its records begins (`common_type`).
    pub id: u16,
    fields: Vec<(String, Field)>,
}

/// Where a field is in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

/// Why there is no tracepoint.
#[derive(Debug, PartialEq, Eq)]
pub enum NoTracepoint {
    /// tracefs is not mounted.
    NoTracefs,
    /// This file can't be read.
    Forbidden(PathBuf),
    /// The kernel has none of that name.
    Unknown,
    /// Its description is not understood.
    Malformed,
}

impl Tracepoint {
    /// The tracepoint `name` of `system`.
    ///
    /// # Errors
    /// Says why it can't be used.
    pub fn find(system: &str, name: &str) -> Result<Tracepoint, NoTracepoint> {
        let root = ROOTS.iter().map(Path::new);
        let mut forbidden = None;
        for root in root {
            let events = root.join("events");
            match events.metadata() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    forbidden = Some(events);
                    continue;
                }
                Err(_) => continue,
            }
            let path = events.join(system).join(name).join("format");
            return match std::fs::read_to_string(&path) {
                Ok(text) if text.len() > FORMAT_BYTES_MAX => Err(NoTracepoint::Malformed),
                Ok(text) => Tracepoint::parse(&text).ok_or(NoTracepoint::Malformed),
                Err(error) if error.kind() == ErrorKind::NotFound => Err(NoTracepoint::Unknown),
                Err(_) => Err(NoTracepoint::Forbidden(path)),
            };
        }
        Err(forbidden.map_or(NoTracepoint::NoTracefs, NoTracepoint::Forbidden))
    }

    /// Reads a description: a line `ID: 7`, and lines such as
    /// `field:unsigned long guest_rip; offset:16; size:8; signed:0;` with tabs.
    pub fn parse(text: &str) -> Option<Tracepoint> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        let fields = text.lines().filter_map(|line| {
            let mut parts = line
                .trim()
                .strip_prefix("field:")?
                .split(';')
                .map(str::trim);
            let name = parts.next()?.rsplit([' ', '*']).next()?;
            let mut number =
                |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
            let (offset, size) = (number("offset:")?, number("size:")?);
            let signed = number("signed:")? != 0;
            let field = Field {
                offset,
                size,
                signed,
            };
            Some((name.to_owned(), field))
        });
        Some(Tracepoint {
            id: id.trim().parse().ok()?,
            fields: fields.collect(),
        })
    }

    /// The first field with one of these names.
    pub fn field(&self, names: &[&str]) -> Option<Field> {
        let found = self
            .fields
            .iter()
            .find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, field)| *field)
    }
}

impl Field {
    /// The field's number in a record; `None` if the record is too short, or the field is no number.
    pub fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..)?.get(..self.size)?;
        let sign = |value: i64, unsigned: u64| if self.signed { value as u64 } else { unsigned };
        Some(match bytes {
            [byte] => sign(i64::from(*byte as i8), u64::from(*byte)),
            [a, b] => {
                let value = u16::from_ne_bytes([*a, *b]);
                sign(i64::from(value as i16), u64::from(value))
            }
            [a, b, c, d] => {
                let value = u32::from_ne_bytes([*a, *b, *c, *d]);
                sign(i64::from(value as i32), u64::from(value))
            }
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: made_up\nID: 103\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int errno;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long guest_rip;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:char name[3];\toffset:16;\tsize:3;\tsigned:0;\n\
        print fmt: \"ID: 7 field:x\"\n";

    #[test]
    fn fields_are_where_the_description_says() {
        let made = Tracepoint::parse(TEXT).unwrap();
        assert_eq!(made.id, 103);
        let mut record = vec![0; 19];
        record[4..8].copy_from_slice(&(-4i32).to_ne_bytes());
        record[8..16].copy_from_slice(&0x1234u64.to_ne_bytes());
        let of = |name| made.field(&[name]).and_then(|field| field.of(&record));
        assert_eq!(of("errno"), Some(-4i64 as u64));
        assert_eq!(of("guest_rip"), Some(0x1234));
        assert_eq!(of("name[3]"), None, "no number");
        assert_eq!(
            made.field(&["nothing", "errno"]).unwrap().of(&record[..7]),
            None
        );
    }

    #[test]
    fn a_description_of_something_else_is_refused() {
        assert_eq!(Tracepoint::parse("format:\n"), None);
        assert_eq!(Tracepoint::parse("ID: 65536\n"), None);
        let bare = Tracepoint::parse("ID: 1\n\tfield:int a;\toffset:-1;\tsize:4;\tsigned:1;\n");
        assert_eq!(bare.unwrap().field(&["a"]), None);
    }
}
