//! The call that freezes a domain and fetches every vCPU: a multicall, with everything that it points to in one
//! buffer.
//!
//! Its entries: getdomaininfo, getvcpuinfo for each vCPU, pause, getvcpucontext for each, and one entry that gets a
//! single context again, into a slot of its own. Nothing here decides when to pause.

use super::call::read;
use super::domctl::{self, DomainInfo, Domctl, VcpuContext, VcpuInfo};
use super::hypercall_buffer::HypercallBuffer;
use super::multicall::MulticallEntry;
use super::privcmd::{DOMCTL, MULTICALL, Privcmd, XEN_VERSION};
use super::{XenError, context_aarch64, context_x86_64};
use zerocopy::{FromBytes, IntoBytes};

/// Most vCPUs of a domain; Xen's own limit is 128 for HVM guests and 8192 for PV.
pub const MOST_VCPUS: u32 = 1024;

/// Bytes reserved for each vCPU's context: the larger layout, rounded up. The layout of x86 is part of the guest
/// interface (VCPUOP_initialise) and won't change. Arm's has grown once, and still has more than ten times the room.
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
    /// Where the contexts begin.
    contexts_at: usize,
    /// Whether the pause entry is a pause.
    pauses: bool,
    buffer: HypercallBuffer,
}

impl Fetch {
    /// Prepares the call for a domain of `vcpus` vCPUs.
    ///
    /// # Errors
    /// There is no memory for it.
    ///
    /// # Panics
    /// If there are more than [`MOST_VCPUS`]. That is a bug of the caller.
    pub fn new(domain: u16, interface_version: u32, vcpus: u32) -> Result<Self, XenError> {
        assert!(vcpus <= MOST_VCPUS, "{vcpus} vCPUs");
        let bytes = context_at(vcpus, vcpus + 1);
        let mut fetch = Fetch {
            vcpus,
            contexts_at: context_at(vcpus, 0),
            pauses: true,
            buffer: HypercallBuffer::new(bytes)?,
        };
        let question = |command| Domctl::new(command, interface_version, domain);
        fetch.put(0, &question(domctl::GET_DOMAIN_INFO));
        fetch.put(fetch.pause_entry(), &question(domctl::PAUSE));
        for vcpu in 0..vcpus {
            let info = question(domctl::GET_VCPU_INFO).with(&VcpuInfo::of(vcpu));
            fetch.put(info_entry(vcpu), &info);
        }
        // The last slot is for a context that is fetched again.
        for place in 0..=vcpus {
            let context = question(domctl::GET_VCPU_CONTEXT).with(&VcpuContext {
                vcpu: place,
                pad: 0,
                address: fetch.buffer.address(context_at(vcpus, place)),
            });
            fetch.put(fetch.context_entry(place), &context);
        }
        Ok(fetch)
    }

    /// Gets the state of the domain (if `look`) and of each vCPU, then, if `pause`, freezes the domain, then gets
    /// every vCPU's context. Returns the results of the whole call and of the pause.
    #[inline(always)]
    pub fn all(
        &mut self,
        privcmd: &Privcmd,
        pause: bool,
        look: bool,
    ) -> (Result<(), i32>, Result<(), i32>) {
        self.arm_pause(pause);
        let first = u32::from(!look);
        let outcome = self.call(privcmd, first, self.context_entry(self.vcpus) - first);
        (outcome, self.outcome(self.pause_entry()))
    }

    /// Gets only the state of each vCPU.
    ///
    /// # Errors
    /// Xen's error number.
    pub fn look_at_vcpus(&mut self, privcmd: &Privcmd) -> Result<(), i32> {
        self.call(privcmd, info_entry(0), self.vcpus)
    }

    /// Gets the context of one vCPU again, for [`Fetch::context_again`]; the one fetched with all the others stays.
    ///
    /// # Errors
    /// Xen's error number.
    pub fn look_at_context(&mut self, privcmd: &Privcmd, vcpu: u32) -> Result<(), i32> {
        let again = self.context_entry(self.vcpus);
        let question = domctl_at(self.vcpus, again)
            + std::mem::offset_of!(Domctl, payload)
            + std::mem::offset_of!(VcpuContext, vcpu);
        self.buffer.bytes_mut()[question..question + size_of::<u32>()]
            .copy_from_slice(&vcpu.to_ne_bytes());
        self.call(privcmd, again, 1)
    }

    /// Gets only the state of the domain.
    pub fn look(&mut self, privcmd: &Privcmd) {
        // The entry holds the error, if any; the previous answer then remains.
        let _ = self.call(privcmd, 0, 1);
    }

