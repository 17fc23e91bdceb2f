//! The open calls of one task. Input: entries and exits. Output: spans, in the order of their ends. An event
//! that doesn't fit is reported as an error, and no other call is lost because of it. One entry is kept for
//! each open call, at most [`DEPTHS_MAX`].

use crate::import::ImportError;
use crate::import::trace::{DEPTHS_MAX, NameId, Span, SpanKind, SpanSink, TaskId};

/// The start of a call.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name of the function.
    pub name: NameId,
    /// Start (nanoseconds); `None` if the input doesn't state it.
    pub start_ns: Option<u64>,
    /// The processor, if it doesn't follow from the task.
    pub cpu: Option<u32>,
    /// The sort of call.
    pub kind: SpanKind,
    /// Number of the line with the entry, from 1.
    pub line: u64,
}

/// The end of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exit {
    /// The name of the call that ends; `None` if the input doesn't state it, which means the innermost one.
    pub name: Option<NameId>,
    /// End (nanoseconds); `None` if the input doesn't state it.
    pub end_ns: Option<u64>,
    /// Duration (nanoseconds), if the input states it; otherwise it is computed from both times.
    pub length_ns: Option<u64>,
    /// The return value of a system call.
    pub result: Option<i64>,
    /// What ends, if its beginning isn't known; by default a function.
    pub kind: Option<SpanKind>,
    /// Number of the line with the exit, from 1.
    pub line: u64,
}

/// Open calls of a task, outermost first.
#[derive(Debug)]
pub struct OpenCalls {
    task: TaskId,
    open: Vec<(u16, Entry)>,
    /// Number of open calls deeper than the limit, which are not kept.
    beyond: u64,
}

impl OpenCalls {
    /// No open calls.
    pub fn new(task: TaskId) -> Self {
        OpenCalls {
            task,
            open: Vec::new(),
            beyond: 0,
        }
    }

    /// The depth of a call that would begin now.
    pub fn depth(&self) -> u16 {
        self.open
            .last()
            .map_or(0, |(depth, _)| depth.saturating_add(1))
    }

