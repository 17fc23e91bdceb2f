//! Xen's trace buffers, mapped: for each processor a ring of bytes, which Xen fills and we empty (trace.h).
//!
//! Xen writes at any time, so bytes are read with volatile loads and never borrowed. Only Xen and tools of dom0 write
//! there; still, every position is compared with the ring's extent.

use super::XenError;
use super::foreign::FRAME_BYTES;
use super::privcmd::Privcmd;
use super::sysctl::TraceInfo;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `DOMID_XEN` of xen.h: owner of the frames.
const DOMID_XEN: u16 = 0x7ff2;
/// Bytes of `struct t_buf`, before the ring: the consumer's position and the producer's.
const HEAD_BYTES: usize = 8;
/// Most pages of `struct t_info`, whose offsets have 16 bits and count words of four bytes.
const MOST_INFO_PAGES: usize = 1 + 2 * (1 << 16) * 4 / FRAME_BYTES;
/// Most frames mapped in one call.
const MOST_BATCH: usize = 256;

/// The mapped buffers of all processors.
#[derive(Debug)]
pub struct TraceBuffers {
    pages: Mapping,
    /// The processor of each buffer, by index.
    processors: Vec<u32>,
    pages_each: usize,
}

/// Positions of a ring, each below twice its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPositions {
    /// Where the next byte is to be read.
    pub read: u32,
    /// Where Xen writes next.
    pub written: u32,
}

impl TraceBuffers {
    /// Maps the buffers that `info` describes.
    ///
    /// # Errors
    /// There are none, or they can't be mapped.
    pub fn map(privcmd: &Privcmd, info: &TraceInfo) -> Result<Self, XenError> {
        let failed = |errno| XenError::new("map", "Xen's trace buffers", errno);
        let first = info.frame.ok_or_else(|| failed(libc::ENOENT))?;
        if !(1..=MOST_INFO_PAGES).contains(&info.pages) {
            return Err(failed(libc::EPROTO));
        }
        let frames: Vec<u64> = (first..).take(info.pages).collect();
        let table = Mapping::of(privcmd, &frames, libc::PROT_READ).map_err(failed)?;
        let mut bytes = vec![0; info.pages * FRAME_BYTES];
        table.copy(0, &mut bytes);
        let found = buffers_of(&bytes).ok_or_else(|| failed(libc::EPROTO))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Ok(TraceBuffers {
            pages: Mapping::of(privcmd, &found.frames, access).map_err(failed)?,
            processors: found.processors,
            pages_each: found.pages_each,
        })
    }

    /// The processor of each buffer, by index.
    pub fn processors(&self) -> &[u32] {
        &self.processors
    }

    /// Bytes of each ring.
    pub fn ring_bytes(&self) -> u32 {
        (self.pages_each * FRAME_BYTES - HEAD_BYTES) as u32
    }

    /// The positions of ring `index`.
    ///
    /// # Panics
    /// If there is no such ring. That is a bug of the caller.
    pub fn positions(&self, index: usize) -> RingPositions {
        // Acquire: the bytes before that position were written before it.
        let at = self.start(index);
        RingPositions {
            read: self.pages.number(at).load(Ordering::Relaxed),
            written: self.pages.number(at + 4).load(Ordering::Acquire),
        }
    }

    /// Copies bytes of ring `index` from offset `from` on.
    ///
    /// # Panics
    /// If they are not in the ring. That is a bug of the caller.
    pub fn read(&self, index: usize, from: u32, into: &mut [u8]) {
        assert!(
            from as usize + into.len() <= self.ring_bytes() as usize,
            "{from} + {}",
            into.len()
        );
        let at = self.start(index) + HEAD_BYTES + from as usize;
        self.pages.copy(at, into);
    }

    /// Lets Xen write again where ring `index` was read: up to position `read`.
    ///
    /// # Panics
    /// If there is no such ring. That is a bug of the caller.
    pub fn release(&self, index: usize, read: u32) {
        // Release: the bytes are read before Xen may write there.
        let at = self.start(index);
        self.pages.number(at).store(read, Ordering::Release);
    }

    fn start(&self, index: usize) -> usize {
        assert!(index < self.processors.len(), "ring {index}");
        index * self.pages_each * FRAME_BYTES
    }
}

/// What `struct t_info` says.
#[derive(Debug, PartialEq, Eq)]
struct Buffers {
    processors: Vec<u32>,
    pages_each: usize,
    /// The machine frames of all buffers, one buffer after the other.
    frames: Vec<u64>,
}

