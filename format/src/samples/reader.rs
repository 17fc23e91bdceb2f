//! Reads the columns of a sample block as rows (format-spec.md, section 5); `writer` mirrors it.

use crate::directory::Directory;
use crate::error::Fault;
use crate::layout::{MAX_ROWS, REGISTER_COLUMN};
use crate::samples::detail_columns::DetailReader;
use crate::samples::details::Column;
use crate::samples::details::Details;
use crate::samples::numbers::NumberReader;
use crate::samples::raw_stack::RawStackReader;
use crate::samples::registers::{Elsewhere, RegisterReader};
use crate::samples::sample::{Frame, RawStack, Registers, Sample, State, Stop, Task, Wait};
use crate::samples::task_table::TaskTable;
use crate::samples::trie::{Node, StackTable, TableReader};
use crate::varint::Cursor;

/// A decoded sample block: its stack table, and rows to be read in order.
#[derive(Debug)]
pub struct SampleBlock {
    payload: Vec<u8>,
    directory: Directory,
    rows: usize,
    tasks: Vec<Task>,
    table: StackTable,
    masks: Vec<u64>,
    /// Masks of registers that repeat the address of the innermost frame, and that of the stack.
    equal: (u64, u64),
}

impl SampleBlock {
    pub(crate) fn decode(payload: Vec<u8>, rows: usize) -> Result<Self, Fault> {
        at_most_rows("number of samples", rows)?;
        let directory = Directory::parse(&payload, is_known)?;
        let column = |it: Column| directory.column(&payload, it.number(), it.name());
        let table = TableReader {
            steps: column(Column::NodeStep),
            places: column(Column::NodePlace),
            addresses: column(Column::NodeAddress),
            kinds: column(Column::NodeKind),
        };
        let table = table.read()?;
        let tasks = TaskTable::decode(column(Column::Tasks))?;
        let masks = decode_masks(column(Column::RegisterMasks))?;
        let mut equal = column(Column::RegisterEqual);
        let equal = if equal.is_empty() {
            (0, 0)
        } else {
            (equal.varint()?, equal.varint()?)
        };
        Ok(SampleBlock {
            equal,
            rows,
            tasks,
            table,
            masks,
            directory,
            payload,
        })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The stack table; callers come before their callees.
    pub fn nodes(&self) -> &[Node] {
        &self.table.nodes
    }

    /// The tasks that rows refer to by [`Row::task_index`].
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The frames of the chain that ends at `node`, innermost first.
    pub fn chain(&self, node: Option<u32>) -> impl Iterator<Item = Frame> + '_ {
        let at = |index: u32| self.table.nodes.get(index as usize);
        let first = node.and_then(at);
        std::iter::successors(first, move |node| node.parent.and_then(at)).map(|node| node.frame)
    }

    /// The rows, in the order in which they were taken.
    pub fn rows(&self) -> Rows<'_> {
        let (payload, directory) = (&self.payload, &self.directory);
        let column = |it: Column| directory.column(payload, it.number(), it.name());
        let has = |it: Column| directory.has(it.number());
        let optional = |it| has(it).then(|| column(it));
        Rows {
            block: self,
            left: self.rows,
            time_ns: None,
            task: NumberReader(optional(Column::Task)),
            time: column(Column::Time),
            state: NumberReader(optional(Column::State)),
            chain: NumberReader(optional(Column::Chain)),
            stop: NumberReader(optional(Column::Stop)),
            details: DetailReader::new(payload, directory),
            off_cpu: NumberReader(optional(Column::OffCpu)),
            waits: NumberReader(optional(Column::Waits)),
            registers: RegisterReader::new(payload, directory, &self.masks, self.equal),
            stacks: has(Column::StackLength).then(|| {
                RawStackReader::new([
                    column(Column::StackAddress),
                    column(Column::StackLength),
                    column(Column::StackRuns),
                    column(Column::StackWords),
                    column(Column::StackBytes),
                ])
            }),
        }
    }
}

fn is_known(id: u16) -> bool {
    Column::from_number(id).is_some() || (REGISTER_COLUMN..REGISTER_COLUMN + 64).contains(&id)
}

fn at_most_rows(what: &'static str, count: usize) -> Result<(), Fault> {
    Fault::if_above(MAX_ROWS, what, count, "at most 16,384 in a block")
}

fn decode_masks(mut column: Cursor<'_>) -> Result<Vec<u64>, Fault> {
    let mut masks = Vec::new();
    while !column.is_empty() {
        masks.push(column.varint()?);
        at_most_rows("number of register masks", masks.len())?;
    }
    Ok(masks)
}

