//! `xen_domctl`: the structures of the operations used here (domctl.h).
//!
//! Their payloads are the same from Xen 4.7 on; only the interface version differs.

use uprof::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `XEN_DOMCTL_pausedomain`.
pub(super) const PAUSE: u32 = 3;
/// `XEN_DOMCTL_unpausedomain`.
pub(super) const UNPAUSE: u32 = 4;
/// `XEN_DOMCTL_getdomaininfo`.
pub(super) const GET_DOMAIN_INFO: u32 = 5;
/// `XEN_DOMCTL_getvcpucontext`.
pub(super) const GET_VCPU_CONTEXT: u32 = 13;
/// `XEN_DOMCTL_getvcpuinfo`.
pub(super) const GET_VCPU_INFO: u32 = 14;
/// `XEN_DOMCTL_get_address_size`.
pub(super) const GET_ADDRESS_SIZE: u32 = 36;
/// `XEN_DOMCTL_gethvmcontext_partial`.
pub(super) const GET_HVM_CONTEXT_PARTIAL: u32 = 55;

/// Interface versions known by name: Xen 4.7 to 4.22. Others are tried too.
pub const KNOWN_VERSIONS: std::ops::RangeInclusive<u32> = 0x0b..=0x18;
/// The interface version of Xen 4.`minor`, if it is known.
pub fn version_of_xen(minor: u32) -> Option<u32> {
    const SINCE_4_7: [u32; 16] = [
        0x0b, 0x0c, 0x0d, 0x0f, 0x10, 0x11, 0x12, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x17, 0x17,
        0x18,
    ];
    SINCE_4_7.get(minor.checked_sub(7)? as usize).copied()
}

/// The newest version that is tried.
pub const LAST_VERSION_TRIED: u32 = 0x40;

/// `struct xen_domctl`.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Domctl {
    command: u32,
    /// Must equal the version that Xen was built with.
    interface_version: u32,
    domain: u16,
    pad: [u16; 3],
    /// The operation's structure.
    pub(super) payload: [u8; 128],
}
const _: () = assert!(size_of::<Domctl>() == 144);

impl Domctl {
    /// An operation without arguments.
    pub(super) fn new(command: u32, interface_version: u32, domain: u16) -> Self {
        Domctl {
            command,
            interface_version,
            domain,
            pad: [0; 3],
            payload: [0; 128],
        }
    }

    /// The same with an argument structure.
    pub(super) fn with<T: IntoBytes + Immutable>(mut self, argument: &T) -> Self {
        let bytes = argument.as_bytes();
        self.payload[..bytes.len()].copy_from_slice(bytes);
        self
    }
}

/// `struct xen_domctl_getdomaininfo`, up to what we read.
#[derive(Debug, Clone, Copy, FromBytes, Immutable)]
#[repr(C)]
pub struct DomainInfo {
    /// The domain described: the next one if there is none with the requested number.
    pub domain: u16,
    pad: u16,
    /// `XEN_DOMINF_*`.
    pub flags: u32,
    /// Pages that it has.
    pub total_pages: u64,
    more: [u64; 5],
    /// Nanoseconds of processor time, all vCPUs together.
    pub cpu_time_ns: u64,
    /// vCPUs online.
    pub online_vcpus: u32,
    /// Highest number of a vCPU, or all ones.
    pub max_vcpu_id: u32,
}
const _: () = assert!(std::mem::offset_of!(DomainInfo, flags) == 20 - 16);
const _: () = assert!(std::mem::offset_of!(DomainInfo, online_vcpus) == 80 - 16);

impl DomainInfo {
    /// It is being destroyed.
    pub fn is_dying(&self) -> bool {
        self.flags & 1 != 0
    }

    /// HVM or PVH: its page tables hold guest frames.
    pub fn is_hvm(&self) -> bool {
        self.flags & 1 << 1 != 0
    }

    /// It has shut down, for the reason of [`DomainInfo::shutdown_reason`].
    pub fn is_shut_down(&self) -> bool {
        self.flags & 1 << 2 != 0
    }

    /// Someone in dom0 has paused it.
    pub fn is_paused(&self) -> bool {
        self.flags & 1 << 3 != 0
    }

    /// `SHUTDOWN_*` of sched.h.
    pub fn shutdown_reason(&self) -> u8 {
        (self.flags >> 16) as u8
    }
}

/// `struct xen_domctl_getvcpuinfo`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct VcpuInfo {
    /// The requested vCPU.
    pub vcpu: u32,
    /// Brought up and not unplugged.
    pub online: u8,
    /// Waits for an event.
    pub blocked: u8,
    /// Is on a processor at this moment.
    pub running: u8,
    pad: u8,
    /// Nanoseconds of processor time so far.
    pub cpu_time_ns: u64,
    /// The processor.
    pub cpu: u32,
    tail: u32,
}
const _: () = assert!(size_of::<VcpuInfo>() == 24);

impl VcpuInfo {
    /// The request for one vCPU.
    pub(super) fn of(vcpu: u32) -> Self {
        VcpuInfo {
            vcpu,
            ..VcpuInfo::default()
        }
    }

    /// The vCPU's state at this moment. The caller itself may have taken its processor.
    pub fn state(&self) -> State {
        match self {
            VcpuInfo { online: 0, .. } => State::Offline,
            VcpuInfo { blocked: 1.., .. } => State::Blocked,
            VcpuInfo { running: 1.., .. } => State::Running,
            _ => State::Ready,
        }
    }
}

/// `struct xen_domctl_vcpucontext`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct VcpuContext {
    /// The requested vCPU.
    pub(super) vcpu: u32,
    /// Must be zero.
    pub(super) pad: u32,
    /// Where Xen writes `struct vcpu_guest_context`.
    pub(super) address: u64,
}

/// `struct xen_domctl_hvmcontext_partial`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct HvmContextPartial {
    /// `HVM_SAVE_CODE(*)`.
    pub(super) record: u32,
    /// The requested vCPU.
    pub(super) instance: u32,
    /// Size of the buffer at `address`; Xen writes no more than that.
    pub(super) buffer_bytes: u64,
    /// Where Xen writes the record.
    pub(super) address: u64,
}

/// `HVM_SAVE_CODE(CPU)` of arch-x86/hvm/save.h.
pub(super) const HVM_RECORD_CPU: u32 = 2;
/// Bytes that `struct hvm_hw_cpu` may have, and room to grow.
pub(super) const HVM_CPU_BYTES: usize = 2048;
/// Offset of `cs_arbytes` in `struct hvm_hw_cpu`.
pub(super) const HVM_CPU_CODE_ATTRIBUTES: usize = 888;
/// Offset of `msr_efer` in `struct hvm_hw_cpu`.
pub(super) const HVM_CPU_EFER: usize = 992;
