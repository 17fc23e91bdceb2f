//! What could not be read of a recording. Input: ranges of damage. Output: counts and descriptions.

use uprof::{Damage, DamageKind};

/// The time of a damaged range, in the recording's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The end of what is sound before it; `None` where nothing is.
    pub from_ns: Option<u64>,
    /// The start of what is sound behind it; `None` where nothing is.
    pub to_ns: Option<u64>,
}

/// What could not be read of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damages {
    /// Descriptions of damaged ranges, at most 20.
    pub stretches: Vec<String>,
    /// The number of damaged ranges.
    pub count: u64,
    /// Samples known to be lost with them.
    pub samples: u64,
    /// Damaged ranges with an unknown number of samples.
    pub uncounted: u64,
    /// Optional blocks of types that this version doesn't know.
    pub unknown_blocks: u64,
    /// When the first of them were, as far as sound blocks around them tell.
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

    /// Adds a description of a fault of the file.
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
