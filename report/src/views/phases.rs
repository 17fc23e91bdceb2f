//! `--phases`: when functions were first entered, counted from the first instruction of a boot.
//!
//! Input: samples one by one. Output: a table for each boot. Time is the guest's: the recorder's pauses are left out.
//! A function is entered between its first sample and the sample before of that vCPU that would have shown it, and the
//! table says how long that is: a vCPU that waits for a processor has no stack, and one that was cut hides callers.

mod starts;

pub(crate) use starts::starts;

use super::{Content, Needs, Output, Renderer, View};
use crate::profile::gather::Sampled;
use crate::profile::tree::NodeId;
use crate::recording::Recording;
use crate::recording::account::is_cut;
use crate::recording::processes::name_at;
use crate::recording::unit::Unit;
use crate::text::screen::{Notes, Screen};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use uprof::cold::{Cost, TargetKind};
use uprof::cpu::is_kernel_address;
use uprof::words::duration;

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "phases",
    about: "When functions were first seen, from the first instruction of a boot (record --boot) or from the start of \
            the recording: those of --phase, or all with at least --min-share (1%)",
    output: Output::Text,
    needs: Needs::Samples,
    begin: |recordings| Box::new(Phases::new(recordings)),
};

/// Default least share of the samples of a function that is shown without being asked for.
const LEAST_SHARE: f64 = 0.01;
/// Columns to the left of the names.
const USED: usize = 3 * 10 + 2;

/// A function that begins a phase, as the user named them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// The name of the phase.
    pub name: String,
    /// The function's name.
    pub function: String,
}

/// The pauses of a recording, and the starts of its boots.
struct Pauses {
    /// Time since the start of the recording of each freeze, and how long all freezes before it took together.
    before: Vec<(u64, u64)>,
    whole_ns: u64,
    /// Time since the start of the recording at which each boot of a guest began, by its number.
    boots: BTreeMap<u32, u64>,
}

/// A moment in a boot.
#[derive(Debug, Clone, Copy)]
struct First {
    /// Time since the start of the recording.
    since_ns: u64,
    /// That of the sample before that would have shown a function of the kernel, and any other.
    before_kernel_ns: u64,
    before_ns: u64,
}

impl First {
    fn before_ns(&self, is_kernel: bool) -> u64 {
        if is_kernel {
            self.before_kernel_ns
        } else {
            self.before_ns
        }
    }
}

/// The times of a vCPU's last two samples of a kind, or the start of the boot.
#[derive(Debug, Clone, Copy)]
struct LastSeen {
    before_ns: u64,
    last_ns: u64,
}

impl LastSeen {
    /// The last one before `since_ns`, which is one of that kind if it `counts`.
    fn before(&mut self, since_ns: u64, counts: bool) -> u64 {
        if counts && since_ns > self.last_ns {
            self.before_ns = std::mem::replace(&mut self.last_ns, since_ns);
        }
        let before_ns = if since_ns > self.last_ns {
            self.last_ns
        } else {
            self.before_ns
        };
        before_ns.min(since_ns)
    }
}

/// What a vCPU showed last: samples that are whole or outside the kernel, and whole ones. What runs outside the kernel
/// is never called by it.
#[derive(Debug, Clone, Copy)]
struct VcpuSamples {
    kernel: LastSeen,
    whole: LastSeen,
}

/// The boot of a recording.
type BootKey = (usize, u32);

struct Phases {
    pauses: Vec<Pauses>,
    boots: BTreeMap<BootKey, BootSamples>,
}

/// What is known of the samples of a boot so far.
#[derive(Default)]
struct BootSamples {
    vcpus: HashMap<u32, VcpuSamples>,
    /// When each stack was first seen.
    stacks: BTreeMap<NodeId, First>,
}

