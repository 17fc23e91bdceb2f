//! Everything that can wait until a recording exists: from recorded registers, stack bytes and
//! instruction pointers to frames, names, a stack tree and its views. Makes no hypercall and needs
//! no guest; same input, same bytes out.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod mapped;
pub mod work;
mod words;
mod json_writer;
mod arena;

pub mod unit;
pub mod recording;
mod runtimes;
pub mod spaces;
pub mod tasks;
pub mod guest_spaces;
pub mod processes;
pub mod images;
pub mod unwind;
mod hypercalls;
pub mod symbols;
pub mod embedded;
pub mod library;
pub mod locate;
pub mod symbolizer;
pub mod code;
pub mod disassembly;
mod splice;
mod unwinders;
pub mod bundle;
pub mod filter;
pub mod labels;
pub mod tree;
pub mod recursion;
pub mod account;
pub mod profile;
pub mod advice;
pub mod gather;
pub mod survey;
mod calendar;
pub mod screen;
pub mod functions;
pub mod export;
pub mod views;
pub mod import;
pub mod diff;

pub use mapped::{MapError, Mapped, map};
