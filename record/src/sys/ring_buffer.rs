//! The ring buffer into which the kernel writes the records of perf events.
//!
//! Source: `struct perf_event_mmap_page` and "MMAP layout" in perf_event_open(2).

use super::perf::{Event, TRAILER_BYTES, page_bytes};
use nix::errno::Errno;
use perf_event_open_sys::bindings as abi;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ring buffer of an event, unmapped on drop.
#[derive(Debug)]
pub struct RingBuffer {
    page: NonNull<abi::perf_event_mmap_page>,
    page_bytes: usize,
    data_bytes: usize,
    /// Read position, in bytes since the start.
    at: u64,
    /// Write position at the last [`RingBuffer::look`].
    head: u64,
    /// Holds a copy of the next record, which may wrap around the end.
    whole: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone; it has no ties to the thread that made it.
unsafe impl Send for RingBuffer {}

/// `struct perf_event_header`.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u32,
    misc: u16,
    /// Length of the whole record.
    bytes: usize,
}

/// Fields of a record that are read before the record is copied.
#[derive(Debug, Clone, Copy)]
pub struct Next {
    /// Its type (`PERF_RECORD_*`).
    pub kind: u32,
    /// The process that ran when it was written.
    pub pid: u32,
    /// When it was written.
    pub time_ns: u64,
}

impl Next {
    /// Whether it is a sample.
    pub fn is_sample(&self) -> bool {
        self.kind == abi::PERF_RECORD_SAMPLE
    }

    /// Whether it tells that records before it were lost.
    pub fn is_loss(&self) -> bool {
        self.kind == abi::PERF_RECORD_LOST
    }
}

const HEADER_BYTES: usize = size_of::<abi::perf_event_header>();

/// Longest record: its length field has 16 bits.
const MOST_RECORD_BYTES: usize = 1 << 16;

impl RingBuffer {
    /// Maps a buffer of `pages` pages, a power of two, for the records of `event`.
    ///
    /// # Errors
    /// The error of `mmap`, or `EINVAL` if `pages` is not a power of two.
    pub fn map(event: &Event, pages: usize) -> Result<Self, Errno> {
        if !pages.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        let page_bytes = page_bytes();
        let data_bytes = page_bytes * pages;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = event.as_fd().as_raw_fd();
        let length = page_bytes + data_bytes;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing of ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(RingBuffer {
            page: NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?,
            page_bytes,
            data_bytes,
            at: 0,
            head: 0,
            whole: vec![0; MOST_RECORD_BYTES],
        })
    }

    /// Its room for records.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Reads the kernel's write position.
    pub fn look(&mut self) {
        let head = std::mem::offset_of!(abi::perf_event_mmap_page, data_head);
        self.head = self.counter(head).load(Ordering::Acquire);
    }

    /// The next record that was there at the last [`RingBuffer::look`].
    pub fn next(&self) -> Option<Next> {
        let header = self.header(self.at)?;
        let (pid, time_ns) = self.stamp(header);
        Some(Next {
            kind: header.kind,
            pid,
            time_ns,
        })
    }

    /// Process and time of the next record.
    #[inline(always)]
    fn stamp(&self, header: Header) -> (u32, u64) {
        // Offset of process, thread and time, according to `SAMPLE_TYPE` and `sample_id_all`.
        let stamp_at = if header.kind == abi::PERF_RECORD_SAMPLE {
            HEADER_BYTES + 8
        } else {
            header.bytes.saturating_sub(TRAILER_BYTES).max(HEADER_BYTES)
        };
        if stamp_at + 16 > header.bytes {
            return (0, 0);
        }
        let at = self.at.wrapping_add(stamp_at as u64);
        // The lower half of the first word is the process, the upper half the thread.
        (self.word(at) as u32, self.word(at.wrapping_add(8)))
    }

    /// Passes the next record to `each`: its type, its `misc` field and the bytes after the header. Then frees the
    /// record's bytes.
    pub fn take(&mut self, each: impl FnOnce(u32, u16, &[u8])) {
        if let Some(header) = self.header(self.at) {
            self.pass(header, each);
        }
        self.skip();
    }

    /// As [`RingBuffer::take`], for all records of tracepoints and switches ([`Event::open_tracepoint`]) up to
    /// `until_ns` that were there at the last [`RingBuffer::look`]. `each` is told the time, too.
    pub fn take_until(&mut self, until_ns: u64, mut each: impl FnMut(u32, u16, u64, &[u8])) {
        while let Some(header) = self.header(self.at) {
            // A sample begins with its time, any other record ends with it.
            let time_at = if header.kind == abi::PERF_RECORD_SAMPLE {
                HEADER_BYTES
            } else {
                header.bytes - 8
            };
            let time_ns = self.word(self.at.wrapping_add(time_at as u64));
            if time_ns > until_ns {
                return;
            }
            self.pass(header, |kind, misc, body| each(kind, misc, time_ns, body));
            self.free_to(self.at.wrapping_add(header.bytes as u64));
        }
        // The kernel never writes an invalid header. If one is there, skip everything up to the head.
        self.free_to(self.head);
    }

