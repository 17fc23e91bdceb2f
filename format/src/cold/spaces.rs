//! Address spaces of a guest (format-spec.md, section 6.7): which roots of page tables there are, and
//! whose they are.

use serde::{Deserialize, Serialize};

/// Something that is known of an address space of a guest from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceEvent {
    /// Since when.
    pub time_ns: u64,
    /// Its number: [`space_of_root`].
    pub space: u32,
    /// The root of its page tables, as samples have it.
    pub root: u64,
    /// What is known.
    pub what: SpaceChange,
}

/// What is known of an address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpaceChange {
    /// It was in use.
    Seen,
    /// A process of the guest has it.
    Named {
        /// The guest's number for the process.
        pid: u32,
        /// What the process is called.
        name: String,
    },
}

/// Numbers from here on are of roots.
pub const FIRST_ROOT_SPACE: u32 = 1 << 31;

/// The number of the address space of a guest with this root (format-spec.md, section 5.7), where tasks have
/// `shared`, the number of what is common to all its spaces.
pub fn space_of_root(shared: u32, root: u64) -> u32 {
    let frame = (root >> 12) as u32;
    let below = (root as u32 & 0xfff) << 19;
    FIRST_ROOT_SPACE | frame ^ below ^ shared << 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_have_numbers_of_their_own() {
        assert_eq!(space_of_root(0, 0x1a2_b000), 0x8000_1a2b);
        assert_eq!(space_of_root(1, 0x1a2_b000), 0x8100_1a2b);
        assert_ne!(space_of_root(0, 0x1a2_b040), space_of_root(0, 0x1a2_b000));
    }
}
