//! Writes traces. Input: calls from a reader. Output: blocks of spans, each when it is full. Only names and
//! tasks stay in memory, within limits.

use crate::import::trace::{NameId, Span, SpanSink, TaskId, TaskLabel};
use crate::import::{ImportError, ImportSummary, InputTrouble, TraceClock};
use crate::recording::{CLOCK, MONOTONIC, SPANS_UNTIMED};
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use uprof::cold::{ClockPair, End, EndReason, Metadata, TaskEvent};
use uprof::{Task, Writer};

/// Most distinct names; all further ones become one.
const NAMES_MAX: usize = 1 << 18;
/// Most tasks; all further ones become one.
const TASKS_MAX: usize = 1 << 16;
/// Number of errors that are kept in full; further ones are only counted.
const TROUBLES_TOLD: usize = 10;
/// Start of the earliest plausible time of day, in 2001. Smaller times are on another clock.
const EARLIEST_REALTIME_NS: i64 = 1_000_000_000_000_000_000;
/// The name for names and tasks beyond the limits.
const OTHERS: &str = "[others]";

/// Receives calls and writes them.
pub(super) struct CallImporter<'a> {
    out: Option<&'a mut dyn Write>,
    writer: Option<Writer<&'a mut dyn Write>>,
    metadata: Metadata,
    uuid: [u8; 16],
    clock: Option<TraceClock>,
    /// Whether the user named the clock.
    pub(super) is_clock_asked: bool,
    names: Vec<String>,
    name_ids: HashMap<Box<[u8]>, NameId>,
    tasks: Vec<(Task, String)>,
    task_ids: HashMap<Task, TaskId>,
    end_ns: u64,
    untimed: u64,
    imported: ImportSummary,
}

impl<'a> CallImporter<'a> {
    /// `clock` is the clock of the trace's times.
    pub(super) fn new(
        out: &'a mut dyn Write,
        mut metadata: Metadata,
        uuid: [u8; 16],
        clock: Option<TraceClock>,
    ) -> Self {
        if clock == Some(TraceClock::Monotonic) {
            let note = (CLOCK.to_owned(), MONOTONIC.to_owned());
            metadata.notes.push(note);
        }
        CallImporter {
            clock,
            is_clock_asked: false,
            out: Some(out),
            writer: None,
            metadata,
            uuid,
            names: Vec::new(),
            name_ids: HashMap::new(),
            tasks: Vec::new(),
            task_ids: HashMap::new(),
            end_ns: 0,
            untimed: 0,
            imported: ImportSummary::default(),
        }
    }

    /// Writes the time of day of the first time, if that is the trace's clock.
    fn tell_clock(&mut self, first_ns: u64) -> io::Result<()> {
        if self.clock.take() != Some(TraceClock::Realtime) {
            return Ok(());
        }
        match i64::try_from(first_ns) {
            Ok(realtime_ns) if realtime_ns >= EARLIEST_REALTIME_NS => {
                self.writer(first_ns)?.clocks(&[ClockPair {
                    monotonic_ns: first_ns,
                    realtime_ns,
                    guest: None,
                }])
            }
            _ if !self.is_clock_asked => Ok(()),
            _ => {
                let what = "the trace's times are no times of day, but of another clock";
                self.imported.left_out = Some(what.to_owned());
                Ok(())
            }
        }
    }

    /// The writer is created with the first call, so that an input without calls makes no recording.
    fn writer(&mut self, now_ns: u64) -> io::Result<&mut Writer<&'a mut dyn Write>> {
        if let Some(out) = self.out.take() {
            self.writer = Some(Writer::create(out, self.uuid, &self.metadata, now_ns)?);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| io::Error::other("an import can't be begun twice"))
    }

    /// Ends the recording after `lines` lines of input.
    ///
    /// # Errors
    /// The errors of the output.
    pub(super) fn finish(mut self, lines: u64) -> Result<ImportSummary, ImportError> {
        self.imported.lines = lines;
        let Some(mut writer) = self.writer.take() else {
            return Ok(self.imported);
        };
        let named = self.tasks.into_iter().filter(|(_, name)| !name.is_empty());
        let named: Vec<TaskEvent> = named
            .map(|(task, name)| TaskEvent::named(0, task, name))
            .collect();
        writer.tasks(&named)?;
        let mut totals = vec![("troubles".to_owned(), self.imported.troubles)];
        // A call without a beginning has no time even if the trace has times.
        if self.untimed == self.imported.spans {
            totals.push((SPANS_UNTIMED.to_owned(), self.untimed));
        }
        writer.finish(&End {
            time_ns: self.end_ns,
            reason: EndReason::InputEnded,
            message: "the end of the input was reached".to_owned(),
            totals,
        })?;
        Ok(self.imported)
    }
}

