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
    /// Carry out the rule `rule` of module `module` in full.
    Full { module: u32, rule: u32 },
    /// The common case. Offsets are in bytes from the CFA; `None` means that the register kept
    /// its value.
    Plain {
        cfa_register: u8,
        cfa_offset: i32,
        return_address: Option<i32>,
        frame_pointer: Option<i32>,
    },
}

/// Rules by pc, for one thread.
#[derive(Clone, Debug)]
pub struct Cache {
    keys: Vec<(u64, Action)>,
    /// Of which unwinder the entries are.
    owner: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            keys: vec![(EMPTY, Action::NoRule); ENTRIES],
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
        // Fibonacci hashing: 2^64 divided by the golden ratio.
        let slot = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRIES.trailing_zeros());
        let entry = &mut self.keys[slot as usize & (ENTRIES - 1)];
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
