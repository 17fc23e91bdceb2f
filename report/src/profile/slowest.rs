//! The slowest calls of a trace, each with what it called: calls come in, callers first; a few are kept. A call within
//! one that is kept is part of that one's tree and no entry of its own.

use crate::profile::calls::PlacedCall;
use crate::profile::labels::LabelId;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use std::collections::BTreeMap;
use uprof::Task;

/// Paths in the tree of a call; calls beyond them count with their caller.
const NODES_MAX: usize = 4096;

/// A slow call.
#[derive(Debug, Clone)]
pub struct SlowCall {
    /// Where it is.
    pub placed: PlacedCall,
    /// What was called.
    pub label: LabelId,
    /// What it and the calls in it took themselves, in nanoseconds.
    pub tree: StackTree,
    /// How many calls each node is.
    pub counts: Vec<u64>,
}

/// Finds them.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    most: usize,
    /// Slowest first.
    found: Vec<SlowCall>,
    /// Those that may become one, whose calls are being looked at.
    open: BTreeMap<Task, SlowCall>,
}

impl Slowest {
    /// At most so many.
    pub(crate) fn new(most: usize) -> Self {
        Slowest {
            most,
            ..Slowest::default()
        }
    }

    /// A call whose caller is `caller` in the tree of an open one, if there is one. Its place there, if it is in one;
    /// `wanted`: where it is and what it is called, if it may be an entry of its own.
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

    /// The same call, after all that it called.
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

    /// Those that were found, slowest first.
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
        // As many functions within it as have a path of their own, and one more, which counts as its caller.
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
