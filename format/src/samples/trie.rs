//! The stack table of a block: chains as paths from the outermost frame to a node (format-spec.md, section 5.2).
//!
//! Chains that share their outer frames share nodes, so a block holds each path once.

use crate::error::Fault;
use crate::layout::{MAX_FRAMES, MAX_NODES};
use crate::samples::child_index::{ChildIndex, NONE};
use crate::samples::sample::{Found, Frame, FrameKind};
use crate::samples::successors::{FrameNumber, Successors};
use crate::varint::{self, Cursor};
use crate::word_hash::{WordHasher, WordMap};
use std::hash::Hasher;

/// One frame of the stack table, with the frame that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Index of the caller's node, always lower than this node's own; `None` for an outermost frame.
    pub parent: Option<u32>,
    /// The frame.
    pub frame: Frame,
}

/// The part of a node that a chain is compared with. It is small, since whole paths of it are read per sample.
#[derive(Clone, Copy)]
struct Grown {
    address: u64,
    parent: u32,
    kind: u8,
}

/// The part of a node that the walk at the end needs.
#[derive(Clone, Copy)]
struct Links {
    frame: FrameNumber,
    first_child: u32,
    next_sibling: u32,
    /// Whether a chain ends here; after the walk, its number among such nodes plus 1.
    end: u32,
}

/// Builds the stack table of one block.
pub(crate) struct TrieBuilder {
    /// Whole chains by hash, verified against the nodes. In the common case this is one lookup.
    chains: WordMap<u64, u32>,
    children: ChildIndex,
    successors: Successors,
    nodes: Vec<Grown>,
    links: Vec<Links>,
    first_root: u32,
}

impl Grown {
    fn hash(&self) -> u64 {
        let mut hasher = WordHasher::default();
        hasher.write_u64(self.address);
        hasher.write_u64(u64::from(self.parent) << 8 | u64::from(self.kind));
        hasher.finish()
    }

    fn is(&self, frame: Frame) -> bool {
        self.address == frame.address && self.kind == frame.kind_byte()
    }
}

/// The columns of a stack table.
#[derive(Default)]
pub(crate) struct TrieColumns {
    pub steps: Vec<u8>,
    pub places: Vec<u8>,
    pub addresses: Vec<u8>,
    pub kinds: Vec<u8>,
}

impl TrieColumns {
    fn clear(&mut self) {
        self.steps.clear();
        self.places.clear();
        self.addresses.clear();
        self.kinds.clear();
    }
}

impl Default for TrieBuilder {
    fn default() -> Self {
        TrieBuilder {
            chains: WordMap::default(),
            children: ChildIndex::default(),
            successors: Successors::default(),
            nodes: Vec::new(),
            links: Vec::new(),
            first_root: NONE,
        }
    }
}

impl TrieBuilder {
    /// Removes all chains, but keeps the memory.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.children.clear();
        self.successors.clear();
        self.nodes.clear();
        self.links.clear();
        self.first_root = NONE;
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of the innermost frame of `chain` (innermost first); `None` for an empty chain.
    pub fn intern(&mut self, chain: &[Frame]) -> Option<u32> {
        let mut hasher = WordHasher::default();
        for frame in chain {
            hasher.write_u64(frame.address ^ u64::from(frame.kind_byte()).rotate_left(56));
        }
        let hash = hasher.finish();
        if let Some(&node) = self.chains.get(&hash)
            && self.is_chain(node, chain)
        {
            return Some(node);
        }
        // The chain is new, or another one has the same hash.
        let mut parent = NONE;
        for frame in chain.iter().rev() {
            parent = self.child(parent, *frame);
        }
        let links = self.links.get_mut(parent as usize)?;
        links.end = 1;
        self.chains.insert(hash, parent);
        Some(parent)
    }

    fn is_chain(&self, node: u32, chain: &[Frame]) -> bool {
        let mut next = node;
        for frame in chain {
            match self.nodes.get(next as usize) {
                Some(node) if node.is(*frame) => next = node.parent,
                _ => return false,
            }
        }
        next == NONE
    }

    fn child(&mut self, parent: u32, frame: Frame) -> u32 {
        let newest = match self.links.get(parent as usize) {
            Some(parent) => parent.first_child,
            None => self.first_root,
        };
        // Most often a chain takes the same path as the previous one.
        if let Some(node) = self.nodes.get(newest as usize)
            && node.is(frame)
        {
            return newest;
        }
        if self.children.is_half_full() {
            self.children.grow(self.nodes.iter().map(Grown::hash));
        }
        let grown = Grown {
            address: frame.address,
            parent,
            kind: frame.kind_byte(),
        };
        let new = self.nodes.len() as u32;
        let is_it = |node: u32| {
            let node = &self.nodes[node as usize];
            node.parent == parent && node.is(frame)
        };
        if let Some(node) = self.children.find_or_insert(grown.hash(), new, is_it) {
            return node;
        }
        match self.links.get_mut(parent as usize) {
            Some(parent) => parent.first_child = new,
            None => self.first_root = new,
        }
        self.nodes.push(grown);
        self.links.push(Links {
            frame: self.successors.number(frame),
            first_child: NONE,
            next_sibling: newest,
            end: 0,
        });
        new
    }

