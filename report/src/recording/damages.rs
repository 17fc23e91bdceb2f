//! What of a recording could not be read: stretches of damage go in, counts and words come out.

use uprof::{Damage, DamageKind};

/// What of a file could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damages {
    /// Each stretch of damage in words, at most 20 of them.
    pub stretches: Vec<String>,
    /// How many stretches there were.
    pub count: u64,
    /// Samples known to be lost with them.
    pub samples: u64,
    /// Stretches of which nobody can tell how many samples went.
    pub uncounted: u64,
    /// Optional blocks of types that this version doesn't know.
    pub unknown_blocks: u64,
    /// Blocks with sound checksums that can't be decoded, in words.
    pub undecodable: Vec<String>,
}

impl Damages {
    /// How many stretches are kept in words.
    pub(crate) const LISTED: usize = 20;

    /// Counts one stretch.
    pub(crate) fn add(&mut self, damage: &Damage) {
        // That the end is missing is told by itself, see `Account::unfinished`.
        self.count += u64::from(damage.kind != DamageKind::Unfinished);
        let samples = damage.samples.unwrap_or(damage.samples_at_least);
        self.samples = self.samples.saturating_add(samples);
        self.uncounted += u64::from(damage.samples.is_none());
        if self.stretches.len() < Self::LISTED {
            self.stretches.push(damage.to_string());
        }
    }

    /// One thing that is wrong with the file, in words.
    pub(crate) fn first(&self) -> Option<String> {
        match self.is_none() {
            true => None,
            false => self
                .stretches
                .iter()
                .chain(&self.undecodable)
                .next()
                .cloned(),
        }
    }

    /// Whether everything could be read.
    pub fn is_none(&self) -> bool {
        self.count == 0 && self.undecodable.is_empty()
    }
}
