//! Finds a node of a growing stack table by its parent and frame.
//!
//! An open hash table of node numbers only. The keys are in the nodes, so a lookup reads one slot of four bytes and one
//! node. At most half of the slots are used.

/// The number of no node.
pub(crate) const NONE: u32 = u32::MAX;

const FEWEST_SLOTS: usize = 1 << 10;

/// Node numbers by hash.
pub(crate) struct ChildIndex {
    /// A power of two of slots; [`NONE`] in an empty one.
    slots: Vec<u32>,
    used: usize,
}

impl Default for ChildIndex {
    fn default() -> Self {
        ChildIndex {
            slots: vec![NONE; FEWEST_SLOTS],
            used: 0,
        }
    }
}

impl ChildIndex {
    /// Removes all nodes, but keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(NONE);
        self.used = 0;
    }

    /// The node with this hash for which `is_it` holds. If there is none, `new` is inserted.
    #[inline]
    pub fn find_or_insert(
        &mut self,
        hash: u64,
        new: u32,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.start(hash);
        loop {
            let node = self.slots[at];
            if node == NONE {
                self.slots[at] = new;
                self.used += 1;
                return None;
            }
            if is_it(node) {
                return Some(node);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Whether it must [`ChildIndex::grow`] before the next node is inserted.
    pub fn is_half_full(&self) -> bool {
        self.used * 2 >= self.slots.len()
    }

    /// Doubles the number of slots; `hashes` are those of all nodes, in order of their numbers.
    pub fn grow(&mut self, hashes: impl Iterator<Item = u64>) {
        let room = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(room, NONE);
        for (node, hash) in hashes.enumerate() {
            let mut at = self.start(hash);
            while self.slots[at] != NONE {
                at = (at + 1) & (room - 1);
            }
            self.slots[at] = node as u32;
        }
    }

    fn start(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }
}
