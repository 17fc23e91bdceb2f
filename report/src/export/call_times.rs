//! Calls of a trace as timelines have them: a task's calls enter, callers first; their beginnings and ends leave in
//! order of time, each end after those of the calls inside. Nothing is added that the trace doesn't have: what has no
//! end and no calls inside is a moment. Calls without times follow one upon the other by their lengths.

use std::io;
use uprof::SpanKind;

/// A call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    /// From the start of its recording; `None` where only the order is known.
    pub since_ns: Option<u64>,
    /// `None` where its end was not seen.
    pub length_ns: Option<u64>,
    /// What a system call returned.
    pub result: Option<i64>,
    /// Its name, by number.
    pub name: u32,
    /// Calls around it.
    pub depth: u16,
    /// What it is.
    pub kind: SpanKind,
    /// Whether both its beginning and its end were seen.
    pub complete: bool,
}

/// What happens, and when: from the start of the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallEvent<'c> {
    Begin(&'c TimedCall, u64),
    End(u64),
    Moment(&'c TimedCall, u64),
}

/// How far a call may reach into the one after it before it is cut: times of some tracers are whole microseconds, and
/// lengths are not.
const OVERLAP_NS: u64 = 1000;
/// Calls without a time are looked beyond for one, up to this many.
const LOOK_AHEAD: usize = 64;

struct Open {
    depth: u16,
    end_ns: Option<u64>,
}

struct Putting<'p, 'c> {
    open: Vec<Open>,
    now_ns: u64,
    put: &'p mut dyn FnMut(CallEvent<'c>) -> io::Result<()>,
}

/// Puts the events of one task's calls. What never ends is left open where nothing around it ends.
///
/// # Errors
/// What `put` returns.
pub(crate) fn put_events<'c>(
    calls: &'c [TimedCall],
    put: &mut dyn FnMut(CallEvent<'c>) -> io::Result<()>,
) -> io::Result<()> {
    let mut putting = Putting {
        open: Vec::new(),
        now_ns: 0,
        put,
    };
    for (index, call) in calls.iter().enumerate() {
        let start_ns = start(&calls[index..]);
        putting.close(call.depth, start_ns)?;
        let at_ns = start_ns.unwrap_or(0).max(putting.now_ns);
        putting.now_ns = at_ns;
        let next = calls.get(index + 1);
        if call.length_ns.is_none() && next.is_none_or(|next| next.depth <= call.depth) {
            (putting.put)(CallEvent::Moment(call, at_ns))?;
            continue;
        }
        (putting.put)(CallEvent::Begin(call, at_ns))?;
        let since_ns = call.since_ns.unwrap_or(at_ns);
        let end_ns = call
            .length_ns
            .map(|length_ns| since_ns.saturating_add(length_ns));
        let around_ns = putting.open.last().and_then(|around| around.end_ns);
        putting.open.push(Open {
            depth: call.depth,
            end_ns: end_ns.map(|end_ns| end_ns.min(around_ns.unwrap_or(u64::MAX))),
        });
    }
    putting.finish()
}

/// When the first of these calls begins; of a caller that has no time, when the first one inside it does.
fn start(calls: &[TimedCall]) -> Option<u64> {
    let (first, rest) = calls.split_first()?;
    let inside = rest.iter().take_while(|call| call.depth > first.depth);
    first
        .since_ns
        .or_else(|| inside.take(LOOK_AHEAD).find_map(|call| call.since_ns))
}

impl Putting<'_, '_> {
    /// Ends the calls that aren't around one at this depth, which begins then.
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
        self.now_ns = self.now_ns.max(at_ns);
        (self.put)(CallEvent::End(self.now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name start length depth`, with `-` for what isn't known, as events.
    fn events(calls: &[(u32, Option<u64>, Option<u64>, u16)]) -> String {
        let calls: Vec<TimedCall> = calls
            .iter()
            .map(|&(name, since_ns, length_ns, depth)| TimedCall {
                since_ns,
                length_ns,
                result: None,
                name,
                depth,
                kind: SpanKind::Function,
                complete: length_ns.is_some(),
            })
            .collect();
        let mut told = Vec::new();
        put_events(&calls, &mut |event| {
            told.push(match event {
                CallEvent::Begin(call, ns) => format!("{}@{ns}", call.name),
                CallEvent::End(ns) => format!(")@{ns}"),
                CallEvent::Moment(call, ns) => format!("!{}@{ns}", call.name),
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
            (2, Some(1_200), Some(u64::MAX), 0),
            (3, Some(5_000), Some(10), 0),
            (4, Some(4_000), Some(u64::MAX), 1),
        ];
        // One reaches into the next by 900 ns, which is then later; the other by ages, and is cut.
        assert_eq!(
            events(&calls),
            "1@100 )@2100 2@2100 )@6000 3@6000 4@6000 )@6000 )@6000"
        );
    }
}
