//! Faults during recording, made by a fake guest and fake outputs. The tests check the summary and the file.
//! docs/reliability.md names these tests.

mod fake;

use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uniprof_record::Ending;
use uniprof_record::ring::Sink;
use uniprof_record::source::{Hot, Namer, NamerAnswer, Vcpu, Vcpus};
use uniprof_record::{Counters, Facts, Life, Plan, Source, SourceError, StopWorld, Summary};
use uniprof_record::{monotonic_ns, realtime_ns};
use uprof::cold::{ClockPair, End, EndReason, Loss, LossReason, ModuleChange, ModuleEvent, Target};
use uprof::{Frame, Item, Payload, SliceReader, Stop};

/// The calls of the fake guest that fail, counted from 1; 0 means none.
#[derive(Debug, Clone, Default)]
struct Faults {
    freeze: u32,
    every_read: u32,
    resume: u32,
    between: u32,
    panic_in_read: u32,
    /// Whether memory is read while the guest runs, so that a kernel is searched for before the first sample.
    reads_running: bool,
    /// Time until the first sample may be taken.
    slow_start: Duration,
    /// The freeze that takes long, and its duration.
    slow_freeze: Option<(u32, Duration)>,
    /// If not 0, the guest is not paused, and every n-th look finds that it has moved on.
    every_look_moved: u32,
    /// Every n-th freeze is ended by another process.
    every_rescue: u32,
    /// The guest is resumed this long after it was frozen, and then takes the processor from the recorder for
    /// ten times as long.
    let_go_after: Duration,
}

/// Number of calls of each function, for the test.
#[derive(Debug, Default)]
struct Calls {
    freezes: AtomicU32,
    reads: AtomicU32,
    resumes: AtomicU32,
    looks: AtomicU32,
    betweens: AtomicU32,
    releases: AtomicU32,
}

fn next(count: &AtomicU32) -> u32 {
    count.fetch_add(1, Ordering::Relaxed) + 1
}

/// vCPUs with readable stacks. It is named fake because it is not a real guest.
struct FakeGuest {
    facts: Facts,
    vcpus: u32,
    faults: Faults,
    calls: Arc<Calls>,
    let_go_ns: Option<u64>,
}

impl StopWorld for FakeGuest {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        let number = next(&self.calls.freezes);
        let after_ns = self.faults.let_go_after.as_nanos() as u64;
        self.let_go_ns = Some(now_ns + after_ns).filter(|_| after_ns > 0);
        if number == self.faults.freeze {
            return Err(SourceError("the guest can't be paused".into()));
        }
        if let Some((slow, time)) = self.faults.slow_freeze
            && slow == number
        {
            std::thread::sleep(time);
        }
        fake::push_running(vcpus, self.vcpus);
        Ok(())
    }

    fn read(&mut self, _: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        let number = next(&self.calls.reads);
        assert_ne!(number, self.faults.panic_in_read, "a fault of the backend");
        if self.faults.every_read > 0 && number.is_multiple_of(self.faults.every_read) {
            return 0;
        }
        fake::read_frames(address, into)
    }

    fn reads_running(&self) -> bool {
        self.faults.reads_running
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        std::thread::sleep(10 * self.faults.let_go_after);
        if next(&self.calls.resumes) == self.faults.resume {
            Err(SourceError("the guest may stand still".into()))
        } else {
            Ok(())
        }
    }

    fn resumed_ns(&self) -> Option<u64> {
        self.let_go_ns
    }

    fn has_moved(&self, _: &Vcpu) -> bool {
        let number = next(&self.calls.looks);
        number.is_multiple_of(self.faults.every_look_moved)
            || number.is_multiple_of(self.faults.every_rescue)
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        let number = next(&self.calls.betweens);
        if number == 1 {
            std::thread::sleep(self.faults.slow_start);
        }
        if number == self.faults.between {
            Err(SourceError("the guest can't be seen any more".into()))
        } else {
            Ok(Life::Alive)
        }
    }

    fn release(&mut self) {
        next(&self.calls.releases);
    }
}

