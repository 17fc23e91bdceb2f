//! The messages after a recording, and the exit status.

use crate::outcome::Outcome;
use crate::quantity;
use crate::record::destination::Destination;
use crate::record::warnings::{GapCause, NoSampleCause, Warning};
use crate::terminal;
use anyhow::bail;
use std::path::Path;
use uniprof_record::plan::FirstRate;
use uniprof_record::{Ending, SourceError, Summary};
use uprof::cold::{COUNTED_TIME_NS, PAUSED_BY_OTHERS_NS, SAMPLED_TIME_NS, TargetKind};
use uprof::due::{are_many_late, deadlines, is_loss};
use uprof::words::{self, duration};

/// Share of the time above which a message says that a guest was paused so much.
const MUCH_OF_THE_TIME: f64 = 0.25;

/// Part of the rate above which no message says that a guest that samples itself took fewer samples.
const LEAST_OF_RATE: f64 = 0.7;

/// A remark about a recording.
enum Remark<'s> {
    /// How it went.
    Fact(String),
    /// What was lost.
    Loss(String),
    /// What else may be wrong with it.
    Warning(Warning<'s>),
}

/// The name of an output in messages.
pub fn name_of(output: &Path) -> String {
    match output.to_str() {
        Some("-") => "standard output".to_string(),
        _ => output.display().to_string(),
    }
}

/// Keeps the file of a recording. An empty one is discarded if it never began or would replace another; its size is
/// then zero.
///
/// # Errors
/// Those of the recording.
pub fn kept_in(
    output: Destination,
    summary: Result<Summary, SourceError>,
) -> Result<Summary, SourceError> {
    match summary {
        Ok(mut summary) => {
            let failed =
                matches!(summary.ending, Ending::Failed(_)) || summary.output_error.is_some();
            let size = (summary.samples + summary.waits, summary.bytes);
            if !is_kept(&output, size, failed, summary.output_error.is_some()) {
                summary.bytes = 0;
            }
            Ok(summary)
        }
        Err(error) => {
            output.discard();
            Err(error)
        }
    }
}

/// Keeps a file with this number of samples or calls and of sound bytes, or discards it. Returns whether it exists.
/// `failed`: the recording could not go on; `cut`: it ended because the output failed.
pub fn is_kept(output: &Destination, (count, bytes): (u64, u64), failed: bool, cut: bool) -> bool {
    if count == 0 && (failed || output.replaces()) {
        output.discard();
        return false;
    }
    if cut {
        output.cut_to(bytes);
    }
    output.keep();
    true
}

/// The path and size of a recording with so many bytes.
pub fn kept_at(output: &str, bytes: u64) -> String {
    match bytes {
        0 => format!("and kept nothing, which leaves {output} as it was"),
        bytes => format!("to {output}, {}", quantity::bytes(bytes)),
    }
}

/// Prints the summary of a recording to `output`, at `rate_hz`, of a boot at another rate `first`. Of a window, only
/// the last samples are kept.
pub fn say(
    summary: &Summary,
    output: &Path,
    rate_hz: f64,
    first: Option<FirstRate>,
    is_window: bool,
) {
    // [`outcome`] reports that nothing could be recorded.
    if matches!(summary.ending, Ending::Failed(_)) && summary.bytes == 0 {
        return;
    }
    let seconds = summary.passed_ns as f64 / 1e9;
    let output = name_of(output);
    let at_first = first.map_or_else(String::new, |first| {
        format!(
            "{} for {}, then ",
            first.rate_hz,
            duration(first.lasts.as_nanos() as u64)
        )
    });
    terminal::inform(format_args!(
        "Recorded {} samples in {seconds:.1} s ({:.0} a second; asked for {at_first}{rate_hz} of each running vCPU or \
         thread) {}; {}.",
        summary.samples,
        summary.samples as f64 / seconds.max(1e-9),
        if is_window && summary.bytes > 0 {
            format!(
                "and kept the last of them in {output}, {}",
                quantity::bytes(summary.bytes)
            )
        } else {
            kept_at(&output, summary.bytes)
        },
        summary.ending,
    ));
    if summary.cost.count > 0 {
        let what = if summary.freezes {
            "The target stood still"
        } else {
            "The recorder worked"
        };
        let at = |share| duration(summary.cost.percentile_ns(share).unwrap_or(0));
        let share = share_of_time(summary);
        terminal::inform(format_args!(
            "{what} {} per sample (median; 99 %: {}, longest: {}), {:.3} % of the time.",
            at(0.5),
            at(0.99),
            duration(summary.cost.max_ns),
            share * 100.0,
        ));
    }
    if let Some(samples) = summary.monitor_samples {
        terminal::inform(format_args!(
            "Beside them, {samples} samples of the process that runs the guest: `uniprof report --time` has them, and \
             --monitor alone."
        ));
    }
    for remark in remarks(summary, &output, rate_hz) {
        match remark {
            Remark::Fact(text) => terminal::inform(format_args!("{text}")),
            Remark::Loss(text) => terminal::say(format_args!("{text}")),
            Remark::Warning(text) => terminal::say(format_args!("uniprof: {text}")),
        }
    }
}

