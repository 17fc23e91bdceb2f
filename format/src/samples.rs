//! A sample block: rows as columns, with their own stack table (format-spec.md, section 5).
//!
//! [`BlockBuilder`] and [`SampleBlock`] mirror each other, column by column.

use crate::columns::{self, Directory};
use crate::error::Fault;
use crate::layout::{Column, MAX_FRAMES, MAX_NODES, MAX_ROWS, REGISTER_COLUMN};
use crate::raw_stack::{RawStackBuilder, RawStackReader};
use crate::sample::{RawStack, Registers, Sample, State, Stop, Task, bits};
use crate::trie::{self, Node, TrieBuilder};
use crate::varint::{self, Cursor};
use std::collections::HashMap;

/// A block is closed when it has this many rows.
const FULL_ROWS: usize = 8192;
/// A block is closed when its raw stacks take this many bytes.
const FULL_STACK_BYTES: usize = 4 << 20;

/// Gathers rows until a block is full.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    rows: usize,
    first_ns: u64,
    latest_ns: u64,
    earliest_ns: u64,
    previous_ns: u64,
    tasks: HashMap<Task, u32>,
    task_table: Vec<u8>,
    trie: TrieBuilder,
    registers: RegisterBuilder,
    stacks: RawStackBuilder,
    task: Vec<u8>,
    time: Vec<u8>,
    state: Vec<u8>,
    chain: Vec<u8>,
    stop: Vec<u8>,
    cost: Vec<u8>,
    late: Vec<u8>,
}

impl BlockBuilder {
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Earliest and latest time of the rows.
    pub fn time_range_ns(&self) -> (u64, u64) {
        (self.earliest_ns, self.latest_ns)
    }

    pub fn is_full(&self) -> bool {
        self.rows >= FULL_ROWS
            || self.stacks.len() >= FULL_STACK_BYTES
            || self.trie.len() >= MAX_NODES - MAX_FRAMES
    }

    /// Adds a row. Chains longer than [`MAX_FRAMES`] lose their outer frames and say so.
    pub fn push(&mut self, sample: &Sample<'_>) {
        if self.rows == 0 {
            self.first_ns = sample.time_ns;
            self.previous_ns = sample.time_ns;
            self.earliest_ns = sample.time_ns;
            self.latest_ns = sample.time_ns;
        }
        self.rows += 1;
        varint::put_delta(&mut self.time, self.previous_ns, sample.time_ns);
        self.previous_ns = sample.time_ns;
        self.earliest_ns = self.earliest_ns.min(sample.time_ns);
        self.latest_ns = self.latest_ns.max(sample.time_ns);

        let task = self.task_number(sample.task);
        varint::put(&mut self.task, u64::from(task));
        self.state.push(sample.state.number());

        let (chain, stop) = match sample.chain.get(..MAX_FRAMES) {
            Some(cut) if sample.chain.len() > MAX_FRAMES => (cut, Stop::Depth),
            _ => (sample.chain, sample.stop),
        };
        let node = self.trie.intern(chain);
        varint::put(&mut self.chain, node.map_or(0, |node| u64::from(node) + 1));
        self.stop.push(stop.number());
        put_optional(&mut self.cost, sample.cost_ns);
        put_optional(&mut self.late, sample.late_ns);
        self.registers.push(task, sample.registers);
        self.stacks.push(sample.task, sample.stack);
    }

    fn task_number(&mut self, task: Task) -> u32 {
        let next = self.tasks.len() as u32;
        *self.tasks.entry(task).or_insert_with(|| {
            varint::put(&mut self.task_table, u64::from(task.space));
            varint::put(&mut self.task_table, u64::from(task.vcpu));
            next
        })
    }

    /// The payload, before compression.
    pub fn payload(&self, out: &mut Vec<u8>) {
        let [parents, addresses, kinds] = self.trie.columns();
        let [stack_address, stack_length, stack_runs, stack_bytes] = self.stacks.columns();
        let id = Column::number;
        let mut first_time = Vec::with_capacity(10);
        varint::put(&mut first_time, self.first_ns);
        first_time.extend_from_slice(&self.time);
        let mut all = vec![
            (id(Column::Tasks), &self.task_table[..]),
            (id(Column::Task), &self.task),
            (id(Column::Time), &first_time),
            (id(Column::State), unless_zero(&self.state)),
            (id(Column::NodeParent), parents),
            (id(Column::NodeAddress), addresses),
            (id(Column::NodeKind), kinds),
            (id(Column::Chain), &self.chain),
            (id(Column::Stop), &self.stop),
            (id(Column::Cost), unless_zero(&self.cost)),
            (id(Column::Late), unless_zero(&self.late)),
            (id(Column::RegisterMasks), &self.registers.mask_table),
            (
                id(Column::RegisterMask),
                unless_zero(&self.registers.mask_index),
            ),
            (id(Column::StackAddress), stack_address),
            (id(Column::StackLength), unless_zero(stack_length)),
            (id(Column::StackRuns), stack_runs),
            (id(Column::StackBytes), stack_bytes),
        ];
        let registers = self.registers.values.iter().enumerate();
        all.extend(registers.map(|(number, bytes)| (REGISTER_COLUMN + number as u16, &bytes[..])));
        columns::put(out, &all);
    }

