//! How frames were found: for each node of a stack tree all ways in which its frame was.

use crate::profile::tree::NodeId;
use uprof::Found;

/// Of each node, a bit for each number of a [`Found`].
#[derive(Debug, Default)]
pub(crate) struct FoundBy {
    bits: Vec<u8>,
}

impl FoundBy {
    /// The frame of `node` was found so.
    pub(crate) fn add(&mut self, node: NodeId, found: Found) {
        self.add_bits(node, 1 << found.number());
    }

    /// The frame of `node` was found in all of these ways.
    pub(crate) fn add_bits(&mut self, node: NodeId, bits: u8) {
        let at = node as usize;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        self.bits[at] |= bits;
    }

    /// The bits of a node; none where nobody says how its frame was found.
    pub(crate) fn bits(&self, node: NodeId) -> u8 {
        self.bits.get(node as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_may_be_found_in_several_ways() {
        let mut found = FoundBy::default();
        found.add(2, Found::Cfi);
        found.add(2, Found::FramePointer);
        assert_eq!([1, 2, 3].map(|node| found.bits(node)), [0, 0b11, 0]);
    }
}
