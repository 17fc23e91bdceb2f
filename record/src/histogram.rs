//! Counts durations in buckets, so that percentiles of any recording take the same memory.

/// Sub-buckets per power of two: 16 keep the error below 1/16.
const SPLIT_BITS: u32 = 4;
const SPLIT: usize = 1 << SPLIT_BITS;

/// Durations by size, each known to one part in 16.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    total_ns: u64,
    most_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: vec![0; 64 * SPLIT],
            count: 0,
            total_ns: 0,
            most_ns: 0,
        }
    }
}

/// Values below [`SPLIT`] have a bucket each; larger ones share one with those that differ only
/// below their five highest bits.
fn bucket(value: u64) -> usize {
    let scale = value.max(1).ilog2().saturating_sub(SPLIT_BITS);
    (scale as usize) * SPLIT + (value >> scale) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let scale = (bucket / SPLIT).saturating_sub(1);
    let steps = (bucket - scale * SPLIT) as u64 + 1;
    ((u128::from(steps) << scale) - 1) as u64
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, duration_ns: u64) {
        self.buckets[bucket(duration_ns)] += 1;
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.most_ns = self.most_ns.max(duration_ns);
    }

    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all durations in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The longest duration in nanoseconds.
    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// A duration that `share` (0 to 1) of all don't exceed, up to one part in 16 too long.
    pub fn percentile_ns(&self, share: f64) -> u64 {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return upper_end(bucket).min(self.most_ns);
            }
        }
        self.most_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_one_part_in_16() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|value| histogram.add(value));
        for (share, exact) in [(0.5, 50_000f64), (0.99, 99_000f64), (1.0, 100_000f64)] {
            let found = histogram.percentile_ns(share) as f64;
            assert!(
                found >= exact && found <= exact * 17.0 / 16.0,
                "{share}: {found}"
            );
        }
    }

    #[test]
    fn every_value_has_a_bucket() {
        for value in [0, 1, 15, 16, 17, 31, 32, u64::from(u32::MAX), u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.add(value);
            assert_eq!(histogram.percentile_ns(0.5), value);
            assert!(upper_end(bucket(value)) >= value);
        }
    }
}