    /// Ready for the next block; keeps its memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.tasks.clear();
        self.trie.clear();
        self.stacks.clear();
        self.registers.clear();
        for column in [
            &mut self.task_table,
            &mut self.task,
            &mut self.time,
            &mut self.state,
            &mut self.chain,
            &mut self.stop,
            &mut self.cost,
            &mut self.late,
        ] {
            column.clear();
        }
    }
}

/// A column of zeros says nothing: an absent column reads as zeros.
fn unless_zero(column: &[u8]) -> &[u8] {
    if column.iter().all(|&byte| byte == 0) {
        &[]
    } else {
        column
    }
}

/// 0 is "not known", else the value plus one; the largest value is one less than it was.
fn put_optional(out: &mut Vec<u8>, value: Option<u64>) {
    varint::put(out, value.map_or(0, |value| value.saturating_add(1)));
}

/// Register columns: each value is the difference from the task's row before.
#[derive(Default)]
struct RegisterBuilder {
    masks: Vec<u64>,
    mask_table: Vec<u8>,
    mask_index: Vec<u8>,
    values: Vec<Vec<u8>>,
    /// By task number.
    before: Vec<[u64; 64]>,
}

impl RegisterBuilder {
    fn push(&mut self, task: u32, registers: Option<&Registers>) {
        let Some(registers) = registers.filter(|registers| registers.mask() != 0) else {
            self.mask_index.push(0);
            return;
        };
        let mask = registers.mask();
        let known = self.masks.iter().position(|&known| known == mask);
        let index = known.unwrap_or_else(|| {
            varint::put(&mut self.mask_table, mask);
            self.masks.push(mask);
            self.masks.len() - 1
        });
        varint::put(&mut self.mask_index, index as u64 + 1);
        let task = task as usize;
        if self.before.len() <= task {
            self.before.resize(task + 1, [0; 64]);
        }
        self.values.resize(64, Vec::new());
        for (number, value) in registers.iter() {
            let number = usize::from(number);
            let before = &mut self.before[task][number];
            varint::put_delta(&mut self.values[number], *before, value);
            *before = value;
        }
    }

    fn clear(&mut self) {
        self.masks.clear();
        self.mask_table.clear();
        self.mask_index.clear();
        self.before.clear();
        self.values.iter_mut().for_each(Vec::clear);
    }
}

/// A decoded sample block: its stack table, and rows to be read in order.
#[derive(Debug)]
pub struct SampleBlock {
    payload: Vec<u8>,
    directory: Directory,
    rows: usize,
    tasks: Vec<Task>,
    nodes: Vec<Node>,
    masks: Vec<u64>,
}

impl SampleBlock {
    pub(crate) fn decode(payload: Vec<u8>, rows: usize) -> Result<Self, Fault> {
        if rows > MAX_ROWS {
            return Err(Fault::Range {
                what: "number of samples",
                value: rows as u64,
                rule: "at most 16,384 in a block",
            });
        }
        let directory = Directory::parse(&payload)?;
        let column = |column| directory.column(&payload, column);
        let nodes = trie::decode(
            &mut column(Column::NodeParent),
            &mut column(Column::NodeAddress),
            &mut column(Column::NodeKind),
        )?;
        let tasks = decode_tasks(column(Column::Tasks))?;
        let mut mask_table = column(Column::RegisterMasks);
        let mut masks = Vec::new();
        while !mask_table.is_empty() {
            masks.push(mask_table.varint()?);
        }
        Ok(SampleBlock {
            rows,
            tasks,
            nodes,
            masks,
            directory,
            payload,
        })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The stack table; callers stand before what they called.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The frames of the chain that ends at `node`, innermost first.
    pub fn chain(&self, node: Option<u32>) -> impl Iterator<Item = crate::Frame> + '_ {
        let at = |index: u32| self.nodes.get(index as usize);
        let first = node.and_then(at);
        std::iter::successors(first, move |node| node.parent.and_then(at)).map(|node| node.frame)
    }

    /// The rows, in the order in which they were taken.
    pub fn rows(&self) -> Rows<'_> {
        let column = |column| self.directory.column(&self.payload, column);
        Rows {
            block: self,
            left: self.rows,
            time_ns: None,
            task: column(Column::Task),
            time: column(Column::Time),
            state: Optional::new(self, Column::State),
            chain: column(Column::Chain),
            stop: column(Column::Stop),
            cost: Optional::new(self, Column::Cost),
            late: Optional::new(self, Column::Late),
            mask: Optional::new(self, Column::RegisterMask),
            values: std::array::from_fn(|number| {
                self.directory.register(&self.payload, number as u8)
            }),
            registers: HashMap::new(),
            stacks: self.directory.has(Column::StackLength).then(|| {
                RawStackReader::new([
                    column(Column::StackAddress),
                    column(Column::StackLength),
                    column(Column::StackRuns),
                    column(Column::StackBytes),
                ])
            }),
        }
    }
}