fn fake(vcpus: u32, faults: Faults) -> (Source, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let guest = FakeGuest {
        facts: Facts {
            freezes: faults.every_look_moved == 0,
            ..Facts::new(Target::default())
        },
        vcpus,
        faults,
        calls: Arc::clone(&calls),
        let_go_ns: None,
    };
    (Source::of(Hot::StopWorld(Box::new(guest))), calls)
}

fn plan(milliseconds: u64) -> Plan {
    Plan {
        rate_hz: 997.0,
        duration: Some(Duration::from_millis(milliseconds)),
        stack_bytes: 4096,
        ..Plan::default()
    }
}

/// An output that behaves as `write` decides, and keeps the bytes that it accepted.
struct Faulty<F> {
    taken: Arc<Mutex<Vec<u8>>>,
    /// Gets the number of bytes written so far and of those offered. Returns how many are accepted.
    write: F,
}

impl<F: FnMut(usize, usize) -> io::Result<usize>> Write for Faulty<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.taken.lock().unwrap();
        let count = (self.write)(taken.len(), bytes.len())?.min(bytes.len());
        taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records into a faulty output. Returns the bytes that it accepted.
fn record_into(
    source: Source,
    plan: &Plan,
    write: impl FnMut(usize, usize) -> io::Result<usize> + Send,
) -> (Result<Summary, SourceError>, Vec<u8>) {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let output = Faulty {
        taken: Arc::clone(&taken),
        write,
    };
    let summary = uniprof_record::record(source, output, plan, Arc::new(Counters::default()));
    let bytes = taken.lock().unwrap().clone();
    (summary, bytes)
}

/// Records into an output that accepts everything.
fn record(source: Source, plan: &Plan) -> (Summary, Vec<u8>) {
    let (summary, bytes) = record_into(source, plan, |_, offered| Ok(offered));
    (summary.unwrap(), bytes)
}

/// The content of a recording.
#[derive(Debug, Default)]
struct Contents {
    samples: u64,
    damages: Vec<String>,
    stops: Vec<Stop>,
    /// Number of frames and stack bytes of each sample.
    lengths: Vec<(usize, usize)>,
    times_ns: Vec<u64>,
    lost: Vec<(LossReason, u64)>,
    losses: Vec<Loss>,
    realtime_ns: Vec<i64>,
    end: Option<End>,
}

fn read(bytes: &[u8]) -> Contents {
    let mut found = Contents::default();
    for item in SliceReader::open(bytes).unwrap().blocks() {
        let block = match item {
            Item::Block(block) => block,
            Item::Damage(damage) => {
                found.damages.push(damage.to_string());
                continue;
            }
        };
        match block.payload().unwrap() {
            Payload::Samples(samples) => {
                let mut rows = samples.rows();
                while let Some(row) = rows.next_row().unwrap() {
                    found.samples += 1;
                    found.stops.push(row.stop);
                    let stack = row.stack.map_or(0, |stack| stack.bytes.len());
                    let frames = samples.chain(row.node).count();
                    found.lengths.push((frames, stack));
                    found.times_ns.push(row.time_ns);
                }
            }
            Payload::Losses(losses) => {
                let counts = losses.iter().map(|loss| (loss.reason, loss.count));
                found.lost.extend(counts);
                found.losses.extend(losses);
            }
            Payload::Clocks(pairs) => {
                found
                    .realtime_ns
                    .extend(pairs.iter().map(|pair| pair.realtime_ns));
            }
            Payload::End(end) => found.end = Some(end),
            _ => {}
        }
    }
    found
}

fn lost(list: &[(LossReason, u64)], reason: LossReason) -> u64 {
    let counts = list.iter().filter(|(found, _)| *found == reason);
    counts.map(|(_, count)| count).sum()
}

