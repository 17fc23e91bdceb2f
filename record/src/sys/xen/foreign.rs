//! Frames of another domain, mapped read-only, one after the other in a reserved range of addresses. Where no frame is
//! mapped, the range holds zeros, so that an address that once was a frame's can always be read.
//!
//! The guest may write to them at any time. So they are only read with volatile loads or by instructions of our own,
//! and never borrowed as a slice.

use super::privcmd::Privcmd;
use std::ptr::NonNull;

/// Bytes of a frame, on both architectures.
pub const FRAME_BYTES: usize = 4096;
/// Words of eight bytes in a frame.
pub const FRAME_WORDS: usize = FRAME_BYTES / 8;

/// Room for frames of a domain.
#[derive(Debug)]
pub struct ForeignFrames {
    base: NonNull<u64>,
    /// Number of reserved pages; 0 if the reservation failed.
    pages: usize,
    /// Number of these that were used for frames.
    used: usize,
}

/// Most frames mapped at a time.
pub const MOST_BATCH: usize = 64;

// SAFETY: the mapping belongs to this value alone; it has no tie to the thread that made it.
unsafe impl Send for ForeignFrames {}

impl ForeignFrames {
    /// Reserves room for so many frames. If the reservation fails, there is no room, and nothing can be mapped.
    pub fn new(pages: usize) -> Self {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { zeros(anywhere, pages, 0) };
        ForeignFrames {
            pages: base.map_or(0, |_| pages),
            base: base.unwrap_or(NonNull::dangling()),
            used: 0,
        }
    }

    /// Maps `frames` (machine frames of a PV guest, guest frames of any other; at most [`MOST_BATCH`]) of `domain`.
    /// `places[i]` is the page of frame i, or `None` if that is not the domain's memory. Allocates nothing.
    pub fn map(
        &mut self,
        privcmd: &Privcmd,
        domain: u16,
        frames: &[u64],
        places: &mut [Option<u32>; MOST_BATCH],
    ) {
        let frames = &frames[..frames.len().min(MOST_BATCH)];
        places.fill(None);
        let mut errors = [0i32; MOST_BATCH];
        if self.fill(privcmd, domain, frames, &mut errors).is_err() {
            return;
        }
        let is_there = |error: &i32| *error == 0;
        let count = errors[..frames.len()]
            .iter()
            .filter(|error| is_there(error))
            .count();
        if count < frames.len() {
            // Pages without a frame can't be read, and share one mapping with the others. The others get a new one.
            self.empty(self.used, frames.len());
            let mut present = [0; MOST_BATCH];
            let found = frames
                .iter()
                .zip(&errors)
                .filter(|(_, error)| is_there(error));
            for (place, (frame, _)) in present.iter_mut().zip(found) {
                *place = *frame;
            }
            let mut again = [0i32; MOST_BATCH];
            if count == 0
                || self
                    .fill(privcmd, domain, &present[..count], &mut again)
                    .is_err()
            {
                return;
            }
            if !again[..count].iter().all(is_there) {
                return self.empty(self.used, count);
            }
        }
        let mapped = places.iter_mut().zip(&errors[..frames.len()]);
        let mapped = mapped.filter(|(_, error)| is_there(error));
        for ((place, _), page) in mapped.zip(self.used as u32..) {
            *place = Some(page);
        }
        self.used += count;
    }

    /// Maps `frames` behind those that are mapped already. After an error the pages hold zeros.
    fn fill(
        &mut self,
        privcmd: &Privcmd,
        domain: u16,
        frames: &[u64],
        errors: &mut [i32; MOST_BATCH],
    ) -> Result<(), i32> {
        if self.pages - self.used < frames.len() {
            return Err(libc::ENOMEM);
        }
        // SAFETY: the page is in the reservation.
        let at = unsafe { self.base.as_ptr().add(self.used * FRAME_WORDS) };
        // SAFETY: replaces pages of the reservation that hold no frame and that nothing refers to.
        let mapped = unsafe {
            libc::mmap(
                at.cast(),
                frames.len() * FRAME_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                privcmd.descriptor(),
                0,
            )
        };
        let filled = if mapped == libc::MAP_FAILED {
            Err(nix::errno::Errno::last_raw())
        } else {
            let (address, errors) = (at.addr() as u64, &mut errors[..frames.len()]);
            // SAFETY: the address is the start of the mapping just made, which has frames.len() pages.
            unsafe { privcmd.map_batch(domain, address, frames, errors) }
        };
        if filled.is_err() {
            self.empty(self.used, frames.len());
        }
        filled
    }

