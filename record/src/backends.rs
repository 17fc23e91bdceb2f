//! The kinds of guests.
//!
//! Input: the name of a guest, as the command line has it. Output: an open [`Source`](crate::Source). No backend uses
//! another, except that QEMU uses the gdb stub. Code that several need is in [`guest`](crate::guest), and nothing
//! outside this module depends on any of them.

pub mod process;
pub mod xen;
pub mod gdb;
pub mod qemu;
pub mod kvm;
pub mod agent;
