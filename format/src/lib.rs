//! Reads and writes `.uprof` recordings: compressed, timestamped per-vCPU stack samples.
//!
//! The byte layout is stated only in `format-spec.md` at the top of the repository; this package follows it and cites
//! its sections. It makes no system call beyond [`std::io::Read`] and [`std::io::Write`], so recordings can be handled
//! on any machine.
//!
//! - To write: [`Writer`].
//! - To read a whole file in memory: [`SliceReader`]; from a pipe: [`StreamReader`]. Both yield
//!   [`Item`]s: sound [`Block`]s and the [`Damage`] between them.
//! - To look inside a block: [`Block::payload`], [`SampleBlock`].
//!
//! ```
//! use uprof::cold::{End, EndReason, Metadata};
//! use uprof::{Frame, Item, Payload, Sample, SliceReader, Task, Writer};
//!
//! // Two samples of a thread; whatever is `Write` takes them.
//! let thread = Task { space: 300, vcpu: 301 };
//! let mut writer = Writer::create(Vec::new(), [7; 16], &Metadata::default(), 1_000)?;
//! for time_ns in [2_000, 3_000] {
//!     writer.sample(&Sample::bare(time_ns, thread, &[Frame::exact(0x40_1136)]))?;
//! }
//! let bytes = writer.finish(&End {
//!     time_ns: 4_000,
//!     reason: EndReason::Stopped,
//!     message: String::new(),
//!     totals: Vec::new(),
//! })?;
//!
//! let mut samples = 0;
//! for item in SliceReader::open(&bytes)?.blocks() {
//!     match item {
//!         Item::Block(block) => {
//!             if let Payload::Samples(block) = block.payload()? {
//!                 samples += block.len();
//!             }
//!         }
//!         Item::Damage(damage) => eprintln!("{damage}"), // what follows is read all the same
//!     }
//! }
//! assert_eq!(samples, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/count.rs` reads a recording of any length, from a file or a pipe.
//!
//! A folder corresponds to a section of the specification: `samples/` is 5, `cold/` is 6, `image/` is 7, `spans/` is
//! 15. Headers and tags (2 to 4) are in `layout`, `block` and `writer`, damage and recovery (9) in `scanner`,
//! `damage` and `recover`. Two parts are not of the format: facts about processors ([`cpu`]), and decisions on which
//! recorder and report must agree (`conventions/`).
//!
//! Decoding never panics and never allocates more than the limits in [`layout`] allow, whatever the bytes are.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod tags;
pub mod layout;
mod error;
mod varint;
mod word_hash;
mod directory;
mod samples;
pub mod cpu;
mod spans;
pub mod cold;
pub mod image;
mod conventions;
mod block;
mod writer;
mod damage;
mod scanner;
mod slice;
mod stream;
mod recover;

pub use block::{Block, Payload};
pub use conventions::control_characters::is_control_character;
pub use conventions::due::Due;
pub use conventions::durations::Durations;
pub use conventions::{alias, due, log_commands, machine, placement, words};
pub use damage::{Damage, DamageKind};
pub use error::{BlockPlace, DecodeError, Fault, OpenError};
pub use image::{ImageIdentity, ImagePart, Symbol};
pub use layout::{BlockHeader, BlockType, Codec, Preamble};
pub use recover::{Joined, Recovered, recover};
pub use samples::{
    Arch, Coding, Column, Detail, Details, Form, Found, Frame, FrameKind, Node, RawStack,
    Registers, Row, Rows, Sample, SampleBlock, Shown, State, Stop, Task, Wait,
};
pub use scanner::Item;
pub use slice::{Blocks, SliceReader};
pub use spans::{Span, SpanBlock, SpanColumn, SpanKind, SpanRow, SpanRows};
pub use stream::StreamReader;
pub use word_hash::{WordHasher, WordMap};
pub use writer::Writer;
