//! The wall clock beside the monotonic one. Input: readings of both. Output: another pair of values whenever the last
//! one no longer holds, as the wall clock was set or the machine slept: the monotonic clock then stands still.

use crate::sys::clock::{monotonic_ns, realtime_ns};
use uprof::cold::ClockPair;

/// Clocks that differ by this much more or less than in the last pair (nanoseconds) are paired again.
const MOVED_NS: i64 = 10_000_000;

/// What the last pair says.
pub struct WallClock {
    /// How much the wall clock shows more than the monotonic one, in nanoseconds.
    ahead_ns: i64,
}

impl WallClock {
    /// After this pair was written.
    pub fn new(pair: ClockPair) -> Self {
        WallClock {
            ahead_ns: pair.realtime_ns.wrapping_sub(pair.monotonic_ns as i64),
        }
    }

    /// Reads both clocks. Returns a pair if the last one no longer holds.
    pub fn read(&mut self) -> Option<ClockPair> {
        let before_ns = monotonic_ns();
        let realtime_ns = realtime_ns();
        self.see(realtime_ns, before_ns, monotonic_ns())
    }

    /// Takes what the wall clock showed between two times: this thread may have waited for a processor meanwhile.
    fn see(&mut self, realtime_ns: i64, before_ns: u64, after_ns: u64) -> Option<ClockPair> {
        let least_ns = realtime_ns.wrapping_sub(after_ns as i64);
        let most_ns = realtime_ns.wrapping_sub(before_ns as i64);
        let holding = least_ns.saturating_sub(MOVED_NS)..=most_ns.saturating_add(MOVED_NS);
        if holding.contains(&self.ahead_ns) {
            return None;
        }
        let pair = ClockPair {
            monotonic_ns: after_ns,
            realtime_ns,
            guest: None,
        };
        *self = WallClock::new(pair);
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_paired_again_when_one_was_set_or_stood_still() {
        const MS: u64 = 1_000_000;
        let pair = |monotonic_ns, realtime_ns| ClockPair {
            monotonic_ns,
            realtime_ns,
            guest: None,
        };
        let mut clock = WallClock::new(pair(1000 * MS, 5000 * MS as i64));
        let mut see = |realtime_ms: i64, before_ms, after_ms| {
            clock.see(realtime_ms * MS as i64, before_ms * MS, after_ms * MS)
        };
        assert_eq!(see(5400, 1400, 1400), None);
        assert_eq!(see(5809, 1800, 1800), None, "it is slewed");
        assert_eq!(see(6700, 2200, 2700), None, "the thread waited");
        // The machine slept for an hour.
        let slept = pair(3000 * MS, (7000 + 3_600_000) * MS as i64);
        assert_eq!(see(7000 + 3_600_000, 3000, 3000), Some(slept));
        assert_eq!(see(7400 + 3_600_000, 3400, 3400), None);
        // The clock was set back.
        let set = pair(3800 * MS, 100 * MS as i64);
        assert_eq!(see(100, 3800, 3800), Some(set));
    }
}
