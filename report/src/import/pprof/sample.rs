//! A sample of a pprof file: its locations, its values and its thread. Input: fields of the file. Of the labels, only
//! those that name a thread are read.

use super::PprofError;
use super::tables::Tables;
use super::wire::{Message, Stream, Value};
use std::io::BufRead;

/// Labels of a sample that name its thread, the better ones first.
const THREAD_LABELS: [&str; 3] = ["thread", "thread_name", "comm"];

/// A sample of the file.
#[derive(Debug, Default)]
pub(super) struct InputSample {
    /// From 1.
    pub(super) number: u64,
    /// Ids of the locations, innermost first.
    pub(super) locations: Vec<u64>,
    pub(super) values: Vec<u64>,
    /// The name of its thread; empty if unknown.
    pub(super) thread: String,
}

impl InputSample {
    /// Reads the next one; `false` at the end.
    pub(super) fn next(
        &mut self,
        stream: &mut Stream<impl BufRead>,
        tables: &Tables,
    ) -> Result<bool, PprofError> {
        while let Some((number, value)) = stream.next()? {
            if let (2, Value::Bytes(message)) = (number, value) {
                self.number += 1;
                self.read(message, tables)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&mut self, message: &[u8], tables: &Tables) -> Result<(), PprofError> {
        self.locations.clear();
        self.values.clear();
        self.thread.clear();
        let mut best = THREAD_LABELS.len();
        let mut fields = Message(message);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, value) => value.numbers(&mut self.locations)?,
                (2, value) => value.numbers(&mut self.values)?,
                (3, Value::Bytes(label)) => {
                    let [key, text] = Message(label).pair()?;
                    let key = tables.text(key)?;
                    let rank = THREAD_LABELS.iter().position(|known| *known == key);
                    if let Some(rank) = rank.filter(|rank| *rank < best && text != 0) {
                        best = rank;
                        self.thread.clear();
                        self.thread.push_str(tables.text(text)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
