//! The memory of a guest's kernel: where its image is, and the bytes in it. Input: a guest, which runs meanwhile.
//!
//! A kernel for x86-64 is within one known GiB. A kernel for AArch64 may be nearly anywhere in its half, but has
//! its own page tables in its image, behind its read-only data.

use crate::source::{Frozen, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::monotonic_ns;
use uniprof_linux::{Kernel, KernelMemory, find, find_bytes, likely};
use uprof::Arch;
use uprof::cpu::is_kernel_address;

/// The GiB that holds a kernel for x86-64, at a multiple of 2 MiB (Documentation/arch/x86/x86_64/mm.rst of Linux).
pub const IMAGES: u64 = 0xffff_ffff_8000_0000;
/// Its length.
pub const IMAGES_BYTES: u64 = 1 << 30;
const SLOT_BYTES: u64 = 2 << 20;
/// Parts of an AArch64 kernel's image are mapped separately, at multiples of this (SEGMENT_ALIGN of Linux).
const STEP_BYTES: u64 = 64 << 10;
/// Bytes searched for symbols. Code and read-only data come first in an image.
const MOST_SEARCHED_BYTES: u64 = 64 << 20;
/// The first search begins this far before a possible table of symbol addresses, which may follow the names.
const BEFORE_TABLE: u64 = 256 << 10;
const MOST_LIKELY_BYTES: u64 = 4 << 20;
/// Most bytes read from a guest, and most time spent on it.
pub const MOST_READ_BYTES: u64 = 128 << 20;
pub const MOST_TIME_NS: u64 = 10_000_000_000;
/// Bytes searched for the version text. It is behind the code, at the beginning of the read-only data.
pub const MOST_BANNER_BYTES: u64 = 32 << 20;
const BANNER_TIME_NS: u64 = 1_000_000_000;
/// How often page tables may disappear while they are used.
const MOST_ROOTS: u32 = 100;

/// A guest's kernel memory, read as one of its vCPUs sees it.
pub struct GuestKernel<'a> {
    /// Its instruction set.
    pub arch: Arch,
    source: &'a mut dyn StopWorld,
    vcpus: Vcpus,
    vcpu: Option<Vcpu>,
    /// An address that is mapped as long as the page tables exist.
    anchor: Option<u64>,
    roots: u32,
    /// Bytes read so far.
    pub read_bytes: u64,
    end_ns: u64,
    /// The guest's failure. The guest is not accessed after it.
    pub failed: Option<SourceError>,
}

