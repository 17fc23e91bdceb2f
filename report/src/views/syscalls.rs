//! `--syscalls`: system calls of a trace: their number, their times, and the errors with which they failed.
//! They are listed by system call and by caller: the function around the call if the trace has one, else its
//! thread.

use super::calls::task_of;
use super::{Content, Needs, Output, Renderer, View, write_left_out};
use crate::profile::calls::TaskOf;
use crate::profile::gather::Sampled;
use crate::profile::labels::LabelId;
use crate::profile::tree::{NodeId, ROOT};
use crate::recording::Recording;
use crate::text::screen::{Notes, Screen};
use crate::text::{errno, rows_max};
use std::collections::BTreeMap;
use std::io::{self, Write};
use uprof::SpanKind;
use uprof::words::{duration, share};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "syscalls",
    about: "System calls of a trace: calls, errors and time, by what was called and by who called it",
    output: Output::Text,
    needs: Needs::EachCall,
    begin: |_| Box::new(Syscalls::default()),
};

/// Most errors that are named in a row; the others are counted.
const ERRORS_TOLD: usize = 4;
/// Most system calls that are named for each caller.
const CALLED_TOLD: usize = 4;

/// The calls of one system call, or of one caller.
#[derive(Debug, Clone, Default)]
struct Tally {
    calls: u64,
    /// Number of calls that didn't return.
    without_end: u64,
    total_ns: u64,
    longest_ns: u64,
    /// Number of failed calls, by result.
    errors: BTreeMap<i64, u64>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.without_end += other.without_end;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (result, count) in &other.errors {
            *self.errors.entry(*result).or_default() += count;
        }
    }

    fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[derive(Debug, Default)]
struct Syscalls {
    /// By system call, task, and node in the tree.
    all: BTreeMap<(LabelId, TaskOf, NodeId), Tally>,
}

impl Renderer for Syscalls {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        let Some(call) = sampled
            .shown_call()
            .filter(|call| call.kind == SpanKind::Syscall)
        else {
            return;
        };
        let of = (sampled.recording, call.task);
        let tally = self.all.entry((call.name, of, sampled.node)).or_default();
        let length_ns = call.length_ns.unwrap_or(0);
        let failed = call
            .result
            .filter(|result| errno::of_result(*result).is_some());
        tally.add(&Tally {
            calls: 1,
            without_end: u64::from(!call.complete && call.length_ns.is_none()),
            total_ns: length_ns,
            longest_ns: length_ns,
            errors: failed.map(|result| (result, 1)).into_iter().collect(),
        });
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        let (profile, screen) = (content.profile, content.form.screen);
        screen.write_lines(&profile.account.lines(), out)?;
        if self.all.is_empty() {
            let what = "no system call counts: they are in what `uniprof import` makes of the logs of strace and \
                        Nanos, and calls of functions are in --calls";
            screen.write_prose("", what, 2, out)?;
            return Ok(true);
        }
        let (recordings, files) = content.named_recordings();
        let mut by_name: BTreeMap<String, Tally> = BTreeMap::new();
        let mut by_caller: BTreeMap<String, (Tally, BTreeMap<String, Tally>)> = BTreeMap::new();
        let mut has_callers = false;
        for ((label, of, node), tally) in &self.all {
            let name = profile.labels.name(*label).to_owned();
            let caller = match profile
                .tree
                .nodes()
                .get(*node as usize)
                .map(|node| node.parent)
            {
                // A recording's name, or a thread's, is no caller.
                Some(parent)
                    if parent != ROOT && !profile.labels.get(profile.tree.label(parent)).made =>
                {
                    has_callers = true;
                    profile.labels.name(profile.tree.label(parent)).to_owned()
                }
                _ => task_of(&recordings, &files, *of),
            };
            by_name.entry(name.clone()).or_default().add(tally);
            let (whole, called) = by_caller.entry(caller).or_default();
            whole.add(tally);
            called.entry(name).or_default().add(tally);
        }
        let mut whole = Tally::default();
        by_name.values().for_each(|tally| whole.add(tally));
        let rows = sorted(by_name.into_iter().map(|(name, tally)| {
            let errors = errors(&tally);
            (name, tally, errors)
        }));
        let most = rows_max(content.form.rows);
        write_table("system call", &rows, (&whole, most), screen, out)?;
        let who = if has_callers {
            "caller"
        } else {
            "thread (the trace has no callers)"
        };
        let rows = sorted(by_caller.into_iter().map(|(name, (tally, called))| {
            let called = sorted(
                called
                    .into_iter()
                    .map(|(name, tally)| (name, tally, String::new())),
            );
            let mut told: Vec<String> = called
                .iter()
                .take(CALLED_TOLD)
                .map(|(name, tally, _)| format!("{name} {}", tally.calls))
                .collect();
            if let Some(more @ 1..) = called.len().checked_sub(CALLED_TOLD) {
                told.push(format!("{more} others"));
            }
            (name, tally, format!("  ({})", told.join(", ")))
        }));
        write_table(who, &rows, (&whole, most), screen, out)?;
        Ok(true)
    }
}

/// The errors with which calls failed, the most frequent first.
fn errors(tally: &Tally) -> String {
    let mut errors: Vec<(i64, u64)> = tally
        .errors
        .iter()
        .map(|(result, count)| (*result, *count))
        .collect();
    errors.sort_by_key(|(result, count)| (std::cmp::Reverse(*count), std::cmp::Reverse(*result)));
    let named = errors.iter().take(ERRORS_TOLD);
    let mut told: Vec<String> = named
        .map(|(result, count)| format!("{} {count}", errno::of_result(*result).unwrap_or_default()))
        .collect();
    let others: u64 = errors
        .iter()
        .skip(ERRORS_TOLD)
        .map(|(_, count)| count)
        .sum();
    if others > 0 {
        told.push(format!("others {others}"));
    }
    if tally.without_end > 0 {
        told.push(format!("{} without an end", tally.without_end));
    }
    if told.is_empty() {
        String::new()
    } else {
        format!("  ({})", told.join(", "))
    }
}

/// A name, its calls, and its remarks.
type Row = (String, Tally, String);

/// Rows ordered by most time, then by most calls, then by name.
fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|(a_name, a, _), (b_name, b, _)| {
        let key = |tally: &Tally| (tally.total_ns, tally.calls);
        key(b).cmp(&key(a)).then_with(|| a_name.cmp(b_name))
    });
    rows
}

fn write_table(
    what: &str,
    rows: &[Row],
    (whole, most): (&Tally, usize),
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\n{:>9} {:>9} {:>9} {:>6} {:>9} {:>9}  {what}",
        "calls", "errors", "time", "%", "mean", "longest"
    )?;
    for (name, tally, more) in rows.iter().take(most) {
        let ended = tally.calls - tally.without_end;
        // A log without times shows `-`.
        let time = |ns: Option<u64>| match ns {
            Some(ns) if whole.total_ns > 0 => duration(ns),
            _ => "-".to_owned(),
        };
        let part = format!("{:>6}", share(tally.total_ns, whole.total_ns));
        let notes = Notes::more(more.clone());
        writeln!(
            out,
            "{:>9} {:>9} {:>9} {} {:>9} {:>9}  {}",
            tally.calls,
            tally.failed(),
            time(Some(tally.total_ns)),
            screen.weighed(part, tally.total_ns, whole.total_ns),
            time(tally.total_ns.checked_div(ended)),
            time((ended > 0).then_some(tally.longest_ns)),
            screen.name(name, &notes, 5 * 10 + 7 + 2)
        )?;
    }
    write_left_out(rows.len(), most, out)
}
