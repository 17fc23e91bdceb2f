//! The account of a report: the number of samples, those that count, and those that were lost, late or
//! truncated. Every view shows it, so that no picture looks better than its data.

use crate::recording::Recording;
use crate::recording::processes;
use crate::recording::unit::{Unit, Weight};
use crate::recording::warnings::{Part, Warning};
use std::collections::BTreeMap;
use uprof::cold::{
    KERNEL_FRAMES, Loss, LossReason, Metadata, NO_KERNEL_FRAMES, SLOWED_CALLS, SLOWED_CALLS_WHY,
    TargetKind,
};
use uprof::due;
use uprof::words::{duration, share};
use uprof::{Due, State, Stop};

/// Numbers of samples, or their times, and of what is missing. What counts is in the account's unit; what is
/// left out is in samples or waits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// The unit of what counts.
    pub unit: Unit,
    /// Number of samples that were read from the file.
    pub read: u64,
    /// The total that the view shows, in its unit: samples, or nanoseconds.
    pub counted: u64,
    /// The total by state, with the number of samples or waits.
    pub counted_rows: BTreeMap<State, Weight>,
    /// Number of samples, waits or calls of the recordings in other units.
    pub other_units: BTreeMap<Unit, u64>,
    /// Number of samples left out because of time, vCPU, thread or process, of the account's unit.
    pub outside: u64,
    /// Whether only some vCPUs, threads or processes were asked for.
    pub of_chosen_tasks: bool,
    /// Number of samples left out because of their state, by state.
    pub by_state: BTreeMap<State, u64>,
    /// Number of counted calls of a trace whose end is missing.
    pub unended: u64,
    /// Number of samples left out by `--focus` and `--ignore`; of vCPUs' time, nanoseconds.
    pub unfocused: u64,
    /// Number of counted samples with a truncated stack, by reason.
    pub cut: BTreeMap<Stop, u64>,
    /// Number of counted samples that were taken more than [`uprof::due::LATE_NS`] after their deadline.
    pub late: u64,
    /// Number of counted samples without any frame.
    pub empty: u64,
    /// Number of images that are used despite a different build-id.
    pub forced: u64,
    /// Number of counted samples with an incomplete stack of one or two frames.
    pub shallow: u64,
    /// Number of counted samples that may lack the caller of their innermost function.
    pub lacking: u64,
    /// Number of samples in blocks that can't be decoded.
    pub undecoded: u64,
    /// Number of samples that the recorder lost, by reason.
    pub lost: BTreeMap<LossReason, u64>,
    /// Number of samples lost with damaged parts of the file.
    pub damaged: u64,
    /// Number of damaged ranges, also of the file that a recording was recovered from.
    pub damages: u64,
    /// Off-CPU time that was recorded with the stack of a later wait, so that it may belong to other
    /// functions.
    pub pooled: u64,
    /// Why calls took longer than the guest's own work, if that is known of a recording.
    pub slowed_calls: Option<&'static str>,
    /// Number of resets of guests during recording.
    pub resets: u64,
    /// Number of recordings without an end of their own: the recorder was killed, or the file was truncated.
    pub unfinished: u64,
    /// Number of waits that began before the recording, and of threads that only waited, or only ran,
    /// throughout it. Their off-CPU time is unknown.
    pub untold: [u64; 2],
    /// CPU time according to samples (nanoseconds), of recordings for which it is less than the counted time.
    pub sampled_ns: u64,
    /// CPU time of the same recordings as the kernel or hypervisor counted it (nanoseconds).
    pub counted_ns: u64,
    /// Name of the counter: the kernel or the hypervisor.
    pub counter: Option<&'static str>,
    /// Whether time in the kernel, which was counted, was not sampled.
    pub lacks_kernel: bool,
    /// Number of vCPUs whose wall time counts.
    pub vcpus: u64,
    /// Time of exits that are above their function without its callers, as no sample is in it (nanoseconds).
    pub exits_without_callers_ns: u64,
    /// Total duration of the selected parts of the recordings, in seconds.
    pub seconds: f64,
    /// Whether the duration of some recordings is unknown.
    pub untimed: bool,
    /// Number of sampling deadlines in the recordings, one for each vCPU of a guest.
    pub deadlines: f64,
}

/// What is selected of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected {
    /// The length of the selected time, in seconds.
    pub seconds: f64,
    /// What was lost of it.
    pub losses: Vec<Loss>,
    /// Whether only some vCPUs, threads or processes are selected.
    pub of_chosen_tasks: bool,
}

