//! Chooses the period that keeps freezes to a share of the time.
//!
//! Input: how long each freeze took. Output: the period of the samples to come. At first the period follows the mean
//! of all freezes, from the first one on, so that the first second keeps to the share, too. After that it only grows: a
//! rate that follows the cost would take more samples in phases of the guest whose samples cost little.

/// How long the period follows the mean, and how often it may grow afterwards, in nanoseconds.
const WINDOW_NS: f64 = 1e9;
/// Fewest freezes whose mean counts later: a single one may be long by chance, and the rate doesn't rise again.
const SAMPLES_MIN: u64 = 16;
/// The longest period.
const LONGEST_NS: f64 = 60e9;

/// The largest share, and the freezes since the period was last checked.
#[derive(Debug)]
pub struct OverheadLimit {
    most: f64,
    shortest_ns: f64,
    is_start: bool,
    frozen_ns: u64,
    samples: u64,
    /// Sum of the periods of these samples, in nanoseconds.
    passed_ns: f64,
}

impl OverheadLimit {
    /// Limits freezes to the share `most` of the time, at periods of `shortest_ns` or longer.
    pub fn new(most: f64, shortest_ns: f64) -> Self {
        OverheadLimit {
            most,
            shortest_ns,
            is_start: true,
            frozen_ns: 0,
            samples: 0,
            passed_ns: 0.0,
        }
    }

    /// Whether the period is longer than it would be without the limit.
    pub fn is_lowered(&self, period_ns: f64) -> bool {
        period_ns > self.shortest_ns
    }

    /// Accounts for a freeze; returns the period to go on with, which was `period_ns`.
    pub fn period_after(&mut self, frozen_ns: u64, period_ns: f64) -> f64 {
        self.frozen_ns += frozen_ns;
        self.samples += 1;
        let needed_ns = self.frozen_ns as f64 / self.most / self.samples as f64;
        let next_ns = if self.is_start {
            needed_ns.max(self.shortest_ns).min(LONGEST_NS)
        } else {
            period_ns
        };
        self.passed_ns += next_ns;
        let is_over = self.samples >= SAMPLES_MIN || self.is_start;
        if self.passed_ns < WINDOW_NS || !is_over {
            return next_ns;
        }
        self.is_start = false;
        (self.frozen_ns, self.samples, self.passed_ns) = (0, 0, 0.0);
        next_ns.max(needed_ns.min(LONGEST_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST_NS: f64 = 1e9 / 997.0;

    /// For each of `samples` samples, the start of its period and its freeze, limited to 1 % of the time.
    fn record(samples: usize, cost_ns: impl Fn(usize, f64) -> u64) -> Vec<(f64, u64)> {
        let mut limit = OverheadLimit::new(0.01, SHORTEST_NS);
        let (mut period_ns, mut at_ns) = (SHORTEST_NS, 0.0);
        let sample = |number| {
            let cost_ns = cost_ns(number, at_ns);
            let sample = (at_ns, cost_ns);
            period_ns = limit.period_after(cost_ns, period_ns);
            at_ns += period_ns;
            sample
        };
        (0..samples).map(sample).collect()
    }

    /// The share of freezes in the time up to `end_ns`.
    fn share(samples: &[(f64, u64)], end_ns: f64) -> f64 {
        let within = samples.iter().filter(|(at_ns, _)| *at_ns < end_ns);
        within.map(|(_, cost_ns)| *cost_ns).sum::<u64>() as f64 / end_ns
    }

    #[test]
    fn the_share_holds_from_the_first_second_on() {
        let steady = record(2000, |_, _| 24_000);
        // The first freeze finds nothing in the caches.
        let cold = record(2000, |number, _| if number == 0 { 240_000 } else { 24_000 });
        let mixed = record(2000, |number, _| [10_000, 40_000, 60_000][number % 3]);
        for samples in [steady, cold, mixed] {
            for end_ns in [0.25e9, 0.5e9, 1e9, 2e9, 4e9] {
                let share = share(&samples, end_ns);
                // A few freezes may come before the limit takes hold.
                assert!(
                    share <= 0.01 + 240_000.0 / end_ns,
                    "{share} after {end_ns} ns"
                );
                assert!(
                    share > 0.0085 || end_ns < 1e9,
                    "{share} after {end_ns} ns: too slow"
                );
            }
        }
    }

    #[test]
    fn a_rate_that_costs_little_is_kept() {
        let samples = record(3000, |number, _| if number == 0 { 90_000 } else { 4_000 });
        let (last_ns, _) = samples[2999];
        assert!(last_ns < 3000.0 * SHORTEST_NS * 1.01, "{last_ns}");
    }

    /// Samples cost four times as much every other second. Once that is known, the rate is the same in both phases.
    #[test]
    fn phases_that_cost_more_have_as_many_samples() {
        let is_dear = |at_ns: f64| at_ns % 2e9 >= 1e9;
        let samples = record(
            9000,
            |_, at_ns| if is_dear(at_ns) { 40_000 } else { 10_000 },
        );
        let (last_ns, _) = samples[8999];
        let end_ns = (last_ns / 2e9).floor() * 2e9;
        let later = samples
            .iter()
            .filter(|(at_ns, _)| (4e9..end_ns).contains(at_ns));
        let (mut dear, mut cheap) = (0.0, 0.0);
        for (at_ns, _) in later {
            let count = if is_dear(*at_ns) {
                &mut dear
            } else {
                &mut cheap
            };
            *count += 1.0;
        }
        let ratio = dear / cheap;
        assert!((0.98..1.02).contains(&ratio), "{ratio}");
        assert!(share(&samples, end_ns) < 0.0102);
    }

    #[test]
    fn a_single_long_freeze_does_not_end_a_slow_recording() {
        let mut limit = OverheadLimit::new(0.01, 1e9);
        let mut period_ns = 1e9;
        for number in 0..100 {
            let cost_ns = if number == 50 { 30_000_000 } else { 1_000_000 };
            period_ns = limit.period_after(cost_ns, period_ns);
        }
        assert_eq!(period_ns, 1e9);
    }
}
