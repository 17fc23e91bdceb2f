//! The call that freezes a domain and fetches every vCPU: a multicall, with everything that it points to in one
//! buffer.
//!
//! Its entries: getdomaininfo, getvcpuinfo for each vCPU, pause, getvcpucontext for each. Nothing here decides when
//! to pause.

use super::call::read;
use super::domctl::{self, DomainInfo, Domctl, VcpuContext, VcpuInfo};
use super::hypercall_buffer::HypercallBuffer;
use super::multicall::MulticallEntry;
use super::privcmd::{DOMCTL, MULTICALL, Privcmd, XEN_VERSION};
use super::{XenError, context_aarch64, context_x86_64};
use zerocopy::{FromBytes, IntoBytes};

/// Most vCPUs of a domain; Xen's own limit is 128 for HVM guests and 8192 for PV.
pub const MOST_VCPUS: u32 = 1024;

/// Bytes reserved for each vCPU's context: the larger layout, rounded up. x86's is part of the guest interface
/// (VCPUOP_initialise) and won't change; Arm's, which grew once, has more than ten times the room.
pub const CONTEXT_BYTES: usize = 5184;
const _: () = assert!(CONTEXT_BYTES >= size_of::<context_x86_64::VcpuGuestContext>());
const _: () = assert!(CONTEXT_BYTES >= 10 * size_of::<context_aarch64::VcpuGuestContext>());
const _: () = assert!(CONTEXT_BYTES.is_multiple_of(64));

const DOMCTL_BYTES: usize = size_of::<Domctl>();
const ENTRY_BYTES: usize = size_of::<MulticallEntry>();

/// The prepared call: entries, then domctls, then contexts.
#[derive(Debug)]
pub struct Fetch {
    vcpus: u32,
    buffer: HypercallBuffer,
}

impl Fetch {
    /// The call for a domain of so many vCPUs.
    ///
    /// # Errors
    /// That there is no memory for it.
    ///
    /// # Panics
    /// If there are more than [`MOST_VCPUS`], which would be a bug.
    pub fn new(domain: u16, interface_version: u32, vcpus: u32) -> Result<Self, XenError> {
        assert!(vcpus <= MOST_VCPUS, "{vcpus} vCPUs");
        let bytes = context_at(vcpus, vcpus);
        let mut fetch = Fetch {
            vcpus,
            buffer: HypercallBuffer::new(bytes)?,
        };
        let question = |command| Domctl::new(command, interface_version, domain);
        fetch.put(0, &question(domctl::GET_DOMAIN_INFO));
        fetch.put(fetch.pause_entry(), &question(domctl::PAUSE));
        for vcpu in 0..vcpus {
            let info = question(domctl::GET_VCPU_INFO).with(&VcpuInfo::of(vcpu));
            fetch.put(info_entry(vcpu), &info);
            let context = question(domctl::GET_VCPU_CONTEXT).with(&VcpuContext {
                vcpu,
                pad: 0,
                address: fetch.buffer.address(context_at(vcpus, vcpu)),
            });
            fetch.put(fetch.context_entry(vcpu), &context);
        }
        Ok(fetch)
    }

    /// Gets the state of the domain (if `look`) and of each vCPU, then, if `pause`, freezes the domain, then gets
    /// every vCPU's context. Returns the results of the whole call and of the pause.
    pub fn all(
        &mut self,
        privcmd: &Privcmd,
        pause: bool,
        look: bool,
    ) -> (Result<(), i32>, Result<(), i32>) {
        self.arm_pause(pause);
        let first = u32::from(!look);
        let outcome = self.call(privcmd, first, entries(self.vcpus) - first);
        (outcome, self.outcome(self.pause_entry()))
    }

    /// Gets only the state of each vCPU.
    ///
    /// # Errors
    /// Xen's error number.
    pub fn look_at_vcpus(&mut self, privcmd: &Privcmd) -> Result<(), i32> {
        self.call(privcmd, info_entry(0), self.vcpus)
    }

