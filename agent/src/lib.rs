//! A sampling profiler inside a guest, to which a recorder attaches over any byte stream.
//!
//! The guest provides memory once and calls two functions: [`Agent::sample`] from its timer interrupt, with the
//! interrupted registers, and [`Session::serve`] from any thread that may read and write a byte stream. Until a client
//! attaches, nothing is sampled, and an interrupt costs one load. Sampling ends when the client goes away.
//!
//! No allocation, no dependency, no floating point. docs/agent-protocol.md describes the protocol, and its sections are
//! cited here. This crate shares no code with the recorder.
//!
//! ```
//! use core::sync::atomic::AtomicU64;
//! use uniprof_agent::{Agent, Guest, Io, Memory, Registers, Session, Step, Stream};
//!
//! /// No stack can be read, so that samples have an instruction pointer alone.
//! struct NoStacks;
//!
//! impl Memory for NoStacks {
//!     fn word(&self, _address: u64) -> Option<u64> {
//!         None
//!     }
//! }
//!
//! /// A stream without a client.
//! struct Quiet;
//!
//! impl Stream for Quiet {
//!     fn read(&mut self, _into: &mut [u8]) -> Io {
//!         Ok(0)
//!     }
//!     fn write(&mut self, bytes: &[u8]) -> Io {
//!         Ok(bytes.len())
//!     }
//! }
//!
//! static MEMORY: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
//! let guest = Guest {
//!     name: "example",
//!     vcpus: 1,
//!     clock: uniprof_agent::cycles,
//!     clock_hz: 1_000_000_000,
//!     ..Guest::default()
//! };
//! let agent = Agent::new(&MEMORY, guest, NoStacks).expect("memory for one vCPU");
//! // In the timer interrupt:
//! let taken = agent.sample(0, &Registers { ip: 0x1000, ..Registers::default() });
//! assert!(!taken, "nobody has attached");
//! // In a thread that may read and write:
//! let mut session = Session::new();
//! assert_eq!(session.serve(&agent, &mut Quiet), Step::Idle);
//! ```
//!
//! `unsafe` is only in `machine.rs`, which reads stacks and the processor's counter, and in `c.rs`, whose functions
//! guests in C call.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_op_in_unsafe_fn, unsafe_code)]

mod walk;
#[allow(unsafe_code)]
mod machine;
mod checksum;
mod message;
mod ring;
mod agent;
mod session;
#[cfg(feature = "c")]
#[allow(unsafe_code)]
pub mod c;

pub use agent::{Agent, Guest, MOST_FRAMES, MOST_STACK_BYTES, MOST_VCPUS, Refused, Registers};
pub use machine::{Stack, Stacks, cycles};
pub use session::{Gone, Io, Session, Step, Stream};
pub use walk::Memory;
