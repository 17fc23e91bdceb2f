//! A table of rules as it is stored in a recording (format-spec.md, section 7, "rules"): encode and
//! decode, side by side. What is read is checked, so that a step can trust it.

use super::rows::Rows;
use super::rule::{Cfa, Place, REGISTERS_MAX, Rule, Save};
use super::table::{NO_RULE, RuleTable, Skipped};
use crate::images::ImageAddress;
use std::collections::{BTreeMap, BTreeSet};
use uprof::varint::{self, Cursor};

const CFA_REGISTER: u64 = 0;
const CFA_EXPRESSION: u64 = 1;
const IS_TRAP: u64 = 1;
const LOST: u64 = 0;
const AT_CFA: u64 = 1;
const IS_CFA: u64 = 2;
const IN_REGISTER: u64 = 3;
const AT_EXPRESSION: u64 = 4;
const IS_EXPRESSION: u64 = 5;

impl RuleTable {
    /// The table with only the rows that hold at one of `addresses`.
    pub fn only_at(&self, addresses: &BTreeSet<ImageAddress>) -> RuleTable {
        let mut kept = RuleTable {
            base: self.base,
            rules: self.rules.clone(),
            saves: self.saves.clone(),
            expressions: self.expressions.clone(),
            skipped: self.skipped,
            ..RuleTable::default()
        };
        let mut last = None;
        // A trap's rule may be looked up one byte behind what the frame is named by.
        let looked_up = addresses
            .iter()
            .flat_map(|address| [address.0, address.0.wrapping_add(1)]);
        for address in looked_up {
            let Ok(relative) = u32::try_from(address.wrapping_sub(self.base)) else {
                continue;
            };
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

    /// Adds a row behind the last; what lies between has no rule.
    fn append(&mut self, start: u32, end: u32, rule: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.row_rules.pop();
        }
        self.starts.extend([start, end]);
        self.row_rules.extend([rule, NO_RULE]);
    }

    /// Encodes the table; rules that no row refers to are left out.
    pub(crate) fn write(&self) -> Vec<u8> {
        if self.is_empty() && self.returns.is_none() {
            return Vec::new();
        }
        let mut expressions: BTreeMap<u32, u64> = BTreeMap::new();
        let mut rules: BTreeMap<u32, u64> = BTreeMap::new();
        for number in self.row_rules.iter().filter(|number| **number != NO_RULE) {
            rules.insert(*number, 0);
        }
        rules
            .values_mut()
            .zip(0..)
            .for_each(|(number, next)| *number = next);
        let used = || rules.keys().filter_map(|number| self.rule(*number));
        let places = used()
            .flat_map(|rule| self.saves(rule))
            .filter_map(|save| match save.place {
                Place::AtExpression(offset) | Place::IsExpression(offset) => Some(offset),
                _ => None,
            });
        let cfas = used().filter_map(|rule| match rule.cfa {
            Cfa::Expression(offset) => Some(offset),
            Cfa::Register { .. } => None,
        });
        expressions.extend(places.chain(cfas).map(|offset| (offset, 0)));
        expressions
            .values_mut()
            .zip(0..)
            .for_each(|(number, next)| *number = next);
        let mut out = Vec::new();
        varint::put(&mut out, expressions.len() as u64);
        for offset in expressions.keys() {
            let bytes = self.expression(*offset);
            varint::put(&mut out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        varint::put(&mut out, rules.len() as u64);
        used().for_each(|rule| self.write_rule(rule, &expressions, &mut out));
        self.write_rows(&rules, &mut out);
        if let Some(returns) = &self.returns {
            varint::put(&mut out, returns.len() as u64);
            let mut before = 0;
            for address in returns {
                varint::put(&mut out, address.wrapping_sub(before));
                before = *address;
            }
        }
        out
    }

    fn write_rule(&self, rule: &Rule, expressions: &BTreeMap<u32, u64>, out: &mut Vec<u8>) {
        let expression = |offset: &u32| expressions.get(offset).copied().unwrap_or(0);
        let (kind, register, number) = match &rule.cfa {
            Cfa::Register {
                register,
                offset_bytes,
            } => (CFA_REGISTER, *register, i64::from(*offset_bytes)),
            Cfa::Expression(offset) => (CFA_EXPRESSION, 0, expression(offset).cast_signed()),
        };
        varint::put(out, kind);
        varint::put(out, u64::from(register));
        varint::put_delta(out, 0, number.cast_unsigned());
        varint::put(out, if rule.is_trap { IS_TRAP } else { 0 });
        varint::put(out, u64::from(rule.return_register));
        varint::put(out, u64::from(rule.saves_count));
        for save in self.saves(rule) {
            let (place, number) = match &save.place {
                Place::Lost => (LOST, 0),
                Place::AtCfa(offset) => (AT_CFA, i64::from(*offset)),
                Place::IsCfa(offset) => (IS_CFA, i64::from(*offset)),
                Place::Register(register) => (IN_REGISTER, i64::from(*register)),
                Place::AtExpression(offset) => (AT_EXPRESSION, expression(offset).cast_signed()),
                Place::IsExpression(offset) => (IS_EXPRESSION, expression(offset).cast_signed()),
            };
            varint::put(out, u64::from(save.register));
            varint::put(out, place);
            varint::put_delta(out, 0, number.cast_unsigned());
        }
    }

    fn write_rows(&self, rules: &BTreeMap<u32, u64>, out: &mut Vec<u8>) {
        let ends = self.starts.iter().skip(1).copied().chain([u32::MAX]);
        let rows = self.starts.iter().zip(ends).zip(&self.row_rules);
        let rows = || rows.clone().filter(|(_, rule)| **rule != NO_RULE);
        varint::put(out, rows().count() as u64);
        let mut before = 0u64;
        for ((start, end), rule) in rows() {
            let start = self.base.wrapping_add(u64::from(*start));
            let end = self.base.wrapping_add(u64::from(end));
            varint::put(out, start.wrapping_sub(before));
            varint::put(out, end.wrapping_sub(start));
            varint::put(out, rules.get(rule).copied().unwrap_or(0));
            before = end;
        }
    }

    /// Decodes a table; `None` if it is damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Option<RuleTable> {
        let mut reader = Reader {
            cursor: Cursor::new(bytes, "rules"),
            expressions: Vec::new(),
        };
        let mut table = RuleTable::default();
        for _ in 0..reader.count()? {
            let length = reader.count()?;
            let expression = reader.cursor.take(length).ok()?;
            reader
                .expressions
                .push(u32::try_from(table.expressions.len()).ok()?);
            let length = u16::try_from(length).ok()?;
            table.expressions.extend_from_slice(&length.to_le_bytes());
            table.expressions.extend_from_slice(expression);
        }
        for _ in 0..reader.count()? {
            reader.rule(&mut table)?;
        }
        let rules = u32::try_from(table.rules.len()).ok()?;
        let mut rows: Option<Rows> = None;
        let mut end = 0u64;
        for _ in 0..reader.count()? {
            let start = end.checked_add(reader.cursor.varint().ok()?)?;
            end = start.checked_add(reader.cursor.varint().ok()?)?;
            let rule = u32::try_from(reader.cursor.varint().ok()?).ok()?;
            let rows = rows.get_or_insert_with(|| Rows::onto(std::mem::take(&mut table), start));
            if rule >= rules || end == start {
                return None;
            }
            rows.push(start, rule);
            rows.push(end, NO_RULE);
        }
        let mut returns = None;
        if !reader.cursor.is_empty() {
            let mut found = Vec::new();
            let mut before = 0u64;
            for _ in 0..reader.count()? {
                before = before.checked_add(reader.cursor.varint().ok()?)?;
                found.push(before);
            }
            returns = Some(found);
        }
        let table = rows.map_or(table, |rows| rows.finish(Skipped::default()));
        Some(table.with_returns(returns))
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    /// Offset of each expression in the table.
    expressions: Vec<u32>,
}

impl Reader<'_> {
    /// A count of things that take a byte each at least.
    fn count(&mut self) -> Option<usize> {
        let most = self.cursor.remaining();
        self.cursor
            .varint_up_to(most, "each takes a byte at least")
            .ok()
    }

    fn register(&mut self) -> Option<u8> {
        let most = REGISTERS_MAX - 1;
        self.cursor
            .varint_up_to(most, "registers end below 33")
            .ok()
            .map(|number| number as u8)
    }

    fn number(&mut self) -> Option<i64> {
        self.cursor.delta(0).ok().map(u64::cast_signed)
    }

    fn expression(&self, number: i64) -> Option<u32> {
        self.expressions.get(usize::try_from(number).ok()?).copied()
    }

    fn rule(&mut self, table: &mut RuleTable) -> Option<()> {
        let kind = self.cursor.varint().ok()?;
        let (register, number) = (self.register()?, self.number()?);
        let cfa = match kind {
            CFA_REGISTER => Cfa::Register {
                register,
                offset_bytes: i32::try_from(number).ok()?,
            },
            CFA_EXPRESSION => Cfa::Expression(self.expression(number)?),
            _ => return None,
        };
        let is_trap = self.cursor.varint().ok()? & IS_TRAP != 0;
        let return_register = self.register()?;
        let saves_start = u32::try_from(table.saves.len()).ok()?;
        let saves_count = self.count()?;
        for _ in 0..saves_count {
            let register = self.register()?;
            let kind = self.cursor.varint().ok()?;
            let number = self.number()?;
            let place = match kind {
                LOST => Place::Lost,
                AT_CFA => Place::AtCfa(i32::try_from(number).ok()?),
                IS_CFA => Place::IsCfa(i32::try_from(number).ok()?),
                IN_REGISTER => {
                    let source = u8::try_from(number).ok()?;
                    Place::Register((usize::from(source) < REGISTERS_MAX).then_some(source)?)
                }
                AT_EXPRESSION => Place::AtExpression(self.expression(number)?),
                IS_EXPRESSION => Place::IsExpression(self.expression(number)?),
                _ => return None,
            };
            table.saves.push(Save { register, place });
        }
        table.rules.push(Rule {
            cfa,
            is_trap,
            return_register,
            saves_start,
            saves_count: u8::try_from(saves_count).ok()?,
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Image;
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn own_table() -> &'static RuleTable {
        static TABLE: OnceLock<RuleTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
            RuleTable::compile(&image, None)
        })
    }

    /// What a rule says, without the numbers that differ from table to table.
    fn meaning(table: &RuleTable, address: u64) -> Option<String> {
        let rule = table.rule(table.find(ImageAddress(address))?)?;
        let cfa = match rule.cfa {
            Cfa::Expression(offset) => format!("{:?}", table.expression(offset)),
            cfa => format!("{cfa:?}"),
        };
        let saves = table.saves(rule).iter().map(|save| match save.place {
            Place::AtExpression(offset) | Place::IsExpression(offset) => {
                format!("{} {:?}", save.register, table.expression(offset))
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
        let read = RuleTable::parse(&table.write()).unwrap();
        assert_eq!(read.len(), table.len());
        let step = (table.len() / 500).max(1);
        let chosen: BTreeSet<ImageAddress> = table
            .starts
            .iter()
            .step_by(step)
            .map(|start| ImageAddress(table.base + u64::from(*start)))
            .collect();
        let part = RuleTable::parse(&table.only_at(&chosen).write()).unwrap();
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
            let read = RuleTable::parse(&table.write()).unwrap();
            assert_eq!(
                (read.returns(), read.len()),
                (returns.as_deref(), table.len())
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = RuleTable::parse(&bytes);
        }

        #[test]
        fn a_changed_byte_is_read_or_refused(at in 0usize..2000, value: u8) {
            let table = own_table();
            let chosen = table.starts.iter().take(60);
            let chosen = chosen.map(|start| ImageAddress(table.base + u64::from(*start)));
            let mut bytes = table.only_at(&chosen.collect()).write();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = RuleTable::parse(&bytes);
        }
    }
}
