//! The perf events of context switches. They have ring buffers of their own, so that a program with many switches
//! costs no samples.

use super::events::{Events, Reach};
use super::members::Members;
use super::records::RecordReader;
use super::refusal::{self, refusal};
use super::scope::Scope;
use super::waits::Waits;
use super::{Refusal, rings};
use crate::source::SourceError;
use crate::source::ring::Sink;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf::{Event, Settings, Trigger};
use nix::errno::Errno;
use std::time::Duration;
use uprof::Task;

/// Most stack bytes of a wait, unless the user gave a number. Threads switch thousands of times a second, and a wait is
/// lost if the buffers have no room. The stacks of samples may be larger, since the rate of samples is known.
const USUAL_STACK_BYTES: u32 = 4 << 10;

/// Age in nanoseconds at which records are in order of time: by then all earlier ones are in their buffers.
const SETTLED_NS: u64 = 1_000_000;
/// How long the end of a recording waits for slots for unfinished waits.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The switches of a recording.
pub struct Switches {
    events: Events,
    waits: Waits,
}

impl Switches {
    /// Opens the events on `scope` with the settings of `sampling`, except the trigger. Unless the scope is the
    /// machine, they are tied to threads, since events of processors would slow down the switches of all others.
    ///
    /// # Errors
    /// Says why the events can't be opened, and what to do.
    pub fn open(sampling: &Settings, scope: &Scope) -> Result<Self, Refusal> {
        let settings = Settings {
            trigger: Trigger::Switches,
            user_stack_bytes: if sampling.fits_stack {
                sampling.user_stack_bytes.min(USUAL_STACK_BYTES)
            } else {
                sampling.user_stack_bytes
            },
            ..*sampling
        };
        // A thread is switched out in the kernel, so without the kernel there are no samples.
        if !settings.kernel {
            return Err(Refusal::Failed(forbidden(Errno::EACCES)));
        }
        let per_thread = !matches!(scope, Scope::Machine);
        let events = Events::open(settings, scope, per_thread).map_err(|error| {
            match refusal(error, scope) {
                Refusal::Forbidden(errno) => Refusal::Failed(forbidden(errno)),
                other => other,
            }
        })?;
        let reader = RecordReader {
            members: Members::new(true),
            executing: Default::default(),
            repeats: Default::default(),
            with_stack: settings.user_stack_bytes > 0,
            most_frames: usize::from(settings.most_frames),
            // Where a wait's code is, in the scheduler, says nothing.
            ip_only: false,
            since_ns: u64::MAX,
            began_ns: 0,
            leaves_out_guests: false,
        };
        let waits = Waits::new(reader, settings.user_stack_bytes as usize);
        Ok(Switches { events, waits })
    }

    /// The events that own a ring buffer.
    pub fn owners(&self) -> &[Event] {
        self.events.owners()
    }

    /// Adds threads that exist before the recording, if they are watched. Does nothing with events of the whole
    /// machine, most of whose threads never switch.
    pub fn expect(&mut self, tasks: impl Iterator<Item = Task>) {
        if matches!(self.events.reach(), Reach::Threads) {
            let unwatched = &self.events.unwatched;
            tasks
                .filter(|task| !unwatched.contains(&task.vcpu.cast_signed()))
                .for_each(|task| self.waits.expect(task));
        }
    }

    /// The number of threads that could not be watched for lack of file descriptors.
    pub fn unwatched(&self) -> usize {
        self.events.unwatched.len()
    }

    /// Whether threads of processes that come later are not watched.
    pub fn is_per_thread(&self) -> bool {
        matches!(self.events.reach(), Reach::Threads)
    }

    /// Begins to record waits.
    pub fn start(&mut self, now_ns: u64) {
        self.waits.start(now_ns);
    }

    /// Handles the records that have settled.
    pub fn drain(&mut self, sink: &mut Sink, patience: &mut Duration) {
        self.drain_up_to(monotonic_ns().saturating_sub(SETTLED_NS), sink, patience);
    }

    /// Handles the remaining records, and ends unfinished waits now.
    pub fn finish(&mut self, sink: &mut Sink) {
        let (mut patience, now_ns) = (LAST_PATIENCE, monotonic_ns());
        self.drain_up_to(now_ns, sink, &mut patience);
        self.waits.end(now_ns, sink, |sink| {
            sink.wait_for_room(&mut patience);
        });
    }

    fn drain_up_to(&mut self, until_ns: u64, sink: &mut Sink, patience: &mut Duration) {
        let Switches { events, waits } = self;
        let mut now_ns = monotonic_ns();
        rings::drain(
            &mut events.rings,
            until_ns,
            |_, _| true,
            |_, kind, misc, body| {
                if sink.wait_for_room(patience) {
                    now_ns = monotonic_ns();
                }
                now_ns = waits.record(kind, misc, body, now_ns, sink);
            },
        );
    }

    /// Totals: name and count.
    pub fn totals(&self) -> Vec<(String, u64)> {
        self.waits.totals()
    }
}

/// The error of `--off-cpu` where it is not possible.
pub fn forbidden(errno: Errno) -> SourceError {
    SourceError::system(
        "cannot record where threads wait: perf events of switches are not allowed here",
        errno,
        &refusal::advice(errno, 1),
    )
}
