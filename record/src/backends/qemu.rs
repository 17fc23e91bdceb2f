//! QEMU guests, opened by their monitor.
//!
//! [`qmp`] talks to the monitor, and `virsh` to one that libvirt is connected to. [`machine`] asks it for architecture,
//! memory and stub, and `ram` reads guest memory if it is a shared file. [`source`] combines them: registers come from
//! the gdb stub (see [`crate::backends::gdb`]), stacks from the file. `advice` lists options that would make sampling
//! cheaper.

mod virsh;
pub mod qmp;
pub mod machine;
mod ram;
pub mod source;
pub mod boot;
mod advice;
pub mod doctor;

pub use qmp::Monitor;
pub use virsh::Domain;
