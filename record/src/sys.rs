//! The only module with `unsafe`: system interfaces, each wrapped so that its callers need none. It also holds code for
//! `/proc` and for opening files at others' paths, which several kinds of guests share.

pub mod clock;
pub mod signal;
pub mod privileges;
pub mod spawn;
pub mod ptrace;
pub mod open;
pub mod pids;
pub mod stat;
pub mod thread_times;
pub mod perf;
pub mod tracefs;
pub mod ring_buffer;
pub mod bell;
pub mod guardian_process;
pub mod xen;
