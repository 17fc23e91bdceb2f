//! The columns of a sample block, one row each, and the numbers that a sample may have beside its stack
//! (format-spec.md, section 5.1): writing, reading and printing them follow from the row.
//!
//! A column whose row ends with a field is such a number: adding it here and in the table of
//! format-spec.md is all that the format needs. The others are woven with each other and have code of
//! their own ([`crate::samples`], [`crate::rows`]).

use crate::columns::Directory;
use crate::error::Fault;
use crate::layout::tags;
use crate::varint::{self, Cursor};
use crate::word_hash::WordMap;

/// Declares columns and [`Details`] in one table: number, name, whether a reader that doesn't know it must
/// give up the block, and where it is a number of its own the field, how it is told and how it is printed.
macro_rules! columns {
    ($(
        $(#[$doc:meta])* $variant:ident = $number:literal $text:literal $weight:ident
        $({ $(#[$field_doc:meta])* $field:ident: $told:ident, $shown:ident $form:ident })?,
    )*) => {
        tags! {
            /// Columns of a sample block (format-spec.md, section 5).
            Column: u16 { $($(#[$doc])* $variant = $number $text,)* }
        }

        impl Column {
            /// Whether a reader that doesn't know the column must give up the block.
            pub fn is_critical(self) -> bool {
                match self { $(Column::$variant => Weight::$weight == Weight::Critical,)* }
            }
        }

        /// Numbers that a sample may have beside its stack.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Details {
            $($($(#[$field_doc])* pub $field: Option<u64>,)?)*
        }

        impl Details {
            /// A row for each of them, in the order of the table.
            pub const ALL: &'static [Detail] = &[$($(Detail {
                column: Column::$variant,
                told: Told::$told,
                shown: Shown::$shown,
                form: Form::$form,
                get: |details| details.$field,
                place: |details| &mut details.$field,
            },)?)*];
        }
    };
}

#[derive(PartialEq, Eq)]
enum Weight {
    Critical,
    Optional,
}

/// How a number is told in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A varint for each row: 0 for not known, else the number plus 1; the largest number is one less than
    /// it was.
    PlusOne,
    /// Only where it is another than at the task's row before (format-spec.md, section 5.6).
    Changes,
}

/// When a number stands in dump text, under its column's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Before the chain, `-` where it isn't known.
    Always,
    /// At the end of the line, where it is known.
    IfKnown,
}

/// How a number stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As `dec`.
    Decimal,
    /// As `hex`.
    Hexadecimal,
}

/// One of the numbers of [`Details`].
#[derive(Debug, Clone, Copy)]
pub struct Detail {
    /// Its column.
    pub column: Column,
    /// How it is told there.
    pub told: Told,
    /// Whether dump text has it where it isn't known.
    pub shown: Shown,
    /// How dump text has it.
    pub form: Form,
    get: fn(&Details) -> Option<u64>,
    place: fn(&mut Details) -> &mut Option<u64>,
}

impl Detail {
    /// Its value.
    pub fn get(&self, details: &Details) -> Option<u64> {
        (self.get)(details)
    }

    /// Gives it a value.
    pub fn set(&self, details: &mut Details, value: Option<u64>) {
        *(self.place)(details) = value;
    }
}

columns! {
    /// Table of tasks: address space and vCPU.
    Tasks = 1 "tasks" Critical,
    /// Index into the table of tasks.
    Task = 2 "task" Critical,
    /// Time.
    Time = 3 "time" Critical,
    /// vCPU state.
    State = 4 "state" Critical,
    /// How each node of the stack table follows the one before.
    NodeStep = 5 "node-step" Critical,
    /// Which known successor of its caller a node is.
    NodePlace = 6 "node-place" Critical,
    /// Addresses of new successors.
    NodeAddress = 7 "node-address" Critical,
    /// Kinds of new successors.
    NodeKind = 8 "node-kind" Critical,
    /// Which of the table's chains a row has.
    Chain = 9 "chain" Critical,
    /// Why the walk stopped.
    Stop = 10 "stop" Critical,
    /// Freeze or sampling time.
    Cost = 11 "cost" Critical {
        /// How long the guest stood still, or the sampler worked, for this sample, in nanoseconds.
        cost_ns: PlusOne, Always Decimal
    },
    /// How late the sample was taken.
    Late = 12 "late" Critical {
        /// How many nanoseconds after its deadline it was taken; `None` where nobody set a deadline.
        late_ns: PlusOne, Always Decimal
    },
    /// Table of register masks.
    RegisterMasks = 13 "register-masks" Critical,
    /// Index into the table of register masks.
    RegisterMask = 14 "register-mask" Critical,
    /// Registers that repeat what the row says elsewhere.
    RegisterEqual = 15 "register-equal" Critical,
    /// Address of the raw stack bytes.
    StackAddress = 16 "stack-address" Critical,
    /// Length of the raw stack bytes.
    StackLength = 17 "stack-length" Critical,
    /// Which words of the task's stack memory stay and which change.
    StackRuns = 18 "stack-runs" Critical,
    /// By what they change.
    StackWords = 19 "stack-words" Critical,
    /// Stack bytes where nothing was known.
    StackBytes = 20 "stack-bytes" Critical,
    /// Time off the processor that a row stands for.
    OffCpu = 21 "off-cpu" Critical,
    /// How many waits that time is the sum of, beyond the first.
    Waits = 22 "waits" Critical,
    /// Which address space of the guest was in use.
    Root = 23 "root" Optional {
        /// The root of the guest's page tables (format-spec.md, section 5.7); `None` where it isn't known.
        root: Changes, IfKnown Hexadecimal
    },
}

/// The columns of [`Details`], while a block is filled.
#[derive(Default)]
pub(crate) struct DetailBuilder {
    columns: [Vec<u8>; Details::ALL.len()],
    changes: [ChangeBuilder; Details::ALL.len()],
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
    fn push(&mut self, out: &mut Vec<u8>, task: u32, value: Option<u64>) {
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
    pub fn push(&mut self, task: u32, details: &Details) {
        let columns = self.columns.iter_mut().zip(&mut self.changes);
        for ((column, changes), detail) in columns.zip(Details::ALL) {
            let value = detail.get(details);
            match detail.told {
                Told::PlusOne => put_plus_one(column, value),
                Told::Changes => changes.push(column, task, value),
            }
        }
    }

    /// The columns, by number; one of zeros is as good as none.
    pub fn columns(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let columns = Details::ALL.iter().zip(&self.columns);
        columns.map(|(detail, bytes)| {
            let told = match detail.told {
                Told::PlusOne => unless_zero(bytes),
                Told::Changes => bytes,
            };
            (detail.column.number(), told)
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
    columns: [Optional<'a>; Details::ALL.len()],
    changes: [ChangeReader; Details::ALL.len()],
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
        let mut details = Details::default();
        let columns = self.columns.iter_mut().zip(&mut self.changes);
        for ((column, changes), detail) in columns.zip(Details::ALL) {
            let value = match detail.told {
                Told::PlusOne => column.varint()?.checked_sub(1),
                Told::Changes => changes.row(column, task)?,
            };
            detail.set(&mut details, value);
        }
        Ok(details)
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
