//! The phases of a page's samples, which its time line has as bands.
//!
//! Input: samples as the page has them, and the functions that begin phases. Output: for each guest's boot or process,
//! from when to when each phase lasts.

use super::{PageSample, Payload};
use crate::profile::Profile;
use crate::text::printable;
use crate::views::phases::{Phase, starts};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most bands: more can't be told apart.
const BANDS_MAX: usize = 200;

/// A phase of a guest's boot or of a process. Times are since the start of the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Band {
    recording: usize,
    from_ns: u64,
    to_ns: u64,
    name: String,
}

impl Band {
    /// Its fields, as the script reads them.
    pub(super) fn value(&self, tick_ns: u64) -> Value {
        let (from, to) = (self.from_ns / tick_ns, self.to_ns.div_ceil(tick_ns));
        json!([self.recording, from, to, self.name])
    }
}

impl Payload {
    /// The phases of each boot or process. The last one ends with its last sample.
    pub(crate) fn bands(&self, phases: &[Phase], profile: &Profile) -> Vec<Band> {
        if phases.is_empty() {
            return Vec::new();
        }
        let mut groups: BTreeMap<(usize, u32), Vec<&PageSample>> = BTreeMap::new();
        for one in &self.samples {
            let (recording, task) = self.tasks[one.task as usize];
            groups.entry((recording, task.space)).or_default().push(one);
        }
        let mut all = Vec::new();
        for ((recording, _), samples) in groups {
            let end_ns = samples.iter().map(|one| one.since_ns).max().unwrap_or(0);
            let stacks = samples.iter().map(|one| (one.since_ns, one.node));
            let begun = starts(stacks, phases, profile);
            let ends = begun.iter().skip(1).map(|(next_ns, _)| *next_ns);
            let bands = begun.iter().zip(ends.chain([end_ns]));
            all.extend(bands.map(|((from_ns, name), to_ns)| Band {
                recording,
                from_ns: *from_ns,
                to_ns,
                name: printable(name).into_owned(),
            }));
        }
        all.truncate(BANDS_MAX);
        all
    }
}
