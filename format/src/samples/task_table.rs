//! The table of a block's tasks (format-spec.md, section 5.1). A row refers to its task by its number in the table.

use crate::error::Fault;
use crate::layout::MAX_ROWS;
use crate::samples::sample::Task;
use crate::varint::{self, Cursor};
use crate::word_hash::WordMap;

/// Builds the table.
#[derive(Default)]
pub(crate) struct TaskTable {
    numbers: WordMap<Task, u32>,
    /// The task of the previous row and its number, since most rows belong to the same few tasks.
    last: Option<(Task, u32)>,
    bytes: Vec<u8>,
}

impl TaskTable {
    /// The number of `task`, which is added if it is new.
    #[inline]
    pub fn number(&mut self, task: Task) -> u32 {
        if let Some((last, number)) = self.last
            && last == task
        {
            return number;
        }
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(task).or_insert_with(|| {
            varint::put(&mut self.bytes, u64::from(task.space));
            varint::put(&mut self.bytes, u64::from(task.vcpu));
            next
        });
        self.last = Some((task, number));
        number
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The column.
    pub fn column(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all tasks, but keeps the memory.
    pub fn clear(&mut self) {
        self.numbers.clear();
        self.last = None;
        self.bytes.clear();
    }

    /// Reads the column: the tasks, by number.
    pub fn decode(mut column: Cursor<'_>) -> Result<Vec<Task>, Fault> {
        let mut tasks = Vec::new();
        let most = u32::MAX as usize;
        while !column.is_empty() {
            let space = column.varint_up_to(most, "32 bits")? as u32;
            let vcpu = column.varint_up_to(most, "32 bits")? as u32;
            tasks.push(Task { space, vcpu });
            let rule = "at most 16,384 in a block";
            Fault::if_above(MAX_ROWS, "number of tasks", tasks.len(), rule)?;
        }
        Ok(tasks)
    }
}
