//! Compares the samples of a vCPU with the processor time that its hypervisor or kernel counted for it, and so decides
//! which samples of a runnable vCPU count as running.
//!
//! Input: at each sample, the state of a vCPU and its processor time so far. Output: its state, and sums for the
//! account. Must not allocate.
//!
//! If the recorder needs the vCPU's processor to look, it can't see whether the vCPU has a processor at the moment of a
//! sample. It is not enough that the vCPU ran since the sample before: on a busy host it may have run for a tenth of
//! that time. So each running sample spends the time that it stands for, the mean time between samples. A runnable vCPU
//! counts as running until the counted time is spent. All samples that count weigh the same, so none of the guest's
//! functions is preferred. If samples were weighted by the time counted before each, code that runs last before the
//! guest sleeps would be preferred.

use uprof::State;
use uprof::cold::{COUNTED_TIME_NS, SAMPLED_TIME_NS};

/// Why samples may not account for all of a guest's processor time, if the host schedules it like any thread.
pub const MISSED_TIME: &str =
    "the guest works while the recorder waits for a processor: give the recorder one of its own";

/// Most time that is carried over although it was counted and not sampled. Code that always runs while nobody can look
/// must not be credited to a vCPU's later work.
const MOST_UNSPENT_NS: i64 = 100_000_000;
/// Number of samples by which a vCPU that is on a processor may exceed the counted time and still be running. On a busy
/// host an excess of one is often due to chance, as the times between samples differ.
const OVERSPENT_SAMPLES: f64 = 4.0;

/// Number of samples over which the mean time between samples is taken, about.
const MEAN_OF: f64 = 64.0;

/// The processor time of one vCPU.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessorTime {
    /// Time as last counted; `None` before the first sample.
    counted_ns: Option<u64>,
    /// Recently counted time less sampled time.
    unspent_ns: i64,
    /// Mean time between samples, and the number of samples that it is the mean of.
    between_ns: f64,
    mean_of: f64,
}

/// The processor time of a guest's vCPUs.
#[derive(Debug, Clone)]
pub struct VcpuTimes {
    each: Vec<ProcessorTime>,
    sums: TimeSums,
}

impl VcpuTimes {
    /// Times of `vcpus` vCPUs before their first sample.
    pub fn new(vcpus: usize) -> Self {
        VcpuTimes {
            each: vec![ProcessorTime::default(); vcpus],
            sums: TimeSums::default(),
        }
    }

    /// The state of the vCPU with index `place`; see [`ProcessorTime::state`].
    pub fn state(&mut self, place: usize, seen: State, counted_ns: u64, since_ns: u64) -> State {
        self.each[place].state(seen, counted_ns, since_ns, &mut self.sums)
    }

    /// Processor time of the vCPU with index `place` at its last sample; `None` before the first one.
    pub fn counted_ns(&self, place: usize) -> Option<u64> {
        self.each.get(place)?.counted_ns
    }

    /// Restarts with the `vcpus` vCPUs of a guest that has restarted. The account goes on.
    pub fn restart(&mut self, vcpus: usize) {
        self.each = vec![ProcessorTime::default(); vcpus];
    }

    /// For the end of the recording: name and nanoseconds.
    pub fn totals(&self) -> [(String, u64); 2] {
        [
            (COUNTED_TIME_NS.to_owned(), self.sums.counted_ns),
            (SAMPLED_TIME_NS.to_owned(), self.sums.sampled_ns),
        ]
    }
}

/// Processor time of all vCPUs since the first sample, as counted and as sampled.
#[derive(Debug, Clone, Copy, Default)]
struct TimeSums {
    counted_ns: u64,
    sampled_ns: u64,
}

impl ProcessorTime {
    /// Most time that is carried over: at a low rate, a single sample stands for more than [`MOST_UNSPENT_NS`].
    fn most_unspent_ns(&self) -> f64 {
        (MOST_UNSPENT_NS as f64).max(OVERSPENT_SAMPLES * self.between_ns)
    }

