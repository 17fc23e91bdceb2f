//! When a part of a vCPU's wall time was spent, for a comparison: it judges how much parts vary from slice to slice of
//! a recording. Samples know their moment, and sums of the recorder their interval.

use crate::profile::filter::Filter;
use crate::profile::gather::SLICES;
use crate::recording::Recording;
use std::collections::BTreeMap;

/// Where a recording doesn't say how often it took samples.
const USUAL_PERIOD_NS: u64 = 10_000_000;

/// The slices of a recording's selected time.
pub(super) struct Slices {
    /// Of the selected time, from the start of the recording; `None` if nobody asks.
    window: Option<(u64, u64)>,
    start_ns: u64,
    /// The time that a sample stands for, as a unit of chance.
    pub period_ns: u64,
}

/// Weights of slices.
#[derive(Debug, Default)]
pub(super) struct Moments(Vec<(usize, u64)>);

impl Moments {
    /// Of slices in order.
    pub(super) fn of(weights: impl Iterator<Item = (usize, u64)>) -> Self {
        Moments(weights.collect())
    }
}

impl Slices {
    pub(super) fn new(recording: &Recording, filter: &Filter, is_asked: bool) -> Self {
        let window = filter.window(recording);
        let period_ns = recording.period_ns().unwrap_or(USUAL_PERIOD_NS);
        Slices {
            window: is_asked.then_some((window.start, window.end)),
            start_ns: recording.start_ns(),
            period_ns: period_ns.max(1),
        }
    }

    /// The slice of a time from the start of the recording.
    pub(super) fn of(&self, since_ns: u64) -> Option<usize> {
        let (from_ns, to_ns) = self.window?;
        let into = u128::from(since_ns.saturating_sub(from_ns)) * SLICES as u128;
        let slice = into / u128::from(to_ns.saturating_sub(from_ns).max(1));
        Some((slice as usize).min(SLICES - 1))
    }

    /// A time within a slice, `into_ns` after its beginning if that is not its end yet.
    pub(super) fn within(&self, slice: usize, into_ns: u64) -> u64 {
        let (from_ns, to_ns) = self.window.unwrap_or_default();
        let at = |slice: usize| {
            let into = u128::from(to_ns.saturating_sub(from_ns)) * slice as u128;
            from_ns + u64::try_from(into.div_ceil(SLICES as u128)).unwrap_or(0)
        };
        let last_ns = at(slice + 1).saturating_sub(1);
        at(slice).saturating_add(into_ns).min(last_ns)
    }

    /// Of intervals on the recording's clock, each with its weight.
    pub(super) fn moments(&self, spans: impl Iterator<Item = (u64, u64, u64)>) -> Moments {
        let mut weights: BTreeMap<usize, u64> = BTreeMap::new();
        for (first_ns, last_ns, weight) in spans.filter(|(.., weight)| *weight > 0) {
            let since = |ns: u64| self.of(ns.saturating_sub(self.start_ns));
            let (Some(first), Some(last)) = (since(first_ns), since(last_ns)) else {
                break;
            };
            let slices = last.saturating_sub(first) as u64 + 1;
            for slice in first..=last.max(first) {
                let sum = weights.entry(slice).or_default();
                *sum = sum.saturating_add((weight / slices).max(1));
            }
        }
        Moments(weights.into_iter().collect())
    }

    /// An amount by slice. Without moments it is spread over all of them.
    pub(super) fn shared_out(&self, amount: u64, moments: &Moments) -> Vec<(usize, u64)> {
        if self.window.is_none() {
            return Vec::new();
        }
        let even: Vec<(usize, u64)>;
        let weights = if moments.0.is_empty() {
            even = (0..SLICES).map(|slice| (slice, 1)).collect();
            &even
        } else {
            &moments.0
        };
        let all: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let (mut before, mut given) = (0_u128, 0);
        let parts = weights.iter().map(|(slice, weight)| {
            before += u128::from(*weight);
            let due = super::share_of(amount, before, all);
            let part = due.saturating_sub(given);
            given += part;
            (*slice, part)
        });
        parts.filter(|(_, part)| *part > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE_NS: u64 = 1_000_000;

    fn slices() -> Slices {
        Slices {
            window: Some((0, SLICES as u64 * SLICE_NS)),
            start_ns: 5_000,
            period_ns: SLICE_NS,
        }
    }

    #[test]
    fn an_amount_is_spent_when_its_moments_say() {
        let slices = slices();
        let of = |first: u64, last: u64, weight| (5_000 + first, 5_000 + last, weight);
        let spans = [of(0, 10, 4_000), of(2 * SLICE_NS, 4 * SLICE_NS - 1, 12_000)];
        let moments = slices.moments(spans.into_iter());
        let shared = slices.shared_out(1_601, &moments);
        assert_eq!(shared, [(0, 400), (2, 600), (3, 601)]);
        for (slice, into_ns) in [(0, 0), (2, 400), (119, 2 * SLICE_NS)] {
            assert_eq!(slices.of(slices.within(slice, into_ns)), Some(slice));
        }
    }

    #[test]
    fn what_knows_no_moment_is_spread_over_all_and_nothing_is_lost() {
        let shared = slices().shared_out(1_000_003, &Moments::default());
        assert_eq!(shared.len(), SLICES);
        assert_eq!(shared.iter().map(|(_, part)| part).sum::<u64>(), 1_000_003);
        let nobody = Slices {
            window: None,
            ..slices()
        };
        assert_eq!(nobody.shared_out(7, &Moments::default()), []);
    }
}
