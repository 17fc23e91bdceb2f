//! A recording from start to end: a sampler on this thread, an encoder on another.

use crate::guest::linux::STACK_BYTES;
use crate::guest::linux::later::LaterKernels;
use crate::guest::linux::{self, KernelFacts, Linux, NotRead, NotUnderstood};
use crate::sampling::sampler::{self, BootTake, Take};
use crate::session::bounds;
use crate::session::monitor_session::MonitorSession;
use crate::source::control::{Control, Counters, Ending};
use crate::source::handled::HandledExits;
use crate::source::plan::Plan;
use crate::source::ring::ring;
use crate::source::{Facts, HeldImage, Hot, MonitorSource, Source, SourceError, Vcpus};
use crate::sys::bell::Bell;
use crate::sys::clock::monotonic_ns;
use crate::writing::encoder::{Encoder, NAP, Tally};
use crate::writing::flight_recorder::Keep;
use crate::writing::guest_kernels::StackSettings;
use crate::writing::monitor_part::{MonitorBytes, MonitorPart};
use crate::writing::outlet::Outlet;
use crate::writing::shared_observer::SharedObserver;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uprof::cold::{LossReason, TargetKind};
use uprof::{Due, Durations};

/// A boot begins so long after its recording was started, when its threads are ready.
const BEFORE_BOOT_NS: u64 = 20_000_000;
/// How long the sampler's thread waits before it lets go again of what it could not let go of, and looks whether the
/// encoder has ended.
const BETWEEN_RELEASES: Duration = Duration::from_millis(2);
/// How long a monitor's recording waits for samples at most: the guest's rings when it ends. A killed recorder loses
/// less than a second of them, with the time that they wait in both encoders.
const LONGEST_WAIT_MS: u64 = 400;

/// The outcome of a recording.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// The kind of target.
    pub kind: TargetKind,
    /// Number of a guest's vCPUs.
    pub vcpus: u32,
    /// Why samples may not account for all of its processor time; see [`crate::Facts`].
    pub missed_time: Option<&'static str>,
    /// Samples in the file; if the output failed, also its waits.
    pub samples: u64,
    /// Rows in the file that are waits.
    pub waits: u64,
    /// Bytes of the file; if the output failed, of the whole blocks in it.
    pub bytes: u64,
    /// Time from start to end.
    pub passed_ns: u64,
    /// What was lost, by reason.
    pub lost: Vec<(LossReason, u64)>,
    /// Samples taken more than [`uprof::due::LATE_NS`] after their deadline.
    pub late: u64,
    /// Freeze or sampling time, one entry for each round.
    pub cost: Durations,
    /// Whether the cost is freeze time.
    pub freezes: bool,
    /// The period that the overhead limit led to, in nanoseconds; `None` if it had no effect.
    pub slowed_to_ns: Option<u64>,
    /// Samples of running vCPUs or threads, and how many were due by the processor time that the kernel, or Xen,
    /// counted; `None` if it was not read.
    pub due: Option<Due>,
    /// Whether threads that live shorter than a period are never sampled; see [`crate::Facts`].
    pub per_thread: bool,
    /// The source's totals: name and count.
    pub counted: Vec<(String, u64)>,
    /// Why it ended.
    pub ending: Ending,
    /// Samples of the guest's monitor, if it was recorded as well.
    pub monitor_samples: Option<u64>,
    /// The error of the output, if any; the file is sound up to there.
    pub output_error: Option<String>,
    /// The files that processes had mapped, opened while the mappings existed.
    pub images: Vec<HeldImage>,
    /// Images of a guest whose code was not found at their stated addresses.
    pub unplaced: Vec<PathBuf>,
    /// Facts about a Linux guest's kernel; `Err` says why its tables are not understood. `None` if the guest is not
    /// Linux or can't be read.
    pub kernel: Option<Result<KernelFacts, NotUnderstood>>,
}

impl Summary {
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.samples + self.waits == 0
    }
}

/// Records `source` into `output` until something ends it.
///
/// # Errors
/// The start of the recording could not be written, or a thread could not be started. Later failures end the
/// recording and are in the [`Summary`].
pub fn record<W: Write + Send>(
    source: Source,
    output: W,
    plan: &Plan,
    counters: Arc<Counters>,
) -> Result<Summary, SourceError> {
    let output = Destination::Output(Box::new(output));
    record_into(source, output, plan, counters, None)
}

