//! The `privcmd` device: its ioctl numbers, and the hypercall that it forwards. The modules [`call`](super::call) and
//! [`fetch`](super::fetch) are responsible for the addresses in a call.
//!
//! Numbers and structures: Linux, include/uapi/xen/privcmd.h.

use super::XenError;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};

/// Numbers of hypercalls: xen.h, `__HYPERVISOR_*`.
pub(super) const MULTICALL: u64 = 13;
/// `__HYPERVISOR_xen_version`.
pub(super) const XEN_VERSION: u64 = 17;
/// `__HYPERVISOR_sysctl`.
pub(super) const SYSCTL: u64 = 35;
/// `__HYPERVISOR_domctl`.
pub(super) const DOMCTL: u64 = 36;

/// `_IOC(_IOC_NONE, 'P', number, size)`.
const fn ioctl_number(number: u64, size: usize) -> u64 {
    (size as u64) << 16 | (b'P' as u64) << 8 | number
}

/// `struct privcmd_hypercall`.
#[repr(C)]
struct Hypercall {
    op: u64,
    arguments: [u64; 5],
}

/// `struct privcmd_mmapbatch_v2`.
#[repr(C)]
struct MapBatch {
    count: u32,
    domain: u16,
    address: u64,
    frames: *const u64,
    errors: *mut i32,
}

const IOCTL_HYPERCALL: u64 = ioctl_number(0, size_of::<Hypercall>());
const IOCTL_MMAPBATCH_V2: u64 = ioctl_number(4, size_of::<MapBatch>());
const _: () = assert!(IOCTL_HYPERCALL == 0x30_5000);
const _: () = assert!(IOCTL_MMAPBATCH_V2 == 0x20_5004);

/// The open device.
#[derive(Debug)]
pub struct Privcmd {
    file: File,
}

/// Paths of the device: the current one, and that of kernels before 3.3.
const PATHS: [&str; 2] = ["/dev/xen/privcmd", "/proc/xen/privcmd"];

impl Privcmd {
    /// Opens the device.
    pub fn open() -> Result<Self, XenError> {
        let mut first_error = None;
        for path in PATHS {
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => return Ok(Privcmd { file }),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    first_error.get_or_insert(XenError::new("open", path, errno));
                }
            }
        }
        Err(first_error.unwrap_or_else(|| XenError::new("open", PATHS[0], libc::ENOENT)))
    }

    /// The descriptor, for mappings.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Makes one hypercall. Returns Xen's answer, or its error number.
    ///
    /// # Safety
    /// The memory that Xen writes to because of these arguments, directly or through structures that they point to,
    /// must be mapped, and nothing may refer to it during the call.
    pub(super) unsafe fn hypercall(&self, op: u64, arguments: [u64; 5]) -> Result<u64, i32> {
        let call = Hypercall { op, arguments };
        // SAFETY: the number belongs to this device, whose driver reads the structure and writes nothing itself; the
        // caller vouches for the memory that Xen writes to.
        let answer =
            unsafe { libc::ioctl(self.file.as_raw_fd(), IOCTL_HYPERCALL as _, &raw const call) };
        if answer >= 0 {
            return Ok(answer as u64);
        }
        Err(nix::errno::Errno::last_raw())
    }

    /// Fills the pages at `address`, an untouched mapping of this device, with frames of `domain`;
    /// `errors[i]` is 0 or the negative error number for frame i.
    ///
    /// # Safety
    /// `address` must be the start of a live mapping of this device of `frames.len()` pages.
    pub(super) unsafe fn map_batch(
        &self,
        domain: u16,
        address: u64,
        frames: &[u64],
        errors: &mut [i32],
    ) -> Result<(), i32> {
        assert_eq!(frames.len(), errors.len());
        let batch = MapBatch {
            count: frames.len() as u32,
            domain,
            address,
            frames: frames.as_ptr(),
            errors: errors.as_mut_ptr(),
        };
        // SAFETY: the number belongs to this device; both arrays have `count` elements; the caller
        // vouches for the mapping.
        let answer = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                IOCTL_MMAPBATCH_V2 as _,
                &raw const batch,
            )
        };
        if answer >= 0 {
            return Ok(());
        }
        match nix::errno::Errno::last_raw() {
            libc::ENOENT => Ok(()), // some frames are paged out; errors[] says which
            errno => Err(errno),
        }
    }
}
