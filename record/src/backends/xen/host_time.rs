//! Where the wall time of a domain's vCPUs goes, from Xen's trace buffers.
//!
//! The bytes of each processor's buffer become `records`, those of all processors in order of time go through the
//! `account` of each vCPU, and the `observer` hands over its sums. `clock` converts Xen's time stamps, and
//! `buffers` are Xen's own, which one program reads at a time.
//!
//! Nothing here pauses the domain.

mod records;
mod clock;
mod account;
mod processors;
mod buffers;
mod observer;

pub use buffers::turn_off_if_abandoned;
pub use observer::{ObservedDomain, observe};
