//! Compares the guest's clock with ours (docs/agent-protocol.md, section 6.3).
//!
//! Input: answers to pings. Output: times of our monotonic clock. The frequency that the guest states is used only
//! between two answers, so that an error of some percent displaces a sample by some milliseconds.

/// An answer that took this many times as long as the best one is not used.
const MOST_TIMES_THE_BEST: u64 = 4;
/// An answer within this time is always used, in nanoseconds.
const ALWAYS_GOOD_NS: u64 = 200_000;
/// After this time without a good answer, any answer is used, in nanoseconds.
pub const OLD_NS: u64 = 2_000_000_000;

/// Readings of both clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Ticks of the guest's clock.
    pub ticks: u64,
    /// Our monotonic clock.
    pub monotonic_ns: u64,
}

/// Converts the guest's times to ours.
#[derive(Debug, Clone)]
pub struct GuestClock {
    hz: u64,
    best_ns: u64,
    last: Option<Pair>,
}

impl GuestClock {
    /// A clock with `hz` ticks a second, without any answer yet.
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

    /// Takes the answer to a ping that was sent at `sent_ns`. It came at `came_ns`, when the guest's clock showed
    /// `ticks`. Returns the pair, if it is used.
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

    /// Our time at the guest's `ticks`; `None` before the first answer, and for times outside our clock's range.
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
        // An answer that was delayed is of little use.
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
