//! Instructions of functions, for a page: those with samples, and those around them.

use crate::recording::last_part;
use crate::stacks::code::Codes;
use crate::text::printable;
use crate::views::annotate::source::SourceLine;
use crate::views::annotate::spots::Spots;
use crate::views::caption;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most instructions in a page.
const INSTRUCTIONS_MAX: usize = 30_000;
/// Most columns of an instruction's text.
const COLUMNS_MAX: usize = 200;

/// An instruction: its number in the function; its address, offset and text; and its source line.
type Row = (usize, [String; 3], Option<SourceLine>);

/// Instructions of functions.
#[derive(Debug, Default)]
pub(super) struct Listings {
    /// The rows of each listing, with the number that the listing has in [`Spots`].
    rows: Vec<(usize, Vec<Row>)>,
    /// The number on the page of each listing, by its number in [`Spots`].
    numbers: BTreeMap<usize, usize>,
    count: usize,
    /// Number of functions that were left out for lack of room.
    left_out: usize,
    /// Number of sampled instructions that were left out of functions that are too long.
    cut: usize,
}

impl Listings {
    /// Adds the instructions of `sampled` and those around them, for the first functions that fit into the
    /// page.
    pub(crate) fn fill(
        &mut self,
        spots: &Spots<'_, '_>,
        sampled: impl Iterator<Item = (usize, usize)>,
        codes: &Codes<'_>,
    ) {
        let mut order = Vec::new();
        let mut by_listing: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (listing, index) in sampled {
            let of_listing = by_listing.entry(listing).or_insert_with(|| {
                order.push(listing);
                BTreeSet::new()
            });
            of_listing.insert(index);
        }
        for number in order {
            let (_, listing) = &spots.listings[number];
            let sampled = &by_listing[&number];
            let shown = listing.shown(sampled.iter().copied());
            if !self.has_room(shown.len()) {
                continue;
            }
            self.cut += sampled.difference(&shown).count();
            let rows = shown.into_iter().map(|index| {
                let row = listing.row(codes, index);
                (index, row, listing.line(codes, index))
            });
            self.numbers.insert(number, self.rows.len());
            self.rows.push((number, rows.collect()));
        }
    }

    /// Reserves room for this many instructions; `false` if there isn't enough.
    fn has_room(&mut self, instructions: usize) -> bool {
        let has_room = self.count + instructions <= INSTRUCTIONS_MAX;
        if has_room {
            self.count += instructions
        } else {
            self.left_out += 1
        }
        has_room
    }

    /// The number on the page of a listing of the spots.
    pub(crate) fn number(&self, listing: usize) -> Option<usize> {
        self.numbers.get(&listing).copied()
    }

    /// The source lines of all instructions.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, u32)> {
        let rows = self.rows.iter().flat_map(|(_, rows)| rows);
        rows.filter_map(|(_, _, line)| line.as_ref())
            .map(|line| (line.file.as_str(), line.line))
    }

    /// Notes of the page about missing listings.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let held = match self.rows.len() {
            0 => None,
            1 => Some("the page holds the instructions of 1 function".to_owned()),
            functions => Some(format!(
                "the page holds the instructions of {functions} functions"
            )),
        };
        let left_out = (self.left_out > 0).then(|| {
            format!(
                "instructions of {} functions are left out: a page carries {INSTRUCTIONS_MAX}",
                self.left_out
            )
        });
        let cut = (self.cut > 0)
            .then(|| format!("{} instructions of long functions are left out", self.cut));
        held.into_iter().chain(left_out).chain(cut)
    }

    /// The value for the script: for each listing its function and rows, in the same order.
    pub(crate) fn value(&self, spots: &Spots<'_, '_>) -> Value {
        let mut files: Vec<&str> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all = Vec::new();
        for (number, rows) in &self.rows {
            let (module, listing) = &spots.listings[*number];
            let (name, syntax) = listing.title();
            let mut told = Vec::new();
            for (index, [address, into, text], line) in rows {
                let mut row = vec![
                    json!(index),
                    json!(address),
                    json!(into),
                    json!(caption::cut(text, COLUMNS_MAX)),
                ];
                if let Some(line) = line {
                    let file = *known.entry(&line.file).or_insert_with(|| {
                        files.push(&line.file);
                        files.len() - 1
                    });
                    row.extend([json!(file), json!(line.line)]);
                }
                told.push(Value::from(row));
            }
            let name = caption::cut(&name, COLUMNS_MAX);
            let module = last_part(module);
            all.push(json!({"name": name, "module": module, "syntax": syntax, "rows": told}));
        }
        let files = files.into_iter().map(printable);
        json!({"files": files.collect::<Vec<_>>(), "functions": all})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_a_page_carries() {
        let mut listings = Listings::default();
        assert!(listings.has_room(INSTRUCTIONS_MAX - 1));
        assert!(listings.has_room(1));
        assert_eq!(listings.notes().count(), 0);
        assert!(!listings.has_room(1));
        let note = listings.notes().next().unwrap();
        assert_eq!(
            note,
            "instructions of 1 functions are left out: a page carries 30000"
        );
    }
}
