//! Gathers spans, one after the other, as the columns of a block (format-spec.md, section 15); `reader` mirrors it.

use crate::directory;
use crate::layout::{MAX_FRAMES, MAX_ROWS};
use crate::samples::{DetailColumn, Task};
use crate::spans::span::{Span, SpanColumn, flags};
use crate::varint;
use crate::word_hash::WordMap;
use std::collections::HashMap;

/// A block is closed when it has this many spans.
const FULL_SPANS: usize = 1 << 15;
/// A block is closed when its names take this many bytes.
const FULL_NAME_BYTES: usize = 4 << 20;
/// Of a longer name this many bytes are kept.
const NAME_BYTES_MAX: usize = 4096;

/// Gathers spans until a block is full.
#[derive(Default)]
pub(crate) struct SpanBuilder {
    /// Spans of all blocks before.
    before: u64,
    earliest_ns: Option<u64>,
    latest_ns: Option<u64>,
    tasks: WordMap<Task, u32>,
    names: HashMap<Box<str>, u32>,
    /// By task number: depth and start of its last span.
    last: Vec<(u16, u64)>,
    cpus: DetailColumn,
    columns: [Vec<u8>; SpanColumn::ALL.len()],
}

impl SpanBuilder {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.columns[at(SpanColumn::Flags)].len()
    }

    /// Says how many spans there were in all blocks before; as it was where that isn't known.
    pub fn set_before(&mut self, before: Option<u64>) {
        self.before = before.unwrap_or(self.before);
    }

    /// Whether another span might go past a limit of format-spec.md, section 11.
    pub fn is_full(&self) -> bool {
        self.len() >= FULL_SPANS
            || self.columns[at(SpanColumn::NameText)].len() >= FULL_NAME_BYTES
            || self.tasks.len() >= MAX_ROWS
    }

    /// Earliest and latest time of spans that have one; 0 where none has.
    pub fn time_range_ns(&self) -> (u64, u64) {
        let earliest_ns = self.earliest_ns.unwrap_or(0);
        (earliest_ns, self.latest_ns.unwrap_or(earliest_ns))
    }

    /// Adds a span. What is deeper than a chain may be is as deep as it may be.
    pub fn push(&mut self, span: &Span<'_>) {
        let task = self.task_number(span.task);
        let name = self.name_number(span.name);
        let mut known = span.kind.number() << flags::KIND;
        known |= u8::from(span.complete) * flags::COMPLETE;
        let (last_depth, last_start_ns) = self.last[task as usize];
        let depth = span.depth.min(MAX_FRAMES as u16 - 1);
        let [
            _,
            _,
            _,
            flag,
            task_column,
            name_column,
            depths,
            lengths,
            starts,
            results,
            ..,
        ] = &mut self.columns;
        varint::put(task_column, u64::from(task));
        varint::put(name_column, u64::from(name));
        varint::put_delta(depths, u64::from(last_depth), u64::from(depth));
        self.last[task as usize].0 = depth;
        if let Some(length_ns) = span.length_ns {
            known |= flags::LENGTH;
            varint::put(lengths, length_ns);
        }
        if let Some(start_ns) = span.start_ns {
            known |= flags::START;
            varint::put_delta(starts, last_start_ns, start_ns);
            self.last[task as usize].1 = start_ns;
            let end_ns = start_ns.saturating_add(span.length_ns.unwrap_or(0));
            self.earliest_ns = Some(self.earliest_ns.map_or(start_ns, |ns| ns.min(start_ns)));
            self.latest_ns = self.latest_ns.max(Some(end_ns));
        }
        if let Some(result) = span.result {
            known |= flags::RESULT;
            varint::put_delta(results, 0, result as u64);
        }
        self.cpus.push_change(task, span.cpu.map(u64::from));
        flag.push(known);
    }

    fn task_number(&mut self, task: Task) -> u32 {
        let next = self.tasks.len() as u32;
        let number = *self.tasks.entry(task).or_insert(next);
        if number == next {
            let table = &mut self.columns[at(SpanColumn::Tasks)];
            varint::put(table, u64::from(task.space));
            varint::put(table, u64::from(task.vcpu));
            self.last.push((0, 0));
        }
        number
    }

    fn name_number(&mut self, name: &str) -> u32 {
        let name = cut(name);
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        let length = name.len() as u64;
        varint::put(&mut self.columns[at(SpanColumn::Names)], length);
        self.columns[at(SpanColumn::NameText)].extend_from_slice(name.as_bytes());
        self.names.insert(name.into(), number);
        number
    }

    /// The payload, before compression, and the lengths of its parts.
    pub fn payload(&mut self, out: &mut Vec<u8>, parts: &mut Vec<usize>) {
        let before = &mut self.columns[at(SpanColumn::Before)];
        before.clear();
        varint::put(before, self.before);
        let columns = SpanColumn::ALL.iter().zip(&self.columns);
        let all: Vec<(u16, &[u8])> = columns
            .map(|(column, bytes)| match column {
                SpanColumn::Task | SpanColumn::Name | SpanColumn::Depth => {
                    (column.number(), unless_zero(bytes))
                }
                SpanColumn::Cpu => (column.number(), self.cpus.bytes()),
                _ => (column.number(), &bytes[..]),
            })
            .collect();
        let is_critical = |id| SpanColumn::from_number(id).is_none_or(SpanColumn::is_critical);
        directory::put(out, &all, is_critical, parts);
    }

    /// Ready for the next block; keeps its memory.
    pub fn clear(&mut self) {
        self.before = self.before.saturating_add(self.len() as u64);
        self.earliest_ns = None;
        self.latest_ns = None;
        self.tasks.clear();
        self.names.clear();
        self.last.clear();
        self.cpus.clear();
        self.columns.iter_mut().for_each(Vec::clear);
    }
}

/// As much of a name as is kept.
fn cut(name: &str) -> &str {
    let ends = (0..=name.len().min(NAME_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// A column of zeros is left out.
fn unless_zero(column: &[u8]) -> &[u8] {
    match column.iter().all(|byte| *byte == 0) {
        true => &[],
        false => column,
    }
}

/// Where a column is among [`SpanColumn::ALL`].
fn at(column: SpanColumn) -> usize {
    usize::from(column.number()) - 1
}
