//! Samples guests and processes into `.uprof` recordings.
//!
//! The way of a sample: a [`source`] freezes a guest (or is handed samples by the kernel), the `sampler` copies what
//! is needed into a slot, the [`ring`] hands it over, the `encoder` thread writes it. The sampler's loop never
//! allocates, locks, formats or touches a file; what it can't keep up with is dropped and counted.
//!
//! A source of one's own implements [`StopWorld`]:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use uniprof_record::source::{Hot, Vcpu, Vcpus};
//! use uniprof_record::{Facts, Life, Plan, Source, SourceError, StopWorld, record, ring::Sink};
//! use uprof::cold::Target;
//! use uprof::{Arch, Details, Registers, State, Task};
//!
//! /// A guest of one vCPU that never gets anywhere.
//! struct Stuck(Facts);
//!
//! impl StopWorld for Stuck {
//!     fn facts(&self) -> &Facts {
//!         &self.0
//!     }
//!     fn freeze(&mut self, _now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
//!         let mut registers = Registers::default();
//!         registers.set(Arch::X86_64.special_registers().0, 0x40_1136);
//!         vcpus.push(Vcpu {
//!             task: Task { space: 0, vcpu: 0 },
//!             state: State::Running,
//!             registers,
//!             handle: 0,
//!             details: Details::default(),
//!         });
//!         Ok(())
//!     }
//!     fn read(&mut self, _vcpu: &Vcpu, _address: u64, _into: &mut [u8]) -> usize {
//!         0 // it has no memory
//!     }
//!     fn resume(&mut self) -> Result<(), SourceError> {
//!         Ok(())
//!     }
//!     fn between(&mut self, _sink: &mut Sink) -> Result<Life, SourceError> {
//!         Ok(Life::Alive)
//!     }
//! }
//!
//! let guest = Stuck(Facts::new(Target { vcpus: 1, ..Target::default() }));
//! let source = Source::of(Hot::StopWorld(Box::new(guest)));
//! let plan = Plan { duration: Some(Duration::from_millis(300)), ..Plan::default() };
//! let mut recording = Vec::new();
//! let summary = record(source, &mut recording, &plan, Arc::default())?;
//! assert!(summary.samples > 0);
//! # Ok::<(), SourceError>(())
//! ```
//!
//! `examples/own_source.rs` does so for a machine that moves, with a stack to follow.
//!
//! `unsafe` lives under `sys/` only.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub(crate) mod sys;
mod addresses;
pub mod turns;
pub mod slot;
pub mod ring;
mod open;
pub mod elf;
pub mod source;
mod codes;
mod held;
mod pids;
pub mod plan;
mod control;
pub mod call_source;
mod window;
pub mod walk;
pub mod doctor;
pub mod guest;
pub mod process;
pub mod xen;
pub mod gdb;
pub mod qemu;
pub mod kvm;
pub mod agent;
mod pace;
mod sampler;
mod shared_observer;
pub mod lockdown;
mod encoder;
pub mod output;
mod session;
mod call_session;

pub use call_session::{CallSummary, record_calls};
pub use control::{Counters, Ending};
pub use guest::linux::KernelFacts;
pub use plan::Plan;
pub use session::{Summary, record};
pub use source::{Facts, Life, Pushed, Source, SourceError, StopWorld};
#[cfg(feature = "simulated-time")]
pub use sys::clock::simulated;
pub use sys::clock::{monotonic_ns, realtime_ns};
pub use sys::signal;