impl Selected {
    /// All of `recording`.
    pub fn whole(recording: &Recording) -> Selected {
        Selected {
            seconds: recording.seconds(),
            losses: recording.losses().to_vec(),
            of_chosen_tasks: false,
        }
    }
}

/// The recorder's names for [`Account::untold`] in the end record.
const UNTOLD: [&str; 2] = [
    "waits_begun_before_and_left_out",
    "threads_that_never_switched",
];

/// The recorder's name for [`Account::resets`].
const RESETS: &str = "resets";

/// Whether a stack that ended for this reason lacks outer frames.
pub(crate) fn is_cut(stop: Stop) -> bool {
    !matches!(stop, Stop::Complete | Stop::NotWalked | Stop::Unsaid)
}

/// Whether a stack that ended for this reason, in a target of `kind`, is incomplete and has only one or two
/// frames. `kernel` yields for each frame whether it is the kernel's.
pub(crate) fn is_shallow(stop: Stop, kind: TargetKind, kernel: impl Iterator<Item = bool>) -> bool {
    // A stack that changed while it was read shows nothing about how the code was compiled, and another tool's
    // nothing about how to record.
    let is_imported = kind == TargetKind::Imported;
    if is_imported || matches!(stop, Stop::Complete | Stop::NotWalked | Stop::Moved) {
        return false;
    }
    // The kernel's frames show nothing about how the process was compiled.
    let counts = |is_kernel: &bool| kind != TargetKind::Process || !is_kernel;
    let frames = kernel.filter(counts).take(3).count();
    (1..=2).contains(&frames)
}

impl Account {
    /// An account of nothing yet, of what counts in `unit`.
    pub(crate) fn new(unit: Unit) -> Account {
        Account {
            unit,
            ..Account::default()
        }
    }

    /// Counts the losses that a recorder reports.
    pub(crate) fn add_losses(&mut self, losses: &[Loss]) {
        for loss in losses {
            let sum = self.lost.entry(loss.reason).or_default();
            *sum = sum.saturating_add(loss.count);
        }
    }

    /// Adds the losses of what is selected of a recording, and the gaps and totals of the whole.
    pub fn add_recording(&mut self, recording: &Recording, selected: &Selected) {
        self.add_losses(&selected.losses);
        self.of_chosen_tasks |= selected.of_chosen_tasks;
        let damages = recording.damages();
        let places = damages.count + damages.undecodable.len() as u64;
        let places = places.saturating_add(recording.recovered_places());
        self.damages = self.damages.saturating_add(places);
        self.damaged = self.damaged.saturating_add(damages.samples);
        self.unfinished += u64::from(recording.was_cut());
        self.seconds += selected.seconds;
        self.untimed |= !recording.is_timed();
        let Metadata {
            target, sampling, ..
        } = recording.metadata();
        let rate_hz = sampling.rate_millihertz as f64 / 1e3;
        self.deadlines += due::deadlines(target.kind, target.vcpus, selected.seconds, rate_hz);
        let mut notes = recording.metadata().notes.iter();
        let slowed = notes.find(|(name, _)| name == SLOWED_CALLS);
        let known = |why: &str| SLOWED_CALLS_WHY.into_iter().find(|known| *known == why);
        let why = slowed.and_then(|(_, why)| known(why));
        self.slowed_calls = self.slowed_calls.or(why);
        let totals = recording.end().map_or(&[][..], |end| &end.totals);
        let resets = totals.iter().find(|(name, _)| name == RESETS);
        self.resets = self
            .resets
            .saturating_add(resets.map_or(0, |(_, count)| *count));
        for (sum, wanted) in self.untold.iter_mut().zip(UNTOLD) {
            let found = totals.iter().find(|(name, _)| name == wanted);
            *sum = sum.saturating_add(found.map_or(0, |(_, count)| *count));
        }
        // The kernel's count for processes that ended may be lost, so that there are more samples than it
        // accounts for. That is not a gap.
        // Of some vCPUs, threads or processes it says nothing.
        let due = processes::due(recording).filter(|_| !selected.of_chosen_tasks);
        let due = due.filter(Due::has_gap);
        if let Some(due) = due.filter(|due| due.sampled_ns() < due.counted_ns) {
            self.sampled_ns = self.sampled_ns.saturating_add(due.sampled_ns());
            self.counted_ns = self.counted_ns.saturating_add(due.counted_ns);
            self.counter = Some(recording.metadata().target.kind.counter());
            let mut notes = recording.metadata().notes.iter();
            self.lacks_kernel |=
                notes.any(|(name, value)| name == KERNEL_FRAMES && value == NO_KERNEL_FRAMES);
        }
    }

