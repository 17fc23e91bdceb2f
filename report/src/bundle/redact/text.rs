//! Texts of a redacted recording. This module makes each of them, from the text that it replaces and the role
//! of that text. No other text may get into the new recording.

use super::rules::{self, GONE};
use crate::recording::{CLOCK, MONOTONIC};
use std::collections::{HashMap, HashSet};
use uprof::cold::{KERNEL_FRAMES, NO_KERNEL_FRAMES, SLOWED_CALLS, SLOWED_CALLS_WHY};

/// Triggers of samples that are kept; other names may be private.
const TRIGGERS: [&str; 5] = [
    "cycles",
    "cpu-clock",
    "timer",
    "timer, ptrace",
    "breakpoints",
];
/// Notes that are kept, with their values; others may be private.
const NOTES: [(&str, &str); 4] = [
    (KERNEL_FRAMES, NO_KERNEL_FRAMES),
    (SLOWED_CALLS, SLOWED_CALLS_WHY[0]),
    (SLOWED_CALLS, SLOWED_CALLS_WHY[1]),
    (CLOCK, MONOTONIC),
];
/// Totals of the end record that are kept.
const TOTALS: [&str; 47] = [
    "samples",
    "not_running",
    "cost_rounds",
    "cost_total_ns",
    "slowed_to_period_ns",
    "boot_begun_late_ns",
    "waits",
    "waits_told_with_a_later_stack",
    "waits_without_a_stack",
    "waits_begun_before_and_left_out",
    "waits_not_over_at_the_end",
    "threads_that_never_switched",
    "freezes",
    "round_trips",
    "rescues",
    "resumed_by_guardian",
    "resets",
    "lives",
    "left_out",
    "samples_not_in_64_bit_mode",
    "samples_while_the_monitor_was_stopped",
    "vcpus_not_recorded",
    "hypercalls",
    "memory_mapping_calls",
    "dropped_records_of_others",
    "samples_of_no_vcpu",
    "times_that_go_back",
    "times_that_cannot_be",
    "misshapen_samples",
    "samples_beyond_the_rate",
    "lost_in_the_guest",
    "damaged_frames",
    "attached_anew",
    "calls",
    "stops",
    "stopped_ns",
    "functions_given_up",
    uprof::cold::DAMAGED_PLACES,
    "bytes skipped in recovery",
    "samples lost with damage",
    "lines_skipped",
    "troubles",
    uprof::cold::PAUSED_BY_OTHERS_NS,
    uprof::cold::COUNTED_TIME_NS,
    uprof::cold::SAMPLED_TIME_NS,
    crate::recording::UNTIMED,
    crate::recording::SPANS_UNTIMED,
];
/// Origins of embedded tables that are kept.
const ORIGINS: [&str; 4] = ["kallsyms", "symtab", "import", crate::bundle::ORIGIN];

/// The role of a text. A new role needs a rule in [`Texts::keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Text {
    /// The name of a function: in a symbol, a line or a call.
    Function,
    /// The name of a system call.
    Syscall,
    /// The name that a program gave to a piece of its work.
    Label,
    /// Path of an image.
    Image,
    /// Path of a source file.
    Source,
    /// The name of a thread, a vCPU or a process of a guest.
    Thread,
    /// Command line of the recorded program.
    Command,
    /// The name of a guest.
    Guest,
    /// An argument of the recorder.
    Argument,
    /// The name of the recording host.
    Host,
    /// Operating system and release.
    System,
    /// Model of a processor.
    Processor,
    /// The recording program and its version.
    Recorder,
    /// The trigger of samples.
    Trigger,
    /// Origin of an image's tables.
    Origin,
    /// Name of a total.
    Total,
}

/// The texts that were kept so far.
#[derive(Debug, Default)]
pub(super) struct Texts {
    functions: Distinct,
    labels: Distinct,
    images: Distinct,
    sources: Distinct,
}

