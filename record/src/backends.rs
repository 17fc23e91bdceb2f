//! The kinds of guests.
//!
//! What enters: the name of a guest, as the command line has it. What leaves: an open [`Source`](crate::Source).
//! None knows another, except QEMU its gdb stub; what several need is in [`guest`](crate::guest), and nothing outside
//! this room knows any of them.

pub mod process;
pub mod xen;
pub mod gdb;
pub mod qemu;
pub mod kvm;
pub mod agent;
