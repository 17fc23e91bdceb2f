//! The slowest calls of a trace, each with the tree of its callees. Input: calls, callers first. Output: the
//! few slowest. A call within one that is kept is part of its tree, and not an entry of its own.

use crate::profile::calls::PlacedCall;
use crate::profile::labels::LabelId;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use std::collections::BTreeMap;
use uprof::Task;

/// Most paths in the tree of a call; further calls count with their caller.
const NODES_MAX: usize = 4096;

/// A slow call.
#[derive(Debug, Clone)]
pub struct SlowCall {
    /// Position of the call.
    pub placed: PlacedCall,
    /// Label of the called function.
    pub label: LabelId,
    /// Self times (nanoseconds) of this call and of the calls in it.
    pub tree: StackTree,
    /// Number of calls of each node.
    pub counts: Vec<u64>,
}

/// Finds the slowest calls.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    most: usize,
    /// The calls found so far, slowest first.
    found: Vec<SlowCall>,
    /// For each task, a call that may become an entry and whose callees are being visited.
    open: BTreeMap<Task, SlowCall>,
}

impl Slowest {
    /// Keeps at most `most` calls.
    pub(crate) fn new(most: usize) -> Self {
        Slowest {
            most,
            ..Slowest::default()
        }
    }

    /// Enters a call. `caller` is the node of its caller in the tree of an open call, if there is one.
    /// `wanted` is the position and label of a call that may be an entry of its own. Returns the node of the
    /// call, if it is in a tree.
    pub(crate) fn enter(
        &mut self,
        task: Task,
        label: LabelId,
        caller: Option<NodeId>,
        wanted: Option<PlacedCall>,
    ) -> Option<NodeId> {
        if self.most == 0 {
            return None;
        }
        if let (Some(caller), Some(slow)) = (caller, self.open.get_mut(&task)) {
            let node = if slow.tree.nodes().len() < NODES_MAX {
                slow.tree.child(caller, label)
            } else {
                caller
            };
            slow.count(node);
            return Some(node);
        }
        let placed = wanted?;
        let last = self.found.get(self.most - 1);
        if last.is_some_and(|last| !placed.is_before(&last.placed)) {
            return None;
        }
        let mut slow = SlowCall {
            placed,
            label,
            tree: StackTree::default(),
            counts: Vec::new(),
        };
        let node = slow.tree.child(ROOT, label);
        slow.count(node);
        self.open.insert(task, slow);
        Some(node)
    }

    /// Leaves the same call, after all its callees.
    pub(crate) fn leave(&mut self, task: Task, node: Option<NodeId>, number: u64, own_ns: u64) {
        let (Some(node), Some(slow)) = (node, self.open.get_mut(&task)) else {
            return;
        };
        slow.tree.add(node, own_ns);
        if slow.placed.number != number {
            return;
        }
        let Some(slow) = self.open.remove(&task) else {
            return;
        };
        let place = self
            .found
            .partition_point(|other| other.placed.is_before(&slow.placed));
        self.found.insert(place, slow);
        self.found.truncate(self.most);
    }

    /// The calls that were found, slowest first.
    pub(crate) fn into_found(self) -> Vec<SlowCall> {
        self.found
    }
}

impl SlowCall {
    fn count(&mut self, node: NodeId) {
        let at = node as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(number: u64, length_ns: u64) -> Option<PlacedCall> {
        Some(PlacedCall {
            length_ns,
            number,
            since_ns: None,
            task: (0, TASK),
        })
    }

    const TASK: Task = Task { space: 0, vcpu: 0 };

    #[test]
    fn paths_of_a_slow_call() {
        let mut slowest = Slowest::new(1);
        let root = slowest.enter(TASK, 0, None, placed(9, 100));
        // The tree takes one function less than this loop adds. The last one counts with its caller.
        for label in 1..NODES_MAX as u32 {
            let node = slowest.enter(TASK, label, root, None);
            assert_eq!(node == root, label == NODES_MAX as u32 - 1);
            slowest.leave(TASK, node, 1, 1);
        }
        slowest.leave(TASK, root, 9, 5);
        let found = slowest.into_found();
        assert_eq!(found[0].tree.nodes().len(), NODES_MAX);
        assert_eq!(found[0].tree.totals()[0], 5 + NODES_MAX as u64 - 1);
        assert_eq!(found[0].counts.iter().sum::<u64>(), NODES_MAX as u64);
    }

    #[test]
    fn the_slowest_are_kept_and_what_is_within_them_is_none() {
        let mut slowest = Slowest::new(2);
        for (number, length_ns) in [(8, 10), (7, 30), (6, 10), (5, 20)] {
            let node = slowest.enter(TASK, 0, None, placed(number, length_ns));
            let inner = slowest.enter(TASK, 1, node, placed(number - 1, length_ns));
            slowest.leave(TASK, inner, number - 1, 1);
            slowest.leave(TASK, node, number, length_ns - 1);
        }
        let found = slowest.into_found();
        let numbers: Vec<u64> = found.iter().map(|slow| slow.placed.number).collect();
        assert_eq!(numbers, [7, 5]);
        assert_eq!(found[0].tree.totals()[0], 30);
    }
}
