//! The limit of stops: finds the function that is called too often for breakpoints.

use crate::source::call_source::TooHot;

/// Window in which stops are counted, in nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;

/// Counts stops.
#[derive(Debug)]
pub struct Heat {
    most_hz: u32,
    /// Start of the window, and how long the guest had been paused by then in all.
    began: (u64, u64),
    stops: u32,
    /// Calls in this window, by function.
    calls: Vec<u32>,
}

impl Heat {
    /// Allows at most `most_hz` stops a second, for `functions` functions.
    pub fn new(most_hz: u32, functions: usize, now_ns: u64) -> Self {
        Heat {
            most_hz,
            began: (now_ns, 0),
            stops: 0,
            calls: vec![0; functions],
        }
    }

    /// Counts a stop, at the entry of `function` if there is one. `stopped_ns` is how long the guest was paused in all.
    /// Returns the function to give up, once there are too many stops.
    pub fn stop(
        &mut self,
        function: Option<usize>,
        now_ns: u64,
        stopped_ns: u64,
    ) -> Option<TooHot> {
        if now_ns.saturating_sub(self.began.0) >= WINDOW_NS {
            self.began = (now_ns, stopped_ns);
            self.stops = 0;
            self.calls.fill(0);
        }
        self.stops += 1;
        if let Some(function) = function {
            self.calls[function] += 1;
        }
        if self.stops <= self.most_hz {
            return None;
        }
        let all = self.calls.iter().enumerate();
        let (hottest, &calls) = all
            .max_by_key(|(_, calls)| **calls)
            .filter(|(_, n)| **n > 0)?;
        self.calls[hottest] = 0;
        // Each of its calls stopped the guest twice, at the entry and at the return.
        self.stops = self.stops.saturating_sub(calls.saturating_mul(2));
        let passed_ns = now_ns.saturating_sub(self.began.0);
        let ran_ns = passed_ns.saturating_sub(stopped_ns.saturating_sub(self.began.1));
        Some(TooHot {
            function: hottest,
            calls_hz: (u64::from(calls) * 1_000_000_000) / ran_ns.max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_with_the_most_calls_is_given_up_past_the_limit() {
        let mut heat = Heat::new(100, 2, 0);
        let ms = 1_000_000;
        // 40 calls of one and 10 of the other are allowed in each second.
        for turn in 0..500 {
            let now_ns = turn * 10 * ms;
            let function = if turn % 5 == 4 { 1 } else { 0 };
            assert_eq!(heat.stop(Some(function), now_ns, 0), None, "{turn}");
        }
        // A call in each millisecond of the guest, which is paused for as long as it runs; and some of the other.
        let mut heat = Heat::new(100, 2, 0);
        let told = (0..200).find_map(|turn| {
            let other = heat.stop((turn % 10 == 0).then_some(1), turn * 2 * ms, turn * ms);
            other.or_else(|| heat.stop(Some(0), turn * 2 * ms, turn * ms))
        });
        let told = told.unwrap();
        assert_eq!(told.function, 0);
        assert!((900..1200).contains(&told.calls_hz), "{told:?}");
        // Returns alone show no function to give up.
        let mut heat = Heat::new(1, 1, 0);
        assert!((0..9).all(|_| heat.stop(None, 0, 0).is_none()));
    }
}
