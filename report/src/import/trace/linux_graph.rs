//! Linux's function_graph tracer. Input: the text of `trace-cmd report`, or that of tracefs's own files with
//! any columns. Output: spans, with times if the text has them.
//!
//! ```text
//!               ls-95    [001]     7.675639: funcgraph_entry:                   |  __f_unlock_pos() {
//!    29.336345 |   0)    <idle>-0    |   4.263 us    |            } /* ktime_get */
//! ```

use super::decimal::{micros_ns, seconds_ns, unsigned};
use super::event_line::{EventLine, is_heading, task, thread};
use super::open_calls::{Entry, Exit};
use super::{Lines, OpenCalls, SpanKind, SpanSink, TaskLabel, Tasks};
use crate::import::ImportError;
use std::collections::HashMap;
use std::io::BufRead;

/// Until the text shows which thread a CPU runs, its calls belong to a task of this address space.
const SPACE_OF_UNKNOWN: u32 = 2;
/// Most CPUs that Linux supports.
const CPUS_MAX: usize = 8192;

/// Reads the text.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut reader = Reader::default();
    while let Some(line) = lines.next_line()? {
        if line.cut {
            sink.trouble(line.number, "a line longer than 64 KiB was left out");
            continue;
        }
        reader.line(line.bytes, line.number, sink)?;
    }
    let count = lines.count();
    reader.tasks.finish(sink)?;
    Ok(count)
}

#[derive(Default)]
struct Reader {
    tasks: Tasks,
    /// The thread that each CPU runs, if lines only show when it changes.
    running: HashMap<u32, (Vec<u8>, u32)>,
}

/// A line of the tracer, split into its parts.
struct Graph<'a> {
    cpu: Option<u32>,
    thread: Option<(&'a [u8], u32)>,
    time_ns: Option<u64>,
    length: &'a [u8],
    /// The call, after spaces that show its depth.
    body: &'a [u8],
}

impl Reader {
    fn line(
        &mut self,
        line: &[u8],
        number: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        if is_heading(line) {
            return Ok(());
        }
        let graph = match line.first() {
            // In lines of trace-cmd, the CPU is in square brackets. In those of tracefs, a bar comes before
            // all text of the traced code.
            _ if memchr::memmem::find(line, b": funcgraph_").is_some() => of_event(line),
            _ => of_columns(line),
        };
        if let Some(graph) = graph {
            return self.graph(&graph, number, sink);
        }
        if self.switched(line) || is_rule(line) {
            return Ok(());
        }
        if EventLine::of(line).is_some() {
            // Another event of Linux, which is not a call.
            return Ok(());
        }
        let lost = [&b"EVENTS DROPPED"[..], b"LOST", b"buffer"];
        let what = if lost
            .iter()
            .any(|word| memchr::memmem::find(line, word).is_some())
        {
            "the tracer lost events"
        } else {
            "a line that is not understood"
        };
        sink.trouble(number, what);
        Ok(())
    }

    fn graph(
        &mut self,
        graph: &Graph<'_>,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let spaces = graph.body.iter().take_while(|byte| **byte == b' ').count();
        let text = graph.body[spaces..].trim_ascii_end();
        let depth = (spaces as u64 / 2).saturating_sub(1);
        let length = match duration(graph.length) {
            Ok(length_ns) => length_ns,
            Err(()) => {
                sink.trouble(line, "a duration that is no number of microseconds");
                None
            }
        };
        if text.is_empty() || text.starts_with(b"/*") || is_arrow(text) {
            // A comment is an event of another type. An arrow marks the start or end of an interrupt.
            return Ok(());
        }
        let call = Call { depth, line };
        let Some(calls) = self.calls(graph, line, sink) else {
            return Ok(());
        };
        call.take(calls, graph, text, length, sink)
    }

    /// The open calls of the thread that a line belongs to.
    fn calls(
        &mut self,
        graph: &Graph<'_>,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Option<&mut OpenCalls> {
        let cpu = graph.cpu.unwrap_or(0);
        let label = match (graph.thread, self.running.get(&cpu)) {
            (Some((comm, pid)), _) => thread(comm, pid, cpu),
            (None, Some((comm, pid))) => thread(comm, *pid, cpu),
            (None, None) => TaskLabel {
                space: SPACE_OF_UNKNOWN,
                number: cpu,
                name: b"",
            },
        };
        self.tasks.of(label, line, sink)
    }

    /// Handles ` 0)  bash-1234   =>  ls-567`: from here on the CPU runs another thread.
    fn switched(&mut self, line: &[u8]) -> bool {
        let found = || -> Option<(u32, Vec<u8>, u32)> {
            let (cpu, rest) = split_cpu(line.trim_ascii())?;
            let arrow = memchr::memmem::find(rest, b"=>")?;
            task(&rest[..arrow])?;
            let (comm, pid) = task(&rest[arrow + 2..])?;
            Some((cpu, comm.to_vec(), pid))
        };
        let Some((cpu, comm, pid)) = found() else {
            return false;
        };
        if self.running.len() < CPUS_MAX || self.running.contains_key(&cpu) {
            self.running.insert(cpu, (comm, pid));
        }
        true
    }
}

/// The position of a call.
struct Call {
    depth: u64,
    line: u64,
}

