//! `info`: the target, host, time and method of a recording, and how complete it is.

use crate::images::Library;
use crate::recording::account::{Account, is_cut};
use crate::recording::processes::{self, Balance};
use crate::recording::survey::{self, Survey};
use crate::recording::{BEGUN_LATE_NS, CLOCK, Recording, SpanCounts, last_part};
use crate::stacks::idle::Idle;
use crate::stacks::symbolizer::Symbolizer;
use crate::text::calendar::calendar;
use crate::text::screen::Screen;
use crate::text::{hexadecimal, printable};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use uprof::cold::{
    COUNTED_TIME_NS, Cost, KERNEL_FRAMES, Metadata, PAUSED_BY_OTHERS_NS, SAMPLED_TIME_NS,
    SLOWED_CALLS, TargetKind, UNKNOWN_TIME,
};
use uprof::words::{duration, share};
use uprof::{Due, Durations, State, Task};

/// Surveys `recording`. The code in the images of `library`, and in the recording itself, shows which samples
/// were idle.
pub fn survey(recording: &Recording, library: &Library, progress: &dyn Fn(u64, u64)) -> Survey {
    let symbolizer = Symbolizer::new(recording, library, false);
    let idle = Idle::new(recording, &symbolizer);
    survey::survey(recording, &idle, progress)
}

/// Writes everything that is known about `recording`.
///
/// # Errors
/// The errors of `out`.
pub fn write(
    recording: &Recording,
    survey: &Survey,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = lines(recording, survey, true);
    let mut lines = lines.iter();
    lines.try_for_each(|(name, value)| screen.write_prose(&format!("{name:<15} "), value, 18, out))
}

/// The same facts as pairs of name and value, both printable. A line without a name continues the one before.
/// Command line, host name, folders, addresses and the words of the end, which may be secret, are included only with
/// `identify`.
pub fn lines(recording: &Recording, survey: &Survey, identify: bool) -> Vec<(String, String)> {
    let mut page = Page {
        lines: Vec::new(),
        identify,
    };
    what(recording, &mut page);
    if survey.spans.spans > 0 {
        spans(&survey.spans, recording, &mut page);
    }
    if survey.rows > 0 || survey.spans.spans == 0 {
        samples(recording, survey, &mut page);
    }
    times(survey, recording, &mut page);
    processor_time(recording, survey, &mut page);
    missing(recording, survey, &mut page);
    sizes(recording, survey, &mut page);
    page.lines
}

struct Page {
    lines: Vec<(String, String)>,
    /// Whether to include what may be secret.
    identify: bool,
}

impl Page {
    fn line(&mut self, name: &str, value: impl AsRef<str>) {
        let line = (name.to_owned(), printable(value.as_ref()).into_owned());
        self.lines.push(line);
    }

    /// Adds a line unless `value` is empty.
    fn some(&mut self, name: &str, value: impl AsRef<str>) {
        if !value.as_ref().is_empty() {
            self.line(name, value);
        }
    }
}

