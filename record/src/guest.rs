//! Code that kinds of guests share: page tables, a kernel of their own, code that is compared
//! with an image, and the need to be resumed whatever happens to the recorder.
//!
//! `walk` follows the frame pointers of a copied stack; `addresses` remembers kernel addresses that need names; `held`
//! resumes threads in the best order.
//! `command` is a program that the recorder starts: a process to sample, or the monitor of a guest to come.
//! `endpoint` connects to a stub, a monitor or an agent; `xenstore` looks up Xen's domains; `page_tables` translates
//! addresses; `boots` distinguishes a guest's boots; `processor_time` compares samples with the time that was counted;
//! `timeline` says where each moment of a vCPU goes, `exits` sums its exits, and `pauses` knows the recorder's;
//! `linux` reads the kernel in a guest's memory, and `monitored` names code of guests whose monitors are recorded.
//! `call_sites` checks which frames are consistent in a guest that was not paused, and `leaf_caller` finds a caller
//! that they miss. `trial` and `checks` examine a guest before a recording (on AArch64 with `link_register`).
//! `guardian` resumes a guest whose recorder was killed. If both are killed, `mark` is left behind, and `left_paused`
//! finds the guest by it.

pub mod walk;
pub mod command;
pub(crate) mod addresses;
pub(crate) mod held;
pub mod endpoint;
pub mod xenstore;
pub mod page_tables;
pub(crate) mod boots;
pub(crate) mod processor_time;
pub(crate) mod pauses;
pub(crate) mod exits;
pub(crate) mod timeline;
pub mod linux;
pub(crate) mod monitored;
pub(crate) mod call_sites;
pub(crate) mod leaf_caller;
mod link_register;
mod trial;
pub(crate) mod checks;
pub(crate) mod mark;
pub(crate) mod guardian;
pub mod left_paused;

pub(crate) use trial::Trial;

/// Name of a vCPU in a recording of several successive guests.
pub(crate) fn vcpu_of(vcpu: u32, guest: &str) -> String {
    format!("vCPU {vcpu} of {guest}")
}
