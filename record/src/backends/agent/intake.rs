//! Converts an agent's frames to samples of the recording.
//!
//! Input: payloads of an agent, which may lie. Output: slots and losses. Impossible samples are left out, counted by
//! their defect, and reported as samples that could not be read. Must not allocate after it was made.

use super::clock::GuestClock;
use super::message::{Hello, SampleRecord, pair};
use crate::source::ring::Sink;
use uprof::cold::LossReason;
use uprof::cpu::{SpecialRegisters, aarch64};
use uprof::{Arch, Frame, State, Stop, Task};

/// Tolerance of a sample's time in nanoseconds, since clocks are compared over a wire.
const SLACK_NS: u64 = 1_000_000_000;
/// Samples of a vCPU that may exceed the rate, as samples may wait in the guest.
const SLACK_SAMPLES: u64 = 64;

/// Numbers of samples that were left out, by their defect.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// The guest doesn't have the vCPU.
    pub no_vcpu: u64,
    /// The time is before the vCPU's previous sample.
    pub backwards: u64,
    /// The time is before the recording or in the future.
    pub impossible: u64,
    /// The lengths are inconsistent.
    pub misshapen: u64,
    /// There are more samples than the rate allows.
    pub too_many: u64,
    /// The guest had no room for the sample.
    pub lost: u64,
}

impl Counts {
    /// The counts by name, for the end of a recording.
    pub fn totals(&self) -> Vec<(String, u64)> {
        let all = [
            ("samples_of_no_vcpu", self.no_vcpu),
            ("times_that_go_back", self.backwards),
            ("times_that_cannot_be", self.impossible),
            ("misshapen_samples", self.misshapen),
            ("samples_beyond_the_rate", self.too_many),
            ("lost_in_the_guest", self.lost),
        ];
        let there = all.into_iter().filter(|(_, count)| *count > 0);
        there
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }
}

/// Selects one of the counts.
type Wrong = fn(&mut Counts) -> &mut u64;

/// Receives an agent's samples.
pub struct Intake {
    arch: Arch,
    cycles_hz: u64,
    /// The guest's clock.
    pub clock: GuestClock,
    /// Time of the last sample of each vCPU, in ticks.
    last_ticks: Vec<u64>,
    keeps_stack: bool,
    rate_hz: f64,
    start_ns: u64,
    /// Time of the latest sample of all vCPUs.
    latest_ns: u64,
    taken: u64,
    /// Numbers of samples that were left out.
    pub counts: Counts,
}

impl Intake {
    /// For the guest of `hello`, whose vCPUs are each sampled at `rate_hz`.
    pub fn new(hello: &Hello, rate_hz: f64, keeps_stack: bool) -> Self {
        Intake {
            arch: if hello.is_aarch64 {
                Arch::Aarch64
            } else {
                Arch::X86_64
            },
            cycles_hz: hello.cycles_hz,
            clock: GuestClock::new(hello.clock_hz),
            last_ticks: vec![0; hello.vcpus as usize],
            keeps_stack,
            rate_hz,
            start_ns: 0,
            latest_ns: 0,
            taken: 0,
            counts: Counts::default(),
        }
    }

    /// The instruction set.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Must be called when sampling begins.
    pub fn start(&mut self, now_ns: u64) {
        (self.start_ns, self.latest_ns) = (now_ns, now_ns);
        self.taken = 0;
        self.last_ticks.fill(0);
    }

    /// Must be called when sampling begins again after the agent assumed that we were gone. Samples that were due since
    /// the latest one are lost; their number depends on `timer_hz`, the interrupts a second of the guest's timer.
    pub fn interrupted(&mut self, now_ns: u64, timer_hz: u32, sink: &mut Sink) {
        let seconds = now_ns.saturating_sub(self.latest_ns) as f64 / 1e9;
        let rate_hz = match timer_hz {
            0 => self.rate_hz,
            _ => self.rate_hz.min(f64::from(timer_hz)),
        };
        let due = seconds * rate_hz * self.last_ticks.len() as f64;
        sink.lose_between(LossReason::Deadline, due as u64, [self.latest_ns, now_ns]);
        self.clock = GuestClock::new(self.clock.hz());
        self.start(now_ns);
    }

    /// Takes a sample.
    pub fn sample(&mut self, payload: &[u8], now_ns: u64, sink: &mut Sink) {
        match self.examine(payload, now_ns) {
            Ok((record, time_ns)) => {
                self.last_ticks[record.vcpu as usize] = record.ticks;
                self.latest_ns = self.latest_ns.max(time_ns);
                self.taken += 1;
                self.keep(&record, time_ns, sink);
            }
            Err(count) => {
                *count(&mut self.counts) += 1;
                sink.lose(LossReason::ReadFailed, 1, now_ns);
            }
        }
    }

