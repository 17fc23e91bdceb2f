//! Samples guests and processes into `.uprof` recordings.
//!
//! A sample passes through these modules: a [`source`] freezes a guest (or receives samples from the kernel), the
//! thread of `sampling` copies what is needed into a slot, the [`ring`] carries the slot to the thread of `writing`,
//! and that encodes it. A `session` starts and joins both threads. The sampler's loop never allocates, locks, formats
//! or touches a file; samples that it has no slot for are dropped and counted. `backends` are the kinds of guests,
//! [`guest`] is code that they share, [`elf`] reads images, and `sys` holds the interfaces of the operating system and
//! of Xen.
//!
//! To write a source of your own, implement [`StopWorld`]:
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
//!         registers.set(Arch::X86_64.special_registers().ip, 0x40_1136);
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
//! `examples/own_source.rs` does the same for a machine that moves, with a stack to follow.
//!
//! `unsafe` is under `sys/` only.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub(crate) mod sys;
pub mod elf;
pub mod source;
pub mod guest;
mod sampling;
mod backends;
mod writing;
mod session;

pub use backends::process::plant;
pub use backends::{agent, gdb, kvm, process, qemu, xen};
pub use guest::linux::{KernelFacts, NotUnderstood};
pub use guest::walk;
pub use session::call_session::{CallSummary, record_calls};
pub use session::lockdown;
pub use session::sample_session::{Summary, record, record_window};
pub use session::save_socket;
pub use source::control::{Counters, Ending};
pub use source::plan::Plan;
pub use source::{Facts, Life, MonitorSource, Pushed, Source, SourceError, StopWorld};
pub use source::{call_source, doctor, plan, ring, schedule, slot};
#[cfg(feature = "simulated-time")]
pub use sys::clock::simulated;
pub use sys::clock::{monotonic_ns, realtime_ns};
pub use sys::signal;
pub use writing::{capture, flight_recorder, output, save_requests, trigger, window_folder};
