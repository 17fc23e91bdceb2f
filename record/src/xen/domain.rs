//! Calls to Xen about one domain; above all the one that freezes it and fetches every vCPU.
//!
//! Enters: a domid. Leaves: facts about the domain, contexts of its vCPUs. Nothing here decides when
//! to pause; whoever calls [`Domain::fetch`] with `pause` must call [`Domain::unpause`].

use super::vcpu::{self, CONTEXT_BYTES, ContextKind};
use crate::page_tables::Paging;
use crate::sys::xen::XenError;
use crate::sys::xen::domctl::{self, DomainInfo, Domctl, VcpuInfo};
use crate::sys::xen::hypercall_buffer::HypercallBuffer;
use crate::sys::xen::multicall::MulticallEntry;
use crate::sys::xen::privcmd::{self, Privcmd};
use uprof::Registers;
use zerocopy::{FromBytes, IntoBytes};

/// Most vCPUs of a domain that we take on; Xen's own limit is 128 for HVM guests and 8192 for PV.
pub const MOST_VCPUS: u32 = 1024;

/// The hypervisor, as far as a tool in dom0 may talk to it.
#[derive(Debug)]
pub struct Xen {
    /// The device, also for mapping memory.
    pub privcmd: Privcmd,
    /// The domctl interface version that this Xen answers to.
    pub interface_version: u32,
    /// Calls made to Xen through the hypercall ioctl.
    pub hypercalls: u64,
}

const DOMCTL_BYTES: usize = size_of::<Domctl>();
const ENTRY_BYTES: usize = size_of::<MulticallEntry>();

impl Xen {
    /// Opens the device and finds out which interface version Xen speaks.
    pub fn open() -> Result<Self, XenError> {
        let mut xen = Xen {
            privcmd: Privcmd::open()?,
            interface_version: 0,
            hypercalls: 0,
        };
        xen.interface_version = xen.probe_interface_version()?;
        Ok(xen)
    }

    /// Asks about domain 0, which is always there, with one version after the other: the one that
    /// belongs to this Xen by name, the other known ones, newest first, then newer ones, since what we
    /// use has not changed since Xen 4.7.
    fn probe_interface_version(&mut self) -> Result<u32, XenError> {
        let by_name = self.version_number().and_then(|number| {
            let minor = (number & 0xffff) as u32;
            (number >> 16 == 4).then(|| domctl::version_of_xen(minor))?
        });
        let known = domctl::KNOWN_VERSIONS.rev();
        let newer = domctl::KNOWN_VERSIONS.end() + 1..=domctl::LAST_VERSION_TRIED;
        for version in by_name.into_iter().chain(known).chain(newer) {
            self.interface_version = version;
            let question = Domctl::new(domctl::GET_DOMAIN_INFO, version, 0);
            match self.domctl("ask about", question) {
                Ok(_) => return Ok(version),
                Err(error) if error.errno == libc::EACCES => {}
                Err(error) => return Err(error),
            }
        }
        Err(XenError::new(
            "find the interface version of",
            format!(
                "this Xen (tried {:#x} to {:#x})",
                domctl::KNOWN_VERSIONS.start(),
                domctl::LAST_VERSION_TRIED
            ),
            libc::ENOSYS,
        ))
    }

    fn domctl(&mut self, call: &'static str, question: Domctl) -> Result<Domctl, XenError> {
        let mut buffer = HypercallBuffer::new(DOMCTL_BYTES)?;
        self.domctl_in(&mut buffer, call, question)
    }

    /// One domctl through the start of `buffer`.
    fn domctl_in(
        &mut self,
        buffer: &mut HypercallBuffer,
        call: &'static str,
        question: Domctl,
    ) -> Result<Domctl, XenError> {
        let subject = question.domain;
        buffer.bytes_mut()[..DOMCTL_BYTES].copy_from_slice(question.as_bytes());
        self.hypercalls += 1;
        self.privcmd
            .hypercall(privcmd::DOMCTL, [buffer.address(0), 0, 0, 0, 0], buffer)
            .map_err(|errno| XenError::new(call, format!("domain {subject}"), errno))?;
        read(buffer.bytes(), 0)
            .ok_or_else(|| XenError::new(call, format!("domain {subject}"), libc::EIO))
    }

    fn question(&self, command: u32, domain: u16) -> Domctl {
        Domctl::new(command, self.interface_version, domain)
    }

    /// What Xen says about the first domain from number `domain` on.
    pub fn domain_from(&mut self, domain: u16) -> Result<DomainInfo, XenError> {
        let question = self.question(domctl::GET_DOMAIN_INFO, domain);
        Ok(self.domctl("ask about", question)?.answer())
    }