impl SpanSink for CallImporter<'_> {
    fn name(&mut self, name: &[u8]) -> NameId {
        if let Some(id) = self.name_ids.get(name) {
            return *id;
        }
        let id = NameId(self.names.len().min(NAMES_MAX) as u32);
        if self.names.len() <= NAMES_MAX {
            let is_room = self.names.len() < NAMES_MAX;
            let text = if is_room {
                String::from_utf8_lossy(name)
            } else {
                OTHERS.into()
            };
            self.names.push(text.into_owned());
        }
        // Further names are not stored: each gets the number of the others again.
        if self.name_ids.len() < NAMES_MAX {
            self.name_ids.insert(name.into(), id);
        }
        id
    }

    fn task(&mut self, task: TaskLabel<'_>) -> TaskId {
        let label = Task {
            space: task.space,
            vcpu: task.number,
        };
        if let Some(id) = self.task_ids.get(&label) {
            return *id;
        }
        if self.tasks.len() >= TASKS_MAX {
            return TaskId(TASKS_MAX as u32 - 1);
        }
        let id = TaskId(self.tasks.len() as u32);
        // The last task stands for all further ones.
        let is_last = self.tasks.len() + 1 == TASKS_MAX;
        let name = if is_last {
            OTHERS.into()
        } else {
            String::from_utf8_lossy(task.name)
        };
        self.tasks.push((label, name.into_owned()));
        self.task_ids.insert(label, id);
        id
    }

    fn rename(&mut self, task: TaskId, name: &[u8]) {
        let index = task.0 as usize;
        // The last one stands for many.
        if let Some((_, known)) = self.tasks.get_mut(index).filter(|_| index + 1 < TASKS_MAX) {
            *known = String::from_utf8_lossy(name).into_owned();
        }
    }

    fn span(&mut self, span: Span) -> Result<(), ImportError> {
        let task = self.tasks.get(span.task.0 as usize).map(|(task, _)| *task);
        // Taken out, because the name borrows them while the writer is created.
        let names = std::mem::take(&mut self.names);
        let name = names.get(span.name.0 as usize).map_or("", |name| name);
        let whole = span.with(name, task.unwrap_or(Task { space: 0, vcpu: 0 }));
        self.imported.spans += 1;
        self.imported.without_end += u64::from(span.length_ns.is_none() && !span.complete);
        self.untimed += u64::from(span.start_ns.is_none());
        let start_ns = span.start_ns.unwrap_or(0);
        self.end_ns = self.end_ns.max(
            start_ns.saturating_add(
                span.length_ns
                    .filter(|_| span.start_ns.is_some())
                    .unwrap_or(0),
            ),
        );
        if let Some(start_ns) = span.start_ns {
            self.tell_clock(start_ns)?;
        }
        let writer = self.writer(start_ns)?;
        let written = writer.span(&whole);
        self.names = names;
        Ok(written?)
    }

    fn trouble(&mut self, line: u64, what: &str) {
        self.imported.troubles += 1;
        if self.imported.first_troubles.len() < TROUBLES_TOLD {
            self.imported.first_troubles.push(InputTrouble {
                line,
                what: what.to_owned(),
            });
        }
    }
}

/// Measures how much of an input's beginning a reader can parse, to recognize the format.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) spans: u64,
    pub(super) troubles: u64,
    pub(super) first_trouble: Option<String>,
    names: HashMap<Box<[u8]>, NameId>,
}

/// A reader of calls. It returns the number of lines or records that it read.
pub(super) type ReadCalls = fn(&mut dyn BufRead, &mut dyn SpanSink) -> Result<u64, ImportError>;

impl Probe {
    /// Reads the first bytes of an input, whose last line may be truncated.
    pub(super) fn of(head: &[u8], read: ReadCalls) -> Probe {
        let mut probe = Probe::default();
        if let Err(error) = read(&mut &head[..], &mut probe) {
            probe.first_trouble.get_or_insert_with(|| error.to_string());
            probe.spans = 0;
        }
        probe
    }

    /// Whether the reader can parse most of the input.
    pub(super) fn fits(&self) -> bool {
        self.spans > self.troubles
    }

    /// Why the format doesn't fit.
    pub(super) fn reason(self) -> String {
        self.first_trouble
            .unwrap_or_else(|| "nothing is a call".to_owned())
    }
}

impl SpanSink for Probe {
    fn name(&mut self, name: &[u8]) -> NameId {
        let next = NameId(self.names.len() as u32);
        *self.names.entry(name.into()).or_insert(next)
    }

    fn task(&mut self, _: TaskLabel<'_>) -> TaskId {
        TaskId(0)
    }

    fn span(&mut self, _: Span) -> Result<(), ImportError> {
        self.spans += 1;
        Ok(())
    }

    fn trouble(&mut self, line: u64, what: &str) {
        self.troubles += 1;
        self.leave_out(line, what);
    }

    fn leave_out(&mut self, line: u64, what: &str) {
        self.first_trouble
            .get_or_insert_with(|| format!("line {line}: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::trace::SpanKind;

    #[test]
    fn names_and_tasks_beyond_the_limits_are_one() {
        let mut out = Vec::new();
        let mut importer = CallImporter::new(&mut out, Metadata::default(), [7; 16], None);
        let (mut name, mut task) = (NameId(0), TaskId(0));
        for number in 0..NAMES_MAX as u32 + 2 {
            name = importer.name(&number.to_le_bytes());
            task = importer.task(TaskLabel {
                space: 0,
                number,
                name: b"t",
            });
        }
        assert_eq!(
            (name, task),
            (NameId(NAMES_MAX as u32), TaskId(TASKS_MAX as u32 - 1))
        );
        assert_eq!(importer.names.len(), NAMES_MAX + 1);
        assert_eq!(importer.names[NAMES_MAX], OTHERS);
        assert_eq!(importer.tasks.len(), TASKS_MAX);
        assert_eq!(importer.tasks[TASKS_MAX - 1].1, OTHERS);
        let span = Span {
            name,
            task,
            cpu: None,
            start_ns: None,
            length_ns: Some(1),
            depth: 0,
            complete: true,
            kind: SpanKind::Function,
            result: None,
        };
        importer.span(span).unwrap();
        assert_eq!(importer.finish(1).unwrap().spans, 1);
        assert!(!out.is_empty());
    }
}
