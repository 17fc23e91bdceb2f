//! The stacks of a tree in preorder: each stack follows its caller, or the branch of the caller's previous
//! callee. A branch is therefore a range of numbers, and the numbers compress well.

use crate::profile::tree::{NodeId, ROOT, StackTree};

/// An order of the nodes of a tree.
#[derive(Debug)]
pub(super) struct Preorder {
    /// The nodes in preorder; the first is the root.
    nodes: Vec<NodeId>,
    /// The index in `nodes` of each node.
    numbers: Vec<u32>,
    /// For each index, the distance back to its caller's index.
    distances: Vec<u32>,
}

impl Preorder {
    /// The preorder of `tree`. Callees keep the order in which they were first called.
    pub(super) fn of(tree: &StackTree) -> Self {
        let count = tree.nodes().len();
        // For each node its last child, and for each child the sibling before it.
        let (mut last, mut before) = (vec![ROOT; count], vec![ROOT; count]);
        for (number, node) in tree.nodes().iter().enumerate().skip(1) {
            before[number] = std::mem::replace(&mut last[node.parent as usize], number as NodeId);
        }
        let mut order = Preorder {
            nodes: Vec::with_capacity(count),
            numbers: vec![0; count],
            distances: Vec::with_capacity(count),
        };
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            let place = order.nodes.len() as u32;
            let parent = tree.nodes()[node as usize].parent;
            order.numbers[node as usize] = place;
            order.distances.push(place - order.numbers[parent as usize]);
            order.nodes.push(node);
            // The last child is pushed first, so that the first child is taken next.
            let mut child = last[node as usize];
            while child != ROOT {
                open.push(child);
                child = before[child as usize];
            }
        }
        order
    }

    /// The index of a node.
    pub(super) fn number(&self, node: NodeId) -> u32 {
        self.numbers.get(node as usize).copied().unwrap_or(0)
    }

    /// For each node but the root, the distance back to its caller.
    pub(super) fn distances(&self) -> impl ExactSizeIterator<Item = u64> {
        self.distances.iter().skip(1).map(|one| u64::from(*one))
    }

    /// The nodes without the root.
    pub(super) fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.nodes.iter().skip(1).copied()
    }

    /// The label of each node without the root.
    pub(super) fn labels(&self, tree: &StackTree) -> impl ExactSizeIterator<Item = u64> {
        self.nodes().map(|node| u64::from(tree.label(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_a_stretch() {
        let mut tree = StackTree::default();
        let a = tree.child(ROOT, 10);
        let b = tree.child(ROOT, 20);
        let c = tree.child(a, 30);
        let d = tree.child(c, 40);
        let e = tree.child(a, 50);
        let order = Preorder::of(&tree);
        assert_eq!(
            [a, c, d, e, b].map(|node| order.number(node)),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(order.distances().collect::<Vec<_>>(), [1, 1, 1, 3, 5]);
        assert_eq!(
            order.labels(&tree).collect::<Vec<_>>(),
            [10, 30, 40, 50, 20]
        );
    }
}
