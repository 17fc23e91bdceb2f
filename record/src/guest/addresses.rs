//! Sampled addresses of a kernel that need names, each once.

use std::collections::HashSet;

/// Most addresses remembered; later ones get no names.
const ADDRESSES_MAX: usize = 1 << 20;

/// Addresses seen, and which of them are new.
#[derive(Debug, Default)]
pub struct Addresses {
    seen: HashSet<u64>,
    new: Vec<u64>,
}

impl Addresses {
    /// Remembers `address`, if there is room.
    pub fn add(&mut self, address: u64) {
        if self.seen.len() < ADDRESSES_MAX && self.seen.insert(address) {
            self.new.push(address);
        }
    }

    /// Whether there are no new addresses.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty()
    }

    /// The new addresses since the last call, in order.
    pub fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_kernel_up_to_the_last_and_past_it() {
        let mut addresses = Addresses::default();
        let most = ADDRESSES_MAX as u64;
        (0..most + 1).for_each(|address| addresses.add(address));
        let new = addresses.take();
        assert_eq!((new.len() as u64, new.last()), (most, Some(&(most - 1))));
        [0, most]
            .into_iter()
            .for_each(|address| addresses.add(address));
        assert!(addresses.is_empty());
    }
}
