//! The visible parts of overlapping mappings: where two overlap, the later one is visible. Input: mappings,
//! in order of time. Output: the visible parts, without overlap.

use super::Region;
use std::collections::BTreeMap;

/// Most parts that are searched to see whether a mapping changes nothing.
const PARTS_MAX: usize = 64;

/// The visible parts, by address.
#[derive(Debug, Default)]
pub(crate) struct Visible(BTreeMap<u64, Region>);

impl Visible {
    /// Maps `region` over the parts that are there.
    pub(crate) fn map(&mut self, region: Region) {
        let below = self.0.range(..region.start).next_back();
        let below = below.map(|(_, below)| *below);
        // A part that begins below is split: its start stays, and its end may be visible above the new
        // region.
        if let Some(below) = below.filter(|below| below.end > region.start) {
            let end = region.start;
            self.0.insert(below.start, Region { end, ..below });
            self.keep_end(below, region.end);
        }
        while let Some((start, covered)) = self
            .0
            .range(region.start..region.end)
            .next()
            .map(|(start, covered)| (*start, *covered))
        {
            self.0.remove(&start);
            self.keep_end(covered, region.end);
        }
        if region.start < region.end {
            self.0.insert(region.start, region);
        }
    }

    /// Whether `region` would change nothing, because the same bytes of the same image are mapped already.
    /// That happens when a program makes its code writable and executable again.
    pub(crate) fn holds(&self, region: &Region) -> bool {
        let below = self.0.range(..region.start).next_back();
        let from = below.filter(|(_, below)| below.end > region.start);
        let from = from.map_or(region.start, |(start, _)| *start);
        let mut covered = region.start;
        for part in self.0.range(from..).map(|(_, part)| part).take(PARTS_MAX) {
            let is_same = part.module == region.module
                && part.start <= covered
                && part.file_offset_of(covered) == region.file_offset_of(covered);
            if !is_same {
                return false;
            }
            covered = part.end;
            if covered >= region.end {
                return true;
            }
        }
        false
    }

    /// All visible parts, in order of address.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = Region> {
        self.0.into_values()
    }

    /// Keeps the part of `region` from `start` on.
    fn keep_end(&mut self, region: Region, start: u64) {
        if region.end > start {
            let file_offset = region.file_offset_of(start);
            self.0.insert(
                start,
                Region {
                    start,
                    file_offset,
                    ..region
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, module: u32) -> Region {
        Region {
            start,
            end,
            file_offset: start,
            module,
            since_ns: u64::from(module),
        }
    }

    fn visible(regions: &[Region]) -> Visible {
        let mut visible = Visible::default();
        regions.iter().for_each(|region| visible.map(*region));
        visible
    }

    #[test]
    fn a_later_mapping_cuts_a_hole() {
        let seen = visible(&[region(0, 10, 0), region(5, 7, 1), region(9, 12, 2)]);
        let seen: Vec<_> = seen
            .into_parts()
            .map(|region| (region.start, region.end, region.file_offset, region.module))
            .collect();
        assert_eq!(
            seen,
            [(0, 5, 0, 0), (5, 7, 5, 1), (7, 9, 7, 0), (9, 12, 9, 2)]
        );
    }

    #[test]
    fn what_shows_the_same_bytes_changes_nothing() {
        let seen = visible(&[region(0, 10, 0), region(10, 20, 0), region(30, 40, 1)]);
        for (start, end, holds) in [
            (0, 10, true),
            (3, 7, true),
            (5, 20, true),
            (5, 21, false),
            (20, 22, false),
            (25, 35, false),
            (0, 0, true),
        ] {
            assert_eq!(seen.holds(&region(start, end, 0)), holds, "{start}..{end}");
        }
        let elsewhere = Region {
            file_offset: 7,
            ..region(3, 7, 0)
        };
        assert!(!seen.holds(&elsewhere) && !seen.holds(&region(30, 40, 0)));
        assert!(!Visible::default().holds(&region(0, 10, 0)));
    }
}
