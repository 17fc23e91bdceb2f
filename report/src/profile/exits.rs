//! Exits of vCPUs by reason and by the guest's function that caused them (format-spec.md, section 6.12).

use crate::profile::labels::{LabelId, TextId};
use crate::profile::vcpu_times::{PLACES, Spent, add, in_proportion};
use std::collections::HashMap;
use std::hash::Hash;
use uprof::cold::{Exits, Place};

/// Exits that have something in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitSum {
    /// Number of exits.
    pub count: u64,
    /// Number of exits whose times were taken.
    pub seen: u64,
    /// Time from exit to entry, by place.
    pub spent: Spent,
    /// Lengths, each with the number of exits that it stands for.
    lengths: Vec<(u64, u64)>,
}

/// Exits for a reason, by a function; `None` if its address is not known.
pub type ExitKey = (Option<LabelId>, TextId);

/// The exits of recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitTable {
    /// By function and reason.
    pub by_both: HashMap<ExitKey, ExitSum>,
    /// Exits that the recorder caused, which the guest would not have.
    pub interrupted: ExitSum,
}

/// Lengths that are kept before equal ones are joined. There are at most 497 different ones when they are rounded.
const LENGTHS_MAX: usize = 2048;

impl ExitSum {
    /// Adds the `part` of a record that lies within the selected time.
    pub(crate) fn add_record(&mut self, exits: &Exits, (part, whole): (u64, u64)) {
        let scaled = |n| in_proportion(n, part, whole);
        let count = scaled(exits.count);
        self.count = self.count.saturating_add(count);
        self.seen = self.seen.saturating_add(scaled(exits.seen));
        for (place, ns) in &exits.spent {
            let sum = &mut self.spent[place.number() as usize];
            *sum = sum.saturating_add(scaled(*ns));
        }
        for (length_ns, number) in &exits.lengths {
            // Those that were not seen are assumed to be as long as those that were.
            let stands_for = in_proportion_of(*number, exits.count, exits.seen);
            self.lengths
                .push((Exits::rounded(*length_ns), scaled(stands_for)));
        }
        if self.lengths.len() > LENGTHS_MAX {
            join(&mut self.lengths);
        }
    }

    /// Adds other exits.
    pub(crate) fn add(&mut self, other: &ExitSum) {
        self.count = self.count.saturating_add(other.count);
        self.seen = self.seen.saturating_add(other.seen);
        add(&mut self.spent, &other.spent);
        self.lengths.extend_from_slice(&other.lengths);
        if self.lengths.len() > LENGTHS_MAX {
            join(&mut self.lengths);
        }
    }

    /// Time at a place (nanoseconds).
    pub fn at(&self, place: Place) -> u64 {
        self.spent[place.number() as usize]
    }

    /// Time in which the hypervisor and the monitor handled these exits (nanoseconds).
    pub fn handled_ns(&self) -> u64 {
        let hypervisor_ns = self.at(Place::Hypervisor);
        hypervisor_ns.saturating_add(self.at(Place::Monitor))
    }

    /// Time from exit to entry (nanoseconds), without the recorder's pauses.
    pub fn total_ns(&self) -> u64 {
        let places = (0..PLACES).filter(|place| *place != Place::Paused.number() as usize);
        places.fold(0, |sum: u64, place| sum.saturating_add(self.spent[place]))
    }

    /// Whether exits were counted without their times.
    pub fn is_untimed(&self) -> bool {
        self.seen == 0 && self.count > 0
    }

    /// Mean time from exit to entry (nanoseconds); `None` without exits, or without their times.
    pub fn mean_ns(&self) -> Option<u64> {
        let mean_ns = self.total_ns().checked_div(self.count);
        mean_ns.filter(|_| !self.is_untimed())
    }

    /// The length that a share of the exits, 0 to 1, doesn't exceed (nanoseconds); `None` if none has one.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let mut lengths = self.lengths.clone();
        join(&mut lengths);
        let all: u128 = lengths.iter().map(|(_, count)| u128::from(*count)).sum();
        let wanted = ((all as f64 * share).ceil() as u128).clamp(1, all.max(1));
        let mut passed = 0_u128;
        let found = lengths.iter().find(|(_, count)| {
            passed += u128::from(*count);
            passed >= wanted
        });
        found.map(|(length_ns, _)| *length_ns)
    }
}

/// `n` times `count` by `seen`, if these are fewer.
fn in_proportion_of(n: u64, count: u64, seen: u64) -> u64 {
    if seen == 0 || count <= seen {
        return n;
    }
    let scaled = u128::from(n) * u128::from(count) / u128::from(seen);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Joins equal lengths, and sorts them.
fn join(lengths: &mut Vec<(u64, u64)>) {
    lengths.sort_unstable();
    lengths.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 = kept.1.saturating_add(later.1);
        }
        is_same
    });
    lengths.retain(|(_, count)| *count > 0);
}

impl ExitTable {
    /// Adds a part of a record.
    pub(crate) fn add(&mut self, key: ExitKey, exits: &Exits, part: (u64, u64)) {
        self.by_both.entry(key).or_default().add_record(exits, part);
    }

    /// Exits by reason.
    pub fn by_reason(&self) -> HashMap<TextId, ExitSum> {
        self.grouped(|(_, reason)| reason)
    }

    /// Exits by function.
    pub fn by_function(&self) -> HashMap<Option<LabelId>, ExitSum> {
        self.grouped(|(function, _)| function)
    }

    fn grouped<K: Eq + Hash>(&self, key: impl Fn(ExitKey) -> K) -> HashMap<K, ExitSum> {
        let mut sums: HashMap<K, ExitSum> = HashMap::new();
        for (both, sum) in &self.by_both {
            sums.entry(key(*both)).or_default().add(sum);
        }
        sums
    }

    /// All exits but the recorder's.
    pub fn total(&self) -> ExitSum {
        let all = self.grouped(|_| ());
        all.into_values().next().unwrap_or_default()
    }
}
