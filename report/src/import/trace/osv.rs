//! OSv's binary trace file (`trace.py extract`, or the REST interface's /trace/buffers). Input: records of
//! tracepoints. Output: spans. A tracepoint X with an end X_ret or X_err is a call, as in OSv's
//! scripts/osv/prof.py. So are function entry and function exit, and mutex_lock_wait until mutex_lock_wake.
//! All others are moments: spans without a duration.
//!
//! The file has one CPU after another, and threads migrate. So all records are held in memory, 40 bytes each,
//! and sorted by time before calls are emitted.

mod dictionary;
mod records;

use super::open_calls::{Entry, Exit};
use super::tasks::TASKS_MAX;
use super::{NameId, SpanKind, SpanSink, TaskLabel, Tasks};
use crate::import::ImportError;
use dictionary::{Dictionary, Part};
use records::{Bytes, Record};
use std::collections::HashMap;
use std::io::{self, BufRead};

/// Most records of a file.
const RECORDS_MAX: usize = 1 << 26;
/// Size of the largest dictionary (bytes).
const DICTIONARY_BYTES_MAX: u64 = 16 << 20;

/// Reads the file.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    read_most(RECORDS_MAX, input, sink)
}

fn read_most(
    most: usize,
    input: &mut dyn BufRead,
    sink: &mut dyn SpanSink,
) -> Result<u64, ImportError> {
    let mut bytes = Bytes::new(input);
    let mut reader = Reader {
        most,
        ..Reader::default()
    };
    if reader.header(&mut bytes, sink)? {
        while reader.chunk(&mut bytes, sink)? {}
    }
    let count = reader.events.len() as u64;
    reader.tell(sink)?;
    Ok(count)
}

#[derive(Default)]
struct Reader {
    /// Most records.
    most: usize,
    dictionary: Dictionary,
    threads: HashMap<(u64, [u8; 16]), u32>,
    events: Vec<SpanEvent>,
}

/// A record, reduced to what spans need.
#[derive(Debug, Clone, Copy)]
struct SpanEvent {
    time_ns: u64,
    /// Offset in the file (bytes), for messages.
    offset: u64,
    thread: u32,
    cpu: u32,
    name: NameId,
    part: Part,
    error: Option<i32>,
}

impl Reader {
    /// Reads the header: `OSVT`, its size, and a number that shows the byte order.
    fn header(&mut self, bytes: &mut Bytes<'_>, sink: &mut dyn SpanSink) -> io::Result<bool> {
        let mut header = [0; 24];
        let is_whole = bytes.fill(&mut header)?;
        // The magic is a little-endian number, so that its characters are reversed in the file.
        if !is_whole || &header[..4] != b"TVSO" || header[16..20] != 1_u32.to_le_bytes() {
            sink.trouble(0, "no trace file of OSv, or one of a big-endian machine");
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads one chunk; `false` at the end.
    fn chunk(
        &mut self,
        bytes: &mut Bytes<'_>,
        sink: &mut dyn SpanSink,
    ) -> Result<bool, ImportError> {
        bytes.align()?;
        let at = bytes.offset();
        let mut head = [0; 16];
        if !bytes.fill(&mut head)? {
            if bytes.offset() > at {
                sink.trouble(at, "the file ends inside a chunk's head");
            }
            return Ok(false);
        }
        let size = u64::from_le_bytes([
            head[8], head[9], head[10], head[11], head[12], head[13], head[14], head[15],
        ]);
        match &head[..4] {
            b"DCRT" if size <= DICTIONARY_BYTES_MAX => {
                let content = bytes.take(size)?;
                if !self.dictionary.add(&content) {
                    sink.trouble(at, "a dictionary of tracepoints that is cut or wrong");
                }
                Ok(content.len() as u64 == size)
            }
            b"SCRT" => {
                let end = bytes.offset().saturating_add(size);
                self.dictionary.pair(sink);
                self.records(bytes, end, sink)?;
                Ok(bytes.skip_to(end)?)
            }
            _ => Ok(bytes.skip_to(bytes.offset().saturating_add(size))?),
        }
    }

    /// Reads the records of one CPU.
    fn records(
        &mut self,
        bytes: &mut Bytes<'_>,
        end: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        while bytes.offset() < end {
            let at = bytes.offset();
            let record = match bytes.record(end, &self.dictionary)? {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                Err(what) => {
                    sink.trouble(at, what);
                    return Ok(());
                }
            };
            // OSv writes 0 before its clock runs. Its own tools leave these records out, too.
            if record.time_ns == 0 {
                continue;
            }
            self.event(&record, at, sink);
        }
        Ok(())
    }

    fn event(&mut self, record: &Record, at: u64, sink: &mut dyn SpanSink) {
        if self.events.len() >= self.most {
            sink.trouble(at, "a record beyond 67,108,864 of them was left out");
            return;
        }
        let next = self.threads.len() as u32;
        let is_full = self.threads.len() >= TASKS_MAX;
        let known = self
            .threads
            .get(&(record.thread, record.thread_name))
            .copied();
        let thread = match known {
            Some(thread) => thread,
            None if is_full => {
                sink.trouble(at, "a record of a further thread than 65,536 was left out");
                return;
            }
            None => {
                self.threads
                    .insert((record.thread, record.thread_name), next);
                next
            }
        };
        let (name, part) = self
            .dictionary
            .call(record.tracepoint, record.pointer, sink);
        self.events.push(SpanEvent {
            time_ns: record.time_ns,
            offset: at,
            thread,
            cpu: record.cpu,
            name,
            part,
            error: record.error.filter(|_| part == Part::Fails),
        });
    }

    /// Emits the calls of all records.
    fn tell(mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        // The sort is stable: records with equal times keep the order of the file.
        self.events.sort_by_key(|event| event.time_ns);
        let mut names = vec![[0; 16]; self.threads.len()];
        for ((_, name), number) in &self.threads {
            names[*number as usize] = *name;
        }
        let mut tasks = Tasks::default();
        for event in &self.events {
            let name = &names[event.thread as usize];
            let end = memchr::memchr(0, name).unwrap_or(name.len());
            let label = TaskLabel {
                space: 0,
                number: event.thread,
                name: &name[..end],
            };
            let Some(calls) = tasks.of(label, event.offset, sink) else {
                continue;
            };
            let entry = Entry {
                name: event.name,
                start_ns: Some(event.time_ns),
                cpu: Some(event.cpu),
                kind: SpanKind::Slice,
                line: event.offset,
            };
            match event.part {
                Part::Begins => calls.enter(entry, sink)?,
                Part::Alone => calls.leaf_at(u64::from(calls.depth()), entry, None, sink)?,
                Part::Ends | Part::Fails => {
                    let exit = Exit {
                        name: Some(event.name),
                        end_ns: Some(event.time_ns),
                        length_ns: None,
                        result: event.error.map(|error| -i64::from(error)),
                        kind: Some(SpanKind::Slice),
                        line: event.offset,
                    };
                    calls.leave(exit, sink)?;
                }
            }
        }
        tasks.finish(sink)
    }
}

#[cfg(test)]
mod tests;
