//! The columns of a sample block, and the numbers that a sample may have beside its stack (format-spec.md, section
//! 5.1). Each has one row here, from which writing, reading and printing are derived.
//!
//! If a column's row ends with a field, the column is such a number. To add one to the format, a row here and one in
//! format-spec.md are sufficient (`detail_columns`). The other columns depend on each other and have code of their own
//! (`writer`, `reader`).

use crate::tags::tags;

/// Declares columns and [`Details`] in one table. A row has number, name, and whether a reader that doesn't know the
/// column must give up the block. For a number of its own, it also has the field, its encoding and its form in print.
macro_rules! columns {
    ($(
        $(#[$doc:meta])* $variant:ident = $number:literal $text:literal $weight:ident
        $({ $(#[$field_doc:meta])* $field:ident: $coding:ident, $shown:ident $form:ident })?,
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
            /// The numbers, in the order of the table.
            pub const ALL: &'static [Detail] = &[$($(Detail {
                column: Column::$variant,
                coding: Coding::$coding,
                shown: Shown::$shown,
                form: Form::$form,
            },)?)*];

            /// Number of entries in `Details::ALL`.
            pub const COUNT: usize = Details::ALL.len();

            /// These values, in the order of the table.
            #[inline]
            pub fn of(values: [Option<u64>; Details::COUNT]) -> Details {
                let [$($($field,)?)*] = values;
                Details { $($($field,)?)* }
            }

            /// Passes each value with its index in the table to `show`, in that order.
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

/// Encoding of a number in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// A varint for each row: 0 if unknown, otherwise the number plus 1. The largest number is stored as one less than
    /// it was.
    PlusOne,
    /// Only if it differs from that of the task's previous row (format-spec.md, section 5.6).
    Changes,
}

/// When dump text shows a number, under its column's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Before the chain; `-` if unknown.
    Always,
    /// At the end of the line, if known.
    IfKnown,
}

/// Form of a number in dump text.
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
    /// Its encoding in the column.
    pub coding: Coding,
    /// Whether dump text shows it even if it is unknown.
    pub shown: Shown,
    /// Its form in dump text.
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
    /// How each node of the stack table follows the previous one.
    NodeStep = 5 "node-step" Critical,
    /// Which known successor of its caller a node is.
    NodePlace = 6 "node-place" Critical,
    /// Addresses of new successors.
    NodeAddress = 7 "node-address" Critical,
    /// Kinds of new successors.
    NodeKind = 8 "node-kind" Critical,
    /// Number of the row's chain in the table.
    Chain = 9 "chain" Critical,
    /// Reason why the walk stopped.
    Stop = 10 "stop" Critical,
    /// Freeze or sampling time.
    Cost = 11 "cost" Critical {
        /// How long the guest was paused, or the sampler worked, for this sample, in nanoseconds.
        cost_ns: PlusOne, Always Decimal
    },
    /// Delay of the sample.
    Late = 12 "late" Critical {
        /// Delay after its deadline in nanoseconds; `None` if there was no deadline.
        late_ns: PlusOne, Always Decimal
    },
    /// Table of register masks.
    RegisterMasks = 13 "register-masks" Critical,
    /// Index into the table of register masks.
    RegisterMask = 14 "register-mask" Critical,
    /// Registers that repeat a value from another column of the row.
    RegisterEqual = 15 "register-equal" Critical,
    /// Address of the raw stack bytes.
    StackAddress = 16 "stack-address" Critical,
    /// Length of the raw stack bytes.
    StackLength = 17 "stack-length" Critical,
    /// Which words of the task's stack memory stay the same and which change.
    StackRuns = 18 "stack-runs" Critical,
    /// The differences of changed words.
    StackWords = 19 "stack-words" Critical,
    /// Stack bytes where nothing was known.
    StackBytes = 20 "stack-bytes" Critical,
    /// Time off the processor that a row stands for.
    OffCpu = 21 "off-cpu" Critical,
    /// Number of further waits in that time, beyond the first.
    Waits = 22 "waits" Critical,
    /// The guest's address space in use.
    Root = 23 "root" Optional {
        /// The root of the guest's page tables (format-spec.md, section 5.7); `None` if unknown.
        root: Changes, IfKnown Hexadecimal
    },
    /// The machine's processor.
    Cpu = 24 "cpu" Optional {
        /// The number of the machine's processor on which the vCPU or thread was, or was last; `None` if unknown.
        cpu: Changes, IfKnown Decimal
    },
    /// The time that the row stands for.
    Period = 25 "period" Optional {
        /// The period of sampling at this row, in nanoseconds, if periods differ within the recording: the time that
        /// the row stands for; `None` if each row stands for a period of the recording's rate.
        period_ns: Changes, IfKnown Decimal
    },
    /// The guest's instruction, of a thread that ran a guest.
    GuestIp = 26 "guest-ip" Optional {
        /// The instruction of the guest that the thread, a vCPU of a monitor, ran under KVM; `None` if it ran none. The
        /// chain is the monitor's.
        guest_ip: PlusOne, IfKnown Hexadecimal
    },
}
