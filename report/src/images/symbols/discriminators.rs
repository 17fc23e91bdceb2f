//! Parts of source lines. Input: an address and its unit of DWARF. Output: the number of the part of the line that the
//! address belongs to, which compilers write where a line has several blocks of code (DWARF 5, section 6.2.2). A unit's
//! table of lines is read when its first part is needed; units are checked before.

use super::sections::Bytes;
use gimli::UnitRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Start and end of code, and its part of a line, which isn't 0.
type Range = (u64, u64, u32);
/// A unit's ranges, ascending, once they are read.
type Read = Arc<OnceLock<Vec<Range>>>;

/// The parts of the lines of one image, by the table that has them.
#[derive(Debug, Default)]
pub(super) struct Discriminators {
    tables: Mutex<HashMap<usize, Read>>,
}

impl Discriminators {
    /// The part of its line that `address` of `unit` belongs to; 0 if it has one, or isn't known.
    pub(crate) fn find(&self, unit: UnitRef<'_, Bytes<'_>>, address: u64) -> u32 {
        let Some(program) = &unit.line_program else {
            return 0;
        };
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::clone(tables.entry(program.header().offset().0).or_default());
        // Other threads need not wait for this one.
        drop(tables);
        let ranges = table.get_or_init(|| read(unit).unwrap_or_default());
        let after = ranges.partition_point(|(start, ..)| *start <= address);
        let found = ranges[..after].last();
        found
            .filter(|(_, end, _)| address < *end)
            .map_or(0, |(.., part)| *part)
    }
}

fn read(unit: UnitRef<'_, Bytes<'_>>) -> Option<Vec<Range>> {
    let mut rows = unit.line_program.clone()?.rows();
    let mut ranges: Vec<Range> = Vec::new();
    let mut last: Option<(u64, u32)> = None;
    // What was read before damage counts.
    while let Ok(Some((_, row))) = rows.next_row() {
        if let Some((start, part)) = last
            && part != 0
            && start < row.address()
        {
            ranges.push((start, row.address(), part));
        }
        let part = u32::try_from(row.discriminator()).unwrap_or(0);
        last = (!row.end_sequence()).then_some((row.address(), part));
    }
    ranges.sort_unstable();
    Some(ranges)
}
