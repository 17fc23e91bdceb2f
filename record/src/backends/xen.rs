//! Xen domains, seen from dom0.
//!
//! A sample passes through `domain` (one multicall freezes the guest and fetches every vCPU), `vcpu` (registers and
//! address space), and `page_tables` over `memory` (mapped frames) or earlier `translations`, which yields stack bytes.
//! `rescue` resumes a domain whose recorder was killed; `target` and `libxl` find a domain by name and its kernel
//! image.

pub mod libxl;
mod vcpu;
mod domain;
mod target;
mod translations;
mod memory;
mod follow;
mod incarnation;
mod host_time;
mod rescue;
mod others_pause;
mod source;
pub mod boot;
pub mod several;
pub mod doctor;

/// Why samples miss processor time that Xen counts, and what helps. Xen's scheduler credit2 doesn't preempt a vCPU for
/// `ratelimit_us`, so work that is shorter is over before dom0 can look.
const MISSED_TIME: &str = "the guest works while the recorder waits for a processor: give dom0 processors of its own \
    (dom0_max_vcpus, dom0_vcpus_pin), or let it preempt the guest at once, `xl sched-credit2 -s -r 0`";

/// Whether this machine, or the domain that it is, has an interface of Xen's.
pub fn is_here() -> bool {
    let places = [
        "/dev/xen/privcmd",
        "/proc/xen/privcmd",
        "/dev/xen/xenbus",
        "/run/xenstored/socket",
    ];
    places
        .iter()
        .any(|place| std::path::Path::new(place).exists())
}

pub use rescue::paused_guest;
pub use source::open;