impl Call {
    fn take(
        &self,
        calls: &mut OpenCalls,
        graph: &Graph<'_>,
        text: &[u8],
        length_ns: Option<u64>,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let entry = |name, line| Entry {
            name,
            start_ns: graph.time_ns,
            cpu: graph.cpu,
            kind: SpanKind::Function,
            line,
        };
        if let Some(rest) = text.strip_prefix(b"}") {
            let name = comment(rest).map(|name| sink.name(name));
            let exit = Exit {
                name,
                end_ns: graph.time_ns,
                length_ns,
                line: self.line,
                ..Exit::default()
            };
            return calls.leave_at(self.depth, exit, sink);
        }
        // The return value may follow the call.
        let call = match memchr::memmem::find(text, b" /*") {
            Some(at) => text[..at].trim_ascii_end(),
            None => text,
        };
        let begins = call.ends_with(b"{");
        let name = memchr::memchr(b'(', call).map(|end| call[..end].trim_ascii());
        match name {
            Some(name) if !name.is_empty() && (begins || call.ends_with(b";")) => {
                let name = sink.name(name);
                let entry = entry(name, self.line);
                if begins {
                    calls.enter_at(self.depth, entry, sink)
                } else {
                    calls.leaf_at(self.depth, entry, length_ns, sink)
                }
            }
            _ => {
                sink.trouble(self.line, "a line that is not understood");
                Ok(())
            }
        }
    }
}

/// `TASK-PID [CPU] TIME: funcgraph_entry: DURATION | BODY`.
fn of_event(line: &[u8]) -> Option<Graph<'_>> {
    let head = EventLine::of(line)?;
    let rest = head.event.strip_prefix(b"funcgraph_")?;
    let rest = &rest[memchr::memchr(b':', rest)? + 1..];
    let bar = memchr::memchr(b'|', rest)?;
    Some(Graph {
        cpu: Some(head.cpu),
        thread: Some((head.comm, head.pid)),
        time_ns: head.time_ns,
        length: &rest[..bar],
        body: &rest[bar + 1..],
    })
}

/// Parses the columns of tracefs: optional time, CPU and thread; duration; and call.
fn of_columns(line: &[u8]) -> Option<Graph<'_>> {
    let mut graph = Graph {
        cpu: None,
        thread: None,
        time_ns: None,
        length: b"",
        body: b"",
    };
    let mut rest = line;
    for _ in 0..4 {
        let bar = memchr::memchr(b'|', rest)?;
        let mut column = rest[..bar].trim_ascii();
        rest = &rest[bar + 1..];
        let is_first = graph.time_ns.is_none() && graph.cpu.is_none();
        let time_ns = seconds_ns(column).filter(|_| is_first && column.contains(&b'.'));
        if time_ns.is_some() {
            graph.time_ns = time_ns;
            continue;
        }
        if let Some((cpu, behind)) = split_cpu(column).filter(|_| graph.cpu.is_none()) {
            graph.cpu = Some(cpu);
            column = behind.trim_ascii();
        }
        if column.is_empty() || column.ends_with(b"us") || is_arrow(column) {
            graph.length = column;
            graph.body = rest;
            return Some(graph);
        }
        // Flags of interrupts may follow the thread, or replace it.
        let thread = task(column).or_else(|| {
            let end = column.iter().rposition(|byte| *byte == b' ')?;
            task(&column[..end])
        });
        graph.thread = graph.thread.or(thread);
    }
    None
}

/// Splits ` 0) ` into the CPU and the rest after it.
fn split_cpu(column: &[u8]) -> Option<(u32, &[u8])> {
    let end = column.iter().position(|byte| !byte.is_ascii_digit())?;
    if column[end] != b')' {
        return None;
    }
    let cpu = u32::try_from(unsigned(&column[..end])?).ok()?;
    Some((cpu, &column[end + 1..]))
}

/// Parses a duration, which has a mark before it if it is long, and is empty if the call only begins.
fn duration(column: &[u8]) -> Result<Option<u64>, ()> {
    let text = column.trim_ascii();
    let text = match text.first() {
        Some(b'+' | b'!' | b'#' | b'*' | b'@' | b'$') => text[1..].trim_ascii_start(),
        _ => text,
    };
    if text.is_empty() || is_arrow(text) {
        return Ok(None);
    }
    let number = text
        .strip_suffix(b"us")
        .map(|number| number.trim_ascii_end());
    number.and_then(micros_ns).map(Some).ok_or(())
}

/// Whether the text is `==========>` or `<==========`: the start or end of an interrupt.
fn is_arrow(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"=====").is_some()
}

/// Whether the line is a rule that is drawn around a change of threads.
fn is_rule(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b'-' | b' '))
}

/// The name in ` /* name */`, which says which call ends. With the option funcgraph-retval, its return value
/// follows: ` = 0x0`, ` (ret=0x0)`, since Linux 6.13 ` ret=0x0`.
fn comment(rest: &[u8]) -> Option<&[u8]> {
    let text = rest
        .trim_ascii()
        .strip_prefix(b"/*")?
        .strip_suffix(b"*/")?
        .trim_ascii();
    let ends = [&b" = "[..], b" (ret=", b" ret="].into_iter();
    let end = ends
        .filter_map(|value| memchr::memmem::find(text, value))
        .min();
    Some(&text[..end.unwrap_or(text.len())])
        .filter(|name| !name.is_empty() && !name.starts_with(b"="))
}

#[cfg(test)]
mod tests;
