//! Calls to Xen about a domain, such as the one that freezes it and fetches every vCPU.
//!
//! Input: a domid. Output: facts about the domain, contexts of its vCPUs. Each [`Domain::fetch`] with `pause` must be
//! followed by [`Domain::unpause`].

use super::vcpu::{self, ContextKind};
use crate::guest::boots::keep_only_ip;
use crate::guest::page_tables::Paging;
use crate::sys::xen::XenError;
use crate::sys::xen::call::{self, DomainCall, Order};
use crate::sys::xen::domctl::{self, DomainInfo, VcpuInfo};
use crate::sys::xen::fetch::{Fetch, MOST_VCPUS};
use crate::sys::xen::privcmd::Privcmd;
use std::time::Duration;
use uprof::Registers;

/// On arm64: how often to look for a vCPU in AArch64, and how far apart.
const MODE_LOOKS: u32 = 20;
const BETWEEN_MODE_LOOKS: Duration = Duration::from_millis(5);

/// EFER.LMA.
const LONG_MODE_ACTIVE: u64 = 1 << 10;
/// The attribute of a segment of 64-bit code.
const LONG_CODE: u32 = 1 << 9;

/// The hypervisor, seen from a tool in dom0.
#[derive(Debug)]
pub struct Xen {
    /// The device, which also maps memory.
    pub privcmd: Privcmd,
    /// The domctl interface version that this Xen accepts.
    pub interface_version: u32,
    /// Calls made to Xen through the hypercall ioctl.
    pub hypercalls: u64,
}

impl Xen {
    /// Opens the device and finds Xen's interface version.
    pub fn open() -> Result<Self, XenError> {
        let mut xen = Xen {
            privcmd: Privcmd::open()?,
            interface_version: 0,
            hypercalls: 0,
        };
        xen.interface_version = xen.probe_interface_version()?;
        Ok(xen)
    }