/// Prints a line about one of several recordings, with its remarks.
pub fn say_one_of_several(summary: &Summary, output: &Path, rate_hz: f64) {
    let output = output.display().to_string();
    let seconds = summary.passed_ns as f64 / 1e9;
    let cost = &summary.cost;
    let stood_still = match cost.percentile_ns(0.5) {
        Some(median_ns) if summary.freezes => format!(
            "stood still {} per sample (median), {:.3} % of the time; ",
            duration(median_ns),
            share_of_time(summary) * 100.0,
        ),
        _ => String::new(),
    };
    terminal::inform(format_args!(
        "{output}: {} samples in {seconds:.1} s, {}; {stood_still}{}.",
        summary.samples,
        quantity::bytes(summary.bytes),
        summary.ending,
    ));
    for remark in remarks(summary, &output, rate_hz) {
        match remark {
            Remark::Fact(_) => {}
            Remark::Loss(text) => terminal::say(format_args!("{output}: {text}")),
            Remark::Warning(text) => terminal::say(format_args!("uniprof: {output}: {text}")),
        }
    }
}

/// What happened to a guest while it was recorded.
fn remarks_of_guest(summary: &Summary) -> Vec<Remark<'_>> {
    let count_of = |wanted: &str| {
        let found = summary.counted.iter().find(|(name, _)| name == wanted);
        found.map(|(_, count)| *count).filter(|count| *count > 0)
    };
    let resets = count_of("resets").map(|count| {
        let times = match count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        Remark::Fact(format!(
            "The guest was reset {times}: its boots are told apart, and `uniprof info` says when each began."
        ))
    });
    let narrow = count_of("samples_not_in_64_bit_mode").map(Warning::Narrow);
    let stopped = count_of("samples_while_the_monitor_was_stopped").map(Warning::MonitorStopped);
    [
        resets,
        narrow.map(Remark::Warning),
        stopped.map(Remark::Warning),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn remarks<'s>(summary: &'s Summary, output: &'s str, rate_hz: f64) -> Vec<Remark<'s>> {
    let mut remarks = Vec::new();
    match &summary.kernel {
        Some(Ok(kernel)) => remarks.push(Remark::Fact(format!(
            "The guest's kernel told of {} symbols, {} unwind rules and {} processes: {} of its memory were \
             read in {}, before the first sample.",
            kernel.symbols,
            kernel.rules,
            kernel.processes,
            quantity::bytes(kernel.read_bytes),
            duration(kernel.took_ns),
        ))),
        Some(Err(why)) => remarks.push(Remark::Warning(Warning::Kernel(*why))),
        None => {}
    }
    remarks.extend(remarks_of_guest(summary));
    if let Some(period_ns) = summary.slowed_to_ns {
        remarks.push(Remark::Loss(format!(
            "The rate was lowered to {:.1} Hz to keep to --max-overhead.",
            1e9 / period_ns as f64
        )));
    }
    let is_paused = |(name, _): &&(String, u64)| name == PAUSED_BY_OTHERS_NS;
    if let Some((_, paused_ns)) = summary.counted.iter().find(is_paused) {
        remarks.push(Remark::Warning(Warning::PausedByOthers {
            paused_ns: *paused_ns,
            passed_ns: summary.passed_ns,
        }));
    }
    let has_words = |(name, _): &&(String, u64)| {
        [PAUSED_BY_OTHERS_NS, COUNTED_TIME_NS, SAMPLED_TIME_NS].contains(&name.as_str())
    };
    let counted = summary.counted.iter().filter(|total| !has_words(total));
    let counted: Vec<String> = counted
        .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
        .collect();
    if !counted.is_empty() {
        remarks.push(Remark::Fact(format!(
            "The source counted {}.",
            counted.join(", ")
        )));
    }
    let gap = gap(summary);
    let due = summary.due.filter(|_| summary.kind.is_guest());
    if let Some(due) = due.filter(|_| gap.is_none()) {
        let (sampled_ns, counted_ns) = (due.sampled_ns(), due.counted_ns);
        let words = words::gap(sampled_ns, counted_ns, summary.kind.counter());
        remarks.push(Remark::Fact(format!("{}.", capitalized(&words))));
    }
    for (reason, count) in &summary.lost {
        remarks.push(Remark::Loss(format!(
            "Lost: {count} {}.",
            reason.describe()
        )));
    }
    if are_many_late(summary.late, summary.samples) {
        remarks.push(Remark::Warning(Warning::Late {
            late: summary.late,
            samples: summary.samples,
        }));
    }
    let output_error = summary.output_error.as_deref();
    let warnings = [
        much_paused(summary),
        gap,
        low_rate(summary, rate_hz),
        output_error.map(|error| Warning::Output {
            name: output,
            error,
        }),
    ];
    remarks.extend(warnings.into_iter().flatten().map(Remark::Warning));
    remarks
}

/// The exit status of a recording; messages begin with `of`.
///
/// # Errors
/// Says why the recording could not go on.
pub fn outcome(summary: &Summary, rate_hz: f64, of: &str) -> anyhow::Result<Outcome> {
    match &summary.ending {
        Ending::Failed(error) => bail!("{error}"),
        _ if summary.output_error.is_some() && summary.is_empty() => {
            bail!("{of}nothing was recorded: no sample could be written")
        }
        _ if summary.is_empty() => {
            let warning = Warning::NoSample(why_none(summary));
            terminal::say(format_args!("uniprof: {of}{warning}"));
            Ok(Outcome::Lossy)
        }
        _ if summary.output_error.is_some() || is_lossy(summary, rate_hz) => Ok(Outcome::Lossy),
        _ => Ok(Outcome::Done),
    }
}

/// Whether more was lost than a few deadlines.
fn is_lossy(summary: &Summary, rate_hz: f64) -> bool {
    let seconds = summary.passed_ns as f64 / 1e9;
    let due = deadlines(summary.kind, summary.vcpus, seconds, rate_hz);
    // Of a boot, and of a process with several threads, there were as many deadlines as samples.
    let due = due.max(summary.samples as f64);
    let mut lost = summary.lost.iter();
    lost.any(|(reason, count)| is_loss(*reason, *count, due))
}

/// Why there is no sample, by the processor time that the kernel counted.
fn why_none(summary: &Summary) -> NoSampleCause {
    let Some(due) = summary.due else {
        return NoSampleCause::Uncounted;
    };
    let (counter, counted_ns) = (summary.kind.counter(), due.counted_ns);
    match due.samples_due() {
        _ if counted_ns == 0 && summary.kind == TargetKind::Process => NoSampleCause::Waited,
        few if few < 1.0 => NoSampleCause::TooLittle {
            counter,
            counted_ns,
            passed_ns: summary.passed_ns,
        },
        due => NoSampleCause::Missed {
            counter,
            counted_ns,
            due,
        },
    }
}

/// Share of the time for which the target was paused, or the recorder worked.
fn share_of_time(summary: &Summary) -> f64 {
    summary.cost.sum_ns as f64 / summary.passed_ns.max(1) as f64
}

/// A warning if the target was paused for much of the time and the user has set no limit.
fn much_paused(summary: &Summary) -> Option<Warning<'_>> {
    let share = share_of_time(summary);
    let nobody_set_it = summary.slowed_to_ns.is_none();
    (summary.freezes && nobody_set_it && share >= MUCH_OF_THE_TIME)
        .then_some(Warning::MuchPaused(share))
}

fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    first.to_uppercase() + rest
}

/// A warning if a guest that samples itself does so much less often than requested.
fn low_rate(summary: &Summary, rate_hz: f64) -> Option<Warning<'_>> {
    let seconds = summary.passed_ns as f64 / 1e9;
    let each_hz = summary.samples as f64 / seconds / f64::from(summary.vcpus.max(1));
    let is_low = each_hz < LEAST_OF_RATE * rate_hz && seconds * rate_hz > 20.0;
    (summary.kind == TargetKind::Agent && is_low && summary.lost.is_empty())
        .then_some(Warning::LowRate { each_hz, rate_hz })
}

/// A warning if the samples don't account for the processor time that the kernel, or Xen, counted.
fn gap(summary: &Summary) -> Option<Warning<'_>> {
    // Samples that could not be written were taken, so they count as due.
    let due = summary
        .due
        .filter(|due| due.has_gap() && summary.output_error.is_none())?;
    let is_excess = due.share()? > 1.0;
    if is_excess && (!summary.freezes || summary.kind.is_guest()) {
        // The kernel's count may lack processes that ended, so it is a lower bound.
        return None;
    }
    let cause = if let Some(why) = summary.missed_time {
        GapCause::Backend(why)
    } else if is_excess {
        GapCause::WaitingThreads
    } else if !summary.lost.is_empty() || summary.slowed_to_ns.is_some() {
        GapCause::Losses
    } else if summary.per_thread {
        GapCause::ShortThreads
    } else {
        GapCause::BusyMachine
    };
    Some(Warning::Gap {
        due,
        counter: summary.kind.counter(),
        cause,
    })
}
