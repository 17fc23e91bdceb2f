//! When named phases begin, for pictures that draw them as bands: a phase lasts until the next one.
//!
//! Input: samples of a guest's boot or of a process, and the functions that begin phases. Output: the first sample of
//! each phase, in order of time. A phase whose function no sample has is left out.

use super::Phase;
use crate::profile::Profile;
use crate::profile::tree::NodeId;
use std::collections::BTreeMap;

/// The phases that these samples have, with the time since the start of the recording (nanoseconds) at which each
/// was first seen, ascending. Samples are their time and their stack, in any order.
pub(crate) fn starts<'p>(
    samples: impl Iterator<Item = (u64, NodeId)>,
    phases: &'p [Phase],
    profile: &Profile,
) -> Vec<(u64, &'p str)> {
    if phases.is_empty() {
        return Vec::new();
    }
    let mut firsts: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (since_ns, node) in samples {
        let first = firsts.entry(node).or_insert(since_ns);
        *first = since_ns.min(*first);
    }
    let mut begun = vec![None; phases.len()];
    for (node, since_ns) in firsts {
        for label in profile.tree.outwards(node) {
            let name = profile.labels.name(label);
            for (phase, begun) in phases.iter().zip(&mut begun) {
                if phase.function == name {
                    *begun = Some(begun.map_or(since_ns, |known: u64| known.min(since_ns)));
                }
            }
        }
    }
    let phases = phases.iter().zip(begun);
    let begun = phases.filter_map(|(phase, begun)| Some((begun?, phase.name.as_str())));
    let mut begun: Vec<(u64, &str)> = begun.collect();
    begun.sort_unstable();
    begun
}
