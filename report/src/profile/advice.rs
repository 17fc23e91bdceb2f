//! Advice on poor profiles. Input: counts of what a profile has. Output: a line for each fault that makes it
//! poor, with the remedy. Reports and the end of a recording give the same advice.

use crate::profile::Profile;
use crate::recording::warnings::Warning;
use crate::text::printable;
use std::collections::BTreeMap;
use uprof::words::share;
use uprof::{State, Stop};

/// The fewest samples that advice is based on.
const LEAST: u64 = 20;

/// Counts of a profile, in its unit, except for `rows`, `waiting` and `paused`, which are samples. `unfocused` is
/// samples or calls, but nanoseconds of vCPUs' time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// What counts.
    pub counted: u64,
    /// Number of samples that count, whatever each stands for.
    pub rows: u64,
    /// What `--focus` and `--ignore` left out.
    pub unfocused: u64,
    /// Incomplete stacks that end after one or two frames.
    pub shallow: u64,
    /// Incomplete stacks, including the shallow ones. Stacks that changed while they were read are not
    /// included, because no change to the guest's code can help them.
    pub cut: u64,
    /// Stacks that end where the recorded stack bytes end.
    pub window_ends: u64,
    /// Stacks with more frames than are kept.
    pub deep: u64,
    /// Whether the targets are guests.
    pub is_guest: bool,
    /// Stacks whose innermost frame has no name.
    pub unnamed: u64,
    /// By image: those of them whose code is in it.
    pub unnamed_in: BTreeMap<String, u64>,
    /// Stacks that changed while they were read.
    pub moved: u64,
    /// Whether a warning already says which names are missing and what to do.
    pub explains_unnamed: bool,
    /// Samples that don't count because the vCPU or thread wasn't running.
    pub waiting: u64,
    /// Those of them that found the guest paused by another program.
    pub paused: u64,
    /// The guest's function with the most self samples, and their number.
    pub most: Option<(String, u64)>,
    /// Stack bytes that were requested for each sample.
    pub stack_bytes: u32,
}

impl Counts {
    /// Counts of a profile with `stack_bytes` for each sample; `is_guest` if the targets are guests.
    pub(crate) fn of(profile: &Profile, is_guest: bool, stack_bytes: u32) -> Counts {
        let Profile {
            account, labels, ..
        } = profile;
        // Only of samples, and not where `--state` leaves out the running ones.
        let is_waiting = |state: State| account.unit.is_sampled() && state != State::Running;
        let waiting = account.by_state.iter();
        let waiting = waiting.filter(|(state, _)| is_waiting(**state));
        let mut counts = Counts {
            counted: account.counted,
            rows: account.counted_samples(),
            unfocused: account.unfocused,
            shallow: account.shallow,
            cut: account.cut.values().sum::<u64>()
                - account.cut.get(&Stop::Moved).copied().unwrap_or(0),
            moved: account.cut.get(&Stop::Moved).copied().unwrap_or(0),
            window_ends: account.cut.get(&Stop::Window).copied().unwrap_or(0),
            deep: account.cut.get(&Stop::Depth).copied().unwrap_or(0),
            is_guest,
            waiting: waiting.map(|(_, count)| count).sum(),
            paused: account.by_state.get(&State::Paused).copied().unwrap_or(0),
            stack_bytes,
            ..Counts::default()
        };
        let mut own = vec![0u64; labels.len()];
        for node in profile.tree.nodes().iter().filter(|node| node.count > 0) {
            own[node.label as usize] += node.count;
        }
        for (id, own) in (0..).zip(own) {
            let is_unnamed = labels.get(id).unknown;
            if is_unnamed && own > 0 {
                counts.unnamed += own;
                let image = labels.module_name(id).to_owned();
                *counts.unnamed_in.entry(image).or_default() += own;
            }
            let is_most = counts.most.as_ref().is_none_or(|(_, most)| own > *most);
            if is_guest && is_most && !is_unnamed {
                counts.most = Some((labels.name(id).to_owned(), own));
            }
        }
        counts
    }

