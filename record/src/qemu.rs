//! QEMU guests, opened by their monitor.
//!
//! [`qmp`] talks to the monitor, [`machine`] asks it for architecture, memory and stub, `ram` reads guest memory if
//! it is a shared file, [`source`] combines them: registers come from the gdb stub (see [`crate::gdb`]), stacks from
//! the file. `advice` lists what would make sampling cheaper.

pub mod qmp;
pub mod machine;
mod ram;
pub mod source;
mod advice;
pub mod doctor;
