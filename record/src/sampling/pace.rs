//! Deadlines of samples: one in each period, at a random time in it.
//!
//! Input: the time. Output: the next deadline, and how many were missed. The rate must not drift, however long a
//! recording is.
//!
//! A deadline is drawn uniformly from its whole period (stratified sampling: Cochran, "Sampling Techniques", 1977,
//! chapter 5). So all times are equally likely, even if the guest is in step with the period, and the error of a
//! share is never above that of samples at independent times. Jitter over only a part of the period would not do: of a
//! guest with the same period, samples would show only a part. Two samples may be close to each other. Keeping them
//! apart would make some times less likely, and the guest may be in step with those.

mod overhead;

use crate::source::control::Control;
use crate::source::schedule::PeriodSlot;
use overhead::OverheadLimit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often losses and the source's own events are reported, in nanoseconds.
const HOUSEKEEPING_NS: u64 = 250_000_000;

/// When to wake next.
pub struct Pace {
    /// Start of the deadline's period, and its fraction of a nanosecond.
    grid_ns: u64,
    fraction_ns: f64,
    /// The deadline.
    pub wake_ns: u64,
    period_ns: f64,
    random: fastrand::Rng,
    /// Slot in the period, if only one of several guests may be paused at a time. `None` once their periods differ.
    slot: Option<Arc<PeriodSlot>>,
    limit: Option<OverheadLimit>,
    /// What follows the higher rate of a boot's start, until it does.
    later: Option<Later>,
    /// The period to come, if it is another one.
    next_ns: Option<f64>,
    housekeeping_ns: u64,
}

/// The rate after that of a boot's start.
#[derive(Debug, Clone, Copy)]
pub struct Later {
    /// When it begins.
    pub from_ns: u64,
    /// Its period.
    pub period_ns: f64,
    /// The shortest period until then.
    pub first_ns: f64,
    /// The largest share of time that the guest may be frozen until then, and from then on.
    pub most_at_first: f64,
    pub most_overhead: Option<f64>,
}

/// The longest period at a boot's start, in nanoseconds: a single long freeze is most often due to chance.
const LONGEST_AT_FIRST_NS: f64 = 1e7;

impl Pace {
    /// Starts the first period at `now_ns`.
    pub fn new(now_ns: u64, period_ns: f64, most_overhead: Option<f64>) -> Self {
        let mut pace = Pace {
            grid_ns: now_ns,
            fraction_ns: 0.0,
            wake_ns: 0,
            period_ns,
            random: fastrand::Rng::with_seed(now_ns),
            slot: None,
            limit: most_overhead.map(|most| OverheadLimit::new(most, period_ns)),
            later: None,
            next_ns: None,
            housekeeping_ns: now_ns,
        };
        pace.draw();
        pace
    }

    /// Starts the first period of a boot at `now_ns`, at its first rate.
    pub fn of_boot(now_ns: u64, later: Later) -> Self {
        let mut pace = Pace::new(now_ns, later.first_ns, None);
        pace.later = Some(later);
        pace
    }

    /// The current period, which a sample at the deadline stands for.
    pub fn period_ns(&self) -> u64 {
        self.period_ns as u64
    }

    /// Before the first sample: aligns the periods with those of recordings that have other slots.
    pub fn in_turn(mut self, slot: Option<Arc<PeriodSlot>>) -> Self {
        if let Some(slot) = &slot {
            (self.grid_ns, self.fraction_ns) = slot.first_period(self.grid_ns, self.period_ns);
        }
        self.slot = slot;
        self.draw();
        self
    }

    /// Advances the grid by this number of periods.
    fn advance(&mut self, periods: u64) {
        let by_ns = self.fraction_ns + self.period_ns * periods as f64;
        self.grid_ns += by_ns as u64;
        self.fraction_ns = by_ns.fract();
    }

    /// Draws the deadline in the current period.
    fn draw(&mut self) {
        let (from_ns, length_ns) = match &self.slot {
            Some(slot) => slot.part(self.grid_ns, self.period_ns),
            None => (0, self.period_ns as u64),
        };
        self.wake_ns = self.grid_ns + from_ns + self.random.u64(..length_ns.max(1));
    }