    /// Adds another account to this one.
    pub(crate) fn add(&mut self, other: &Account) {
        // All fields are named, so that the compiler reports a new one that isn't added here.
        let Account {
            unit: _,
            read,
            counted,
            counted_rows,
            other_units,
            outside,
            of_chosen_tasks,
            by_state,
            unended,
            unfocused,
            cut,
            late,
            empty,
            forced,
            shallow,
            lacking,
            undecoded,
            lost,
            damaged,
            damages,
            pooled,
            slowed_calls,
            resets,
            unfinished,
            untold,
            sampled_ns,
            counted_ns,
            counter,
            lacks_kernel,
            vcpus,
            exits_without_callers_ns,
            seconds,
            untimed,
            deadlines,
        } = other;
        self.read += read;
        self.counted = self.counted.saturating_add(*counted);
        for (state, rows) in counted_rows {
            self.counted_rows.entry(*state).or_default().add(*rows);
        }
        add_map(&mut self.other_units, other_units);
        self.outside += outside;
        self.of_chosen_tasks |= of_chosen_tasks;
        self.unfocused = self.unfocused.saturating_add(*unfocused);
        self.unended += unended;
        self.late += late;
        self.empty += empty;
        self.forced += forced;
        self.shallow += shallow;
        self.lacking += lacking;
        self.pooled = self.pooled.saturating_add(*pooled);
        self.undecoded = self.undecoded.saturating_add(*undecoded);
        self.damaged = self.damaged.saturating_add(*damaged);
        self.damages = self.damages.saturating_add(*damages);
        self.unfinished += unfinished;
        self.resets = self.resets.saturating_add(*resets);
        self.slowed_calls = self.slowed_calls.or(*slowed_calls);
        self.vcpus += vcpus;
        let without_callers_ns = &mut self.exits_without_callers_ns;
        *without_callers_ns = without_callers_ns.saturating_add(*exits_without_callers_ns);
        self.seconds += seconds;
        self.untimed |= untimed;
        self.deadlines += deadlines;
        for (sum, more) in self.untold.iter_mut().zip(untold) {
            *sum = sum.saturating_add(*more);
        }
        self.sampled_ns = self.sampled_ns.saturating_add(*sampled_ns);
        self.counted_ns = self.counted_ns.saturating_add(*counted_ns);
        self.counter = self.counter.or(*counter);
        self.lacks_kernel |= lacks_kernel;
        add_map(&mut self.by_state, by_state);
        add_map(&mut self.cut, cut);
        add_map(&mut self.lost, lost);
    }

    /// What is missing, in words, and nothing of how good the rest is.
    pub(crate) fn missing(&self) -> String {
        let missing = Account {
            unit: self.unit,
            lost: self.lost.clone(),
            damages: self.damages,
            damaged: self.damaged,
            undecoded: self.undecoded,
            unfinished: self.unfinished,
            ..Account::default()
        };
        let warnings = missing.warnings();
        let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        told.join("; ")
    }

    /// Adds the faults of calls that are shown beside these samples.
    pub(crate) fn add_beside(&mut self, calls: &Account) {
        self.other_units.remove(&Unit::Calls);
        self.undecoded = self.undecoded.saturating_add(calls.undecoded);
        self.unended += calls.unended;
    }

