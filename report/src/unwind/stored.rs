//! Conversion between a table of rules and its form in a recording; the encoding is in `uprof::image`.

use super::rows::Rows;
use super::signal;
use super::table::{NO_RULE, RuleTable};
use crate::images::call_frames::Skipped;
use crate::images::{Image, ImageAddress};
use std::collections::BTreeSet;
use uprof::Fault;
use uprof::image::{ImagePart, RuleRow, RuleSet, Rules};

impl RuleTable {
    /// The table with only the rows that hold at one of `addresses`, and with rows for code of `image` there that
    /// returns from a signal and has none.
    pub fn only_at(&self, addresses: &BTreeSet<ImageAddress>, image: Option<&Image>) -> RuleTable {
        let mut kept = RuleTable {
            base: self.base,
            set: self.set.clone(),
            skipped: self.skipped,
            ..RuleTable::default()
        };
        let signal = image.and_then(|image| signal::push(&mut kept.set, image.arch()));
        let returns = |at| image.is_some_and(|image| signal::returns_at(image, at));
        let mut last = None;
        // A trap's rule may be looked up one byte after the address that names the frame.
        let looked_up = addresses
            .iter()
            .flat_map(|address| [address.0, address.0.wrapping_add(1)]);
        for address in looked_up {
            let Ok(relative) = u32::try_from(address.wrapping_sub(self.base)) else {
                continue;
            };
            let at = ImageAddress(address);
            if let Some(rule) = signal.filter(|_| self.find(at).or(kept.find(at)).is_none())
                && returns(at)
            {
                kept.append(relative, relative.saturating_add(1), rule);
                continue;
            }
            let after = self.starts.partition_point(|start| *start <= relative);
            let Some(row) = after.checked_sub(1).filter(|row| last != Some(*row)) else {
                continue;
            };
            if self.row_rules[row] != NO_RULE && last.is_none_or(|last| last < row) {
                let end = self.starts.get(after).copied();
                kept.append(
                    self.starts[row],
                    end.unwrap_or(u32::MAX),
                    self.row_rules[row],
                );
                last = Some(row);
            }
        }
        kept
    }

    /// Adds a row after the last; the gap between has no rule.
    fn append(&mut self, start: u32, end: u32, rule: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.row_rules.pop();
        }
        self.starts.extend([start, end]);
        self.row_rules.extend([rule, NO_RULE]);
    }

    /// Puts the table into a part of an image.
    pub(crate) fn store(&self, part: &mut ImagePart) {
        let starts = || self.starts.iter().map(|start| self.at(*start));
        let ends = starts().skip(1).chain([self.at(u32::MAX)]);
        let rows = starts().zip(ends).zip(&self.row_rules);
        let rows = rows.filter(|(_, rule)| **rule != NO_RULE);
        let rows = rows.map(|((start, end), &rule)| RuleRow { start, end, rule });
        part.set_rules(&self.set, rows, self.returns());
    }

    fn at(&self, relative: u32) -> u64 {
        self.base.wrapping_add(u64::from(relative))
    }

    /// The table that a recording has.
    pub(crate) fn stored(mut rules: Rules<'_>) -> Result<RuleTable, Fault> {
        let set = std::mem::take(&mut rules.set);
        let table = RuleTable::of_rows(set, &mut rules.rows)?;
        let returns = rules.returns()?.map(Iterator::collect);
        Ok(table.with_returns(returns.transpose()?))
    }

    /// The table of these rows, which ascend; up to the first error.
    pub(crate) fn of_rows<E>(
        set: RuleSet,
        rows: impl IntoIterator<Item = Result<RuleRow, E>>,
    ) -> Result<RuleTable, E> {
        let mut rows = rows.into_iter().peekable();
        let base = match rows.peek() {
            Some(Ok(first)) => first.start,
            _ => 0,
        };
        let mut table = Rows::onto(set, base);
        for row in rows {
            let RuleRow { start, end, rule } = row?;
            table.push(start, rule);
            table.push(end, NO_RULE);
        }
        Ok(table.finish(Skipped::default()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::OnceLock;
    use uprof::image::{Cfa, ImageIdentity, Place, Section};

    fn own_table() -> &'static RuleTable {
        static TABLE: OnceLock<RuleTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
            RuleTable::compile(&image, None)
        })
    }

    /// The table as a recording stores it.
    fn stored(table: &RuleTable) -> ImagePart {
        let mut part = ImagePart::new(ImageIdentity {
            path: "/a".into(),
            build_id: Vec::new(),
            arch: uprof::Arch::X86_64,
            load_bias: 0,
            origin: "test".into(),
        });
        table.store(&mut part);
        part
    }

    /// The table that a recording gives back.
    fn survivor(table: &RuleTable) -> RuleTable {
        match stored(table).sections().next() {
            Some(Ok(Section::Rules(rules))) => RuleTable::stored(rules).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// What a rule says, without the numbers that differ from table to table.
    fn meaning(table: &RuleTable, address: u64) -> Option<String> {
        meaning_in(&table.set, table.find(ImageAddress(address))?)
    }

    /// What the rule of this number says.
    pub(in crate::unwind) fn meaning_in(set: &RuleSet, number: u32) -> Option<String> {
        let rule = set.rule(number)?;
        let cfa = match rule.cfa {
            Cfa::Expression(offset) => format!("{:?}", set.expression(offset)),
            cfa => format!("{cfa:?}"),
        };
        let saves = set.saves(rule).iter().map(|save| match save.place {
            Place::AtExpression(offset) | Place::IsExpression(offset) => {
                format!("{} {:?}", save.register, set.expression(offset))
            }
            place => format!("{} {place:?}", save.register),
        });
        let saves: Vec<String> = saves.collect();
        Some(format!(
            "{cfa} {} {} {saves:?}",
            rule.is_trap, rule.return_register
        ))
    }

    #[test]
    fn a_table_and_a_part_of_it_survive() {
        let table = own_table();
        let read = survivor(table);
        assert_eq!(read.len(), table.len());
        let step = (table.len() / 500).max(1);
        let chosen: BTreeSet<ImageAddress> = table
            .starts
            .iter()
            .step_by(step)
            .map(|start| ImageAddress(table.base + u64::from(*start)))
            .collect();
        let part = survivor(&table.only_at(&chosen, None));
        assert!(
            part.len() < table.len() / 2,
            "{} of {}",
            part.len(),
            table.len()
        );
        for address in chosen.iter().map(|address| address.0) {
            assert_eq!(
                meaning(&read, address),
                meaning(table, address),
                "{address:#x}"
            );
            assert_eq!(
                meaning(&part, address),
                meaning(table, address),
                "{address:#x}"
            );
        }
    }

    #[test]
    fn return_addresses_survive_with_rules_and_without() {
        let returns = Some(vec![0x10, 0x1234, u64::MAX]);
        for table in [own_table().clone(), RuleTable::default()] {
            let table = table.with_returns(returns.clone());
            let read = survivor(&table);
            assert_eq!(
                (read.returns(), read.len()),
                (returns.as_deref(), table.len())
            );
        }
    }
}