    /// Frees the bytes of the next record without reading it.
    pub fn skip(&mut self) {
        let bytes = self.header(self.at).map_or(0, |header| header.bytes);
        let next = self.at.wrapping_add(bytes as u64);
        // As in `take_until`.
        let is_valid = self.header(next).is_some();
        self.free_to(if is_valid { next } else { self.head });
    }

    fn free_to(&mut self, at: u64) {
        self.at = at;
        let tail = std::mem::offset_of!(abi::perf_event_mmap_page, data_tail);
        self.counter(tail).store(at, Ordering::Release);
    }

    /// Passes the body of the next record, without a copy unless it wraps around the end.
    fn pass(&mut self, header: Header, each: impl FnOnce(u32, u16, &[u8])) {
        let bytes = header.bytes - HEADER_BYTES;
        let start = (self.at as usize).wrapping_add(HEADER_BYTES) & (self.data_bytes - 1);
        if start + bytes <= self.data_bytes {
            // SAFETY: the data area begins one page behind the first, and is mapped.
            let data = unsafe { self.page.as_ptr().byte_add(self.page_bytes + start) };
            // SAFETY: the range lies inside the data area. The kernel does not write between tail and head, as the
            // buffer is mapped for writing, and the tail stays until `each` is done.
            let body = unsafe { std::slice::from_raw_parts(data.cast(), bytes) };
            return each(header.kind, header.misc, body);
        }
        let mut whole = std::mem::take(&mut self.whole);
        let body = &mut whole[..bytes];
        self.copy(self.at.wrapping_add(HEADER_BYTES as u64), body);
        each(header.kind, header.misc, body);
        self.whole = whole;
    }

    /// Passes to `each` the ids of the threads that started, by the fork records that are still to be drained.
    pub fn forked(&mut self, mut each: impl FnMut(i32)) {
        /// Offset of the thread id in a fork record, including the header.
        const TID_AT: u64 = 16;
        self.look();
        let mut at = self.at;
        while let Some(header) = self.header(at) {
            if header.kind == abi::PERF_RECORD_FORK {
                let mut tid = [0; 4];
                self.copy(at.wrapping_add(TID_AT), &mut tid);
                each(i32::from_le_bytes(tid));
            }
            at = at.wrapping_add(header.bytes as u64);
        }
    }

    /// The header of the record at `at`; `None` after the last record, or if the header is not valid.
    #[inline(always)]
    fn header(&self, at: u64) -> Option<Header> {
        if self.head.wrapping_sub(at) < HEADER_BYTES as u64 {
            return None;
        }
        let header = self.word(at);
        let bytes = (header >> 48) as usize;
        let can_be = (HEADER_BYTES..=self.data_bytes).contains(&bytes);
        can_be.then_some(Header {
            kind: header as u32,
            misc: (header >> 32) as u16,
            bytes,
        })
    }

    /// One of the two 64-bit counters in the first page, which kernel and reader share.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is one of perf_event_mmap_page, which the first page holds.
        let counter = unsafe { self.page.as_ptr().byte_add(offset) };
        // SAFETY: the field is 8 bytes, aligned, and mapped for as long as `self` lives; the kernel
        // and we both access it atomically.
        unsafe { AtomicU64::from_ptr(counter.cast()) }
    }

    /// The eight bytes at position `at` of the stream of records.
    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        let start = at as usize & (self.data_bytes - 1);
        let mut word = [0; 8];
        // All records begin at a multiple of eight.
        if start + 8 <= self.data_bytes {
            self.copy_flat(start, &mut word);
        } else {
            self.copy(at, &mut word);
        }
        u64::from_le_bytes(word)
    }

    /// Copies data from position `at` of the stream of records, and wraps around the end if necessary.
    fn copy(&self, at: u64, into: &mut [u8]) {
        let start = at as usize & (self.data_bytes - 1);
        let first = into.len().min(self.data_bytes - start);
        let (head, rest) = into.split_at_mut(first);
        self.copy_flat(start, head);
        self.copy_flat(0, rest);
    }

    #[inline(always)]
    fn copy_flat(&self, start: usize, into: &mut [u8]) {
        debug_assert!(start + into.len() <= self.data_bytes);
        // SAFETY: the data area begins one page behind the first, and is mapped.
        let data = unsafe { self.page.as_ptr().byte_add(self.page_bytes + start) };
        // SAFETY: the range lies inside the data area: no record is longer (`header`), and `copy` splits at its end.
        // The kernel does not write between tail and head, as the buffer is mapped for writing; `into` is our own.
        unsafe { std::ptr::copy_nonoverlapping(data.cast(), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        let length = self.page_bytes + self.data_bytes;
        // SAFETY: exactly the mapping made in `map`; nothing borrows from it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), length) };
    }
}
