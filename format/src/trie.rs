//! The stack table of a block: chains as paths from the outermost frame to a node
//! (format-spec.md, section 5.2).
//!
//! Chains that share their outer frames share nodes, so that a block holds each path once.

use crate::error::Fault;
use crate::layout::{MAX_FRAMES, MAX_NODES};
use crate::sample::{Found, Frame, FrameKind};
use crate::varint::{self, Cursor};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One frame of the stack table, with the frame that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Index of the caller's node, always lower than this node's own; `None` for an outermost frame.
    pub parent: Option<u32>,
    /// The frame.
    pub frame: Frame,
}

/// Multiplies and folds: quick on the few words that a frame has. A guest that forges collisions
/// slows its own block down, which the limit on rows bounds.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15u64);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map whose keys are a few words.
pub(crate) type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// What a node is found by: its parent's number, its address, its kind byte, in two words.
type NodeKey = (u64, u64);

/// Builds the stack table of one block.
#[derive(Default)]
pub(crate) struct TrieBuilder {
    /// Whole chains seen, by hash, verified against the nodes: the common case is one look.
    chains: WordMap<u64, u32>,
    children: WordMap<NodeKey, u32>,
    nodes: Vec<Node>,
    parents: Vec<u8>,
    addresses: Vec<u8>,
    kinds: Vec<u8>,
}

fn kind_byte(frame: Frame) -> u8 {
    frame.kind.number() | frame.found.number() << 4
}

impl TrieBuilder {
    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.children.clear();
        self.nodes.clear();
        self.parents.clear();
        self.addresses.clear();
        self.kinds.clear();
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The three columns: parents, addresses, kinds.
    pub fn columns(&self) -> [&[u8]; 3] {
        [&self.parents, &self.addresses, &self.kinds]
    }

    /// The node of the innermost frame of `chain` (innermost first); `None` for an empty chain.
    pub fn intern(&mut self, chain: &[Frame]) -> Option<u32> {
        let mut hasher = WordHasher::default();
        for frame in chain {
            hasher.write_u64(frame.address ^ u64::from(kind_byte(*frame)).rotate_left(56));
        }
        let hash = hasher.finish();
        if let Some(&node) = self.chains.get(&hash)
            && self.is_chain(node, chain)
        {
            return Some(node);
        }
        let mut parent = None;
        for frame in chain.iter().rev() {
            parent = Some(self.child(parent, *frame));
        }
        self.chains.insert(hash, parent?);
        parent
    }

    fn is_chain(&self, node: u32, chain: &[Frame]) -> bool {
        let mut next = Some(node);
        for frame in chain {
            match next.map(|index| self.nodes[index as usize]) {
                Some(node) if node.frame == *frame => next = node.parent,
                _ => return false,
            }
        }
        next.is_none()
    }

    fn child(&mut self, parent: Option<u32>, frame: Frame) -> u32 {
        let number = parent.map_or(0, |parent| u64::from(parent) + 1);
        let key = (number << 8 | u64::from(kind_byte(frame)), frame.address);
        if let Some(&node) = self.children.get(&key) {
            return node;
        }
        let node = self.nodes.len() as u32;
        let from = parent.map_or(0, |parent| self.nodes[parent as usize].frame.address);
        // The distance back to the parent's number: 0 where a chain just goes on.
        varint::put(&mut self.parents, u64::from(node) - number);
        varint::put_delta(&mut self.addresses, from, frame.address);
        self.kinds.push(kind_byte(frame));
        self.nodes.push(Node { parent, frame });
        self.children.insert(key, node);
        node
    }
}

/// Reads a stack table. Every parent comes before its child, so no chain can be cyclic.
pub(crate) fn decode(
    parents: &mut Cursor<'_>,
    addresses: &mut Cursor<'_>,
    kinds: &mut Cursor<'_>,
) -> Result<Vec<Node>, Fault> {
    let count = kinds.remaining();
    if count > MAX_NODES {
        return Err(Fault::Range {
            what: "number of stack nodes",
            value: count as u64,
            rule: "at most 262,144",
        });
    }
    let mut nodes: Vec<Node> = Vec::with_capacity(count);
    // Without a limit on depth, a row of two bytes could ask for a walk over the whole table.
    let mut depths: Vec<u16> = Vec::with_capacity(count);
    for index in 0..count {
        let back = parents.varint_up_to(index, "a parent comes before its child")?;
        let parent = (index - back).checked_sub(1);
        let from = parent.map_or(0, |parent| nodes[parent].frame.address);
        let depth = parent.map_or(1, |parent| depths[parent] + 1);
        if usize::from(depth) > MAX_FRAMES {
            return Err(Fault::Range {
                what: "depth of a stack",
                value: u64::from(depth),
                rule: "at most 1,024 frames",
            });
        }
        depths.push(depth);
        let frame = Frame {
            address: addresses.delta(from)?,
            ..kind(kinds.byte()?)?
        };
        nodes.push(Node {
            parent: parent.map(|parent| parent as u32),
            frame,
        });
    }
    Ok(nodes)
}

fn kind(byte: u8) -> Result<Frame, Fault> {
    match (
        FrameKind::from_number(byte & 15),
        Found::from_number(byte >> 4),
    ) {
        (Some(kind), Some(found)) => Ok(Frame {
            address: 0,
            kind,
            found,
        }),
        _ => Err(Fault::Range {
            what: "node kind",
            value: u64::from(byte),
            rule: "see section 5.2",
        }),
    }
}
