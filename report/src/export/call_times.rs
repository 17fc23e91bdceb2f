//! Calls of a trace as timelines need them. Input: the calls of a task, callers first. Output: their starts
//! and ends in order of time; each end comes after those of the calls inside. Nothing is added that the trace
//! doesn't have: a call without an end and without calls inside becomes an instant. Calls without times follow
//! one another by their durations.

use std::io;
use uprof::{Span, SpanKind};

/// A call in few bytes: a trace may have tens of millions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    /// Start, in nanoseconds from the start of its recording, or [`UNKNOWN`].
    since_ns: u64,
    /// Duration (nanoseconds), or [`UNKNOWN`].
    length_ns: u64,
    /// Number of its name.
    pub name: u32,
    /// Number of calls around it.
    depth: u16,
    /// The sort of span.
    pub kind: SpanKind,
    flags: u8,
}

/// Stands for an unknown time.
const UNKNOWN: u64 = u64::MAX;
/// Flag: both its start and its end are known.
const COMPLETE: u8 = 1;
/// Flag: a system call with a result.
const RESULT: u8 = 2;

/// Calls in one chunk. A single table of all calls would be copied each time it grows.
const CHUNK: usize = 1 << 16;

/// The calls of a task. They are added from the last to the first, callees before their callers, and read
/// from the first on.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskCalls {
    chunks: Vec<Vec<TimedCall>>,
    len: usize,
    /// The results of calls that have one, in the order in which they were added.
    results: Vec<i64>,
}

/// An event and its time, in nanoseconds from the start of the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallEvent<'c> {
    Begin(CallWithResult<'c>, u64),
    End(u64),
    Instant(CallWithResult<'c>, u64),
}

/// A call and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallWithResult<'c> {
    pub call: &'c TimedCall,
    pub result: Option<i64>,
}

impl TimedCall {
    fn since_ns(&self) -> Option<u64> {
        Some(self.since_ns).filter(|ns| *ns != UNKNOWN)
    }

    /// Duration (nanoseconds); `None` if its end is missing.
    pub(crate) fn length_ns(&self) -> Option<u64> {
        Some(self.length_ns).filter(|ns| *ns != UNKNOWN)
    }

    /// Whether both its start and its end are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.flags & COMPLETE != 0
    }
}

impl TaskCalls {
    /// Adds a call. Its start is relative to that of its recording, and its name is a number.
    pub(crate) fn push<Who>(&mut self, call: &Span<u32, Who>) {
        let result = if call.result.is_some() { RESULT } else { 0 };
        self.results.extend(call.result);
        let call = TimedCall {
            since_ns: call.start_ns.unwrap_or(UNKNOWN),
            length_ns: call.length_ns.unwrap_or(UNKNOWN),
            name: call.name,
            depth: call.depth,
            kind: call.kind,
            flags: result | (u8::from(call.complete) * COMPLETE),
        };
        self.len += 1;
        match self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => chunk.push(call),
            None => self.chunks.push(vec![call]),
        }
    }

    /// Number of calls.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The call at this index; callers precede their callees.
    fn get(&self, place: usize) -> Option<&TimedCall> {
        // Calls were added from the last to the first.
        let at = self.len.checked_sub(place + 1)?;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }
}

/// How far a call may reach into the next one before it is cut (nanoseconds). Some tracers write times in
/// whole microseconds, but durations in finer units.
const OVERLAP_NS: u64 = 1000;
/// Most calls without a time that are skipped to find a time.
const LOOK_AHEAD: usize = 64;

struct OpenCall {
    depth: u16,
    end_ns: Option<u64>,
}

struct EventOrder<'p, 'c> {
    open: Vec<OpenCall>,
    now_ns: u64,
    put: &'p mut dyn FnMut(CallEvent<'c>) -> io::Result<()>,
}

/// Puts the events of one task's calls. A call without an end is left open if no call around it ends.
///
/// # Errors
/// The errors of `put`.
pub(crate) fn put_events<'c>(
    task: &'c TaskCalls,
    put: &mut dyn FnMut(CallEvent<'c>) -> io::Result<()>,
) -> io::Result<()> {
    let mut order = EventOrder {
        open: Vec::new(),
        now_ns: 0,
        put,
    };
    // Results were added in the order of the calls, so they are read backwards, too.
    let mut results = task.results.iter().rev().copied();
    let mut place = 0;
    while let Some(call) = task.get(place) {
        let has_result = call.flags & RESULT != 0;
        let result = if has_result { results.next() } else { None };
        let told = CallWithResult { call, result };
        let start_ns = start(task, place);
        place += 1;
        order.close(call.depth, start_ns)?;
        let at_ns = start_ns.unwrap_or(0).max(order.now_ns);
        order.now_ns = at_ns;
        let next = task.get(place);
        if call.length_ns().is_none() && next.is_none_or(|next| next.depth <= call.depth) {
            (order.put)(CallEvent::Instant(told, at_ns))?;
            continue;
        }
        (order.put)(CallEvent::Begin(told, at_ns))?;
        let since_ns = call.since_ns().unwrap_or(at_ns);
        let end_ns = call
            .length_ns()
            .map(|length_ns| since_ns.saturating_add(length_ns));
        // A call can't outlast the one around it.
        let around_ns = order.open.last().and_then(|around| around.end_ns);
        order.open.push(OpenCall {
            depth: call.depth,
            end_ns: end_ns.map(|end_ns| end_ns.min(around_ns.unwrap_or(u64::MAX))),
        });
    }
    order.finish()
}

