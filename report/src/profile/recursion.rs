//! Collapsed recursion: a stack tree in which each repeated cycle of calls is kept once. `main;walk;walk;leaf`
//! becomes `main;walk;leaf`, and `eval;apply;eval;apply` becomes `eval;apply`. No sample is lost, only the depth.

use crate::profile::labels::LabelId;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use std::borrow::Cow;

/// Most functions in a cycle of calls. Parsers have a few; longer cycles are left as they are.
const ROUND_MAX: usize = 8;

/// A tree without recursion.
#[derive(Debug)]
pub(crate) struct FoldedTree {
    /// The tree of the same samples.
    pub tree: StackTree,
    /// For each node of the old tree, its new number.
    pub places: Vec<NodeId>,
    /// For each node of the new tree, what was collapsed there.
    pub rounds: Vec<Rounds>,
}

/// Recursion that begins at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rounds {
    /// Number of functions in a cycle; 0 if nothing was collapsed.
    pub functions: usize,
    /// The most cycles in one stack.
    pub most: u32,
}

/// The `tree` as a view needs it: inverted, without recursion, or both.
pub(crate) fn shown(tree: &StackTree, reverse: bool, fold: bool) -> Cow<'_, StackTree> {
    let turned = if reverse {
        Cow::Owned(tree.reversed())
    } else {
        Cow::Borrowed(tree)
    };
    if fold {
        Cow::Owned(folded(&turned).tree)
    } else {
        turned
    }
}

/// Collapses recursion in `tree`.
pub(crate) fn folded(tree: &StackTree) -> FoldedTree {
    let count = tree.nodes().len();
    let mut folded = FoldedTree {
        tree: StackTree::default(),
        places: vec![ROOT; count],
        rounds: Vec::new(),
    };
    // For each node of the old tree, the number of cycles of a recursion that end there.
    let mut ended = vec![1_u32; count];
    // Callers precede callees.
    for (number, node) in tree.nodes().iter().enumerate().skip(1) {
        let at = folded.places[node.parent as usize];
        let place = match round(&folded.tree, at, node.label) {
            None => folded.tree.child(at, node.label),
            Some(functions) => {
                let end = up(&folded.tree, at, functions - 1);
                // The previous cycle ended at the nearest caller that became the same node.
                let mut before = node.parent;
                while folded.places[before as usize] != end {
                    before = tree.nodes()[before as usize].parent;
                }
                ended[number] = ended[before as usize].saturating_add(1);
                let first = up(&folded.tree, end, functions - 1) as usize;
                folded
                    .rounds
                    .resize(folded.tree.nodes().len(), Rounds::default());
                let rounds = &mut folded.rounds[first];
                if ended[number] > rounds.most {
                    *rounds = Rounds {
                        functions,
                        most: ended[number],
                    };
                }
                end
            }
        };
        folded.places[number] = place;
        folded.tree.add(place, node.count);
    }
    folded
        .rounds
        .resize(folded.tree.nodes().len(), Rounds::default());
    folded
}

/// The length of the cycle, ending with `label` called from `at`, that repeats the functions before it.
fn round(tree: &StackTree, at: NodeId, label: LabelId) -> Option<usize> {
    let mut outwards = [LabelId::MAX; 2 * ROUND_MAX];
    outwards[0] = label;
    let mut known = 1;
    for (slot, label) in outwards[1..].iter_mut().zip(tree.outwards(at)) {
        *slot = label;
        known += 1;
    }
    let is_round = |functions: &usize| {
        let (inner, outer) = outwards[..2 * functions].split_at(*functions);
        inner == outer
    };
    (1..=known / 2).find(is_round)
}

/// The node that is `calls` callers further out.
fn up(tree: &StackTree, node: NodeId, calls: usize) -> NodeId {
    (0..calls).fold(node, |at, _| tree.nodes()[at as usize].parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of stacks whose frames are letters, outermost first.
    fn tree(stacks: &[(&str, u64)]) -> StackTree {
        let mut tree = StackTree::default();
        for (stack, count) in stacks {
            let letters = stack.bytes().map(u32::from);
            let end = letters.fold(ROOT, |at, letter| tree.child(at, letter));
            tree.add(end, *count);
        }
        tree
    }

    fn stacks(tree: &StackTree) -> Vec<(String, u64)> {
        let nodes = tree.nodes().iter().enumerate();
        let mut stacks: Vec<(String, u64)> = nodes
            .filter(|(_, node)| node.count > 0)
            .map(|(number, node)| {
                let letters = tree.outwards(number as NodeId);
                let stack: String = letters.map(|letter| letter as u8 as char).collect();
                (stack.chars().rev().collect(), node.count)
            })
            .collect();
        stacks.sort();
        stacks
    }

    #[test]
    fn rounds_are_told_once_and_no_sample_is_lost() {
        let long = "m".to_owned() + &"abcdefgh".repeat(3);
        let longer = "m".to_owned() + &"abcdefghi".repeat(2);
        let cases = [
            ("mwwwl", "mwl", 1, 3),
            ("mababab", "mab", 2, 3),
            ("maabaab", "mab", 1, 2),
            ("mabac", "mabac", 0, 0),
            (&long, "mabcdefgh", 8, 3),
            (&longer, &longer, 0, 0),
        ];
        for (stack, expected, functions, most) in cases {
            let folded = folded(&tree(&[(stack, 7)]));
            assert_eq!(stacks(&folded.tree), [(expected.to_owned(), 7)]);
            // Behind `m` and the first function.
            assert_eq!(folded.rounds[2], Rounds { functions, most }, "{stack}");
        }
    }

    #[test]
    fn samples_of_all_depths_come_together() {
        let deep = "w".repeat(10_000);
        let before = tree(&[("mw", 1), ("mww", 2), ("mwwl", 4), ("mwl", 8), (&deep, 16)]);
        let folded = folded(&before);
        let expected = [("mw", 3), ("mwl", 12), ("w", 16)];
        let expected = expected.map(|(stack, count)| (stack.to_owned(), count));
        assert_eq!(stacks(&folded.tree), expected);
        assert_eq!(folded.tree.totals()[ROOT as usize], 31);
        assert_eq!(folded.places.len(), before.nodes().len());
        assert!(folded.rounds.iter().any(|rounds| rounds.most == 10_000));
    }
}
