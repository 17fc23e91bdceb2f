//! Percentiles of many durations, in bounded memory.

use std::collections::BTreeMap;

/// Many durations. Their percentiles are at most 0.8 % too high.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Durations {
    /// Counts by logarithmic class, see [`class_of`].
    classes: BTreeMap<u16, u64>,
    /// Number of durations.
    pub count: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u128,
}

/// Bits of a duration that distinguish classes of the same power of two.
const CLASS_BITS: u32 = 7;

/// The class of `duration_ns`: exact below 256, then 128 classes for each power of two.
fn class_of(duration_ns: u64) -> u16 {
    let shift = (64 - duration_ns.leading_zeros()).saturating_sub(CLASS_BITS + 1);
    ((shift as u16) << CLASS_BITS) + (duration_ns >> shift) as u16
}

/// The longest duration of a class.
fn class_end(class: u16) -> u64 {
    let shift = u32::from(class >> CLASS_BITS).saturating_sub(1);
    let lead = u64::from(class) - (u64::from(shift) << CLASS_BITS);
    (lead << shift) | ((1u64 << shift) - 1)
}

impl Durations {
    /// Adds a duration.
    pub fn add(&mut self, duration_ns: u64) {
        *self.classes.entry(class_of(duration_ns)).or_default() += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(duration_ns);
        self.sum_ns += u128::from(duration_ns);
    }

    /// Adds all durations of `other`.
    pub fn merge(&mut self, other: &Durations) {
        for (class, count) in &other.classes {
            *self.classes.entry(*class).or_default() += count;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// The duration that a `share` (0 to 1) of all durations don't exceed, in nanoseconds; `None` if there are none.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (class, count) in &self.classes {
            seen += count;
            if seen >= rank {
                return Some(class_end(*class).min(self.max_ns));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_durations_within_a_hundredth() {
        let edges = (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, (1u64 << bit) + 1]);
        for duration_ns in edges.chain([u64::MAX, 1_000_003, 777]) {
            let end = class_end(class_of(duration_ns));
            assert!(end >= duration_ns, "{duration_ns} ends at {end}");
            assert!(
                (end - duration_ns) as f64 <= duration_ns as f64 / 128.0,
                "{duration_ns}: {end}"
            );
        }
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile_ns(0.5), None);
        (1..=100).for_each(|duration_ns| durations.add(duration_ns));
        assert_eq!(durations.percentile_ns(0.5), Some(50));
        assert_eq!(durations.percentile_ns(0.99), Some(99));
        assert_eq!(durations.percentile_ns(1.0), Some(100));
    }
}