    /// Unmaps all frames.
    pub fn clear(&mut self) {
        self.empty(0, self.used);
        self.used = 0;
    }

    /// Replaces whole mappings by zeros.
    fn empty(&mut self, from: usize, pages: usize) {
        if pages == 0 {
            return;
        }
        // SAFETY: the caller names pages of the reservation.
        let at = unsafe { self.base.as_ptr().add(from * FRAME_WORDS) };
        // SAFETY: replaces pages of the reservation, to which nothing refers.
        let emptied = unsafe { zeros(at, pages, libc::MAP_FIXED) };
        if emptied.is_none() {
            // The pages are now in an unknown state, so nothing is read any more.
            self.pages = 0;
        }
    }

    /// The number of a word of a page; `None` where there is no such word.
    pub fn number_of_word(page: u32, index: usize) -> Option<u32> {
        if index >= FRAME_WORDS {
            return None;
        }
        page.checked_mul(FRAME_WORDS as u32)?
            .checked_add(index as u32)
    }

    /// A word by its number; `None` where there is no such word.
    #[inline]
    pub fn word(&self, number: u32) -> Option<u64> {
        if number as usize >= self.pages * FRAME_WORDS {
            return None;
        }
        // SAFETY: the number was checked against the reservation's extent.
        let at = unsafe { self.base.as_ptr().add(number as usize) };
        // SAFETY: at points to an aligned word of a mapped page, which holds a frame or zeros; a volatile load may see
        // any value that the guest writes meanwhile, and any value is a valid u64.
        Some(unsafe { at.read_volatile() })
    }

    /// Copies bytes of a page from `offset` on into `out`, up to the end of the page. Returns how many.
    #[inline]
    pub fn copy_bytes(&self, page: u32, offset: usize, out: &mut [u8]) -> usize {
        if page as usize >= self.pages || offset >= FRAME_BYTES {
            return 0;
        }
        let count = out.len().min(FRAME_BYTES - offset);
        let at = page as usize * FRAME_BYTES + offset;
        // SAFETY: the page was checked, and the offset is in it.
        let from = unsafe { self.base.as_ptr().cast::<u8>().add(at) };
        // SAFETY: so many bytes from there are in the page, and so many are in `out`.
        unsafe { copy(from, &mut out[..count]) };
        count
    }
}

/// Maps pages of zeros that take no memory: at `at` with `MAP_FIXED`, otherwise at an address of the kernel's choice.
///
/// # Safety
/// With `MAP_FIXED`, nothing may refer to the memory at `at`.
unsafe fn zeros(at: *mut u64, pages: usize, fixed: i32) -> Option<NonNull<u64>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: as the caller guarantees.
    let base = unsafe {
        libc::mmap(
            at.cast(),
            pages * FRAME_BYTES,
            libc::PROT_READ,
            flags,
            -1,
            0,
        )
    };
    NonNull::new(base.cast::<u64>()).filter(|base| base.as_ptr().cast() != libc::MAP_FAILED)
}