/// Records `source` until something ends it, and keeps the last of it as `keep` says. A guest's monitor is not
/// recorded.
///
/// # Errors
/// The window could not be begun, or a thread could not be started. Later failures end the recording and are in the
/// [`Summary`]; those of the disk don't.
pub fn record_window(
    source: Source,
    keep: Keep,
    plan: &Plan,
    counters: Arc<Counters>,
) -> Result<Summary, SourceError> {
    let source = Source {
        monitor: None,
        ..source
    };
    record_into(source, Destination::Window(keep), plan, counters, None)
}

/// Where a recording goes.
enum Destination<'o> {
    Output(Box<dyn Write + Send + 'o>),
    Window(Keep),
}

/// As [`record`], once for all kinds of output: copies of this function would make the recorder larger. `beside`, if
/// the source is the monitor of a guest: where the times of its samples go, and what rings at the end.
fn record_into(
    source: Source,
    destination: Destination<'_>,
    plan: &Plan,
    counters: Arc<Counters>,
    beside: Option<(HandledExits, Arc<Bell>)>,
) -> Result<Summary, SourceError> {
    let Source {
        mut hot,
        observer,
        namer,
        monitor,
        handled,
        warnings: _,
    } = source;
    let mut facts = hot.facts().clone();
    let until = plan
        .until
        .as_deref()
        .map(|name| code_of(name, &facts))
        .transpose()?;
    let until = until.unwrap_or_default();
    // A guest that has not begun has no kernel yet.
    let read = match plan.boot {
        Some(_) => Ok(None),
        None => read_linux(&mut hot),
    };
    let mut is_hidden = false;
    let (kernel, linux, failure) = match read {
        Ok(linux) => (linux.as_ref().map(|linux| Ok(linux.facts())), linux, None),
        Err(NotRead::NotUnderstood(why)) => (Some(Err(why)), None, None),
        Err(NotRead::Failed(error)) => (None, None, Some(error)),
        Err(NotRead::Hidden) => {
            is_hidden = true;
            (None, None, None)
        }
    };
    if let Some(Ok(kernel)) = &kernel {
        facts
            .notes
            .push(("guest kernel".into(), kernel.banner.clone()));
    }
    let mut take = take_of(plan);
    // It boots, or a sample finds it in its kernel.
    let may_be_found = is_hidden
        || plan.boot.is_some() && matches!(&hot, Hot::StopWorld(source) if source.reads_running());
    if may_be_found || linux.as_ref().is_some_and(Linux::walks_stacks) {
        take.kernel_bytes = STACK_BYTES.min(take.window_bytes);
    }
    let clock = bounds::clock_at(monotonic_ns(), plan.boot.map_or(0, |_| BEFORE_BOOT_NS));
    let start_ns = clock.monotonic_ns;
    take.boot = plan.boot.map(|first| BootTake {
        begins_ns: start_ns,
        period_ns: 1e9 / first.rate_hz,
        lasts_ns: u64::try_from(first.lasts.as_nanos()).unwrap_or(u64::MAX),
        most_overhead: plan.most_overhead.unwrap_or(first.most_overhead),
        follows: plan.follow,
    });
    let metadata = bounds::metadata(&facts, plan);
    let observer = Arc::new(SharedObserver::new(observer).map_err(bounds::no_bell)?);
    let outlet = match destination {
        Destination::Output(output) => Outlet::recording(output, &metadata, clock),
        Destination::Window(keep) => {
            Outlet::window(keep, &metadata, &facts, clock, Arc::clone(&counters))
        }
    };
    let outlet = outlet.map_err(bounds::not_written)?;
    let mut encoder = Encoder::create(outlet, &facts, namer, clock, Arc::clone(&observer))
        .map_err(bounds::not_written)?;
    let is_monitor = beside.is_some();
    if let Some((handled, bell)) = beside {
        encoder.reports = Some(handled);
        if let Hot::Pushed(source) = &mut hot {
            source.listen(bell);
        }
    }
    let monitor = monitor.zip(handled).map(|(monitor, handled)| {
        let part = MonitorPart {
            bytes: MonitorBytes::default(),
            handled,
        };
        (monitor, part)
    });
    encoder.monitor = monitor.as_ref().map(|(_, part)| part.clone());
    let mut later_kernels = None;
    if linux.is_some() || may_be_found {
        let (found, later) = std::sync::mpsc::channel();
        later_kernels = Some(LaterKernels::new(found, linux.is_some()));
        let stacks = StackSettings {
            most_frames: if plan.ip_only {
                0
            } else {
                plan.most_frames as usize
            },
            kept_bytes: plan.kept_bytes() as u32,
        };
        encoder.set_kernels(linux, later, stacks);
    }
    let is_guest = facts.target.kind != TargetKind::Process;
    let boot_rate_hz = plan.boot.map_or(0.0, |first| first.rate_hz);
    let highest_rate_hz = plan.rate_hz.max(boot_rate_hz);
    let (mut sink, drain) = ring(
        take.kept_bytes.max(take.kernel_bytes),
        most_at_once(&hot),
        highest_rate_hz,
        is_guest,
    );
    let is_pushed = matches!(hot, Hot::Pushed(_));
    if is_pushed {
        sink.set_bell(observer.bell());
    }
    let longest_nap = longest_nap(is_pushed, is_guest, highest_rate_hz);
    let mut control = Control::new(Arc::clone(&counters), plan.duration);
    control.until = until;
    if is_monitor {
        control.longest_wait_ms = LONGEST_WAIT_MS;
    }

    observer.mark(false);
    let (ending, mut tally, monitor_samples) = std::thread::scope(|scope| {
        let counters = &*counters;
        let encoder = &mut encoder;
        let encoding = bounds::start_thread(scope, "encoder", move || {
            let run = || encoder.run(drain, counters, longest_nap);
            let tally = catch_unwind(AssertUnwindSafe(run));
            tally.unwrap_or_else(|_| encoder.panicked(counters))
        })?;
        let monitor = monitor.map(|(monitor, part)| {
            MonitorSession::start(scope, move |counters, bell| {
                let MonitorSource { source, plan } = monitor;
                let output = Destination::Output(Box::new(part.bytes));
                let beside = Some((part.handled, bell));
                let summary = record_into(*source, output, &plan, counters, beside);
                summary.ok().map(|summary| summary.samples)
            })
        });
        let monitor = monitor.transpose()?;
        let ending = match &mut hot {
            Hot::StopWorld(source) => match failure {
                None => {
                    let source = &mut **source;
                    sampler::stop_world(source, &mut sink, take, &mut control, later_kernels)
                }
                Some(error) => {
                    let ending = sampler::failed(&mut **source, &mut sink, error);
                    match (ending, control.stop_asked()) {
                        (Ending::Failed(_), Some(who)) => Ending::Stopped(who),
                        (ending, _) => ending,
                    }
                }
            },
            Hot::Pushed(source) => sampler::pushed(&mut **source, &mut sink, &mut control),
        };
        // Looking at all processes for the last time takes longer.
        let_go(&mut hot);
        observer.mark(true);
        observer.bell().ring();
        // Its last samples belong to exits that are known now.
        let monitor_samples = monitor.and_then(MonitorSession::end);
        // The encoder may be waiting for its output with all notes in hand.
        while !sink.report_losses() && !sink.is_abandoned() {
            let_go(&mut hot);
            std::thread::sleep(BETWEEN_RELEASES);
        }
        drop(sink);
        observer.bell().ring();
        while !encoding.is_finished() {
            let_go(&mut hot);
            std::thread::sleep(BETWEEN_RELEASES);
        }
        let tally = encoding
            .join()
            .map_err(|_| SourceError("the encoder thread failed; please report this".into()))?;
        Ok::<_, SourceError>((ending, tally, monitor_samples))
    })?;
    let counted = hot.totals();
    let end_ns = observer.now_ns();
    // The guest is released before the last bytes are written.
    drop(hot);

    let writer_stopped = tally.output_error.is_some() && tally.stopped_sampler;
    let ending = bounds::ending_of(ending, writer_stopped);
    let slowed_to_ns = Some(counters.slowed_to_ns.load(Ordering::Relaxed)).filter(|&ns| ns > 0);
    let mut totals = tally.totals();
    totals.extend(counted.iter().cloned());
    totals.extend(slowed_to_ns.map(|ns| ("slowed_to_period_ns".to_string(), ns)));
    let late_ns = control
        .begun_ns
        .map(|begun_ns| begun_ns.saturating_sub(start_ns));
    let late_ns = late_ns.filter(|_| plan.boot.is_some());
    totals.extend(late_ns.map(|ns| ("boot_begun_late_ns".to_string(), ns)));
    let end = bounds::end_record(end_ns, &ending, totals);
    let images = std::mem::take(&mut encoder.held);
    let unplaced = encoder.unplaced();
    let bytes = encoder.finish(&end, &mut tally);
    let (samples, waits) = match tally.output_error {
        Some(_) => (tally.sound.1, 0),
        None => (tally.samples, tally.waits),
    };
    let due = due(&tally, &counted, metadata.sampling.rate_millihertz);
    Ok(Summary {
        kind: facts.target.kind,
        vcpus: facts.target.vcpus,
        missed_time: facts.missed_time,
        samples,
        waits,
        bytes,
        passed_ns: end.time_ns.saturating_sub(start_ns),
        lost: tally.lost.clone(),
        late: tally.late,
        cost: tally.cost,
        freezes: facts.freezes,
        slowed_to_ns,
        due,
        per_thread: facts.per_thread,
        counted,
        ending,
        monitor_samples,
        output_error: tally.output_error,
        images,
        unplaced,
        kernel,
    })
}

