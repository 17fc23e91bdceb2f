//! `--listing`: the calls of a trace one by one, in the order in which they began, as strace lists system
//! calls: time, duration, task, function, nesting, and the result of a system call.

use super::calls::task_of;
use super::{Content, Needs, Output, Renderer, View};
use crate::profile::gather::Sampled;
use crate::profile::labels::LabelId;
use crate::recording::Recording;
use crate::text::errno;
use crate::text::screen::{Notes, Screen, cut_end, width};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use uprof::words::duration;
use uprof::{Span, SpanKind, Task};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "listing",
    about: "Calls of a trace one by one, as strace lists system calls, with what these returned (choose by --from, \
            --to, --thread and --focus)",
    output: Output::Text,
    needs: Needs::EachCall,
    begin: |_| Box::new(Listing::default()),
};

/// Most calls of a recording that are listed; the first ones are kept.
const CALLS_MAX: usize = 200_000;
/// Most columns for the task of a call.
const TASK_COLUMNS_MAX: usize = 24;
/// Most levels that are indented.
const LEVELS_MAX: u16 = 40;

#[derive(Debug, Default)]
struct Listing {
    /// Calls of each recording, the last call first.
    calls: BTreeMap<usize, VecDeque<Span<LabelId>>>,
    left_out: u64,
}

impl Renderer for Listing {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        let Some(call) = sampled.shown_call() else {
            return;
        };
        let calls = self.calls.entry(sampled.recording).or_default();
        calls.push_back(call);
        // Calls come from the last to the first, so the front is the latest one.
        if calls.len() > CALLS_MAX {
            calls.pop_front();
            self.left_out += 1;
        }
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        let screen = content.form.screen;
        screen.write_lines(&content.profile.account.lines(), out)?;
        let (recordings, files) = content.named_recordings();
        for (number, calls) in std::mem::take(&mut self.calls) {
            let mut tasks: BTreeMap<Task, String> = BTreeMap::new();
            for call in &calls {
                let name = || task_of(&recordings, &files, (number, call.task));
                tasks.entry(call.task).or_insert_with(name);
            }
            write_calls(content, in_order(calls), &tasks, screen, out)?;
        }
        if self.left_out > 0 {
            writeln!(
                out,
                "… and {} more (--from, --to, --thread and --focus choose)",
                self.left_out
            )?;
        }
        Ok(true)
    }
}

/// Calls in the order in which they began. A call without a time stays after the one before it.
fn in_order(calls: VecDeque<Span<LabelId>>) -> Vec<Span<LabelId>> {
    let mut last: BTreeMap<Task, u64> = BTreeMap::new();
    let timed = calls.into_iter().rev().map(|call| {
        let since_ns = last.entry(call.task).or_default();
        *since_ns = call.start_ns.unwrap_or(*since_ns);
        (*since_ns, call)
    });
    let mut timed: Vec<(u64, Span<LabelId>)> = timed.collect();
    timed.sort_by_key(|(since_ns, _)| *since_ns);
    timed.into_iter().map(|(_, call)| call).collect()
}

fn write_calls(
    content: &Content<'_>,
    calls: Vec<Span<LabelId>>,
    tasks: &BTreeMap<Task, String>,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let widest = tasks.values().map(|name| width(name));
    let widest = widest.max().unwrap_or(0).clamp(4, TASK_COLUMNS_MAX);
    // Times are in microseconds, or in nanoseconds if the trace has them.
    let has_nanoseconds = calls
        .iter()
        .any(|call| call.start_ns.is_some_and(|ns| ns % 1000 > 0));
    let digits = if has_nanoseconds { 9 } else { 6 };
    let columns = digits + 6;
    writeln!(
        out,
        "\n{:>columns$} {:>9}  {:<widest$}  call",
        "at", "took", "whose"
    )?;
    for call in calls {
        let at = match call.start_ns {
            Some(since_ns) => format!("{:.digits$} s", since_ns as f64 / 1e9),
            None => "-".to_owned(),
        };
        let took = call.length_ns.map_or("-".to_owned(), duration);
        let task = tasks.get(&call.task).map_or("", String::as_str);
        let task = cut_end(task, widest);
        let indent = 2 * usize::from(call.depth.min(LEVELS_MAX));
        let notes = Notes::more(remarks(&call));
        let name = content.profile.labels.name(call.name);
        let name = screen.name(name, &notes, columns + 1 + 9 + 2 + widest + 2 + indent);
        writeln!(
            out,
            "{at:>columns$} {took:>9}  {task:<widest$}  {:indent$}{name}",
            ""
        )?;
    }
    Ok(())
}

/// The result of a system call, and what is missing of a call.
fn remarks(call: &Span<LabelId>) -> String {
    let mut said = match (call.result, call.kind) {
        (None, _) => String::new(),
        (Some(result), SpanKind::Syscall) => match errno::of_result(result) {
            Some(error) => format!(" = -1 {error}"),
            // File descriptors and sizes are written in decimal, addresses in hexadecimal.
            None if result.unsigned_abs() > u64::from(u32::MAX) => format!(" = {result:#x}"),
            None => format!(" = {result}"),
        },
        (Some(result), _) => format!(" = {result}"),
    };
    match (call.complete, call.length_ns) {
        (true, _) => {}
        (false, None) => said += "  (without an end)",
        (false, Some(_)) => said += "  (without a beginning)",
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32, start_ns: Option<u64>) -> Span<LabelId> {
        Span {
            name: number,
            task: Task { space: 0, vcpu: 1 },
            cpu: None,
            start_ns,
            length_ns: None,
            depth: 0,
            complete: true,
            kind: SpanKind::Syscall,
            result: None,
        }
    }

    #[test]
    fn calls_are_in_the_order_of_their_times_and_those_without_stay_where_they_are() {
        let calls = [(3, Some(30)), (2, None), (1, Some(20)), (0, None)];
        let calls = calls.map(|(number, start_ns)| call(number, start_ns));
        let names: Vec<u32> = in_order(calls.into())
            .iter()
            .map(|call| call.name)
            .collect();
        assert_eq!(names, [0, 1, 2, 3]);
    }

    #[test]
    fn the_first_calls_are_listed_up_to_so_many_and_one_more_is_counted() {
        let mut listing = Listing::default();
        let sampled = |number: u32| Sampled {
            recording: 0,
            since_ns: 0,
            task: Task { space: 0, vcpu: 1 },
            space: 0,
            state: uprof::State::Running,
            stop: uprof::Stop::Complete,
            node: 0,
            address: None,
            weight: crate::recording::unit::Unit::ONE,
            unit: crate::recording::unit::Unit::Calls,
            call: Some(call(number, None)),
            is_hidden: false,
        };
        (0..CALLS_MAX as u32).for_each(|number| listing.add(&[], &sampled(number)));
        assert_eq!(listing.left_out, 0);
        listing.add(&[], &sampled(u32::MAX));
        assert_eq!((listing.left_out, listing.calls[&0].len()), (1, CALLS_MAX));
        // The call that came last began first.
        assert_eq!(in_order(listing.calls[&0].clone())[0].name, u32::MAX);
    }

    #[test]
    fn results_are_told_as_strace_does() {
        let returned = |result| {
            let call = Span {
                result,
                ..call(0, None)
            };
            remarks(&call)
        };
        assert_eq!(returned(None), "");
        assert_eq!(returned(Some(3)), " = 3");
        assert_eq!(returned(Some(-2)), " = -1 ENOENT");
        assert_eq!(returned(Some(0x7f00_0000_1000)), " = 0x7f0000001000");
    }
}
