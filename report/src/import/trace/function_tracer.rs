//! The function tracer of Nanos and of Linux (tracefs's own text and `trace-cmd report`). Input: entries with
//! their callers, but no ends. Output: spans without a duration, nested by caller.
//!
//! ```text
//!              tid-2     [000]  123456789: kern_lock <-mcache_alloc
//! ```
//!
//! A caller without an entry of its own becomes a call without a beginning. Nanos's times are ticks of a
//! counter whose frequency isn't in the text, so its calls have an order but no times.

use super::event_line::{EventLine, is_heading};
use super::tasks::TASKS_MAX;
use super::{DEPTHS_MAX, Lines, NameId, Span, SpanKind, SpanSink, TaskId};
use crate::import::ImportError;
use std::collections::HashMap;
use std::io::BufRead;

/// Reads the text.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut lines = Lines::new(input);
    let mut stacks: HashMap<TaskId, Callers> = HashMap::new();
    while let Some(line) = lines.next_line()? {
        let number = line.number;
        let bytes = line.bytes;
        if is_heading(bytes) {
            continue;
        }
        if line.cut {
            sink.trouble(number, "a line longer than 64 KiB was left out");
            continue;
        }
        let Some(head) = EventLine::of(bytes) else {
            sink.trouble(number, "a line that is not understood");
            continue;
        };
        // An event of another type, which trace-cmd may record as well.
        let Some((function, caller)) = split_caller(head.event) else {
            continue;
        };
        let task = sink.task(head.label());
        if stacks.len() >= TASKS_MAX && !stacks.contains_key(&task) {
            sink.trouble(number, "a call of a further task than 65,536 was left out");
            continue;
        }
        let function = sink.name(function);
        let caller = sink.name(caller);
        let callers = stacks.entry(task).or_insert_with(|| Callers {
            task,
            open: Vec::new(),
        });
        callers.enter(&head, function, caller, number, sink)?;
    }
    let mut stacks: Vec<Callers> = stacks.into_values().collect();
    stacks.sort_by_key(|callers| callers.task);
    for callers in &mut stacks {
        callers.leave_from(0, sink)?;
    }
    Ok(lines.count())
}

/// Parses `function: kern_lock <-mcache_alloc`, with or without the name of the event, and with one or two
/// dashes.
fn split_caller(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let event = match event.strip_prefix(b"function:") {
        Some(rest) => rest.trim_ascii_start(),
        None => event,
    };
    let arrow = memchr::memmem::find(event, b" <-")?;
    let function = event[..arrow].trim_ascii();
    let caller = &event[arrow + 3..];
    let caller = caller.strip_prefix(b"-").unwrap_or(caller).trim_ascii();
    (!function.is_empty() && !caller.is_empty()).then_some((function, caller))
}

/// Open calls of a task as far as callers show them, outermost first.
struct Callers {
    task: TaskId,
    open: Vec<OpenCall>,
}

struct OpenCall {
    name: NameId,
    start_ns: Option<u64>,
    cpu: u32,
}

impl Callers {
    /// Begins a call. Open calls that are deeper than its caller have ended.
    fn enter(
        &mut self,
        head: &EventLine<'_>,
        function: NameId,
        caller: NameId,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        match self.open.iter().rposition(|open| open.name == caller) {
            Some(at) => self.leave_from(at + 1, sink)?,
            None => {
                self.leave_from(0, sink)?;
                self.open.push(OpenCall {
                    name: caller,
                    start_ns: None,
                    cpu: head.cpu,
                });
            }
        }
        if self.open.len() >= usize::from(DEPTHS_MAX) {
            sink.trouble(line, "a call deeper than 1,024 levels was left out");
            return Ok(());
        }
        self.open.push(OpenCall {
            name: function,
            start_ns: head.time_ns,
            cpu: head.cpu,
        });
        Ok(())
    }

    fn leave_from(&mut self, from: usize, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        while self.open.len() > from {
            let depth = self.open.len() - 1;
            let Some(open) = self.open.pop() else { break };
            sink.span(Span {
                name: open.name,
                task: self.task,
                cpu: Some(open.cpu),
                start_ns: open.start_ns,
                length_ns: None,
                depth: depth as u16,
                complete: false,
                kind: SpanKind::Function,
                result: None,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::collected::SpanCollector;

    fn spans(text: &str) -> SpanCollector {
        let mut sink = SpanCollector::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        sink
    }

    #[test]
    fn callers_tell_who_is_inside_whom() {
        // This text was written by hand to match src/unix/ftrace.c of Nanos.
        let sink = spans(
            "\
# tracer: function
#
             tid-2     [000]  1000: a <-root
             tid-2     [000]  1010: b <-a
            work-3     [001]  1011: a <-other
             tid-2     [000]  1020: c <-b
             tid-2     [000]  1030: d <-a
nonsense
             tid-2     [000]  1040: e <-<< unknown symbol >>
",
        );
        let expected = [
            "0/2 c 3 ? cut",
            "0/2 b 2 ? cut",
            "0/2 d 2 ? cut",
            "0/2 a 1 ? cut",
            "0/2 root 0 ? cut",
            "0/2 e 1 ? cut",
            "0/2 << unknown symbol >> 0 ? cut",
            "0/3 a 1 ? cut",
            "0/3 other 0 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
        assert!(sink.spans.iter().all(|span| span.start_ns.is_none()));
        assert_eq!(
            sink.troubles,
            [(8, "a line that is not understood".to_owned())]
        );
    }

    #[test]
    fn linuxs_times_are_kept() {
        let lines = [
            "            init-1       [001] d....    43.576740: exit_to_user_mode <-syscall_exit",
            "              ls-107   [001]    36.296666: function:             mutex_unlock <-- rb_simple_write",
        ];
        for (line, name, start_ns) in [
            (lines[0], "exit_to_user_mode", 43_576_740_000),
            (lines[1], "mutex_unlock", 36_296_666_000),
        ] {
            let sink = spans(line);
            assert_eq!(sink.spans.len(), 2);
            assert_eq!(sink.names[sink.spans[0].name.0 as usize], name.as_bytes());
            assert_eq!(sink.spans[0].start_ns, Some(start_ns));
            assert_eq!((sink.spans[0].cpu, sink.spans[1].start_ns), (Some(1), None));
            assert_eq!(sink.troubles, []);
        }
    }
}
