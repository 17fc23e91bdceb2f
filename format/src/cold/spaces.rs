//! Address spaces of a guest (format-spec.md, section 6.7): page-table roots and the processes that use them.

use serde::{Deserialize, Serialize};

/// A fact about an address space of a guest, valid from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceEvent {
    /// Time at which the fact became known.
    pub time_ns: u64,
    /// Its number: [`space_of_root`].
    pub space: u32,
    /// The root of its page tables, as samples have it.
    pub root: u64,
    /// The fact.
    pub what: SpaceChange,
}

/// Name of the address space of the code that unpacks a Linux kernel, which is no process. Its number is 0.
pub const DECOMPRESSOR: &str = "decompressor";

/// A fact about an address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpaceChange {
    /// It was in use.
    Seen,
    /// A process of the guest uses it.
    Named {
        /// The process id in the guest.
        pid: u32,
        /// The name of the process.
        name: String,
    },
}

/// The meaning of an address-space number (format-spec.md, section 5.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSpace {
    /// The kernel's address space, which all processes of the recorder's machine share.
    Kernel,
    /// A process, by its id.
    Process(u32),
    /// The guest that a process runs under KVM, by the process's id.
    GuestOf(u32),
    /// All addresses of a guest from this boot to the next; the first boot is 0. If a guest has several page tables,
    /// the addresses that these have in common.
    Boot(u32),
    /// One of a guest's page tables, by the number that its root has.
    PageTables(u32),
}

impl AddressSpace {
    /// The address space with this number, in a recording of a guest or of processes.
    pub fn new(number: u32, is_guest: bool) -> AddressSpace {
        match number {
            FIRST_ROOT_SPACE.. if is_guest => AddressSpace::PageTables(number),
            _ if is_guest => AddressSpace::Boot(number),
            FIRST_ROOT_SPACE.. => AddressSpace::GuestOf(number - FIRST_ROOT_SPACE),
            0 => AddressSpace::Kernel,
            _ => AddressSpace::Process(number),
        }
    }

    /// The number of the boot, if it is one.
    pub fn boot(self) -> Option<u32> {
        match self {
            AddressSpace::Boot(number) => Some(number),
            AddressSpace::Kernel
            | AddressSpace::Process(_)
            | AddressSpace::GuestOf(_)
            | AddressSpace::PageTables(_) => None,
        }
    }
}

/// Address-space numbers from here on are derived from roots, and in a recording of processes from their guests.
pub const FIRST_ROOT_SPACE: u32 = 1 << 31;

/// Paths of the mappings of a process's guest (format-spec.md, section 6.4): all of it, code of its processes, and its
/// Linux kernel.
pub const GUEST_PATH: &str = "[guest]";
/// See [`GUEST_PATH`].
pub const GUEST_USER_PATH: &str = "[guest.user]";
/// See [`GUEST_PATH`].
pub const GUEST_KERNEL_PATH: &str = "[guest.kernel]";

/// The number of the address space of the guest that process `pid` runs under KVM (format-spec.md, section 6.4).
pub fn space_of_guest(pid: u32) -> u32 {
    FIRST_ROOT_SPACE | pid
}

/// The number of the address space with this root (format-spec.md, section 5.7). `shared` is the address space of the
/// guest's tasks, which stands for everything that all its address spaces have in common.
pub fn space_of_root(shared: u32, root: u64) -> u32 {
    let frame = (root >> 12) as u32;
    let below = (root as u32 & 0xfff) << 19;
    FIRST_ROOT_SPACE | frame ^ below ^ shared << 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_what_its_target_is() {
        let root = space_of_root(1, 0x1a2_b000);
        assert_eq!(
            AddressSpace::new(root, true),
            AddressSpace::PageTables(root)
        );
        assert_eq!(AddressSpace::new(1, true), AddressSpace::Boot(1));
        assert_eq!(AddressSpace::new(0, true).boot(), Some(0));
        assert_eq!(AddressSpace::new(0, false), AddressSpace::Kernel);
        assert_eq!(AddressSpace::new(17, false), AddressSpace::Process(17));
        let of_guest = AddressSpace::new(space_of_guest(17), false);
        assert_eq!(of_guest, AddressSpace::GuestOf(17));
    }

    #[test]
    fn roots_have_numbers_of_their_own() {
        assert_eq!(space_of_root(0, 0x1a2_b000), 0x8000_1a2b);
        assert_eq!(space_of_root(1, 0x1a2_b000), 0x8100_1a2b);
        assert_ne!(space_of_root(0, 0x1a2_b040), space_of_root(0, 0x1a2_b000));
    }
}
