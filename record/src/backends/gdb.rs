//! Guests behind a gdb stub: QEMU, solo5-hvt, Firecracker, cloud-hypervisor, uhyve, gdbserver.
//!
//! Bytes come from an [endpoint](crate::guest::endpoint). They become packets in [`packet`], replies in [`client`],
//! registers by the stub's [`description`] and [`registers`], samples in `source`, and calls in [`call_tracer`].
//! [`release`] resumes the guest however the recorder ended. Protocol: "Debugging with GDB", appendix E, "GDB
//! Remote Serial Protocol".

pub mod packet;
pub mod error;
pub mod client;
pub mod description;
pub mod registers;
pub mod handshake;
pub mod stacks;
pub(crate) mod guest_ram;
pub(crate) mod vcpu_threads;
pub mod release;
pub(crate) mod guard;
mod source;
pub mod open;
pub mod call_tracer;
pub mod doctor;
