//! Where the time of a guest's vCPUs goes, by the tracepoints of KVM and the switches of their threads.
//!
//! The kernel writes the events of each thread into a ring buffer. The encoder's thread reads them before much of
//! it is filled, keeps the time line of each vCPU, and takes sums. Nothing of this stops the guest.

mod events;
mod slices;

use crate::guest::exits::{ExitTable, places};
use crate::guest::pauses::{PauseWriter, Pauses, pauses};
use crate::guest::timeline::{Timeline, VcpuEvent};
use crate::source::handled::HandledExits;
use crate::source::{Observations, Observer, SourceError};
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::{Event, page_bytes};
use crate::sys::ring_buffer::RingBuffer;
use crate::sys::thread_times::ThreadTimes;
use events::{Decoder, Tracepoints};
use nix::errno::Errno;
use slices::Slices;
use std::sync::Arc;
use std::time::Duration;
use uprof::Task;
use uprof::cold::{Loss, LossReason, ProcessTime, VcpuTime};

/// Memory for all ring buffers, and the bounds of a single one, in bytes.
const RINGS_BYTES: usize = 64 << 20;
const RING_BYTES_MIN: usize = 64 << 10;
const RING_BYTES_MAX: usize = 2 << 20;
/// The part of a ring buffer that is filled when it is read, and how much that is at least.
const FILLED_PART: usize = 4;
const FILLED_BYTES_MIN: usize = 32 << 10;
/// How long the ring buffers are left alone at least, and where exits are recorded in slices, whose breaks are short.
const READ_AFTER_NS: u64 = 4_000_000;
/// How long they are left alone where the encoder is awake.
const READ_AT_LEAST_NS: u64 = 40_000_000;

/// A vCPU's thread.
#[derive(Debug, Clone, Copy)]
pub struct VcpuThreadId {
    /// The vCPU.
    pub task: Task,
    /// Process and thread.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
}

/// One thread's events.
struct Watched {
    thread: u32,
    timeline: Timeline,
    ring: RingBuffer,
    times: Option<ThreadTimes>,
    delay_ns: u64,
    slices: Slices,
    /// KVM's tracepoints.
    exits: Vec<Event>,
    /// It owns the ring buffer.
    switches: Arc<Event>,
}

/// Reads the events of all vCPUs.
pub struct HostObserver {
    vcpus: Vec<Watched>,
    decoder: Decoder,
    pauses: Pauses,
    table: ExitTable,
    handled: HandledExits,
    read_ns: u64,
    /// When to read next.
    next_read_ns: u64,
    flushed_ns: u64,
    lost: u64,
}

/// Opens the events of these threads.
///
/// # Errors
/// Says why they can't be had, and what to do.
pub fn open(
    threads: &[VcpuThreadId],
    most_exits_hz: u64,
) -> Result<(HostObserver, PauseWriter), SourceError> {
    let tracepoints = Tracepoints::find()?;
    let now_ns = monotonic_ns();
    let bytes = (RINGS_BYTES / threads.len().max(1)).clamp(RING_BYTES_MIN, RING_BYTES_MAX);
    let pages = (bytes / page_bytes()).next_power_of_two();
    let vcpus = threads
        .iter()
        .map(|thread| watch(&tracepoints, thread, pages, now_ns, most_exits_hz).map_err(refused));
    let vcpus = vcpus.collect::<Result<Vec<_>, _>>()?;
    let tasks = threads.iter().map(|one| (one.tid.unsigned_abs(), one.task));
    let tasks: Vec<(u32, Task)> = tasks.collect();
    let (writer, pauses) = pauses(0);
    let observer = HostObserver {
        vcpus,
        decoder: Decoder::new(tracepoints),
        pauses,
        table: ExitTable::default(),
        handled: HandledExits::new(&tasks),
        read_ns: now_ns,
        next_read_ns: now_ns,
        flushed_ns: now_ns,
        lost: 0,
    };
    Ok((observer, writer))
}

fn refused(errno: Errno) -> SourceError {
    let advice = match errno {
        Errno::EACCES | Errno::EPERM => {
            "run as root, or allow it: sysctl kernel.perf_event_paranoid=-1"
        }
        Errno::EMFILE => "raise the limit on open files (ulimit -n): each vCPU takes up to ten",
        Errno::ENOMEM => "allow more locked memory (ulimit -l)",
        _ => "record without --host",
    };
    SourceError::system("cannot watch KVM's tracepoints for --host", errno, advice)
}

fn watch(
    tracepoints: &Tracepoints,
    thread: &VcpuThreadId,
    pages: usize,
    now_ns: u64,
    most_exits_hz: u64,
) -> Result<Watched, Errno> {
    let bytes = pages * page_bytes();
    let filled_bytes = (bytes / FILLED_PART).max(FILLED_BYTES_MIN);
    let switches = Event::open_switches(thread.tid, filled_bytes as u32)?;
    let ring = RingBuffer::map(&switches, pages)?;
    let exits = tracepoints.ids().map(|id| {
        let event = Event::open_tracepoint(id, thread.tid)?;
        event.write_into(&switches)?;
        Ok(event)
    });
    let exits = exits.collect::<Result<_, Errno>>()?;
    Ok(Watched {
        thread: thread.tid.unsigned_abs(),
        timeline: Timeline::new(thread.task, now_ns),
        ring,
        times: ThreadTimes::of(thread.pid, thread.tid),
        delay_ns: 0,
        slices: Slices::new(most_exits_hz, now_ns),
        exits,
        switches: Arc::new(switches),
    })
}

