//! Pages that another domain shares with this one, by `/dev/xen/gntdev`, which unprivileged domains also have.
//!
//! The other domain may write to them at any time and is not trusted. Numbers are read and written as atomics, bytes
//! with volatile accesses. Nothing is ever borrowed, and every offset is compared with the pages' extent. Numbers and
//! structures: Linux, include/uapi/xen/gntdev.h.

use super::open_device;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

const PATH: &str = "/dev/xen/gntdev";
/// Bytes of a granted page, whatever page size the kernel uses.
pub const PAGE_BYTES: usize = 4096;
/// Most pages of one mapping.
pub const MOST_PAGES: usize = 256;

/// `struct ioctl_gntdev_grant_ref`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GrantReference {
    domain: u32,
    reference: u32,
}

/// `struct ioctl_gntdev_map_grant_ref`, with room for as many as we map.
#[repr(C)]
struct MapGrants {
    count: u32,
    pad: u32,
    index: u64,
    references: [GrantReference; MOST_PAGES],
}

/// `struct ioctl_gntdev_unmap_notify`.
#[repr(C)]
struct UnmapNotify {
    index: u64,
    action: u32,
    port: u32,
}

/// `_IOC(_IOC_NONE, 'G', number, size)`.
const fn ioctl_number(number: u64, size: usize) -> u64 {
    (size as u64) << 16 | (b'G' as u64) << 8 | number
}

/// The size counts one reference, as the kernel's structure is declared with one.
const MAP_GRANT_REF: u64 = ioctl_number(0, 16 + size_of::<GrantReference>());
const SET_UNMAP_NOTIFY: u64 = ioctl_number(7, size_of::<UnmapNotify>());
const _: () = assert!(MAP_GRANT_REF == 0x18_4700 && SET_UNMAP_NOTIFY == 0x10_4707);
/// UNMAP_NOTIFY_CLEAR_BYTE and UNMAP_NOTIFY_SEND_EVENT.
const CLEAR_BYTE_AND_SEND_EVENT: u32 = 3;

/// Pages that this process shares with another domain, unmapped on drop.
#[derive(Debug)]
pub struct SharedPages {
    base: NonNull<u8>,
    bytes: usize,
    /// The device, and the offset of the pages in it.
    mapped: Option<(File, u64)>,
}