    /// Adds the counts of `more`.
    pub(crate) fn add(&mut self, more: &Counts) {
        self.counted += more.counted;
        self.rows += more.rows;
        self.unfocused += more.unfocused;
        self.shallow += more.shallow;
        self.cut += more.cut;
        self.window_ends += more.window_ends;
        self.deep += more.deep;
        self.is_guest |= more.is_guest;
        self.moved += more.moved;
        self.unnamed += more.unnamed;
        for (image, count) in &more.unnamed_in {
            *self.unnamed_in.entry(image.clone()).or_default() += count;
        }
        self.waiting += more.waiting;
        self.paused += more.paused;
    }

    /// The share of `part` in what counts, if that is more than `percent`.
    fn share_above(&self, percent: u64, part: u64) -> Option<String> {
        let share = share_above(percent, part, self.counted);
        share.filter(|_| self.rows >= LEAST)
    }
}

/// Advice, the most important first.
pub(crate) fn advice(counts: &Counts) -> Vec<String> {
    let stacks = short(counts).or_else(|| window(counts));
    let all = [idle(counts), unnamed(counts), stacks].into_iter();
    all.flatten().map(|warning| warning.to_string()).collect()
}

/// The share of `part` in `whole` if that is more than `percent`.
fn share_above(percent: u64, part: u64, whole: u64) -> Option<String> {
    let exceeds = u128::from(part) * 100 > u128::from(whole) * u128::from(percent);
    exceeds.then(|| share(part, whole))
}

fn idle(counts: &Counts) -> Option<Warning> {
    // States are told apart before stacks are.
    let all = counts.rows.saturating_add(counts.unfocused);
    let all = all.saturating_add(counts.waiting);
    let share_of_all = |percent, part| share_above(percent, part, all).filter(|_| all >= LEAST);
    if let Some(share) = share_of_all(50, counts.paused) {
        return Some(Warning::PausedByOthers(share));
    }
    if let Some(share) = share_of_all(90, counts.waiting) {
        return Some(Warning::Idle(share));
    }
    let (name, own) = counts.most.as_ref()?;
    let share = counts.share_above(90, *own)?;
    let name = name.clone();
    Some(Warning::OneFunction { share, name })
}

fn unnamed(counts: &Counts) -> Option<Warning> {
    let share = counts.share_above(50, counts.unnamed)?;
    // What has no file has no package: JIT code, a kernel, code of no image.
    let is_file = |image: &str| !image.is_empty() && !image.starts_with('[');
    let most = counts.unnamed_in.iter().max_by_key(|(_, count)| **count);
    let most = most.filter(|(image, count)| is_file(image) && **count * 2 > counts.unnamed);
    let file = most.map(|(image, _)| printable(image).into_owned());
    (!counts.explains_unnamed).then_some(Warning::Unnamed { share, file })
}

/// Advice if most stacks have one or two frames, or are incomplete.
fn short(counts: &Counts) -> Option<Warning> {
    if let Some(share) = counts.share_above(50, counts.moved) {
        return Some(Warning::MovedStacks(share));
    }
    // Stacks that end with the recorded bytes have advice of their own, and deep ones lack nothing.
    let others = counts.cut.saturating_sub(counts.window_ends);
    let others = others.saturating_sub(counts.deep);
    let shallow = counts.share_above(50, counts.shallow);
    Some(Warning::ShortStacks {
        is_shallow: shallow.is_some(),
        share: shallow.or_else(|| counts.share_above(50, others))?,
        has_stack_bytes: has_stacks(counts.stack_bytes),
        is_guest: counts.is_guest,
    })
}

/// Advice if more than 1 % of stacks end where the recorded bytes end.
fn window(counts: &Counts) -> Option<Warning> {
    Some(Warning::StackBytesEnd {
        share: counts.share_above(1, counts.window_ends)?,
        stack_bytes: Some(counts.stack_bytes).filter(|bytes| has_stacks(*bytes)),
    })
}

