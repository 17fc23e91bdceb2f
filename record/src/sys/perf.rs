//! `perf_event_open`, and the ring buffer in which the kernel leaves records.
//!
//! Source: `include/uapi/linux/perf_event.h`, perf_event_open(2).

use nix::errno::Errno;
use perf_event_open_sys::{bindings as abi, ioctls, perf_event_open};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What makes the kernel take a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The processor's cycle counter.
    Cycles,
    /// A timer that runs while the thread does.
    CpuClock,
}

/// What an event asks for.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What makes the kernel take a sample.
    pub trigger: Trigger,
    /// Samples a second of running time.
    pub rate_hz: u64,
    /// Whether samples in the kernel, and kernel frames, are wanted.
    pub kernel: bool,
    /// User registers, as a mask of the kernel's numbers (`asm/perf_regs.h`).
    pub user_registers: u64,
    /// User stack bytes, a multiple of 8, besides the chain of frame pointers that the kernel follows.
    pub user_stack_bytes: u32,
    /// Most frames of a chain.
    pub most_frames: u16,
    /// Whether counting begins when the thread next executes a program.
    pub enable_on_exec: bool,
    /// Bytes in the ring buffer at which a waiting reader is woken.
    pub wake_at_bytes: u32,
}

/// What every sample holds.
const SAMPLE_TYPE: u64 = (abi::PERF_SAMPLE_IP
    | abi::PERF_SAMPLE_TID
    | abi::PERF_SAMPLE_TIME
    | abi::PERF_SAMPLE_CALLCHAIN
    | abi::PERF_SAMPLE_REGS_USER) as u64;

impl Settings {
    fn attributes(&self) -> abi::perf_event_attr {
        let mut attributes = abi::perf_event_attr {
            size: size_of::<abi::perf_event_attr>() as u32,
            sample_type: SAMPLE_TYPE,
            sample_regs_user: self.user_registers,
            sample_max_stack: self.most_frames,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        (attributes.type_, attributes.config) = match self.trigger {
            Trigger::Cycles => (
                abi::PERF_TYPE_HARDWARE,
                u64::from(abi::PERF_COUNT_HW_CPU_CYCLES),
            ),
            Trigger::CpuClock => (
                abi::PERF_TYPE_SOFTWARE,
                u64::from(abi::PERF_COUNT_SW_CPU_CLOCK),
            ),
        };
        if self.user_stack_bytes > 0 {
            attributes.sample_type |= abi::PERF_SAMPLE_STACK_USER as u64;
            attributes.sample_stack_user = self.user_stack_bytes;
        }
        attributes.__bindgen_anon_1.sample_freq = self.rate_hz;
        attributes.__bindgen_anon_2.wakeup_watermark = self.wake_at_bytes;
        attributes.set_freq(1);
        attributes.set_watermark(1);
        attributes.set_disabled(1);
        attributes.set_enable_on_exec(u64::from(self.enable_on_exec));
        attributes.set_inherit(1);
        attributes.set_mmap(1);
        attributes.set_mmap2(1);
        attributes.set_build_id(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_task(1);
        attributes.set_sample_id_all(1);
        attributes.set_use_clockid(1);
        attributes.set_exclude_kernel(u64::from(!self.kernel));
        attributes.set_exclude_hv(1);
        attributes
    }
}

/// One event, closed on drop.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Opens an event on thread `tid` while it runs on processor `cpu`.
    ///
    /// # Errors
    /// What `perf_event_open` returns.
    pub fn open(settings: &Settings, tid: i32, cpu: i32) -> Result<Self, Errno> {
        let mut attributes = settings.attributes();
        let fd = match open(&mut attributes, tid, cpu) {
            // A kernel before 5.12 knows nothing of build-ids: it tells device and inode.
            Err(Errno::EINVAL) => {
                attributes.set_build_id(0);
                open(&mut attributes, tid, cpu)?
            }
            result => result?,
        };
        // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Lets the kernel sample.
    ///
    /// # Errors
    /// What the ioctl returns.
    pub fn enable(&self) -> Result<(), Errno> {
        // SAFETY: ENABLE takes no pointer and the descriptor is open.
        Errno::result(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) }).map(drop)
    }

