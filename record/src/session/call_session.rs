//! A recording of calls from start to end: a tracer on this thread and a writer on another, so that a slow output never
//! prolongs a pause of the guest.

use crate::session::bounds;
use crate::source::SourceError;
use crate::source::call_source::{CallCost, CallEvent, FollowCalls};
use crate::source::control::{Control, Counters, Ending};
use crate::source::plan::Plan;
use crate::sys::clock::monotonic_ns;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, sync_channel};
use std::time::Duration;
use uprof::Writer;
use uprof::cold::{Loss, LossReason, SLOWED_CALLS};

/// Most events that wait for the writer; more are counted as lost.
const MOST_WAITING: usize = 1 << 16;
/// How long calls may wait until they are written.
const FLUSH: Duration = Duration::from_millis(400);

/// The outcome of a recording of calls.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallSummary {
    /// Calls in the file.
    pub calls: u64,
    /// Number of these whose end was not seen.
    pub without_end: u64,
    /// Number of calls that are known to be missing.
    pub lost: u64,
    /// The names of the functions, which [`CallCost::too_hot`] refers to.
    pub names: Vec<String>,
    /// The cost to the guest.
    pub cost: CallCost,
    /// Bytes of the file.
    pub bytes: u64,
    /// Time from start to end.
    pub passed_ns: u64,
    /// Why it ended.
    pub ending: Ending,
    /// The error of the output, if any; the file is sound up to there.
    pub output_error: Option<String>,
}

/// What the writer wrote, and its error.
#[derive(Default)]
struct WriterCounts {
    calls: u64,
    without_end: u64,
    lost: u64,
    error: Option<String>,
}

/// Records calls into `output` until something ends it. All times are of the monotonic clock, less the time for which
/// the guest was paused since the start.
///
/// # Errors
/// The start of the recording could not be written, or a thread could not be started. Later failures end the
/// recording and are in the [`CallSummary`].
pub fn record_calls<W: Write + Send>(
    mut tracer: Box<dyn FollowCalls>,
    output: W,
    plan: &Plan,
    counters: Arc<Counters>,
) -> Result<CallSummary, SourceError> {
    let start_ns = tracer.cost().guest_ns(monotonic_ns());
    let clock = bounds::clock_at(start_ns, 0);
    let mut metadata = bounds::metadata(tracer.facts(), plan);
    metadata.sampling.rate_millihertz = 0;
    metadata.sampling.trigger = "breakpoints".into();
    metadata.sampling.stack_bytes = 0;
    metadata.cost = None;
    let is_slowed = metadata.notes.iter().any(|(name, _)| name == SLOWED_CALLS);
    let times = if is_slowed {
        "the recorder's monotonic clock; of what breakpoints cost the guest, only its stops are left out"
    } else {
        "the recorder's monotonic clock, without the time for which the guest stood still at breakpoints"
    };
    metadata.notes.extend([
        ("calls of".into(), plan.calls.join(", ")),
        ("times of calls".into(), times.into()),
    ]);
    let uuid = fastrand::u128(..).to_le_bytes();
    let mut writer =
        Writer::create(output, uuid, &metadata, start_ns).map_err(bounds::not_written)?;
    writer.clocks(&[clock]).map_err(bounds::not_written)?;
    writer
        .tasks(&tracer.facts().tasks)
        .map_err(bounds::not_written)?;
    writer.flush().map_err(bounds::not_written)?;
    let mut control = Control::new(Arc::clone(&counters), plan.duration);
    let names = tracer.names();
    let begun_ns = monotonic_ns();
    let (ending, now_ns, mut written, left_out) = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(MOST_WAITING);
        let (counters, writer, names) = (&*counters, &mut writer, &names);
        let writing = bounds::start_thread(scope, "writer", move || {
            write(writer, names, &receiver, counters, begun_ns)
        })?;
        let mut left_out = 0;
        let ending = tracer.run(&mut control, &mut |told| {
            match sender.try_send(told) {
                Err(TrySendError::Full(_)) => left_out += 1,
                // A writer that failed has requested the end; one that panicked has not.
                Err(TrySendError::Disconnected(_)) => counters.stop(),
                Ok(()) => {}
            }
        });
        // What the writer does from now on is no part of the recording.
        let now_ns = monotonic_ns();
        drop(sender);
        let written = writing.join().unwrap_or_else(|_| WriterCounts {
            error: Some("the writer thread failed; please report this".into()),
            ..WriterCounts::default()
        });
        Ok::<_, SourceError>((ending, now_ns, written, left_out))
    })?;
    let end_ns = tracer.cost().guest_ns(now_ns).max(start_ns);
    let cost = tracer.cost().clone();
    // The guest is released before the last bytes are written.
    drop(tracer);
    let ending = bounds::ending_of(ending, written.error.is_some());
    if left_out > 0 {
        // When they came is not known.
        let lost = Loss::new(LossReason::RingFull, left_out, [start_ns, end_ns]);
        written.note(writer.losses(&[lost]));
        written.lost += left_out;
    }
    let totals = vec![
        ("calls".into(), written.calls),
        ("stops".into(), cost.stops),
        ("stopped_ns".into(), cost.stopped_ns()),
        ("functions_given_up".into(), cost.too_hot.len() as u64),
    ];
    let end = bounds::end_record(end_ns, &ending, totals);
    let bytes = writer.written_bytes();
    written.note(writer.finish(&end).map(drop));
    Ok(CallSummary {
        calls: written.calls,
        without_end: written.without_end,
        lost: written.lost,
        names,
        cost,
        bytes,
        passed_ns: now_ns.saturating_sub(begun_ns),
        ending,
        output_error: written.error,
    })
}

/// The writer's thread: encodes events as they come, and flushes the output every `FLUSH`.
fn write<W: Write>(
    writer: &mut Writer<W>,
    names: &[String],
    receiver: &Receiver<CallEvent>,
    counters: &Counters,
    begun_ns: u64,
) -> WriterCounts {
    let mut written = WriterCounts::default();
    let mut flushed_ns = begun_ns;
    loop {
        let told = receiver.recv_timeout(FLUSH);
        let is_over = told == Err(RecvTimeoutError::Disconnected);
        if let Ok(told) = told {
            written.take(writer, names, told);
        }
        let now_ns = monotonic_ns();
        if is_over || u128::from(now_ns - flushed_ns) >= FLUSH.as_nanos() {
            written.note(writer.flush());
            flushed_ns = now_ns;
            counters.samples.store(written.calls, Ordering::Relaxed);
            counters.dropped.store(written.lost, Ordering::Relaxed);
            counters
                .bytes
                .store(writer.written_bytes(), Ordering::Relaxed);
            counters
                .passed_ns
                .store(now_ns - begun_ns, Ordering::Relaxed);
        }
        if written.error.is_some() {
            counters.stop();
        }
        if is_over || written.error.is_some() {
            return written;
        }
    }
}

impl WriterCounts {
    fn take<W: Write>(&mut self, writer: &mut Writer<W>, names: &[String], told: CallEvent) {
        let result = match told {
            CallEvent::Call(call) => {
                self.calls += 1;
                self.without_end += u64::from(!call.complete);
                let name = names.get(call.name).map_or("", String::as_str);
                let task = call.task;
                writer.span(&call.with(name, task))
            }
            CallEvent::Task(event) => writer.tasks(&[event]),
            CallEvent::Lost {
                reason,
                count,
                time_ns,
            } => {
                self.lost += count;
                writer.losses(&[Loss::new(reason, count, [time_ns; 2])])
            }
        };
        self.note(result);
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error.to_string());
        }
    }
}
