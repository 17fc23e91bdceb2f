//! Sample blocks (format-spec.md, section 5). A recorder has a [`Sample`], a reader gets a [`Row`]. Between them is a
//! block, which `writer` gathers and `reader` decodes. Each column or table has a module for both:
//!
//! - 5.1: `details` (the table of columns), `numbers`, `task_table`, `detail_columns`, and `crate::directory`
//! - 5.2: `trie`, with `successors` and `child_index`
//! - 5.3: `registers`
//! - 5.4: `raw_stack`, with `stack_memory`

mod details;
mod sample;
mod successors;
mod child_index;
mod trie;
mod numbers;
mod task_table;
mod registers;
mod stack_memory;
mod raw_stack;
mod detail_columns;
mod writer;
mod reader;

pub(crate) use detail_columns::{Changes, DetailColumn};
pub use details::{Coding, Column, Detail, Details, Form, Shown};
pub(crate) use numbers::{NumberBuilder, NumberReader};
pub use reader::{Row, Rows, SampleBlock};
pub use sample::{
    Arch, Found, Frame, FrameKind, RawStack, Registers, Sample, State, Stop, Task, Wait,
};
pub(crate) use task_table::TaskTable;
pub use trie::Node;
pub(crate) use writer::BlockBuilder;
