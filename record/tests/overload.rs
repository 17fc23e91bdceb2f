//! A source that is faster than the encoder the whole time, or at its end. The ring is never empty, and everything but
//! samples must get through even so.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use uniprof_record::monotonic_ns;
use uniprof_record::ring::Sink;
use uniprof_record::slot::NoteKind;
use uniprof_record::source::Hot;
use uniprof_record::{Counters, Facts, Life, Plan, Pushed, Source, SourceError};
use uprof::cold::{LossReason, Target};
use uprof::{Frame, Item, Payload, SliceReader, State, Task};

/// Samples that are pushed at once.
const BURST: usize = 2_000;

/// Pushes samples without a pause. It is named flood because it is not a real guest.
struct Flood {
    facts: Facts,
    counters: Arc<Counters>,
    began_ns: u64,
    pushed: u64,
    /// Number of samples that the encoder had counted after half of the time.
    told: Arc<AtomicU64>,
}

impl Pushed for Flood {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn start(&mut self) -> Result<(), SourceError> {
        self.began_ns = monotonic_ns();
        Ok(())
    }

    fn wait(&mut self, _: u16) -> Result<(), SourceError> {
        Ok(())
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        for _ in 0..BURST {
            self.pushed += 1;
            let Some(mut slot) = sink.take(self.began_ns) else {
                continue;
            };
            slot.reset(
                self.began_ns + self.pushed,
                Task { space: 0, vcpu: 0 },
                State::Running,
            );
            for level in 0..20 {
                slot.push_frame(Frame::return_address(self.pushed << 8 | level));
            }
            sink.put(slot);
        }
        if monotonic_ns() - self.began_ns > 700_000_000 {
            let samples = self.counters.samples.load(Ordering::Relaxed);
            let _ = self
                .told
                .compare_exchange(0, samples, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(Life::Alive)
    }
}

#[test]
fn an_encoder_that_never_catches_up_still_tells_losses_and_progress() {
    let facts = Facts {
        freezes: false,
        ..Facts::new(Target::default())
    };
    let (counters, told) = (Arc::new(Counters::default()), Arc::new(AtomicU64::new(0)));
    let flood = Flood {
        facts,
        counters: Arc::clone(&counters),
        began_ns: 0,
        pushed: 0,
        told: Arc::clone(&told),
    };
    let source = Source::of(Hot::Pushed(Box::new(flood)));
    let plan = Plan {
        duration: Some(Duration::from_millis(2_500)),
        ..Plan::default()
    };
    let mut bytes = Vec::new();
    let summary = uniprof_record::record(source, &mut bytes, &plan, counters).unwrap();

    assert!(
        told.load(Ordering::Relaxed) > 0,
        "no progress while samples came"
    );
    let (mut samples, mut lost, mut loss_blocks) = (0, 0, 0);
    for item in SliceReader::open(&bytes).unwrap().blocks() {
        let Item::Block(block) = item else {
            panic!("damage");
        };
        samples += u64::from(block.samples);
        if let Payload::Losses(losses) = block.payload().unwrap() {
            loss_blocks += 1;
            let full = losses
                .iter()
                .filter(|loss| loss.reason == LossReason::RingFull);
            lost += full.map(|loss| loss.count).sum::<u64>();
        }
    }
    assert!(
        loss_blocks >= 2,
        "losses were told {loss_blocks} times, not as they came"
    );
    assert_eq!(summary.samples, samples);
    assert_eq!(summary.lost, [(LossReason::RingFull, lost)]);
}

/// What output and source know of each other.
#[derive(Default)]
struct Gate {
    has_begun: AtomicBool,
    /// Whether the encoder waits for the output.
    is_closed: AtomicBool,
    is_over: AtomicBool,
}

/// Accepts nothing from the first sample until a while after the last.
struct Stalled {
    bytes: Vec<u8>,
    gate: Arc<Gate>,
}

impl Write for Stalled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Gate {
            has_begun,
            is_closed,
            is_over,
        } = &*self.gate;
        if has_begun.load(Ordering::SeqCst) && !is_closed.swap(true, Ordering::SeqCst) {
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The sampler comes to its end meanwhile.
            std::thread::sleep(Duration::from_millis(300));
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Loses samples when the encoder has all notes. It is named late because it is not a real guest.
struct Late {
    facts: Facts,
    gate: Arc<Gate>,
}

impl Pushed for Late {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn start(&mut self) -> Result<(), SourceError> {
        self.gate.has_begun.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn wait(&mut self, _: u16) -> Result<(), SourceError> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        let (now_ns, task) = (monotonic_ns(), Task { space: 0, vcpu: 0 });
        if !self.gate.is_closed.load(Ordering::SeqCst) {
            if let Some(mut slot) = sink.take(now_ns) {
                slot.reset(now_ns, task, State::Running);
                slot.push_frame(Frame::return_address(0x1000));
                sink.put(slot);
            }
            return Ok(Life::Alive);
        }
        while sink.note(now_ns, task, NoteKind::Named, b"vCPU 0") {}
        sink.lose(LossReason::Deadline, 7, now_ns);
        Ok(Life::Ended("it has ended".into()))
    }

    fn finish(&mut self, _: &mut Sink) {
        self.gate.is_over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn losses_at_the_end_are_counted_however_late_the_encoder_is() {
    let gate = Arc::<Gate>::default();
    let facts = Facts::new(Target::default());
    let late = Late {
        facts,
        gate: Arc::clone(&gate),
    };
    let source = Source::of(Hot::Pushed(Box::new(late)));
    let output = Stalled {
        bytes: Vec::new(),
        gate,
    };
    let summary = uniprof_record::record(source, output, &Plan::default(), Arc::default()).unwrap();
    assert!(
        summary.lost.contains(&(LossReason::Deadline, 7)),
        "{:?}",
        summary.lost
    );
}