    /// Begins a call inside the open ones.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn enter(&mut self, entry: Entry, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.enter_at(u64::from(self.depth()) + self.beyond, entry, sink)
    }

    /// Begins a call at a depth that the input states. Open calls that are as deep or deeper get no end.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn enter_at(
        &mut self,
        depth: u64,
        entry: Entry,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let Some(depth) = self.checked(depth, entry.line, sink) else {
            self.beyond += 1;
            return Ok(());
        };
        self.cut_from(depth, entry.line, sink)?;
        self.open.push((depth, entry));
        Ok(())
    }

    /// Begins and ends a leaf call, at a depth that the input states.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn leaf_at(
        &mut self,
        depth: u64,
        entry: Entry,
        length_ns: Option<u64>,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let Some(depth) = self.checked(depth, entry.line, sink) else {
            return Ok(());
        };
        self.cut_from(depth, entry.line, sink)?;
        let exit = Exit {
            length_ns,
            ..Exit::default()
        };
        sink.span(self.span(depth, Some(entry), entry.name, exit, entry.kind))
    }

    /// Ends the innermost open call with the name of `exit`. Calls inside it get no end.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn leave(&mut self, exit: Exit, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        // The innermost call is deeper than the limit, and was not kept.
        if self.beyond > 0 {
            self.beyond -= 1;
            return Ok(());
        }
        let is_it = |name: NameId| exit.name.is_none_or(|wanted| wanted == name);
        match self.open.iter().rposition(|(_, entry)| is_it(entry.name)) {
            Some(at) => {
                let depth = self.open[at].0;
                self.leave_at(u64::from(depth), exit, sink)
            }
            None => self.leave_unentered(self.depth(), exit, sink),
        }
    }

    /// Ends a call at a depth that the input states.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn leave_at(
        &mut self,
        depth: u64,
        exit: Exit,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let Some(depth) = self.checked(depth, exit.line, sink) else {
            self.beyond = self.beyond.saturating_sub(1);
            return Ok(());
        };
        // A call within the limit ends, so all deeper ones have ended.
        self.beyond = 0;
        self.cut_from(depth.saturating_add(1), exit.line, sink)?;
        let is_it = |(open, entry): &&(u16, Entry)| {
            *open == depth && exit.name.is_none_or(|wanted| wanted == entry.name)
        };
        match self.open.last().filter(is_it).copied() {
            Some((_, entry)) => {
                self.open.pop();
                let exit = self.timed(entry, exit, sink);
                sink.span(self.span(depth, Some(entry), entry.name, exit, entry.kind))
            }
            None => {
                // The open call at this depth is another one, whose end is missing.
                self.cut_from(depth, exit.line, sink)?;
                self.leave_unentered(depth, exit, sink)
            }
        }
    }

    /// Ends the input. Open calls get no end. That is not an error, because the system runs on when a trace
    /// ends.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn finish(&mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.beyond = 0;
        while let Some((depth, entry)) = self.open.pop() {
            sink.span(self.cut(depth, entry))?;
        }
        Ok(())
    }

    /// Adds a call without a beginning. If other calls are open, that is an error.
    fn leave_unentered(
        &mut self,
        depth: u16,
        exit: Exit,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let Some(name) = exit.name else {
            sink.trouble(exit.line, "a call ends where none is open");
            return Ok(());
        };
        if !self.open.is_empty() {
            sink.trouble(exit.line, "a call ends that did not begin");
        }
        sink.span(self.span(
            depth,
            None,
            name,
            exit,
            exit.kind.unwrap_or(SpanKind::Function),
        ))
    }

    fn checked(&mut self, depth: u64, line: u64, sink: &mut dyn SpanSink) -> Option<u16> {
        let small = u16::try_from(depth)
            .ok()
            .filter(|depth| *depth < DEPTHS_MAX);
        if small.is_none() {
            sink.trouble(line, "a call deeper than 1,024 levels was left out");
        }
        small
    }

    /// Emits open calls at `depth` and deeper without an end.
    fn cut_from(
        &mut self,
        depth: u16,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        while let Some((open, entry)) = self.open.pop_if(|(open, _)| *open >= depth) {
            sink.trouble(
                entry.line,
                &format!("a call begins whose end is missing before line {line}"),
            );
            sink.span(self.cut(open, entry))?;
        }
        Ok(())
    }

    fn cut(&self, depth: u16, entry: Entry) -> Span {
        Span {
            complete: false,
            ..self.span(depth, Some(entry), entry.name, Exit::default(), entry.kind)
        }
    }

    /// `exit` with a duration, if both times are known.
    fn timed(&self, entry: Entry, exit: Exit, sink: &mut dyn SpanSink) -> Exit {
        let length = |start: u64| exit.end_ns.and_then(|end| end.checked_sub(start));
        let length_ns = exit.length_ns.or(entry.start_ns.and_then(length));
        if length_ns.is_none() && entry.start_ns.is_some() && exit.end_ns.is_some() {
            sink.trouble(exit.line, "a call ends before it began");
        }
        Exit { length_ns, ..exit }
    }

    fn span(
        &self,
        depth: u16,
        entry: Option<Entry>,
        name: NameId,
        exit: Exit,
        kind: SpanKind,
    ) -> Span {
        let before = || exit.end_ns?.checked_sub(exit.length_ns?);
        Span {
            name,
            task: self.task,
            cpu: entry.and_then(|entry| entry.cpu),
            start_ns: entry.map_or_else(before, |entry| entry.start_ns),
            length_ns: exit.length_ns,
            depth,
            complete: entry.is_some(),
            kind,
            result: exit.result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::TaskLabel;
    use crate::import::trace::collected::SpanCollector;

    fn begin(sink: &mut SpanCollector) -> OpenCalls {
        OpenCalls::new(sink.task(TaskLabel {
            space: 0,
            number: 3,
            name: b"",
        }))
    }

    fn entry(sink: &mut SpanCollector, name: &str, start_ns: u64) -> Entry {
        Entry {
            name: sink.name(name.as_bytes()),
            start_ns: Some(start_ns),
            cpu: None,
            kind: SpanKind::Function,
            line: start_ns,
        }
    }

    fn exit(sink: &mut SpanCollector, name: &str, end_ns: u64) -> Exit {
        Exit {
            name: Some(sink.name(name.as_bytes())),
            end_ns: Some(end_ns),
            line: end_ns,
            ..Exit::default()
        }
    }

    #[test]
    fn spans_come_in_the_order_of_their_ends() {
        let mut sink = SpanCollector::default();
        let mut calls = begin(&mut sink);
        for (name, time_ns, is_entry) in [
            ("before", 1, false),
            ("main", 2, true),
            ("walk", 3, true),
            ("walk", 4, true),
            ("walk", 7, false),
            ("walk", 9, false),
            ("lost", 10, true),
            ("main", 20, false),
            ("open", 21, true),
        ] {
            if is_entry {
                let entry = entry(&mut sink, name, time_ns);
                calls.enter(entry, &mut sink).unwrap();
            } else {
                let exit = exit(&mut sink, name, time_ns);
                calls.leave(exit, &mut sink).unwrap();
            }
        }
        calls.finish(&mut sink).unwrap();
        let expected = [
            "0/3 before 0 ? cut",
            "0/3 walk 2 3",
            "0/3 walk 1 6",
            "0/3 lost 1 ? cut",
            "0/3 main 0 18",
            "0/3 open 0 ? cut",
        ];
        assert_eq!(sink.lines(), expected);
        let what = "a call begins whose end is missing before line 20".to_owned();
        assert_eq!(sink.troubles, [(10, what)]);
    }

    #[test]
    fn a_call_that_ends_before_it_began_has_no_length() {
        let mut sink = SpanCollector::default();
        let mut calls = begin(&mut sink);
        let entry = entry(&mut sink, "main", 9);
        calls.enter(entry, &mut sink).unwrap();
        let exit = exit(&mut sink, "main", 8);
        calls.leave(exit, &mut sink).unwrap();
        assert_eq!(sink.lines(), ["0/3 main 0 ?"]);
        assert_eq!(
            sink.troubles,
            [(8, "a call ends before it began".to_owned())]
        );
    }

    #[test]
    fn what_is_too_deep_is_counted_and_what_is_around_it_is_kept() {
        let mut sink = SpanCollector::default();
        let mut calls = begin(&mut sink);
        for time_ns in 0..u64::from(DEPTHS_MAX) + 3 {
            let entry = entry(&mut sink, "down", time_ns);
            calls.enter(entry, &mut sink).unwrap();
        }
        for time_ns in 0..u64::from(DEPTHS_MAX) + 3 {
            let exit = exit(&mut sink, "down", 5000 + time_ns);
            calls.leave(exit, &mut sink).unwrap();
        }
        assert_eq!(sink.spans.len(), usize::from(DEPTHS_MAX));
        assert!(sink.spans.iter().all(|span| span.complete));
        assert_eq!(sink.spans[0].depth, DEPTHS_MAX - 1);
        assert_eq!(sink.troubles.len(), 3);
    }
}