impl Pauses {
    fn of(recording: &Recording) -> Self {
        let mut freezes: Vec<(u64, u64)> = Vec::new();
        let mut boots = BTreeMap::new();
        let is_paused = recording.metadata().cost == Some(Cost::Freeze);
        // What has processes is counted from the start of the recording.
        let has_boots = recording.metadata().target.kind.is_guest();
        for block in recording.blocks() {
            let Ok(block) = recording.samples(block) else {
                continue;
            };
            let mut rows = block.rows();
            while let Ok(Some(row)) = rows.next_row() {
                let since_ns = row.time_ns.saturating_sub(recording.start_ns());
                if has_boots {
                    let start = boots.entry(row.task.space).or_insert(since_ns);
                    *start = since_ns.min(*start);
                }
                if is_paused {
                    freezes.push((since_ns, row.details.cost_ns.unwrap_or(0)));
                }
            }
        }
        // The first boot began before its first sample.
        boots.insert(0, recording.boot_begun_late_ns().unwrap_or(0));
        // The vCPUs of a sample have one freeze.
        freezes.sort_unstable();
        freezes.dedup_by_key(|(since_ns, _)| *since_ns);
        let mut whole_ns = 0_u64;
        let before = freezes.into_iter().map(|(since_ns, cost_ns)| {
            let before_ns = whole_ns;
            whole_ns = whole_ns.saturating_add(cost_ns);
            (since_ns, before_ns)
        });
        let before = before.collect();
        Pauses {
            before,
            whole_ns,
            boots,
        }
    }

    /// For how long the guest was paused before a freeze, or another moment.
    fn before_ns(&self, since_ns: u64) -> u64 {
        let later = self.before.partition_point(|(at_ns, _)| *at_ns < since_ns);
        self.before.get(later).map_or(self.whole_ns, |(_, ns)| *ns)
    }

    /// How long the guest had run at a moment since its boot began.
    fn run_ns(&self, boot: u32, since_ns: u64) -> u64 {
        let began_ns = self.boots.get(&boot).copied().unwrap_or(0);
        let passed_ns = since_ns.saturating_sub(began_ns);
        let paused_ns = self
            .before_ns(since_ns)
            .saturating_sub(self.before_ns(began_ns));
        passed_ns.saturating_sub(paused_ns)
    }
}

impl BootSamples {
    fn add(&mut self, sampled: &Sampled, began_ns: u64) {
        let since_ns = sampled.since_ns;
        let mut first = First {
            since_ns,
            before_kernel_ns: since_ns,
            before_ns: since_ns,
        };
        // The start of a call is known.
        if sampled.unit != Unit::Calls {
            let Some(address) = sampled.address else {
                return;
            };
            let start = LastSeen {
                before_ns: began_ns,
                last_ns: began_ns,
            };
            let vcpu = self.vcpus.entry(sampled.task.vcpu).or_insert(VcpuSamples {
                kernel: start,
                whole: start,
            });
            let is_whole = !is_cut(sampled.stop);
            let shows_kernel = is_whole || !is_kernel_address(address);
            first.before_kernel_ns = vcpu.kernel.before(since_ns, shows_kernel);
            first.before_ns = vcpu.whole.before(since_ns, is_whole);
        }
        let known = self.stacks.entry(sampled.node).or_insert(first);
        if since_ns < known.since_ns {
            *known = first;
        }
    }
}

impl Phases {
    fn new(recordings: &[Recording]) -> Self {
        Phases {
            pauses: recordings.iter().map(Pauses::of).collect(),
            boots: BTreeMap::new(),
        }
    }

    /// The functions to show for a boot, with the times since the start of the recording at which each was first seen,
    /// and would have been seen before; in that order.
    fn rows(
        &self,
        key: BootKey,
        shown: &HashSet<&str>,
        content: &Content<'_>,
    ) -> Vec<(String, Option<(u64, u64)>)> {
        let Content { profile, form, .. } = content;
        let mut firsts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let stacks = self.boots.get(&key).map(|boot| &boot.stacks);
        for (node, first) in stacks.into_iter().flatten() {
            for label in profile.tree.outwards(*node) {
                let is_kernel = profile.labels.get(label).kernel;
                let first = (first.since_ns, first.before_ns(is_kernel));
                let known = firsts.entry(profile.labels.name(label)).or_insert(first);
                *known = first.min(*known);
            }
        }
        let mut rows: Vec<(String, Option<(u64, u64)>)> = if form.phases.is_empty() {
            // An address without a name is no phase.
            let is_named = |name: &str| !name.starts_with("0x");
            let all = firsts.iter();
            let all = all.filter(|(name, _)| shown.contains(**name) && is_named(name));
            all.map(|(name, first)| ((*name).to_owned(), Some(*first)))
                .collect()
        } else {
            let asked = form.phases.iter();
            asked
                .map(|phase| (words(phase), firsts.get(phase.function.as_str()).copied()))
                .collect()
        };
        rows.sort_by_key(|(_, first)| first.map_or(u64::MAX, |(since_ns, _)| since_ns));
        rows
    }

