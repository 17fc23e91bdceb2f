//! Frames of another domain, mapped read-only.
//!
//! The guest may write to them at any time, so that they are only ever read word by word with
//! volatile loads, and never handed out as a slice.

use super::XenError;
use super::privcmd::Privcmd;
use std::ptr::NonNull;

/// Bytes of a frame, on both architectures that we know.
pub const FRAME_BYTES: usize = 4096;
/// Words of eight bytes in a frame.
pub const FRAME_WORDS: usize = FRAME_BYTES / 8;

/// Some frames of a domain, next to each other in our memory.
#[derive(Debug)]
pub struct ForeignFrames {
    base: NonNull<u64>,
    present: Box<[bool]>,
}

// SAFETY: the mapping belongs to this value alone and is only read.
unsafe impl Send for ForeignFrames {}

impl ForeignFrames {
    /// Maps `frames` (machine frames of a PV guest, guest frames of any other) of `domain`. A frame
    /// that is not the domain's memory stays absent; that is no error.
    pub fn map(privcmd: &Privcmd, domain: u16, frames: &[u64]) -> Result<Self, XenError> {
        let failed = |errno| XenError::new("map memory of", format!("domain {domain}"), errno);
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
            .ok_or_else(|| XenError::last_os_error("map memory of", format!("domain {domain}")))?;
        let mut mapped = ForeignFrames {
            base,
            present: vec![false; frames.len()].into(),
        };
        let mut errors = vec![0i32; frames.len()];
        let address = base.as_ptr().addr() as u64;
        // SAFETY: address is the start of the mapping just made, which has frames.len() pages.
        unsafe { privcmd.map_batch(domain, address, frames, &mut errors) }.map_err(failed)?;
        for (present, error) in mapped.present.iter_mut().zip(errors) {
            *present = error == 0;
        }
        Ok(mapped)
    }

    /// Whether frame `page` could be mapped.
    pub fn is_present(&self, page: usize) -> bool {
        self.present.get(page).copied().unwrap_or(false)
    }

    /// Word `word` of frame `page`; `None` where there is no such word.
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

    /// Copies the words of frame `page` from `word` on into `out`, whole words, as far as the frame
    /// goes. Returns how many.
    pub fn copy_words(&self, page: usize, word: usize, out: &mut [u64]) -> usize {
        if !self.is_present(page) || word >= FRAME_WORDS {
            return 0;
        }
        let count = out.len().min(FRAME_WORDS - word);
        // SAFETY: page and word were checked against the mapping's extent.
        let start = unsafe { self.base.as_ptr().add(page * FRAME_WORDS + word) };
        for (index, slot) in out[..count].iter_mut().enumerate() {
            // SAFETY: index < count keeps the address inside the frame.
            let at = unsafe { start.add(index) };
            // SAFETY: as in word().
            *slot = unsafe { at.read_volatile() };
        }
        count
    }
}

impl Drop for ForeignFrames {
    fn drop(&mut self) {
        let length = self.present.len().max(1) * FRAME_BYTES;
        // SAFETY: the range is the mapping made in map(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), length) };
    }
}