    /// Writes the table, with callers before their callees and each right before its first callee. From then on
    /// [`TrieBuilder::end_number`] returns how rows refer to it.
    pub fn columns(&mut self, columns: &mut TrieColumns) {
        columns.clear();
        let mut ends = 0;
        let mut up = 0;
        let mut at = self.first_root;
        while let Some(links) = self.links.get_mut(at as usize) {
            let is_end = links.end != 0;
            if is_end {
                ends += 1;
                links.end = ends;
            }
            let frame = links.frame;
            varint::put(&mut columns.steps, up << 1 | u64::from(is_end));
            let parent = self.nodes[at as usize].parent;
            let caller = self.links.get(parent as usize);
            let caller = caller.map_or(0, |caller| caller.frame);
            let place = self.successors.place(caller, frame);
            varint::put(&mut columns.places, place as u64);
            // Only a frame that is new below its caller needs its address and kind.
            if place == 0 {
                let from = self.successors.frame(caller).address;
                let node = &self.nodes[at as usize];
                varint::put_delta(&mut columns.addresses, from, node.address);
                columns.kinds.push(node.kind);
            }
            (at, up) = self.after(at);
        }
    }

    /// The node that follows `node` in the walk, and how many levels up its parent is.
    fn after(&self, mut node: u32) -> (u32, u64) {
        let first_child = self.links[node as usize].first_child;
        if first_child != NONE {
            return (first_child, 0);
        }
        let mut up = 1;
        while let Some(links) = self.links.get(node as usize) {
            if links.next_sibling != NONE {
                return (links.next_sibling, up);
            }
            node = self.nodes[node as usize].parent;
            up += 1;
        }
        (NONE, 0)
    }

    /// How a row refers to the chain that ends at `node`: 0 for an empty one, otherwise its number among the nodes at
    /// which chains end, plus 1.
    pub fn end_number(&self, node: Option<u32>) -> u32 {
        let links = node.and_then(|node| self.links.get(node as usize));
        links.map_or(0, |links| links.end)
    }
}

/// A stack table that was read.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    pub nodes: Vec<Node>,
    /// The nodes at which chains end, in order.
    pub ends: Vec<u32>,
}

/// The columns of a stack table, and the nodes that were read from them.
pub(crate) struct TableReader<'a> {
    pub steps: Cursor<'a>,
    pub places: Cursor<'a>,
    pub addresses: Cursor<'a>,
    pub kinds: Cursor<'a>,
}

impl TableReader<'_> {
    /// Reads the table. Every parent comes before its child, so no chain can be cyclic. Without the limit on depth, a
    /// row of two bytes could request a walk over the whole table.
    pub fn read(mut self) -> Result<StackTable, Fault> {
        let mut table = StackTable::default();
        // Each node has at least one byte, and nearly all have one.
        let most = self.steps.remaining().min(MAX_NODES);
        table.nodes.reserve_exact(most);
        // Each frame that is new has a kind.
        let mut successors = Successors::with_capacity(self.kinds.remaining().min(MAX_NODES));
        // The nodes of the path to the last node, and the numbers of their frames.
        let mut path: Vec<(u32, FrameNumber)> = Vec::new();
        while !self.steps.is_empty() {
            let step = self.steps.varint()?;
            let depth = self.depth(path.len(), step >> 1)?;
            path.truncate(depth);
            let parent = path.last().copied();
            let caller = parent.map_or(0, |(_, number)| number);
            let number = self.frame(&mut successors, caller)?;
            let index = table.nodes.len() as u32;
            if table.nodes.len() == MAX_NODES {
                return Err(out_of_range("number of stack nodes", u64::from(index) + 1));
            }
            table.nodes.push(Node {
                parent: parent.map(|(node, _)| node),
                frame: successors.frame(number),
            });
            path.push((index, number));
            if step & 1 == 1 {
                table.ends.push(index);
            }
        }
        Ok(table)
    }

    /// The depth of the next node's parent, `up` levels above the last node.
    fn depth(&self, last: usize, up: u64) -> Result<usize, Fault> {
        let up = usize::try_from(up).unwrap_or(usize::MAX);
        match last.checked_sub(up) {
            Some(depth) if depth < MAX_FRAMES => Ok(depth),
            _ => Err(out_of_range("step in the stack table", up as u64)),
        }
    }

    fn frame(
        &mut self,
        successors: &mut Successors,
        caller: FrameNumber,
    ) -> Result<FrameNumber, Fault> {
        let place = self
            .places
            .varint_up_to(64, "a place in a list of successors")?;
        if place > 0 {
            let known = successors.at(caller, place);
            return known.ok_or_else(|| out_of_range("successor", place as u64));
        }
        let from = successors.frame(caller).address;
        let address = self.addresses.delta(from)?;
        let frame = Frame {
            address,
            ..kind(self.kinds.byte()?)?
        };
        let number = successors.number(frame);
        match successors.place(caller, number) {
            0 => Ok(number),
            place => Err(out_of_range("new successor", place as u64)),
        }
    }
}

fn out_of_range(what: &'static str, value: u64) -> Fault {
    Fault::Range {
        what,
        value,
        rule: "see section 5.2 of format-spec.md",
    }
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