    fn write_boot(
        &self,
        key: BootKey,
        shown: &HashSet<&str>,
        content: &Content<'_>,
        out: &mut dyn Write,
    ) -> io::Result<bool> {
        let pauses = &self.pauses[key.0];
        let screen = content.form.screen;
        writeln!(
            out,
            "{:>10} {:>10} {:>10}  first seen",
            "after", "at most", "until next"
        )?;
        writeln!(out, "{:>10} {:>10} {:>10}", "", "earlier", "")?;
        let rows = self.rows(key, shown, content);
        let run_ns = |since_ns| pauses.run_ns(key.1, since_ns);
        for (place, (name, first)) in rows.iter().enumerate() {
            let Some((since_ns, before_ns)) = *first else {
                write_row(
                    ["-".into(), String::new(), String::new()],
                    &format!("{name}: not seen"),
                    screen,
                    out,
                )?;
                continue;
            };
            let after_ns = run_ns(since_ns);
            let earlier_ns = after_ns.saturating_sub(run_ns(before_ns));
            let next = rows.get(place + 1).and_then(|(_, next)| *next);
            let until = next.map(|(next_ns, _)| duration(run_ns(next_ns).saturating_sub(after_ns)));
            let texts = [
                duration(after_ns),
                duration(earlier_ns),
                until.unwrap_or_default(),
            ];
            write_row(texts, name, screen, out)?;
        }
        Ok(rows.iter().any(|(_, first)| first.is_some()))
    }
}

/// The names of functions that are shown without being asked for.
fn shown<'c>(content: &Content<'c>) -> HashSet<&'c str> {
    let profile = content.profile;
    let totals = profile.tree.totals();
    let whole = totals.first().copied().unwrap_or(0);
    let least = (content.form.least_share.unwrap_or(LEAST_SHARE) * whole as f64).max(1.0);
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for (node, total) in profile.tree.nodes().iter().zip(&totals).skip(1) {
        let sum = sums.entry(profile.labels.name(node.label)).or_default();
        // Recursion counts more than once, which shows it no less.
        *sum = sum.saturating_add(*total);
    }
    let shown = sums.into_iter().filter(|(_, sum)| *sum as f64 >= least);
    shown.map(|(name, _)| name).collect()
}

fn words(phase: &Phase) -> String {
    if phase.name == phase.function {
        phase.function.clone()
    } else {
        format!("{} ({})", phase.name, phase.function)
    }
}

fn write_row(
    texts: [String; 3],
    name: &str,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    for text in texts {
        write!(out, "{text:>10} ")?;
    }
    writeln!(out, " {}", screen.name(name, &Notes::default(), USED))
}

