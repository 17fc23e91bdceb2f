//! Samples guests and processes into `.uprof` recordings.
//!
//! The way of a sample: a [`source`] freezes a guest (or is handed samples by the kernel), the
//! [`sampler`] copies what is needed into a slot, the [`ring`] hands it over, the [`encoder`]
//! thread writes it. The sampler's loop never allocates, locks, formats or touches a file; what it
//! can't keep up with is dropped and counted.
//!
//! `unsafe` lives under `sys/` only.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

pub mod codes;
pub mod control;
pub mod doctor;
pub mod elf;
pub mod encoder;
pub mod gdb;
pub mod guest;
pub mod histogram;
pub mod lockdown;
pub mod lookout;
pub mod open;
pub mod output;
pub mod pace;
mod pids;
pub mod plan;
pub mod process;
pub mod qemu;
pub mod ring;
pub mod sampler;
pub mod session;
pub mod slot;
pub mod source;
#[allow(unsafe_code)]
pub(crate) mod sys;
pub mod walk;
pub mod window;
pub mod xen;

pub use control::{Ending, Progress};
pub use guest::linux::KernelTold;
pub use plan::Plan;
pub use session::{Summary, record};
pub use source::{Facts, Life, Pushed, Source, SourceError, StopWorld};
#[cfg(feature = "simulated-time")]
pub use sys::clock::simulated;
pub use sys::clock::{monotonic_ns, realtime_ns};
pub use sys::signal;
