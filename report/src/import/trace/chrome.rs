//! Traces in Chrome's JSON format, which Perfetto reads and many programs write. Input: slices of threads, as
//! pairs of B and E or as single X events. Output: spans.
//!
//! ```text
//! {"traceEvents":[{"ph":"X","ts":12.345,"dur":2,"pid":1,"tid":2,"name":"draw"}, …]}
//! ```
//!
//! Events out of order are sorted within a window of [`WINDOW`] events of their thread, as many programs write one
//! thread after the other. Instants, counters, flows and objects are ignored, because they are not calls.

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

/// Number of events of a thread that are held back to be sorted.
const WINDOW: usize = 1 << 16;
/// Most events of all threads that are held back.
const HELD_MAX: usize = 1 << 19;

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
    reader.take_rest(sink)?;
    reader
        .tasks
        .iter_mut()
        .try_for_each(|task| task.slices.finish(sink))?;
    Ok(lines)
}

#[derive(Default)]
struct Reader {
    /// Process and thread ids that are strings, or larger than 32 bits.
    ids: HashMap<Vec<u8>, u32>,
    places: HashMap<(u32, u32), usize>,
    tasks: Vec<SortedTask>,
    /// Number of events of all tasks that are held back.
    held: usize,
    /// Number of events so far.
    count: u64,
}

/// A thread, whose events are sorted by time.
struct SortedTask {
    slices: Slices,
    waiting: BinaryHeap<Reverse<PendingEvent>>,
    /// Time of the last event processed.
    taken_ns: u64,
}

impl SortedTask {
    fn take(&mut self, event: PendingEvent, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        if event.time_ns < self.taken_ns {
            sink.trouble(
                event.line,
                "an event comes too late to be sorted among those of its thread",
            );
        }
        self.taken_ns = self.taken_ns.max(event.time_ns);
        match event.kind {
            Kind::Begin(name) => self.slices.begin(name, event.time_ns, event.line, sink),
            Kind::End(name) => self.slices.end(name, event.time_ns, event.line, sink),
            Kind::Whole { name, end_ns } => {
                self.slices
                    .whole(name, event.time_ns, end_ns, event.line, sink)
            }
        }
    }

    /// Takes the earliest events until at most `most` are held back. Returns how many were taken.
    fn shrink(&mut self, most: usize, sink: &mut dyn SpanSink) -> Result<usize, ImportError> {
        let mut taken = 0;
        while self.waiting.len() > most
            && let Some(Reverse(event)) = self.waiting.pop()
        {
            self.take(event, sink)?;
            taken += 1;
        }
        Ok(taken)
    }
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
                let name = event.called.text();
                if event.name.raw() == b"thread_name"
                    && !name.is_empty()
                    && let Some(task) = self.task(&event, line, sink)
                {
                    sink.rename(self.tasks[task].slices.task(), &name);
                }
                return Ok(());
            }
            b"b" | b"e" | b"n" | b"S" | b"T" | b"p" | b"F" => {
                sink.leave_out(
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
        let (Some(time_ns), Some(task)) = (event.time_ns(), self.task(&event, line, sink)) else {
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
        let sorted = &mut self.tasks[task];
        sorted.waiting.push(Reverse(PendingEvent {
            time_ns,
            is_whole,
            shortness,
            number: self.count,
            line,
            task,
            kind,
        }));
        self.held += 1;
        self.held -= sorted.shrink(WINDOW, sink)?;
        if self.held > HELD_MAX {
            // Half of all are left at most, so the tasks are looked at only once in so many events.
            let most = HELD_MAX / 2 / self.tasks.len();
            for sorted in &mut self.tasks {
                self.held -= sorted.shrink(most, sink)?;
                sorted.waiting.shrink_to(most);
            }
        }
        Ok(())
    }

    /// Takes the events that are held back at the end, in the order of their times.
    fn take_rest(&mut self, sink: &mut dyn SpanSink) -> Result<(), ImportError> {
        let waiting = self
            .tasks
            .iter_mut()
            .flat_map(|task| std::mem::take(&mut task.waiting));
        let mut rest: Vec<PendingEvent> = waiting.map(|Reverse(event)| event).collect();
        rest.sort_unstable();
        rest.into_iter()
            .try_for_each(|event| self.tasks[event.task].take(event, sink))
    }

    /// Index of an event's thread. A process without thread ids is treated as one thread.
    fn task(&mut self, event: &Event<'_>, line: u64, sink: &mut dyn SpanSink) -> Option<usize> {
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
                Id::Text(_) => &text,
                _ => b"",
            },
        };
        let place = self.tasks.len();
        self.tasks.push(SortedTask {
            slices: Slices::new(sink.task(label)),
            waiting: BinaryHeap::new(),
            taken_ns: 0,
        });
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