    /// The state of a vCPU that was `seen` as [`State::Running`] (on a processor at this moment), as [`State::Ready`]
    /// (runnable, which may be because of the recorder) or in another state, after `counted_ns` of processor time. The
    /// guest could run for `since_ns` since the sample before.
    fn state(&mut self, seen: State, counted_ns: u64, since_ns: u64, sums: &mut TimeSums) -> State {
        let Some(before_ns) = self.counted_ns.replace(counted_ns) else {
            // Without an earlier reading, a runnable vCPU that has run at all counts as running.
            return match seen {
                State::Ready if counted_ns > 0 => State::Running,
                seen => seen,
            };
        };
        let ran_ns = counted_ns.saturating_sub(before_ns);
        // It may be more, if the vCPU ran on the processor of the recorder that resumed it.
        let mut since_ns = since_ns.max(ran_ns) as f64;
        if self.mean_of > 0.0 {
            // A recorder that stood still says nothing of the time between its samples, as the time counted meanwhile
            // is not carried over either.
            since_ns = since_ns.min(self.most_unspent_ns());
        }
        // Samples are taken at random times, so a single interval is no estimate.
        self.mean_of = (self.mean_of + 1.0).min(MEAN_OF);
        self.between_ns += (since_ns - self.between_ns) / self.mean_of;
        let unspent_ns = self.unspent_ns.saturating_add_unsigned(ran_ns);
        self.unspent_ns = unspent_ns.min(self.most_unspent_ns() as i64);
        let is_running = match seen {
            State::Running => self.unspent_ns as f64 > -OVERSPENT_SAMPLES * self.between_ns,
            State::Ready => ran_ns > 0 && self.unspent_ns > 0,
            _ => false,
        };
        sums.counted_ns = sums.counted_ns.saturating_add(ran_ns);
        if !is_running {
            return match seen {
                State::Running => State::Ready,
                seen => seen,
            };
        }
        let stands_for_ns = self.between_ns as u64;
        sums.sampled_ns = sums.sampled_ns.saturating_add(stands_for_ns);
        self.unspent_ns = self.unspent_ns.saturating_sub_unsigned(stands_for_ns);
        State::Running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    /// The number of `rounds` samples that count as running, for a vCPU that runs for `share` of the time, in slices of
    /// `slice_ns` at random times, and that is seen as `seen` while it has a processor.
    fn running(rounds: u64, share: f64, slice_ns: f64, seen: State) -> (u64, TimeSums) {
        let mut random = fastrand::Rng::with_seed(rounds);
        let (mut time, mut sums) = (ProcessorTime::default(), TimeSums::default());
        let (mut now_ns, mut counted_ns, mut left_ns, mut runs) = (0.0, 0.0, 0.0, false);
        let (mut before_ns, mut count) = (0.0, 0);
        for round in 0..rounds {
            let at_ns = (round as f64 + random.f64()) * PERIOD_NS as f64;
            while now_ns < at_ns {
                if left_ns <= 0.0 {
                    runs = random.f64() < share;
                    left_ns = slice_ns * (0.5 + random.f64());
                }
                let step_ns = f64::min(left_ns, at_ns - now_ns);
                now_ns += step_ns;
                left_ns -= step_ns;
                counted_ns += if runs { step_ns } else { 0.0 };
            }
            let seen = if runs { seen } else { State::Ready };
            let since_ns = (now_ns - before_ns) as u64;
            let state = time.state(seen, counted_ns as u64, since_ns, &mut sums);
            count += u64::from(state == State::Running);
            before_ns = now_ns;
        }
        (count, sums)
    }

    /// A vCPU that waits for a processor for a part of the time, whether or not the recorder can see it running.
    #[test]
    fn running_samples_are_as_many_as_the_processor_time_counted() {
        for seen in [State::Running, State::Ready] {
            for share in [0.1, 0.25, 0.5, 0.76, 0.95, 1.0] {
                for slice_ns in [2e5, 1e6, 1e7] {
                    let (count, sums) = running(20_000, share, slice_ns, seen);
                    let counted_ns = sums.counted_ns as f64;
                    let both = [
                        count as f64 * PERIOD_NS as f64 / counted_ns,
                        sums.sampled_ns as f64 / counted_ns,
                    ];
                    assert!(
                        both.iter().all(|ratio| (ratio - 1.0).abs() < 0.01),
                        "{both:?} of {share} seen as {seen:?} in slices of {slice_ns} ns"
                    );
                }
            }
        }
    }

    /// A short recording has as good an account as a long one.
    #[test]
    fn a_hundred_samples_stand_for_the_time_between_them() {
        for rounds in 100..150 {
            let (count, sums) = running(rounds, 1.0, 1e6, State::Ready);
            let ratio = sums.sampled_ns as f64 / sums.counted_ns as f64;
            assert!(
                (ratio - 1.0).abs() < 0.05,
                "{ratio} of {rounds}, {count} running"
            );
        }
    }

    /// A vCPU that always has a processor is running in all samples.
    #[test]
    fn a_vcpu_that_runs_all_the_time_never_waits() {
        for seen in [State::Running, State::Ready] {
            assert_eq!(running(20_000, 1.0, 1e6, seen).0, 20_000, "{seen:?}");
        }
    }

    /// Work that runs only while nobody can look shows up in the account.
    #[test]
    fn what_ran_between_samples_that_found_it_asleep_is_missing_in_the_account() {
        let (mut time, mut sums) = (ProcessorTime::default(), TimeSums::default());
        for round in 1..1000 {
            let counted_ns = round * PERIOD_NS / 5;
            let state = time.state(State::Blocked, counted_ns, PERIOD_NS, &mut sums);
            assert_eq!(state, State::Blocked);
        }
        let state = time.state(State::Ready, 999 * PERIOD_NS / 5, PERIOD_NS, &mut sums);
        assert_eq!(state, State::Ready, "it has not run since");
        assert_eq!((sums.counted_ns, sums.sampled_ns), (998 * PERIOD_NS / 5, 0));
    }

    #[test]
    fn the_first_sample_has_nothing_to_compare_with() {
        let mut sums = TimeSums::default();
        let mut first = |seen, counted_ns| {
            ProcessorTime::default().state(seen, counted_ns, u64::MAX, &mut sums)
        };
        assert_eq!(first(State::Ready, 5), State::Running);
        assert_eq!(first(State::Ready, 0), State::Ready);
        assert_eq!(first(State::Blocked, 5), State::Blocked);
        assert_eq!((sums.counted_ns, sums.sampled_ns), (0, 0));
    }

    /// How many of `rounds` samples at random times in periods count as running, of a vCPU that always runs, where the
    /// recorder stands still for `stall_ns` in the middle.
    fn always_running(rounds: u64, period_ns: u64, stall_ns: u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(period_ns);
        let (mut time, mut sums) = (ProcessorTime::default(), TimeSums::default());
        let (mut before_ns, mut count) = (0, 0);
        for round in 0..rounds {
            let stall_ns = if round > rounds / 2 { stall_ns } else { 0 };
            let now_ns = round * period_ns + random.u64(..period_ns) + stall_ns + 1;
            let state = time.state(State::Ready, now_ns, now_ns - before_ns, &mut sums);
            count += u64::from(state == State::Running);
            before_ns = now_ns;
        }
        count
    }

    #[test]
    fn a_busy_vcpu_is_running_at_any_rate_and_after_a_stall() {
        for rate_hz in [1, 2, 5, 10, 99] {
            let count = always_running(1000, 1_000_000_000 / rate_hz, 0);
            assert!(count > 970, "{rate_hz} Hz: {count}");
            let count = always_running(1000, 1_000_000_000 / rate_hz, 5_000_000_000);
            assert!(count > 960, "{rate_hz} Hz with a stall: {count}");
        }
    }
}