    /// The number of samples, waits or calls that count, whatever their duration.
    pub fn counted_samples(&self) -> u64 {
        let counts = self.counted_rows.values().map(|rows| rows.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Number of samples, waits or calls that filters leave out: by their time, vCPU, thread, process or stack.
    fn filtered(&self) -> u64 {
        self.outside.saturating_add(self.unfocused)
    }

    /// The same, and those that are left out by their state.
    pub fn left_out(&self) -> u64 {
        let of_states = self.by_state.values().sum::<u64>();
        self.filtered().saturating_add(of_states)
    }

    /// Whether a loss of `count` for `reason` is more than a few missed deadlines.
    pub fn is_loss(&self, reason: LossReason, count: u64) -> bool {
        // Where the rate changed, and of a process with several threads, there were as many deadlines as samples.
        let samples = match self.unit {
            // What is lost of chosen threads is often unknown, so that all threads' losses and samples count.
            Unit::Samples | Unit::Sampled if self.of_chosen_tasks => self.read,
            Unit::Samples | Unit::Sampled => self.read.saturating_sub(self.outside),
            Unit::OffCpu | Unit::Calls | Unit::VcpuTime => 0,
        };
        due::is_loss(reason, count, self.deadlines.max(samples as f64))
    }

    /// Whether samples are missing, which makes the exit status 1. A few missed deadlines don't.
    pub fn is_incomplete(&self) -> bool {
        // Lost events are names and mappings, not samples.
        let samples = |reason| reason != LossReason::EventsLost;
        let mut lost = self.lost.iter().filter(|(reason, _)| samples(**reason));
        let lost = lost.any(|(reason, count)| self.is_loss(*reason, *count));
        lost || self.damages > 0 || self.undecoded > 0 || self.unfinished > 0
    }

    /// One line for each fact worth reporting; the first line states how many samples count.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.counted_line()];
        for (unit, amount) in self.other_units.iter().filter(|(_, amount)| **amount > 0) {
            lines.push(match unit {
                Unit::Samples => format!("not counted: {amount} samples (without --off-cpu)"),
                Unit::Sampled => format!(
                    "not counted: {} of recordings whose rate changed (report those alone)",
                    unit.phrase(*amount)
                ),
                Unit::OffCpu => {
                    let time = duration(*amount);
                    format!("not counted: {time} off CPU (see --off-cpu)")
                }
                Unit::Calls => format!("not counted: {amount} calls of a trace (see --calls)"),
                Unit::VcpuTime => {
                    format!("not counted: {} (see --time)", unit.phrase(*amount))
                }
            });
        }
        let [begun_before, never] = self.untold;
        if self.unit == Unit::OffCpu && (begun_before > 0 || never > 0) {
            lines.push(format!(
                "not seen: {begun_before} waits that began before the recording, and {never} threads that \
                 waited, or ran, from before it to its end"
            ));
        }
        lines.extend(self.idle_line());
        let others = self
            .by_state
            .iter()
            .filter(|(state, _)| !self.is_idle(**state));
        let others: Vec<String> = others
            .map(|(state, n)| format!("{n} {}", state.name()))
            .collect();
        if !others.is_empty() {
            lines.push(format!("not counted: {} (see --state)", others.join(", ")));
        }
        if self.outside > 0 || self.unfocused > 0 {
            let filtered = self.filtered();
            let filtered = if self.unit == Unit::VcpuTime {
                self.unit.amount(filtered)
            } else {
                filtered.to_string()
            };
            lines.push(format!("not counted: {filtered} left out by filters"));
        }
        lines.extend(self.warnings().iter().map(ToString::to_string));
        lines
    }

    /// What is missing, late or truncated.
    fn warnings(&self) -> Vec<Warning> {
        let part = |amount| Part {
            amount,
            whole: self.counted,
            unit: self.unit,
        };
        let mut warnings = Vec::new();
        let mut warn_if = |condition: bool, warning: Warning| {
            warnings.extend(condition.then_some(warning));
        };
        let cut = self.cut.values().sum();
        let reasons = self.cut.iter().map(|(stop, count)| (*stop, *count));
        warn_if(cut > 0, Warning::CutStacks(part(cut), reasons.collect()));
        warn_if(self.lacking > 0, Warning::MissingCaller(part(self.lacking)));
        warn_if(self.pooled > 0, Warning::PooledWaits(part(self.pooled)));
        warn_if(
            self.exits_without_callers_ns > 0,
            Warning::ExitsWithoutCallers(part(self.exits_without_callers_ns)),
        );
        let are_late = due::are_many_late(self.late, self.counted);
        warn_if(are_late, Warning::Late(part(self.late)));
        warn_if(self.forced > 0, Warning::ForcedImages(self.forced));
        let no_frames = Warning::NoFrames {
            amount: self.empty,
            unit: self.unit,
        };
        warn_if(self.empty > 0, no_frames);
        for (reason, count) in &self.lost {
            warn_if(*count > 0, Warning::Lost(*reason, *count));
        }
        let undersampled = Warning::Undersampled {
            sampled_ns: self.sampled_ns,
            counted_ns: self.counted_ns,
            counter: self.counter.unwrap_or("the kernel"),
            lacks_kernel: self.lacks_kernel,
        };
        warn_if(self.counted_ns > 0, undersampled);
        let damaged = Warning::Damaged {
            places: self.damages,
            samples: self.damaged,
        };
        warn_if(self.damages > 0, damaged);
        let undecodable = Warning::Undecodable {
            count: self.undecoded,
            unit: self.unit,
        };
        warn_if(self.undecoded > 0, undecodable);
        if let Some(why) = self.slowed_calls {
            warn_if(self.unit == Unit::Calls, Warning::SlowedCalls(why));
        }
        warn_if(self.resets > 0, Warning::Resets(self.resets));
        warn_if(self.unfinished > 0, Warning::NoEnd);
        warnings
    }

    /// Whether the samples left out in this state are those of idle vCPUs.
    fn is_idle(&self, state: State) -> bool {
        state == State::Blocked && self.unit.is_sampled()
    }

    /// The number of samples left out because nothing ran.
    fn idle_line(&self) -> Option<String> {
        let left_out = |(state, count): (&State, &u64)| self.is_idle(*state).then_some(*count);
        let idle: u64 = self.by_state.iter().filter_map(left_out).sum();
        // States are told apart before stacks are.
        let all = self.counted_samples().saturating_add(self.unfocused);
        let all = all.saturating_add(self.by_state.values().sum());
        let line = || {
            let share = share(idle, all);
            format!("not counted: {idle} idle ({share} of the samples; --idle counts them too)")
        };
        (idle > 0).then(line)
    }

    /// The account in one line of at most `letters_max` letters, for a picture. Facts that don't fit are
    /// counted.
    pub fn short_line(&self, letters_max: usize) -> String {
        let lines = self.lines();
        let mut line = lines[0].clone();
        for (number, next) in lines.iter().enumerate().skip(1) {
            if line.len() + next.len() > letters_max {
                let left = lines.len() - number;
                return format!("{line}; and {left} more notes, see --top");
            }
            line = format!("{line}; {next}");
        }
        line
    }

    fn counted_line(&self) -> String {
        match self.unit {
            Unit::Samples => {}
            Unit::Sampled => return self.sampled_line(),
            Unit::OffCpu => return self.time_line(),
            Unit::Calls => return self.calls_line(),
            Unit::VcpuTime => return self.vcpus_line(),
        }
        let per_second = self.counted as f64 / self.seconds;
        // What was imported ends with its last sample: one has no rate.
        if self.seconds > 0.0 && self.counted > 1 {
            format!(
                "{} samples in {:.1} s ({per_second:.1} a second)",
                self.counted, self.seconds
            )
        } else if self.untimed {
            format!("{} samples, no times in what was imported", self.counted)
        } else {
            format!("{} samples", self.counted)
        }
    }

    /// The number of samples and the time that they stand for.
    fn sampled_line(&self) -> String {
        format!(
            "{} samples of different rates, which stand for {}, in {:.3} s",
            self.counted_samples(),
            duration(self.counted),
            self.seconds
        )
    }

    /// The time and number of calls, and the duration of the recordings.
    fn calls_line(&self) -> String {
        let calls = self.counted_samples();
        let plural = if calls == 1 { "" } else { "s" };
        let mut line = format!("{} of {calls} call{plural}", self.unit.phrase(self.counted));
        if self.unended > 0 {
            line += &format!(
                ", {} of them without an end: their own time is not known",
                self.unended
            );
        }
        if self.seconds > 0.0 {
            line + &format!(", in {}", duration((self.seconds * 1e9) as u64))
        } else if self.untimed {
            line + "; no times in what was imported"
        } else {
            line
        }
    }

    /// The wall time and number of vCPUs, and the duration of the recordings.
    fn vcpus_line(&self) -> String {
        let (vcpus, plural) = (self.vcpus, if self.vcpus == 1 { "" } else { "s" });
        let time = self.unit.phrase(self.counted);
        format!("{time} of {vcpus} vCPU{plural}, in {:.1} s", self.seconds)
    }

    /// The time and number of waits, their states, and the duration of the recordings.
    fn time_line(&self) -> String {
        let waits = self.counted_rows.values().map(|rows| rows.count);
        let waits = waits.fold(0, u64::saturating_add);
        let states = self.counted_rows.iter();
        let states = states
            .map(|(state, rows)| format!("{} {}", state.name(), self.unit.amount(rows.amount)));
        let states: Vec<String> = states.collect();
        let mut line = self.unit.phrase(self.counted);
        line += &format!(" in {waits} waits");
        if !states.is_empty() {
            line += &format!(" ({})", states.join(", "));
        }
        if self.seconds > 0.0 {
            let of_all = if self.of_chosen_tasks {
                ""
            } else {
                " of all threads"
            };
            line + &format!("{of_all} in {:.1} s", self.seconds)
        } else {
            line
        }
    }
}

fn add_map<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        let sum = sums.entry(*key).or_default();
        *sum = sum.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_missed_deadlines_are_told_and_no_more() {
        let with = |missed| Account {
            counted: 1000,
            deadlines: 1000.0,
            lost: BTreeMap::from([(LossReason::Deadline, missed)]),
            ..Account::default()
        };
        assert!(!with(50).is_incomplete());
        assert!(with(51).is_incomplete());
        // Of a process with several threads there are more than its rate has.
        let of_threads = Account {
            read: 2000,
            ..with(100)
        };
        assert!(!of_threads.is_incomplete());
        let line = "lost: 50 samples of missed deadlines".to_owned();
        assert!(with(50).lines().contains(&line));
    }

