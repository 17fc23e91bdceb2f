//! An event channel to another domain or to Xen, by `/dev/xen/evtchn`, which unprivileged domains also have.
//!
//! Numbers and structures: Linux, include/uapi/xen/evtchn.h.

use super::open_device;
use nix::errno::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const PATH: &str = "/dev/xen/evtchn";
/// Most ports that one read takes from the device.
const MOST_PORTS: usize = 16;

/// `struct ioctl_evtchn_bind_interdomain`.
#[repr(C)]
struct BindInterdomain {
    domain: u32,
    port: u32,
}

/// `struct ioctl_evtchn_bind_virq`.
#[repr(C)]
struct BindVirq {
    virq: u32,
}

/// `VIRQ_TBUF` of xen.h: a trace buffer is half full. Xen gives it to one program at a time.
const VIRQ_TRACE_BUFFER: u32 = 4;

/// `struct ioctl_evtchn_notify`.
#[repr(C)]
struct Notify {
    port: u32,
}

/// `_IOC(_IOC_NONE, 'E', number, size)`.
const fn ioctl_number(number: u64, size: usize) -> u64 {
    (size as u64) << 16 | (b'E' as u64) << 8 | number
}

const BIND_INTERDOMAIN: u64 = ioctl_number(1, size_of::<BindInterdomain>());
const BIND_VIRQ: u64 = ioctl_number(0, size_of::<BindVirq>());
const NOTIFY: u64 = ioctl_number(4, size_of::<Notify>());
const _: () = assert!(BIND_INTERDOMAIN == 0x8_4501 && NOTIFY == 0x4_4504);

/// One channel, closed on drop. Its descriptor is readable when the other end has sent an event.
#[derive(Debug)]
pub struct EventChannel {
    device: File,
    port: u32,
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl EventChannel {
    /// Binds to `port` of `domain`, which offers it to us.
    ///
    /// # Errors
    /// The error of the kernel or Xen: `EINVAL` if the port isn't offered to this domain, or is bound already.
    pub fn bind(domain: u16, port: u32) -> Result<Self, Errno> {
        let device = open_device(PATH, true)?;
        let question = BindInterdomain {
            domain: domain.into(),
            port,
        };
        // SAFETY: the number belongs to this device, whose driver reads the structure and writes nothing.
        let answer = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                BIND_INTERDOMAIN as _,
                &raw const question,
            )
        };
        let port = u32::try_from(answer).map_err(|_| Errno::last())?;
        Ok(EventChannel { device, port })
    }

    /// Binds the event that belongs to whoever reads Xen's trace buffers.
    ///
    /// # Errors
    /// The error of the kernel or Xen: `EEXIST` if another program has it.
    pub fn bind_trace_buffers() -> Result<Self, Errno> {
        let device = open_device(PATH, true)?;
        let question = BindVirq {
            virq: VIRQ_TRACE_BUFFER,
        };
        // SAFETY: the number belongs to this device, whose driver reads the structure and writes nothing.
        let answer =
            unsafe { libc::ioctl(device.as_raw_fd(), BIND_VIRQ as _, &raw const question) };
        let port = u32::try_from(answer).map_err(|_| Errno::last())?;
        Ok(EventChannel { device, port })
    }

    /// The port number of our end.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sends an event. Xen drops it silently if the other end has gone.
    pub fn notify(&self) {
        let question = Notify { port: self.port };
        // SAFETY: the number belongs to this device, whose driver reads the structure and writes nothing.
        unsafe { libc::ioctl(self.device.as_raw_fd(), NOTIFY as _, &raw const question) };
    }

    /// Takes the events that came, so that the next one is reported again.
    pub fn acknowledge(&self) {
        let mut ports = [0; 4 * MOST_PORTS];
        let mut device = &self.device;
        if let Ok(count) = device.read(&mut ports) {
            // The kernel keeps a port masked until its number is written back.
            let _ = device.write(&ports[..count]);
        }
    }
}
