//! Memory that a hypercall may point to: resident, never copied on fork, page-aligned.
//!
//! `/dev/xen/hypercall` provides pages that the kernel never migrates. Where it is missing (before Linux 4.18), locked
//! shared memory serves as well.

use super::XenError;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A block of bytes that Xen can read and write.
#[derive(Debug)]
pub struct HypercallBuffer {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone; it has no tie to the thread that made it.
unsafe impl Send for HypercallBuffer {}

/// Unit in which memory is touched and locked.
const PAGE_BYTES: usize = 4096;

impl HypercallBuffer {
    /// A zeroed buffer of at least `bytes` bytes.
    pub fn new(bytes: usize) -> Result<Self, XenError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/xen/hypercall")
            .ok();
        let base = match device.as_ref().and_then(|device| map(bytes, Some(device))) {
            Some(base) => base,
            None => map(bytes, None).ok_or_else(|| {
                XenError::last_os_error("map memory for hypercalls", format!("({bytes} bytes)"))
            })?,
        };
        let mut buffer = HypercallBuffer { base, bytes };
        // SAFETY: the range is the mapping just made; it stays in this process, and only children lack it.
        unsafe { libc::madvise(buffer.start(), bytes, libc::MADV_DONTFORK) };
        buffer.bytes_mut().fill(0);
        Ok(buffer)
    }

    fn start(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// The address of byte `offset`, for Xen.
    ///
    /// # Panics
    /// If the offset is outside the buffer. That is a bug of the caller.
    pub fn address(&self, offset: usize) -> u64 {
        assert!(
            offset < self.bytes,
            "offset {offset} of {} bytes",
            self.bytes
        );
        self.base.as_ptr().addr() as u64 + offset as u64
    }

    /// Its contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: base points to `bytes` mapped bytes for as long as self lives (a forked child lacks them, and never
        // returns to our code: `ChildProcess::start`); Xen writes there only in calls of `call` and `fetch`, which
        // borrow the buffer mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// Its contents, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in bytes(), and &mut self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

fn map(bytes: usize, device: Option<&File>) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (flags, fd) = match device {
        Some(device) => (libc::MAP_SHARED, device.as_raw_fd()),
        None => (
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_LOCKED,
            -1,
        ),
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(base.cast())
}

impl Drop for HypercallBuffer {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in new(), and nothing refers to it any more.
        unsafe { libc::munmap(self.start(), self.bytes) };
    }
}
