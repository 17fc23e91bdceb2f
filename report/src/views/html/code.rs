//! Source and instructions of the most important functions, for the page's script: the text of their lines if
//! the file is available, their instructions if the image is available, and stacks with the line and
//! instruction of each of their frames. Frames of all other functions stay functions.

mod listings;
mod sources;

use crate::profile::Profile;
use crate::profile::labels::{Label, LabelId, Labels};
use crate::profile::reduced::{ReducedProfile, function};
use crate::source_files::SourceFiles;
use crate::stacks::code::Codes;
use crate::views::annotate::spots::Spots;
use listings::Listings;
use serde_json::{Value, json};
use sources::Sources;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// A function is important if it is in the stacks of at least one in this many samples.
const MATTERS: u64 = 200;
/// Most functions with source and instructions; those with the most samples come first.
const FUNCTIONS_MAX: usize = 200;
/// Most different stacks of a page whose frames are lines and instructions. If there are more, only half of
/// the functions have lines, then a quarter, and so on.
const STACKS_MAX: usize = 300_000;

/// The source and instructions of a page.
#[derive(Debug)]
pub(crate) struct Code {
    /// The stacks. Their frames are lines and instructions where there is code to show.
    pub(crate) reduced: ReducedProfile,
    /// The code for the script, if there is any.
    pub(crate) value: Option<Value>,
    /// Lines that say what code the page contains, and what it leaves out.
    pub(crate) lines: Vec<String>,
}

/// A function: its name, and its image's path.
type Key<'p> = (&'p str, &'p str);

fn key_of(labels: &Labels, label: Label) -> Key<'_> {
    (labels.text(label.name), labels.text(label.module))
}

impl Code {
    /// The code of a profile that was gathered by instruction. `functions` is the same profile by function.
    pub(crate) fn of(
        places: &Profile,
        functions: &Profile,
        codes: &Codes<'_>,
        on_disk: &SourceFiles,
    ) -> Code {
        let mut lines = Vec::new();
        let ranks = ranks(functions, &mut lines);
        let rank = |id: LabelId| {
            let label = places.labels.get(id);
            let rank = ranks.get(&key_of(&places.labels, label)).copied();
            rank.filter(|_| !label.made)
        };
        let all = 0..places.labels.len() as LabelId;
        let by_label: Vec<Option<usize>> = all.map(rank).collect();
        let wanted: Vec<bool> = by_label.iter().map(Option::is_some).collect();
        let spots = Spots::of(places, &wanted, codes, true, FUNCTIONS_MAX);
        let told = |id: LabelId, most: usize| {
            let label = places.labels.get(id);
            match by_label[id as usize] {
                Some(rank) if rank < most => at_line(label, spots.instruction(id)),
                _ => function(label),
            }
        };
        let (reduced, shown) = fitting(places, ranks.len(), &told);
        if shown < ranks.len() {
            lines.push(format!(
                "source and instructions of {} functions are left out: with them the page would have more than \
                 {STACKS_MAX} different stacks",
                ranks.len() - shown
            ));
        }
        let mut listings = Listings::default();
        let mut sources = Sources::new(on_disk);
        let mut order: Vec<LabelId> = (0..reduced.labels.len() as LabelId).collect();
        let rank = |id: &LabelId| {
            let key = key_of(&reduced.labels, reduced.labels.get(*id));
            ranks.get(&key).copied().unwrap_or(usize::MAX)
        };
        order.retain(|id| has_code(reduced.labels.get(*id)));
        order.sort_by_key(|id| (rank(id), *id));
        if order.is_empty() {
            return Code {
                reduced,
                value: None,
                lines,
            };
        }
        let spot = |id: &LabelId| spot_of(reduced.labels.get(*id));
        listings.fill(&spots, order.iter().filter_map(spot), codes);
        let of_labels = order.iter().map(|id| {
            let label = reduced.labels.get(*id);
            (reduced.labels.text(label.file), label.line)
        });
        sources.fill(of_labels, listings.places());
        lines.extend(sources.notes());
        lines.extend(listings.notes());
        let value = json!({
            "files": sources.value(),
            "listings": listings.value(&spots),
            "spots": order.iter().filter_map(|id| {
                let (listing, index) = spot(id)?;
                Some(json!([id, listings.number(listing)?, index]))
            }).collect::<Vec<_>>(),
            "missing": missing(&spots),
        });
        let value = Some(value);
        Code {
            reduced,
            value,
            lines,
        }
    }
}

