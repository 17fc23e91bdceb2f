//! The lines and instructions of a function that have samples. Input: its labels. Output: lines and
//! instructions with counts. A return address counts for the call before it.

use super::Counts;
use super::assembly::Listing;
use crate::profile::Profile;
use crate::profile::labels::LabelId;
use crate::profile::tree::NodeId;
use crate::stacks::code::{Codes, NoCode, Where};
use std::collections::{BTreeMap, BTreeSet};

/// One line or instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::views) enum Spot<'p> {
    /// Source file and line.
    Line(&'p str, u32),
    /// The number of a listing, and the number of an instruction in it.
    Instruction(usize, usize),
    /// An instruction whose code is unavailable, and the offset in its function of the sample's own address.
    Offset(Where<'p>, u64),
}

/// The spots of all selected labels.
pub(in crate::views) struct Spots<'p, 'c> {
    by_label: Vec<Option<Spot<'p>>>,
    /// Most functions whose code is read.
    functions_max: usize,
    /// Functions with their images' paths, ascending by path and address.
    pub listings: Vec<(&'p str, Listing<'c>)>,
    /// Images whose instructions are missing, and why.
    pub missing: BTreeSet<(&'p str, NoCode)>,
}

/// A function: its image's path, and its start in the image.
type Key<'p> = (&'p str, u64);

impl<'p, 'c> Spots<'p, 'c> {
    /// The spots of the wanted labels. With `assembly`, they are instructions even if lines are known.
    pub(crate) fn of(
        profile: &'p Profile,
        wanted: &[bool],
        codes: &'c Codes<'_>,
        assembly: bool,
        functions_max: usize,
    ) -> Spots<'p, 'c> {
        let mut spots = Spots {
            by_label: vec![None; profile.labels.len()],
            functions_max,
            listings: Vec::new(),
            missing: BTreeSet::new(),
        };
        let mut assembled: BTreeMap<Key<'p>, Vec<(LabelId, Where<'p>)>> = BTreeMap::new();
        for id in sampled(profile, wanted) {
            let label = profile.labels.get(id);
            let place = place(profile, id);
            let line = match (profile.labels.text(label.file), label.line) {
                ("", _) | (_, 0) => None,
                (file, line) => Some(Spot::Line(file, line)),
            };
            // Without a line, this stays an offset until the function's code is read.
            let spot = line.unwrap_or(Spot::Offset(place, label.into_bytes));
            spots.by_label[id as usize] = Some(spot);
            if assembly || line.is_none() {
                let start = place.offset.wrapping_sub(place.into_bytes);
                let places = assembled.entry((place.module, start)).or_default();
                places.push((id, place));
            }
        }
        for (key, places) in assembled {
            spots.assemble(key.0, &places, codes);
        }
        spots
    }

    /// Reads the code of a function, and finds the instructions at `places`.
    fn assemble(&mut self, module: &'p str, places: &[(LabelId, Where<'p>)], codes: &'c Codes<'_>) {
        let listing = match places.first() {
            _ if self.listings.len() >= self.functions_max => Err(NoCode::TooMany),
            Some((_, place)) => codes.function(*place).map(Listing::new),
            None => return,
        };
        let listing = match listing {
            Ok(listing) => listing,
            Err(why) => {
                self.missing.insert((module, why));
                return;
            }
        };
        for (id, place) in places {
            match listing.index_of(place.into_bytes) {
                Ok(index) => {
                    let spot = Spot::Instruction(self.listings.len(), index);
                    self.by_label[*id as usize] = Some(spot);
                }
                Err(why) => {
                    self.missing.insert((module, why));
                }
            }
        }
        self.listings.push((module, listing));
    }

    /// The listing and the instruction of a label, if they are known.
    pub(crate) fn instruction(&self, label: LabelId) -> Option<(usize, usize)> {
        match self.by_label.get(label as usize)? {
            Some(Spot::Instruction(listing, index)) => Some((*listing, *index)),
            _ => None,
        }
    }

    /// Self and total samples of each spot.
    pub(crate) fn count(&self, profile: &Profile) -> BTreeMap<Spot<'p>, Counts> {
        let mut counts: BTreeMap<Spot<'p>, Counts> = BTreeMap::new();
        let leaves = profile.tree.nodes().iter().enumerate();
        for (number, node) in leaves.filter(|(_, node)| node.count > 0) {
            let mut seen = BTreeSet::new();
            for (depth, label) in profile.tree.outwards(number as NodeId).enumerate() {
                let Some(Some(spot)) = self.by_label.get(label as usize).copied() else {
                    continue;
                };
                let count = counts.entry(spot).or_default();
                count.0 += if depth == 0 { node.count } else { 0 };
                // A recursive function counts a sample once.
                if seen.insert(spot) {
                    count.1 += node.count;
                }
            }
        }
        counts
    }
}

/// The wanted labels that occur in samples.
fn sampled(profile: &Profile, wanted: &[bool]) -> BTreeSet<LabelId> {
    let leaves = profile.tree.nodes().iter().enumerate();
    let leaves = leaves.filter(|(_, node)| node.count > 0);
    let labels = leaves.flat_map(|(number, _)| profile.tree.outwards(number as NodeId));
    labels
        .filter(|label| wanted.get(*label as usize) == Some(&true))
        .collect()
}

fn place(profile: &Profile, id: LabelId) -> Where<'_> {
    let label = profile.labels.get(id);
    Where {
        module: profile.labels.text(label.module),
        offset: label.offset,
        // A return address is that of the next instruction. The byte before it belongs to the call.
        into_bytes: label.into_bytes.saturating_sub(u64::from(label.is_return)),
    }
}