    /// Number of periods that were over at `now_ns`, from the current one on.
    fn over(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.grid_ns) as f64 / self.period_ns) as u64
    }

    /// Sets the deadline in the next period that isn't over. Returns how many were skipped.
    pub fn next(&mut self, now_ns: u64) -> u64 {
        self.advance(1);
        self.period_ns = self.next_ns.take().unwrap_or(self.period_ns);
        let missed = self.over(now_ns);
        self.advance(missed);
        if let Some(later) = self.later
            && self.grid_ns >= later.from_ns
        {
            self.later = None;
            self.period_ns = later.period_ns;
            let limit = |most| OverheadLimit::new(most, later.period_ns);
            self.limit = later.most_overhead.map(limit);
        }
        self.draw();
        missed
    }

    /// Number of deadlines before `end_ns` that passed without a sample.
    pub fn unmet(&self, end_ns: u64) -> u64 {
        self.over(end_ns).max(u64::from(end_ns > self.wake_ns))
    }

    /// Accounts for a freeze; lowers the rate if the guest is frozen for too much of the time.
    pub fn spent(&mut self, frozen_ns: u64, control: &Control) {
        if let Some(later) = &mut self.later {
            // Its periods are of the time that the guest runs: none passes in a freeze.
            self.grid_ns += frozen_ns;
            later.from_ns = later.from_ns.saturating_add(frozen_ns);
            let most = later.most_at_first;
            let needed_ns = (frozen_ns as f64 * (1.0 - most) / most).min(LONGEST_AT_FIRST_NS);
            self.next_ns = Some(needed_ns.max(later.first_ns));
            return;
        }
        let Some(limit) = &mut self.limit else {
            return;
        };
        let period_ns = limit.period_after(frozen_ns, self.period_ns);
        if period_ns.to_bits() == self.period_ns.to_bits() {
            return;
        }
        self.next_ns = Some(period_ns); // the current one has its sample
        self.slot = None; // its periods are others now
        let slowed_to_ns = if limit.is_lowered(period_ns) {
            period_ns as u64
        } else {
            0
        };
        let slowed = &control.counters.slowed_to_ns;
        slowed.store(slowed_to_ns, Ordering::Relaxed);
    }

    /// Whether it is time to report losses and the source's own events.
    pub fn housekeeping_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.housekeeping_ns;
        if due {
            self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        }
        due
    }
}