/// The important functions, ranked by weight.
fn ranks<'p>(functions: &'p Profile, lines: &mut Vec<String>) -> HashMap<Key<'p>, usize> {
    let (labels, counted) = (&functions.labels, functions.account.counted);
    let mut totals: HashMap<Key<'p>, (u64, u64)> = HashMap::new();
    for (id, (own, total)) in functions.tree.by_label(labels).into_iter().enumerate() {
        let label = labels.get(id as LabelId);
        if label.made || total.saturating_mul(MATTERS) < counted.max(1) {
            continue;
        }
        let known = totals.entry(key_of(labels, label)).or_default();
        // Labels of one function may share samples, so the largest count is taken.
        *known = (known.0.max(own), known.1.max(total));
    }
    let mut order: Vec<(Key<'p>, (u64, u64))> = totals.into_iter().collect();
    order.sort_by_key(|(key, counts)| (Reverse(*counts), *key));
    if let Some(more @ 1..) = order.len().checked_sub(FUNCTIONS_MAX) {
        lines.push(format!(
            "source and instructions of {more} functions are left out: a page has those of {FUNCTIONS_MAX}"
        ));
    }
    order.truncate(FUNCTIONS_MAX);
    let numbered = order.into_iter().enumerate();
    numbered.map(|(rank, (key, _))| (key, rank)).collect()
}

/// The stacks with lines for as many functions as fit within the limit, and the number of these functions.
fn fitting(
    places: &Profile,
    functions: usize,
    told: &dyn Fn(LabelId, usize) -> Label,
) -> (ReducedProfile, usize) {
    let mut most = functions;
    loop {
        let mut reduced = ReducedProfile::default();
        reduced.extend(places, |id| told(id, most));
        if most == 0 || reduced.tree.nodes().len() <= STACKS_MAX {
            reduced.take_found(places);
            return (reduced, most);
        }
        most /= 2;
    }
}

/// A label with its line and its instruction, as far as they are known.
fn at_line(label: Label, instruction: Option<(usize, usize)>) -> Label {
    let has_line = label.line > 0 && label.file > 0;
    // Instructions are numbered from 1 here, because 0 means that there is none.
    let spot = instruction.map_or(0, |(listing, index)| {
        ((listing as u64) << 32) | (index as u64 + 1)
    });
    Label {
        file: if has_line { label.file } else { 0 },
        line: if has_line { label.line } else { 0 },
        offset: spot,
        ..function(label)
    }
}

/// The listing and the instruction of such a label.
fn spot_of(label: Label) -> Option<(usize, usize)> {
    let index = (label.offset as u32).checked_sub(1)?;
    Some(((label.offset >> 32) as usize, index as usize))
}

fn has_code(label: Label) -> bool {
    label.line > 0 || label.offset > 0
}

/// Why instructions are missing.
fn missing(spots: &Spots<'_, '_>) -> Vec<String> {
    let notes = spots.missing.iter().map(|(module, why)| {
        let module = crate::recording::last_part(crate::views::annotate::module_name(module));
        format!("no instructions of {module}: {why}")
    });
    notes.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tree::ROOT;

    /// A profile with this many functions, all of which have the same number of samples at each of their
    /// lines.
    fn profile(functions: usize, lines: u32) -> Profile {
        let mut profile = Profile {
            labels: Labels::new(),
            ..Profile::default()
        };
        let file = profile.labels.text_id("/a.c");
        for number in 0..functions {
            let name = profile.labels.text_id(&format!("f{number}"));
            for line in 1..=lines {
                let label = profile.labels.id(Label {
                    name,
                    file,
                    line,
                    ..Label::default()
                });
                let node = profile.tree.child(ROOT, label);
                profile.tree.add(node, 1);
                profile.account.counted += 1;
            }
        }
        profile
    }

    #[test]
    fn functions_with_source_on_a_page() {
        for functions in [FUNCTIONS_MAX, FUNCTIONS_MAX + 1] {
            let profile = profile(functions, 1);
            let mut lines = Vec::new();
            // Of 201 functions, each has less than half a percent.
            let is_over = functions > FUNCTIONS_MAX;
            let found = ranks(&profile, &mut lines).len();
            assert_eq!(found, if is_over { 0 } else { FUNCTIONS_MAX });
            assert!(lines.is_empty());
        }
        // Functions that call each other are in the same samples, so more of them can be important.
        let mut profile = profile(0, 0);
        let mut node = ROOT;
        for number in 0..=FUNCTIONS_MAX {
            let name = profile.labels.text_id(&format!("f{number}"));
            let label = profile.labels.id(Label {
                name,
                ..Label::default()
            });
            node = profile.tree.child(node, label);
        }
        profile.tree.add(node, 9);
        profile.account.counted = 9;
        let mut lines = Vec::new();
        assert_eq!(ranks(&profile, &mut lines).len(), FUNCTIONS_MAX);
        assert_eq!(
            lines,
            ["source and instructions of 1 functions are left out: a page has those of 200"]
        );
    }

    #[test]
    fn stacks_of_lines_that_a_page_carries() {
        let told = |profile: &Profile, functions: usize| {
            let told = |id: LabelId, most: usize| {
                let label = profile.labels.get(id);
                if (label.name as usize) < most + 2 {
                    at_line(label, None)
                } else {
                    function(label)
                }
            };
            fitting(profile, functions, &told).1
        };
        // The root counts as a stack, too.
        let lines = STACKS_MAX as u32 / 100;
        let mut full = profile(100, lines);
        assert_eq!(told(&full, 100), 50);
        full = profile(99, lines);
        assert_eq!(told(&full, 99), 99);
    }
}
