//! Xen domains, seen from dom0.
//!
//! The way of a sample: `domain` (one multicall freezes the guest and fetches every vCPU) →
//! `vcpu` (registers and address space) → `page_tables` over `memory` (mapped frames) → stack bytes.
//! `rescue` says how the guardian resumes a domain should the recorder be killed; `xenstore` and `libxl`
//! turn a name into a domain and a domain into its kernel image.

pub mod libxl;
pub mod xenstore;
mod vcpu;
mod domain;
mod target;
mod memory;
mod follow;
mod rescue;
mod source;
pub mod doctor;

pub use rescue::paused_guest;
pub use source::open;
