//! The unwind rules of one image in columns. Input: an address. Output: a rule. Rows are sorted by start; a row
//! without a rule ends the one before it. Addresses are relative to the image, so that one table is valid for every
//! load address.

use crate::images::ImageAddress;
use crate::images::call_frames::Skipped;
use uprof::image::{Cfa, Place, RuleSet, Save};

/// The number of a row without a rule.
pub(super) const NO_RULE: u32 = u32::MAX;

/// The compiled unwind rules of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTable {
    pub(super) base: u64,
    /// Start of each row, relative to `base`, ascending.
    pub(super) starts: Vec<u32>,
    /// For each row the number of a rule in `set`, or [`NO_RULE`].
    pub(super) row_rules: Vec<u32>,
    pub(super) set: RuleSet,
    pub(super) skipped: Skipped,
    /// If the image's code is not available: the verified return addresses, as addresses of the image, ascending.
    /// `None` if they weren't verified.
    pub(super) returns: Option<Vec<u64>>,
    /// Whether it is of code that was made at run time, and of no image.
    pub(super) is_made: bool,
}

impl RuleTable {
    /// The verified return addresses, ascending, if any were verified.
    pub(crate) fn returns(&self) -> Option<&[u64]> {
        self.returns.as_deref()
    }

    /// The table with these verified return addresses (ascending).
    pub(crate) fn with_returns(self, returns: Option<Vec<u64>>) -> RuleTable {
        RuleTable { returns, ..self }
    }

    /// The rules of Python's trampolines of x86-64, by the address and size of each (ascending), as `python3 -X perf`
    /// makes one for each function (3.12 and 3.13, Python/asm_trampoline.S): `sub $8, %rsp; call *%rcx; add $8, %rsp;
    /// ret`, where `endbr64` may be the first instruction. Those of other sizes are of later versions, and keep a frame
    /// pointer.
    pub(crate) fn of_python(trampolines: &[(u64, u64)]) -> RuleTable {
        let mut table = RuleTable {
            is_made: true,
            ..RuleTable::default()
        };
        let caller = Save {
            register: 16,
            place: Place::AtCfa(-8),
        };
        let mut rule = |offset_bytes| {
            let cfa = Cfa::Register {
                register: 7,
                offset_bytes,
            };
            table.set.push(cfa, false, 16, &[caller]).unwrap_or(NO_RULE)
        };
        let (outside, inside) = (rule(8), rule(16));
        let mut end = 0;
        for &(start, bytes) in trampolines
            .iter()
            .filter(|(_, bytes)| [11, 15].contains(bytes))
        {
            if table.starts.is_empty() {
                table.base = start;
            }
            let from = start.checked_sub(table.base).filter(|_| start >= end);
            let Some(from) = from.and_then(|from| u32::try_from(from).ok()) else {
                continue;
            };
            let Some(last) = from.checked_add(bytes as u32) else {
                continue;
            };
            if table.starts.last() == Some(&from) {
                // The end of the one before, as they may stand side by side.
                table.starts.pop();
                table.row_rules.pop();
            }
            // `sub` has 4 bytes, `call` 2, `add` 4 and `ret` 1.
            let sub = last - 11;
            table.starts.extend([from, sub + 4, sub + 10, last]);
            table.row_rules.extend([outside, inside, outside, NO_RULE]);
            end = start.saturating_add(bytes);
        }
        table
    }

    /// Number of rows: address ranges that share one rule.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Number of rows that have a rule.
    pub fn ranges(&self) -> usize {
        self.row_rules
            .iter()
            .filter(|rule| **rule != NO_RULE)
            .count()
    }

    /// Whether the image has no unwind rules.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Number of distinct rules.
    pub fn rule_count(&self) -> usize {
        self.set.len()
    }

    /// What was left out when the table was compiled.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Size of the columns in memory (bytes).
    pub fn size_bytes(&self) -> usize {
        self.starts.len() * 8 + self.set.size_bytes()
    }

    /// Number of the rule at `address`.
    pub(super) fn find(&self, address: ImageAddress) -> Option<u32> {
        let relative = u32::try_from(address.0.wrapping_sub(self.base)).ok()?;
        let row = self
            .starts
            .partition_point(|start| *start <= relative)
            .checked_sub(1)?;
        let rule = *self.row_rules.get(row)?;
        (rule != NO_RULE).then_some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::image::{Cfa, Place, Save};

    fn table() -> RuleTable {
        let mut set = RuleSet::default();
        for offset_bytes in [8, 16] {
            let cfa = Cfa::Register {
                register: 7,
                offset_bytes,
            };
            let place = Place::AtCfa(-8);
            set.push(
                cfa,
                false,
                16,
                &[Save {
                    register: 16,
                    place,
                }],
            );
        }
        RuleTable {
            base: 0x1000,
            starts: vec![0, 1, 0x10, 0x20],
            row_rules: vec![0, 1, NO_RULE, 0],
            set,
            ..RuleTable::default()
        }
    }

    #[test]
    fn rows_hold_until_the_next_and_gaps_have_no_rule() {
        let table = table();
        let found = |address| table.find(ImageAddress(address));
        assert_eq!(found(0xfff), None);
        assert_eq!(found(0x1000), Some(0));
        assert_eq!(found(0x100f), Some(1));
        assert_eq!(found(0x1010), None);
        assert_eq!(found(0x1020), Some(0));
        assert_eq!(found(u64::MAX), None);
    }
}