/// Lets go of what still needs the sampler.
fn let_go(hot: &mut Hot) {
    if let Hot::StopWorld(source) = hot {
        source.release();
    }
}

/// Where the guest has function `name`, by its images.
///
/// # Errors
/// No image has it.
fn code_of(name: &str, facts: &Facts) -> Result<Vec<Range<u64>>, SourceError> {
    let code: Vec<_> = facts
        .images
        .iter()
        .flat_map(|image| image.ranges(name))
        .collect();
    if code.is_empty() {
        return Err(SourceError(format!(
            "--until: no image of the guest has a function `{name}`: give the image that has it with --elf FILE"
        )));
    }
    Ok(code)
}

/// Number of samples of running vCPUs or threads, and the processor time that was counted for them.
fn due(tally: &Tally, totals: &[(String, u64)], rate_millihertz: u64) -> Option<Due> {
    let samples = tally.samples - tally.not_running;
    let of_process = tally.counted_ns.map(|counted_ns| Due {
        samples,
        counted_ns,
        rate_millihertz,
    });
    of_process.or_else(|| Due::of_guest(totals, samples, rate_millihertz))
}

/// Reads the guest's kernel, if it is Linux.
///
/// # Errors
/// Says why its kernel was not read.
#[cold]
fn read_linux(hot: &mut Hot) -> Result<Option<Linux>, NotRead> {
    match hot {
        Hot::StopWorld(source) if source.facts().target.kind != TargetKind::Process => {
            linux::read(&mut **source)
        }
        _ => Ok(None),
    }
}

