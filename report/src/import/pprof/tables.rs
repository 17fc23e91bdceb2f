//! The tables of a pprof file: strings, functions, locations, mappings, and what a sample's values are. Every number
//! in them is checked when it is followed, since a file may refer to what it doesn't have.

use super::PprofError;
use super::wire::{Message, Stream, Value};
use crate::work;
use std::collections::HashMap;
use std::io::BufRead;
use std::ops::Range;
use uprof::WordMap;

/// Bytes of a text that are read in a step of work.
const TEXT_BYTES_A_STEP: u64 = 16;
/// Most bytes of all strings.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Most strings, functions, locations, and lines of locations: of each.
const ROWS_MAX: usize = 1 << 22;
/// Most types of values, and most mappings.
const TYPES_MAX: usize = 1 << 10;

/// What is known of a file before its samples are read.
#[derive(Debug, Default)]
pub(super) struct Tables {
    text: Vec<u8>,
    ends: Vec<u32>,
    /// Type and unit of each value of a sample, as strings.
    types: Vec<[u64; 2]>,
    period_type: [u64; 2],
    pub(super) period: u64,
    pub(super) time_ns: i64,
    mappings: Vec<Mapping>,
    mapping_ids: WordMap<u64, u32>,
    /// Name, the linker's name and file of each function.
    functions: Vec<[u64; 2]>,
    function_ids: WordMap<u64, u32>,
    locations: Vec<Location>,
    location_ids: WordMap<u64, u32>,
    /// Functions of locations, by id: innermost first.
    lines: Vec<u64>,
}

/// An image in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) file_offset: u64,
    path: u64,
    build_id: u64,
}

#[derive(Debug)]
struct Location {
    mapping: u64,
    address: u64,
    lines: Range<u32>,
}

/// A location, found.
pub(super) struct Place<'t> {
    /// The number of its mapping.
    pub(super) mapping: Option<u32>,
    pub(super) address: u64,
    lines: &'t [u64],
}

impl Tables {
    /// Reads all but the samples.
    pub(super) fn read(stream: &mut Stream<impl BufRead>) -> Result<Tables, PprofError> {
        let mut tables = Tables::default();
        while let Some((number, value)) = stream.next()? {
            match (number, value) {
                (1, Value::Bytes(message)) => {
                    let read = Message(message).pair()?;
                    push("types of values", TYPES_MAX, &mut tables.types, read)?;
                }
                (3, Value::Bytes(message)) => tables.mapping(message)?,
                (4, Value::Bytes(message)) => tables.location(message)?,
                (5, Value::Bytes(message)) => tables.function(message)?,
                (6, Value::Bytes(text)) => tables.string(text)?,
                (9, Value::Number(time_ns)) => tables.time_ns = time_ns as i64,
                (11, Value::Bytes(message)) => tables.period_type = Message(message).pair()?,
                (12, Value::Number(period)) => tables.period = period,
                _ => {}
            }
        }
        Ok(tables)
    }

