//! The stack of a sample: registers, stack bytes and chains go in; frames with names come out, by the images at hand
//! and the tables that travel with the recording.

pub mod embedded;
mod runtimes;
pub mod symbolizer;
pub mod code;
pub(crate) mod unwinders;
