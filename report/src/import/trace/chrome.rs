//! Traces in Chrome's JSON format, which Perfetto reads and many programs write. Input: slices of threads, as
//! pairs of B and E or as single X events. Output: spans.
//!
//! ```text
//! {"traceEvents":[{"ph":"X","ts":12.345,"dur":2,"pid":1,"tid":2,"name":"draw"}, …]}
//! ```
//!
//! Events out of order are sorted within a window of [`WINDOW`] events. Instants, counters, flows and objects
//! are ignored, because they are not calls.

mod event;
mod slices;

use super::json_objects::{Element, Objects};
use super::tasks::TASKS_MAX;
use super::{NameId, SpanSink, TaskLabel};
use crate::import::ImportError;
use event::{Event, Id};
use slices::Slices;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::BufRead;

/// Number of events that are held back to be sorted.
const WINDOW: usize = 1 << 16;

/// Reads the trace.
///
/// # Errors
/// Reading or writing failed.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SpanSink) -> Result<u64, ImportError> {
    let mut objects = Objects::new(input);
    let mut reader = Reader::default();
    while let Some(found) = objects.next_object()? {
        match found {
            Element::Object(bytes, line) => reader.event(bytes, line, sink)?,
            Element::Broken(what, line) => sink.trouble(line, what),
        }
    }
    let lines = objects.line();
    while reader.take_earliest(sink)? {}
    reader
        .tasks
        .iter_mut()
        .try_for_each(|slices| slices.finish(sink))?;
    Ok(lines)
}

#[derive(Default)]
struct Reader {
    /// Process and thread ids that are strings, or larger than 32 bits.
    ids: HashMap<Vec<u8>, u32>,
    places: HashMap<(u32, u32), usize>,
    tasks: Vec<Slices>,
    waiting: BinaryHeap<Reverse<PendingEvent>>,
    /// Time of the last event processed.
    taken_ns: u64,
    /// Number of events so far.
    count: u64,
}

/// The action of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Begin(NameId),
    /// Ends the innermost open slice, or the innermost one with this name.
    End(Option<NameId>),
    Whole {
        name: NameId,
        end_ns: u64,
    },
}

/// An event that is held back. At equal times, begin and end events keep the order of the text. Whole slices
/// follow, the longest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PendingEvent {
    time_ns: u64,
    is_whole: bool,
    shortness: u64,
    number: u64,
    line: u64,
    task: usize,
    kind: Kind,
}

impl Reader {
    fn event(
        &mut self,
        bytes: &[u8],
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Result<(), ImportError> {
        let Some(event) = Event::of(bytes) else {
            sink.trouble(line, "an event that is no JSON object was left out");
            return Ok(());
        };
        let is_whole = event.phase == b"X";
        match event.phase {
            b"B" | b"E" | b"X" => {}
            b"M" => {
                if event.name.raw() == b"thread_name" {
                    self.task(&event, &event.called.text(), line, sink);
                }
                return Ok(());
            }
            b"b" | b"e" | b"n" | b"S" | b"T" | b"p" | b"F" => {
                sink.trouble(
                    line,
                    "an asynchronous slice, which is no thread's, was left out",
                );
                return Ok(());
            }
            b"" => {
                sink.trouble(line, "an event without a phase was left out");
                return Ok(());
            }
            _ => return Ok(()),
        }
        let (Some(time_ns), Some(task)) = (event.time_ns(), self.task(&event, b"", line, sink))
        else {
            if event.time_ns().is_none() {
                sink.trouble(
                    line,
                    "a slice without a time, or with one before 0, was left out",
                );
            }
            return Ok(());
        };
        let name = (!event.name.is_none()).then(|| sink.name(&event.name.text()));
        let kind = match (event.phase, name) {
            (b"E", name) => Kind::End(name),
            (b"B", Some(name)) => Kind::Begin(name),
            (_, Some(name)) => {
                let end_ns = event
                    .length_ns()
                    .and_then(|length| time_ns.checked_add(length));
                let Some(end_ns) = end_ns else {
                    sink.trouble(
                        line,
                        "a slice without a length, or with one below 0, was left out",
                    );
                    return Ok(());
                };
                Kind::Whole { name, end_ns }
            }
            (_, None) => {
                sink.trouble(line, "a slice without a name was left out");
                return Ok(());
            }
        };
        self.count += 1;
        // The queue returns the smallest event first. Of whole slices that begin together, that has to be
        // the longest.
        let shortness = match kind {
            Kind::Whole { end_ns, .. } => u64::MAX - (end_ns - time_ns),
            _ => 0,
        };
        self.waiting.push(Reverse(PendingEvent {
            time_ns,
            is_whole,
            shortness,
            number: self.count,
            line,
            task,
            kind,
        }));
        if self.waiting.len() > WINDOW {
            self.take_earliest(sink)?;
        }
        Ok(())
    }

    fn take_earliest(&mut self, sink: &mut dyn SpanSink) -> Result<bool, ImportError> {
        let Some(Reverse(event)) = self.waiting.pop() else {
            return Ok(false);
        };
        if event.time_ns < self.taken_ns {
            sink.trouble(
                event.line,
                "an event comes more than 65,536 events too late",
            );
        }
        self.taken_ns = self.taken_ns.max(event.time_ns);
        if let Some(slices) = self.tasks.get_mut(event.task) {
            match event.kind {
                Kind::Begin(name) => slices.begin(name, event.time_ns, event.line, sink)?,
                Kind::End(name) => slices.end(name, event.time_ns, event.line, sink)?,
                Kind::Whole { name, end_ns } => {
                    slices.whole(name, event.time_ns, end_ns, event.line, sink)?;
                }
            }
        }
        Ok(true)
    }

    /// Index of an event's thread. A process without thread ids is treated as one thread.
    fn task(
        &mut self,
        event: &Event<'_>,
        name: &[u8],
        line: u64,
        sink: &mut dyn SpanSink,
    ) -> Option<usize> {
        let thread = if event.thread.is_none() {
            event.process
        } else {
            event.thread
        };
        let numbers = (self.number(event.process), self.number(thread));
        if let Some(place) = self.places.get(&numbers) {
            return Some(*place);
        }
        if self.tasks.len() >= TASKS_MAX {
            sink.trouble(line, "a slice of a further task than 65,536 was left out");
            return None;
        }
        let text = thread.text();
        let label = TaskLabel {
            space: numbers.0,
            number: numbers.1,
            name: match thread {
                Id::Text(_) if name.is_empty() => &text,
                _ => name,
            },
        };
        let place = self.tasks.len();
        self.tasks.push(Slices::new(sink.task(label)));
        self.places.insert(numbers, place);
        Some(place)
    }

    /// The number of a process or thread: its own, or one counted down from the largest number if the id
    /// isn't a number.
    fn number(&mut self, id: Id<'_>) -> u32 {
        let Some(text) = id.beyond_u32() else {
            return id.number();
        };
        if let Some(known) = self.ids.get(text) {
            return *known;
        }
        // Ids beyond the limit share one number, so that the table doesn't grow.
        let number = u32::MAX - self.ids.len().min(TASKS_MAX) as u32;
        if self.ids.len() < TASKS_MAX {
            self.ids.insert(text.to_vec(), number);
        }
        number
    }
}

#[cfg(test)]
mod tests;
