//! `perf_event_open`: the settings of an event, and the event.
//!
//! Source: `include/uapi/linux/perf_event.h`, perf_event_open(2).

use nix::errno::Errno;
use perf_event_open_sys::{bindings as abi, ioctls, perf_event_open};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The event that makes the kernel take a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The processor's cycle counter.
    Cycles,
    /// A timer that runs while the thread does.
    CpuClock,
    /// Each time the thread is switched out. Switches out and in are also recorded.
    Switches,
}

/// The scope of an event.
#[derive(Debug, Clone, Copy)]
pub enum Watched<'a> {
    /// A thread, and those that it starts later.
    Thread(i32),
    /// Everything that runs on the processor, except the idle task.
    Everyone,
    /// The processes of the control group with this folder.
    Cgroup(BorrowedFd<'a>),
}

/// Settings of an event.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The event that makes the kernel take a sample.
    pub trigger: Trigger,
    /// Samples a second of running time.
    pub rate_hz: u64,
    /// Whether to include samples in the kernel, and kernel frames.
    pub kernel: bool,
    /// User registers, as a mask of the kernel's numbers (`asm/perf_regs.h`).
    pub user_registers: u64,
    /// User stack bytes, a multiple of 8, besides the chain of frame pointers that the kernel follows.
    pub user_stack_bytes: u32,
    /// Whether fewer stack bytes will do where the ring buffers would hold too few samples.
    pub fits_stack: bool,
    /// Most frames of a chain.
    pub most_frames: u16,
    /// Whether the events of a thread begin only when it next executes a program.
    pub enable_on_exec: bool,
}

/// The contents of every sample.
const SAMPLE_TYPE: u64 = (abi::PERF_SAMPLE_IP
    | abi::PERF_SAMPLE_TID
    | abi::PERF_SAMPLE_TIME
    | abi::PERF_SAMPLE_CPU
    | abi::PERF_SAMPLE_CALLCHAIN
    | abi::PERF_SAMPLE_REGS_USER) as u64;
/// The contents of every record of a thread's tracepoints and switches: whatever else the kernel would look up costs
/// the thread time.
const TRACEPOINT_TYPE: u64 = (abi::PERF_SAMPLE_TIME | abi::PERF_SAMPLE_RAW) as u64;
/// Bytes at the end of every other record of events that sample: task, time and processor.
pub const TRAILER_BYTES: usize = 24;

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
            Trigger::Switches => (
                abi::PERF_TYPE_SOFTWARE,
                u64::from(abi::PERF_COUNT_SW_CONTEXT_SWITCHES),
            ),
        };
        if self.user_stack_bytes > 0 {
            attributes.sample_type |= abi::PERF_SAMPLE_STACK_USER as u64;
            attributes.sample_stack_user = self.user_stack_bytes;
        }
        // 0 selects the kernel's default watermark: half of the buffer.
        attributes.__bindgen_anon_2.wakeup_watermark = 0;
        attributes.set_watermark(1);
        if self.trigger == Trigger::Switches {
            // Names and mappings are reported by the sampling event.
            attributes.__bindgen_anon_1.sample_period = 1;
            attributes.set_context_switch(1);
        } else {
            attributes.__bindgen_anon_1.sample_freq = self.rate_hz;
            attributes.set_freq(1);
            attributes.set_mmap(1);
            // Never with build-ids: the kernel would then set the build-id flag in the records of all other events,
            // too, and a concurrent perf record would misread device and inode as a build-id and crash.
            attributes.set_mmap2(1);
            attributes.set_comm(1);
            attributes.set_comm_exec(1);
        }
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
    /// Opens an event on `watched` while that runs on processor `cpu`.
    ///
    /// # Errors
    /// The error of `perf_event_open`.
    pub fn open(settings: &Settings, watched: Watched<'_>, cpu: i32) -> Result<Self, Errno> {
        let mut attributes = settings.attributes();
        let mut flags = abi::PERF_FLAG_FD_CLOEXEC;
        let pid = match watched {
            Watched::Thread(tid) => {
                attributes.set_disabled(u64::from(settings.enable_on_exec));
                attributes.set_enable_on_exec(u64::from(settings.enable_on_exec));
                attributes.set_inherit(1);
                tid
            }
            Watched::Everyone => {
                attributes.set_exclude_idle(1);
                -1
            }
            Watched::Cgroup(folder) => {
                flags |= abi::PERF_FLAG_PID_CGROUP;
                folder.as_raw_fd()
            }
        };
        let flags = libc::c_ulong::from(flags);
        let fd = open(&mut attributes, pid, cpu, flags)?;
        // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens the tracepoint with this number on thread `tid`: a record with its raw fields each time that the thread
    /// passes it.
    ///
    /// # Errors
    /// The error of `perf_event_open`.
    pub fn open_tracepoint(id: u64, tid: i32) -> Result<Self, Errno> {
        Self::open_records(abi::PERF_TYPE_TRACEPOINT, id, tid, 0)
    }

    /// Opens the switches of thread `tid`: a record each time that it loses the processor or has one again. Polling it
    /// wakes when there are `filled_bytes` in its ring buffer, of any event that writes into that.
    ///
    /// # Errors
    /// The error of `perf_event_open`.
    pub fn open_switches(tid: i32, filled_bytes: u32) -> Result<Self, Errno> {
        let dummy = abi::PERF_COUNT_SW_DUMMY as u64;
        Self::open_records(abi::PERF_TYPE_SOFTWARE, dummy, tid, filled_bytes)
    }

    fn open_records(kind: u32, config: u64, tid: i32, filled_bytes: u32) -> Result<Self, Errno> {
        let mut attributes = abi::perf_event_attr {
            type_: kind,
            size: size_of::<abi::perf_event_attr>() as u32,
            config,
            sample_type: TRACEPOINT_TYPE,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_period = 1;
        attributes.__bindgen_anon_2.wakeup_watermark = filled_bytes;
        attributes.set_context_switch(u64::from(kind == abi::PERF_TYPE_SOFTWARE));
        attributes.set_sample_id_all(1);
        attributes.set_use_clockid(1);
        attributes.set_watermark(1);
        let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
        let fd = open(&mut attributes, tid, -1, flags)?;
        // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Stops recording, or begins again.
    ///
    /// # Errors
    /// The error of the ioctl.
    pub fn enable(&self, enabled: bool) -> Result<(), Errno> {
        let fd = self.0.as_raw_fd();
        let ask = if enabled {
            ioctls::ENABLE
        } else {
            ioctls::DISABLE
        };
        // SAFETY: both take a flag, and the descriptor is open.
        let result = unsafe { ask(fd, 0) };
        Errno::result(result).map(drop)
    }

    /// Redirects this event's records to the ring buffer of `other`, on the same processor.
    ///
    /// # Errors
    /// The error of the ioctl.
    pub fn write_into(&self, other: &Event) -> Result<(), Errno> {
        // SAFETY: SET_OUTPUT takes a descriptor, and both are open.
        let result = unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) };
        Errno::result(result).map(drop)
    }
}

fn open(
    attributes: &mut abi::perf_event_attr,
    pid: i32,
    cpu: i32,
    flags: libc::c_ulong,
) -> Result<i32, Errno> {
    // SAFETY: `attributes` is a whole perf_event_attr with its size set, and outlives the call.
    Errno::result(unsafe { perf_event_open(attributes, pid, cpu, -1, flags) })
}

impl std::os::fd::AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes of a memory page.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}
