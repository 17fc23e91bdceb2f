//! The open slices of one thread, in order of time. Input: begin events, end events and whole slices. Output:
//! spans, each when it ends.

use crate::import::ImportError;
use crate::import::trace::{DEPTHS_MAX, NameId, Span, SpanKind, SpanSink, TaskId};
use std::cmp::Reverse;

/// Open slices, outermost first.
pub(super) struct Slices {
    task: TaskId,
    open: Vec<OpenSlice>,
    /// Number of open slices deeper than the limit.
    beyond: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenSlice {
    name: NameId,
    start_ns: u64,
    /// Its end, if its event states one.
    end_ns: Option<u64>,
    depth: u16,
    line: u64,
}

impl Slices {
    pub(super) fn new(task: TaskId) -> Self {
        Slices {
            task,
            open: Vec::new(),
            beyond: 0,
        }
    }

    /// The number of the thread.
    pub(super) fn task(&self) -> TaskId {
        self.task
    }

    /// Begins a slice inside the open ones.
    pub(super) fn begin(
        &mut self,
        name: NameId,
        time_ns: u64,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        self.end_until(time_ns, sink)?;
        let depth = self.open.last().map_or(0, |open| open.depth + 1);
        if depth >= DEPTHS_MAX {
            self.beyond += 1;
            sink.trouble(line, "a slice deeper than 1,024 levels was left out");
            return Ok(());
        }
        self.open.push(OpenSlice {
            name,
            start_ns: time_ns,
            end_ns: None,
            depth,
            line,
        });
        Ok(())
    }

    /// Ends the innermost open slice; or if a name is given, the innermost one with that name.
    pub(super) fn end(
        &mut self,
        name: Option<NameId>,
        time_ns: u64,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        self.end_until(time_ns, sink)?;
        if self.beyond > 0 {
            self.beyond -= 1;
            return Ok(());
        }
        let is_it =
            |open: &OpenSlice| open.end_ns.is_none() && name.is_none_or(|name| name == open.name);
        let Some(at) = self.open.iter().rposition(is_it) else {
            let Some(name) = name else {
                sink.trouble(line, "a slice ends where none is open");
                return Ok(());
            };
            if !self.open.is_empty() {
                sink.trouble(line, "a slice ends that did not begin");
            }
            // The innermost open slice may already be at the limit of depth.
            let depth = self.open.last().map_or(0, |open| open.depth + 1);
            let unbegun = OpenSlice {
                name,
                start_ns: time_ns,
                end_ns: None,
                depth: depth.min(DEPTHS_MAX - 1),
                line,
            };
            return sink.span(Span {
                start_ns: None,
                ..self.span(unbegun, None)
            });
        };
        // Slices inside it lack their end event. Those that state their own end keep it.
        for inner in (at + 1..self.open.len()).rev() {
            let open = self.open[inner];
            if open.end_ns.is_none() {
                self.open.remove(inner);
                sink.trouble(open.line, "a slice begins whose end is missing");
                sink.span(self.span(open, None))?;
            } else {
                sink.trouble(open.line, "a slice ends after the one around it");
            }
        }
        let open = self.open.remove(at);
        sink.span(self.span(open, Some(time_ns)))
    }

    /// Adds a whole slice. Open slices that end before it does are not around it.
    pub(super) fn whole(
        &mut self,
        name: NameId,
        start_ns: u64,
        end_ns: u64,
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        self.end_until(start_ns, sink)?;
        let holds_it = |open: &OpenSlice| open.end_ns.is_none_or(|end| end >= end_ns);
        let around = self.open.iter().rposition(holds_it);
        if around.map_or(0, |at| at + 1) < self.open.len() {
            sink.trouble(line, "a slice ends after the one around it");
        }
        let depth = around.map_or(0, |at| self.open[at].depth + 1);
        if depth >= DEPTHS_MAX || self.open.len() >= usize::from(DEPTHS_MAX) {
            sink.trouble(line, "a slice deeper than 1,024 levels was left out");
            return Ok(());
        }
        self.open.push(OpenSlice {
            name,
            start_ns,
            end_ns: Some(end_ns),
            depth,
            line,
        });
        Ok(())
    }

    /// Ends the input. Whole slices end, the deepest first; others have no end.
    pub(super) fn finish(&mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        self.open
            .sort_by_key(|open| (open.depth, Reverse(open.end_ns)));
        while let Some(open) = self.open.pop() {
            sink.span(self.span(open, open.end_ns))?;
        }
        Ok(())
    }

    /// Ends the whole slices that end by `time_ns`, in the order of their ends.
    fn end_until(&mut self, time_ns: u64, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        let is_over = |open: &OpenSlice| open.end_ns.is_some_and(|end| end <= time_ns);
        loop {
            let over = self
                .open
                .iter()
                .enumerate()
                .rev()
                .filter(|(_, open)| is_over(open));
            let Some((at, open)) = over.min_by_key(|(_, open)| open.end_ns) else {
                return Ok(());
            };
            let open = *open;
            self.open.remove(at);
            sink.span(self.span(open, open.end_ns))?;
        }
    }

    fn span(&self, open: OpenSlice, end_ns: Option<u64>) -> Span {
        let length_ns = end_ns.and_then(|end| end.checked_sub(open.start_ns));
        Span {
            name: open.name,
            task: self.task,
            cpu: None,
            start_ns: Some(open.start_ns),
            length_ns,
            depth: open.depth,
            complete: length_ns.is_some(),
            kind: SpanKind::Slice,
            result: None,
        }
    }
}
