//! The only place for `unsafe`: system interfaces, each wrapped so that its callers need none.

pub mod clock;
pub mod descriptors;
pub mod guardian_process;
pub mod perf;
pub mod privileges;
pub mod ptrace;
pub mod ring_buffer;
pub mod signal;
pub mod spawn;
pub mod xen;
