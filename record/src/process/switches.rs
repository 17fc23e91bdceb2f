//! The perf events of threads that leave processors and come back. They have ring buffers of their own,
//! so that a program that switches a great deal costs no sample.

use super::events::{Events, Reach};
use super::members::Members;
use super::records::RecordReader;
use super::refusal::refusal;
use super::room::wait_for_room;
use super::waits::Waits;
use super::whom::Whom;
use super::{Refusal, rings};
use crate::ring::Sink;
use crate::source::SourceError;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::{Event, Settings, Trigger};
use nix::errno::Errno;
use std::time::Duration;
use uprof::Task;

/// How old a record is before the order of time is trusted: by then those before it are in their buffers.
const SETTLED_NS: u64 = 1_000_000;
/// How long the end of a recording waits for free slots for threads that still wait.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Those of one recording.
pub struct Switches {
    events: Events,
    waits: Waits,
}

impl Switches {
    /// Opens them on `whom`, as `sampling` does but for what makes the kernel take a stack: on the threads
    /// where there are some to name, since those of processors would make all others' switches slower.
    ///
    /// # Errors
    /// That it is not allowed, and what to do; or what else is wrong.
    pub fn open(sampling: &Settings, whom: &Whom) -> Result<Self, Refusal> {
        let settings = Settings {
            trigger: Trigger::Switches,
            ..*sampling
        };
        // Threads leave processors in the kernel: without it, there is nothing to see.
        if !settings.kernel {
            return Err(Refusal::Failed(forbidden(Errno::EACCES)));
        }
        let per_thread = !matches!(whom, Whom::Machine);
        let events = Events::open(settings, whom, per_thread).map_err(|error| {
            match refusal(error, whom) {
                Refusal::Forbidden(errno) => Refusal::Failed(forbidden(errno)),
                other => other,
            }
        })?;
        let reader = RecordReader {
            members: Members::new(true),
            executing: Default::default(),
            with_stack: settings.user_stack_bytes > 0,
            most_frames: usize::from(settings.most_frames),
            since_ns: u64::MAX,
            began_ns: 0,
        };
        let waits = Waits::new(reader, settings.user_stack_bytes as usize);
        Ok(Switches { events, waits })
    }

    /// The events that own a ring buffer.
    pub fn owners(&self) -> &[Event] {
        self.events.owners()
    }

    /// Threads that are there before the recording; not for events of everyone, of whom most never come.
    pub fn expect(&mut self, tasks: impl Iterator<Item = Task>) {
        if matches!(self.events.reach(), Reach::Threads) {
            tasks.for_each(|task| self.waits.expect(task));
        }
    }

    /// Waits count from now on.
    pub fn start(&mut self, now_ns: u64) {
        self.waits.start(now_ns);
    }

    /// Takes the records that have settled.
    pub fn drain(&mut self, sink: &mut Sink, patience: &mut Duration) {
        self.drain_up_to(monotonic_ns().saturating_sub(SETTLED_NS), sink, patience);
    }

    /// Takes what is left, and gives threads that still wait the time up to now.
    pub fn finish(&mut self, sink: &mut Sink) {
        let (mut patience, now_ns) = (LAST_PATIENCE, monotonic_ns());
        self.drain_up_to(now_ns, sink, &mut patience);
        self.waits.end(now_ns, sink, |sink| {
            wait_for_room(sink, &mut patience);
        });
    }

    fn drain_up_to(&mut self, until_ns: u64, sink: &mut Sink, patience: &mut Duration) {
        let Switches { events, waits } = self;
        let mut now_ns = monotonic_ns();
        rings::drain(
            &mut events.rings,
            until_ns,
            |_| true,
            |kind, misc, body| {
                if wait_for_room(sink, patience) {
                    now_ns = monotonic_ns();
                }
                now_ns = waits.record(kind, misc, body, now_ns, sink);
            },
        );
    }

    /// What was counted: name and count.
    pub fn totals(&self) -> Vec<(String, u64)> {
        self.waits.totals()
    }
}

/// Why `--off-cpu` can't be had.
pub fn forbidden(errno: Errno) -> SourceError {
    SourceError::system(
        "cannot record where threads wait: perf events of switches are not allowed here",
        errno,
        "run as root, or allow them: sysctl kernel.perf_event_paranoid=1",
    )
}
