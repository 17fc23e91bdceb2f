//! When samples are due: a grid of deadlines, a little jitter, and what came of both.
//!
//! Enters: the time. Leaves: the next deadline, and how many have passed without a sample. Must not
//! wander from the rate that was asked for, however long a recording is.

use crate::control::Control;
use std::sync::atomic::Ordering;

/// Losses and the source's own news are passed on this often.
const HOUSEKEEPING_NS: u64 = 250_000_000;

/// When to wake next.
pub struct Pace {
    /// The deadline without jitter, and its fraction of a nanosecond.
    grid_ns: u64,
    fraction_ns: f64,
    /// The deadline that counts.
    pub wake_ns: u64,
    period_ns: f64,
    random: u64,
    most_overhead: Option<f64>,
    housekeeping_ns: u64,
    checked_ns: u64,
    frozen_ns: u64,
}

impl Pace {
    /// The first deadline is a period after `now_ns`.
    pub fn new(now_ns: u64, period_ns: f64, most_overhead: Option<f64>) -> Self {
        let mut pace = Pace {
            grid_ns: now_ns,
            fraction_ns: 0.0,
            wake_ns: 0,
            period_ns,
            random: now_ns | 1,
            most_overhead,
            housekeeping_ns: now_ns,
            checked_ns: now_ns,
            frozen_ns: 0,
        };
        pace.advance(1);
        pace.wake_ns = pace.grid_ns;
        pace
    }

    /// Moves the grid on by so many periods.
    fn advance(&mut self, periods: u64) {
        let by_ns = self.fraction_ns + self.period_ns * periods as f64;
        self.grid_ns += by_ns as u64;
        self.fraction_ns = by_ns.fract();
    }

    /// How far from the grid a deadline may be, either way.
    fn jitter_ns(&self) -> u64 {
        self.period_ns as u64 / 8
    }

    /// Sets the next deadline: on the grid, up to an eighth of a period early or late. Returns how
    /// many deadlines had passed already.
    pub fn next(&mut self, now_ns: u64) -> u64 {
        self.advance(1);
        let mut missed = 0;
        if now_ns > self.grid_ns + self.jitter_ns() {
            missed = ((now_ns - self.grid_ns) as f64 / self.period_ns).ceil() as u64;
            self.advance(missed);
        }
        let span = (self.jitter_ns() * 2).max(1);
        self.wake_ns = self.grid_ns - span / 2 + self.random() % span;
        missed
    }

    /// How many deadlines passed before `end_ns` without a sample.
    pub fn unmet(&self, end_ns: u64) -> u64 {
        match end_ns > self.grid_ns + self.jitter_ns() {
            true => ((end_ns - self.grid_ns) as f64 / self.period_ns) as u64 + 1,
            false => 0,
        }
    }

    /// xorshift64 (Marsaglia, "Xorshift RNGs", 2003): not to run in step with the guest needs no more.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Accounts for a freeze; once a second, lowers the rate if the guest stood still too long.
    pub fn spent(&mut self, frozen_ns: u64, control: &Control) {
        const CHECK_NS: u64 = 1_000_000_000;
        self.frozen_ns += frozen_ns;
        let passed_ns = self.wake_ns.saturating_sub(self.checked_ns);
        let Some(most) = self.most_overhead else {
            return;
        };
        if passed_ns < CHECK_NS {
            return;
        }
        let share = self.frozen_ns as f64 / passed_ns as f64;
        if share > most {
            self.period_ns = (self.period_ns * share / most).min(60e9);
            let slowed_to_ns = &control.progress.slowed_to_ns;
            slowed_to_ns.store(self.period_ns as u64, Ordering::Relaxed);
        }
        self.checked_ns = self.wake_ns;
        self.frozen_ns = 0;
    }

    /// Whether losses and the source's own news are to be passed on again.
    pub fn housekeeping_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.housekeeping_ns;
        if due {
            self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_stay_on_the_grid_and_missed_ones_are_counted() {
        let mut pace = Pace::new(0, 1000.0, None);
        let mut missed = 0;
        for round in 2..1000 {
            missed += pace.next(pace.wake_ns + 10);
            let grid = round * 1000;
            assert!(
                pace.wake_ns.abs_diff(grid) <= 125,
                "{} against {grid}",
                pace.wake_ns
            );
        }
        assert_eq!(missed, 0);
        let before = pace.grid_ns;
        assert_eq!(pace.next(before + 5500), 5);
        assert_eq!(pace.grid_ns, before + 6000);
    }

    /// Four hours at a rate whose period is no whole number of nanoseconds.
    #[test]
    fn the_grid_does_not_drift_from_the_rate() {
        let rate_hz = 997.0;
        let mut pace = Pace::new(0, 1e9 / rate_hz, None);
        let mut deadlines = 1;
        while deadlines < 4 * 3600 * 997 {
            // Now and then, some are missed.
            let late_ns = if deadlines % 50_021 == 0 {
                1_000_000
            } else {
                0
            };
            deadlines += 1 + pace.next(pace.wake_ns + late_ns);
        }
        let due_ns = deadlines as f64 * 1e9 / rate_hz;
        let off_ns = pace.grid_ns as f64 - due_ns;
        assert!(off_ns.abs() < 1_000.0, "{off_ns} ns in four hours");
    }

    #[test]
    fn deadlines_that_pass_before_the_end_are_missed() {
        // Due at 1000, 2000, 3000, each up to 125 ns later.
        let pace = Pace::new(0, 1000.0, None);
        let unmet = [0, 999, 1125, 1126, 2500, 3001].map(|end_ns| pace.unmet(end_ns));
        assert_eq!(unmet, [0, 0, 0, 1, 2, 3]);
    }
}
