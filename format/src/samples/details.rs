//! The columns of a sample block, one row each, and the numbers that a sample may have beside its stack
//! (format-spec.md, section 5.1): writing, reading and printing them follow from the row.
//!
//! A column whose row ends with a field is such a number: adding it here and in the table of
//! format-spec.md is all that the format needs (`detail_columns`). The others are woven with each
//! other and have code of their own (`writer`, `reader`).

use crate::directory::ColumnTag;
use crate::tags::tags;

/// Declares columns and [`Details`] in one table: number, name, whether a reader that doesn't know it must
/// give up the block, and where it is a number of its own the field, how it is encoded and how it is printed.
macro_rules! columns {
    ($(
        $(#[$doc:meta])* $variant:ident = $number:literal $text:literal $weight:ident
        $({ $(#[$field_doc:meta])* $field:ident: $coding:ident, $shown:ident $form:ident })?,
    )*) => {
        tags! {
            /// Columns of a sample block (format-spec.md, section 5).
            Column: u16 { $($(#[$doc])* $variant = $number $text,)* }
        }

        impl ColumnTag for Column {
            fn number(self) -> u16 {
                Column::number(self)
            }

            fn name(self) -> &'static str {
                Column::name(self)
            }
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
                coding: Coding::$coding,
                shown: Shown::$shown,
                form: Form::$form,
            },)?)*];

            /// How many there are.
            pub const COUNT: usize = Details::ALL.len();

            /// These values, in the order of the table.
            #[inline]
            pub fn of(values: [Option<u64>; Details::COUNT]) -> Details {
                let [$($($field,)?)*] = values;
                Details { $($($field,)?)* }
            }

            /// Shows each of the values with its number in the table, in that order.
            #[inline]
            pub fn each(&self, mut show: impl FnMut(usize, Option<u64>)) {
                let mut index = 0;
                $($(
                    show(index, self.$field);
                    index += 1;
                )?)*
                let _ = index;
            }
        }
    };
}

#[derive(PartialEq, Eq)]
enum Weight {
    Critical,
    Optional,
}

/// How a number is encoded in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// A varint for each row: 0 for not known, else the number plus 1; the largest number is one less than
    /// it was.
    PlusOne,
    /// Only where it is another than at the task's row before (format-spec.md, section 5.6).
    Changes,
}

/// When a number is in dump text, under its column's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Before the chain, `-` where it isn't known.
    Always,
    /// At the end of the line, where it is known.
    IfKnown,
}

/// How a number is written there.
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
    /// How it is encoded there.
    pub coding: Coding,
    /// Whether dump text has it where it isn't known.
    pub shown: Shown,
    /// How dump text has it.
    pub form: Form,
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
        /// How many nanoseconds after its deadline it was taken; `None` if there was no deadline.
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
    /// Which processor of the machine it ran on.
    Cpu = 24 "cpu" Optional {
        /// The number of the machine's processor that the vCPU or thread was on, or was on last; `None` where it
        /// isn't known.
        cpu: Changes, IfKnown Decimal
    },
}
