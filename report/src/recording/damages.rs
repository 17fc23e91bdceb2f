//! The parts of a recording that could not be read. Input: damaged ranges. Output: counts and descriptions.

use uprof::{Damage, DamageKind};

/// The time around a damaged range, on the recording's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The end of the last sound block before it (nanoseconds); `None` if there is none.
    pub from_ns: Option<u64>,
    /// The start of the first sound block after it (nanoseconds); `None` if there is none.
    pub to_ns: Option<u64>,
}

/// The parts of a file that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damages {
    /// Descriptions of damaged ranges, at most 20.
    pub stretches: Vec<String>,
    /// Number of damaged ranges.
    pub count: u64,
    /// Number of samples known to be lost with them.
    pub samples: u64,
    /// Number of damaged ranges with an unknown number of samples.
    pub uncounted: u64,
    /// Number of optional blocks of types that this version doesn't know.
    pub unknown_blocks: u64,
    /// The times of the first damaged ranges, as far as the sound blocks around them show.
    pub gaps: Vec<Gap>,
    /// Descriptions of blocks with correct checksums that can't be decoded.
    pub undecodable: Vec<String>,
}

impl Damages {
    /// Most descriptions that are kept.
    pub(crate) const LISTED: usize = 20;

    /// Counts one damaged range.
    pub(crate) fn add(&mut self, damage: &Damage) {
        // A missing end is reported separately, see `Account::unfinished`.
        self.count += u64::from(damage.kind != DamageKind::Unfinished);
        let samples = damage.samples.unwrap_or(damage.samples_at_least);
        self.samples = self.samples.saturating_add(samples);
        self.uncounted += u64::from(damage.samples.is_none());
        if self.stretches.len() < Self::LISTED {
            self.stretches.push(damage.to_string());
            let (from_ns, to_ns) = damage.gap_ns;
            self.gaps.push(Gap { from_ns, to_ns });
        }
    }

    /// The first description of a fault of the file; `None` if there is no fault.
    pub(crate) fn first(&self) -> Option<String> {
        if self.is_none() {
            None
        } else {
            self.stretches
                .iter()
                .chain(&self.undecodable)
                .next()
                .cloned()
        }
    }

    /// Whether everything could be read.
    pub fn is_none(&self) -> bool {
        self.count == 0 && self.undecodable.is_empty()
    }
}