    #[test]
    fn of_a_process_the_kernels_frames_make_no_stack_deep() {
        let [process, guest] = [TargetKind::Process, TargetKind::Qemu];
        let is_shallow =
            |stop, kind, kernel: &[bool]| is_shallow(stop, kind, kernel.iter().copied());
        let in_kernel = [true, true, false, false];
        assert!(is_shallow(Stop::BadPointer, process, &in_kernel));
        assert!(!is_shallow(Stop::BadPointer, guest, &in_kernel));
        assert!(!is_shallow(Stop::Complete, process, &in_kernel));
        assert!(!is_shallow(Stop::Moved, guest, &[true]));
        assert!(is_shallow(Stop::BadPointer, guest, &[true]));
        assert!(!is_shallow(Stop::BadPointer, process, &[true]));
        assert!(!is_shallow(Stop::BadPointer, guest, &[]));
        assert!(!is_shallow(Stop::Unsaid, TargetKind::Imported, &[false]));
    }

    #[test]
    fn a_gap_has_the_cause_that_is_known() {
        let account = |lacks_kernel| Account {
            sampled_ns: 1_000_000_000,
            counted_ns: 3_000_000_000,
            lacks_kernel,
            ..Account::default()
        };
        let ends = |account: &Account, words: &str| {
            let lines = account.lines();
            lines.iter().any(|line| line.ends_with(words))
        };
        let of_kernel = "; time in the kernel is missing most, which was not allowed to be sampled";
        assert!(ends(&account(true), of_kernel));
        assert!(ends(&account(false), "; what runs briefly is missing most"));
        let mut sum = account(false);
        sum.add(&account(true));
        assert!(ends(&sum, of_kernel));
    }