/// Copies with few instructions, since the guest is frozen meanwhile.
///
/// # Safety
/// `from` must point to `out.len()` readable bytes, which may change meanwhile.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy(from: *const u8, out: &mut [u8]) {
    const LINE_BYTES: usize = 64;
    let Some(last) = out.len().checked_sub(LINE_BYTES) else {
        // SAFETY: as the caller guarantees.
        return unsafe { copy_little(from, out) };
    };
    // Whole lines from the start, as long as at least one byte is left; then one line that ends where the bytes end.
    let lines_bytes = (out.len() - 1) / LINE_BYTES * LINE_BYTES;
    // SAFETY: reads only bytes that the caller guarantees, all of them, and writes each byte of `out`.
    unsafe {
        std::arch::asm!(
            "test {i}, {i}",
            "jz 3f",
            "2:",
            "movups {a}, [{from} + {i}]",
            "movups {b}, [{from} + {i} + 16]",
            "movups {c}, [{from} + {i} + 32]",
            "movups {d}, [{from} + {i} + 48]",
            "movups [{to} + {i}], {a}",
            "movups [{to} + {i} + 16], {b}",
            "movups [{to} + {i} + 32], {c}",
            "movups [{to} + {i} + 48], {d}",
            "add {i}, 64",
            "jnz 2b",
            "3:",
            "movups {a}, [{from_last}]",
            "movups {b}, [{from_last} + 16]",
            "movups {c}, [{from_last} + 32]",
            "movups {d}, [{from_last} + 48]",
            "movups [{to_last}], {a}",
            "movups [{to_last} + 16], {b}",
            "movups [{to_last} + 32], {c}",
            "movups [{to_last} + 48], {d}",
            from = in(reg) from.wrapping_add(lines_bytes),
            to = in(reg) out.as_mut_ptr().wrapping_add(lines_bytes),
            from_last = in(reg) from.wrapping_add(last),
            to_last = in(reg) out.as_mut_ptr().wrapping_add(last),
            i = inout(reg) lines_bytes.wrapping_neg() => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies without special instructions.
///
/// # Safety
/// `from` must point to `out.len()` readable bytes, which may change meanwhile.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy(from: *const u8, out: &mut [u8]) {
    // SAFETY: as the caller guarantees.
    unsafe { copy_little(from, out) }
}

/// Copies a word at a time where they are aligned, else a byte.
///
/// # Safety
/// `from` must point to `out.len()` readable bytes, which may change meanwhile.
unsafe fn copy_little(from: *const u8, out: &mut [u8]) {
    let head = from.align_offset(8).min(out.len());
    let (before, rest) = out.split_at_mut(head);
    let (words, after) = rest.as_chunks_mut::<8>();
    let words_bytes = words.len() * 8;
    for (index, word) in words.iter_mut().enumerate() {
        let at = from.wrapping_add(head + index * 8).cast::<u64>();
        // SAFETY: an aligned word of the bytes that there are; any value is a valid u64.
        *word = unsafe { at.read_volatile() }.to_ne_bytes();
    }
    let tail = from.wrapping_add(head + words_bytes);
    for (bytes, from) in [(before, from), (after, tail)] {
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: one of the bytes that there are.
            *byte = unsafe { from.wrapping_add(index).read_volatile() };
        }
    }
}

impl Drop for ForeignFrames {
    fn drop(&mut self) {
        // SAFETY: the range is the reservation made in new(), with its mappings, and nothing refers to it any more; it
        // is empty if nothing was reserved.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.pages * FRAME_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for a guest's memory: each byte is its own index.
    fn numbered() -> Vec<u8> {
        (0..300).map(|byte| (byte * 7 % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_copied_from_any_place_and_as_many() {
        let memory = numbered();
        for start in 0..17 {
            for count in 0..memory.len() - start {
                let mut out = vec![0xaa; count + 2];
                let from = memory[start..].as_ptr();
                // SAFETY: there are so many bytes.
                unsafe { copy(from, &mut out[1..=count]) };
                assert_eq!(
                    out[1..=count],
                    memory[start..start + count],
                    "{start} {count}"
                );
                assert_eq!((out[0], out[count + 1]), (0xaa, 0xaa), "{start} {count}");
            }
        }
    }

    #[test]
    fn where_no_frame_is_there_are_zeros_up_to_the_end() {
        let mut frames = ForeignFrames::new(4);
        frames.clear();
        let last = ForeignFrames::number_of_word(3, FRAME_WORDS - 1).unwrap();
        assert_eq!(frames.word(last), Some(0));
        assert_eq!(frames.word(last + 1), None);
        assert_eq!(frames.word(u32::MAX), None);
        assert_eq!(ForeignFrames::number_of_word(3, FRAME_WORDS), None);
        let mut out = [1; 200];
        assert_eq!(frames.copy_bytes(3, FRAME_BYTES - 100, &mut out), 100);
        assert_eq!((out[99], out[100]), (0, 1));
        assert_eq!(frames.copy_bytes(3, FRAME_BYTES, &mut out), 0);
        assert_eq!(frames.copy_bytes(4, 0, &mut out), 0);
        assert_eq!(ForeignFrames::new(0).word(0), None);
    }
}