    /// What Xen says about `domain`.
    pub fn domain_info(&mut self, domain: u16) -> Result<DomainInfo, XenError> {
        let info = self.domain_from(domain)?;
        if info.domain != domain {
            return Err(XenError::new(
                "ask about",
                format!("domain {domain}"),
                libc::ESRCH,
            ));
        }
        Ok(info)
    }

    /// 32 or 64 for a PV guest; `None` where Xen doesn't say (HVM and PVH since 4.12).
    pub fn address_bits(&mut self, domain: u16) -> Option<u32> {
        let question = self.question(domctl::GET_ADDRESS_SIZE, domain);
        let answer = self.domctl("ask the address size of", question).ok()?;
        u32::read_from_prefix(&answer.payload)
            .ok()
            .map(|(bits, _)| bits)
    }

    /// Whether a vCPU of an HVM or PVH guest is in long mode (EFER.LMA).
    pub fn is_in_long_mode(&mut self, domain: u16, vcpu: u32) -> Result<bool, XenError> {
        const LONG_MODE_ACTIVE: u64 = 1 << 10;
        let record = DOMCTL_BYTES.next_multiple_of(64);
        let mut buffer = HypercallBuffer::new(record + domctl::HVM_CPU_BYTES)?;
        let address = buffer.address(record);
        let question = self.question(domctl::GET_HVM_CONTEXT_PARTIAL, domain).with(
            &domctl::HvmContextPartial {
                record: domctl::HVM_RECORD_CPU,
                instance: vcpu,
                buffer_bytes: domctl::HVM_CPU_BYTES as u64,
                address,
            },
        );
        self.domctl_in(&mut buffer, "ask the processor mode of", question)?;
        let efer: u64 = read(buffer.bytes(), record + domctl::HVM_CPU_EFER).unwrap_or(0);
        Ok(efer & LONG_MODE_ACTIVE != 0)
    }

    /// Resumes `domain`. Not paused is no error: then there is nothing to do.
    pub fn unpause(&mut self, domain: u16) -> Result<(), XenError> {
        let question = self.question(domctl::UNPAUSE, domain);
        match self.domctl("resume", question) {
            Err(error) if error.errno != libc::EINVAL => Err(error),
            _ => Ok(()),
        }
    }

    /// XENVER_version: the major number in bits 16 and up, the minor one below.
    fn version_number(&mut self) -> Option<u64> {
        let mut buffer = HypercallBuffer::new(1).ok()?;
        self.hypercalls += 1;
        self.privcmd
            .hypercall(privcmd::XEN_VERSION, [0; 5], &mut buffer)
            .ok()
    }

    /// Version of Xen, as `4.17.5`.
    pub fn version(&mut self) -> Option<String> {
        const EXTRA_BYTES: usize = 16; // xen_extraversion_t of version.h
        let number = self.version_number()?;
        let mut buffer = HypercallBuffer::new(EXTRA_BYTES).ok()?;
        let arguments = [1, buffer.address(0), 0, 0, 0]; // XENVER_extraversion
        self.hypercalls += 1;
        self.privcmd
            .hypercall(privcmd::XEN_VERSION, arguments, &mut buffer)
            .ok()?;
        let extra = buffer.bytes()[..EXTRA_BYTES].split(|byte| *byte == 0);
        let extra = String::from_utf8_lossy(extra.into_iter().next()?);
        Some(format!(
            "{}.{}{extra}",
            number >> 16 & 0xffff,
            number & 0xffff
        ))
    }
}

/// A structure at `offset`.
fn read<T: FromBytes>(bytes: &[u8], offset: usize) -> Option<T> {
    T::read_from_prefix(bytes.get(offset..)?)
        .ok()
        .map(|(value, _)| value)
}

/// One domain and the prepared call that fetches all of its vCPUs.
///
/// The call's entries: getdomaininfo, getvcpuinfo for each vCPU, pause, getvcpucontext for each.
#[derive(Debug)]
pub struct Domain {
    /// The hypervisor.
    pub xen: Xen,
    /// Its number.
    pub id: u16,
    /// vCPUs that it may have, numbered from 0.
    pub vcpus: u32,
    /// How its contexts are to be read.
    pub kind: ContextKind,
    /// For each vCPU, whether it was in long mode when we last looked.
    long_mode: Vec<bool>,
    buffer: HypercallBuffer,
    /// The domctl that resumes it, ready to send.
    resume: HypercallBuffer,
}

