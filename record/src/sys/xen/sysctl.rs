//! `XEN_SYSCTL_tbuf_op`: Xen's trace buffers, as a whole (sysctl.h).
//!
//! The payload is the same from Xen 4.7 on; only the interface version differs.

use super::XenError;
use super::call::read;
use super::hypercall_buffer::HypercallBuffer;
use super::privcmd::{Privcmd, SYSCTL};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `XEN_SYSCTL_tbuf_op`.
const TRACE_BUFFERS: u32 = 2;
/// Interface versions known by name: Xen 4.7 to 4.22. Newer ones are tried too.
const KNOWN_VERSIONS: std::ops::RangeInclusive<u32> = 0x0d..=0x16;
/// The newest version that is tried.
const LAST_VERSION_TRIED: u32 = 0x40;
/// Bytes of the mask of processors: ample, and Xen reads only what it has processors for.
const MASK_BYTES: usize = 1024;
/// Offset of that mask in the buffer.
const MASK_AT: usize = 256;

/// What to do with the trace buffers: `XEN_SYSCTL_TBUFOP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceOrder {
    /// Asks for [`TraceInfo`].
    Info,
    /// Traces on all processors.
    AllProcessors,
    /// Traces these events.
    Events(u32),
    /// Allocates so many pages for each processor, once after Xen's start, and starts tracing.
    Pages(u32),
    /// Starts tracing.
    Enable,
    /// Stops tracing. The buffers stay.
    Disable,
}

/// State of the trace buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceInfo {
    /// Events that are traced, if tracing is on.
    pub events: u32,
    /// First machine frame of `struct t_info`; `None` before the buffers were allocated.
    pub frame: Option<u64>,
    /// Pages of `struct t_info`.
    pub pages: usize,
}

/// `struct xen_sysctl_tbuf_op`.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct TraceOp {
    command: u32,
    pad: u32,
    mask_address: u64,
    mask_bits: u32,
    mask_pad: u32,
    events: u32,
    events_pad: u32,
    frame: u64,
    size: u32,
    tail: u32,
}
const _: () = assert!(size_of::<TraceOp>() == 48);

/// `struct xen_sysctl`.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Sysctl {
    command: u32,
    /// Must equal the version that Xen was built with.
    interface_version: u32,
    payload: TraceOp,
    rest: [u8; 80],
}
const _: () = assert!(size_of::<Sysctl>() == 136 && size_of::<Sysctl>() <= MASK_AT);

/// The call about the trace buffers, which can be repeated.
#[derive(Debug)]
pub struct TraceControl {
    buffer: HypercallBuffer,
    interface_version: u32,
}

impl TraceControl {
    /// Prepares the call, and finds the interface version by asking for the buffers' state.
    ///
    /// # Errors
    /// Xen doesn't answer, or doesn't allow it.
    pub fn new(privcmd: &Privcmd) -> Result<Self, XenError> {
        let mut control = TraceControl {
            buffer: HypercallBuffer::new(MASK_AT + MASK_BYTES)?,
            interface_version: 0,
        };
        control.buffer.bytes_mut()[MASK_AT..MASK_AT + MASK_BYTES].fill(0xff);
        let newer = KNOWN_VERSIONS.end() + 1..=LAST_VERSION_TRIED;
        for version in KNOWN_VERSIONS.rev().chain(newer) {
            control.interface_version = version;
            match control.order(privcmd, TraceOrder::Info) {
                Err(libc::EACCES) => {}
                Err(errno) => return Err(failed(errno)),
                Ok(()) => return Ok(control),
            }
        }
        Err(failed(libc::ENOSYS))
    }

    /// Makes the call.
    ///
    /// # Errors
    /// What Xen refused.
    pub fn make(&mut self, privcmd: &Privcmd, order: TraceOrder) -> Result<(), XenError> {
        self.order(privcmd, order).map_err(failed)
    }

    /// Asks for the buffers' state.
    ///
    /// # Errors
    /// Xen doesn't say it.
    pub fn info(&mut self, privcmd: &Privcmd) -> Result<TraceInfo, XenError> {
        self.make(privcmd, TraceOrder::Info)?;
        let payload = std::mem::offset_of!(Sysctl, payload);
        let answer: TraceOp =
            read(self.buffer.bytes(), payload).ok_or_else(|| failed(libc::EIO))?;
        Ok(TraceInfo {
            events: answer.events,
            frame: Some(answer.frame).filter(|&frame| frame != 0),
            pages: answer.size as usize / super::foreign::FRAME_BYTES,
        })
    }

    fn order(&mut self, privcmd: &Privcmd, order: TraceOrder) -> Result<(), i32> {
        let (command, events, size) = match order {
            TraceOrder::Info => (0, 0, 0),
            TraceOrder::AllProcessors => (1, 0, 0),
            TraceOrder::Events(events) => (2, events, 0),
            TraceOrder::Pages(pages) => (3, 0, pages),
            TraceOrder::Enable => (4, 0, 0),
            TraceOrder::Disable => (5, 0, 0),
        };
        let question = Sysctl {
            command: TRACE_BUFFERS,
            interface_version: self.interface_version,
            payload: TraceOp {
                command,
                pad: 0,
                mask_address: self.buffer.address(MASK_AT),
                mask_bits: 8 * MASK_BYTES as u32,
                mask_pad: 0,
                events,
                events_pad: 0,
                frame: 0,
                size,
                tail: 0,
            },
            rest: [0; 80],
        };
        self.buffer.bytes_mut()[..size_of::<Sysctl>()].copy_from_slice(question.as_bytes());
        let arguments = [self.buffer.address(0), 0, 0, 0, 0];
        // SAFETY: Xen writes the sysctl at the start of our buffer and reads the mask behind it, of which the sysctl
        // states the size; only we refer to the buffer.
        unsafe { privcmd.hypercall(SYSCTL, arguments) }.map(drop)
    }
}

fn failed(errno: i32) -> XenError {
    XenError::new("use", "Xen's trace buffers", errno)
}
