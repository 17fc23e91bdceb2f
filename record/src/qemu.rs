//! QEMU guests, found by the machine's monitor.
//!
//! [`qmp`] talks to the monitor, [`machine`] asks it for architecture, memory and stub, `ram` reads
//! guest memory where it is a shared file, [`source`] puts them together: registers come from the gdb
//! stub (see [`crate::gdb`]), stacks from the file. `advice` says what would make sampling cheaper.

pub mod qmp;
pub mod machine;
mod ram;
pub mod source;
mod advice;
pub mod doctor;