/// The start of a call; for a caller without a time, the start of the first call inside it.
fn start(task: &TaskCalls, place: usize) -> Option<u64> {
    let call = task.get(place)?;
    let mut inside = (place + 1..=place + LOOK_AHEAD)
        .map_while(|place| task.get(place))
        .take_while(|inner| inner.depth > call.depth);
    let look_ahead = || inside.find_map(TimedCall::since_ns);
    call.since_ns().or_else(look_ahead)
}

impl EventOrder<'_, '_> {
    /// Ends the open calls that are not around a call at `depth`, which begins at `start_ns`.
    fn close(&mut self, depth: u16, start_ns: Option<u64>) -> io::Result<()> {
        while let Some(done) = self.open.pop_if(|open| open.depth >= depth) {
            let around = self.open.iter().rev();
            let mut around = around.take_while(|open| open.depth >= depth);
            let end_ns = done.end_ns.or_else(|| around.find_map(|open| open.end_ns));
            let end_ns = end_ns.or(start_ns).unwrap_or(self.now_ns);
            let latest_ns = start_ns.map_or(u64::MAX, |ns| ns.saturating_add(OVERLAP_NS));
            self.end(end_ns.min(latest_ns))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        while let Some(done) = self.open.pop() {
            let mut around = self.open.iter().rev();
            let end_ns = done.end_ns.or_else(|| around.find_map(|open| open.end_ns));
            match end_ns {
                Some(end_ns) => self.end(end_ns)?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn end(&mut self, at_ns: u64) -> io::Result<()> {
        // Time never goes back, whatever the input states.
        self.now_ns = self.now_ns.max(at_ns);
        (self.put)(CallEvent::End(self.now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats calls, given as name, start, duration and depth (`-` if unknown), as events.
    fn events(calls: &[(u32, Option<u64>, Option<u64>, u16)]) -> String {
        let mut task = TaskCalls::default();
        for &(name, start_ns, length_ns, depth) in calls.iter().rev() {
            task.push(&Span {
                name,
                task: (),
                cpu: None,
                start_ns,
                length_ns,
                depth,
                complete: length_ns.is_some(),
                kind: SpanKind::Function,
                result: None,
            });
        }
        let mut told = Vec::new();
        put_events(&task, &mut |event| {
            told.push(match event {
                CallEvent::Begin(told, ns) => format!("{}@{ns}", told.call.name),
                CallEvent::End(ns) => format!(")@{ns}"),
                CallEvent::Instant(told, ns) => format!("!{}@{ns}", told.call.name),
            });
            Ok(())
        })
        .unwrap();
        told.join(" ")
    }

    #[test]
    fn calls_of_no_length_and_of_equal_times_stay_in_their_order() {
        let calls = [
            (1, Some(5), Some(0), 0),
            (2, Some(5), Some(10), 0),
            (3, Some(5), Some(0), 1),
            (4, Some(5), Some(10), 1),
        ];
        assert_eq!(events(&calls), "1@5 )@5 2@5 3@5 )@5 4@5 )@15 )@15");
    }

    #[test]
    fn a_call_without_an_end_ends_with_what_is_around_it_or_not_at_all() {
        let within = [
            (1, Some(0), Some(100), 0),
            (2, Some(10), None, 1),
            (3, Some(20), Some(5), 2),
        ];
        assert_eq!(events(&within), "1@0 2@10 3@20 )@25 )@100 )@100");
        let followed = [
            (1, Some(0), None, 0),
            (2, Some(10), None, 1),
            (3, Some(20), None, 1),
        ];
        assert_eq!(events(&followed), "1@0 !2@10 !3@20");
        let beside = [
            (1, Some(0), None, 0),
            (2, Some(1), Some(2), 1),
            (3, Some(50), Some(1), 0),
        ];
        assert_eq!(events(&beside), "1@0 2@1 )@3 )@50 3@50 )@51");
    }

    #[test]
    fn calls_without_times_follow_one_upon_the_other() {
        let calls = [
            (1, None, Some(100), 0),
            (2, None, Some(30), 1),
            (3, None, Some(40), 1),
            (4, None, Some(1), 0),
        ];
        assert_eq!(events(&calls), "1@0 2@0 )@30 3@30 )@70 )@100 4@100 )@101");
        let caller = [
            (1, Some(7), Some(1), 0),
            (2, None, None, 0),
            (3, Some(90), Some(2), 1),
        ];
        assert_eq!(events(&caller), "1@7 )@8 2@90 3@90 )@92");
    }

    #[test]
    fn times_never_go_back() {
        let calls = [
            (1, Some(100), Some(2_000), 0),
            (2, Some(1_200), Some(u64::MAX - 1), 0),
            (3, Some(5_000), Some(10), 0),
            (4, Some(4_000), Some(u64::MAX - 1), 1),
        ];
        // One call reaches 900 ns into the next, which is moved to its end. The other reaches much further,
        // and is cut.
        assert_eq!(
            events(&calls),
            "1@100 )@2100 2@2100 )@6000 3@6000 4@6000 )@6000 )@6000"
        );
    }
}
