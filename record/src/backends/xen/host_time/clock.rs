//! Converts the cycle counter to the monotonic clock, by pairs taken now and then.

use crate::sys::clock::monotonic_ns;
use crate::sys::xen::cycles::cycles;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClocksPair {
    /// Cycle counter.
    pub cycles: u64,
    /// Monotonic clock.
    pub ns: u64,
}

/// How often a pair is read to get one that nothing interrupted.
const TRIES: u32 = 4;

impl ClocksPair {
    /// Reads both clocks; `None` where there is no counter.
    pub fn now() -> Option<Self> {
        let read = |_| {
            let before_ns = monotonic_ns();
            let cycles = cycles()?;
            let after_ns = monotonic_ns();
            let ns = before_ns.midpoint(after_ns);
            Some((
                after_ns.saturating_sub(before_ns),
                ClocksPair { cycles, ns },
            ))
        };
        let pairs = (0..TRIES).filter_map(read);
        pairs
            .min_by_key(|(length_ns, _)| *length_ns)
            .map(|(_, pair)| pair)
    }
}

/// The line through two pairs.
#[derive(Debug, Clone, Copy)]
pub struct CycleClock {
    from: ClocksPair,
    to: ClocksPair,
}

impl CycleClock {
    /// A clock that begins with `pair`, and has no rate yet.
    pub fn new(pair: ClocksPair) -> Self {
        CycleClock {
            from: pair,
            to: pair,
        }
    }

    /// The line leads to `pair` from now on, if it is later.
    pub fn reach(&mut self, pair: ClocksPair) {
        if pair.cycles > self.from.cycles && pair.ns > self.from.ns {
            self.to = pair;
        }
    }

    /// The line begins where it ended until now; its rate stays until [`CycleClock::reach`].
    pub fn advance(&mut self) {
        let pair = self.to;
        let (cycles, ns) = self.slope();
        // An imagined pair keeps the rate.
        self.from = pair;
        self.to = ClocksPair {
            cycles: pair.cycles.saturating_add(cycles),
            ns: pair.ns.saturating_add(ns),
        };
    }

    fn slope(&self) -> (u64, u64) {
        (self.to.cycles - self.from.cycles, self.to.ns - self.from.ns)
    }

    /// The monotonic time of `cycles`.
    pub fn ns(&self, cycles: u64) -> u64 {
        let (span, span_ns) = self.slope();
        let scaled = |count: u64| {
            let product = u128::from(count) * u128::from(span_ns);
            u64::try_from(product / u128::from(span.max(1))).unwrap_or(u64::MAX)
        };
        match cycles.checked_sub(self.from.cycles) {
            Some(after) => self.from.ns.saturating_add(scaled(after)),
            None => self
                .from
                .ns
                .saturating_sub(scaled(self.from.cycles - cycles)),
        }
    }

    /// The count of cycles that `ns` nanoseconds take.
    pub fn cycles_of(&self, ns: u64) -> u64 {
        let (span, span_ns) = self.slope();
        let product = u128::from(ns) * u128::from(span);
        u64::try_from(product / u128::from(span_ns.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_the_line_through_the_pairs() {
        let pair = |cycles, ns| ClocksPair { cycles, ns };
        let mut clock = CycleClock::new(pair(1000, 500));
        assert_eq!(clock.ns(2000), 500);
        clock.reach(pair(3000, 1500));
        assert_eq!(
            [0, 1000, 2000, 5000].map(|at| clock.ns(at)),
            [0, 500, 1000, 2500]
        );
        assert_eq!(clock.cycles_of(100), 200);
        // Clocks that jump back change nothing.
        clock.reach(pair(900, 2500));
        clock.reach(pair(5000, 400));
        assert_eq!(clock.ns(2000), 1000);
        clock.advance();
        assert_eq!([3000, 4000].map(|at| clock.ns(at)), [1500, 2000]);
        clock.reach(pair(4000, 2500));
        assert_eq!(
            [3000, 3500, 4000].map(|at| clock.ns(at)),
            [1500, 2000, 2500]
        );
        assert_eq!(clock.ns(u64::MAX), u64::MAX - 1500);
    }
}