/// Reads `struct t_info`: pages of each buffer, then for each possible processor the place of its list of frames, in
/// words of four bytes, or 0. The lists begin where the first one does. `None` if a list is not in the bytes.
fn buffers_of(bytes: &[u8]) -> Option<Buffers> {
    let (halves, _) = bytes.as_chunks::<2>();
    let (words, _) = bytes.as_chunks::<4>();
    let (pages, places) = halves.split_first()?;
    let pages_each = usize::from(u16::from_ne_bytes(*pages));
    let mut found = Buffers {
        processors: Vec::new(),
        pages_each,
        frames: Vec::new(),
    };
    let mut lists_at = words.len();
    for (processor, place) in places.iter().enumerate() {
        // The places end where the lists begin.
        if (processor + 1) * 2 >= lists_at * 4 {
            break;
        }
        let place = usize::from(u16::from_ne_bytes(*place));
        if place == 0 {
            continue;
        }
        lists_at = lists_at.min(place);
        let list = words.get(place..place + pages_each)?;
        found.processors.push(processor as u32);
        let frames = list.iter().map(|word| u64::from(u32::from_ne_bytes(*word)));
        found.frames.extend(frames);
    }
    (!found.frames.is_empty()).then_some(found)
}

/// Frames of Xen, mapped one after the other.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone; it has no tie to the thread that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(privcmd: &Privcmd, frames: &[u64], access: i32) -> Result<Self, i32> {
        let bytes = frames.len() * FRAME_BYTES;
        let anywhere = std::ptr::null_mut();
        let (flags, device) = (libc::MAP_SHARED, privcmd.descriptor());
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(anywhere, bytes, access, flags, device, 0) };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED);
        let base = base.ok_or_else(nix::errno::Errno::last_raw)?;
        let mapping = Mapping { base, bytes };
        let mut errors = vec![0; frames.len()];
        let pieces = frames.chunks(MOST_BATCH).zip(errors.chunks_mut(MOST_BATCH));
        for (number, (frames, errors)) in pieces.enumerate() {
            let at = base.as_ptr().addr() + number * MOST_BATCH * FRAME_BYTES;
            // SAFETY: the address is in the mapping just made, which has as many pages from there on.
            unsafe { privcmd.map_batch(DOMID_XEN, at as u64, frames, errors) }?;
            // A page without a frame must not be touched.
            if let Some(error) = errors.iter().find(|error| **error != 0) {
                return Err(error.saturating_neg());
            }
        }
        Ok(mapping)
    }

    /// The number at offset `at`, a multiple of four.
    fn number(&self, at: usize) -> &AtomicU32 {
        assert!(
            at + 4 <= self.bytes && at.is_multiple_of(4),
            "number at {at}"
        );
        // SAFETY: the offset is in the mapping.
        let at = unsafe { self.base.as_ptr().add(at) }.cast::<u32>();
        // SAFETY: aligned, mapped as long as self lives, and accessed as an atomic by us; Xen writes it whole.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Copies words of four bytes from offset `at` on.
    fn copy(&self, at: usize, into: &mut [u8]) {
        assert!(
            at.is_multiple_of(4) && at + into.len() <= self.bytes,
            "{} bytes at {at}",
            into.len()
        );
        let (words, rest) = into.as_chunks_mut::<4>();
        assert!(rest.is_empty(), "{} bytes more", rest.len());
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: the offset was compared with the mapping's extent.
            let from = unsafe { self.base.as_ptr().add(at + 4 * index) }.cast::<u32>();
            // SAFETY: aligned and mapped; any value is a valid u32.
            *word = unsafe { from.read_volatile() }.to_ne_bytes();
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in of(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct t_info` of so many bytes: pages of a buffer, places of lists, and words of lists.
    fn table(halves: &[u16], words: &[(usize, u32)], bytes: usize) -> Vec<u8> {
        let mut table = vec![0; bytes];
        for (index, half) in halves.iter().enumerate() {
            table[2 * index..2 * index + 2].copy_from_slice(&half.to_ne_bytes());
        }
        for (index, word) in words {
            table[4 * index..4 * index + 4].copy_from_slice(&word.to_ne_bytes());
        }
        table
    }

    #[test]
    fn the_table_of_buffers_is_read() {
        let words = [(16, 0x100), (17, 0x101), (20, 0x200), (21, 0x201)];
        let found = buffers_of(&table(&[2, 16, 0, 20], &words, 4096)).unwrap();
        assert_eq!(found.processors, [0, 2]);
        assert_eq!(found.frames, [0x100, 0x101, 0x200, 0x201]);
    }

    #[test]
    fn a_table_that_leads_beyond_its_end_has_no_buffers() {
        assert_eq!(buffers_of(&[]), None);
        assert_eq!(buffers_of(&[0; 64]), None);
        assert_eq!(buffers_of(&table(&[2, 15], &[], 64)), None);
        assert_eq!(buffers_of(&table(&[2, u16::MAX], &[], 4096)), None);
        assert_eq!(buffers_of(&table(&[u16::MAX, 1], &[], 4096)), None);
        assert_eq!(buffers_of(&table(&[0, 16], &[], 4096)), None);
    }
}