    fn string(&mut self, text: &[u8]) -> Result<(), PprofError> {
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return Err(PprofError::TooMany("bytes of strings", TEXT_BYTES_MAX));
        }
        self.text.extend_from_slice(text);
        let end = self.text.len() as u32;
        push("strings", ROWS_MAX, &mut self.ends, end)
    }

    fn mapping(&mut self, message: &[u8]) -> Result<(), PprofError> {
        let mut mapping = Mapping::default();
        let mut id = 0;
        let mut fields = Message(message);
        while let Some((number, value)) = fields.next()? {
            let value = value.number();
            match number {
                1 => id = value,
                2 => mapping.start = value,
                3 => mapping.limit = value,
                4 => mapping.file_offset = value,
                5 => mapping.path = value,
                6 => mapping.build_id = value,
                _ => {}
            }
        }
        name("mapping", &mut self.mapping_ids, id, self.mappings.len())?;
        push("mappings", TYPES_MAX, &mut self.mappings, mapping)
    }

    fn function(&mut self, message: &[u8]) -> Result<(), PprofError> {
        let (mut id, mut names) = (0, [0; 2]);
        let mut fields = Message(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => id = value.number(),
                2 => names[0] = value.number(),
                3 => names[1] = value.number(),
                _ => {}
            }
        }
        name("function", &mut self.function_ids, id, self.functions.len())?;
        push("functions", ROWS_MAX, &mut self.functions, names)
    }

    fn location(&mut self, message: &[u8]) -> Result<(), PprofError> {
        let (mut id, mut mapping, mut address) = (0, 0, 0);
        let first = self.lines.len() as u32;
        let mut fields = Message(message);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, value) => id = value.number(),
                (2, value) => mapping = value.number(),
                (3, value) => address = value.number(),
                (4, Value::Bytes(line)) => {
                    let mut function = 0;
                    let mut fields = Message(line);
                    while let Some((number, value)) = fields.next()? {
                        if number == 1 {
                            function = value.number();
                        }
                    }
                    push("lines of locations", ROWS_MAX, &mut self.lines, function)?;
                }
                _ => {}
            }
        }
        name("location", &mut self.location_ids, id, self.locations.len())?;
        let location = Location {
            mapping,
            address,
            lines: first..self.lines.len() as u32,
        };
        push("locations", ROWS_MAX, &mut self.locations, location)
    }

    /// A string of the table.
    pub(super) fn text(&self, number: u64) -> Result<&str, PprofError> {
        let missing = PprofError::Missing("string", number);
        let index = usize::try_from(number).map_err(|_| PprofError::Missing("string", number))?;
        let end = *self.ends.get(index).ok_or(missing)? as usize;
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        // A file may name one long text in each of many frames.
        work::take(1 + (end - start) as u64 / TEXT_BYTES_A_STEP);
        std::str::from_utf8(&self.text[start..end]).map_err(|_| PprofError::NoText(number))
    }

    /// Types and units of the values of a sample.
    pub(super) fn types(&self) -> Result<Vec<[&str; 2]>, PprofError> {
        let types = self.types.iter();
        types
            .map(|[kind, unit]| Ok([self.text(*kind)?, self.text(*unit)?]))
            .collect()
    }

    /// The unit of the period; empty if there is none.
    pub(super) fn period_unit(&self) -> Result<&str, PprofError> {
        match self.period_type[1] {
            0 => Ok(""),
            unit => self.text(unit),
        }
    }

    /// The location with this id.
    pub(super) fn place(&self, id: u64) -> Result<Place<'_>, PprofError> {
        let index = self
            .location_ids
            .get(&id)
            .ok_or(PprofError::Missing("location", id))?;
        let location = &self.locations[*index as usize];
        let mapping = match location.mapping {
            0 => None,
            id => Some(
                *self
                    .mapping_ids
                    .get(&id)
                    .ok_or(PprofError::Missing("mapping", id))?,
            ),
        };
        Ok(Place {
            mapping,
            address: location.address,
            lines: &self.lines[location.lines.start as usize..location.lines.end as usize],
        })
    }

    /// Names of the functions of a location, innermost first; an empty name is unknown.
    pub(super) fn names<'t>(
        &'t self,
        place: &Place<'t>,
    ) -> impl Iterator<Item = Result<&'t str, PprofError>> {
        place.lines.iter().map(|id| {
            if *id == 0 {
                return Ok("");
            }
            let index = self
                .function_ids
                .get(id)
                .ok_or(PprofError::Missing("function", *id))?;
            let [name, linkage_name] = self.functions[*index as usize];
            match self.text(name)? {
                "" => self.text(linkage_name),
                name => Ok(name),
            }
        })
    }

    /// For each mapping, whether another image has some of its addresses, as in a profile of several processes.
    pub(super) fn shared(&self) -> Vec<bool> {
        let image = |index: usize| {
            let mapping = &self.mappings[index];
            let file_start = mapping.start.wrapping_sub(mapping.file_offset);
            (mapping.path, mapping.build_id, file_start)
        };
        let indices = 0..self.mappings.len();
        let mut order: Vec<usize> = indices
            .filter(|index| self.mappings[*index].start < self.mappings[*index].limit)
            .collect();
        order.sort_by_key(|index| self.mappings[*index].start);
        let mut shared = vec![false; self.mappings.len()];
        let mut limit = 0;
        let overlaps = |before: &usize, next: &usize| {
            limit = self.mappings[*before].limit.max(limit);
            self.mappings[*next].start < limit
        };
        for together in order.chunk_by(overlaps) {
            let is_shared = together
                .iter()
                .any(|index| image(*index) != image(together[0]));
            for index in together {
                shared[*index] = is_shared;
            }
        }
        shared
    }

    /// A mapping with its path and build-id.
    pub(super) fn image(&self, index: u32) -> Result<(Mapping, &str, &str), PprofError> {
        let mapping = self.mappings[index as usize];
        Ok((
            mapping,
            self.text(mapping.path)?,
            self.text(mapping.build_id)?,
        ))
    }
}

fn push<T>(what: &'static str, most: usize, rows: &mut Vec<T>, row: T) -> Result<(), PprofError> {
    if rows.len() >= most {
        return Err(PprofError::TooMany(what, most));
    }
    rows.push(row);
    Ok(())
}

fn name(
    what: &'static str,
    ids: &mut WordMap<u64, u32>,
    id: u64,
    index: usize,
) -> Result<(), PprofError> {
    match ids.insert(id, index as u32) {
        Some(_) => Err(PprofError::Twice(what, id)),
        None if id == 0 => Err(PprofError::Missing(what, 0)),
        None => Ok(()),
    }
}

/// A thread's number, by the labels of a sample.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<String, u32>);

/// Most threads; the samples of further ones have no thread.
const THREADS_MAX: usize = 1 << 16;

impl Threads {
    /// The number of the thread of this name, from 1, and whether it is new; 0 beyond the limit.
    pub(super) fn number(&mut self, name: &str) -> (u32, bool) {
        if let Some(&number) = self.0.get(name) {
            return (number, false);
        }
        if self.0.len() >= THREADS_MAX {
            return (0, false);
        }
        let number = self.0.len() as u32 + 1;
        self.0.insert(name.to_owned(), number);
        (number, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_limit_are_none() {
        let mut threads = Threads::default();
        for number in 1..=THREADS_MAX as u32 {
            assert_eq!(threads.number(&number.to_string()), (number, true));
        }
        assert_eq!(threads.number("one more"), (0, false));
        assert_eq!(threads.number("7"), (7, false));
    }
}
