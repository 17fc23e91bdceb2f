//! Unwound stacks of one block, each kept once: most samples' stacks occurred before, and need one lookup instead of
//! one for each frame and its mapping.

use crate::stacks::unwinders::View;
use std::hash::Hasher;
use uprof::{Found, Frame, FrameKind, WordHasher, WordMap};

#[derive(Debug)]
struct Node {
    parent: Option<u32>,
    view: u32,
    address: u64,
    kind: FrameKind,
    found: Found,
    /// Its number in the block's own stack table.
    local: u32,
}

/// Stacks seen so far.
#[derive(Debug, Default)]
pub(super) struct Chains {
    views: WordMap<View, u32>,
    nodes: Vec<Node>,
    /// Innermost nodes by the hash of their whole stack, which is compared before use.
    whole: WordMap<u64, u32>,
    /// Nodes by parent and view, address and kind.
    children: WordMap<(u64, u64, u32), u32>,
}

impl Chains {
    /// The local number of the stack `frames` (innermost first) in `view`; `add` makes one for a new frame and its
    /// caller.
    pub(crate) fn intern(
        &mut self,
        view: View,
        frames: &[Frame],
        mut add: impl FnMut(Option<u32>, Frame) -> u32,
    ) -> Option<u32> {
        let next = self.views.len() as u32;
        let view = *self.views.entry(view).or_insert(next);
        let mut hasher = WordHasher::default();
        hasher.write_u32(view);
        for frame in frames {
            hasher.write_u64(frame.address ^ u64::from(origin(frame)) << 56);
        }
        let hash = hasher.finish();
        if let Some(&node) = self.whole.get(&hash)
            && self.is_it(node, view, frames)
        {
            return Some(self.nodes[node as usize].local);
        }
        let mut parent: Option<u32> = None;
        for frame in frames.iter().rev() {
            let above = parent.map_or(0, |parent| u64::from(parent) + 1);
            let key = (
                above << 32 | u64::from(view),
                frame.address,
                u32::from(origin(frame)),
            );
            let next = self.nodes.len() as u32;
            let node = *self.children.entry(key).or_insert(next);
            if node == next {
                let above = parent.map(|parent| self.nodes[parent as usize].local);
                self.nodes.push(Node {
                    parent,
                    view,
                    address: frame.address,
                    kind: frame.kind,
                    found: frame.found,
                    local: add(above, *frame),
                });
            }
            parent = Some(node);
        }
        let node = parent?;
        self.whole.insert(hash, node);
        Some(self.nodes[node as usize].local)
    }

    fn is_it(&self, node: u32, view: u32, frames: &[Frame]) -> bool {
        let mut at = Some(node);
        for frame in frames {
            let Some(node) = at.map(|at| &self.nodes[at as usize]) else {
                return false;
            };
            let same = node.address == frame.address && node.kind == frame.kind;
            if !same || node.found != frame.found || node.view != view {
                return false;
            }
            at = node.parent;
        }
        at.is_none()
    }
}

/// What a frame's address is, and how it was found.
fn origin(frame: &Frame) -> u8 {
    frame.kind.number() << 7 | frame.found.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_stack_is_one_and_others_share_their_outer_frames() {
        let mut chains = Chains::default();
        let mut made: Vec<(Option<u32>, u64)> = Vec::new();
        let mut intern = |view: View, addresses: &[u64]| {
            let frames: Vec<Frame> = addresses
                .iter()
                .map(|address| Frame::return_address(*address))
                .collect();
            chains.intern(view, &frames, |parent, frame| {
                made.push((parent, frame.address));
                made.len() as u32 - 1
            })
        };
        let view = (1, 0, 0);
        let first = intern(view, &[3, 2, 1]);
        assert_eq!(intern(view, &[3, 2, 1]), first);
        assert_eq!(intern(view, &[4, 2, 1]), Some(3));
        // Another space's addresses lead elsewhere.
        assert_eq!(intern((2, 0, 0), &[3, 2, 1]), Some(6));
        assert_eq!(intern(view, &[2, 1]), Some(1));
        assert_eq!(intern(view, &[]), None);
        assert_eq!(
            made[..4],
            [(None, 1), (Some(0), 2), (Some(1), 3), (Some(1), 4)]
        );
    }
}