    /// Makes this event's records go to the ring buffer of `other`, on the same processor.
    ///
    /// # Errors
    /// What the ioctl returns.
    pub fn write_into(&self, other: &Event) -> Result<(), Errno> {
        // SAFETY: SET_OUTPUT takes a descriptor, and both are open.
        let result = unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) };
        Errno::result(result).map(drop)
    }
}

fn open(attributes: &mut abi::perf_event_attr, tid: i32, cpu: i32) -> Result<i32, Errno> {
    let flags = abi::PERF_FLAG_FD_CLOEXEC as libc::c_ulong;
    // SAFETY: `attributes` is a whole perf_event_attr with its size set, and outlives the call.
    Errno::result(unsafe { perf_event_open(attributes, tid, cpu, -1, flags) })
}

impl std::os::fd::AsFd for Event {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The ring buffer of an event, unmapped on drop.
#[derive(Debug)]
pub struct RingBuffer {
    page: NonNull<abi::perf_event_mmap_page>,
    page_bytes: usize,
    data_bytes: usize,
    /// Records that wrap around the end are put together here.
    whole: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone; it has no ties to the thread that made it.
unsafe impl Send for RingBuffer {}

/// Longest record: its length field has 16 bits.
const MOST_RECORD_BYTES: usize = 1 << 16;

impl RingBuffer {
    /// Maps a buffer of `pages` pages, a power of two, for the records of `event`.
    ///
    /// # Errors
    /// What `mmap` returns.
    pub fn map(event: &Event, pages: usize) -> Result<Self, Errno> {
        let page_bytes = page_bytes();
        let data_bytes = page_bytes * pages;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = event.0.as_raw_fd();
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
            whole: vec![0; MOST_RECORD_BYTES],
        })
    }

    /// Passes every record that is there to `each`: its type, its `misc` field and the bytes after
    /// the header. Each record's room is given back before the next is read.
    pub fn drain(&mut self, mut each: impl FnMut(u32, u16, &[u8])) {
        const HEADER_BYTES: usize = 8;
        let head = self.counter(std::mem::offset_of!(abi::perf_event_mmap_page, data_head));
        let head = head.load(Ordering::Acquire);
        let tail_counter = std::mem::offset_of!(abi::perf_event_mmap_page, data_tail);
        let mut tail = self.counter(tail_counter).load(Ordering::Relaxed);
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            let mut header = [0; HEADER_BYTES];
            self.copy(tail, &mut header);
            let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_le_bytes([header[4], header[5]]);
            let bytes = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if bytes < HEADER_BYTES {
                // The kernel never writes such a record; don't stay here if it does.
                tail = head;
                break;
            }
            let mut whole = std::mem::take(&mut self.whole);
            let body = &mut whole[..bytes - HEADER_BYTES];
            self.copy(tail.wrapping_add(HEADER_BYTES as u64), body);
            each(kind, misc, body);
            self.whole = whole;
            tail = tail.wrapping_add(bytes as u64);
            self.counter(tail_counter).store(tail, Ordering::Release);
        }
        self.counter(tail_counter).store(tail, Ordering::Release);
    }

    /// One of the two 64-bit counters in the first page, which kernel and reader share.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is one of perf_event_mmap_page, which the first page holds.
        let counter = unsafe { self.page.as_ptr().byte_add(offset) };
        // SAFETY: the field is 8 bytes, aligned, and mapped for as long as `self` lives; the kernel
        // and we both access it atomically.
        unsafe { AtomicU64::from_ptr(counter.cast()) }
    }

    /// Copies data from position `at` of the stream of records, around the end if need be.
    fn copy(&self, at: u64, into: &mut [u8]) {
        let start = at as usize & (self.data_bytes - 1);
        let first = into.len().min(self.data_bytes - start);
        let (head, rest) = into.split_at_mut(first);
        self.copy_flat(start, head);
        self.copy_flat(0, rest);
    }

    fn copy_flat(&self, start: usize, into: &mut [u8]) {
        debug_assert!(start + into.len() <= self.data_bytes);
        // SAFETY: the data area begins one page behind the first, and is mapped.
        let data = unsafe { self.page.as_ptr().byte_add(self.page_bytes + start) };
        // SAFETY: the range lies inside the data area (`copy` splits at its end), the kernel does
        // not write between tail and head, and `into` is our own memory.
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

/// Bytes of a memory page.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}
