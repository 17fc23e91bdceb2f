//! Reads the trace while samples are taken, on the encoder's thread.

use super::buffers::OwnBuffers;
use super::clock::{ClocksPair, CycleClock};
use super::processors::{AskedVcpu, HostTime, Processors};
use super::records::{RunState, Stamped};
use crate::guest::pauses::{PauseWriter, Pauses, pauses};
use crate::source::{Observations, Observer, SourceError};
use crate::sys::clock::monotonic_ns;
use std::time::Duration;
use uprof::State;
use uprof::cold::ProcessTime;

/// How often the buffers are emptied, at most.
const READ_EVERY_NS: u64 = 4_000_000;
/// A record may be written a little later than its time stamp says, so that the latest ones wait.
const LATE_NS: u64 = 1_000_000;

/// Xen's clock and ours may differ by this much.
pub(super) const SLACK_NS: u64 = 20_000;

/// The domain whose time is recorded.
#[derive(Debug, Clone, Copy)]
pub struct ObservedDomain {
    /// Its number.
    pub id: u16,
    /// Whether Xen records its entries and exits: it is an HVM or PVH guest.
    pub is_hvm: bool,
    /// vCPUs that it may have.
    pub vcpus: u32,
}

/// Reads where the time of one domain goes.
struct TraceObserver {
    domain: ObservedDomain,
    buffers: OwnBuffers,
    clock: CycleClock,
    /// `None` before sampling begins.
    processors: Option<Processors>,
    /// Events that are too new to be in order.
    waiting: Vec<Stamped>,
    pauses: Pauses,
    read_ns: u64,
}

/// Prepares Xen's trace for `domain`, of which the writer must be given our pauses. There is no time before
/// [`Observer::count`] begins it.
///
/// # Errors
/// Xen's trace buffers are in use, or can't be used here.
pub fn observe(domain: ObservedDomain) -> Result<(Box<dyn Observer>, PauseWriter), SourceError> {
    let no_clock =
        || SourceError("--host needs the cycle counter of x86-64 for Xen domains".into());
    let pair = ClocksPair::now().ok_or_else(no_clock)?;
    let (writer, pauses) = pauses(SLACK_NS);
    let observer = TraceObserver {
        domain,
        buffers: OwnBuffers::open()?,
        clock: CycleClock::new(pair),
        processors: None,
        waiting: Vec::new(),
        pauses,
        read_ns: 0,
    };
    Ok((Box::new(observer), writer))
}

impl TraceObserver {
    fn begin(&mut self) {
        let Some(pair) = ClocksPair::now() else {
            return;
        };
        self.clock.reach(pair);
        self.clock.advance();
        if self.buffers.turn_on().is_err() {
            return;
        }
        // Asked when the trace is on: a later change has a record.
        let vcpus = 0..self.domain.vcpus;
        let asked: Vec<AskedVcpu> = vcpus.map(|vcpu| self.ask(vcpu)).collect();
        let ObservedDomain { id, is_hvm, .. } = self.domain;
        let rings = self.buffers.processors().len();
        self.processors = Some(Processors::new(id, is_hvm, &asked, rings, pair.ns));
    }

    fn ask(&mut self, vcpu: u32) -> AskedVcpu {
        let info = self.buffers.xen.vcpu_info(self.domain.id, vcpu).ok();
        let processors = self.buffers.processors();
        let on = info.filter(|info| info.running != 0).map(|info| info.cpu);
        AskedVcpu {
            state: info.map(|info| match info.state() {
                State::Running => RunState::Running,
                State::Blocked => RunState::Blocked,
                State::Offline => RunState::Offline,
                _ => RunState::Runnable,
            }),
            is_down: info.is_some_and(|info| info.online == 0),
            ring: on.and_then(|cpu| processors.iter().position(|one| *one == cpu)),
        }
    }

    /// Takes the records that are old enough to be in order, up to a time which it returns; all of them if Xen writes
    /// no more. `None` if there is no clock.
    fn read(&mut self, is_over: bool) -> Option<u64> {
        let pair = ClocksPair::now()?;
        self.clock.reach(pair);
        if is_over {
            self.buffers.drain_last(&mut self.waiting);
        } else {
            self.buffers.drain(&mut self.waiting);
        }
        self.pauses.take();
        let late = if is_over {
            0
        } else {
            self.clock.cycles_of(LATE_NS)
        };
        let until = pair.cycles.saturating_sub(late);
        // Stable: the order within a ring stays.
        self.waiting.sort_by_key(|event| event.cycles);
        let old = |event: &Stamped| is_over || event.cycles <= until;
        let count = self.waiting.partition_point(old);
        let processors = self.processors.as_mut()?;
        for Stamped {
            cycles,
            ring,
            event,
        } in self.waiting.drain(..count)
        {
            let time_ns = self.clock.ns(cycles).min(pair.ns);
            processors.take(ring, time_ns, event, &self.pauses);
        }
        self.read_ns = pair.ns;
        Some(self.clock.ns(until).min(pair.ns))
    }

    /// Hands over the time up to `until_ns`.
    fn hand_over(&mut self, until_ns: u64) -> Observations {
        let Some(processors) = &mut self.processors else {
            return Observations::default();
        };
        for (vcpu, account) in (0..).zip(processors.vcpus()) {
            if account.is_offline() {
                let info = self.buffers.xen.vcpu_info(self.domain.id, vcpu);
                account.is_down = info.is_ok_and(|info| info.online == 0);
            }
        }
        let HostTime {
            vcpu_times,
            exits,
            losses,
        } = processors.hand_over(until_ns, &self.pauses);
        self.pauses.forget_before(until_ns);
        self.clock.advance();
        Observations {
            vcpu_times,
            exits,
            losses,
            ..Observations::default()
        }
    }
}

impl Observer for TraceObserver {
    fn look(&mut self, _now_ns: u64) -> Observations {
        let until_ns = self.read(false);
        until_ns.map_or_else(Observations::default, |until_ns| self.hand_over(until_ns))
    }

    fn poll(&mut self, _: bool) -> Duration {
        if self.processors.is_some() && monotonic_ns().saturating_sub(self.read_ns) >= READ_EVERY_NS
        {
            self.read(false);
        }
        Duration::from_nanos(READ_EVERY_NS)
    }

    fn count(&mut self, last: bool) -> Option<Vec<ProcessTime>> {
        if !last {
            self.begin();
        }
        None
    }

    fn end(&mut self) -> Observations {
        self.buffers.turn_off();
        let until_ns = self.read(true);
        until_ns.map_or_else(Observations::default, |until_ns| self.hand_over(until_ns))
    }
}
