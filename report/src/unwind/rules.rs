//! The unwind rules of one image as unwinding asks for them. Input: an address. Output: a rule, from one table of all
//! rows or from those of single functions.

use super::expression::registers_read;
use super::functions::FunctionRules;
use super::table::RuleTable;
use crate::images::{Image, ImageAddress};
use std::borrow::Cow;
use std::sync::Arc;
use uprof::image::{Cfa, Place, Rule, RuleSet};

/// The unwind rules of one image.
#[derive(Debug)]
pub enum UnwindRules {
    /// All rows, as a recording or a kernel's ORC has them.
    Table(RuleTable),
    /// Functions that are compiled when first needed.
    Functions(Box<FunctionRules>),
}

impl Default for UnwindRules {
    fn default() -> Self {
        UnwindRules::Table(RuleTable::default())
    }
}

impl From<RuleTable> for UnwindRules {
    fn from(table: RuleTable) -> UnwindRules {
        UnwindRules::Table(table)
    }
}

/// A rule of [`UnwindRules`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRule<'r> {
    /// The number of its table.
    pub(super) part: u32,
    /// The rules of that table.
    pub(super) set: &'r RuleSet,
    /// Its number among them.
    pub(super) number: u32,
}

impl UnwindRules {
    /// The rules of [`RuleTable::compile`], compiled function by function when first needed.
    pub fn of(image: &Arc<Image>, debug: Option<&Arc<Image>>) -> UnwindRules {
        if let Some(table) = RuleTable::of_orc(image) {
            return table.into();
        }
        FunctionRules::of(image, debug).map_or_else(
            || RuleTable::compile(image, debug.map(|debug| &**debug)).into(),
            |functions| UnwindRules::Functions(Box::new(functions)),
        )
    }

    /// All rules, compiled now if they weren't.
    pub fn table(&self) -> Cow<'_, RuleTable> {
        match self {
            UnwindRules::Table(table) => Cow::Borrowed(table),
            UnwindRules::Functions(functions) => {
                let (image, debug) = functions.files();
                Cow::Owned(RuleTable::compile(image, debug))
            }
        }
    }

    /// The ranges of all functions that the image describes itself, ascending, if they are known.
    pub(crate) fn function_ranges(&self) -> Option<Vec<(u64, u64)>> {
        match self {
            UnwindRules::Table(_) => None,
            UnwindRules::Functions(functions) => functions.ranges(),
        }
    }

    /// The verified return addresses, ascending, if any were verified.
    pub(crate) fn returns(&self) -> Option<&[u64]> {
        match self {
            UnwindRules::Table(table) => table.returns(),
            UnwindRules::Functions(_) => None,
        }
    }

    /// Whether they are an image's, which may have none at all.
    pub(super) fn are_of_image(&self) -> bool {
        match self {
            UnwindRules::Functions(_) => true,
            UnwindRules::Table(table) => {
                !table.is_made && (table.returns().is_some() || !table.is_empty())
            }
        }
    }

    /// Whether there is a rule at `address`.
    pub fn covers(&self, address: ImageAddress) -> bool {
        self.find(address).is_some()
    }

    /// The rule at `address`.
    pub(super) fn find(&self, address: ImageAddress) -> Option<FoundRule<'_>> {
        let (part, table) = match self {
            UnwindRules::Table(table) => (0, table),
            UnwindRules::Functions(functions) => {
                let part = functions.part_of(address);
                (part, functions.part(part))
            }
        };
        let number = table.find(address)?;
        let set = &table.set;
        Some(FoundRule { part, set, number })
    }

    /// The rule of the code at `address`, if this returns from a signal.
    pub(super) fn find_signal(&self, address: ImageAddress) -> Option<FoundRule<'_>> {
        let UnwindRules::Functions(functions) = self else {
            return None;
        };
        let part = functions.signal_part(address)?;
        let set = &functions.part(part).set;
        Some(FoundRule {
            part,
            set,
            number: 0,
        })
    }

    /// The rules of the table that [`FoundRule::part`] names.
    pub(super) fn set(&self, part: u32) -> &RuleSet {
        match self {
            UnwindRules::Table(table) => &table.set,
            UnwindRules::Functions(functions) => &functions.part(part).set,
        }
    }
}

impl<'r> FoundRule<'r> {
    /// The rule itself.
    pub(super) fn rule(&self) -> Option<&'r Rule> {
        self.set.rule(self.number)
    }

    /// The registers on which its CFA or some other register depends, as a bit set.
    pub(super) fn registers_needed(&self) -> u64 {
        let Some(rule) = self.rule() else { return 0 };
        let bit = |register: u8| 1u64.checked_shl(u32::from(register)).unwrap_or(0);
        let of_expression = |offset| registers_read(self.set.expression(offset));
        let cfa = match rule.cfa {
            Cfa::Register { register, .. } => bit(register),
            Cfa::Expression(offset) => of_expression(offset),
        };
        let places = self.set.saves(rule).iter().map(|save| match save.place {
            Place::Register(register) => bit(register),
            Place::AtExpression(offset) | Place::IsExpression(offset) => of_expression(offset),
            Place::Lost | Place::AtCfa(_) | Place::IsCfa(_) => 0,
        });
        places.fold(cfa, |all, one| all | one)
    }
}
