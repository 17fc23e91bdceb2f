//! The guest's clock beside ours (docs/agent-protocol.md, section 6.3).
//!
//! Enters: answers to pings. Leaves: times of our monotonic clock. The frequency that the guest tells is used from one
//! answer to the next only, so that one that is wrong by some percent puts a sample some milliseconds off.

/// An answer that took so many times as long as the best one is not used.
const MOST_TIMES_THE_BEST: u64 = 4;
/// An answer within so long is always used.
const ALWAYS_GOOD_NS: u64 = 200_000;
/// After so long without a good answer any is used.
const OLD_NS: u64 = 2_000_000_000;

/// One clock beside the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Ticks of the guest's clock.
    pub ticks: u64,
    /// Our monotonic clock.
    pub monotonic_ns: u64,
}

/// Turns the guest's times into ours.
#[derive(Debug, Clone)]
pub struct GuestClock {
    hz: u64,
    best_ns: u64,
    last: Option<Pair>,
}

impl GuestClock {
    /// A clock of so many ticks a second, of which nothing is known yet.
    pub fn new(hz: u64) -> Self {
        GuestClock {
            hz: hz.max(1),
            best_ns: u64::MAX,
            last: None,
        }
    }

    /// Its ticks a second.
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// A ping was sent at `sent_ns`, the answer came at `came_ns` and says `ticks`. Returns the pair, if it is used.
    pub fn answer(&mut self, sent_ns: u64, came_ns: u64, ticks: u64) -> Option<Pair> {
        let took_ns = came_ns.checked_sub(sent_ns)?;
        self.best_ns = self.best_ns.min(took_ns);
        let is_good = took_ns
            <= self
                .best_ns
                .saturating_mul(MOST_TIMES_THE_BEST)
                .max(ALWAYS_GOOD_NS);
        let is_old = self
            .last
            .is_none_or(|last| came_ns.saturating_sub(last.monotonic_ns) > OLD_NS);
        let pair = Pair {
            ticks,
            monotonic_ns: sent_ns + took_ns / 2,
        };
        (is_good || is_old).then(|| *self.last.insert(pair))
    }

    /// Our time at the guest's `ticks`; `None` before the first answer, and for times that are none of ours.
    pub fn monotonic_ns(&self, ticks: u64) -> Option<u64> {
        let last = self.last?;
        let since = i128::from(ticks) - i128::from(last.ticks);
        let since_ns = since * 1_000_000_000 / i128::from(self.hz);
        u64::try_from(i128::from(last.monotonic_ns) + since_ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_answers_that_took_the_least_time() {
        let mut clock = GuestClock::new(1_000_000);
        assert_eq!(clock.monotonic_ns(5), None);
        let second = 1_000_000_000;
        assert!(clock.answer(second, second + 300_000, 500).is_some());
        assert_eq!(clock.monotonic_ns(500), Some(second + 150_000));
        assert_eq!(clock.monotonic_ns(600), Some(second + 250_000));
        assert_eq!(clock.monotonic_ns(400), Some(second + 50_000));
        // One that was kept waiting says little.
        assert_eq!(clock.answer(2 * second, 2 * second + 9_000_000, 0), None);
        assert_eq!(clock.monotonic_ns(500), Some(second + 150_000));
        assert!(
            clock
                .answer(4 * second, 4 * second + 9_000_000, 3_000_500)
                .is_some(),
            "there is none better"
        );
        assert_eq!(clock.monotonic_ns(3_000_500), Some(4 * second + 4_500_000));
        assert_eq!(
            clock.answer(5, 4, 0),
            None,
            "it came before it was asked for"
        );
        for wild in [0, u64::MAX] {
            let _ = clock.monotonic_ns(wild);
        }
        assert_eq!(GuestClock { hz: 1, ..clock }.monotonic_ns(u64::MAX), None);
    }
}