#[test]
fn short_writes_and_interruptions_change_nothing() {
    let mut calls = 0;
    let (source, _) = fake(2, Faults::default());
    let (summary, bytes) = record_into(source, &plan(600), |_, offered| {
        calls += 1;
        match calls % 3 {
            0 => Err(ErrorKind::Interrupted.into()),
            _ => Ok(offered.min(7)),
        }
    });
    let (summary, found) = (summary.unwrap(), read(&bytes));
    assert!(found.damages.is_empty(), "{:?}", found.damages);
    assert!(found.samples > 100 && found.samples == summary.samples);
    assert_eq!(summary.output_error, None);
    assert_eq!(found.end.unwrap().reason, EndReason::Duration);
}

#[test]
fn a_full_disk_ends_the_recording_and_what_fitted_is_sound() {
    for room in [2_000, 6_000, 20_000] {
        let (source, _) = fake(2, Faults::default());
        let began = Instant::now();
        let (summary, bytes) =
            record_into(source, &plan(60_000), |taken, offered| match room - taken {
                0 => Err(ErrorKind::StorageFull.into()),
                left => Ok(offered.min(left)),
            });
        assert!(began.elapsed() < Duration::from_secs(30), "it goes on");
        let summary = summary.unwrap();
        assert!(summary.output_error.unwrap().contains("no storage space"));
        assert_eq!(summary.ending.to_string(), "the output failed");
        let found = read(&bytes);
        assert!(found.damages.len() <= 1, "{:?}", found.damages);
        assert!(found.end.is_none());
    }
}

#[test]
fn an_output_that_takes_nothing_is_told_before_anything_is_recorded() {
    let (source, calls) = fake(2, Faults::default());
    let (summary, _) = record_into(source, &plan(60_000), |_, _| {
        Err(ErrorKind::PermissionDenied.into())
    });
    let message = summary.unwrap_err().to_string();
    assert!(
        message.starts_with("cannot write the recording: "),
        "{message}"
    );
    assert_eq!(
        calls.freezes.load(Ordering::Relaxed),
        0,
        "the guest was paused"
    );
}

#[test]
fn a_ring_that_overflows_counts_what_it_drops() {
    let (source, _) = fake(64, Faults::default());
    let mut slow = plan(2_500);
    slow.stack_bytes = 64 << 10;
    let (summary, bytes) = record_into(source, &slow, |_, offered| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(offered)
    });
    let (summary, found) = (summary.unwrap(), read(&bytes));
    let dropped = lost(&summary.lost, LossReason::RingFull);
    assert!(dropped > 0, "nothing was dropped: {:?}", summary.lost);
    assert_eq!(dropped, lost(&found.lost, LossReason::RingFull));
    assert_eq!(found.samples, summary.samples);
    assert!(found.damages.is_empty());
}

#[test]
fn a_guest_that_runs_in_our_place_does_not_stand_still() {
    let faults = Faults {
        let_go_after: Duration::from_micros(300),
        ..Faults::default()
    };
    let (summary, _) = record(fake(2, faults).0, &plan(300));
    assert!(summary.samples > 10, "{summary:?}");
    assert_eq!(summary.cost.max_ns, 300_000);
}

#[test]
fn a_guest_that_can_not_be_paused_any_more_ends_the_recording() {
    let (source, calls) = fake(
        2,
        Faults {
            freeze: 50,
            ..Faults::default()
        },
    );
    let (summary, bytes) = record(source, &plan(60_000));
    assert!(matches!(&summary.ending, Ending::Failed(error) if error.0.contains("paused")));
    let found = read(&bytes);
    // An encoder that gets no processor makes the ring full, and what finds no room is counted.
    let dropped = lost(&found.lost, LossReason::RingFull);
    assert_eq!(found.samples + dropped, 98, "49 rounds of two");
    let end = found.end.unwrap();
    assert_eq!(end.reason, EndReason::SourceFailed);
    assert_eq!(end.message, "the guest can't be paused");
    assert_eq!(
        calls.resumes.load(Ordering::Relaxed),
        49,
        "each pause was ended"
    );
}