    /// Gets only the state of the domain.
    pub fn look(&mut self, privcmd: &Privcmd) {
        // An error is in the entry; otherwise the old answer remains.
        let _ = self.call(privcmd, 0, 1);
    }

    /// Makes `count` of the calls, from `first` on.
    fn call(&mut self, privcmd: &Privcmd, first: u32, count: u32) -> Result<(), i32> {
        let arguments = [
            self.buffer.address(entry_at(first)),
            u64::from(count),
            0,
            0,
            0,
        ];
        // SAFETY: all callers keep to the entries that there are, which new() and arm_pause() wrote. Through them Xen
        // writes to entries, domctls and contexts, for which CONTEXT_BYTES is enough: all in our buffer, which only
        // we refer to.
        unsafe { privcmd.hypercall(MULTICALL, arguments) }.map(drop)
    }

    /// The domain's state as last fetched; it may be of another domain.
    pub fn info(&self) -> Option<DomainInfo> {
        self.answer(0)
    }

    /// A vCPU's state as last fetched; `None` if there is no such vCPU.
    pub fn vcpu_info(&self, vcpu: u32) -> Option<VcpuInfo> {
        self.answer(info_entry(vcpu))
    }

    /// A vCPU's `struct vcpu_guest_context`, as last fetched.
    pub fn context(&self, vcpu: u32) -> Option<&[u8]> {
        self.outcome(self.context_entry(vcpu)).ok()?;
        let start = context_at(self.vcpus, vcpu);
        self.buffer.bytes().get(start..start + CONTEXT_BYTES)
    }

    fn pause_entry(&self) -> u32 {
        1 + self.vcpus
    }

    fn context_entry(&self, vcpu: u32) -> u32 {
        2 + self.vcpus + vcpu
    }

    fn put(&mut self, index: u32, domctl: &Domctl) {
        let place = domctl_at(self.vcpus, index);
        self.buffer.bytes_mut()[place..place + DOMCTL_BYTES].copy_from_slice(domctl.as_bytes());
        let call = MulticallEntry::new(DOMCTL, self.buffer.address(place));
        self.put_entry(index, &call);
    }

    fn put_entry(&mut self, index: u32, call: &MulticallEntry) {
        let entry = entry_at(index);
        self.buffer.bytes_mut()[entry..entry + ENTRY_BYTES].copy_from_slice(call.as_bytes());
    }

    /// Makes the pause entry a pause, or a call without effect (XENVER_version), and marks it as not done.
    fn arm_pause(&mut self, pause: bool) {
        let index = self.pause_entry();
        let mut call = if pause {
            MulticallEntry::new(DOMCTL, self.buffer.address(domctl_at(self.vcpus, index)))
        } else {
            MulticallEntry::new(XEN_VERSION, 0)
        };
        call.result = -i64::from(libc::EINTR) as u64;
        self.put_entry(index, &call);
    }

    fn outcome(&self, index: u32) -> Result<(), i32> {
        let entry: Option<MulticallEntry> = read(self.buffer.bytes(), entry_at(index));
        entry.ok_or(libc::EIO)?.outcome().map(drop)
    }

    fn answer<T: FromBytes>(&self, index: u32) -> Option<T> {
        self.outcome(index).ok()?;
        let payload = domctl_at(self.vcpus, index) + std::mem::offset_of!(Domctl, payload);
        read(self.buffer.bytes(), payload)
    }
}

fn entries(vcpus: u32) -> u32 {
    2 + 2 * vcpus
}

fn info_entry(vcpu: u32) -> u32 {
    1 + vcpu
}

fn entry_at(index: u32) -> usize {
    index as usize * ENTRY_BYTES
}

fn domctl_at(vcpus: u32, index: u32) -> usize {
    entry_at(entries(vcpus)) + index as usize * DOMCTL_BYTES
}

fn context_at(vcpus: u32, vcpu: u32) -> usize {
    domctl_at(vcpus, entries(vcpus)).next_multiple_of(64) + vcpu as usize * CONTEXT_BYTES
}
