//! Everything after recording: from recorded registers, stack bytes and instruction pointers to frames, names, a
//! stack tree and its views. Makes no hypercall and needs no guest; the same input gives the same bytes.
//!
//! ```
//! use uniprof_report::images::Library;
//! use uniprof_report::profile::{Options, functions, gather};
//! use uniprof_report::recording::Recording;
//!
//! let recording = Recording::open("../corpus/pack-stack.uprof".as_ref())?;
//! // It has the names that it needs; for other recordings, add images to the library.
//! let library = Library::default();
//! let profile = gather(&[&recording], &library, &Options::default(), &|_done, _of| {}, None);
//! for row in functions::rows(&profile).iter().take(3) {
//!     println!("{:6} {}", row.own, profile.labels.name(row.label));
//! }
//! # assert!(functions::rows(&profile).iter().any(|row| profile.labels.name(row.label) == "pack_block"));
//! # Ok::<(), uniprof_report::recording::RecordingError>(())
//! ```
//!
//! `examples/stacks.rs` unwinds and names the stack of each sample.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod mapped;
pub mod work;

pub mod recording;
pub mod images;
pub mod unwind;
pub mod text;
pub mod stacks;
pub mod profile;
pub mod export;
pub mod source_files;
pub mod views;
pub mod bundle;
pub mod import;
pub mod diff;
pub mod push;
pub mod trend;

pub use mapped::{MapError, Mapped, map};