fn what(recording: &Recording, page: &mut Page) {
    let Metadata {
        recorder,
        host,
        target,
        notes,
        labels,
        ..
    } = recording.metadata();
    let path = if page.identify {
        recording.name()
    } else {
        last_part(recording.name())
    };
    page.line("recording", path);
    if let Some(uuid) = recording.uuid() {
        page.line("identity", hexadecimal(&uuid));
    }
    let subject = if page.identify {
        &target.name
    } else {
        recording.subject()
    };
    let mut name = format!("{subject} ({}", target.kind.name());
    match target.kind {
        TargetKind::Process | TargetKind::XenDomain => name.push_str(&format!(" {})", target.id)),
        _ => name.push(')'),
    }
    page.line("target", name.trim_start());
    for (number, (key, value)) in labels.iter().enumerate() {
        let name = if number == 0 { "labels" } else { "" };
        page.line(name, format!("{key}={value}"));
    }
    page.line("architecture", target.arch.name());
    // For a process, this is the number of threads at the start. All threads are listed below.
    if target.vcpus > 0 && target.kind != TargetKind::Process {
        page.line("vCPUs", target.vcpus.to_string());
    }
    if let Some(realtime_ns) = recording.start_realtime_ns() {
        page.line("started", format!("{} UTC", calendar(realtime_ns)));
    }
    page.line(
        "length",
        if recording.is_timed() {
            duration((recording.seconds() * 1e9) as u64)
        } else {
            "no times in what was imported".to_owned()
        },
    );
    if page.identify {
        page.some("command", recorder.command_line.join(" "));
    }
    page.some("recorder", &recorder.program);
    let processor = match host.processors {
        0 => host.processor.clone(),
        count => format!("{count} × {}", host.processor),
    };
    let host_name = if page.identify {
        host.name.as_str()
    } else {
        ""
    };
    let parts = [host_name, host.system.as_str(), processor.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    page.some("host", parts.join(", "));
    for (name, value) in notes {
        if page.identify || PUBLIC_NOTES.contains(&name.as_str()) {
            page.line(&printable(name), value);
        }
    }
    match recording.end() {
        Some(end) if page.identify => page.line("ended", &end.message),
        Some(end) => page.line("ended", end.reason.name()),
        None => page.line(
            "ended",
            "no end record: the recorder was killed, or the file was cut",
        ),
    }
    if let Some(late_ns) = recording.boot_begun_late_ns() {
        let late = duration(late_ns);
        page.line(
            "boot",
            format!("from its first instruction, {late} after the start"),
        );
    }
    page.some("lives", lives(recording));
    let totals = recording.end().map_or(&[][..], |end| &end.totals);
    let paused = totals.iter().find(|(name, _)| name == PAUSED_BY_OTHERS_NS);
    if let Some((_, paused_ns)) = paused {
        page.line(
            "paused",
            format!("{} by someone else", duration(*paused_ns)),
        );
    }
    // Samples and their cost are left out, because they are counted from the blocks themselves below.
    let others = totals
        .iter()
        .filter(|(name, _)| !COUNTED_HERE.contains(&name.as_str()));
    for (number, (name, value)) in others.enumerate() {
        let label = if number == 0 { "counted" } else { "" };
        page.line(label, format!("{value} {}", name.replace('_', " ")));
    }
}

/// Names of notes on how the recording was made. Others may hold an address, a path, or who built the guest's kernel.
const PUBLIC_NOTES: [&str; 25] = [
    KERNEL_FRAMES,
    SLOWED_CALLS,
    UNKNOWN_TIME,
    CLOCK,
    "accelerator",
    "calls of",
    "domain kind",
    "domain paused",
    "domctl interface version",
    "guest memory",
    "guest memory in the monitor",
    "guest's clock",
    "guest's timer",
    "imported from",
    "machine",
    "perf events",
    "QEMU version",
    "round trips of the first sample",
    "stack bytes come through",
    "stacks",
    "stub's pace",
    "time of vCPUs",
    "time off CPU",
    "times of calls",
    "Xen version",
];

/// When a restarted guest began each boot, or had which domain; empty if it didn't restart.
fn lives(recording: &Recording) -> String {
    let tasks = recording.tasks();
    let first = tasks.iter().filter(|task| task.vcpu == 0);
    let guest = first.filter(|_| recording.metadata().target.kind.is_guest());
    let all: Vec<Task> = guest.collect();
    let at = |time_ns: u64| {
        let since_ns = time_ns.saturating_sub(recording.start_ns());
        format!("{:.1} s", since_ns as f64 / 1e9)
    };
    let lives = all.iter().map(|&task| {
        let name = tasks.last_name(task).unwrap_or_default();
        // If the guest was not meant to be followed, the names of its vCPUs are in its first boot.
        let domain = name
            .rsplit_once(" of ")
            .map_or("boot 1", |(_, domain)| domain);
        let mut text = printable(domain).into_owned();
        if let Some(since_ns) = tasks.since_ns(task).filter(|_| task.space > 0) {
            text.push_str(&format!(" from {}", at(since_ns)));
        }
        if let Some(ended_ns) = tasks.ended_ns(task) {
            text.push_str(&format!(" until {}", at(ended_ns)));
        }
        text
    });
    match all.len() {
        0 | 1 => String::new(),
        count => format!(
            "{count}: {}",
            lives.take(LIVES_SHOWN).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Most boots of a guest to list.
const LIVES_SHOWN: usize = 16;

/// Totals of the end record that repeat what the blocks state, or have a line of their own.
const COUNTED_HERE: [&str; 8] = [
    BEGUN_LATE_NS,
    "samples",
    "not_running",
    "cost_rounds",
    "cost_total_ns",
    PAUSED_BY_OTHERS_NS,
    COUNTED_TIME_NS,
    SAMPLED_TIME_NS,
];

/// Adds the lines on calls of a trace.
fn spans(counts: &SpanCounts, recording: &Recording, page: &mut Page) {
    let SpanCounts {
        spans,
        without_end,
        without_beginning,
        timed,
        ..
    } = counts;
    let whole = spans - without_end - without_beginning;
    let mut value = format!("{spans} ({whole} whole");
    if *without_end > 0 {
        value.push_str(&format!(", {without_end} without an end"));
    }
    if *without_beginning > 0 {
        value.push_str(&format!(", {without_beginning} without a beginning"));
    }
    value.push(')');
    page.line("calls", value);
    if timed < spans {
        let value = match timed {
            0 => "no times: calls are in order, each with its length".to_owned(),
            _ => format!("{} of the calls have no time", spans - timed),
        };
        page.line("", value);
    }
    let sizes = recording.sizes();
    let per_span = sizes.span_bytes as f64 / *spans as f64;
    page.line(
        "span blocks",
        format!(
            "{} bytes, {per_span:.2} a call; {} decompressed",
            sizes.span_bytes, sizes.span_raw_bytes
        ),
    );
}

fn samples(recording: &Recording, survey: &Survey, page: &mut Page) {
    let sampling = &recording.metadata().sampling;
    let by_state = |counts: &BTreeMap<State, u64>| {
        let all = counts.values().copied().fold(0, u64::saturating_add);
        let states = counts.iter();
        let states = states.map(|(state, n)| format!("{n} {}", state.name()));
        format!("{all} ({})", states.collect::<Vec<_>>().join(", "))
    };
    // Of what was imported, all may be waits.
    let has_samples = survey.samples > 0 || survey.waits.is_empty();
    if has_samples {
        page.line("samples", by_state(&survey.states));
    }
    if !survey.waits.is_empty() {
        page.line("waits", by_state(&survey.waits));
    }
    let scope = if sampling.on_cpu_only {
        "per vCPU or thread, while it runs"
    } else {
        "per vCPU or thread"
    };
    page.line(
        "rate requested",
        match sampling.rate_millihertz {
            0 => "unknown".to_owned(),
            rate => format!("{} Hz {scope}", rate as f64 / 1000.0),
        },
    );
    page.some("trigger", &sampling.trigger);
    let seconds = recording.seconds();
    if seconds > 0.0 && has_samples {
        let per_second = survey.samples as f64 / seconds;
        let tasks = survey.tasks.len().max(1);
        let each = per_second / tasks as f64;
        let achieved = format!("{per_second:.1} samples/s in all; {each:.1}/s for each of {tasks}");
        page.line("rate achieved", achieved);
    }
    let names: BTreeSet<&str> = survey
        .tasks
        .keys()
        .filter_map(|task| recording.tasks().last_name(*task))
        .collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    let more = names.len().saturating_sub(8);
    names.truncate(8);
    let more = if more > 0 {
        format!(" … and {more} more")
    } else {
        String::new()
    };
    page.some("threads", names.join(", ") + &more);
    let kinds = [
        ("registers", survey.with_registers),
        ("raw stacks", survey.with_stack),
    ];
    for (name, count) in kinds.iter().filter(|(_, count)| *count > 0) {
        page.line(
            name,
            format!("{count} samples ({})", share(*count, survey.samples)),
        );
    }
    if survey.samples > 0 {
        let mean = survey.frames as f64 / survey.samples as f64;
        page.line(
            "frames",
            format!("{mean:.1} a sample on average, as recorded"),
        );
    }
}

fn times(survey: &Survey, recording: &Recording, page: &mut Page) {
    let percentiles = |durations: &Durations| {
        let at = |share| duration(durations.percentile_ns(share).unwrap_or(0));
        let max = duration(durations.max_ns);
        format!(
            "p50 {}, p99 {}, max {max} (measured {} times)",
            at(0.5),
            at(0.99),
            durations.count
        )
    };
    if survey.cost.count > 0 {
        let (each, all) = match recording.metadata().cost {
            Some(Cost::Freeze) => ("freeze time", "frozen"),
            Some(Cost::Work) | None => ("sampling time", "sampling"),
        };
        page.line(each, percentiles(&survey.cost));
        let seconds = recording.seconds();
        if seconds > 0.0 {
            let frozen = survey.cost.sum_ns as f64 / 1e9;
            let percent = frozen * 100.0 / seconds;
            page.line(
                all,
                format!("{frozen:.4} s in all, {percent:.3}% of the time"),
            );
        }
    }
    if survey.late.count > 0 {
        page.line("late by", percentiles(&survey.late));
    }
}

/// Most processes whose time is listed.
const PROCESSES_LISTED: usize = 20;

/// Adds the lines on CPU time, as counted by the kernel and by samples.
fn processor_time(recording: &Recording, survey: &Survey, page: &mut Page) {
    let kind = recording.metadata().target.kind;
    let text = |due: &Due| {
        let share = due
            .share()
            .map_or(String::new(), |share| format!(" ({:.0}%)", share * 100.0));
        let (counted, sampled) = (duration(due.counted_ns), duration(due.sampled_ns()));
        let counter = kind.counter();
        format!("{counted} counted by {counter}, {sampled} sampled{share}")
    };
    if let Some(due) = processes::due(recording).filter(|_| kind.is_guest()) {
        page.line("processor time", text(&due));
    }
    let balances = processes::balances(recording, survey);
    let mut all = Due::default();
    for Balance { due, .. } in &balances {
        all.samples += due.samples;
        all.counted_ns = all.counted_ns.saturating_add(due.counted_ns);
        all.rate_millihertz = due.rate_millihertz;
    }
    if balances.is_empty() {
        return;
    }
    page.line("processor time", text(&all));
    if balances.len() == 1 {
        return;
    }
    for Balance { space, due } in balances.iter().take(PROCESSES_LISTED) {
        let name = match space {
            Some(space) => {
                let name = processes::name_at(recording, *space, u64::MAX);
                format!("{name} ({space})")
            }
            None => "processes that ended between two counts".to_owned(),
        };
        page.line("", format!("{name}: {}", text(due)));
    }
    if let Some(more @ 1..) = balances.len().checked_sub(PROCESSES_LISTED) {
        page.line("", format!("… and {more} more"));
    }
}

fn missing(recording: &Recording, survey: &Survey, page: &mut Page) {
    let mut account = Account::default();
    account.add_losses(recording.losses());
    let lost = account.lost.iter().filter(|(_, count)| **count > 0);
    let lost: Vec<String> = lost
        .map(|(reason, count)| format!("{count} {}", reason.describe()))
        .collect();
    let lost = if lost.is_empty() {
        "none".to_owned()
    } else {
        lost.join("; ")
    };
    page.line("lost", lost);
    let cut = survey.stops.iter().filter(|(stop, _)| is_cut(**stop));
    let cut: Vec<String> = cut
        .map(|(stop, n)| format!("{n} {}", stop.describe()))
        .collect();
    let cut = if cut.is_empty() {
        "none".to_owned()
    } else {
        cut.join(", ")
    };
    page.line("stacks cut", cut);
    let damages = recording.damages();
    let sections = &survey.damaged_sections;
    let spans = &survey.spans;
    let recovered = recording.recovered_places();
    let damage = if damages.is_none()
        && recovered == 0
        && survey.undecoded == 0
        && sections.is_empty()
        && !spans.are_incomplete()
    {
        "none".to_owned()
    } else {
        let others = [
            &damages.undecodable,
            sections,
            &survey.faults,
            &spans.faults,
        ];
        let others: usize = others.iter().map(|faults| faults.len()).sum();
        let calls = match spans.lost {
            0 => String::new(),
            lost => format!(", {lost} calls"),
        };
        format!(
            "{} places, at least {} samples{calls} gone",
            (damages.count + others as u64).saturating_add(recovered),
            damages.samples.saturating_add(survey.undecoded)
        )
    };
    page.line("damage", damage);
    for stretch in damages
        .stretches
        .iter()
        .chain(&damages.undecodable)
        .chain(sections)
        .chain(&survey.faults)
        .chain(&spans.faults)
    {
        page.line("", stretch);
    }
    if damages.unknown_blocks > 0 {
        let count = damages.unknown_blocks;
        page.line("skipped", format!("{count} blocks of a newer version"));
    }
}

fn sizes(recording: &Recording, survey: &Survey, page: &mut Page) {
    let sizes = recording.sizes();
    let what = if survey.waits.is_empty() {
        "sample"
    } else {
        "sample or wait"
    };
    let per_row = match survey.rows {
        0 => String::new(),
        rows => format!(", {:.1} a {what}", sizes.sample_bytes as f64 / rows as f64),
    };
    page.line(
        "file",
        format!("{} bytes in {} blocks", sizes.file_bytes, sizes.blocks),
    );
    let packed = format!(
        "{} bytes{per_row}; {} decompressed",
        sizes.sample_bytes, sizes.sample_raw_bytes
    );
    if sizes.sample_bytes > 0 || sizes.span_bytes == 0 {
        page.line("sample blocks", packed);
    }
    if sizes.image_bytes > 0 {
        page.line("embedded images", format!("{} bytes", sizes.image_bytes));
    }
    let modules = recording.spaces().modules();
    page.line("modules", modules.len().to_string());
    for module in modules.iter().take(MODULES_LISTED) {
        let id = hexadecimal(&module.build_id);
        let id = if id.is_empty() {
            "no build-id".to_owned()
        } else {
            id
        };
        let path = if page.identify {
            &module.path
        } else {
            last_part(&module.path)
        };
        page.line("", format!("{path}  {id}"));
    }
}

/// Most modules that are listed: a browser maps hundreds.
const MODULES_LISTED: usize = 40;