impl Renderer for Phases {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        let key = (sampled.recording, sampled.task.space);
        let began_ns = self.pauses[key.0].boots.get(&key.1).copied().unwrap_or(0);
        let boot = self.boots.entry(key).or_default();
        boot.add(sampled, began_ns);
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        let screen = content.form.screen;
        screen.write_lines(&content.profile.account.lines(), out)?;
        let (_, files) = content.named_recordings();
        let keys: Vec<BootKey> = self.boots.keys().copied().collect();
        let mut boots: HashMap<usize, u32> = HashMap::new();
        for (recording, _) in &keys {
            *boots.entry(*recording).or_default() += 1;
        }
        let shown = shown(content);
        let mut is_any = false;
        for key in &keys {
            let file = if files.len() > 1 { &files[key.0] } else { "" };
            let boot = if boots[&key.0] > 1 {
                let recording = &content.recordings[key.0];
                match recording.metadata().target.kind {
                    TargetKind::Process => {
                        format!("{} ({})", name_at(recording, key.1, u64::MAX), key.1)
                    }
                    _ => format!("boot {}", u64::from(key.1) + 1),
                }
            } else {
                String::new()
            };
            let parts: Vec<&str> = [file, &boot]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            writeln!(out)?;
            if !parts.is_empty() {
                screen.write_prose("", &format!("{}:", parts.join(", ")), 2, out)?;
            }
            is_any |= self.write_boot(*key, &shown, content, out)?;
        }
        writeln!(out)?;
        let paused_ns = self
            .pauses
            .iter()
            .map(|one| one.whole_ns)
            .fold(0, u64::saturating_add);
        let line = format!(
            "times are without the recorder's pauses ({} in all); a function that returns between two samples is not \
             seen",
            duration(paused_ns)
        );
        screen.write_prose("", &line, 2, out)?;
        let kinds = content
            .recordings
            .iter()
            .map(|one| one.metadata().target.kind);
        let mut kinds = kinds.filter(|kind| matches!(kind, TargetKind::Qemu | TargetKind::GdbStub));
        if kinds.next().is_some() {
            let line = "behind a stub the guest runs on for a part of each pause, and times are too short by that";
            screen.write_prose("", line, 2, out)?;
        }
        Ok(is_any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::unit::Weight;
    use uprof::cold::{End, EndReason, Metadata};
    use uprof::{Sample, State, Stop, Task, Writer};

    #[test]
    fn pauses_are_left_out_of_a_boots_time() {
        let pauses = Pauses {
            before: vec![(100, 0), (300, 50), (900, 70)],
            whole_ns: 80,
            boots: BTreeMap::from([(0, 20), (1, 900)]),
        };
        let run = [20, 100, 101, 300, 800, 900].map(|since_ns| pauses.run_ns(0, since_ns));
        assert_eq!(run, [0, 80, 31, 230, 710, 810]);
        assert_eq!(pauses.run_ns(1, 1000), 90);
        assert_eq!(pauses.run_ns(7, 0), 0);
    }

    #[test]
    fn a_process_is_counted_from_the_start_of_the_recording_and_a_boot_from_its_own() {
        let run_ns = |kind| {
            let mut metadata = Metadata::default();
            metadata.target.kind = kind;
            let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1000).unwrap();
            for time_ns in [1050, 1080] {
                let sample = Sample::bare(time_ns, Task { space: 7, vcpu: 7 }, &[]);
                writer.sample(&sample).unwrap();
            }
            let end = End {
                time_ns: 1100,
                reason: EndReason::Stopped,
                message: String::new(),
                totals: Vec::new(),
            };
            let bytes = writer.finish(&end).unwrap();
            let recording = Recording::from_bytes("made", bytes).unwrap();
            Pauses::of(&recording).run_ns(7, 80)
        };
        assert_eq!(run_ns(TargetKind::Process), 80);
        assert_eq!(run_ns(TargetKind::Kvm), 30);
    }

    fn sampled(since_ns: u64, vcpu: u32, address: Option<u64>, stop: Stop) -> Sampled {
        Sampled {
            recording: 0,
            since_ns,
            task: Task { space: 0, vcpu },
            space: 0,
            state: State::Running,
            stop,
            node: address.map_or(0, |address| address as NodeId),
            address,
            weight: Weight::default(),
            unit: Unit::Samples,
            call: None,
            is_hidden: false,
        }
    }

    /// The times of the first samples of each stack: before of the kernel, before of others, and since.
    fn firsts(samples: impl IntoIterator<Item = Sampled>) -> Vec<(u64, u64, u64)> {
        let mut boot = BootSamples::default();
        samples.into_iter().for_each(|one| boot.add(&one, 5));
        let firsts = boot.stacks.values();
        firsts
            .map(|one| (one.before_kernel_ns, one.before_ns, one.since_ns))
            .collect()
    }

    #[test]
    fn a_sample_without_a_stack_does_not_say_that_a_function_had_not_begun() {
        let at = |since_ns, vcpu, address| sampled(since_ns, vcpu, address, Stop::Complete);
        let found = firsts([
            at(10, 0, Some(1)),
            at(20, 0, None),
            at(30, 0, None),
            at(35, 1, Some(1)),
            at(40, 0, Some(2)),
            at(50, 0, Some(3)),
        ]);
        assert_eq!(found, [(5, 5, 10), (10, 10, 40), (40, 40, 50)]);
    }

    #[test]
    fn a_stack_that_was_cut_hides_callers_but_not_the_kernel_below_a_user() {
        let cut = Stop::Unreadable;
        let found = firsts([
            sampled(10, 0, Some(1), cut),
            sampled(20, 0, Some(2), Stop::Complete),
            sampled(30, 0, Some(3), cut),
            sampled(40, 0, Some(!0 << 31 | 4), cut),
            sampled(50, 0, Some(5), Stop::Complete),
        ]);
        let expected = [
            (5, 5, 10),
            (10, 5, 20),
            (20, 20, 30),
            (30, 20, 50),
            (30, 20, 40),
        ];
        assert_eq!(found, expected);
    }
}