impl Domain {
    /// Prepares for domain `id`. Refuses what can't be sampled: domain 0, 32-bit guests.
    pub fn open(mut xen: Xen, id: u16) -> Result<Self, XenError> {
        let info = xen.domain_info(id)?;
        let subject = || format!("domain {id}");
        if info.max_vcpu_id >= MOST_VCPUS {
            return Err(XenError::new("record", subject(), libc::E2BIG));
        }
        let vcpus = info.max_vcpu_id + 1;
        let kind = ContextKind {
            arch: vcpu::NATIVE,
            interface_version: xen.interface_version,
            is_hvm: info.is_hvm(),
        };
        let long_mode = vec![true; vcpus as usize];
        let layout = Layout { vcpus };
        let mut buffer = HypercallBuffer::new(layout.bytes())?;
        layout.fill(&mut buffer, id, xen.interface_version);
        let mut resume = HypercallBuffer::new(DOMCTL_BYTES)?;
        let question = xen.question(domctl::UNPAUSE, id);
        resume.bytes_mut()[..DOMCTL_BYTES].copy_from_slice(question.as_bytes());
        let mut domain = Domain {
            xen,
            id,
            vcpus,
            kind,
            long_mode,
            buffer,
            resume,
        };
        for vcpu in 0..vcpus {
            domain.refresh_mode(vcpu);
        }
        Ok(domain)
    }

    /// Asks again which mode a vCPU is in: at the start, and when it comes online.
    pub fn refresh_mode(&mut self, vcpu: u32) {
        if self.kind.is_hvm && self.kind.arch == uprof::Arch::X86_64 {
            let mode = self.xen.is_in_long_mode(self.id, vcpu).unwrap_or(true);
            self.long_mode[vcpu as usize] = mode;
        }
    }

    /// Whether no vCPU is in 64-bit mode: a 32-bit guest, or one that is still booting.
    pub fn is_narrow(&self) -> bool {
        !self.long_mode.iter().any(|long| *long)
    }

    fn layout(&self) -> Layout {
        Layout { vcpus: self.vcpus }
    }

    /// One call: what the domain (if `look`) and each vCPU are doing, then, if `pause`, freezes the
    /// domain, then every vCPU's context. On success with `pause` the domain stands still; on failure
    /// it doesn't.
    pub fn fetch(&mut self, pause: bool, look: bool) -> Result<(), XenError> {
        let layout = self.layout();
        layout.arm_pause(&mut self.buffer, pause);
        let first = u32::from(!look);
        let start = self.buffer.address(layout.entry(first));
        let arguments = [start, u64::from(layout.entries() - first), 0, 0, 0];
        self.xen.hypercalls += 1;
        let outcome = self
            .xen
            .privcmd
            .hypercall(privcmd::MULTICALL, arguments, &mut self.buffer);
        let paused = layout.outcome(&self.buffer, layout.pause_entry());
        let failed = |errno| XenError::new("pause", format!("domain {}", self.id), errno);
        match (outcome, paused) {
            (Ok(_), Ok(_)) => Ok(()),
            (Ok(_), Err(errno)) => Err(failed(errno)),
            (Err(errno), Ok(_)) if pause => {
                let error = failed(errno);
                let _ = self.unpause(); // the call broke off behind the pause
                Err(error)
            }
            (Err(errno), _) => Err(failed(errno)),
        }
    }

    /// Only asks what each vCPU is doing, for [`Domain::vcpu_info`].
    pub fn look_at_vcpus(&mut self) -> Result<(), XenError> {
        let layout = self.layout();
        let start = self.buffer.address(layout.entry(layout.info_entry(0)));
        let arguments = [start, u64::from(self.vcpus), 0, 0, 0];
        self.xen.hypercalls += 1;
        self.xen
            .privcmd
            .hypercall(privcmd::MULTICALL, arguments, &mut self.buffer)
            .map(drop)
            .map_err(|errno| XenError::new("look at", format!("domain {}", self.id), errno))
    }

    /// Only asks what the domain is doing, for [`Domain::info`].
    pub fn look(&mut self) {
        let arguments = [self.buffer.address(0), 1, 0, 0, 0];
        self.xen.hypercalls += 1;
        let privcmd = &self.xen.privcmd;
        // What went wrong stands in the entry, or the old answer stays.
        let _ = privcmd.hypercall(privcmd::MULTICALL, arguments, &mut self.buffer);
    }

    /// Lets the domain go on: one pause less.
    pub fn unpause(&mut self) -> Result<(), XenError> {
        self.xen.hypercalls += 1;
        let arguments = [self.resume.address(0), 0, 0, 0, 0];
        self.xen
            .privcmd
            .hypercall(privcmd::DOMCTL, arguments, &mut self.resume)
            .map(drop)
            .map_err(|errno| XenError::new("resume", format!("domain {}", self.id), errno))
    }

