//! Single calls to Xen. Each is a value that owns the memory to which Xen writes.

use super::XenError;
use super::domctl::{self, Domctl, HvmContextPartial};
use super::hypercall_buffer::HypercallBuffer;
use super::privcmd::{DOMCTL, Privcmd, XEN_VERSION};
use zerocopy::{FromBytes, IntoBytes};

/// Operations on a domain without an address in their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Gets [`domctl::DomainInfo`] of the first domain from the given number on.
    Info,
    /// Gets the address width of a PV guest in bits, as a `u32`.
    AddressBits,
    /// Decrements the pause count.
    Unpause,
}

/// A call about a domain, which can be repeated.
#[derive(Debug)]
pub struct DomainCall(HypercallBuffer);

/// Offset of the record of [`DomainCall::processor_mode`].
const RECORD_AT: usize = size_of::<Domctl>().next_multiple_of(64);

impl DomainCall {
    /// Prepares the call for an `order`.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(order: Order, interface_version: u32, domain: u16) -> Result<Self, XenError> {
        let command = match order {
            Order::Info => domctl::GET_DOMAIN_INFO,
            Order::AddressBits => domctl::GET_ADDRESS_SIZE,
            Order::Unpause => domctl::UNPAUSE,
        };
        let buffer = HypercallBuffer::new(size_of::<Domctl>())?;
        let question = Domctl::new(command, interface_version, domain);
        Ok(DomainCall(buffer).filled(&question))
    }

    /// Prepares the call that gets a vCPU's EFER and code segment.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn processor_mode(
        interface_version: u32,
        domain: u16,
        vcpu: u32,
    ) -> Result<Self, XenError> {
        let buffer = HypercallBuffer::new(RECORD_AT + domctl::HVM_CPU_BYTES)?;
        let command = domctl::GET_HVM_CONTEXT_PARTIAL;
        let question = Domctl::new(command, interface_version, domain).with(&HvmContextPartial {
            record: domctl::HVM_RECORD_CPU,
            instance: vcpu,
            buffer_bytes: domctl::HVM_CPU_BYTES as u64,
            address: buffer.address(RECORD_AT),
        });
        Ok(DomainCall(buffer).filled(&question))
    }

    /// Prepares the call that gets a vCPU's [`domctl::VcpuInfo`].
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn vcpu_info(interface_version: u32, domain: u16, vcpu: u32) -> Result<Self, XenError> {
        let buffer = HypercallBuffer::new(size_of::<Domctl>())?;
        let question = Domctl::new(domctl::GET_VCPU_INFO, interface_version, domain);
        let question = question.with(&domctl::VcpuInfo::of(vcpu));
        Ok(DomainCall(buffer).filled(&question))
    }

    fn filled(mut self, question: &Domctl) -> Self {
        self.0.bytes_mut()[..size_of::<Domctl>()].copy_from_slice(question.as_bytes());
        self
    }

    /// Makes the call.
    ///
    /// # Errors
    /// Xen's error number.
    pub fn make(&mut self, privcmd: &Privcmd) -> Result<(), i32> {
        let arguments = [self.0.address(0), 0, 0, 0, 0];
        // SAFETY: Xen writes the domctl at the start, and the record behind it up to the size that the domctl states;
        // both lie in our buffer, which only we refer to.
        unsafe { privcmd.hypercall(DOMCTL, arguments) }.map(drop)
    }

    /// Xen's answer to the last call.
    pub fn answer<T: FromBytes>(&self) -> Option<T> {
        read(self.0.bytes(), std::mem::offset_of!(Domctl, payload))
    }

    /// The vCPU's EFER, from a call of [`DomainCall::processor_mode`].
    pub fn efer(&self) -> Option<u64> {
        read(self.0.bytes(), RECORD_AT + domctl::HVM_CPU_EFER)
    }

    /// The attributes of the vCPU's code segment, from the same call.
    pub fn code_attributes(&self) -> Option<u32> {
        read(self.0.bytes(), RECORD_AT + domctl::HVM_CPU_CODE_ATTRIBUTES)
    }
}

/// A structure at `offset`.
pub(super) fn read<T: FromBytes>(bytes: &[u8], offset: usize) -> Option<T> {
    T::read_from_prefix(bytes.get(offset..)?)
        .ok()
        .map(|(value, _)| value)
}

/// XENVER_version: the major number in bits 16 and up, the minor one below.
pub fn version_number(privcmd: &Privcmd) -> Option<u64> {
    // SAFETY: this subcommand takes no address.
    unsafe { privcmd.hypercall(XEN_VERSION, [0; 5]) }.ok()
}

/// XENVER_extraversion: the text after the number, such as `.5`.
pub fn extra_version(privcmd: &Privcmd) -> Option<String> {
    const EXTRA_BYTES: usize = 16; // xen_extraversion_t of version.h
    let buffer = HypercallBuffer::new(EXTRA_BYTES).ok()?;
    let arguments = [1, buffer.address(0), 0, 0, 0];
    // SAFETY: Xen writes this many bytes at the start of our buffer, which only we refer to.
    unsafe { privcmd.hypercall(XEN_VERSION, arguments) }.ok()?;
    let extra = buffer.bytes()[..EXTRA_BYTES].split(|byte| *byte == 0);
    Some(String::from_utf8_lossy(extra.into_iter().next()?).into_owned())
}
