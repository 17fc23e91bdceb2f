//! `--calls`: functions of a trace by the time of their calls: number, total, mean and longest; and the
//! functions on which each vCPU or thread spent its time.

use super::{Content, Needs, Output, View, write_left_out};
use crate::profile::Profile;
use crate::profile::calls::{FunctionCalls, PlacedCall, TaskOf};
use crate::profile::labels::LabelId;
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::unit::Unit;
use crate::text::screen::{Notes, Screen};
use crate::text::{printable, rows_max};
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "calls",
    about: "Functions of a trace: calls, own and total time, mean, p50, p99, the longest; and by vCPU or thread",
    output: Output::Text,
    needs: Needs::Calls,
    begin: |_| Box::new(write_view),
};

/// Most vCPUs and threads that are listed one by one.
const TASKS_MAX: usize = 64;
/// Most functions that are listed for each, unless all are asked for.
const OF_TASK_MAX: usize = 10;
/// Columns to the left of the name.
const COLUMNS: usize = 9 + 1 + 9 + 1 + 6 + 6 * 10 + 2;

fn write_view(content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
    let (profile, screen) = (content.profile, content.form.screen);
    screen.write_lines(&profile.account.lines(), out)?;
    let (recordings, files) = content.named_recordings();
    let task = |(recording, task): TaskOf| task_of(&recordings, &files, (recording, task));
    let most = rows_max(content.form.rows);
    writeln!(
        out,
        "\n{:>9} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}  function, and its longest call",
        "calls", "self", "%", "total", "mean", "p50", "p99", "longest"
    )?;
    let functions = sorted(profile);
    let counted = profile.account.counted;
    for (label, calls) in functions.iter().take(most) {
        let name = screen.name(
            profile.labels.name(*label),
            &Notes::more(place(calls, &task)),
            COLUMNS,
        );
        writeln!(out, "{}  {name}", columns(calls, counted, screen))?;
    }
    write_left_out(functions.len(), most, out)?;
    for (of, functions) in profile.calls.tasks.iter().take(TASKS_MAX) {
        let most = if content.form.rows == 0 {
            usize::MAX
        } else {
            OF_TASK_MAX
        };
        write_task(profile, &task(*of), (functions, most), screen, out)?;
    }
    if let Some(more @ 1..) = profile.calls.tasks.len().checked_sub(TASKS_MAX) {
        writeln!(out, "\n… and {more} more vCPUs or threads (see --vcpu)")?;
    }
    Ok(true)
}

/// Functions, ordered by most self time, then by name.
pub(crate) fn sorted(profile: &Profile) -> Vec<(LabelId, &FunctionCalls)> {
    let functions = profile.calls.functions.iter();
    let mut functions: Vec<_> = functions.map(|(label, calls)| (*label, calls)).collect();
    functions.sort_by(|(a, a_calls), (b, b_calls)| {
        let key = |calls: &FunctionCalls| (calls.own_ns, calls.total_ns, calls.count);
        let names = || profile.labels.name(*a).cmp(profile.labels.name(*b));
        key(b_calls).cmp(&key(a_calls)).then_with(names)
    });
    functions
}

/// The name of a vCPU or thread; with its recording if there are several.
pub(crate) fn task_of(recordings: &[&Recording], files: &[String], of: TaskOf) -> String {
    let (recording, task) = of;
    let name = recordings
        .get(recording)
        .map_or_else(String::new, |one| task_name(one, task, u64::MAX));
    let name = printable(&name).into_owned();
    match files.get(recording) {
        Some(file) if files.len() > 1 => format!("{file}: {name}"),
        _ => name,
    }
}

fn columns(calls: &FunctionCalls, counted: u64, screen: Screen) -> String {
    let time = |ns: Option<u64>| ns.map_or("-".to_owned(), duration);
    let lengths = &calls.lengths;
    let mean_ns = lengths.sum_ns.checked_div(u128::from(lengths.count));
    let part = format!("{:>6}", share(calls.own_ns, counted));
    format!(
        "{:>9} {:>9} {} {:>9} {:>9} {:>9} {:>9} {:>9}",
        calls.count,
        duration(calls.own_ns),
        screen.weighed(part, calls.own_ns, counted),
        time(Some(calls.total_ns).filter(|_| lengths.count > 0)),
        time(mean_ns.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX))),
        time(lengths.percentile_ns(0.5).filter(|_| lengths.count > 0)),
        time(lengths.percentile_ns(0.99).filter(|_| lengths.count > 0)),
        time(calls.longest.map(|call| call.length_ns)),
    )
}

/// The position of the longest call, and the facts that have no column.
fn place(calls: &FunctionCalls, task: &dyn Fn(TaskOf) -> String) -> String {
    let mut said = String::new();
    if let Some(longest) = &calls.longest {
        said = format!("  ({}", where_is(longest, task));
    }
    let others = [
        (calls.without_end, "without an end"),
        (calls.without_beginning, "without a beginning"),
        (calls.errors, "failed"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        said += if said.is_empty() { "  (" } else { "; " };
        said += &format!("{count} {what}");
    }
    if !said.is_empty() {
        said.push(')');
    }
    said
}

/// The position of a call: its start time, or its number if no call has a time.
pub(crate) fn where_is(call: &PlacedCall, task: &dyn Fn(TaskOf) -> String) -> String {
    let name = task(call.task);
    match call.since_ns {
        Some(since_ns) => format!("at {:.6} s, {name}", since_ns as f64 / 1e9),
        None => format!("call {} in order, {name}", call.number),
    }
}

fn write_task(
    profile: &Profile,
    name: &str,
    (functions, most): (&BTreeMap<LabelId, u64>, usize),
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let whole = functions
        .values()
        .fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let mut rows: Vec<(LabelId, u64)> = functions.iter().map(|(id, ns)| (*id, *ns)).collect();
    rows.sort_by(|a, b| {
        let names = || profile.labels.name(a.0).cmp(profile.labels.name(b.0));
        b.1.cmp(&a.1).then_with(names)
    });
    writeln!(out)?;
    screen.write_prose(
        "",
        &format!("{name}: {}", Unit::Calls.phrase(whole)),
        2,
        out,
    )?;
    for (label, own_ns) in rows.iter().take(most) {
        let part = format!("{:>6}", share(*own_ns, whole));
        let notes = Notes::default();
        writeln!(
            out,
            "{:>9} {}  {}",
            duration(*own_ns),
            screen.weighed(part, *own_ns, whole),
            screen.name(profile.labels.name(*label), &notes, 18)
        )?;
    }
    match rows.len().checked_sub(most) {
        Some(more @ 1..) => writeln!(out, "… and {more} more"),
        _ => Ok(()),
    }
}
