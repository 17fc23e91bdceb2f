//! Register columns of a sample block (format-spec.md, section 5.3).
//!
//! A register of a task often changes little between two samples, so each value is encoded relative to the previous
//! one.

use crate::directory::Directory;
use crate::error::Fault;
use crate::layout::REGISTER_COLUMN;
use crate::samples::details::Column;
use crate::samples::numbers::NumberBuilder;
use crate::samples::sample::{Registers, bits};
use crate::varint::{self, Cursor};

/// Builds the columns.
#[derive(Default)]
pub(crate) struct RegisterBuilder {
    masks: Vec<u64>,
    mask_table: Vec<u8>,
    mask_index: NumberBuilder,
    values: Vec<Vec<u8>>,
    /// Previous values by task number.
    before: Vec<[u64; 64]>,
    /// Masks of registers that a row had, and of those that differed from the row's frame or stack address.
    seen: u64,
    not_frame: u64,
    not_stack: u64,
    equal: Vec<u8>,
}

/// Values of a row that registers may repeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elsewhere {
    /// Address of the innermost frame.
    pub frame: Option<u64>,
    /// Address of the raw stack.
    pub stack: Option<u64>,
}

impl RegisterBuilder {
    /// Adds a row of the task with this number.
    pub fn push(&mut self, task: u32, registers: Option<&Registers>, elsewhere: Elsewhere) {
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
        self.mask_index.push(index as u64 + 1);
        let task = task as usize;
        if self.before.len() <= task {
            self.before.resize(task + 1, [0; 64]);
        }
        self.values.resize(64, Vec::new());
        self.seen |= mask;
        for (number, value) in registers.iter() {
            self.not_frame |= u64::from(elsewhere.frame != Some(value)) << number;
            self.not_stack |= u64::from(elsewhere.stack != Some(value)) << number;
            let number = usize::from(number);
            let before = &mut self.before[task][number];
            varint::put_word(&mut self.values[number], *before, value);
            *before = value;
        }
    }

    /// Registers that in every row repeat the frame's or the stack's address.
    fn equal(&self) -> (u64, u64) {
        let frame = self.seen & !self.not_frame;
        (frame, self.seen & !self.not_stack & !frame)
    }

    /// The column that shows which registers have no column of their own; empty if all have one.
    pub fn equal_column(&mut self) -> &[u8] {
        let (frame, stack) = self.equal();
        self.equal.clear();
        if frame | stack != 0 {
            varint::put(&mut self.equal, frame);
            varint::put(&mut self.equal, stack);
        }
        &self.equal
    }

    /// The table of masks and the column of indices into it.
    pub fn mask_columns(&self) -> [&[u8]; 2] {
        [&self.mask_table, self.mask_index.column()]
    }

    /// The column of each register, by number.
    pub fn value_columns(&self) -> impl Iterator<Item = &[u8]> {
        let (frame, stack) = self.equal();
        let columns = self.values.iter().enumerate();
        columns.map(
            move |(number, column)| match (frame | stack) >> number & 1 {
                0 => column.as_slice(),
                _ => &[],
            },
        )
    }

    /// Removes all rows, but keeps the memory.
    pub fn clear(&mut self) {
        self.masks.clear();
        self.mask_table.clear();
        self.mask_index.clear();
        (self.seen, self.not_frame, self.not_stack) = (0, 0, 0);
        self.before.clear();
        self.values.iter_mut().for_each(Vec::clear);
    }
}

/// Reads the columns, row by row.
pub(crate) struct RegisterReader<'a> {
    masks: &'a [u64],
    mask_index: Cursor<'a>,
    equal_frame: u64,
    equal_stack: u64,
    values: Vec<Cursor<'a>>,
    /// Previous values by task number.
    before: Vec<Registers>,
}

impl<'a> RegisterReader<'a> {
    /// `None` if the block has no registers.
    pub fn new(
        payload: &'a [u8],
        directory: &Directory,
        masks: &'a [u64],
        (equal_frame, equal_stack): (u64, u64),
    ) -> Option<Self> {
        let mask = Column::RegisterMask;
        directory.has(mask.number()).then(|| RegisterReader {
            masks,
            mask_index: directory.column(payload, mask.number(), mask.name()),
            equal_frame,
            equal_stack,
            values: (0..64)
                .map(|number: u8| {
                    directory.column(payload, REGISTER_COLUMN + u16::from(number), "register")
                })
                .collect(),
            before: Vec::new(),
        })
    }

    /// The registers of the next row, which belongs to the task with this number.
    pub fn row(&mut self, task: usize, elsewhere: Elsewhere) -> Result<Option<&Registers>, Fault> {
        let value = self.mask_index.varint()?;
        let Some(index) = value.checked_sub(1) else {
            return Ok(None);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(&mask) = self.masks.get(index) else {
            return Err(Fault::Range {
                what: "register mask",
                value,
                rule: "an index into the table of register masks, plus one",
            });
        };
        if self.before.len() <= task {
            self.before.resize_with(task + 1, Registers::default);
        }
        let registers = &mut self.before[task];
        for number in bits(mask) {
            let before = registers.remembered(number);
            let (repeated, missing) = match (
                self.equal_frame >> number & 1,
                self.equal_stack >> number & 1,
            ) {
                (1, _) => (elsewhere.frame, "register-equal: chain"),
                (_, 1) => (elsewhere.stack, "register-equal: stack"),
                _ => (Some(self.values[usize::from(number)].word(before)?), ""),
            };
            let value = match repeated {
                Some(value) => value,
                None => return Err(Fault::Short(missing)),
            };
            registers.set(number, value);
        }
        registers.keep_only(mask);
        Ok(Some(registers))
    }
}