#[cfg(test)]
mod shared_processor;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::schedule::Schedule;
    use crate::sys::clock::monotonic_ns;

    #[test]
    fn deadlines_stay_in_their_periods_and_missed_ones_are_counted() {
        let mut pace = Pace::new(0, 1000.0, None);
        let mut missed = 0;
        for round in 1..1000 {
            missed += pace.next(pace.wake_ns);
            let period = round * 1000..(round + 1) * 1000;
            assert!(
                period.contains(&pace.wake_ns),
                "{} in {period:?}",
                pace.wake_ns
            );
        }
        assert_eq!(missed, 0);
        let before = pace.grid_ns;
        assert_eq!(pace.next(before + 5500), 4);
        assert_eq!(pace.grid_ns, before + 5000);
    }

    /// Four hours at a rate whose period is not a whole number of nanoseconds.
    #[test]
    fn the_grid_does_not_drift_from_the_rate() {
        let rate_hz = 997.0;
        let mut pace = Pace::new(0, 1e9 / rate_hz, None);
        let mut periods = 0;
        while periods < 4 * 3600 * 997 {
            // Some deadlines are missed now and then.
            let late_ns = if periods % 50_021 == 0 { 1_000_000 } else { 0 };
            periods += 1 + pace.next(pace.wake_ns + late_ns);
        }
        let due_ns = periods as f64 * 1e9 / rate_hz;
        let off_ns = pace.grid_ns as f64 - due_ns;
        assert!(off_ns.abs() < 1_000.0, "{off_ns} ns in four hours");
    }

    #[test]
    fn deadlines_that_pass_before_the_end_are_missed() {
        let pace = Pace::new(0, 1000.0, None);
        let due_ns = pace.wake_ns;
        let ends = [0, due_ns, due_ns + 1, 1000, 1999, 2000, 3001];
        assert_eq!(ends.map(|end_ns| pace.unmet(end_ns)), [0, 0, 1, 1, 1, 2, 3]);
    }

    /// No two guests of one schedule are due in the same part of a period, and each may be due at any time of it.
    #[test]
    fn deadlines_of_several_are_apart_and_anywhere_in_the_period() {
        let schedule = Schedule::new();
        let slots: Vec<_> = (0..10).map(|_| schedule.join()).collect();
        let now_ns = monotonic_ns();
        let paces = slots
            .into_iter()
            .map(|slot| Pace::new(now_ns, 1e6, None).in_turn(Some(slot)));
        let mut paces: Vec<Pace> = paces.collect();
        let begins_ns = paces[0].grid_ns;
        let mut firsts = [0; 10];
        for period in 0..5000 {
            let since_ns = begins_ns + period * 1_000_000;
            let parts: Vec<usize> = paces
                .iter()
                .map(|pace| (pace.wake_ns - since_ns) as usize / 100_000)
                .collect();
            assert!((0..10).all(|part| parts.contains(&part)), "{parts:?}");
            firsts[parts[0]] += 1;
            for pace in &mut paces {
                assert_eq!(pace.next(since_ns + 500_000), 0);
            }
        }
        // Each is expected 500 times, with a standard deviation of 21.
        assert!(
            firsts.iter().all(|times| (400..600).contains(times)),
            "{firsts:?}"
        );
    }

    /// Fraction of the samples that find the guest in the first `share` of its own period, which is `ratio` times ours
    /// and begins at `phase`.
    fn sampled(pace: &mut Pace, samples: u32, share: f64, ratio: f64, phase: f64) -> f64 {
        let mut found = 0;
        for _ in 0..samples {
            let guest = (pace.wake_ns as f64 / (pace.period_ns * ratio) + phase).fract();
            found += u32::from(guest < share);
            pace.next(pace.wake_ns);
        }
        f64::from(found) / f64::from(samples)
    }

    #[test]
    fn the_start_of_a_boot_is_of_the_time_that_the_guest_runs() {
        let control = Control::new(Arc::default(), None);
        let later = Later {
            from_ns: 1_000_000,
            period_ns: 500_000.0,
            first_ns: 10_000.0,
            most_at_first: 0.5,
            most_overhead: None,
        };
        let mut pace = Pace::of_boot(0, later);
        let (mut clock_ns, mut frozen_ns) = (0, 0);
        for round in 1..=90 {
            assert_eq!(pace.period_ns(), if round == 12 { 40_000 } else { 10_000 });
            let cost_ns = if round == 11 { 40_000 } else { 7_000 };
            clock_ns = pace.wake_ns + cost_ns;
            frozen_ns += cost_ns;
            pace.spent(cost_ns, &control);
            assert_eq!(pace.next(clock_ns), 0, "no deadline passes in a freeze");
        }
        // 90 periods of the guest's time, one of them longer.
        assert!(
            (920_000..950_000).contains(&(clock_ns - frozen_ns)),
            "{clock_ns}"
        );
        // A freeze by chance doesn't end the high rate for long.
        pace.spent(900_000_000, &control);
        pace.next(pace.wake_ns);
        assert_eq!(pace.period_ns(), LONGEST_AT_FIRST_NS as u64);
        pace.spent(0, &control);
        pace.next(pace.wake_ns);
        assert_eq!(pace.period_ns(), 500_000, "the usual rate");
    }

    /// Guests that repeat themselves in 0.1 to 10 of our periods, at all phases. The error of a share is no larger than
    /// that of samples at independent times, whose variance is binomial.
    #[test]
    fn no_guest_runs_in_step() {
        const SAMPLES: u32 = 100;
        const PHASES: u32 = 300;
        let between = (0..=40).map(|step| 0.1 * 100f64.powf(f64::from(step) / 40.0));
        let in_step = [
            0.2,
            0.25,
            1.0 / 3.0,
            0.5,
            0.99,
            0.999,
            1.001,
            1.01,
            1.5,
            2.0,
            3.0,
        ];
        let mut worst = (0.0, 0.0, 0.0);
        for ratio in between.chain(in_step) {
            for share in [0.6, 0.1] {
                let mut pace = Pace::new(20_261_120, 1e9 / 97.0, None);
                let squares = (0..PHASES).map(|phase| {
                    let phase = f64::from(phase) / f64::from(PHASES);
                    (sampled(&mut pace, SAMPLES, share, ratio, phase) - share).powi(2)
                });
                let mean_square = squares.sum::<f64>() / f64::from(PHASES);
                let independent = share * (1.0 - share) / f64::from(SAMPLES);
                let error = (mean_square / independent).sqrt();
                if error > worst.0 {
                    worst = (error, ratio, share);
                }
            }
        }
        let (error, ratio, share) = worst;
        assert!(
            error <= 1.2,
            "{error:.2} times the error of independent samples, where the guest's period is {ratio:.3} \
             of ours and the share {share}"
        );
    }
}
