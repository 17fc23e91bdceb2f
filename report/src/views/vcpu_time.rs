//! `--time`: where the wall time of each vCPU went, by place. Each row adds up to the vCPU's wall time.

use super::{Content, Needs, Output, View};
use crate::profile::Profile;
use crate::profile::calls::TaskOf;
use crate::profile::vcpu_times::{PLACES, Spent, WallTime, hypervisor};
use crate::recording::Recording;
use crate::text::printable;
use crate::text::screen::{Notes, Screen};
use crate::views::calls::task_of;
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::cold::{LossReason, Place, UNKNOWN_TIME};
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "time",
    about: "Where the wall time of each vCPU went: guest code, hypervisor, monitor, waiting, halted (of recordings \
            made with --host); beside --flame, --tree or --top, these show it by function",
    output: Output::Text,
    needs: Needs::VcpuTime,
    begin: |_| Box::new(write_view),
};

/// Most vCPUs that are listed one by one.
const VCPUS_MAX: usize = 256;
/// The share of unknown time from which the view says what it may be.
const MUCH_UNKNOWN: f64 = 0.05;
/// Most notes of a recorder that are shown as reasons.
const REASONS_MAX: usize = 4;

/// The columns: two lines of heading, and a width that has them and `100.0%`.
const COLUMNS: [([&str; 2], usize); PLACES] = [
    (["guest", "code"], 6),
    (["handled", "in "], 7),
    (["handled in", "monitor"], 10),
    (["waiting", "for CPU"], 7),
    (["", "halted"], 6),
    (["paused by", "recorder"], 9),
    (["", "unknown"], 7),
];
/// Columns to the left of the name.
const USED: usize = 9 + 6 + 7 + 10 + 7 + 6 + 9 + 7 + PLACES + 2;

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let screen = content.form.screen;
    let times = &content.profile.vcpu_times;
    screen.write_lines(&content.profile.account.lines(), out)?;
    writeln!(out)?;
    write_heading(content.recordings, out)?;
    let (recordings, files) = content.named_recordings();
    let task = |of: TaskOf| task_of(&recordings, &files, of);
    for row in times.rows.iter().take(VCPUS_MAX) {
        let name = task((row.recording, row.task));
        write_row(&name, row.wall_ns, &row.spent, screen, out)?;
    }
    if let Some(more @ 1..) = times.rows.len().checked_sub(VCPUS_MAX) {
        writeln!(out, "… and {more} more vCPUs (see --vcpu)")?;
    }
    let (wall_ns, spent) = times.total();
    if times.rows.len() > 1 {
        write_row("all vCPUs", wall_ns, &spent, screen, out)?;
    }
    writeln!(out)?;
    screen.write_lines(&notes(content.recordings, content), out)?;
    Ok(true)
}

/// The hypervisor of these recordings.
pub(super) fn hypervisor_of<'a>(recordings: impl Iterator<Item = &'a Recording>) -> &'static str {
    let kinds = recordings.map(|one| one.metadata().target.kind);
    let mut hypervisors: Vec<&str> = kinds.map(hypervisor).collect();
    hypervisors.dedup();
    match hypervisors.as_slice() {
        [one] => one,
        _ => "host",
    }
}

/// The headings of the places, in order, in a line each.
pub(super) fn headings<'a>(recordings: impl Iterator<Item = &'a Recording>) -> Vec<String> {
    let by = hypervisor_of(recordings);
    let lines = COLUMNS.map(|(texts, _)| texts.map(|text| heading(text, by)).join(" "));
    lines.map(|text| text.trim().to_owned()).into()
}

fn heading(text: &str, hypervisor: &str) -> String {
    let by = if text.ends_with(' ') { hypervisor } else { "" };
    format!("{text}{by}")
}

fn write_heading(recordings: &[Recording], out: &mut dyn Write) -> io::Result<()> {
    let by = hypervisor_of(recordings.iter());
    for (line, wall) in ["wall", "time"].into_iter().enumerate() {
        write!(out, "{wall:>9}")?;
        for (texts, width) in COLUMNS {
            write!(out, " {:>width$}", heading(texts[line], by))?;
        }
        writeln!(out, "{}", if line == 1 { "  vCPU" } else { "" })?;
    }
    Ok(())
}