impl Texts {
    /// The part of `text` that may be kept; never more than the rule of its role allows.
    pub(super) fn keep(&mut self, what: Text, text: &str) -> String {
        match what {
            Text::Function => self.functions.keep(text, rules::function),
            Text::Label => self.labels.keep(text, rules::label),
            Text::Image => self.images.keep(text, rules::image),
            Text::Source => self.sources.keep(text, rules::file),
            Text::Syscall => rules::syscall(text),
            Text::Thread => rules::thread(text),
            Text::Command => rules::program(text),
            Text::Guest | Text::Argument | Text::Host => GONE.to_owned(),
            Text::System => rules::system(text),
            Text::Processor => rules::processor(text),
            Text::Recorder => rules::recorder(text),
            Text::Trigger => rules::known(text, &TRIGGERS),
            Text::Origin => rules::known(text, &ORIGINS),
            Text::Total => rules::known(text, &TOTALS),
        }
    }

    /// Names of images that were kept so far, in order.
    pub(super) fn images(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.images.taken.iter().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// A note, if uniprof itself writes its name and its value.
pub(super) fn note(name: &str, value: &str) -> Option<(String, String)> {
    let known = NOTES.iter().find(|known| **known == (name, value));
    known.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
}

/// Texts that have to stay different if they were. Texts that would become equal get a number at their end,
/// in the order of the recording.
#[derive(Debug, Default)]
struct Distinct {
    /// The new text of each old one.
    new: HashMap<String, String>,
    taken: HashSet<String>,
    /// The last number that was given to a text, so that each number is tried only once.
    numbers: HashMap<String, u64>,
}

impl Distinct {
    fn keep(&mut self, old: &str, rule: fn(&str) -> String) -> String {
        if let Some(known) = self.new.get(old) {
            return known.clone();
        }
        let short = rule(old);
        let mut name = short.clone();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(short.clone()).or_insert(1);
            *number += 1;
            name = format!("{short}#{number}");
        }
        self.new.insert(old.to_owned(), name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_stay_equal_and_different_ones_different() {
        let mut texts = Texts::default();
        let mut keep = |text| texts.keep(Text::Function, text);
        assert_eq!(keep("a.example/x/pkg.Run"), "pkg.Run");
        assert_eq!(keep("b.example/y/pkg.Run"), "pkg.Run#2");
        assert_eq!(keep("pkg.Run#3"), "pkg.Run#3");
        assert_eq!(keep("pkg.Run"), "pkg.Run#4");
        assert_eq!(keep("a.example/x/pkg.Run"), "pkg.Run");
        assert_eq!(texts.keep(Text::Image, "/home/bob/pkg.Run"), "pkg.Run");
        assert_eq!(texts.keep(Text::Image, "/memfd:secret"), "/memfd:");
        assert_eq!(texts.keep(Text::Image, "/memfd:other"), "/memfd:#2");
        assert_eq!(texts.images(), ["/memfd:", "/memfd:#2", "pkg.Run"]);
    }

    #[test]
    fn a_hundred_thousand_texts_that_become_the_same_take_no_time() {
        let mut texts = Texts::default();
        for number in 0..100_000 {
            texts.keep(Text::Function, &format!("RegExp:{number}"));
        }
        assert_eq!(
            texts.keep(Text::Function, "RegExp:x"),
            "RegExp:[redacted]#100001"
        );
    }

    #[test]
    fn texts_of_uniprof_are_kept_and_others_in_their_place_are_not() {
        let mut texts = Texts::default();
        for (what, own) in [
            (Text::Trigger, "cycles"),
            (Text::Trigger, "breakpoints"),
            (Text::Origin, "kallsyms"),
            (Text::Total, "samples"),
            (Text::Total, "resets"),
            (Text::Total, "lost_in_the_guest"),
        ] {
            assert_eq!(texts.keep(what, own), own);
            assert_eq!(texts.keep(what, "secret"), GONE);
        }
        for what in [Text::Guest, Text::Argument, Text::Host] {
            assert_eq!(texts.keep(what, "secret"), GONE);
        }
        for (name, value) in NOTES {
            assert_eq!(note(name, value), Some((name.to_owned(), value.to_owned())));
            assert_eq!(note(name, "secret"), None);
            assert_eq!(note("secret", value), None);
        }
    }
}
