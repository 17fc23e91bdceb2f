//! What guests have in common, as against processes, and none of their kinds owns: page tables, a kernel of their own,
//! code that is compared with an image, and the need to run again whatever becomes of the recorder.
//!
//! `page_tables` translate addresses; `linux` reads the kernel in a guest's memory; `call_sites` tells which frames of
//! a guest that ran on fit together; `looks` and `checks` say before a recording how it will go (of AArch64 by what
//! `link_register` tells). `guardian` resumes a
//! guest whose recorder was killed, `mark` is what is left where both were, and `left_paused` finds the guest by it.

pub mod page_tables;
pub mod linux;
pub(crate) mod call_sites;
mod link_register;
mod looks;
pub(crate) mod checks;
pub(crate) mod mark;
pub(crate) mod guardian;
pub mod left_paused;

pub(crate) use looks::Looks;

/// What a vCPU is called where guests follow on each other.
pub(crate) fn vcpu_of(vcpu: u32, guest: &str) -> String {
    format!("vCPU {vcpu} of {guest}")
}