fn write_row(
    name: &str,
    wall_ns: u64,
    spent: &Spent,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, "{:>9}", duration(wall_ns))?;
    for ((_, width), ns) in COLUMNS.iter().zip(spent) {
        write!(out, " {:>width$}", share(*ns, wall_ns))?;
    }
    writeln!(out, "  {}", screen.name(name, &Notes::default(), USED))
}

/// What the numbers rest on.
fn notes(recordings: &[Recording], content: &Content<'_>) -> Vec<String> {
    let times = &content.profile.vcpu_times;
    let (wall_ns, spent) = times.total();
    let mut lines = vec![sum_line(&times.rows)];
    lines.extend(unfocused_line(content.profile));
    let unknown_ns = spent[Place::Unknown.number() as usize];
    if unknown_ns as f64 > MUCH_UNKNOWN * wall_ns as f64 {
        lines.push(format!(
            "{} of the wall time is unknown: {}",
            share(unknown_ns, wall_ns),
            why_unknown(recordings, times.unrecorded_ns, unknown_ns)
        ));
    }
    let exits = content.profile.exits.total();
    if 0 < exits.seen && exits.seen < exits.count {
        lines.push(format!(
            "guest code and exits are estimates: of {} exits, the times of {} were taken ({})",
            exits.count,
            exits.seen,
            share(exits.seen, exits.count)
        ));
    }
    if times.contradictory > 0 {
        lines.push(format!(
            "{} of the recording can't be true, as they overlap, run backwards or are longer than their interval; \
             they count no longer than it",
            counted(times.contradictory, "record")
        ));
    }
    if times.divided {
        lines.push(
            "records last up to half a second: where the selected time begins or ends within one, it counts in \
             proportion"
                .to_owned(),
        );
    }
    lines
}

/// Says that the table has all of the time, where the account has not.
pub(super) fn unfocused_line(profile: &Profile) -> Option<String> {
    let line =
        "the numbers are of all the time: --focus and --ignore choose stacks (see --time --tree)";
    (profile.account.unfocused > 0).then(|| line.to_owned())
}

fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The proof: what the places of each vCPU add up to.
fn sum_line(rows: &[WallTime]) -> String {
    let sums = rows.iter().map(|row| {
        let sum: u128 = row.spent.iter().map(|ns| u128::from(*ns)).sum();
        sum as f64 * 100.0 / row.wall_ns as f64
    });
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for sum in sums {
        (least, most) = (least.min(sum), most.max(sum));
    }
    let (least, most) = (format!("{least:.1}"), format!("{most:.1}"));
    if least == most {
        format!("each row adds up to {most}% of the vCPU's wall time")
    } else {
        format!("rows add up to {least}% to {most}% of the vCPU's wall time")
    }
}

/// Why much of the time is unknown, and what to do.
fn why_unknown(recordings: &[Recording], unrecorded_ns: u64, unknown_ns: u64) -> String {
    let noted = recordings.iter().flat_map(|one| &one.metadata().notes);
    let noted = noted.filter(|(name, _)| name == UNKNOWN_TIME);
    let noted = noted.map(|(_, why)| printable(why).into_owned());
    let mut lost: BTreeMap<LossReason, u64> = BTreeMap::new();
    for loss in recordings.iter().flat_map(Recording::losses) {
        let sum = lost.entry(loss.reason).or_default();
        *sum = sum.saturating_add(loss.count);
    }
    let of_events = [
        LossReason::KernelBuffer,
        LossReason::EventsLost,
        LossReason::ExitsLost,
    ];
    let lost = lost.iter();
    let lost = lost.filter(|(reason, count)| of_events.contains(reason) && **count > 0);
    let lost = lost.map(|(reason, count)| {
        let described = reason.describe();
        format!(
            "lost: {count} {described} (fewer exits, or a host with free processors, lose less)"
        )
    });
    let ends = (unrecorded_ns > unknown_ns / 2).then(|| {
        format!(
            "{} is before the first record of a vCPU or after its last one",
            duration(unrecorded_ns)
        )
    });
    let reasons: Vec<String> = noted.chain(lost).chain(ends).take(REASONS_MAX).collect();
    if reasons.is_empty() {
        return "the host reported nothing for it, as a KVM without tracepoints does (one inside a virtual machine may \
                be such); `uniprof doctor` on the host says what it reports"
            .to_owned();
    }
    reasons.join("; ")
}
