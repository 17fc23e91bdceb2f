//! Writes and reads the columns of [`Details`], between the numbers of rows and bytes (format-spec.md, sections 5.1 and
//! 5.6).

use crate::directory::Directory;
use crate::error::Fault;
use crate::samples::details::{Coding, Details};
use crate::samples::numbers::plus_one;
use crate::varint::{self, Cursor};
use crate::word_hash::WordMap;

/// The columns of [`Details`], while a block is being filled.
#[derive(Default)]
pub(crate) struct DetailBuilder {
    columns: [DetailColumn; Details::COUNT],
}

/// One column.
#[derive(Default)]
pub(crate) struct DetailColumn {
    /// Empty until a row has a number.
    bytes: Vec<u8>,
    /// Rows not encoded yet: those before the first number, or those without a change since the last one.
    same: u64,
    /// For a column of changes: indices of numbers, in the order in which they came, from 1.
    places: WordMap<u64, u32>,
    /// For a column of changes, by task: the index of its last row's number, or 0 if unknown.
    last: Vec<u32>,
}

impl DetailColumn {
    fn push_plus_one(&mut self, value: Option<u64>) {
        if self.bytes.is_empty() {
            self.bytes
                .resize(std::mem::take(&mut self.same) as usize, 0);
        }
        varint::put(&mut self.bytes, plus_one(value));
    }

    /// Adds a row of the task with this number to a column of changes.
    pub fn push_change(&mut self, task: u32, value: Option<u64>) {
        if value.is_none() && self.bytes.is_empty() {
            self.same += 1;
            return;
        }
        let next = self.places.len() as u32 + 1;
        let place = value.map_or(0, |value| *self.places.entry(value).or_insert(next));
        let task = task as usize;
        if self.last.len() <= task {
            self.last.resize(task + 1, 0);
        }
        if std::mem::replace(&mut self.last[task], place) == place {
            self.same += 1;
            return;
        }
        varint::put(&mut self.bytes, std::mem::take(&mut self.same));
        varint::put(&mut self.bytes, u64::from(place));
        if let Some(value) = value.filter(|_| place == next) {
            varint::put(&mut self.bytes, value);
        }
    }

    /// The column, empty without a number.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all rows, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.same = 0;
        self.places.clear();
        self.last.clear();
    }
}

impl DetailBuilder {
    /// Adds a row of the task with this number.
    #[inline]
    pub fn push(&mut self, task: u32, details: &Details) {
        details.each(|index, value| {
            let column = &mut self.columns[index];
            if value.is_none() && column.bytes.is_empty() {
                column.same += 1;
                return;
            }
            match Details::ALL[index].coding {
                Coding::PlusOne => column.push_plus_one(value),
                Coding::Changes => column.push_change(task, value),
            }
        });
    }

    /// The columns, by number; one without a number is empty.
    pub fn columns(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let columns = Details::ALL.iter().zip(&self.columns);
        columns.map(|(detail, column)| (detail.column.number(), &column.bytes[..]))
    }

    /// Removes all rows, but keeps the memory.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(DetailColumn::clear);
    }
}

/// Reads the columns of [`Details`], row by row.
pub(crate) struct DetailReader<'a> {
    /// The columns that the block has, each with its index in the table.
    columns: Vec<(usize, DetailCursor<'a>)>,
}

/// A cursor over one column.
enum DetailCursor<'a> {
    PlusOne(Cursor<'a>),
    Changes(Cursor<'a>, Changes),
}

/// The state of a column of changes.
#[derive(Default)]
pub(crate) struct Changes {
    values: Vec<u64>,
    /// By task, as in [`DetailColumn`].
    last: Vec<u32>,
    /// Rows without a change that are still to come before the next change.
    same: Option<u64>,
}

impl Changes {
    /// The number of the next row, which belongs to the task with this index.
    pub fn row(&mut self, column: &mut Cursor<'_>, task: usize) -> Result<Option<u64>, Fault> {
        if self.last.len() <= task {
            self.last.resize(task + 1, 0);
        }
        // After the last change, all rows repeat their task's number.
        if self.same.is_none() && !column.is_empty() {
            self.same = Some(column.varint()?);
        }
        match &mut self.same {
            None => {}
            Some(0) => {
                self.last[task] = self.changed(column)?;
                self.same = None;
            }
            Some(same) => *same -= 1,
        }
        let place = self.last[task] as usize;
        Ok(place
            .checked_sub(1)
            .and_then(|index| self.values.get(index))
            .copied())
    }

    /// The index of a number that a task has from now on.
    fn changed(&mut self, column: &mut Cursor<'_>) -> Result<u32, Fault> {
        let next = self.values.len() + 1;
        let place = column.varint_up_to(next, "a number that came before, or the next")?;
        if place == next {
            self.values.push(column.varint()?);
        }
        Ok(place as u32)
    }
}

impl<'a> DetailReader<'a> {
    pub fn new(payload: &'a [u8], directory: &Directory) -> Self {
        let columns = Details::ALL.iter().enumerate();
        let present = columns.filter(|(_, detail)| directory.has(detail.column.number()));
        let cursors = present.map(|(index, detail)| {
            let column = detail.column;
            let cursor = directory.column(payload, column.number(), column.name());
            let cursor = match detail.coding {
                Coding::PlusOne => DetailCursor::PlusOne(cursor),
                Coding::Changes => DetailCursor::Changes(cursor, Changes::default()),
            };
            (index, cursor)
        });
        DetailReader {
            columns: cursors.collect(),
        }
    }

    /// The next row, which belongs to the task with this index.
    #[inline]
    pub fn row(&mut self, task: usize) -> Result<Details, Fault> {
        let mut values = [None; Details::COUNT];
        for (index, cursor) in &mut self.columns {
            values[*index] = match cursor {
                DetailCursor::PlusOne(cursor) => cursor.varint()?.checked_sub(1),
                DetailCursor::Changes(cursor, changes) => changes.row(cursor, task)?,
            };
        }
        Ok(Details::of(values))
    }
}
