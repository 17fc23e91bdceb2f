//! Gathers spans, one after the other, as the columns of a block (format-spec.md, section 15); `reader` mirrors it.

use crate::directory;
use crate::layout::{MAX_FRAMES, MAX_ROWS};
use crate::samples::{DetailColumn, NumberBuilder, TaskTable};
use crate::spans::span::{Span, SpanColumn, flags};
use crate::varint;
use std::collections::HashMap;

/// Number of spans at which a block is closed.
const FULL_SPANS: usize = 1 << 15;
/// Size of names at which a block is closed, in bytes.
const FULL_NAME_BYTES: usize = 4 << 20;
/// Most bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 4096;

/// Gathers spans until a block is full.
#[derive(Default)]
pub(crate) struct SpanBuilder {
    /// Spans of all blocks before.
    pub(crate) before: u64,
    earliest_ns: Option<u64>,
    latest_ns: Option<u64>,
    tasks: TaskTable,
    names: HashMap<Box<str>, u32>,
    /// Depth and start of the last span, by task number.
    last: Vec<(u16, u64)>,
    name_lengths: Vec<u8>,
    name_text: Vec<u8>,
    flags: Vec<u8>,
    task: NumberBuilder,
    name: NumberBuilder,
    depth: NumberBuilder,
    length: Vec<u8>,
    start: Vec<u8>,
    result: Vec<u8>,
    cpu: DetailColumn,
}

impl SpanBuilder {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.flags.len()
    }

    /// Whether another span might exceed a limit of format-spec.md, section 11.
    pub fn is_full(&self) -> bool {
        self.len() >= FULL_SPANS
            || self.name_text.len() >= FULL_NAME_BYTES
            || self.tasks.len() >= MAX_ROWS
    }

    /// Earliest and latest time of spans that have one; 0 where none has.
    pub fn time_range_ns(&self) -> (u64, u64) {
        let earliest_ns = self.earliest_ns.unwrap_or(0);
        (earliest_ns, self.latest_ns.unwrap_or(earliest_ns))
    }

    /// Adds a span. A depth beyond the limit of a chain is stored as that limit.
    pub fn push(&mut self, span: &Span<&str>) {
        let task = self.tasks.number(span.task);
        self.task.push(u64::from(task));
        let name = self.name_number(span.name);
        self.name.push(u64::from(name));
        self.last.resize(self.tasks.len(), (0, 0));
        let (last_depth, last_start_ns) = &mut self.last[task as usize];
        let depth = span.depth.min(MAX_FRAMES as u16 - 1);
        let from = std::mem::replace(last_depth, depth);
        self.depth
            .push(varint::zigzag(u64::from(from), u64::from(depth)));
        let mut known = span.kind.number() << flags::KIND;
        known |= u8::from(span.complete) * flags::COMPLETE;
        if let Some(length_ns) = span.length_ns {
            known |= flags::LENGTH;
            varint::put(&mut self.length, length_ns);
        }
        if let Some(start_ns) = span.start_ns {
            known |= flags::START;
            varint::put_delta(&mut self.start, *last_start_ns, start_ns);
            *last_start_ns = start_ns;
            let end_ns = start_ns.saturating_add(span.length_ns.unwrap_or(0));
            self.earliest_ns = Some(self.earliest_ns.map_or(start_ns, |ns| ns.min(start_ns)));
            self.latest_ns = self.latest_ns.max(Some(end_ns));
        }
        if let Some(result) = span.result {
            known |= flags::RESULT;
            varint::put_delta(&mut self.result, 0, result as u64);
        }
        self.cpu.push_change(task, span.cpu.map(u64::from));
        self.flags.push(known);
    }

    fn name_number(&mut self, name: &str) -> u32 {
        let name = cut(name);
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        varint::put(&mut self.name_lengths, name.len() as u64);
        self.name_text.extend_from_slice(name.as_bytes());
        self.names.insert(name.into(), number);
        number
    }

    /// The payload, before compression, and the lengths of its parts.
    pub fn payload(&self, out: &mut Vec<u8>, parts: &mut Vec<usize>) {
        let mut before = Vec::new();
        varint::put(&mut before, self.before);
        let column = |column| match column {
            SpanColumn::Tasks => self.tasks.column(),
            SpanColumn::Names => &self.name_lengths,
            SpanColumn::NameText => &self.name_text,
            SpanColumn::Flags => &self.flags,
            SpanColumn::Task => self.task.column(),
            SpanColumn::Name => self.name.column(),
            SpanColumn::Depth => self.depth.column(),
            SpanColumn::Length => &self.length,
            SpanColumn::Start => &self.start,
            SpanColumn::Result => &self.result,
            SpanColumn::Cpu => self.cpu.bytes(),
            SpanColumn::Before => &before,
        };
        let all = SpanColumn::ALL.iter();
        let all: Vec<(u16, &[u8])> = all.map(|id| (id.number(), column(*id))).collect();
        let is_critical = |id| SpanColumn::from_number(id).is_none_or(SpanColumn::is_critical);
        directory::put(out, &all, is_critical, parts);
    }

    /// Prepares for the next block; keeps the memory.
    pub fn clear(&mut self) {
        self.before = self.before.saturating_add(self.len() as u64);
        self.earliest_ns = None;
        self.latest_ns = None;
        self.tasks.clear();
        self.names.clear();
        self.last.clear();
        self.task.clear();
        self.name.clear();
        self.depth.clear();
        self.cpu.clear();
        for column in [
            &mut self.name_lengths,
            &mut self.name_text,
            &mut self.flags,
            &mut self.length,
            &mut self.start,
            &mut self.result,
        ] {
            column.clear();
        }
    }
}

/// The part of a name that is kept.
fn cut(name: &str) -> &str {
    let ends = (0..=name.len().min(NAME_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}
