//! A cache of rules by pc. Most frames of a recording are at few addresses, and most rules have the same form: the
//! CFA is a register plus a number, and the return address and the frame pointer are at fixed offsets from it. Such a
//! rule fits in its cache entry.

use uprof::{FrameKind, WordMap};

/// Entries; a power of two. 512 KiB in all, which stay in the second-level cache; four times as many are no faster.
const ENTRIES: usize = 1 << ENTRIES_BITS;
const ENTRIES_BITS: u32 = 14;

/// The action at one pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// There is no rule for this code.
    NoRule,
    /// The rule says that there is no caller.
    Root,
    /// The frame is the outermost, at the first byte of its function.
    Outermost,
    /// Apply the rule `rule` of module `module` in full.
    Full { module: u32, rule: RuleId },
    /// The common case.
    Plain(Plain),
}

/// A rule of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleId {
    /// The number of its table.
    pub(super) part: u32,
    /// Its number there.
    pub(super) number: u32,
}

/// A rule that fits in a cache entry: the CFA is a register plus a number, and saved registers are near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) cfa_offset: i32,
    pub(super) cfa_register: u8,
    /// The slot of the return address.
    pub(super) return_address: Slot,
    /// Other registers, and their slots; from the first that is [`Slot::KEPT`] on there are no more.
    pub(super) others: [u8; OTHERS_MAX],
    pub(super) slots: [Slot; OTHERS_MAX],
}

/// Registers that a [`Plain`] rule can restore. Another would make the entry larger than half a cache line.
pub(super) const OTHERS_MAX: usize = 3;

/// A place on the stack in words from the CFA, or that the register kept its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(i16);

impl Slot {
    /// The register kept its value.
    pub(super) const KEPT: Slot = Slot(i16::MIN);

    /// The slot at `offset_bytes` from the CFA, if it is aligned and near enough.
    pub(super) fn at(offset_bytes: i32) -> Option<Slot> {
        let words = i16::try_from(offset_bytes / 8).ok()?;
        (offset_bytes % 8 == 0 && words != i16::MIN).then_some(Slot(words))
    }

    /// Its address.
    #[inline]
    pub(super) fn address(self, cfa: u64) -> u64 {
        cfa.wrapping_add((i64::from(self.0) * 8).cast_unsigned())
    }
}

/// For whom an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    /// The number of the unwinder; 0 for none.
    pub(super) unwinder: u64,
    /// The registers that its steps restore, as a bit set.
    pub(super) needed: u64,
}

/// Most owners that are told apart; beyond them all entries are forgotten.
const OWNERS_MAX: usize = 4096;

/// The action at an address for one owner.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    /// The number of the owner; 0 for none.
    owner: u32,
    action: Action,
}

const EMPTY: Entry = Entry {
    key: 0,
    owner: 0,
    action: Action::NoRule,
};

/// Rules by pc, for one thread.
#[derive(Clone, Debug)]
pub struct Cache {
    entries: Vec<Entry>,
    /// The numbers of owners, and that of the one who is served.
    owners: WordMap<Owner, u32>,
    served: (Owner, u32),
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            entries: vec![EMPTY; ENTRIES],
            owners: WordMap::default(),
            served: (Owner::default(), 0),
        }
    }
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Cache {
        Cache::default()
    }

    /// From now on actions are those of `owner`.
    pub(super) fn serve(&mut self, owner: Owner) {
        if self.served.0 == owner {
            return;
        }
        if self.owners.len() == OWNERS_MAX {
            self.owners.clear();
            self.entries.fill(EMPTY);
        }
        let next = self.owners.len() as u32 + 1;
        self.served = (owner, *self.owners.entry(owner).or_insert(next));
    }

    /// The action at `address`, from `find` if it isn't cached.
    #[inline]
    pub(super) fn action(
        &mut self,
        address: u64,
        kind: FrameKind,
        find: impl FnOnce() -> Action,
    ) -> Action {
        // The kind replaces the top bit, which equals the one below it.
        let key = address << 1 | u64::from(kind == FrameKind::Return);
        // The next load depends on this hash, so it has to be fast rather than good.
        let slot = (address ^ address >> ENTRIES_BITS) as usize & (ENTRIES - 1);
        let owner = self.served.1;
        let entry = &mut self.entries[slot];
        if (entry.key, entry.owner) != (key, owner) {
            let action = find();
            *entry = Entry { key, owner, action };
        }
        entry.action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_again_by_its_unwinder_alone() {
        let mut cache = Cache::new();
        let rule = RuleId { part: 0, number: 2 };
        let full = Action::Full { module: 1, rule };
        let owner = |unwinder, needed| Owner { unwinder, needed };
        cache.serve(owner(1, 7));
        assert_eq!(cache.action(0x1000, FrameKind::Return, || full), full);
        assert_eq!(
            cache.action(0x1000, FrameKind::Return, || panic!("asked again")),
            full
        );
        let other = cache.action(0x1000, FrameKind::Exact, || Action::NoRule);
        assert_eq!(other, Action::NoRule);
        for other in [owner(2, 7), owner(2, 15)] {
            cache.serve(other);
            let found = cache.action(0x1000, FrameKind::Return, || Action::NoRule);
            assert_eq!(found, Action::NoRule);
            cache.serve(owner(2, 0));
            cache.action(0x1000, FrameKind::Return, || full);
        }
    }

    #[test]
    fn an_entry_fits_half_a_cache_line() {
        assert!(size_of::<Entry>() <= 32, "{}", size_of::<Entry>());
    }
}