    /// Checks a sample. Returns it with its time, or the count of its defect.
    fn examine<'p>(
        &self,
        payload: &'p [u8],
        now_ns: u64,
    ) -> Result<(SampleRecord<'p>, u64), Wrong> {
        let record = SampleRecord::read(payload).ok_or::<Wrong>(|counts| &mut counts.misshapen)?;
        let last = self.last_ticks.get(record.vcpu as usize);
        let last = last.ok_or::<Wrong>(|counts| &mut counts.no_vcpu)?;
        if record.ticks < *last {
            return Err(|counts| &mut counts.backwards);
        }
        let can_be = self.start_ns.saturating_sub(SLACK_NS)..=now_ns.saturating_add(SLACK_NS);
        let time_ns = self.clock.monotonic_ns(record.ticks);
        let time_ns = time_ns.filter(|time_ns| can_be.contains(time_ns));
        let time_ns = time_ns.ok_or::<Wrong>(|counts| &mut counts.impossible)?;
        let seconds = now_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let most = (self.rate_hz * seconds * 1.25) as u64 + SLACK_SAMPLES;
        if self.taken >= most.saturating_mul(self.last_ticks.len() as u64) {
            return Err(|counts| &mut counts.too_many);
        }
        Ok((record, time_ns.max(self.start_ns)))
    }

    fn keep(&self, record: &SampleRecord<'_>, time_ns: u64, sink: &mut Sink) {
        let Some(mut slot) = sink.take(time_ns) else {
            return;
        };
        let task = Task {
            space: 0,
            vcpu: record.vcpu,
        };
        slot.reset(
            time_ns,
            task,
            if record.state == 1 {
                State::Blocked
            } else {
                State::Running
            },
        );
        let SpecialRegisters { ip, sp, fp } = self.arch.special_registers();
        for (number, value) in [(ip, record.ip), (sp, record.sp), (fp, record.fp)] {
            slot.registers.set(number, value);
        }
        if self.arch == Arch::Aarch64 {
            slot.registers.set(aarch64::LR, record.lr);
        }
        slot.stop = Stop::from_number(record.stop).unwrap_or(Stop::Unsaid);
        slot.push_frame(Frame::exact(record.ip));
        for caller in record.callers() {
            let caller = self.arch.without_signature(caller);
            if !self.arch.can_be_code(caller) {
                slot.stop = Stop::BadPointer;
                break;
            }
            if !slot.push_frame(Frame::return_address(caller)) {
                slot.stop = Stop::Depth;
                break;
            }
        }
        if self.cycles_hz > 0 {
            let cost_ns = u128::from(record.cost) * 1_000_000_000 / u128::from(self.cycles_hz);
            slot.details.cost_ns = u64::try_from(cost_ns)
                .ok()
                .filter(|&cost_ns| cost_ns < SLACK_NS);
        }
        if self.keeps_stack && !record.stack.is_empty() {
            slot.set_stack(record.sp & !7, record.stack);
            slot.keep_stack = true;
        }
        sink.put(slot);
    }

    /// Counts the samples that found no room in the guest.
    pub fn losses(&mut self, payload: &[u8], now_ns: u64, sink: &mut Sink) {
        // A larger count is impossible, so it is ignored.
        const MOST: u64 = 1 << 32;
        if let Some((_, count)) = pair(payload).filter(|(_, count)| *count < MOST) {
            self.counts.lost = self.counts.lost.saturating_add(count);
            sink.lose(LossReason::RingFull, count, now_ns);
        }
    }

    /// Counts frames that were damaged on their way.
    pub fn damaged(count: u64, now_ns: u64, sink: &mut Sink) {
        if count > 0 {
            sink.lose(LossReason::ReadFailed, count, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;

    const START_NS: u64 = 10_000_000_000;

    /// A sample with these callers, on a clock with one tick per nanosecond.
    fn payload(vcpu: u32, ticks: u64, callers: &[u64]) -> Vec<u8> {
        let words = [ticks, 0x1000, 0x8003, 0x8000, 0x77, 500].into_iter();
        let mut bytes = Vec::from(u64::from(vcpu).to_le_bytes());
        let count = callers.len() as u64;
        bytes.extend(((8 + count) | (count << 16) | (1 << 48)).to_le_bytes());
        let words = words.chain(callers.iter().copied()).chain([0xabcd]);
        words.for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    fn intake(is_aarch64: bool) -> Intake {
        let hello = Hello {
            is_aarch64,
            vcpus: 2,
            clock_hz: 1_000_000_000,
            cycles_hz: 2_000_000_000,
            nonce: 0,
            version: 1,
            code_start: 0,
            code_bytes: 0,
            code_offset: 0,
            timer_hz: 0,
            most_frames: 256,
            most_stack_bytes: 16384,
            build_id: Vec::new(),
            name: String::new(),
        };
        let mut intake = Intake::new(&hello, 100.0, true);
        assert!(intake.clock.answer(START_NS, START_NS, 5_000).is_some());
        intake.start(START_NS);
        intake
    }

    #[test]
    fn a_sample_is_as_the_guest_took_it_at_our_time() {
        for is_aarch64 in [false, true] {
            let (mut sink, mut drain) = ring_of(8, 64);
            let mut intake = intake(is_aarch64);
            let callers = [0x2000, u64::MAX, 0x3000];
            intake.sample(
                &payload(1, 6_000, &callers),
                START_NS + 1_000_000,
                &mut sink,
            );
            let taken = drain.sample(|slot| {
                let SpecialRegisters { ip, sp, fp } = intake.arch().special_registers();
                assert_eq!(
                    [ip, sp, fp].map(|number| slot.registers.get(number)),
                    [Some(0x1000), Some(0x8003), Some(0x8000)]
                );
                let link = slot.registers.get(aarch64::LR);
                assert_eq!(link, is_aarch64.then_some(0x77));
                assert_eq!((slot.time_ns, slot.task.vcpu), (START_NS + 1_000, 1));
                assert_eq!(
                    slot.chain(),
                    [Frame::exact(0x1000), Frame::return_address(0x2000)]
                );
                assert_eq!(
                    (slot.stop, slot.details.cost_ns),
                    (Stop::BadPointer, Some(250))
                );
                assert_eq!(
                    (slot.stack().address, slot.stack().bytes.len()),
                    (0x8000, 8)
                );
            });
            assert!(taken.is_some() && intake.counts.totals().is_empty());
        }
    }

    #[test]
    fn what_cannot_be_is_left_out_and_counted_by_what_is_wrong() {
        let (mut sink, mut drain) = ring_of(8, 64);
        let mut intake = intake(false);
        let now_ns = START_NS + 1_000_000;
        let mut take = |payload: &[u8]| {
            let before = sink.written();
            intake.sample(payload, now_ns, &mut sink);
            while drain.sample(|_| ()).is_some() {}
            let totals = intake.counts.totals().into_iter();
            (
                sink.written() > before,
                totals.map(|(name, _)| name).collect::<Vec<_>>(),
            )
        };
        let second = 1_000_000_000;
        assert_eq!(take(&payload(0, 100_000, &[])), (true, vec![]));
        assert!(!take(&payload(2, 100_000, &[])).0);
        assert!(!take(&payload(0, 99_999, &[])).0);
        assert!(
            take(&payload(1, 99_999, &[])).0,
            "each vCPU has its own order"
        );
        assert!(!take(&payload(0, 2 * second, &[])).0, "in the future");
        assert!(!take(&payload(0, u64::MAX, &[])).0);
        assert!(
            take(&payload(0, 100_000, &[])).0,
            "none of these moved the order"
        );
        let (is_kept, names) = take(&payload(0, 100_001, &[])[..70]);
        assert!(!is_kept);
        let wrong = [
            "samples_of_no_vcpu",
            "times_that_go_back",
            "times_that_cannot_be",
            "misshapen_samples",
        ];
        assert_eq!(names, wrong);
        intake.losses(&[9; 16], now_ns, &mut sink);
        intake.losses(&[[0; 8], 3u64.to_le_bytes()].concat(), now_ns, &mut sink);
        assert_eq!(intake.counts.lost, 3, "a count that can't be is none");
    }

    #[test]
    fn a_flood_beyond_the_rate_is_cut() {
        let (mut sink, mut drain) = ring_of(8, 64);
        let mut intake = intake(false);
        for tick in 0..10_000 {
            let payload = payload(tick as u32 % 2, 5_000 + tick, &[]);
            intake.sample(&payload, START_NS + 1_000_000_000, &mut sink);
            while drain.sample(|_| ()).is_some() {}
        }
        // A second at 100 Hz, a quarter more, and the samples that the guest may have kept.
        assert_eq!(sink.written(), 2 * (125 + SLACK_SAMPLES));
        assert_eq!(intake.counts.too_many, 10_000 - sink.written());
    }
}
