//! Reads the columns of a span block as rows (format-spec.md, section 15); `writer` mirrors it.

use crate::directory::Directory;
use crate::error::Fault;
use crate::layout::{MAX_FRAMES, MAX_SPANS};
use crate::samples::{Changes, NumberReader, Task, decode_tasks};
use crate::spans::span::{Span, SpanColumn, SpanKind, flags};
use crate::varint::Cursor;

/// A decoded span block: its tables, and rows to be read in order.
#[derive(Debug)]
pub struct SpanBlock {
    payload: Vec<u8>,
    directory: Directory,
    tasks: Vec<Task>,
    /// Where each name ends in the text of all.
    name_ends: Vec<u32>,
    names: String,
    before: Option<u64>,
}

impl SpanBlock {
    pub(crate) fn decode(payload: Vec<u8>) -> Result<Self, Fault> {
        let directory = Directory::parse(&payload, |id| SpanColumn::from_number(id).is_some())?;
        let column = |column| directory.column(&payload, column);
        at_most("number of spans", column(SpanColumn::Flags).remaining())?;
        let tasks = decode_tasks(column(SpanColumn::Tasks))?;
        let mut text = column(SpanColumn::NameText);
        let name_ends = decode_names(column(SpanColumn::Names), text.remaining())?;
        let text = text.take(name_ends.last().map_or(0, |end| *end as usize))?;
        let names = std::str::from_utf8(text).map_err(|_| Fault::Text)?;
        if let Some(end) = name_ends
            .iter()
            .find(|end| !names.is_char_boundary(**end as usize))
        {
            return Err(Fault::Range {
                what: "end of a name",
                value: u64::from(*end),
                rule: "between two characters",
            });
        }
        let mut before = column(SpanColumn::Before);
        Ok(SpanBlock {
            before: (!before.is_empty()).then(|| before.varint()).transpose()?,
            names: names.to_owned(),
            name_ends,
            tasks,
            directory,
            payload,
        })
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        let flags = self.directory.column(&self.payload, SpanColumn::Flags);
        flags.remaining()
    }

    /// Whether there is no span.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Spans in all span blocks before this one, if it says: what a gap lost is the difference.
    pub fn before(&self) -> Option<u64> {
        self.before
    }

    /// The tasks that rows refer to by [`SpanRow::task_index`].
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Number of names.
    pub fn names_len(&self) -> usize {
        self.name_ends.len()
    }

    /// The name that rows refer to by [`SpanRow::name`]; empty where there is none.
    pub fn name(&self, index: u32) -> &str {
        let end = |index: usize| self.name_ends.get(index).map(|end| *end as usize);
        let index = index as usize;
        let start = index.checked_sub(1).map_or(Some(0), end);
        let range = start.zip(end(index));
        range
            .and_then(|(start, end)| self.names.get(start..end))
            .unwrap_or("")
    }

    /// The spans, in the order in which they were written.
    pub fn rows(&self) -> SpanRows<'_> {
        let column = |column| self.directory.column(&self.payload, column);
        let optional = |id| NumberReader(self.directory.has(id).then(|| column(id)));
        SpanRows {
            block: self,
            flags: column(SpanColumn::Flags),
            task: optional(SpanColumn::Task),
            name: optional(SpanColumn::Name),
            depth: optional(SpanColumn::Depth),
            length: column(SpanColumn::Length),
            start: column(SpanColumn::Start),
            result: optional(SpanColumn::Result),
            cpu: column(SpanColumn::Cpu),
            cpus: Changes::default(),
            last: vec![(0, 0); self.tasks.len()],
        }
    }
}

fn decode_names(mut lengths: Cursor<'_>, most: usize) -> Result<Vec<u32>, Fault> {
    let mut ends = Vec::new();
    let mut end = 0;
    while !lengths.is_empty() {
        end += lengths.varint_up_to(most - end, "names end with the text of all")?;
        // The text is in a payload, which is shorter than 4 GiB.
        ends.push(end as u32);
        at_most("number of names", ends.len())?;
    }
    Ok(ends)
}

fn at_most(what: &'static str, count: usize) -> Result<(), Fault> {
    match count <= MAX_SPANS {
        true => Ok(()),
        false => Err(Fault::Range {
            what,
            value: count as u64,
            rule: "at most 65,536 in a block",
        }),
    }
}

