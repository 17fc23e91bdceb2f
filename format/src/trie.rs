//! The stack table of a block: chains as paths from the outermost frame to a node
//! (format-spec.md, section 5.2).
//!
//! Chains that share their outer frames share nodes, so that a block holds each path once.

use crate::error::Fault;
use crate::layout::{MAX_FRAMES, MAX_NODES};
use crate::sample::{Found, Frame, FrameKind};
use crate::successors::{FrameNumber, Successors};
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

const NONE: u32 = u32::MAX;

/// A node of the table that is being built: numbers as they came, links for the walk at the end.
#[derive(Clone, Copy)]
struct Grown {
    frame: Frame,
    number: FrameNumber,
    parent: u32,
    first_child: u32,
    next_sibling: u32,
    /// Whether a chain ends here; then, after the walk, its number among such nodes plus 1.
    end: u32,
}

/// Builds the stack table of one block.
pub(crate) struct TrieBuilder {
    /// Whole chains seen, by hash, verified against the nodes: the common case is one look.
    chains: WordMap<u64, u32>,
    /// By parent and kind, and by address.
    children: WordMap<(u64, u64), u32>,
    successors: Successors,
    nodes: Vec<Grown>,
    first_root: u32,
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
            children: WordMap::default(),
            successors: Successors::default(),
            nodes: Vec::new(),
            first_root: NONE,
        }
    }
}

impl TrieBuilder {
    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.children.clear();
        self.successors.clear();
        self.nodes.clear();
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
        let mut parent = NONE;
        for frame in chain.iter().rev() {
            parent = self.child(parent, *frame);
        }
        let end = self.nodes.get_mut(parent as usize)?;
        end.end = 1;
        self.chains.insert(hash, parent);
        Some(parent)
    }

    fn is_chain(&self, node: u32, chain: &[Frame]) -> bool {
        let mut next = node;
        for frame in chain {
            match self.nodes.get(next as usize) {
                Some(node) if node.frame == *frame => next = node.parent,
                _ => return false,
            }
        }
        next == NONE
    }

    fn child(&mut self, parent: u32, frame: Frame) -> u32 {
        let newest = match self.nodes.get(parent as usize) {
            Some(parent) => parent.first_child,
            None => self.first_root,
        };
        // Most often a chain goes the way of the one before.
        if let Some(node) = self.nodes.get(newest as usize)
            && node.frame == frame
        {
            return newest;
        }
        let next = self.nodes.len() as u32;
        let key = (
            u64::from(parent) << 8 | u64::from(frame.kind_byte()),
            frame.address,
        );
        let node = *self.children.entry(key).or_insert(next);
        if node != next {
            return node;
        }
        match self.nodes.get_mut(parent as usize) {
            Some(parent) => parent.first_child = node,
            None => self.first_root = node,
        }
        self.nodes.push(Grown {
            frame,
            parent,
            first_child: NONE,
            next_sibling: newest,
            end: 0,
            number: self.successors.number(frame),
        });
        node
    }

    /// Writes the table, callers before what they called and each right before its first callee.
    /// From then on [`TrieBuilder::end_number`] knows how rows refer to it.
    pub fn columns(&mut self, columns: &mut TrieColumns) {
        columns.clear();
        let mut ends = 0;
        let mut up = 0;
        let mut at = if self.nodes.is_empty() {
            NONE
        } else {
            self.first_root
        };
        while let Some(node) = self.nodes.get_mut(at as usize) {
            let is_end = node.end != 0;
            if is_end {
                ends += 1;
                node.end = ends;
            }
            let node = *node;
            varint::put(&mut columns.steps, up << 1 | u64::from(is_end));
            let caller = self
                .nodes
                .get(node.parent as usize)
                .map_or(0, |parent| parent.number);
            let place = self.successors.place(caller, node.number);
            varint::put(&mut columns.places, place as u64);
            if place == 0 {
                let from = self.successors.frame(caller).address;
                varint::put_delta(&mut columns.addresses, from, node.frame.address);
                columns.kinds.push(node.frame.kind_byte());
            }
            (at, up) = self.after(node);
        }
    }

    /// The node that follows `node` in the walk, and how many levels up its parent is.
    fn after(&self, mut node: Grown) -> (u32, u64) {
        if node.first_child != NONE {
            return (node.first_child, 0);
        }
        let mut up = 1;
        while node.next_sibling == NONE {
            match self.nodes.get(node.parent as usize) {
                Some(parent) => node = *parent,
                None => return (NONE, 0),
            }
            up += 1;
        }
        (node.next_sibling, up)
    }

    /// How a row refers to the chain that ends at `node`: 0 for an empty one, else its number among
    /// the nodes at which chains end, plus 1.
    pub fn end_number(&self, node: Option<u32>) -> u32 {
        let node = node.and_then(|node| self.nodes.get(node as usize));
        node.map_or(0, |node| node.end)
    }
}

/// A stack table that was read.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    pub nodes: Vec<Node>,
    /// The nodes at which chains end, in order.
    pub ends: Vec<u32>,
}

/// The columns of a stack table, and what was read of them.
pub(crate) struct TableReader<'a> {
    pub steps: Cursor<'a>,
    pub places: Cursor<'a>,
    pub addresses: Cursor<'a>,
    pub kinds: Cursor<'a>,
}

impl TableReader<'_> {
    /// Reads the table. Every parent comes before its child, so no chain can be cyclic; without the
    /// limit on depth, a row of two bytes could ask for a walk over the whole table.
    pub fn read(mut self) -> Result<StackTable, Fault> {
        let mut table = StackTable::default();
        let mut successors = Successors::default();
        // Of the path to the last node: its nodes and the numbers of their frames.
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
            return known.ok_or(out_of_range("successor", place as u64));
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
