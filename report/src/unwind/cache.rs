//! Rules that were looked up before, by pc. Most frames of a recording stand at few addresses, and
//! most rules say the same: CFA is a register plus a number, the return address and the frame
//! pointer lie at fixed places below it. Such a rule fits in its cache entry.

use uprof::FrameKind;

/// Entries; a power of two. 64 KiB in all, which stays in the second-level cache.
const ENTRIES: usize = 2048;

/// What to do at one pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing is known of this code.
    NoRule,
    /// The rule says that there is no caller.
    Root,
    /// Carry out the rule `rule` of module `module` in full.
    Full { module: u32, rule: u32 },
    /// The common case.
    Plain(Plain),
}

/// A rule that fits in a cache entry: CFA is a register plus a number, and what was saved lies near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) cfa_offset: i32,
    pub(super) cfa_register: u8,
    /// Where the return address lies.
    pub(super) return_address: Slot,
    /// Where the frame pointer lies.
    pub(super) frame_pointer: Slot,
    /// Other registers, and where they lie; those at the end may be [`Slot::KEPT`].
    pub(super) others: [(u8, Slot); OTHERS_MAX],
}

/// Registers besides the frame pointer that a [`Plain`] rule can restore. A third would make the
/// entry larger than half a cache line.
pub(super) const OTHERS_MAX: usize = 2;

/// A place on the stack in words from the CFA, or that the register kept its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(i16);

impl Slot {
    /// The register kept its value.
    pub(super) const KEPT: Slot = Slot(i16::MIN);

    /// The slot at `offset_bytes` from the CFA, if it is a whole word that is near enough.
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

/// Rules by pc, for one thread.
#[derive(Clone, Debug)]
pub struct Cache {
    keys: Box<[(u64, Action); ENTRIES]>,
    /// Of which unwinder the entries are.
    owner: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            keys: Box::new([(EMPTY, Action::NoRule); ENTRIES]),
            owner: 0,
        }
    }
}

/// No address has this key: it would be a return address of all ones.
const EMPTY: u64 = u64::MAX;

impl Cache {
    /// An empty cache.
    pub fn new() -> Cache {
        Cache::default()
    }

    /// Forgets everything if it was last used by another unwinder than `owner`.
    pub(super) fn serve(&mut self, owner: u64) {
        if self.owner != owner {
            self.keys.fill((EMPTY, Action::NoRule));
            self.owner = owner;
        }
    }

    /// The action at `address`, from `find` if it isn't known yet.
    #[inline]
    pub(super) fn action(
        &mut self,
        address: u64,
        kind: FrameKind,
        find: impl FnOnce() -> Action,
    ) -> Action {
        // The kind takes the place of the top bit, which repeats the one below it.
        let key = address << 1 | u64::from(kind == FrameKind::Return);
        // The next load waits for this, so it has to be short rather than thorough.
        let slot = (address ^ address >> 11) as usize & (ENTRIES - 1);
        let entry = &mut self.keys[slot];
        if entry.0 != key {
            *entry = (key, find());
        }
        entry.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_again_until_another_unwinder_comes() {
        let mut cache = Cache::new();
        let full = Action::Full { module: 1, rule: 2 };
        cache.serve(1);
        assert_eq!(cache.action(0x1000, FrameKind::Return, || full), full);
        assert_eq!(
            cache.action(0x1000, FrameKind::Return, || panic!("asked again")),
            full
        );
        let other = cache.action(0x1000, FrameKind::Exact, || Action::NoRule);
        assert_eq!(other, Action::NoRule);
        cache.serve(2);
        assert_eq!(
            cache.action(0x1000, FrameKind::Return, || Action::NoRule),
            Action::NoRule
        );
    }

    #[test]
    fn an_entry_fits_half_a_cache_line() {
        assert!(
            size_of::<(u64, Action)>() <= 32,
            "{}",
            size_of::<(u64, Action)>()
        );
    }
}
