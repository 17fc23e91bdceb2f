//! The stack of a sample. Input: registers, stack bytes and chains. Output: frames with names, by local images and
//! embedded tables.

pub(crate) mod embedded;
pub(crate) mod runtimes;
mod tables;
pub(crate) mod symbolizer;
pub(crate) mod code;
pub(crate) mod unwinders;
pub(crate) mod idle;

pub use code::Codes;
pub use embedded::{Embedded, LineTable};
pub use tables::{KEPT_IMAGE_BYTES_MAX, KEPT_MODULES_MAX, Tables};