    /// The domain as it was when we last looked; `None` if it is gone.
    pub fn info(&self) -> Option<DomainInfo> {
        let layout = self.layout();
        layout.outcome(&self.buffer, 0).ok()?;
        let answer: Domctl = read(self.buffer.bytes(), layout.domctl(0))?;
        let info: DomainInfo = answer.answer();
        (info.domain == self.id).then_some(info)
    }

    /// What a vCPU was doing just before the last fetch; `None` if there is no such vCPU.
    pub fn vcpu_info(&self, vcpu: u32) -> Option<VcpuInfo> {
        let layout = self.layout();
        let entry = layout.info_entry(vcpu);
        layout.outcome(&self.buffer, entry).ok()?;
        let answer: Domctl = read(self.buffer.bytes(), layout.domctl(entry))?;
        Some(answer.answer())
    }

    /// The registers of a vCPU at the last fetch, and its address translation.
    pub fn vcpu_state(&self, vcpu: u32, registers: &mut Registers) -> Option<Paging> {
        let layout = self.layout();
        layout
            .outcome(&self.buffer, layout.context_entry(vcpu))
            .ok()?;
        let start = layout.context(vcpu);
        let bytes = self.buffer.bytes().get(start..start + CONTEXT_BYTES)?;
        let long_mode = *self.long_mode.get(vcpu as usize)?;
        vcpu::read_context(bytes, self.kind, long_mode, registers)
    }
}

/// Where the parts of the call lie in its buffer: entries, then domctls, then contexts.
#[derive(Clone, Copy)]
struct Layout {
    vcpus: u32,
}

impl Layout {
    fn entries(self) -> u32 {
        2 + 2 * self.vcpus
    }

    fn info_entry(self, vcpu: u32) -> u32 {
        1 + vcpu
    }

    fn pause_entry(self) -> u32 {
        1 + self.vcpus
    }

    fn context_entry(self, vcpu: u32) -> u32 {
        2 + self.vcpus + vcpu
    }

    fn entry(self, index: u32) -> usize {
        index as usize * ENTRY_BYTES
    }

    fn domctl(self, index: u32) -> usize {
        self.entry(self.entries()) + index as usize * DOMCTL_BYTES
    }

    fn context(self, vcpu: u32) -> usize {
        self.domctl(self.entries()).next_multiple_of(64) + vcpu as usize * CONTEXT_BYTES
    }

    fn bytes(self) -> usize {
        self.context(self.vcpus)
    }

    /// Writes every entry and its domctl.
    fn fill(self, buffer: &mut HypercallBuffer, domain: u16, interface_version: u32) {
        let question = |command| Domctl::new(command, interface_version, domain);
        self.put(buffer, 0, &question(domctl::GET_DOMAIN_INFO));
        self.put(buffer, self.pause_entry(), &question(domctl::PAUSE));
        for vcpu in 0..self.vcpus {
            let info = question(domctl::GET_VCPU_INFO).with(&VcpuInfo::of(vcpu));
            self.put(buffer, self.info_entry(vcpu), &info);
            let context = question(domctl::GET_VCPU_CONTEXT).with(&domctl::VcpuContext {
                vcpu,
                pad: 0,
                address: buffer.address(self.context(vcpu)),
            });
            self.put(buffer, self.context_entry(vcpu), &context);
        }
    }

    fn put(self, buffer: &mut HypercallBuffer, index: u32, domctl: &Domctl) {
        let place = self.domctl(index);
        buffer.bytes_mut()[place..place + DOMCTL_BYTES].copy_from_slice(domctl.as_bytes());
        let call = MulticallEntry::new(privcmd::DOMCTL, buffer.address(place));
        self.put_entry(buffer, index, &call);
    }

    fn put_entry(self, buffer: &mut HypercallBuffer, index: u32, call: &MulticallEntry) {
        let entry = self.entry(index);
        buffer.bytes_mut()[entry..entry + ENTRY_BYTES].copy_from_slice(call.as_bytes());
    }

    /// Makes the pause entry a pause, or a call that does nothing (XENVER_version), and marks it as not
    /// yet done.
    fn arm_pause(self, buffer: &mut HypercallBuffer, pause: bool) {
        let index = self.pause_entry();
        let mut call = if pause {
            MulticallEntry::new(privcmd::DOMCTL, buffer.address(self.domctl(index)))
        } else {
            MulticallEntry::new(privcmd::XEN_VERSION, 0)
        };
        call.result = -i64::from(libc::EINTR) as u64;
        self.put_entry(buffer, index, &call);
    }

    fn outcome(self, buffer: &HypercallBuffer, index: u32) -> Result<u64, i32> {
        let entry: Option<MulticallEntry> = read(buffer.bytes(), self.entry(index));
        entry.ok_or(libc::EIO)?.outcome()
    }
}
