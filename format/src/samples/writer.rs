//! Gathers samples, one after the other, as the columns of a block (format-spec.md, section 5); `reader` mirrors it.

use crate::directory;
use crate::layout::{
    MAX_BLOCK_STACK_BYTES, MAX_FRAMES, MAX_NODES, MAX_STACK_BYTES, REGISTER_COLUMN,
};
use crate::samples::detail_columns::DetailBuilder;
use crate::samples::details::Column;
use crate::samples::numbers::{NumberBuilder, plus_one};
use crate::samples::raw_stack::RawStackBuilder;
use crate::samples::registers::{Elsewhere, RegisterBuilder};
use crate::samples::sample::{Sample, Stop};
use crate::samples::task_table::TaskTable;
use crate::samples::trie::{TrieBuilder, TrieColumns};
use crate::varint;

/// Number of rows at which a block is closed.
const FULL_ROWS: usize = 8192;
/// Size of raw stacks at which a block is closed, in bytes.
const FULL_STACK_BYTES: usize = 4 << 20;

/// Gathers rows until a block is full.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    rows: usize,
    first_ns: u64,
    latest_ns: u64,
    earliest_ns: u64,
    previous_ns: u64,
    tasks: TaskTable,
    trie: TrieBuilder,
    registers: RegisterBuilder,
    stacks: RawStackBuilder,
    task: NumberBuilder,
    time: Vec<u8>,
    state: NumberBuilder,
    /// Node of each row.
    nodes: Vec<Option<u32>>,
    /// Columns that are made from rows and stack table when the block is closed.
    chain: NumberBuilder,
    table: TrieColumns,
    stop: NumberBuilder,
    details: DetailBuilder,
    off_cpu: NumberBuilder,
    waits: NumberBuilder,
}

impl BlockBuilder {
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn has_stacks(&self) -> bool {
        self.stacks.whole_bytes() > 0
    }

    /// Earliest and latest time of the rows.
    pub fn time_range_ns(&self) -> (u64, u64) {
        (self.earliest_ns, self.latest_ns)
    }

    /// Whether another row might exceed a limit of format-spec.md, section 11.
    pub fn is_full(&self) -> bool {
        self.rows >= FULL_ROWS
            || self.stacks.len() >= FULL_STACK_BYTES
            || self.stacks.whole_bytes() > MAX_BLOCK_STACK_BYTES - MAX_STACK_BYTES
            || self.trie.len() > MAX_NODES - MAX_FRAMES
    }

    /// Adds a row. Chains longer than [`MAX_FRAMES`] lose their outer frames, which the row's stop reason shows.
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
        let waited_ns = sample.wait.map_or(0, |wait| wait.time_ns);
        let end_ns = sample.time_ns.saturating_add(waited_ns);
        self.latest_ns = self.latest_ns.max(end_ns);

        let task = self.tasks.number(sample.task);
        self.task.push(u64::from(task));
        self.state.push(u64::from(sample.state.number()));

        let (chain, stop) = match sample.chain.get(..MAX_FRAMES) {
            Some(cut) if sample.chain.len() > MAX_FRAMES => (cut, Stop::Depth),
            _ => (sample.chain, sample.stop),
        };
        self.nodes.push(self.trie.intern(chain));
        self.stop.push(u64::from(stop.number()));
        self.details.push(task, &sample.details);
        self.off_cpu
            .push(plus_one(sample.wait.map(|wait| wait.time_ns)));
        let more = sample.wait.map_or(0, |wait| wait.count.saturating_sub(1));
        self.waits.push(more);
        let elsewhere = Elsewhere {
            frame: chain.first().map(|frame| frame.address),
            stack: sample.stack.map(|stack| stack.address),
        };
        self.registers.push(task, sample.registers, elsewhere);
        self.stacks.push(task, sample.stack);
    }

    /// The payload, before compression, and the lengths of its parts.
    pub fn payload(&mut self, out: &mut Vec<u8>, parts: &mut Vec<usize>) {
        self.trie.columns(&mut self.table);
        for &node in &self.nodes {
            self.chain.push(u64::from(self.trie.end_number(node)));
        }
        let [
            stack_address,
            stack_length,
            stack_runs,
            stack_words,
            stack_bytes,
        ] = self.stacks.columns();
        let equal = self.registers.equal_column().to_vec();
        let [mask_table, mask_index] = self.registers.mask_columns();
        let id = Column::number;
        let mut time = Vec::with_capacity(10 + self.time.len());
        varint::put(&mut time, self.first_ns);
        time.extend_from_slice(&self.time);
        let mut all = vec![
            (id(Column::Tasks), self.tasks.column()),
            (id(Column::Task), self.task.column()),
            (id(Column::Time), &time),
            (id(Column::State), self.state.column()),
            (id(Column::NodeStep), &self.table.steps),
            (id(Column::NodePlace), &self.table.places),
            (id(Column::NodeAddress), &self.table.addresses),
            (id(Column::NodeKind), &self.table.kinds),
            (id(Column::Chain), self.chain.column()),
            (id(Column::Stop), self.stop.column()),
        ];
        all.extend(self.details.columns());
        all.extend([
            (id(Column::OffCpu), self.off_cpu.column()),
            (id(Column::Waits), self.waits.column()),
            (id(Column::RegisterMasks), mask_table),
            (id(Column::RegisterMask), mask_index),
            (id(Column::RegisterEqual), &equal),
            (id(Column::StackAddress), stack_address),
            (id(Column::StackLength), stack_length),
            (id(Column::StackRuns), stack_runs),
            (id(Column::StackWords), stack_words),
            (id(Column::StackBytes), stack_bytes),
        ]);
        let registers = self.registers.value_columns().enumerate();
        all.extend(registers.map(|(number, bytes)| (REGISTER_COLUMN + number as u16, bytes)));
        // Registers are critical: without one of them, unwinding would give wrong frames.
        let is_critical = |id| Column::from_number(id).is_none_or(Column::is_critical);
        directory::put(out, &all, is_critical, parts);
    }

    /// Prepares for the next block; keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.tasks.clear();
        self.nodes.clear();
        self.trie.clear();
        self.stacks.clear();
        self.registers.clear();
        self.details.clear();
        self.time.clear();
        for column in [
            &mut self.task,
            &mut self.state,
            &mut self.chain,
            &mut self.stop,
            &mut self.off_cpu,
            &mut self.waits,
        ] {
            column.clear();
        }
    }
}
