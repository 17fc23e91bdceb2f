//! Calls of a thread as ranges of time: at each moment, the innermost call. If a trace has no times, its
//! calls follow each other in their order, each with its self time. Only durations are known then.

use super::TimedStack;
use crate::profile::gather::Sampled;
use crate::profile::tree::NodeId;

/// A call, in the order of the trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct InOrder {
    node: NodeId,
    /// Start, in nanoseconds from the start of its recording.
    start_ns: Option<u64>,
    /// Duration (nanoseconds); `None` if its end is missing.
    length_ns: Option<u64>,
    own_ns: u64,
}

impl InOrder {
    /// The times of a call; `None` for a sample.
    pub(crate) fn of(sampled: &Sampled) -> Option<InOrder> {
        let call = sampled.call?;
        Some(InOrder {
            node: sampled.node,
            start_ns: call.start_ns,
            length_ns: call.length_ns,
            own_ns: sampled.weight.amount,
        })
    }
}

/// Whether any of the calls has a time.
pub(super) fn are_timed(calls: &[InOrder]) -> bool {
    calls.iter().any(|call| call.start_ns.is_some())
}

/// The ranges of time of a thread's calls; `calls` has the last call first.
pub(super) fn timed_stacks(mut calls: Vec<InOrder>) -> Vec<TimedStack> {
    calls.reverse();
    if are_timed(&calls) {
        by_time(calls)
    } else {
        by_order(&calls)
    }
}

fn by_order(calls: &[InOrder]) -> Vec<TimedStack> {
    let mut done_ns: u64 = 0;
    let stacks = calls.iter().map(|call| {
        let stack = TimedStack {
            since_ns: done_ns,
            node: call.node,
            length_ns: call.own_ns,
        };
        done_ns = done_ns.saturating_add(call.own_ns);
        stack
    });
    stacks.filter(|stack| stack.length_ns > 0).collect()
}

fn by_time(calls: Vec<InOrder>) -> Vec<TimedStack> {
    // A call without a time or an end gets no time of its own. It shows in the stacks of its callees.
    let timed = calls
        .into_iter()
        .filter_map(|call| Some((call.start_ns?, call.length_ns?, call.node)));
    let mut timed: Vec<(u64, u64, NodeId)> = timed.collect();
    // Of two calls that began at the same time, the longer one is the caller.
    timed.sort_by_key(|(start_ns, length_ns, _)| (*start_ns, std::cmp::Reverse(*length_ns)));
    let mut found = Vec::new();
    let mut put = |from_ns: u64, until_ns: u64, node: NodeId| {
        if until_ns > from_ns {
            found.push(TimedStack {
                since_ns: from_ns,
                node,
                length_ns: until_ns - from_ns,
            });
        }
    };
    let mut open: Vec<(u64, NodeId)> = Vec::new();
    let mut done_ns = 0;
    for (start_ns, length_ns, node) in timed {
        while let Some((end_ns, inner)) = open.pop_if(|(end_ns, _)| *end_ns <= start_ns) {
            put(done_ns, end_ns, inner);
            done_ns = done_ns.max(end_ns);
        }
        if let Some((_, inner)) = open.last() {
            put(done_ns, start_ns, *inner);
        }
        done_ns = done_ns.max(start_ns);
        // A call can't outlast its caller.
        let end_ns = start_ns.saturating_add(length_ns);
        let most = open.last().map_or(u64::MAX, |(end_ns, _)| *end_ns);
        open.push((end_ns.min(most), node));
    }
    while let Some((end_ns, inner)) = open.pop() {
        put(done_ns, end_ns, inner);
        done_ns = done_ns.max(end_ns);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(node: NodeId, start_ns: Option<u64>, length_ns: Option<u64>, own_ns: u64) -> InOrder {
        InOrder {
            node,
            start_ns,
            length_ns,
            own_ns,
        }
    }

    /// Start, stack and length of each.
    fn stacks_of(calls: &[InOrder]) -> Vec<(u64, NodeId, u64)> {
        let stacks = timed_stacks(calls.to_vec()).into_iter();
        stacks
            .map(|stack| (stack.since_ns, stack.node, stack.length_ns))
            .collect()
    }

    #[test]
    fn at_each_moment_it_is_the_innermost_call() {
        // 1 calls 2 twice, then 3 begins. The last call comes first, as from a recording.
        let calls = [
            call(3, Some(200), Some(10), 10),
            call(2, Some(60), Some(20), 20),
            call(2, Some(20), Some(10), 10),
            call(1, Some(10), Some(90), 60),
        ];
        let expected = [
            (10, 1, 10),
            (20, 2, 10),
            (30, 1, 30),
            (60, 2, 20),
            (80, 1, 20),
            (200, 3, 10),
        ];
        assert_eq!(stacks_of(&calls), expected);
    }

    #[test]
    fn without_times_calls_follow_each_other_with_what_they_took_themselves() {
        let calls = [
            call(3, None, Some(7), 7),
            call(2, None, Some(20), 20),
            call(4, None, None, 0),
            call(1, None, Some(50), 30),
        ];
        let expected = [(0, 1, 30), (30, 2, 20), (50, 3, 7)];
        assert_eq!(stacks_of(&calls), expected);
    }
}
