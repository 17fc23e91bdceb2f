//! The calls of one task that are open: entries and ends go in, spans come out in the order of their ends. What
//! doesn't fit is told as trouble, and nothing else is lost by it. Holds one entry for each open call, at most
//! [`DEPTHS_MAX`].

use crate::import::ImportError;
use crate::import::trace::{DEPTHS_MAX, NameId, Span, SpanKind, SpanSink, TaskId};

/// A call that begins.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What is called.
    pub name: NameId,
    /// When, in nanoseconds, where the input says.
    pub start_ns: Option<u64>,
    /// On which processor, where the task doesn't say it.
    pub cpu: Option<u32>,
    /// What it is.
    pub kind: SpanKind,
    /// The line that says it, from 1.
    pub line: u64,
}

/// A call that ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exit {
    /// What ends; `None` where the input doesn't say: the innermost one.
    pub name: Option<NameId>,
    /// When, where the input says.
    pub end_ns: Option<u64>,
    /// How long it took, where the input says; else it follows from both times.
    pub length_ns: Option<u64>,
    /// What a system call returned.
    pub result: Option<i64>,
    /// The line that says it, from 1.
    pub line: u64,
}

/// Open calls of a task, outermost first.
#[derive(Debug)]
pub struct OpenCalls {
    task: TaskId,
    open: Vec<(u16, Entry)>,
    /// Calls that are open beyond the deepest that is kept.
    beyond: u64,
}

impl OpenCalls {
    /// None yet.
    pub fn new(task: TaskId) -> Self {
        OpenCalls {
            task,
            open: Vec::new(),
            beyond: 0,
        }
    }

    /// The depth of a call that begins now.
    pub fn depth(&self) -> u16 {
        self.open
            .last()
            .map_or(0, |(depth, _)| depth.saturating_add(1))
    }

    /// A call begins inside those that are open.
    ///
    /// # Errors
    /// What the sink returns.
    pub fn enter(&mut self, entry: Entry, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.enter_at(u64::from(self.depth()) + self.beyond, entry, sink)
    }

    /// A call begins at a depth that the input tells. Open ones that are as deep or deeper never end.
    ///
    /// # Errors
    /// What the sink returns.
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

    /// A call that begins and ends at once, at a depth that the input tells.
    ///
    /// # Errors
    /// What the sink returns.
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

    /// A call ends: the innermost open one of its name. Those inside it never do.
    ///
    /// # Errors
    /// What the sink returns.
    pub fn leave(&mut self, exit: Exit, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
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

    /// A call ends at a depth that the input tells.
    ///
    /// # Errors
    /// What the sink returns.
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
                self.cut_from(depth, exit.line, sink)?;
                self.leave_unentered(depth, exit, sink)
            }
        }
    }

    /// The input is over: what is open never ends. That is no trouble: a trace ends while the system runs on.
    ///
    /// # Errors
    /// What the sink returns.
    pub fn finish(&mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.beyond = 0;
        while let Some((depth, entry)) = self.open.pop() {
            sink.span(self.cut(depth, entry))?;
        }
        Ok(())
    }

    /// A call whose beginning the trace doesn't have. Where others are open that began before, something is wrong.
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
        sink.span(self.span(depth, None, name, exit, SpanKind::Function))
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

    /// Ends those that are as deep as `depth` or deeper: their own ends are missing.
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

    /// `exit` with a length, where both times say it.
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
    use crate::import::trace::collected::Collected;

    fn begin(sink: &mut Collected) -> OpenCalls {
        OpenCalls::new(sink.task(TaskLabel {
            space: 0,
            number: 3,
            name: b"",
        }))
    }

    fn entry(sink: &mut Collected, name: &str, start_ns: u64) -> Entry {
        Entry {
            name: sink.name(name.as_bytes()),
            start_ns: Some(start_ns),
            cpu: None,
            kind: SpanKind::Function,
            line: start_ns,
        }
    }

    fn exit(sink: &mut Collected, name: &str, end_ns: u64) -> Exit {
        Exit {
            name: Some(sink.name(name.as_bytes())),
            end_ns: Some(end_ns),
            line: end_ns,
            ..Exit::default()
        }
    }

    #[test]
    fn spans_come_in_the_order_of_their_ends() {
        let mut sink = Collected::default();
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
        let mut sink = Collected::default();
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
        let mut sink = Collected::default();
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
