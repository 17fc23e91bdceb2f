//! The column directory at the start of a payload of columns (format-spec.md, section 5.1).

use crate::error::Fault;
use crate::varint::{self, Cursor};

const FLAG_CRITICAL: u64 = 1;

/// Appends the directory and then the columns; empty columns are left out. `parts` gets the lengths
/// of the directory and of each column.
pub fn put(
    out: &mut Vec<u8>,
    columns: &[(u16, &[u8])],
    is_critical: impl Fn(u16) -> bool,
    parts: &mut Vec<usize>,
) {
    let start = out.len();
    let present = columns.iter().filter(|(_, bytes)| !bytes.is_empty());
    varint::put(out, present.clone().count() as u64);
    for (id, bytes) in present.clone() {
        varint::put(out, u64::from(*id));
        varint::put(out, if is_critical(*id) { FLAG_CRITICAL } else { 0 });
        varint::put(out, bytes.len() as u64);
    }
    parts.clear();
    parts.push(out.len() - start);
    for (_, bytes) in present {
        out.extend_from_slice(bytes);
        parts.push(bytes.len());
    }
}

/// The columns of a payload, each as a range of it.
#[derive(Debug, Default)]
pub struct Directory {
    ranges: Vec<(u16, std::ops::Range<usize>)>,
}

impl Directory {
    /// Reads the directory of `payload`. An unknown critical column is an error.
    pub fn parse(payload: &[u8], is_known: impl Fn(u16) -> bool) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(payload, "column directory");
        let count = cursor.varint_up_to(256, "at most 256 columns")?;
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            let id = cursor.varint_up_to(usize::from(u16::MAX), "a column number has 16 bits")?;
            let critical = cursor.varint()? & FLAG_CRITICAL != 0;
            let length = cursor.varint_up_to(payload.len(), "a column fits into its payload")?;
            let id = id as u16;
            if critical && !is_known(id) {
                let number = u64::from(id);
                return Err(Fault::Unknown {
                    what: "column",
                    number,
                });
            }
            if lengths.iter().any(|(other, _)| *other == id) {
                return Err(Fault::Range {
                    what: "column number",
                    value: u64::from(id),
                    rule: "each column once",
                });
            }
            lengths.push((id, length));
        }
        let mut start = payload.len() - cursor.remaining();
        let mut ranges = Vec::with_capacity(count);
        for (id, length) in lengths {
            if length > payload.len() - start {
                return Err(Fault::Short("column"));
            }
            ranges.push((id, start..start + length));
            start += length;
        }
        Ok(Directory { ranges })
    }

    /// A cursor over the column with this number, empty if the block does not have it; messages call it `name`.
    pub fn column<'a>(&self, payload: &'a [u8], id: u16, name: &'static str) -> Cursor<'a> {
        Cursor::new(self.bytes(payload, id), name)
    }

    /// Whether the block has the column with this number.
    pub fn has(&self, id: u16) -> bool {
        self.ranges.iter().any(|(found, _)| *found == id)
    }

    fn bytes<'a>(&self, payload: &'a [u8], id: u16) -> &'a [u8] {
        let range = self.ranges.iter().find(|(found, _)| *found == id);
        range
            .and_then(|(_, range)| payload.get(range.clone()))
            .unwrap_or(&[])
    }
}
