//! How frames were found. A node of a stack tree stands for many frames, so each node keeps all the ways.

use crate::profile::tree::NodeId;
use uprof::Found;

/// For each node, a set of [`Found`]: one bit for each of its numbers.
#[derive(Debug, Default)]
pub(crate) struct FoundBy {
    bits: Vec<u8>,
}

impl FoundBy {
    /// Notes that a frame of `node` was found this way.
    pub(crate) fn add(&mut self, node: NodeId, found: Found) {
        self.add_bits(node, 1 << found.number());
    }

    /// Notes that frames of `node` were found in all of these ways.
    pub(crate) fn add_bits(&mut self, node: NodeId, bits: u8) {
        let at = node as usize;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        self.bits[at] |= bits;
    }

    /// The bits of a node; zero if it is unknown how its frames were found.
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