/// Most samples at a time: one for each vCPU of a guest, each thread of a process, or each processor.
fn most_at_once(hot: &Hot) -> usize {
    match hot {
        Hot::Pushed(_) => bounds::processors().map_or(1, |count| count as usize),
        Hot::StopWorld(source) => match &source.facts().target {
            target if target.kind == TargetKind::Process => Vcpus::MOST,
            target => target.vcpus as usize,
        },
    }
}

/// How long the encoder may sleep, unless it has to write. What is pushed rings when it comes. Waking it for one or two
/// samples of a guest costs more than the samples do. The ring has room for four rounds, including notes of a guest's
/// code. A process that is stopped may map many files in a moment.
fn longest_nap(is_pushed: bool, is_guest: bool, rate_hz: f64) -> Duration {
    let rounds = Duration::try_from_secs_f64(4.0 / rate_hz).unwrap_or(Duration::MAX);
    match (is_pushed, is_guest) {
        (true, _) => Duration::MAX,
        (_, true) => rounds.max(NAP),
        _ => NAP,
    }
}

/// The sampler's settings, according to the plan.
fn take_of(plan: &Plan) -> Take {
    Take {
        period_ns: 1e9 / plan.rate_hz,
        window_bytes: plan.window_bytes(),
        kept_bytes: plan.kept_bytes(),
        kernel_bytes: 0,
        most_frames: plan.most_frames as usize,
        budget_ns: u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX),
        most_overhead: plan.most_overhead,
        boot: None,
    }
}
