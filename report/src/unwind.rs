//! Offline unwinding. Input: one sample's registers and stack bytes, and the images' rule tables. Output: frames,
//! each with how it was found, and why the stack ended. Pure: reads no file, no guest and no clock, and allocates
//! only for the frames.
//!
//! [`Stop::Complete`](uprof::Stop) is returned only if call frame information or a zero says that there is no caller.

mod registers;
mod memory;
mod frameless;
mod expression;
mod signal;
mod linkage;
mod edges;
mod table;
mod rows;
mod compile;
mod functions;
mod rules;
mod stored;
mod modules;
mod cpu;
mod x86_64;
mod aarch64;
mod returns;
mod cache;
mod step;
mod unwinder;
pub(crate) mod splice;

pub use crate::images::call_frames::Skipped;
pub use cache::Cache;
pub(crate) use frameless::{CalledOn, Frameless, called_on, enclosing};
pub use memory::{Memory, NoMemory, Stack};
pub use modules::Module;
pub(crate) use modules::PIECE_MODULES;
pub(crate) use returns::{Landing, returns};
pub use rules::UnwindRules;
pub use table::RuleTable;
pub(crate) use unwinder::RecordRule;
pub use unwinder::{End, Options, Unwinder};
