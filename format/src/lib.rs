//! Reads and writes `.uprof` recordings: compressed, timestamped per-vCPU stack samples.
//!
//! The byte layout is stated in `format-spec.md` at the top of the repository and nowhere else; this
//! package follows it and cites its sections. It makes no system call beyond [`std::io::Read`] and
//! [`std::io::Write`], so that recordings can be handled on any machine.
//!
//! - To write: [`Writer`].
//! - To read a whole file in memory: [`Recording`]; from a pipe: [`StreamReader`]. Both yield
//!   [`Item`]s: sound [`Block`]s and the [`Damage`] between them.
//! - To look inside a block: [`Block::payload`], [`SampleBlock`].
//!
//! Decoding never panics and never allocates more than the limits in [`layout`] allow, whatever the
//! bytes are.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod varint;
mod tags;
mod details;
pub mod layout;
mod error;
mod sample;
mod word_hash;
mod successors;
mod child_index;
mod trie;
mod registers;
mod stack_memory;
mod raw_stack;
mod columns;
mod detail_columns;
mod samples;
pub mod cold;
pub mod image;
pub mod alias;
pub mod linux;
mod steering;
mod compress;
mod writer;
mod block;
mod damage;
pub mod due;
mod scanner;
mod recording;
mod stream;
mod rows;
mod recover;

pub use block::{Block, Payload};
pub use damage::{Damage, DamageKind};
pub use details::{Detail, Details, Form, Shown, Told};
pub use due::Due;
pub use error::{BlockPlace, DecodeError, Fault, OpenError};
pub use image::{ImageIdentity, ImagePart, Symbol};
pub use layout::{BlockHeader, BlockType, Codec, Preamble};
pub use recording::{Blocks, Recording};
pub use recover::{Recovered, recover};
pub use rows::{Row, Rows, SampleBlock};
pub use sample::{
    Arch, Found, Frame, FrameKind, RawStack, Registers, Sample, State, Stop, Task, Wait,
    register_name,
};
pub use scanner::Item;
pub use steering::is_steering;
pub use stream::StreamReader;
pub use trie::Node;
pub use writer::Writer;
