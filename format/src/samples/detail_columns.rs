//! Writes and reads the columns of [`Details`]: the numbers of rows go in, bytes come out, and back
//! (format-spec.md, sections 5.1 and 5.6).

use crate::error::Fault;
use crate::samples::details::{Coding, Details};
use crate::samples::directory::Directory;
use crate::varint::{self, Cursor};
use crate::word_hash::WordMap;

/// The columns of [`Details`], while a block is filled.
#[derive(Default)]
pub(crate) struct DetailBuilder {
    columns: [Vec<u8>; Details::COUNT],
    changes: [ChangeBuilder; Details::COUNT],
}

/// What a column of changes has told so far.
#[derive(Default)]
struct ChangeBuilder {
    /// Places of numbers among those that were new, from 1.
    places: WordMap<u64, u32>,
    /// By task: the place of its last row's number, or 0 where that is not known.
    last: Vec<u32>,
    /// Rows without a change since the last one.
    same: u64,
}

impl ChangeBuilder {
    #[inline]
    fn push(&mut self, out: &mut Vec<u8>, task: u32, value: Option<u64>) {
        if value.is_none() && self.places.is_empty() {
            self.same += 1; // nothing was known of any task yet
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
        varint::put(out, std::mem::take(&mut self.same));
        varint::put(out, u64::from(place));
        if let Some(value) = value.filter(|_| place == next) {
            varint::put(out, value);
        }
    }

    fn clear(&mut self) {
        self.places.clear();
        self.last.clear();
        self.same = 0;
    }
}

impl DetailBuilder {
    /// Adds a row of the task with this number.
    #[inline]
    pub fn push(&mut self, task: u32, details: &Details) {
        for (index, value) in details.values().into_iter().enumerate() {
            let column = &mut self.columns[index];
            match Details::ALL[index].coding {
                Coding::PlusOne => put_plus_one(column, value),
                Coding::Changes => self.changes[index].push(column, task, value),
            }
        }
    }

    /// The columns, by number; one of zeros is as good as none.
    pub fn columns(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let columns = Details::ALL.iter().zip(&self.columns);
        columns.map(|(detail, bytes)| {
            let bytes = match detail.coding {
                Coding::PlusOne => unless_zero(bytes),
                Coding::Changes => bytes,
            };
            (detail.column.number(), bytes)
        })
    }

    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.changes.iter_mut().for_each(ChangeBuilder::clear);
    }
}

/// Reads the columns of [`Details`], row by row.
pub(crate) struct DetailReader<'a> {
    columns: [Optional<'a>; Details::COUNT],
    changes: [ChangeReader; Details::COUNT],
}

/// What a column of changes has told so far.
#[derive(Default)]
struct ChangeReader {
    values: Vec<u64>,
    /// By task, as in [`ChangeBuilder`].
    last: Vec<u32>,
    /// Rows without a change that are still to come before the next.
    same: Option<u64>,
}

impl ChangeReader {
    #[inline]
    fn row(&mut self, column: &mut Optional<'_>, task: usize) -> Result<Option<u64>, Fault> {
        let Some(column) = &mut column.0 else {
            return Ok(None);
        };
        if self.last.len() <= task {
            self.last.resize(task + 1, 0);
        }
        // After the last change all stays as it is.
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

    /// The place of a number that a task has from now on.
    fn changed(&mut self, column: &mut Cursor<'_>) -> Result<u32, Fault> {
        let next = self.values.len() + 1;
        let place = column.varint_up_to(next, "a number that was told, or the next")?;
        if place == next {
            self.values.push(column.varint()?);
        }
        Ok(place as u32)
    }
}

impl<'a> DetailReader<'a> {
    pub fn new(payload: &'a [u8], directory: &Directory) -> Self {
        let mut details = Details::ALL.iter();
        DetailReader {
            columns: std::array::from_fn(|_| {
                Optional(details.next().and_then(|detail| {
                    let column = detail.column;
                    let is_there = directory.has(column);
                    is_there.then(|| directory.column(payload, column))
                }))
            }),
            changes: Default::default(),
        }
    }

    /// The next row, which is of the task with this index.
    #[inline]
    pub fn row(&mut self, task: usize) -> Result<Details, Fault> {
        let mut values = [None; Details::COUNT];
        for (index, value) in values.iter_mut().enumerate() {
            let column = &mut self.columns[index];
            *value = match Details::ALL[index].coding {
                Coding::PlusOne => column.varint()?.checked_sub(1),
                Coding::Changes => self.changes[index].row(column, task)?,
            };
        }
        Ok(Details::of(values))
    }
}

/// A column that reads as zeros where the block does not have it.
pub(crate) struct Optional<'a>(pub Option<Cursor<'a>>);

impl Optional<'_> {
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        self.0.as_mut().map_or(Ok(0), Cursor::varint)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Fault> {
        self.0.as_mut().map_or(Ok(0), Cursor::byte)
    }
}

/// A column of zeros says nothing: an absent column reads as zeros.
pub(crate) fn unless_zero(column: &[u8]) -> &[u8] {
    if column.iter().all(|&byte| byte == 0) {
        &[]
    } else {
        column
    }
}

/// 0 is "not known", else the value plus one; the largest value is one less than it was.
pub(crate) fn put_plus_one(out: &mut Vec<u8>, value: Option<u64>) {
    varint::put(out, value.map_or(0, |value| value.saturating_add(1)));
}