impl Watched {
    /// How much longer the thread has waited for a processor since the last call.
    fn waited_ns(&mut self) -> u64 {
        let Some(now_ns) = self.times.as_ref().and_then(ThreadTimes::delay_ns) else {
            return 0;
        };
        now_ns.saturating_sub(std::mem::replace(&mut self.delay_ns, now_ns))
    }
}

impl HostObserver {
    /// Whether KVM has reported that a vCPU entered or left the guest.
    pub fn has_seen_guest(&mut self) -> bool {
        self.drain();
        let mut timelines = self.vcpus.iter().map(|vcpu| &vcpu.timeline);
        timelines.any(Timeline::has_run)
    }

    /// Says that KVM reports neither entries nor exits. What a vCPU does when it has a processor is then unknown, and
    /// why it sleeps.
    pub fn expect_no_exits(&mut self) {
        self.decoder.expect_no_exits();
    }

    /// Where exits meet the samples of the monitor.
    pub fn handled(&self) -> HandledExits {
        self.handled.clone()
    }

    /// Handles the events up to now; returns that time.
    fn drain(&mut self) -> u64 {
        // Read first: a pause that begins later is none of this time.
        let until_ns = monotonic_ns();
        self.pauses.take();
        let mut handled = self.handled.meet();
        let mut are_apart = false;
        for vcpu in &mut self.vcpus {
            vcpu.ring.look();
            let (timeline, pauses, table) = (&mut vcpu.timeline, &self.pauses, &mut self.table);
            let (slices, lost) = (&mut vcpu.slices, &mut self.lost);
            let mut history = handled.history(vcpu.thread);
            vcpu.ring.take_until(until_ns, |kind, misc, time_ns, body| {
                let Some(record) = self.decoder.decode(kind, misc, body) else {
                    return;
                };
                *lost += record.lost;
                slices.advance(time_ns, timeline, pauses, table);
                if !slices.keeps(record.event) {
                    return;
                }
                if record.event == VcpuEvent::Entry
                    && let Some(history) = &mut history
                    && let Some(span) = timeline.handles()
                {
                    history.ended(span, time_ns);
                }
                timeline.handle(record.event, time_ns, pauses, table);
            });
            slices.advance(until_ns, timeline, pauses, table);
            timeline.advance(until_ns, pauses);
            if let Some(history) = history {
                history.advance(until_ns, timeline.handles());
            }
            if let Some(records) = vcpu.slices.records(until_ns) {
                // Such an error only costs time.
                let _ = (vcpu.exits.iter()).try_for_each(|event| event.enable(records));
            }
            are_apart |= vcpu.slices.are_apart();
        }
        drop(handled);
        self.pauses.forget_before(until_ns);
        self.read_ns = until_ns;
        // The next flush reads in any case.
        self.next_read_ns = if are_apart {
            until_ns.saturating_add(READ_AFTER_NS)
        } else {
            u64::MAX
        };
        until_ns
    }

    /// Discards events, and begins to count time.
    fn begin(&mut self) {
        self.flushed_ns = self.drain();
        self.table = ExitTable::default();
        self.lost = 0;
        for vcpu in &mut self.vcpus {
            let waited_ns = vcpu.waited_ns();
            vcpu.timeline.share_out();
            vcpu.timeline.take(waited_ns);
            // Waits before the recording.
            vcpu.timeline.delay_ns = 0;
        }
    }

    /// The sums since the last call.
    fn flush(&mut self) -> Observations {
        let until_ns = self.drain();
        let first_ns = self.flushed_ns;
        let mut seen = Observations::default();
        for vcpu in &mut self.vcpus {
            let waited_ns = vcpu.waited_ns();
            if let Some((all_ns, watched_ns)) = vcpu.timeline.share_out() {
                self.table.scale(vcpu.timeline.task(), all_ns, watched_ns);
            }
            let spent = vcpu.timeline.take(waited_ns);
            seen.vcpu_times.push(VcpuTime {
                task: vcpu.timeline.task(),
                first_ns,
                last_ns: until_ns,
                spent: places(&spent),
            });
        }
        seen.exits = self.table.take(first_ns, until_ns);
        if self.lost > 0 {
            let count = std::mem::take(&mut self.lost);
            let lost = Loss::new(LossReason::ExitsLost, count, [first_ns, until_ns]);
            seen.losses.push(lost);
        }
        self.flushed_ns = until_ns;
        seen
    }
}

impl Observer for HostObserver {
    fn look(&mut self, _: u64) -> Observations {
        self.flush()
    }

    fn events(&self) -> Vec<Arc<Event>> {
        let vcpus = self.vcpus.iter();
        vcpus.map(|vcpu| Arc::clone(&vcpu.switches)).collect()
    }

    fn poll(&mut self, is_filled: bool) -> Duration {
        let mut now_ns = monotonic_ns();
        if is_filled {
            let soon_ns = self.read_ns.saturating_add(READ_AFTER_NS);
            self.next_read_ns = self.next_read_ns.min(soon_ns);
        }
        // An encoder that is too busy to sleep isn't woken.
        if now_ns >= self.next_read_ns || now_ns.saturating_sub(self.read_ns) >= READ_AT_LEAST_NS {
            now_ns = self.drain();
        }
        Duration::from_nanos(self.next_read_ns.saturating_sub(now_ns))
    }

    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        if !last {
            self.begin();
        }
        None
    }

    fn end(&mut self) -> Observations {
        let seen = self.flush();
        // The kernel takes long to close the events, and nobody waits for that.
        let events = std::mem::take(&mut self.vcpus);
        let _ = std::thread::Builder::new().spawn(move || drop(events));
        seen
    }
}
