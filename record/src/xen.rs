//! Xen domains, seen from dom0.
//!
//! The path of a sample: `domain` (one multicall freezes the guest and fetches every vCPU) → `vcpu` (registers and
//! address space) → `page_tables` over `memory` (mapped frames), or `translations` of before → stack bytes. `rescue`
//! resumes a domain whose recorder was killed; `target` and `libxl` find a domain by name and its kernel image.

pub mod libxl;
mod vcpu;
mod domain;
mod target;
mod translations;
mod memory;
mod follow;
mod rescue;
mod others_pause;
mod source;
pub mod several;
pub mod doctor;

pub use rescue::paused_guest;
pub use source::open;
