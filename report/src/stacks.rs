//! The stack of a sample: registers, stack bytes and chains go in; frames with names come out, by the images at hand
//! and the tables that travel with the recording.

pub(crate) mod embedded;
mod runtimes;
pub(crate) mod symbolizer;
pub(crate) mod code;
pub(crate) mod unwinders;

pub use code::Codes;
pub use embedded::{Embedded, LineTable};
