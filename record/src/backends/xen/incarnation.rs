//! A domain from its creation to its end. A guest that is followed has another one after each reboot, save or
//! migration.
//!
//! All state that belongs to one domain is here, so that none of it is left when its successor begins.

use super::domain::Domain;
use super::memory::GuestMemory;
use crate::elf::Image;
use crate::guest::page_tables::{Paging, Roots};
use crate::source::SourceError;
use crate::sys::clock::monotonic_ns;
use crate::sys::xen::domctl::DomainInfo;
use uprof::Registers;
use uprof::cold::Code;

/// How often vCPUs are asked about that are online and were not in long mode, in nanoseconds.
const ASK_EVERY_NS: u64 = 250_000_000;

/// The domain, and its state at the last check.
pub struct Incarnation {
    pub domain: Domain,
    pub memory: GuestMemory,
    /// The page tables of each vCPU at the last sample.
    pub pagings: Vec<Paging>,
    pub roots: Roots,
    /// Whether each vCPU is online.
    pub online: Vec<bool>,
    /// When vCPUs that were not in long mode were last asked about.
    asked_ns: u64,
    /// Whether each vCPU ran, or may have run, while its stack was read.
    pub moved: Vec<bool>,
    /// Whether someone else had paused it at the last sample.
    pub held_by_other: bool,
    /// Whether it had shut down when its state was last checked.
    pub is_shut_down: bool,
    /// Whether the last fetch failed.
    pub failed: bool,
    /// The reason of its shutdown, if it has shut down.
    pub shutdown: Option<u8>,
}

/// Calls made to sample a domain.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calls {
    pub hypercalls: u64,
    /// Calls that map memory.
    pub mappings: u64,
}

impl Incarnation {
    pub fn new(domain: Domain) -> Self {
        let vcpus = domain.vcpus as usize;
        Incarnation {
            memory: GuestMemory::new(domain.id),
            pagings: vec![Paging::Unsupported; vcpus],
            roots: Roots::default(),
            online: vec![false; vcpus],
            asked_ns: 0,
            moved: vec![false; vcpus],
            held_by_other: false,
            is_shut_down: false,
            failed: false,
            shutdown: None,
            domain,
        }
    }

    /// Reads memory by the page tables that `vcpu` had at the last sample.
    pub fn read(&mut self, vcpu: u64, address: u64, into: &mut [u8]) -> usize {
        self.pagings.get(vcpu as usize).map_or(0, |paging| {
            let privcmd = &self.domain.xen.privcmd;
            self.memory.read(privcmd, paging, address, into)
        })
    }

    /// Compares the image's text with the guest's memory, so that a wrong image is refused before anything is recorded.
    pub fn check(&mut self, image: &Image) -> Result<(), SourceError> {
        let mut code = Vec::new();
        let mut registers = Registers::default();
        let online = (0..self.domain.vcpus).find(|&vcpu| self.online[vcpu as usize]);
        let paging = online.and_then(|vcpu| self.domain.vcpu_place(vcpu, &mut registers));
        let Some(paging) = paging else {
            return Ok(());
        };
        for address in image.probes() {
            let mut bytes = vec![0; Code::PIECE_BYTES];
            let privcmd = &self.domain.xen.privcmd;
            if self.memory.read(privcmd, &paging, address, &mut bytes) == bytes.len() {
                code.push(Code {
                    time_ns: 0,
                    space: 0,
                    address,
                    bytes,
                });
            }
        }
        if image.is_there(&code, true) {
            return Ok(());
        }
        Err(SourceError(format!(
            "{} is not what domain {} runs: its text differs from the guest's memory; give the right \
             image with --elf, or record without and give it to report",
            image.path.display(),
            self.domain.id
        )))
    }

    /// Reads each stack once, without a pause, to map its pages.
    pub fn warm_up(&mut self) {
        let mut registers = Registers::default();
        let mut bytes = [0; 4096];
        for vcpu in 0..self.domain.vcpus {
            let Some(paging) = self.domain.vcpu_place(vcpu, &mut registers) else {
                continue;
            };
            let stack_pointer = self.domain.kind.arch.special_registers().sp;
            let address = registers.get(stack_pointer).unwrap_or(0);
            let privcmd = &self.domain.xen.privcmd;
            self.memory.read(privcmd, &paging, address, &mut bytes);
        }
    }

    /// Updates the modes, since a vCPU that came online may be in another mode than assumed. One that was not in long
    /// mode may have been about to switch to it, so it is asked about again if `again`.
    pub fn refresh_modes(&mut self, again: bool) {
        let now_ns = monotonic_ns();
        let is_due = again && now_ns - self.asked_ns >= ASK_EVERY_NS;
        if is_due {
            self.asked_ns = now_ns;
        }
        for vcpu in 0..self.domain.vcpus {
            let info = self.domain.vcpu_info(vcpu);
            let is_online = info.is_some_and(|info| info.online != 0);
            let was_online = std::mem::replace(&mut self.online[vcpu as usize], is_online);
            if is_online && (!was_online || is_due && !self.domain.is_long(vcpu)) {
                self.domain.refresh_mode(vcpu);
            }
        }
    }

    pub fn remember_shutdown(&mut self, info: Option<DomainInfo>) {
        if let Some(info) = info.filter(|info| !info.is_dying()) {
            self.shutdown = info.is_shut_down().then(|| info.shutdown_reason());
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> Calls {
        Calls {
            hypercalls: self.domain.xen.hypercalls,
            mappings: self.memory.map_calls,
        }
    }

    /// The error of a call to a domain that no longer exists.
    pub fn gone(&self) -> SourceError {
        SourceError(format!("domain {} is gone", self.domain.id))
    }
}
