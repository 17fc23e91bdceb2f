//! Xen's trace buffers, while they are ours: turned on, read, and turned off.
//!
//! There is one set of buffers, and Xen doesn't say whether someone uses it. Whoever reads it binds the event of half
//! full buffers, though, and Xen gives that to one program at a time, until it ends. So that event is our lock. Buffers
//! that are on without a reader, as of a trace since boot, are left alone too, unless a recorder of ours left them on.

use super::clock::ClocksPair;
use super::records::{Decoder, EVENTS, Stamped, stretch};
use crate::backends::xen::domain::Xen;
use crate::source::SourceError;
use crate::sys::xen::XenError;
use crate::sys::xen::cycles::cycles;
use crate::sys::xen::event_channel::EventChannel;
use crate::sys::xen::sysctl::{TraceControl, TraceInfo, TraceOrder};
use crate::sys::xen::trace_buffers::TraceBuffers;
use nix::errno::Errno;
use std::time::Duration;
use uprof::cold::ExitKind;

/// Our events, with bits that are no class and no subclass: a mark by which we know buffers that we turned on.
const MARKED_EVENTS: u32 = EVENTS | 0x5f1;
/// Xen's events before anyone chose some: `TRC_ALL`.
const ALL_EVENTS: u32 = 0x0fff_f000;
/// Pages for each processor, if the buffers are not allocated yet, in order of preference. They stay until Xen ends.
/// 256 KiB hold 7,000 exits: those of 70 ms at 100,000 a second.
const PAGES: [u32; 3] = [64, 16, 4];
/// How long a quiet trace is watched, and how often.
const WATCH: Duration = Duration::from_millis(10);
const WATCHES: u32 = 10;
/// A ring with less room than this is full: a record that Xen writes with one of losses, and what it may leave at the
/// ring's end.
const FULL_BYTES: u32 = 128;

/// The buffers.
#[derive(Debug)]
pub struct OwnBuffers {
    /// The hypervisor.
    pub xen: Xen,
    control: TraceControl,
    buffers: TraceBuffers,
    decoders: Vec<Decoder>,
    scratch: Vec<u8>,
    /// To be restored.
    events_before: u32,
    /// Unbound when this is dropped.
    _owner: EventChannel,
}

impl OwnBuffers {
    /// Makes the buffers ours. They are off.
    ///
    /// # Errors
    /// Someone else uses them, or they can't be used here.
    pub fn open() -> Result<Self, SourceError> {
        let owner = EventChannel::bind_trace_buffers().map_err(not_bound)?;
        let xen = Xen::open()?;
        let mut control = TraceControl::new(&xen.privcmd)?;
        let before = control.info(&xen.privcmd)?;
        let (info, events_before) = match before.frame {
            None => (allocate(&mut control, &xen, before)?, before.events),
            Some(_) if before.events == MARKED_EVENTS => (before, ALL_EVENTS),
            Some(_) => (before, before.events),
        };
        let buffers = TraceBuffers::map(&xen.privcmd, &info)?;
        if before.frame.is_some() && before.events != MARKED_EVENTS && is_on(&buffers) {
            return Err(SourceError(
                "Xen's trace is on, since boot or by a program that has ended, and is left alone: turn it off \
                 (start and end xentrace) for --host"
                    .into(),
            ));
        }
        let kind = exit_kind();
        let rings = 0..buffers.processors().len();
        let mut own = OwnBuffers {
            decoders: rings.map(|ring| Decoder::new(ring, kind)).collect(),
            scratch: Vec::new(),
            xen,
            control,
            buffers,
            events_before,
            _owner: owner,
        };
        own.order(TraceOrder::Disable)?;
        own.order(TraceOrder::Events(MARKED_EVENTS))?;
        own.order(TraceOrder::AllProcessors)?;
        own.compare_clocks()?;
        Ok(own)
    }

    fn order(&mut self, order: TraceOrder) -> Result<(), XenError> {
        self.control.make(&self.xen.privcmd, order)
    }

    /// Turns them on, for a moment, to see that the records' stamps are those of our own cycle counter.
    fn compare_clocks(&mut self) -> Result<(), SourceError> {
        let differs = || {
            SourceError(
                "the time stamps of Xen's records are not of this domain's cycle counter, so --host has no clock \
                 (dom0 must be a PV guest on x86-64)"
                    .into(),
            )
        };
        let before = ClocksPair::now().ok_or_else(differs)?;
        self.turn_on()?;
        let mut events = Vec::new();
        for _ in 0..WATCHES {
            // Our own sleep is a change of dom0's runstate.
            std::thread::sleep(WATCH);
            self.drain(&mut events);
            if !events.is_empty() {
                break;
            }
        }
        self.order(TraceOrder::Disable)?;
        let after = ClocksPair::now().ok_or_else(differs)?;
        let Some(last) = events.iter().map(|event| event.cycles).max() else {
            return Err(SourceError(
                "Xen wrote no records into its trace buffers".into(),
            ));
        };
        if (before.cycles..=after.cycles).contains(&last) {
            Ok(())
        } else {
            Err(differs())
        }
    }

    /// The processor of each ring.
    pub fn processors(&self) -> &[u32] {
        self.buffers.processors()
    }

    /// Turns them on, empty.
    ///
    /// # Errors
    /// What Xen refused.
    pub fn turn_on(&mut self) -> Result<(), XenError> {
        for ring in 0..self.decoders.len() {
            self.buffers
                .release(ring, self.buffers.positions(ring).written);
        }
        self.order(TraceOrder::Enable)
    }

