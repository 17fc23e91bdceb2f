//! Reads the columns of a span block as rows (format-spec.md, section 15); `writer` mirrors it.

use crate::directory::Directory;
use crate::error::Fault;
use crate::layout::{MAX_FRAMES, MAX_SPANS};
use crate::samples::{Changes, NumberReader, Task, TaskTable};
use crate::spans::span::{Span, SpanColumn, SpanKind, SpanRow, flags};
use crate::varint::Cursor;

/// A decoded span block: its tables, and rows to be read in order.
#[derive(Debug)]
pub struct SpanBlock {
    payload: Vec<u8>,
    directory: Directory,
    tasks: Vec<Task>,
    /// End of each name in the text of all names.
    name_ends: Vec<u32>,
    names: String,
    before: Option<u64>,
}

impl SpanBlock {
    pub(crate) fn decode(payload: Vec<u8>) -> Result<Self, Fault> {
        let directory = Directory::parse(&payload, |id| SpanColumn::from_number(id).is_some())?;
        let column = |it: SpanColumn| directory.column(&payload, it.number(), it.name());
        at_most("number of spans", column(SpanColumn::Flags).remaining())?;
        let tasks = TaskTable::decode(column(SpanColumn::Tasks))?;
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
        let it = SpanColumn::Flags;
        let flags = self.directory.column(&self.payload, it.number(), it.name());
        flags.remaining()
    }

    /// Whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Spans in all span blocks before this one, if the block states them. A difference shows how many a gap lost.
    pub fn before(&self) -> Option<u64> {
        self.before
    }

    /// Number of names.
    pub fn names_len(&self) -> usize {
        self.name_ends.len()
    }

    /// The name that rows refer to by [`Span::name`]; empty if there is none.
    pub fn name(&self, index: u32) -> &str {
        let end = |index: usize| self.name_ends.get(index).map(|end| *end as usize);
        let index = index as usize;
        let start = index.checked_sub(1).map_or(Some(0), end);
        let range = start.zip(end(index));
        range
            .and_then(|(start, end)| self.names.get(start..end))
            .unwrap_or("")
    }

    /// The tasks of its spans.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// A span of this block with its name.
    pub fn named(&self, row: SpanRow) -> Span<&str> {
        row.with(self.name(row.name), row.task)
    }

    /// The spans, in the order in which they were written.
    pub fn rows(&self) -> SpanRows<'_> {
        let (payload, directory) = (&self.payload, &self.directory);
        let column = |it: SpanColumn| directory.column(payload, it.number(), it.name());
        let optional =
            |it: SpanColumn| NumberReader(directory.has(it.number()).then(|| column(it)));
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
        // The text is in a payload, which is shorter than 4 GiB, so the end fits.
        ends.push(end as u32);
        at_most("number of names", ends.len())?;
    }
    Ok(ends)
}

fn at_most(what: &'static str, count: usize) -> Result<(), Fault> {
    Fault::if_above(MAX_SPANS, what, count, "at most 65,536 in a block")
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
    /// Depth and start of the last span, by task index.
    last: Vec<(u64, u64)>,
}

impl SpanRows<'_> {
    /// The next span, or `None` after the last.
    ///
    /// # Errors
    /// The first fault of a column. The spans before it are sound, and none follows.
    pub fn next_row(&mut self) -> Result<Option<SpanRow>, Fault> {
        // A fault ends the block, since the columns are no longer at the same span.
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
        let result = if has(flags::RESULT) {
            Some(self.result.delta(0)? as i64)
        } else {
            None
        };
        let cpu = self.cpus.row(&mut self.cpu, task_index)?;
        self.flags = all;
        Ok(Some(SpanRow {
            name: name as u32,
            task,
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