#[test]
fn a_guest_that_can_not_be_resumed_or_seen_ends_the_recording() {
    let resume = Faults {
        resume: 20,
        ..Faults::default()
    };
    let between = Faults {
        between: 2,
        ..Faults::default()
    };
    for (faults, says) in [(resume, "stand still"), (between, "seen")] {
        let (source, calls) = fake(1, faults);
        let (summary, bytes) = record(source, &plan(60_000));
        let end = read(&bytes).end.unwrap();
        assert_eq!(end.reason, EndReason::SourceFailed);
        assert!(end.message.contains(says), "{}", end.message);
        assert!(summary.samples > 0);
        let freezes = calls.freezes.load(Ordering::Relaxed);
        // If resuming fails, the guard tries once more when it is dropped.
        let more = u32::from(says == "stand still");
        assert_eq!(calls.resumes.load(Ordering::Relaxed), freezes + more);
    }
}

#[test]
fn a_guest_that_fails_while_a_kernel_is_looked_for_ends_the_recording() {
    let looked_at = Faults {
        reads_running: true,
        ..Faults::default()
    };
    let freeze = Faults {
        freeze: 1,
        ..looked_at.clone()
    };
    let resume = Faults {
        resume: 1,
        ..looked_at
    };
    for (faults, says) in [(freeze, "can't be paused"), (resume, "stand still")] {
        let (source, calls) = fake(1, faults);
        let (summary, bytes) = record(source, &plan(60_000));
        assert!(matches!(&summary.ending, Ending::Failed(error) if error.0.contains(says)));
        let end = read(&bytes).end.unwrap();
        assert_eq!(end.reason, EndReason::SourceFailed);
        assert!(end.message.contains(says), "{}", end.message);
        assert_eq!(summary.samples, 0);
        assert_eq!(calls.freezes.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn memory_that_can_not_be_read_cuts_that_stack_alone() {
    let (source, _) = fake(
        1,
        Faults {
            every_read: 3,
            ..Faults::default()
        },
    );
    let (summary, bytes) = record(source, &plan(600));
    let found = read(&bytes);
    assert_eq!(found.samples, summary.samples);
    let unreadable = found
        .stops
        .iter()
        .filter(|stop| **stop == Stop::Unreadable)
        .count();
    let share = unreadable as f64 / found.samples as f64;
    assert!(
        share > 0.1 && share < 0.9,
        "{unreadable} of {}",
        found.samples
    );
}

#[test]
fn a_stack_that_was_read_while_its_vcpu_went_on_is_not_walked() {
    let faults = Faults {
        every_look_moved: 3,
        ..Faults::default()
    };
    let (source, _) = fake(1, faults);
    let (_, bytes) = record(source, &plan(600));
    let found = read(&bytes);
    // This guest has no call before its return addresses.
    for (number, (stop, length)) in (1..).zip(found.stops.iter().zip(&found.lengths)) {
        let whole = (&Stop::Depth, &(256, 4096));
        let cut = (&Stop::Moved, &(1, 0));
        let expected = if number % 3 == 0 { cut } else { whole };
        assert_eq!((stop, length), expected, "sample {number}");
    }
    assert!(found.samples > 30, "{} samples", found.samples);
}

/// The bytes that are copied then may be from several moments.
#[test]
fn a_freeze_that_the_guardian_ended_leaves_the_innermost_frame() {
    let faults = Faults {
        every_rescue: 3,
        ..Faults::default()
    };
    let (source, _) = fake(1, faults);
    let (_, bytes) = record(source, &plan(600));
    let found = read(&bytes);
    let cut = found.stops.iter().filter(|stop| **stop == Stop::Moved);
    assert_eq!(cut.count() as u64, found.samples / 3);
    for (stop, &(frames, stack_bytes)) in found.stops.iter().zip(&found.lengths) {
        assert_eq!(
            *stop == Stop::Moved,
            (frames, stack_bytes) == (1, 0),
            "{stop:?}"
        );
    }
}

#[test]
fn a_panic_while_the_guest_stands_still_lets_it_go() {
    let (source, calls) = fake(
        1,
        Faults {
            panic_in_read: 30,
            ..Faults::default()
        },
    );
    let taken = catch_unwind(AssertUnwindSafe(|| record(source, &plan(60_000))));
    assert!(taken.is_err());
    let freezes = calls.freezes.load(Ordering::Relaxed);
    assert_eq!(calls.resumes.load(Ordering::Relaxed), freezes);
}

/// This happens if the recorder is stopped, or if the machine swaps.
#[test]
fn deadlines_that_pass_while_a_freeze_drags_on_are_counted() {
    let slow_freeze = Some((100, Duration::from_millis(700)));
    let (source, _) = fake(
        1,
        Faults {
            slow_freeze,
            ..Faults::default()
        },
    );
    let (summary, bytes) = record(source, &plan(2_000));
    let found = read(&bytes);
    let missed = lost(&found.lost, LossReason::Deadline);
    assert!(missed >= 600, "{missed} of about 700 deadlines");
    assert_eq!(missed, lost(&summary.lost, LossReason::Deadline));
    assert!(summary.cost.max_ns >= 700_000_000);
    // The time that lacks samples is told.
    let longest_ns = found.losses.iter().map(|loss| loss.last_ns - loss.first_ns);
    assert!(longest_ns.max() >= Some(700_000_000), "{:?}", found.losses);
    // Samples that were missed or taken add up to the rate.
    let all = found.samples + missed;
    assert!((1_900..2_100).contains(&all), "{all} deadlines in 2 s");
}

#[test]
fn the_time_asked_for_begins_when_sampling_can() {
    let (source, _) = fake(
        4,
        Faults {
            slow_start: Duration::from_millis(900),
            ..Faults::default()
        },
    );
    let plan = Plan {
        rate_hz: 100.0,
        duration: Some(Duration::from_secs(1)),
        ..plan(0)
    };
    let (summary, bytes) = record(source, &plan);
    let found = read(&bytes);
    assert_eq!(found.samples % 4, 0);
    // A deadline that is missed loses a sample of each vCPU.
    let missed = lost(&summary.lost, LossReason::Deadline);
    assert_eq!(missed % 4, 0);
    let (rounds, missed) = (found.samples / 4, missed / 4);
    assert!(
        (99..=101).contains(&(rounds + missed)),
        "{rounds} rounds, {missed} missed"
    );
}

/// A namer that misses something when sampling has ended, and remembers when that was.
struct LateNamer(Arc<AtomicU64>);

impl Namer for LateNamer {
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent {
        ModuleEvent {
            time_ns: clock.monotonic_ns,
            space: 0,
            what: ModuleChange::Cleared,
        }
    }

    fn see(&mut self, _: &[Frame]) {}

    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
        Some(event)
    }

    fn answer(&mut self, last: bool) -> NamerAnswer {
        if last {
            self.0.store(monotonic_ns(), Ordering::Relaxed);
        }
        NamerAnswer {
            lost: u64::from(last),
            ..NamerAnswer::default()
        }
    }
}

/// Names of many files may take a minute, in which nobody samples.
#[test]
fn what_the_recorder_does_after_the_last_sample_is_no_part_of_the_recording() {
    let asked_ns = Arc::new(AtomicU64::new(0));
    let (mut source, _) = fake(1, Faults::default());
    source.namer = Some(Box::new(LateNamer(Arc::clone(&asked_ns))));
    let (_, bytes) = record(source, &plan(300));
    let found = read(&bytes);
    let end_ns = found.end.unwrap().time_ns;
    assert!(found.times_ns.iter().all(|time_ns| *time_ns <= end_ns));
    assert!(end_ns <= asked_ns.load(Ordering::Relaxed));
    // Nor does it lose anything at a later time.
    let mut losses = found.losses.iter();
    let unnamed = losses.find(|loss| loss.reason == LossReason::EventsLost);
    assert_eq!(unnamed.map(|loss| loss.last_ns), Some(end_ns));
}

/// A thread that could not be let go of at once stops later, and must not wait for the last bytes.
#[test]
fn a_guest_is_let_go_of_while_the_end_is_written() {
    let (source, calls) = fake(1, Faults::default());
    let mut is_let_go = false;
    let (summary, _) = record_into(source, &plan(50), |_, offered| {
        if std::thread::current().name() == Some("uniprof-encoder") && !is_let_go {
            is_let_go = (0..10_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                calls.releases.load(Ordering::Relaxed) > 2
            });
            assert!(is_let_go, "it waits for the encoder");
        }
        Ok(offered)
    });
    assert_eq!(summary.unwrap().output_error, None);
    assert!(is_let_go, "the encoder wrote nothing");
}

/// Steps of the wall clock have no effect, because only pairs of clock values contain it.
#[test]
fn times_are_of_the_monotonic_clock() {
    let (source, _) = fake(1, Faults::default());
    let (before_ns, wall_ns) = (monotonic_ns(), realtime_ns());
    let (_, bytes) = record(source, &plan(300));
    let after_ns = monotonic_ns();
    let found = read(&bytes);
    assert!(found.times_ns.is_sorted());
    assert!(
        found
            .times_ns
            .iter()
            .all(|time| (before_ns..after_ns).contains(time))
    );
    // The two clocks are decades apart, so that they can't be confused.
    assert!(before_ns.abs_diff(wall_ns as u64) > 1_000_000_000_000_000);
    assert_eq!(found.realtime_ns.len(), 1);
    assert!((wall_ns..=realtime_ns()).contains(&found.realtime_ns[0]));
}

/// An output that panics in the thread of the encoder.
struct Panics;

impl Write for Panics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert_ne!(
            std::thread::current().name(),
            Some("uniprof-encoder"),
            "a fault of the output"
        );
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_recording_that_is_stopped_does_not_wait_for_its_next_sample() {
    let (source, _) = fake(1, Faults::default());
    let plan = Plan {
        duration: None,
        rate_hz: 0.01,
        ..plan(0)
    };
    let counters = Arc::new(Counters::default());
    let shared = Arc::clone(&counters);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        shared.stop();
        Instant::now()
    });
    let summary = uniprof_record::record(source, Vec::new(), &plan, counters).unwrap();
    let stopped = stopper.join().unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(50));
    assert_eq!(
        summary.ending,
        Ending::Stopped("stopped by the program".into())
    );
}

