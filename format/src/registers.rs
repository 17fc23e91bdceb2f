//! Register columns of a sample block (format-spec.md, section 5.3).
//!
//! A register of a task seldom moves far between two samples, so each value is a difference.

use crate::columns::Directory;
use crate::error::Fault;
use crate::layout::Column;
use crate::sample::{Registers, bits};
use crate::varint::{self, Cursor};

/// Builds the columns.
#[derive(Default)]
pub(crate) struct RegisterBuilder {
    masks: Vec<u64>,
    mask_table: Vec<u8>,
    mask_index: Vec<u8>,
    values: Vec<Vec<u8>>,
    /// By task number.
    before: Vec<[u64; 64]>,
}

impl RegisterBuilder {
    /// Adds a row of the task with this number.
    pub fn push(&mut self, task: u32, registers: Option<&Registers>) {
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

    /// The table of masks and the column of indices into it.
    pub fn mask_columns(&self) -> [&[u8]; 2] {
        [&self.mask_table, &self.mask_index]
    }

    /// The column of each register, by number.
    pub fn value_columns(&self) -> impl Iterator<Item = &[u8]> {
        self.values.iter().map(Vec::as_slice)
    }

    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.masks.clear();
        self.mask_table.clear();
        self.mask_index.clear();
        self.before.clear();
        self.values.iter_mut().for_each(Vec::clear);
    }
}

/// Reads the columns, row by row.
pub(crate) struct RegisterReader<'a> {
    masks: &'a [u64],
    mask_index: Cursor<'a>,
    values: Vec<Cursor<'a>>,
    /// By task number.
    before: Vec<Registers>,
}

impl<'a> RegisterReader<'a> {
    /// `None` where the block has no registers.
    pub fn new(payload: &'a [u8], directory: &Directory, masks: &'a [u64]) -> Option<Self> {
        directory.has(Column::RegisterMask).then(|| RegisterReader {
            masks,
            mask_index: directory.column(payload, Column::RegisterMask),
            values: (0..64)
                .map(|number| directory.register(payload, number))
                .collect(),
            before: Vec::new(),
        })
    }

    /// The registers of the next row, which is of the task with this number.
    pub fn row(&mut self, task: usize) -> Result<Option<&Registers>, Fault> {
        let value = self.mask_index.varint()?;
        let Some(index) = value.checked_sub(1) else {
            return Ok(None);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let mask = *self.masks.get(index).ok_or(Fault::Range {
            what: "register mask",
            value,
            rule: "an index into the table of register masks, plus one",
        })?;
        if self.before.len() <= task {
            self.before.resize_with(task + 1, Registers::default);
        }
        let registers = &mut self.before[task];
        for number in bits(mask) {
            let before = registers.remembered(number);
            let value = self.values[usize::from(number)].delta(before)?;
            registers.set(number, value);
        }
        registers.keep_only(mask);
        Ok(Some(registers))
    }
}