/// Whether the requested stack bytes are enough to unwind whole stacks, not only to find the callers of
/// functions without a frame pointer.
fn has_stacks(stack_bytes: u32) -> bool {
    stack_bytes >= 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::account::Account;
    use crate::recording::unit::{Unit, Weight};

    #[test]
    fn each_lack_has_its_remedy_from_its_share_on() {
        let good = Counts {
            counted: 1000,
            rows: 1000,
            unfocused: 0,
            shallow: 500,
            cut: 500,
            window_ends: 10,
            deep: 0,
            is_guest: true,
            moved: 500,
            unnamed: 500,
            unnamed_in: BTreeMap::from([("sort".to_owned(), 400), ("[jit]".to_owned(), 100)]),
            waiting: 9000,
            paused: 5000,
            explains_unnamed: false,
            most: Some(("work".to_owned(), 900)),
            stack_bytes: 128,
        };
        assert_eq!(advice(&good), [""; 0]);
        type Change = fn(&mut Counts);
        let changes: [(Change, &str); 9] = [
            (
                |it| (it.moved, it.shallow) = (501, 501),
                "changed while they were read, and say little: record without --no-pause",
            ),
            (|it| it.paused = 5001, "paused in 50.0%"),
            (|it| it.waiting = 9001, "nothing ran in 90.0%"),
            (
                |it| it.most = Some(("default_idle".to_owned(), 950)),
                "95.0% of the samples are in default_idle alone",
            ),
            (
                |it| it.unnamed = 501,
                "of 50.1% of the samples, most of it in sort: install the debug package of that file",
            ),
            (
                |it| it.shallow = 501,
                "after one or two frames: the guest seems to lack frame pointers",
            ),
            (
                |it| (it.cut, it.stack_bytes) = (511, 16384),
                "before they are whole: there is no call frame",
            ),
            (
                |it| (it.shallow, it.is_guest) = (501, false),
                "record again without --frame-pointers",
            ),
            (|it| it.window_ends = 11, "record again with --stack,"),
        ];
        for (change, part) in changes {
            let mut counts = good.clone();
            change(&mut counts);
            let lines = advice(&counts);
            assert!(lines.len() == 1 && lines[0].contains(part), "{lines:?}");
        }
        // JIT code has no package.
        let deep = Counts {
            cut: 900,
            deep: 400,
            ..good.clone()
        };
        assert_eq!(advice(&deep), [""; 0]);
        let made = Counts {
            unnamed: 501,
            unnamed_in: BTreeMap::from([("[jit]".to_owned(), 501)]),
            ..good.clone()
        };
        assert!(advice(&made)[0].contains("of the samples: give its image"));
        let told_already = Counts {
            unnamed: 501,
            explains_unnamed: true,
            ..good
        };
        assert_eq!(advice(&told_already), [""; 0]);
        let few = Counts {
            counted: 19_000_000,
            rows: 19,
            unnamed: 19_000_000,
            shallow: 19_000_000,
            cut: 19_000_000,
            ..Counts::default()
        };
        assert_eq!(advice(&few), [""; 0]);
    }

    #[test]
    fn idle_samples_are_a_share_of_all_samples_whatever_counts() {
        let advice_on = |account: Account| {
            let profile = Profile {
                account,
                ..Profile::default()
            };
            advice(&Counts::of(&profile, true, 0))
        };
        let idle = |unit, waiting| Account {
            unit,
            by_state: BTreeMap::from([(waiting, 95)]),
            unfocused: 5,
            ..Account::default()
        };
        let told = advice_on(idle(Unit::Samples, State::Blocked));
        assert!(
            told.len() == 1 && told[0].contains("nothing ran in 95.0%"),
            "{told:?}"
        );
        // Running samples that `--state` leaves out, and waits, say nothing of idle vCPUs.
        assert_eq!(advice_on(idle(Unit::Samples, State::Running)), [""; 0]);
        assert_eq!(advice_on(idle(Unit::OffCpu, State::Blocked)), [""; 0]);
        // `--ignore` makes no guest idle.
        let ignored = Account {
            unfocused: 95,
            ..idle(Unit::Samples, State::Blocked)
        };
        assert_eq!(advice_on(ignored), [""; 0]);
        // Nor are nanoseconds compared with samples.
        let rows = Weight {
            amount: 5_000_000,
            count: 5,
        };
        let of_a_boot = Account {
            counted: rows.amount,
            counted_rows: BTreeMap::from([(State::Running, rows)]),
            unfocused: 0,
            ..idle(Unit::Sampled, State::Blocked)
        };
        let told = advice_on(of_a_boot);
        assert!(
            told.len() == 1 && told[0].contains("nothing ran in 95.0%"),
            "{told:?}"
        );
    }
}