impl GuestKernel<'_> {
    /// The kernel memory of the guest of `source`, which is read from `start_ns` on.
    pub fn of(source: &mut dyn StopWorld, start_ns: u64) -> GuestKernel<'_> {
        GuestKernel {
            arch: source.facts().target.arch,
            source,
            vcpu: None,
            vcpus: Vcpus::new(),
            anchor: None,
            roots: 0,
            read_bytes: 0,
            end_ns: start_ns + MOST_TIME_NS,
            failed: None,
        }
    }

    /// Whether to stop reading: it was too much, took too long or failed.
    pub fn is_over(&self) -> bool {
        self.failed.is_some() || self.read_bytes > MOST_READ_BYTES || monotonic_ns() > self.end_ns
    }

    /// Freezes the guest for a moment and selects a vCPU, whose page tables are then used to read memory. A vCPU in the
    /// kernel is preferred. Returns whether there is a vCPU.
    fn choose(&mut self) -> bool {
        self.vcpus.clear();
        if self.failed.is_some() {
            return false;
        }
        let frozen = Frozen::freeze(&mut *self.source, &mut self.vcpus);
        if let Err(error) = frozen.and_then(Frozen::resume) {
            self.failed = Some(error);
            return false;
        }
        let alive = self.vcpus.all().iter();
        let alive = alive.filter(|vcpu| vcpu.registers.mask() != 0);
        let in_kernel = alive.clone().find(|vcpu| is_in_kernel(vcpu, self.arch));
        self.vcpu = in_kernel.or(alive.clone().next()).copied();
        self.vcpu.is_some()
    }

    /// Reads memory by the page tables of the selected vCPU. If they are gone because their process ended, selects
    /// another one.
    fn read_piece(&mut self, address: u64, into: &mut [u8]) -> usize {
        loop {
            let Some(vcpu) = self.vcpu else {
                return 0;
            };
            let got = self.source.read(&vcpu, address, into);
            self.read_bytes += got as u64;
            if got == into.len() {
                return got;
            }
            let is_there = |anchor| self.source.read(&vcpu, anchor, &mut [0; 8]) == 8;
            if self.anchor.is_none_or(is_there) || self.roots == MOST_ROOTS || self.is_over() {
                return got;
            }
            self.roots += 1;
            if !self.choose() {
                return got;
            }
        }
    }

    /// The physical address of a kernel address.
    pub fn physical(&mut self, address: u64) -> Option<u64> {
        let vcpu = self.vcpu?;
        self.source.physical(&vcpu, address)
    }

    /// Whether the vCPU is in a process whose page tables may map only a part of the kernel.
    pub fn is_hidden(&self) -> bool {
        match self.arch {
            Arch::X86_64 => self.anchor.is_some() && !self.is_in_kernel(),
            // The mapped part has no tables in it.
            Arch::Aarch64 => self.anchor.is_none() && self.vcpu.as_ref().is_some_and(is_in_process),
        }
    }

    fn is_in_kernel(&self) -> bool {
        let vcpu = self.vcpu.as_ref();
        vcpu.is_some_and(|vcpu| is_in_kernel(vcpu, self.arch))
    }

    /// Whether a kernel's version text is in the memory that was searched last. A guest without one is not Linux.
    pub fn says_linux(&mut self) -> bool {
        let Some(start) = self.anchor else {
            return false;
        };
        self.read_bytes = 0;
        self.end_ns = monotonic_ns() + BANNER_TIME_NS;
        let range = start..start.saturating_add(MOST_BANNER_BYTES);
        find_bytes(self, range, b"Linux version ", &mut |_, _| true)
    }

    /// Attempts to find a kernel; with `only_in_kernel`, only if a vCPU is in it. Sets `why` to the reason why the last
    /// candidate was rejected.
    pub fn find_kernel(
        &mut self,
        only_in_kernel: bool,
        why: &mut Option<&'static str>,
    ) -> Option<Kernel> {
        let anchor = self.anchor.take();
        if !self.choose() {
            return None;
        }
        if only_in_kernel && !self.is_in_kernel() {
            self.anchor = anchor;
            return None;
        }
        let start = match self.arch {
            Arch::X86_64 => self.first_slot()?,
            Arch::Aarch64 => self.before_tables()?,
        };
        self.anchor = Some(start);
        let mut kernel = None;
        let mut take = |memory: &mut dyn KernelMemory, digits: u64| {
            let read = Kernel::read(memory, digits);
            *why = read.as_ref().err().copied().or(*why);
            kernel = read.ok();
            kernel.is_some()
        };
        let likely = likely(self, start, MOST_SEARCHED_BYTES);
        let mut likely = likely
            .iter()
            .map(|at| at.saturating_sub(BEFORE_TABLE).max(start));
        let is_found = likely.any(|at| find(self, at, MOST_LIKELY_BYTES, &mut take));
        if !is_found {
            find(self, start, MOST_SEARCHED_BYTES, &mut take);
        }
        kernel
    }

    /// The lowest mapped address at which a kernel may be.
    fn first_slot(&mut self) -> Option<u64> {
        let slots = (0..IMAGES_BYTES / SLOT_BYTES).map(|slot| IMAGES + slot * SLOT_BYTES);
        slots
            .into_iter()
            .find(|&slot| self.read(slot, &mut [0; 8]) == 8)
    }

    /// The lowest address from which memory is mapped without gaps up to the kernel's own page tables.
    fn before_tables(&mut self) -> Option<u64> {
        let vcpu = self.vcpu?;
        let tables = self.source.kernel_tables(&vcpu)? & !(STEP_BYTES - 1);
        let steps = (0..=MOST_SEARCHED_BYTES / STEP_BYTES).map(|step| tables - step * STEP_BYTES);
        let is_there = |at: &u64| self.source.physical(&vcpu, *at).is_some();
        steps.take_while(is_there).last()
    }
}

fn is_in_kernel(vcpu: &Vcpu, arch: Arch) -> bool {
    let ip = arch.special_registers().ip;
    vcpu.registers.get(ip).is_some_and(is_kernel_address)
}

/// Whether an AArch64 vCPU is at exception level 0, by its PSTATE.
fn is_in_process(vcpu: &Vcpu) -> bool {
    const PSTATE: u8 = 33;
    const LEVEL: u64 = 3 << 2;
    let state = vcpu.registers.get(PSTATE);
    state.is_some_and(|state| state & LEVEL == 0)
}

impl KernelMemory for GuestKernel<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in into.chunks_mut(PIECE_BYTES) {
            if self.is_over() {
                break;
            }
            let got = self.read_piece(address.wrapping_add(done as u64), piece);
            done += got;
            if got < piece.len() {
                break;
            }
        }
        done
    }
}

/// Bytes read between checks of the clock.
const PIECE_BYTES: usize = 16 << 10;