fn decode_tasks(mut column: Cursor<'_>) -> Result<Vec<Task>, Fault> {
    let mut tasks = Vec::new();
    let most = u32::MAX as usize;
    while !column.is_empty() {
        let space = column.varint_up_to(most, "32 bits")? as u32;
        let vcpu = column.varint_up_to(most, "32 bits")? as u32;
        tasks.push(Task { space, vcpu });
    }
    Ok(tasks)
}

/// A column that reads as zeros where the block does not have it.
#[derive(Debug)]
struct Optional<'a>(Option<Cursor<'a>>);

impl<'a> Optional<'a> {
    fn new(block: &'a SampleBlock, column: Column) -> Self {
        let present = block.directory.has(column);
        Optional(present.then(|| block.directory.column(&block.payload, column)))
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        self.0.as_mut().map_or(Ok(0), Cursor::varint)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.0.as_mut().map_or(Ok(0), Cursor::byte)
    }
}

/// One sample of a block.
#[derive(Debug)]
pub struct Row<'a> {
    /// When, in nanoseconds of the recording's monotonic clock.
    pub time_ns: u64,
    /// Of which vCPU or thread.
    pub task: Task,
    /// What that was doing.
    pub state: State,
    /// Node of the innermost frame in [`SampleBlock::nodes`]; `None` for an empty chain.
    pub node: Option<u32>,
    /// Why the chain ends.
    pub stop: Stop,
    /// How long the guest stood still, or the sampler worked, for it.
    pub cost_ns: Option<u64>,
    /// How long after its deadline it was taken.
    pub late_ns: Option<u64>,
    /// Registers, if recorded.
    pub registers: Option<&'a Registers>,
    /// Raw stack bytes, if recorded.
    pub stack: Option<RawStack<'a>>,
}

/// Reads the rows of a block in order. A row borrows from the reader, so this is no `Iterator`.
pub struct Rows<'a> {
    block: &'a SampleBlock,
    left: usize,
    time_ns: Option<u64>,
    task: Cursor<'a>,
    time: Cursor<'a>,
    state: Optional<'a>,
    chain: Cursor<'a>,
    stop: Cursor<'a>,
    cost: Optional<'a>,
    late: Optional<'a>,
    mask: Optional<'a>,
    values: [Cursor<'a>; 64],
    registers: HashMap<Task, Registers>,
    stacks: Option<RawStackReader<'a>>,
}

impl Rows<'_> {
    /// The next row, or `None` after the last.
    ///
    /// # Errors
    /// The first fault of a column; the rows before it are sound, none follows.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        // A fault ends the block: the columns no longer stand at the same row.
        let left = std::mem::replace(&mut self.left, 0);
        let from_ns = match self.time_ns {
            Some(time_ns) => time_ns,
            None => self.time.varint()?,
        };
        let time_ns = self.time.delta(from_ns)?;
        self.time_ns = Some(time_ns);
        let task = self.task()?;
        let state = tag("state", self.state.byte()?, State::from_number)?;
        let node = self
            .chain
            .varint_up_to(self.block.nodes.len(), "a node of the stack table")?;
        let stop = tag("stop reason", self.stop.byte()?, Stop::from_number)?;
        let cost_ns = self.cost.varint()?.checked_sub(1);
        let late_ns = self.late.varint()?.checked_sub(1);
        let mask = self.mask()?;
        if let Some(mask) = mask {
            let registers = self.registers.entry(task).or_default();
            for number in bits(mask) {
                let before = registers.remembered(number);
                let value = self.values[usize::from(number)].delta(before)?;
                registers.set(number, value);
            }
            registers.keep_only(mask);
        }
        let stack = match &mut self.stacks {
            Some(stacks) => stacks.row(task)?,
            None => None,
        };
        self.left = left - 1;
        Ok(Some(Row {
            time_ns,
            task,
            state,
            node: node.checked_sub(1).map(|node| node as u32),
            stop,
            cost_ns,
            late_ns,
            registers: mask.and_then(|_| self.registers.get(&task)),
            stack,
        }))
    }

    fn task(&mut self) -> Result<Task, Fault> {
        let value = self.task.varint()?;
        let index = usize::try_from(value).unwrap_or(usize::MAX);
        self.block.tasks.get(index).copied().ok_or(Fault::Range {
            what: "task",
            value,
            rule: "an index into the table of tasks",
        })
    }

    fn mask(&mut self) -> Result<Option<u64>, Fault> {
        let value = self.mask.varint()?;
        let Some(index) = value.checked_sub(1) else {
            return Ok(None);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let mask = self.block.masks.get(index).ok_or(Fault::Range {
            what: "register mask",
            value,
            rule: "an index into the table of register masks, plus one",
        })?;
        Ok(Some(*mask))
    }
}

fn tag<T>(what: &'static str, number: u8, known: fn(u8) -> Option<T>) -> Result<T, Fault> {
    known(number).ok_or(Fault::Unknown {
        what,
        number: u64::from(number),
    })
}
