//! The unwind rules of one image in columns: an address goes in, a rule comes out. Rows are
//! sorted by start; a row without a rule ends the one before it. Everything is relative to the
//! image, so that one table serves every place it may be loaded at.

use super::expression::registers_read;
use super::rule::{Cfa, Place, Rule, Save};
use crate::images::ImageAddress;

/// Stands in the column of rules where the image has code but no rule.
pub(super) const NO_RULE: u32 = u32::MAX;

/// What was left out of a table, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Functions described at addresses where the image has no code, as GNU ld leaves at 0 for
    /// sections it has dropped.
    pub outside: u32,
    /// Functions of no length.
    pub empty: u32,
    /// Functions described twice, in both sections or by a linker's leftovers.
    pub repeated: u32,
    /// Functions whose description is damaged, wholly or from some row on.
    pub broken: u32,
}

/// The compiled unwind rules of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTable {
    pub(super) base: u64,
    /// Start of each row, relative to `base`, ascending.
    pub(super) starts: Vec<u32>,
    /// For each row an index into `rules`, or [`NO_RULE`].
    pub(super) row_rules: Vec<u32>,
    pub(super) rules: Vec<Rule>,
    pub(super) saves: Vec<Save>,
    /// Expressions, each behind its length in two bytes.
    pub(super) expressions: Vec<u8>,
    pub(super) skipped: Skipped,
    /// Where the image's code is not at hand: which return addresses were found to be some, as
    /// addresses of the image, ascending. `None` if nobody looked.
    pub(super) returns: Option<Vec<u64>>,
}

impl RuleTable {
    /// The return addresses that were found to be some, ascending, where somebody looked.
    pub fn returns(&self) -> Option<&[u64]> {
        self.returns.as_deref()
    }

    /// The table, knowing these return addresses (ascending).
    pub(crate) fn with_returns(self, returns: Option<Vec<u64>>) -> RuleTable {
        RuleTable { returns, ..self }
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

    /// Whether the image says nothing about unwinding.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Number of distinct rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// What was left out when the table was compiled.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Bytes that the columns take in memory.
    pub fn size_bytes(&self) -> usize {
        self.starts.len() * 8
            + self.rules.len() * size_of::<Rule>()
            + self.saves.len() * size_of::<Save>()
            + self.expressions.len()
    }

    /// Number of the rule that holds at `address`.
    pub(super) fn find(&self, address: ImageAddress) -> Option<u32> {
        let relative = u32::try_from(address.0.wrapping_sub(self.base)).ok()?;
        let row = self
            .starts
            .partition_point(|start| *start <= relative)
            .checked_sub(1)?;
        let rule = *self.row_rules.get(row)?;
        (rule != NO_RULE).then_some(rule)
    }

    pub(super) fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(number as usize)
    }

    pub(super) fn saves(&self, rule: &Rule) -> &[Save] {
        let start = rule.saves_start as usize;
        self.saves
            .get(start..start + usize::from(rule.saves_count))
            .unwrap_or(&[])
    }

    /// The expression at `offset`; empty, which has no value, if there is none.
    pub(super) fn expression(&self, offset: u32) -> &[u8] {
        let Some(rest) = self.expressions.get(offset as usize..) else {
            return &[];
        };
        let Some((length_bytes, rest)) = rest.split_first_chunk::<2>() else {
            return &[];
        };
        rest.get(..usize::from(u16::from_le_bytes(*length_bytes)))
            .unwrap_or(&[])
    }

    /// The registers on which some CFA or some other register depends, as a bit set. No other
    /// register has to be restored, since nothing will ever ask for it.
    pub(super) fn registers_needed(&self) -> u64 {
        let bit = |register: u8| 1u64.checked_shl(u32::from(register)).unwrap_or(0);
        let cfas = self.rules.iter().map(|rule| match rule.cfa {
            Cfa::Register { register, .. } => bit(register),
            Cfa::Expression(offset) => registers_read(self.expression(offset)),
        });
        let places = self.saves.iter().map(|save| match save.place {
            Place::Register(register) => bit(register),
            Place::AtExpression(offset) | Place::IsExpression(offset) => {
                registers_read(self.expression(offset))
            }
            Place::Lost | Place::AtCfa(_) | Place::IsCfa(_) => 0,
        });
        cfas.chain(places).fold(0, |all, one| all | one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RuleTable {
        let rule = |offset_bytes| Rule {
            cfa: Cfa::Register {
                register: 7,
                offset_bytes,
            },
            is_trap: false,
            return_register: 16,
            saves_start: 0,
            saves_count: 1,
        };
        RuleTable {
            base: 0x1000,
            starts: vec![0, 1, 0x10, 0x20],
            row_rules: vec![0, 1, NO_RULE, 0],
            rules: vec![rule(8), rule(16)],
            saves: vec![Save {
                register: 16,
                place: Place::AtCfa(-8),
            }],
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

    #[test]
    fn only_what_a_cfa_uses_is_needed() {
        assert_eq!(table().registers_needed(), 1 << 7);
    }
}
