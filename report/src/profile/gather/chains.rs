//! Unwound stacks of one block, each kept once: most samples' stacks occurred before, and need one lookup instead of
//! one for each frame and its mapping. The outer frames of a stack may be a node of the block already: its base.

use std::hash::Hasher;
use uprof::{Frame, WordHasher, WordMap};

/// A frame of a stack of the block, with its callers.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalNode {
    pub parent: Option<u32>,
    /// The number of its place.
    pub place: u32,
    pub frame: Frame,
    /// The number of the view in which it has this place.
    pub view: u32,
}

/// Stacks seen so far.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Innermost nodes by the hash of their whole stack, which is compared before use.
    whole: WordMap<u64, u32>,
    /// Nodes by caller and view, address and origin.
    children: WordMap<(u64, u64, u32), u32>,
}

/// A map for about so many keys: to grow to that size would cost more than all else that is done with it.
pub(super) fn with_room<K, V>(keys: usize) -> WordMap<K, V> {
    WordMap::with_capacity_and_hasher(keys, Default::default())
}

/// The hash of a stack with these innermost frames.
pub(super) fn hash(view: u32, base: Option<u32>, frames: &[Frame]) -> u64 {
    let mut hasher = WordHasher::default();
    hasher.write_u64(above(base, view));
    for frame in frames {
        hasher.write_u64(frame.address ^ u64::from(origin(frame)) << 56);
    }
    hasher.finish()
}

impl Chains {
    /// No stacks, with room for so many.
    pub(super) fn with_capacity(stacks: usize) -> Chains {
        Chains {
            whole: with_room(stacks),
            children: with_room(stacks),
        }
    }

    /// The node of a stack that was seen before: `frames`, innermost first, that `base` called.
    pub(super) fn find(
        &self,
        hash: u64,
        nodes: &[LocalNode],
        (view, base): (u32, Option<u32>),
        frames: &[Frame],
    ) -> Option<u32> {
        let found = *self.whole.get(&hash)?;
        let mut at = Some(found);
        for frame in frames {
            let node = nodes.get(at? as usize)?;
            if node.frame != *frame || node.view != view {
                return None;
            }
            at = node.parent;
        }
        (at == base).then_some(found)
    }

    /// Keeps the node of a stack with this hash.
    pub(super) fn remember(&mut self, hash: u64, node: Option<u32>) {
        self.whole.extend(node.map(|node| (hash, node)));
    }

    /// The node of a frame that `caller` called.
    pub(super) fn child(&self, view: u32, caller: Option<u32>, frame: Frame) -> Option<u32> {
        self.children.get(&key(view, caller, frame)).copied()
    }

    /// Adds that.
    pub(super) fn add(&mut self, view: u32, caller: Option<u32>, frame: Frame, node: u32) {
        self.children.insert(key(view, caller, frame), node);
    }
}

fn key(view: u32, caller: Option<u32>, frame: Frame) -> (u64, u64, u32) {
    let origin = u32::from(origin(&frame));
    (above(caller, view), frame.address, origin)
}

fn above(caller: Option<u32>, view: u32) -> u64 {
    let caller = caller.map_or(0, |caller| u64::from(caller) + 1);
    caller << 32 | u64::from(view)
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
        let mut nodes: Vec<LocalNode> = Vec::new();
        let mut intern = |view: u32, base: Option<u32>, addresses: &[u64]| {
            let frames = addresses
                .iter()
                .map(|address| Frame::return_address(*address));
            let frames: Vec<Frame> = frames.collect();
            let hash = hash(view, base, &frames);
            if let Some(known) = chains.find(hash, &nodes, (view, base), &frames) {
                return (known, nodes.len());
            }
            let node = frames.iter().rev().fold(base, |parent, &frame| {
                let child = chains.child(view, parent, frame);
                Some(child.unwrap_or_else(|| {
                    let (place, new) = (0, nodes.len() as u32);
                    nodes.push(LocalNode {
                        parent,
                        place,
                        frame,
                        view,
                    });
                    chains.add(view, parent, frame, new);
                    new
                }))
            });
            chains.remember(hash, node);
            (node.unwrap(), nodes.len())
        };
        assert_eq!(intern(0, None, &[3, 2, 1]), (2, 3));
        assert_eq!(intern(0, None, &[3, 2, 1]), (2, 3));
        assert_eq!(intern(0, None, &[4, 2, 1]), (3, 4));
        // Another space's addresses lead elsewhere.
        assert_eq!(intern(1, None, &[3, 2, 1]), (6, 7));
        assert_eq!(intern(0, None, &[2, 1]), (1, 7));
        // What a node of the block called is the same stack, not one without callers.
        assert_eq!(intern(0, Some(1), &[3]), (2, 7));
        assert_eq!(intern(0, None, &[3]), (7, 8));
    }
}