    /// Turns them off. Records that are there can still be read.
    pub fn turn_off(&mut self) {
        // Xen refuses nothing here that it has allowed before, and this is called again on drop.
        let _ = self.order(TraceOrder::Disable);
    }

    /// Appends the last records, when the buffers are off.
    pub fn drain_last(&mut self, events: &mut Vec<Stamped>) {
        // Xen reports a loss with the next record, and there is none.
        let rings = 0..self.decoders.len();
        let full: Vec<usize> = rings.filter(|ring| is_full(&self.buffers, *ring)).collect();
        self.drain(events);
        for ring in full {
            self.decoders[ring].lose(events);
        }
    }

    /// Appends what was written since the last call.
    pub fn drain(&mut self, events: &mut Vec<Stamped>) {
        let ring_bytes = self.buffers.ring_bytes();
        for (ring, decoder) in self.decoders.iter_mut().enumerate() {
            let at = self.buffers.positions(ring);
            let Some(stretch) = stretch(at.read, at.written, ring_bytes) else {
                decoder.lose(events);
                continue;
            };
            let (from, first_bytes) = stretch.first;
            let first_bytes = first_bytes as usize;
            self.scratch.clear();
            self.scratch
                .resize(first_bytes + stretch.second_bytes as usize, 0);
            let (first, second) = self.scratch.split_at_mut(first_bytes);
            self.buffers.read(ring, from, first);
            self.buffers.read(ring, 0, second);
            self.buffers.release(ring, at.written);
            // Stamps of the future would wait for ever.
            let now = cycles().unwrap_or(u64::MAX);
            decoder.decode(&self.scratch, now, events);
        }
    }
}

impl Drop for OwnBuffers {
    fn drop(&mut self) {
        self.turn_off();
        let _ = self.order(TraceOrder::Events(self.events_before));
    }
}

/// Allocates the buffers.
fn allocate(
    control: &mut TraceControl,
    xen: &Xen,
    before: TraceInfo,
) -> Result<TraceInfo, XenError> {
    let mut order = |order| control.make(&xen.privcmd, order);
    // Allocated buffers are on.
    order(TraceOrder::Events(MARKED_EVENTS))?;
    let mut allocated = Ok(());
    for pages in PAGES {
        allocated = order(TraceOrder::Pages(pages));
        if allocated.as_ref().err().map(|error| error.errno) != Some(libc::ENOMEM) {
            break;
        }
    }
    if allocated.is_err() {
        order(TraceOrder::Events(before.events))?;
    }
    allocated?;
    control.info(&xen.privcmd)
}

/// Whether Xen may have had no room in a ring for a record.
fn is_full(buffers: &TraceBuffers, ring: usize) -> bool {
    let (at, ring_bytes) = (buffers.positions(ring), buffers.ring_bytes());
    let taken = stretch(at.read, at.written, ring_bytes);
    taken.is_some_and(|taken| taken.first.1 + taken.second_bytes + FULL_BYTES > ring_bytes)
}

/// Whether Xen writes records, or did until there was no room.
fn is_on(buffers: &TraceBuffers) -> bool {
    let rings = 0..buffers.processors().len();
    let is_full = rings.clone().any(|ring| is_full(buffers, ring));
    let before: Vec<_> = rings.map(|ring| buffers.positions(ring)).collect();
    let moves = || {
        std::thread::sleep(WATCH);
        (0..)
            .zip(&before)
            .any(|(ring, at)| buffers.positions(ring) != *at)
    };
    is_full || (0..WATCHES).any(|_| moves())
}

fn not_bound(errno: Errno) -> SourceError {
    match errno {
        Errno::EEXIST => SourceError(
            "another program reads Xen's trace buffers, xentrace or a recorder with --host, and is left alone"
                .into(),
        ),
        errno => {
            let advice = "it takes /dev/xen/evtchn, of the kernel module xen_evtchn, in dom0";
            SourceError::system("cannot lock Xen's trace buffers", errno, advice)
        }
    }
}

/// Whose numbers exits have on this processor.
fn exit_kind() -> ExitKind {
    if cfg!(not(target_arch = "x86_64")) {
        return ExitKind::Arm;
    }
    // Of the instruction `cpuid`, the oldest Rust that is supported asks for `unsafe`.
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if ["AuthenticAMD", "HygonGenuine"]
        .iter()
        .any(|vendor| processors.contains(vendor))
    {
        ExitKind::Svm
    } else {
        ExitKind::Vmx
    }
}

/// How long the guardian waits for the kernel to unbind the event of a recorder that was killed.
const UNBIND_WAITS: u32 = 20;
const UNBIND_WAIT: Duration = Duration::from_millis(50);

/// Turns the buffers off that a killed recorder left on.
pub fn turn_off_if_abandoned() {
    let Ok(xen) = Xen::open() else { return };
    let Ok(mut control) = TraceControl::new(&xen.privcmd) else {
        return;
    };
    for _ in 0..UNBIND_WAITS {
        let info = control.info(&xen.privcmd);
        if !info.is_ok_and(|info| info.events == MARKED_EVENTS) {
            return;
        }
        if let Ok(_owner) = EventChannel::bind_trace_buffers() {
            let _ = control.make(&xen.privcmd, TraceOrder::Disable);
            let _ = control.make(&xen.privcmd, TraceOrder::Events(ALL_EVENTS));
            return;
        }
        std::thread::sleep(UNBIND_WAIT);
    }
}