/// A span of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanRow {
    /// What was called, as a number for [`SpanBlock::name`].
    pub name: u32,
    /// Whose call it is.
    pub task: Task,
    /// The same as an index into [`SpanBlock::tasks`].
    pub task_index: u32,
    /// The number of the processor, if it is known.
    pub cpu: Option<u32>,
    /// When it began, in nanoseconds of the recording's monotonic clock; `None` where only the order is known.
    pub start_ns: Option<u64>,
    /// How long it took, in nanoseconds; `None` where its end was not seen.
    pub length_ns: Option<u64>,
    /// Calls around it.
    pub depth: u16,
    /// Whether both its beginning and its end were seen.
    pub complete: bool,
    /// What it is.
    pub kind: SpanKind,
    /// What a system call returned.
    pub result: Option<i64>,
}

impl SpanRow {
    /// The same as what a writer takes; `block` is its block.
    pub fn span<'a>(&self, block: &'a SpanBlock) -> Span<'a> {
        Span {
            name: block.name(self.name),
            task: self.task,
            cpu: self.cpu,
            start_ns: self.start_ns,
            length_ns: self.length_ns,
            depth: self.depth,
            complete: self.complete,
            kind: self.kind,
            result: self.result,
        }
    }
}

/// Reads the spans of a block in order.
pub struct SpanRows<'a> {
    block: &'a SpanBlock,
    flags: Cursor<'a>,
    task: NumberReader<'a>,
    name: NumberReader<'a>,
    depth: NumberReader<'a>,
    length: Cursor<'a>,
    start: Cursor<'a>,
    result: NumberReader<'a>,
    cpu: Cursor<'a>,
    cpus: Changes,
    /// By task index: depth and start of its last span.
    last: Vec<(u64, u64)>,
}

impl SpanRows<'_> {
    /// The next span, or `None` after the last.
    ///
    /// # Errors
    /// The first fault of a column; the spans before it are sound, none follows.
    pub fn next_row(&mut self) -> Result<Option<SpanRow>, Fault> {
        // A fault ends the block: the columns are no longer at the same span.
        let mut all = std::mem::replace(&mut self.flags, Cursor::new(&[], "flags"));
        if all.is_empty() {
            return Ok(None);
        }
        let known = all.byte()?;
        let kind = known >> flags::KIND & 3;
        let kind = SpanKind::from_number(kind).ok_or(Fault::Unknown {
            what: "kind of span",
            number: u64::from(kind),
        })?;
        let (task_index, task) = self.task()?;
        let name = index(
            self.name.varint()?,
            self.block.name_ends.len(),
            "name",
            "one of the block's names",
        )?;
        let (last_depth, last_start_ns) = &mut self.last[task_index];
        *last_depth = self.depth.delta(*last_depth)?;
        let depth = match u16::try_from(*last_depth) {
            Ok(depth) if usize::from(depth) < MAX_FRAMES => depth,
            _ => {
                return Err(Fault::Range {
                    what: "depth",
                    value: *last_depth,
                    rule: "below 1,024",
                });
            }
        };
        let has = |flag| known & flag != 0;
        let length_ns = has(flags::LENGTH)
            .then(|| self.length.varint())
            .transpose()?;
        let mut start_ns = None;
        if has(flags::START) {
            *last_start_ns = self.start.delta(*last_start_ns)?;
            start_ns = Some(*last_start_ns);
        }
        let result = match has(flags::RESULT) {
            true => Some(self.result.delta(0)? as i64),
            false => None,
        };
        let cpu = self.cpus.row(&mut self.cpu, task_index)?;
        self.flags = all;
        Ok(Some(SpanRow {
            name: name as u32,
            task,
            task_index: task_index as u32,
            // No processor has a number beyond 32 bits.
            cpu: cpu.and_then(|cpu| u32::try_from(cpu).ok()),
            start_ns,
            length_ns,
            depth,
            complete: has(flags::COMPLETE),
            kind,
            result,
        }))
    }

    fn task(&mut self) -> Result<(usize, Task), Fault> {
        let tasks = &self.block.tasks;
        let at = index(
            self.task.varint()?,
            tasks.len(),
            "task",
            "one of the block's tasks",
        )?;
        Ok((at, tasks[at]))
    }
}

fn index(value: u64, count: usize, what: &'static str, rule: &'static str) -> Result<usize, Fault> {
    match usize::try_from(value) {
        Ok(index) if index < count => Ok(index),
        _ => Err(Fault::Range { what, value, rule }),
    }
}
