//! Frames of another domain, mapped read-only.
//!
//! The guest may write to them at any time, so that they are only read with volatile loads or by instructions of
//! our own, and never borrowed as a slice.

use super::privcmd::Privcmd;
use std::ptr::NonNull;

/// Bytes of a frame, on both architectures.
pub const FRAME_BYTES: usize = 4096;
/// Words of eight bytes in a frame.
pub const FRAME_WORDS: usize = FRAME_BYTES / 8;
/// Bytes that are copied at once.
const LINE_BYTES: usize = 64;

/// Frames of a domain, mapped contiguously.
#[derive(Debug)]
pub struct ForeignFrames {
    base: NonNull<u64>,
    pages: usize,
    /// A bit for each page that is there.
    present: u64,
}

/// Most frames in one mapping.
pub const MOST_BATCH: usize = 64;

// SAFETY: the mapping belongs to this value alone; it has no tie to the thread that made it.
unsafe impl Send for ForeignFrames {}

impl ForeignFrames {
    /// Maps `frames` (machine frames of a PV guest, guest frames of any other; at most [`MOST_BATCH`]) of `domain`. A
    /// frame that is not the domain's memory stays absent; that is no error. Allocates nothing.
    pub fn map(privcmd: &Privcmd, domain: u16, frames: &[u64]) -> Result<Self, i32> {
        let frames = &frames[..frames.len().min(MOST_BATCH)];
        let length = frames.len().max(1) * FRAME_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                privcmd.descriptor(),
                0,
            )
        };
        let base = NonNull::new(base.cast::<u64>())
            .filter(|base| base.as_ptr().cast() != libc::MAP_FAILED)
            .ok_or_else(nix::errno::Errno::last_raw)?;
        let mut mapped = ForeignFrames {
            base,
            pages: frames.len(),
            present: 0,
        };
        let mut errors = [0i32; MOST_BATCH];
        let errors = &mut errors[..frames.len()];
        let address = base.as_ptr().addr() as u64;
        // SAFETY: address is the start of the mapping just made, which has frames.len() pages.
        unsafe { privcmd.map_batch(domain, address, frames, errors) }?;
        for (page, error) in errors.iter().enumerate() {
            mapped.present |= u64::from(*error == 0) << page;
        }
        Ok(mapped)
    }

    /// Whether frame `page` could be mapped.
    pub fn is_present(&self, page: usize) -> bool {
        // No page from `pages` on has a bit.
        page < MOST_BATCH && self.present >> page & 1 != 0
    }

    /// Word `word` of frame `page`; `None` where there is no such word.
    #[inline]
    pub fn word(&self, page: usize, word: usize) -> Option<u64> {
        if !self.is_present(page) || word >= FRAME_WORDS {
            return None;
        }
        // SAFETY: page and word were checked against the mapping's extent.
        let at = unsafe { self.base.as_ptr().add(page * FRAME_WORDS + word) };
        // SAFETY: at points to an aligned word of a mapped, present page; a volatile load may see any
        // value that the guest writes meanwhile, and any value is a valid u64.
        Some(unsafe { at.read_volatile() })
    }

    /// Copies bytes of frame `page` from `offset` on into `out`, as far as the frame goes. Returns how many.
    pub fn copy_bytes(&self, page: usize, offset: usize, out: &mut [u8]) -> usize {
        if !self.is_present(page) || offset >= FRAME_BYTES {
            return 0;
        }
        let count = out.len().min(FRAME_BYTES - offset);
        let mut out = &mut out[..count];
        let mut word = offset / 8;
        let into_word = offset % 8;
        if into_word > 0 {
            let bytes = self.word(page, word).unwrap_or(0).to_le_bytes();
            let head = count.min(8 - into_word);
            out[..head].copy_from_slice(&bytes[into_word..into_word + head]);
            out = &mut out[head..];
            word += 1;
        }
        // SAFETY: the page was checked, and the word is in it or just behind it: at most the end of the mapping.
        let start = unsafe { self.base.as_ptr().add(page * FRAME_WORDS + word) };
        let (lines, rest) = out.as_chunks_mut::<LINE_BYTES>();
        for (index, line) in lines.iter_mut().enumerate() {
            // SAFETY: `out` was cut to what is left of the frame, so that all its lines lie in it.
            let from = unsafe { start.add(index * LINE_BYTES / 8) };
            // SAFETY: a line of a mapped, present page.
            unsafe { copy_line(from, line) };
        }
        word += lines.len() * (LINE_BYTES / 8);
        let (whole, tail) = rest.as_chunks_mut::<8>();
        for slot in whole {
            *slot = self.word(page, word).unwrap_or(0).to_le_bytes();
            word += 1;
        }
        if !tail.is_empty() {
            let bytes = self.word(page, word).unwrap_or(0).to_le_bytes();
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
        count
    }
}

/// Copies a line with few instructions, since the guest is frozen meanwhile.
///
/// # Safety
/// There are so many bytes at `from`, which may change meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_line(from: *const u64, line: &mut [u8; LINE_BYTES]) {
    // SAFETY: reads the line at `from`, which the caller answers for, and writes all bytes of `line`.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            from = in(reg) from,
            to = in(reg) line.as_mut_ptr(),
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// The same, a word at a time.
///
/// # Safety
/// There are so many bytes at `from`, aligned, which may change meanwhile.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_line(from: *const u64, line: &mut [u8; LINE_BYTES]) {
    for (index, slot) in line.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: the line has so many words.
        let at = unsafe { from.add(index) };
        // SAFETY: as the caller says; any value is a valid u64.
        *slot = unsafe { at.read_volatile() }.to_le_bytes();
    }
}

impl Drop for ForeignFrames {
    fn drop(&mut self) {
        let length = self.pages.max(1) * FRAME_BYTES;
        // SAFETY: the range is the mapping made in map(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), length) };
    }
}