#[test]
fn an_encoder_that_panics_ends_the_recording() {
    let (source, calls) = fake(1, Faults::default());
    let plan = Plan {
        duration: None,
        ..plan(0)
    };
    let began = Instant::now();
    let counters = Arc::new(Counters::default());
    let watched = Arc::clone(&counters);
    // Stops a recording that goes on, so that the test ends.
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        watched.stop();
    });
    let summary = uniprof_record::record(source, Panics, &plan, counters).unwrap();
    assert!(began.elapsed() < Duration::from_secs(19), "it went on");
    let error = summary.output_error.unwrap();
    assert!(error.contains("the encoder thread failed"), "{error}");
    assert_eq!(summary.ending, Ending::Stopped("the output failed".into()));
    let (freezes, resumes) = (&calls.freezes, &calls.resumes);
    assert_eq!(
        freezes.load(Ordering::Relaxed),
        resumes.load(Ordering::Relaxed)
    );
}

/// The scheduling policy of the calling thread: field 41 of proc_pid_stat(5).
fn policy() -> u32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(38).unwrap().parse().unwrap()
}

/// With only one processor, the encoder could take it from the sampler whenever it wakes, 200 times a second,
/// including while the guest is paused.
#[test]
fn the_encoder_never_takes_the_processor_in_the_middle_of_a_freeze() {
    const BATCH: u32 = 3; // SCHED_BATCH
    let (source, _) = fake(1, Faults::default());
    let mut policies = Vec::new();
    let (summary, _) = record_into(source, &plan(1200), |_, offered| {
        if std::thread::current().name() == Some("uniprof-encoder") {
            policies.push(policy());
        }
        Ok(offered)
    });
    summary.unwrap();
    assert!(!policies.is_empty());
    assert_eq!(policies, vec![BATCH; policies.len()]);
}