// SAFETY: the mapping belongs to this value alone; it has no tie to the thread that made it.
unsafe impl Send for SharedPages {}
// SAFETY: all accesses are atomic or volatile, as another domain writes there at any time anyway.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Maps the pages that `domain` has granted by these references, one after the other.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` if a page is not granted to this domain.
    pub fn map(domain: u16, references: &[u32]) -> Result<Self, Errno> {
        if references.is_empty() || references.len() > MOST_PAGES {
            return Err(Errno::EINVAL);
        }
        let device = open_device(PATH, false)?;
        let mut question = MapGrants {
            count: references.len() as u32,
            pad: 0,
            index: 0,
            references: [GrantReference {
                domain: domain.into(),
                reference: 0,
            }; MOST_PAGES],
        };
        for (to, &reference) in question.references.iter_mut().zip(references) {
            to.reference = reference;
        }
        // SAFETY: the number belongs to this device, whose driver reads `count` references, for which there is room,
        // and writes the index.
        let answer =
            unsafe { libc::ioctl(device.as_raw_fd(), MAP_GRANT_REF as _, &raw mut question) };
        if answer < 0 {
            return Err(Errno::last());
        }
        let bytes = references.len() * PAGE_BYTES;
        let base = map(bytes, libc::MAP_SHARED, Some((&device, question.index)))?;
        Ok(SharedPages {
            base,
            bytes,
            mapped: Some((device, question.index)),
        })
    }

    /// Pages of our own that stand in for a domain's in tests.
    #[cfg(test)]
    pub fn of_our_own(pages: usize) -> Self {
        let bytes = pages * PAGE_BYTES;
        let base = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None).unwrap();
        SharedPages {
            base,
            bytes,
            mapped: None,
        }
    }

    /// Makes the kernel write 0 at offset `at` and send an event to our `port` once these pages are unmapped, however
    /// this process ends.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn tell_end(&self, at: usize, port: u32) -> Result<(), Errno> {
        let Some((device, index)) = &self.mapped else {
            return Ok(());
        };
        let question = UnmapNotify {
            index: index + at as u64,
            action: CLEAR_BYTE_AND_SEND_EVENT,
            port,
        };
        // SAFETY: the number belongs to this device, whose driver reads the structure and writes nothing now; it
        // compares the offset with its mappings.
        let answer = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                SET_UNMAP_NOTIFY as _,
                &raw const question,
            )
        };
        if answer < 0 {
            return Err(Errno::last());
        }
        Ok(())
    }

    /// The address of a `T` at offset `at`.
    ///
    /// # Panics
    /// If it is not in these pages or not aligned. That is a bug of the caller.
    fn place<T>(&self, at: usize) -> *mut T {
        assert!(
            at.is_multiple_of(align_of::<T>()) && at + size_of::<T>() <= self.bytes,
            "{at}"
        );
        // SAFETY: it was compared with the mapping's extent.
        unsafe { self.base.as_ptr().add(at) }.cast()
    }

    fn byte_at(&self, at: usize) -> &AtomicU8 {
        // SAFETY: an aligned address in pages that stay mapped as long as self lives.
        unsafe { AtomicU8::from_ptr(self.place(at)) }
    }

    fn word_at(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.place(at)) }
    }

    /// The byte at `at`.
    pub fn byte(&self, at: usize) -> u8 {
        self.byte_at(at).load(Ordering::SeqCst)
    }

    /// Writes a byte.
    pub fn set_byte(&self, at: usize, value: u8) {
        self.byte_at(at).store(value, Ordering::SeqCst);
    }

    /// Sets bits of the byte at `at`.
    pub fn add_bits(&self, at: usize, bits: u8) {
        self.byte_at(at).fetch_or(bits, Ordering::SeqCst);
    }

    /// Clears bits of the byte at `at`; returns whether any was set.
    pub fn take_bits(&self, at: usize, bits: u8) -> bool {
        self.byte_at(at).fetch_and(!bits, Ordering::SeqCst) & bits != 0
    }

    /// The number of two bytes at `at`.
    pub fn half(&self, at: usize) -> u16 {
        // SAFETY: as in byte_at().
        u16::from_le(unsafe { AtomicU16::from_ptr(self.place(at)) }.load(Ordering::SeqCst))
    }

    /// The number of four bytes at `at`. Everything that its writer wrote before it is visible after it.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le(self.word_at(at).load(Ordering::SeqCst))
    }

    /// Writes a number of four bytes. A reader that sees it also sees everything that we wrote before it.
    pub fn set_word(&self, at: usize, value: u32) {
        self.word_at(at).store(value.to_le(), Ordering::SeqCst);
    }

    /// Copies bytes from `at` on into `out`.
    ///
    /// # Panics
    /// If they are not in these pages. That is a bug of the caller.
    pub fn copy_out(&self, at: usize, out: &mut [u8]) {
        for (place, byte) in (at..).zip(out) {
            let from = self.place::<u8>(place);
            // SAFETY: an address in the mapping; any value is a valid byte.
            *byte = unsafe { from.read_volatile() };
        }
    }

    /// Copies `bytes` to `at` and on.
    ///
    /// # Panics
    /// If they don't fit into these pages. That is a bug of the caller.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (place, &byte) in (at..).zip(bytes) {
            let to = self.place::<u8>(place);
            // SAFETY: an address in the mapping, which nothing of ours borrows.
            unsafe { to.write_volatile(byte) };
        }
    }
}

/// Makes a new mapping, of an offset in a device if one is given.
fn map(bytes: usize, flags: i32, device: Option<(&File, u64)>) -> Result<NonNull<u8>, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (fd, offset) = device.map_or((-1, 0), |(file, index)| (file.as_raw_fd(), index));
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
    if base == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    NonNull::new(base.cast()).ok_or(Errno::ENOMEM)
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in map(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
