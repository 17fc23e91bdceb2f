//! The stack tree: every path of labels from an outermost frame inwards, each stored once, with the count of
//! samples that end there. Parents precede children.

use crate::profile::labels::{LabelId, Labels};
use crate::work;
use uprof::WordMap;

/// Callers that are looked at in one step of a run's budget.
const CALLERS_PER_STEP: u64 = 8;

/// Number of a node; [`ROOT`] has no label.
pub type NodeId = u32;
/// The node above all outermost frames.
pub const ROOT: NodeId = 0;

/// One path of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The caller's path; its own number for the root.
    pub parent: NodeId,
    /// The label of its innermost frame.
    pub label: LabelId,
    /// The weight of the stacks that end here, in the profile's unit: samples, or nanoseconds.
    pub count: u64,
}

/// All paths, with their counts.
#[derive(Debug, Clone)]
pub struct StackTree {
    nodes: Vec<Node>,
    children: WordMap<u64, NodeId>,
}

impl Default for StackTree {
    fn default() -> Self {
        StackTree {
            nodes: vec![Node {
                parent: ROOT,
                label: LabelId::MAX,
                count: 0,
            }],
            children: WordMap::default(),
        }
    }
}

impl StackTree {
    /// The node of `label` called from `parent`.
    pub(crate) fn child(&mut self, parent: NodeId, label: LabelId) -> NodeId {
        let key = u64::from(parent) << 32 | u64::from(label);
        let next = self.nodes.len() as NodeId;
        let node = *self.children.entry(key).or_insert(next);
        if node == next {
            self.nodes.push(Node {
                parent,
                label,
                count: 0,
            });
        }
        node
    }

    /// Adds a count that ends at `node`.
    pub(crate) fn add(&mut self, node: NodeId, count: u64) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.count += count;
        }
    }

    /// All nodes; the first is the root.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Labels from `node` outwards to the outermost frame.
    pub fn outwards(&self, node: NodeId) -> impl Iterator<Item = LabelId> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize).filter(|_| at != ROOT)?;
            at = node.parent;
            Some(node.label)
        })
    }

    /// Samples that end at or below each node, by node number.
    pub fn totals(&self) -> Vec<u64> {
        self.sums(self.nodes.iter().map(|node| node.count).collect())
    }

    /// For each node, the sum of `counts` at and below it; `counts` has one element for each node.
    pub(crate) fn sums(&self, counts: Vec<u64>) -> Vec<u64> {
        // Parents precede children, so one pass backwards sums every branch.
        let mut totals = counts;
        for (number, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let sum = totals[node.parent as usize].saturating_add(totals[number]);
            totals[node.parent as usize] = sum;
        }
        totals
    }

    /// Children of each node, those with the most samples first, then by name.
    pub(crate) fn sorted_children(&self, totals: &[u64], labels: &Labels) -> Vec<Vec<NodeId>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            children[node.parent as usize].push(number as NodeId);
        }
        for list in &mut children {
            list.sort_by(|a, b| {
                let (a_label, b_label) = (self.label(*a), self.label(*b));
                let counts = totals[*b as usize].cmp(&totals[*a as usize]);
                let names = labels.name(a_label).cmp(labels.name(b_label));
                let modules = labels.module_name(a_label).cmp(labels.module_name(b_label));
                counts.then(names).then(modules).then(a.cmp(b))
            });
        }
        children
    }

    /// The label of a node.
    pub(crate) fn label(&self, node: NodeId) -> LabelId {
        self.nodes[node as usize].label
    }

    /// The same samples with every stack inverted: innermost frames first.
    pub(crate) fn reversed(&self) -> StackTree {
        let mut turned = StackTree::default();
        for (number, node) in self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.count > 0)
        {
            let path = self.outwards(number as NodeId);
            let leaf = path.fold(ROOT, |at, label| turned.child(at, label));
            turned.add(leaf, node.count);
        }
        turned
    }

    /// For each label: samples with it as the innermost frame, and samples with it in their stack.
    pub(crate) fn by_label(&self, labels: &Labels) -> Vec<(u64, u64)> {
        let totals = self.totals();
        let mut counts = vec![(0, 0); labels.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let Some(count) = counts.get_mut(node.label as usize) else {
                continue;
            };
            count.0 += node.count;
            // A recursive function counts each sample only once, at its outermost frame.
            let mut callers = 0;
            let again = self.outwards(node.parent).any(|label| {
                callers += 1;
                label == node.label
            });
            work::take(callers / CALLERS_PER_STEP);
            if !again {
                count.1 += totals[number];
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::labels::Label;

    #[test]
    fn recursion_counts_once_and_turning_keeps_samples() {
        let mut labels = Labels::new();
        let mut label = |name: &str| {
            let name = labels.text_id(name);
            labels.id(Label {
                name,
                ..Label::default()
            })
        };
        let (main, walk, leaf) = (label("main"), label("walk"), label("leaf"));
        let mut tree = StackTree::default();
        let a = tree.child(ROOT, main);
        let b = tree.child(a, walk);
        let c = tree.child(b, walk);
        let d = tree.child(c, leaf);
        tree.add(b, 1);
        tree.add(c, 2);
        tree.add(d, 4);
        assert_eq!(tree.by_label(&labels), [(0, 7), (3, 7), (4, 4)]);
        assert_eq!(tree.totals(), [7, 7, 7, 6, 4]);
        let turned = tree.reversed();
        assert_eq!(turned.totals()[0], 7);
        assert_eq!(turned.reversed().by_label(&labels), tree.by_label(&labels));
    }
}