    /// Queries domain 0, which always exists, with one version after the other: that of this Xen version, the other
    /// known ones, newest first, then newer ones, since the operations used here have not changed since Xen 4.7.
    fn probe_interface_version(&mut self) -> Result<u32, XenError> {
        let by_name = self.version_number().and_then(|number| {
            let minor = (number & 0xffff) as u32;
            (number >> 16 == 4).then(|| domctl::version_of_xen(minor))?
        });
        let known = domctl::KNOWN_VERSIONS.rev();
        let newer = domctl::KNOWN_VERSIONS.end() + 1..=domctl::LAST_VERSION_TRIED;
        for version in by_name.into_iter().chain(known).chain(newer) {
            self.interface_version = version;
            match self.order("ask about", Order::Info, 0) {
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

    /// One call about `domain`.
    fn ask(
        &mut self,
        call: &'static str,
        domain: u16,
        mut question: DomainCall,
    ) -> Result<DomainCall, XenError> {
        self.hypercalls += 1;
        match question.make(&self.privcmd) {
            Ok(()) => Ok(question),
            Err(errno) => Err(XenError::new(call, format!("domain {domain}"), errno)),
        }
    }

    fn order(
        &mut self,
        call: &'static str,
        order: Order,
        domain: u16,
    ) -> Result<DomainCall, XenError> {
        let question = DomainCall::new(order, self.interface_version, domain)?;
        self.ask(call, domain, question)
    }

    /// Information about the first domain from number `domain` on.
    pub fn domain_from(&mut self, domain: u16) -> Result<DomainInfo, XenError> {
        let answer = self.order("ask about", Order::Info, domain)?.answer();
        answer.ok_or_else(|| XenError::new("ask about", format!("domain {domain}"), libc::EIO))
    }

    /// Information about `domain`.
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

    /// 32 or 64 for a PV guest; `None` if Xen doesn't report it (HVM and PVH since 4.12).
    pub fn address_bits(&mut self, domain: u16) -> Option<u32> {
        let answer = self.order("ask the address size of", Order::AddressBits, domain);
        answer.ok()?.answer()
    }

    /// Whether a vCPU of an HVM or PVH guest is in long mode (EFER.LMA).
    pub fn is_in_long_mode(&mut self, domain: u16, vcpu: u32) -> Result<bool, XenError> {
        let answer = self.processor_mode(domain, vcpu)?;
        Ok(answer.efer().unwrap_or(0) & LONG_MODE_ACTIVE != 0)
    }

    fn processor_mode(&mut self, domain: u16, vcpu: u32) -> Result<DomainCall, XenError> {
        let question = DomainCall::processor_mode(self.interface_version, domain, vcpu)?;
        self.ask("ask the processor mode of", domain, question)
    }

    /// State of a vCPU of `domain`.
    pub fn vcpu_info(&mut self, domain: u16, vcpu: u32) -> Result<VcpuInfo, XenError> {
        let question = DomainCall::vcpu_info(self.interface_version, domain, vcpu)?;
        let answer = self.ask("ask about a vCPU of", domain, question)?.answer();
        answer.ok_or_else(|| XenError::new("ask about", format!("domain {domain}"), libc::EIO))
    }

    /// Resumes `domain`. It is not an error if it is not paused.
    pub fn unpause(&mut self, domain: u16) -> Result<(), XenError> {
        match self.order("resume", Order::Unpause, domain) {
            Err(error) if error.errno != libc::EINVAL => Err(error),
            _ => Ok(()),
        }
    }

    fn version_number(&mut self) -> Option<u64> {
        self.hypercalls += 1;
        call::version_number(&self.privcmd)
    }

    /// Version of Xen, as `4.17.5`.
    pub fn version(&mut self) -> Option<String> {
        let number = self.version_number()?;
        self.hypercalls += 1;
        let extra = call::extra_version(&self.privcmd)?;
        Some(format!(
            "{}.{}{extra}",
            number >> 16 & 0xffff,
            number & 0xffff
        ))
    }
}

/// One domain and the prepared call that fetches all of its vCPUs.
#[derive(Debug)]
pub struct Domain {
    /// The hypervisor.
    pub xen: Xen,
    /// Its number.
    pub id: u16,
    /// vCPUs that it may have, numbered from 0.
    pub vcpus: u32,
    /// The layout of its contexts.
    pub kind: ContextKind,
    /// For each vCPU, whether it was in long mode when last checked; `None` if Xen didn't say, as of one that is down.
    long_mode: Vec<Option<bool>>,
    fetch: Fetch,
    /// The call that resumes it, ready to make.
    resume: DomainCall,
}

impl Domain {
    /// Prepares for domain `id`. Refuses domain 0 and 32-bit guests, which can't be sampled.
    pub fn open(mut xen: Xen, id: u16) -> Result<Self, XenError> {
        let info = xen.domain_info(id)?;
        if info.max_vcpu_id >= MOST_VCPUS {
            return Err(XenError::new("record", format!("domain {id}"), libc::E2BIG));
        }
        let vcpus = info.max_vcpu_id + 1;
        let kind = ContextKind {
            arch: vcpu::NATIVE,
            interface_version: xen.interface_version,
            is_hvm: info.is_hvm(),
        };
        let long_mode = vec![Some(true); vcpus as usize];
        let mut domain = Domain {
            fetch: Fetch::new(id, xen.interface_version, vcpus)?,
            resume: DomainCall::new(Order::Unpause, xen.interface_version, id)?,
            xen,
            id,
            vcpus,
            kind,
            long_mode,
        };
        for vcpu in 0..vcpus {
            domain.refresh_mode(vcpu);
        }
        if kind.arch == uprof::Arch::Aarch64 && !domain.is_seen_in_aarch64() {
            domain.long_mode.fill(Some(false));
        }
        Ok(domain)
    }

    /// Whether some vCPU is in AArch64 at one of a few looks. One look is not enough, since a 64-bit kernel may run a
    /// 32-bit process.
    fn is_seen_in_aarch64(&mut self) -> bool {
        let mut is_seen = || {
            self.fetch(false, true).is_err()
                || (0..self.vcpus)
                    .filter(|&vcpu| self.vcpu_info(vcpu).is_some_and(|info| info.online != 0))
                    .filter_map(|vcpu| self.fetch.context(vcpu))
                    .any(|bytes| !vcpu::is_aarch32(bytes, self.kind))
        };
        (0..MODE_LOOKS).any(|_| {
            let is_seen = is_seen();
            if !is_seen {
                std::thread::sleep(BETWEEN_MODE_LOOKS);
            }
            is_seen
        })
    }

    /// Updates the mode of a vCPU.
    pub fn refresh_mode(&mut self, vcpu: u32) {
        if self.kind.is_hvm && self.kind.arch == uprof::Arch::X86_64 {
            self.long_mode[vcpu as usize] = self.xen.is_in_long_mode(self.id, vcpu).ok();
        }
    }

    /// Corrects what the last fetch says of a vCPU that may change its mode at any time, as a guest does that boots:
    /// code that is not 64-bit code has only an instruction pointer, linear as the processor uses it.
    pub fn refresh_place(
        &mut self,
        vcpu: u32,
        paging: Paging,
        registers: &mut Registers,
    ) -> Option<Paging> {
        let place = vcpu as usize;
        let mut paging = paging;
        match paging {
            Paging::Off => self.long_mode[place] = Some(false),
            Paging::Unsupported => {
                let question = self.xen.processor_mode(self.id, vcpu).ok()?;
                let efer = question.efer();
                let code = question.code_attributes();
                self.long_mode[place] = Some(
                    efer.is_some_and(|efer| efer & LONG_MODE_ACTIVE != 0)
                        && code.is_some_and(|bits| bits & LONG_CODE != 0),
                );
                paging = self.vcpu_place(vcpu, registers)?;
            }
            _ => {}
        }
        if !self.is_long(vcpu) {
            let base = self
                .fetch
                .context(vcpu)
                .map_or(0, |bytes| vcpu::code_base(bytes, self.kind));
            keep_only_ip(self.kind.arch, registers, base);
        }
        Some(paging)
    }

    /// Whether a vCPU is in long mode, or may be, as far as is known.
    #[inline]
    pub fn is_long(&self, vcpu: u32) -> bool {
        self.long_mode.get(vcpu as usize) != Some(&Some(false))
    }

    /// Whether no vCPU is in 64-bit mode: a 32-bit guest, or one that is still booting.
    pub fn is_narrow(&self) -> bool {
        are_narrow(&self.long_mode)
    }

    /// The reason why such a guest is refused.
    pub fn narrow(&self) -> String {
        format!(
            "cannot record domain {}: it is not in 64-bit mode; 32-bit guests are not supported, and one that is still \
             booting can be recorded a moment later",
            self.id
        )
    }

    /// In one call, gets the state of the domain (if `look`) and of each vCPU, then, if `pause`, freezes the domain,
    /// then gets every vCPU's context. With `pause` the domain is paused on success, and not on failure.
    #[inline(always)]
    pub fn fetch(&mut self, pause: bool, look: bool) -> Result<(), XenError> {
        self.xen.hypercalls += 1;
        let (outcome, paused) = self.fetch.all(&self.xen.privcmd, pause, look);
        let failed = |errno| XenError::new("pause", format!("domain {}", self.id), errno);
        match (outcome, paused) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(errno)) => Err(failed(errno)),
            (Err(errno), Ok(())) if pause => {
                let error = failed(errno);
                let _ = self.unpause(); // the call failed after the pause
                Err(error)
            }
            (Err(errno), _) => Err(failed(errno)),
        }
    }

    /// Gets only the state of each vCPU, for [`Domain::vcpu_info`].
    pub fn look_at_vcpus(&mut self) -> Result<(), XenError> {
        self.xen.hypercalls += 1;
        self.fetch
            .look_at_vcpus(&self.xen.privcmd)
            .map_err(|errno| XenError::new("look at", format!("domain {}", self.id), errno))
    }

    /// Whether a vCPU has the same registers as at the last fetch.
    pub fn has_the_same_registers(&mut self, vcpu: u32) -> bool {
        self.xen.hypercalls += 1;
        let again = self.fetch.look_at_context(&self.xen.privcmd, vcpu);
        let registers = |bytes| {
            let mut registers = Registers::default();
            vcpu::read_registers(bytes, self.kind, &mut registers);
            registers
        };
        let before = self.fetch.context(vcpu).map(registers);
        again.is_ok() && before.is_some() && before == self.fetch.context_again().map(registers)
    }

    /// Gets only the state of the domain, for [`Domain::info`].
    pub fn look(&mut self) {
        self.xen.hypercalls += 1;
        self.fetch.look(&self.xen.privcmd);
    }

    /// Resumes the domain: decrements its pause count.
    #[inline]
    pub fn unpause(&mut self) -> Result<(), XenError> {
        self.xen.hypercalls += 1;
        self.resume
            .make(&self.xen.privcmd)
            .map_err(|errno| XenError::new("resume", format!("domain {}", self.id), errno))
    }

    /// The domain's state as last fetched; `None` if it is gone.
    pub fn info(&self) -> Option<DomainInfo> {
        self.fetch.info().filter(|info| info.domain == self.id)
    }

    /// A vCPU's state just before the last fetch; `None` if there is no such vCPU.
    #[inline]
    pub fn vcpu_info(&self, vcpu: u32) -> Option<VcpuInfo> {
        self.fetch.vcpu_info(vcpu)
    }

    /// The position of a vCPU at the last fetch: instruction, stack and frame pointer; returns its address translation.
    #[inline(always)]
    pub fn vcpu_place(&self, vcpu: u32, registers: &mut Registers) -> Option<Paging> {
        let bytes = self.fetch.context(vcpu)?;
        let long_mode = self.is_long(vcpu);
        // Its value anyway, but written so that the compiler knows it.
        let kind = ContextKind {
            arch: vcpu::NATIVE,
            ..self.kind
        };
        vcpu::read_place(bytes, kind, long_mode, registers)
    }

    /// All registers of a vCPU at the last fetch.
    pub fn vcpu_registers(&self, vcpu: u32, registers: &mut Registers) {
        if let Some(bytes) = self.fetch.context(vcpu) {
            vcpu::read_registers(bytes, self.kind, registers);
        }
    }
}

/// Whether vCPUs with these modes are of a guest that is not in 64-bit mode. One that is down shows nothing.
fn are_narrow(modes: &[Option<bool>]) -> bool {
    modes.contains(&Some(false)) && !modes.contains(&Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_that_is_down_does_not_make_a_booting_guest_a_64_bit_one() {
        let (long, narrow, down) = (Some(true), Some(false), None);
        assert!(are_narrow(&[narrow, down]));
        assert!(are_narrow(&[narrow, narrow]));
        assert!(!are_narrow(&[long, down]));
        assert!(!are_narrow(&[narrow, long]));
        // Where Xen says nothing of any vCPU, the guest is taken for a 64-bit one.
        assert!(!are_narrow(&[down, down]));
    }
}