    /// Makes `count` of the calls, from entry `first` on.
    #[inline(always)]
    fn call(&mut self, privcmd: &Privcmd, first: u32, count: u32) -> Result<(), i32> {
        let arguments = [
            self.buffer.address(entry_at(first)),
            u64::from(count),
            0,
            0,
            0,
        ];
        // SAFETY: all callers keep to existing entries, which new() and arm_pause() wrote. Through them Xen writes to
        // entries, domctls and contexts, and CONTEXT_BYTES is enough for a context. All are in our buffer, which only
        // we refer to.
        let outcome = unsafe { privcmd.hypercall(MULTICALL, arguments) }.map(drop);
        let first_op: Option<u64> = read(self.buffer.bytes(), entry_at(first));
        if first_op != Some(DOMCTL) {
            self.restore(first, count);
        }
        outcome
    }

    /// Rewrites entries that Xen has overwritten. Debug builds do so, to keep callers from depending on anything but
    /// the results (`do_multicall` in xen/common/multicall.c).
    #[cold]
    fn restore(&mut self, first: u32, count: u32) {
        for index in first..first + count {
            let result = entry_at(index) + std::mem::offset_of!(MulticallEntry, result);
            let call = MulticallEntry {
                result: read(self.buffer.bytes(), result).unwrap_or_default(),
                ..self.entry(index)
            };
            self.put_entry(index, &call);
        }
    }

    /// A call as it is made: its domctl, or, instead of a disabled pause, a call without effect (XENVER_version).
    fn entry(&self, index: u32) -> MulticallEntry {
        if index == self.pause_entry() && !self.pauses {
            return MulticallEntry::new(XEN_VERSION, 0);
        }
        let place = domctl_at(self.vcpus, index);
        MulticallEntry::new(DOMCTL, self.buffer.address(place))
    }

    /// The domain's state as last fetched; it may describe another domain.
    pub fn info(&self) -> Option<DomainInfo> {
        self.answer(0)
    }

    /// A vCPU's state as last fetched; `None` if there is no such vCPU.
    pub fn vcpu_info(&self, vcpu: u32) -> Option<VcpuInfo> {
        self.answer(info_entry(vcpu))
    }

    /// A vCPU's `struct vcpu_guest_context`, as last fetched.
    pub fn context(&self, vcpu: u32) -> Option<&[u8]> {
        (vcpu < self.vcpus).then(|| self.context_in(vcpu))?
    }

    /// The context that was fetched again.
    pub fn context_again(&self) -> Option<&[u8]> {
        self.context_in(self.vcpus)
    }

    fn context_in(&self, vcpu: u32) -> Option<&[u8]> {
        self.outcome(self.context_entry(vcpu)).ok()?;
        let start = self.contexts_at + vcpu as usize * CONTEXT_BYTES;
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
        self.put_entry(index, &self.entry(index));
    }

    fn put_entry(&mut self, index: u32, call: &MulticallEntry) {
        let entry = entry_at(index);
        self.buffer.bytes_mut()[entry..entry + ENTRY_BYTES].copy_from_slice(call.as_bytes());
    }

    /// Makes the pause entry a pause or a call without effect, and marks it as not done.
    fn arm_pause(&mut self, pause: bool) {
        let index = self.pause_entry();
        if pause != self.pauses {
            self.pauses = pause;
            self.put_entry(index, &self.entry(index));
        }
        let result = entry_at(index) + std::mem::offset_of!(MulticallEntry, result);
        let not_done = -i64::from(libc::EINTR);
        self.buffer.bytes_mut()[result..result + 8].copy_from_slice(&not_done.to_ne_bytes());
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
    3 + 2 * vcpus
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Imitates how a debug build of Xen overwrites an entry.
    fn overwrite(fetch: &mut Fetch, index: u32, result: u64) {
        let call = MulticallEntry {
            op: 0xaaaa_aaaa_aaaa_aaaa,
            result,
            arguments: [0xaaaa_aaaa_aaaa_aaaa; 6],
        };
        fetch.put_entry(index, &call);
    }

    #[test]
    fn entries_that_xen_overwrote_are_written_again() {
        for pause in [true, false] {
            let mut fetch = Fetch::new(3, 0x15, 2).unwrap();
            fetch.arm_pause(pause);
            let whole = |fetch: &Fetch| -> Vec<MulticallEntry> {
                let entry = |index| read(fetch.buffer.bytes(), entry_at(index)).unwrap();
                (0..entries(2)).map(entry).collect()
            };
            let before = whole(&fetch);
            for index in 1..entries(2) {
                overwrite(&mut fetch, index, u64::from(index));
            }
            fetch.restore(1, entries(2) - 1);
            for (index, (before, after)) in before.iter().zip(whole(&fetch)).enumerate() {
                assert_eq!((before.op, before.arguments), (after.op, after.arguments));
                assert_eq!(after.result, index as u64, "the result of entry {index}");
            }
            assert_eq!(before[3].op, if pause { DOMCTL } else { XEN_VERSION });
        }
    }
}