    #[test]
    fn what_happened_to_the_guest_is_told() {
        let account = Account {
            resets: 2,
            slowed_calls: Some(SLOWED_CALLS_WHY[0]),
            ..Account::default()
        };
        let says = |account: &Account, words: &str| {
            let lines = account.lines();
            lines.iter().any(|line| line.contains(words))
        };
        assert!(says(&account, "was reset while it was recorded, 2 times"));
        assert!(!says(&account, "emulated"), "samples are as they are");
        let calls = Account {
            unit: Unit::Calls,
            ..account
        };
        assert!(says(
            &calls,
            "shares may be wrong: many times too long: the guest is emulated"
        ));
    }

    #[test]
    fn what_is_poor_is_not_missing() {
        let account = Account {
            counted: 200,
            late: 50,
            lacking: 20,
            cut: BTreeMap::from([(Stop::BadPointer, 30)]),
            undecoded: 7,
            ..Account::default()
        };
        let whole = Account {
            undecoded: 7,
            ..Account::default()
        };
        assert_eq!(account.missing(), whole.lines()[1]);
    }

    #[test]
    fn late_samples_are_told() {
        let account = Account {
            counted: 200,
            late: 50,
            ..Account::default()
        };
        let late = "taken late, 1.0 ms or more after their deadline: 50 (25.0%): they may show what the guest did \
                    next";
        assert!(
            account.short_line(1000).contains(late),
            "{:?}",
            account.lines()
        );
        // One sample in a hundred changes no share by more than a percentage point.
        let few = |late| Account {
            counted: 200,
            late,
            ..Account::default()
        };
        assert_eq!([2, 3].map(|late| few(late).lines().len()), [1, 2]);
    }
}