/// One sample of a block.
#[derive(Debug)]
#[non_exhaustive]
pub struct Row<'a> {
    /// Time in nanoseconds on the recording's monotonic clock.
    pub time_ns: u64,
    /// The vCPU or thread.
    pub task: Task,
    /// Its index in [`SampleBlock::tasks`].
    pub task_index: u32,
    /// State of the vCPU or thread.
    pub state: State,
    /// Node of the innermost frame in [`SampleBlock::nodes`]; `None` for an empty chain.
    pub node: Option<u32>,
    /// Why the chain ends.
    pub stop: Stop,
    /// Numbers beside the stack.
    pub details: Details,
    /// Registers, if recorded.
    pub registers: Option<&'a Registers>,
    /// Raw stack bytes, if recorded.
    pub stack: Option<RawStack<'a>>,
    /// How long the task was off the processor; `None` for a sample.
    pub wait: Option<Wait>,
}

impl<'a> Row<'a> {
    /// The row as a sample that can be written again, with the frames of its [`Row::node`].
    pub fn with_chain(self, chain: &'a [Frame]) -> Sample<'a> {
        Sample {
            time_ns: self.time_ns,
            task: self.task,
            state: self.state,
            chain,
            stop: self.stop,
            details: self.details,
            registers: self.registers,
            stack: self.stack,
            wait: self.wait,
        }
    }
}

/// Reads the rows of a block in order. A row borrows from the reader, so this can't be an `Iterator`.
pub struct Rows<'a> {
    block: &'a SampleBlock,
    left: usize,
    time_ns: Option<u64>,
    task: NumberReader<'a>,
    time: Cursor<'a>,
    state: NumberReader<'a>,
    chain: NumberReader<'a>,
    stop: NumberReader<'a>,
    details: DetailReader<'a>,
    off_cpu: NumberReader<'a>,
    waits: NumberReader<'a>,
    registers: Option<RegisterReader<'a>>,
    stacks: Option<RawStackReader<'a>>,
}

impl Rows<'_> {
    /// The next row, or `None` after the last.
    ///
    /// # Errors
    /// The first fault of a column. The rows before it are sound, and none follows.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        // A fault ends the block, since the columns are no longer at the same row.
        let left = std::mem::replace(&mut self.left, 0);
        let from_ns = match self.time_ns {
            Some(time_ns) => time_ns,
            None => self.time.varint()?,
        };
        let time_ns = self.time.delta(from_ns)?;
        self.time_ns = Some(time_ns);
        let (task_index, task) = self.task()?;
        let state = tag("state", self.state.byte()?, State::from_number)?;
        let node = self.node()?;
        let stop = tag("stop reason", self.stop.byte()?, Stop::from_number)?;
        let details = self.details.row(task_index)?;
        let waited_ns = self.off_cpu.varint()?.checked_sub(1);
        let more = self.waits.varint()?;
        let wait = waited_ns.map(|time_ns| Wait {
            time_ns,
            count: more.saturating_add(1),
        });
        let stack = match &mut self.stacks {
            Some(stacks) => stacks.row(task_index)?,
            None => None,
        };
        let nodes = &self.block.table.nodes;
        let elsewhere = Elsewhere {
            frame: node
                .and_then(|node| nodes.get(node as usize))
                .map(|node| node.frame.address),
            stack: stack.map(|stack| stack.address),
        };
        let registers = match &mut self.registers {
            Some(registers) => registers.row(task_index, elsewhere)?,
            None => None,
        };
        self.left = left - 1;
        Ok(Some(Row {
            time_ns,
            task,
            task_index: task_index as u32,
            state,
            node,
            stop,
            details,
            registers,
            stack,
            wait,
        }))
    }

    fn task(&mut self) -> Result<(usize, Task), Fault> {
        let value = self.task.varint()?;
        let index = usize::try_from(value).unwrap_or(usize::MAX);
        match self.block.tasks.get(index) {
            Some(task) => Ok((index, *task)),
            None => Err(Fault::Range {
                what: "task",
                value,
                rule: "an index into the table of tasks",
            }),
        }
    }

    fn node(&mut self) -> Result<Option<u32>, Fault> {
        let value = self.chain.varint()?;
        let Some(index) = value.checked_sub(1) else {
            return Ok(None);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        match self.block.table.ends.get(index) {
            Some(&node) => Ok(Some(node)),
            None => Err(Fault::Range {
                what: "chain",
                value,
                rule: "a chain of the stack table, plus one",
            }),
        }
    }
}

#[inline]
fn tag<T>(what: &'static str, number: u8, known: fn(u8) -> Option<T>) -> Result<T, Fault> {
    known(number).ok_or_else(|| Fault::Unknown {
        what,
        number: u64::from(number),
    })
}
