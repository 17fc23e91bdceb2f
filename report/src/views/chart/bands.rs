//! The phases that a chart shows as bands, between a thread and its stacks.
//!
//! Input: samples of a guest's boot or of a process, and the functions that begin phases. Output: the root of the boxes
//! at a time: the thread, or the phase of the thread.

use super::Thread;
use crate::export::folded::without_count;
use crate::profile::Profile;
use crate::text::printable;
use crate::views::phases::{Phase, starts};
use std::borrow::Cow;

/// When phases begin, ascending: the time since the start of the recording, and the name.
#[derive(Debug, Default)]
pub(super) struct Bands(Vec<(u64, String)>);

impl Bands {
    /// The phases of these threads, which are of one guest or process.
    pub fn of<'t>(
        threads: impl Iterator<Item = &'t Thread>,
        phases: &[Phase],
        profile: &Profile,
    ) -> Bands {
        let samples = threads.flat_map(|(_, samples)| samples);
        let samples = samples.map(|stack| (stack.since_ns, stack.node));
        let bands = starts(samples, phases, profile).into_iter();
        Bands(
            bands
                .map(|(begun_ns, name)| (begun_ns, word(name)))
                .collect(),
        )
    }

    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, name)| name.as_str())
    }

    /// What is below all boxes of thread `root` at a time.
    pub fn root<'r>(&self, root: &'r str, since_ns: u64) -> Cow<'r, str> {
        let begun = self
            .0
            .partition_point(|(begun_ns, _)| *begun_ns <= since_ns);
        match begun.checked_sub(1).and_then(|last| self.0.get(last)) {
            Some((_, name)) => Cow::Owned(format!("{root};{name}")),
            None => Cow::Borrowed(root),
        }
    }
}

/// A name as a part of a line.
fn word(name: &str) -> String {
    let name = printable(name).replace(';', ":");
    without_count(&format!("phase {name}")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_that_are_numbers_stay_apart() {
        assert_eq!(word("1"), "phase\u{a0}1");
        assert_eq!(word("a;b"), "phase a:b");
    }

    #[test]
    fn a_band_lasts_until_the_next() {
        let bands = Bands(vec![(10, "phase early".into()), (30, "phase late".into())]);
        let at = [9, 10, 29, 30, u64::MAX].map(|since_ns| bands.root("vCPU 0", since_ns));
        let (early, late) = ("vCPU 0;phase early", "vCPU 0;phase late");
        assert_eq!(at, ["vCPU 0", early, early, late, late]);
        assert_eq!(Bands::default().root("vCPU 0", 5), "vCPU 0");
    }
}
