//! Section 5, rules: how to find a caller's registers at addresses of an image. Everything that was read is valid:
//! registers, expressions and rules with these numbers exist.

use super::section::{Entries, Entry, SectionReader, put_bytes};
use crate::error::Fault;
use crate::layout::{MAX_EXPRESSION_BYTES, MAX_SAVES};
use crate::tags::tags;
use crate::varint;
use std::collections::BTreeMap;

/// Limit of register numbers, which are DWARF's (System V ABI AMD64 figure 3.36, AADWARF64 section 4.1). Unwinding
/// needs no others.
pub const REGISTERS_MAX: usize = 33;

const IS_TRAP: u64 = 1;

tags! {
    /// Kind of CFA.
    CfaKind: u8 {
        /// A register plus a number.
        Register = 0 "register",
        /// The value of an expression.
        Expression = 1 "expression",
    }
}

tags! {
    /// Where a register of the caller is found.
    PlaceKind: u8 {
        /// It is not saved.
        Lost = 0 "lost",
        /// In memory at CFA plus a number.
        AtCfa = 1 "at-cfa",
        /// Its value is CFA plus a number.
        IsCfa = 2 "is-cfa",
        /// In a register.
        Register = 3 "register",
        /// In memory at the address that an expression gives.
        AtExpression = 4 "at-expression",
        /// Its value is that of an expression.
        IsExpression = 5 "is-expression",
    }
}

/// The canonical frame address: the value of the stack pointer before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// A register of the callee plus an offset.
    Register {
        /// The register.
        register: u8,
        /// The offset (bytes).
        offset_bytes: i32,
    },
    /// The value of the expression with this number.
    Expression(u32),
}

/// Where a register of the caller is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// It is not saved. For the return address, this means that there is no caller.
    Lost,
    /// In memory at CFA plus this number of bytes.
    AtCfa(i32),
    /// Its value is CFA plus this number.
    IsCfa(i32),
    /// In another register of the callee.
    Register(u8),
    /// In memory at the address that the expression gives.
    AtExpression(u32),
    /// Its value is that of the expression.
    IsExpression(u32),
}

/// One register of the caller. A register that a rule doesn't name has kept its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Save {
    /// The register.
    pub register: u8,
    /// Where it is found.
    pub place: Place,
}

/// A rule without its saves, which are in the common list of its [`RuleSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// Whether it is the frame of a trap, an interrupt or a signal. Its caller was interrupted and made no call, so the
    /// caller's pc is an instruction pointer, not a return address (augmentation `S`).
    pub is_trap: bool,
    /// Number of the register that holds the return address.
    pub return_register: u8,
    saves_start: u32,
    saves_count: u8,
}

/// The address range of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleRow {
    /// First address, before the load bias.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Number of the rule.
    pub rule: u32,
}

/// Rules, numbered from 0, and the expressions that they refer to, numbered likewise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    rules: Vec<Rule>,
    saves: Vec<Save>,
    /// The expressions, concatenated, and the end of each.
    expressions: Vec<u8>,
    expression_ends: Vec<u32>,
}

/// The section, decoded on demand.
#[derive(Debug, Clone)]
pub struct Rules<'a> {
    /// The rules.
    pub set: RuleSet,
    /// The address ranges of the rules, in order of address and without overlap.
    pub rows: Entries<'a, RuleRow>,
}

impl<'a> Rules<'a> {
    pub(super) fn read(mut reader: SectionReader<'a>) -> Result<Self, Fault> {
        let mut set = RuleSet::default();
        for _ in 0..reader.count(1)? {
            let rule = "an expression has 65,535 bytes at the most";
            let length = reader.up_to(MAX_EXPRESSION_BYTES, "length of an expression", rule)?;
            set.push_expression(reader.take(length)?);
        }
        for _ in 0..reader.count(6)? {
            set.read_rule(&mut reader)?;
        }
        let rows = Entries::new(reader, set.rules.len())?;
        Ok(Rules { set, rows })
    }

    /// The return addresses after the rows, ascending; `None` if they are unknown. Skips rows that were not read yet.
    ///
    /// # Errors
    /// A fault in the rows or in the number of addresses.
    pub fn returns(&self) -> Result<Option<Entries<'a, u64>>, Fault> {
        let mut rows = self.rows.clone();
        rows.try_for_each(|row| row.map(drop))?;
        let reader = rows.reader;
        (!reader.is_empty())
            .then(|| Entries::new(reader, 0))
            .transpose()
    }
}

impl Entry for RuleRow {
    const LEAST_BYTES: usize = 3;

    fn read(reader: &mut SectionReader<'_>, before: &mut u64, known: usize) -> Result<Self, Fault> {
        let start = reader.address(*before)?;
        let end = reader.address(start)?;
        if end == start {
            return Err(reader.refuse("length of a row", 0, "a row has an address"));
        }
        let rule = reader.number()?;
        if rule >= known as u64 {
            return Err(reader.refuse("a rule's number", rule, "there is such a rule"));
        }
        *before = end;
        let rule = rule as u32;
        Ok(RuleRow { start, end, rule })
    }
}

impl Entry for u64 {
    const LEAST_BYTES: usize = 1;

    fn read(reader: &mut SectionReader<'_>, before: &mut u64, _: usize) -> Result<Self, Fault> {
        *before = reader.address(*before)?;
        Ok(*before)
    }
}

impl RuleSet {
    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule with this number.
    #[inline]
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(number as usize)
    }

    /// All rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Where a rule finds the caller's registers.
    #[inline]
    pub fn saves(&self, rule: &Rule) -> &[Save] {
        let start = rule.saves_start as usize;
        self.saves
            .get(start..start + usize::from(rule.saves_count))
            .unwrap_or(&[])
    }

    /// The expression with this number; empty if there is none.
    pub fn expression(&self, number: u32) -> &[u8] {
        let end = |number: u32| self.expression_ends.get(number as usize).copied();
        let start = number.checked_sub(1).and_then(end).unwrap_or(0);
        let range = start as usize..end(number).unwrap_or(start) as usize;
        self.expressions.get(range).unwrap_or(&[])
    }

    /// All expressions, in order.
    pub fn expressions(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.expression_ends.len() as u32).map(|number| self.expression(number))
    }

    /// Adds a rule and returns its number; `None` if there are too many.
    pub fn push(
        &mut self,
        cfa: Cfa,
        is_trap: bool,
        return_register: u8,
        saves: &[Save],
    ) -> Option<u32> {
        let number = u32::try_from(self.rules.len()).ok()?;
        self.rules.push(Rule {
            cfa,
            is_trap,
            return_register,
            saves_start: u32::try_from(self.saves.len()).ok()?,
            saves_count: u8::try_from(saves.len()).ok()?,
        });
        self.saves.extend_from_slice(saves);
        Some(number)
    }

    /// Adds an expression and returns its number; `None` if it is too long or there are too many.
    pub fn push_expression(&mut self, bytes: &[u8]) -> Option<u32> {
        (bytes.len() <= MAX_EXPRESSION_BYTES).then_some(())?;
        let number = u32::try_from(self.expression_ends.len()).ok()?;
        let end = u32::try_from(self.expressions.len() + bytes.len()).ok()?;
        self.expressions.extend_from_slice(bytes);
        self.expression_ends.push(end);
        Some(number)
    }

    /// Gives back memory that the rules don't need.
    pub fn shrink_to_fit(&mut self) {
        self.rules.shrink_to_fit();
        self.saves.shrink_to_fit();
    }

    /// Bytes that the rules take in memory.
    pub fn size_bytes(&self) -> usize {
        size_of_val(&self.rules[..])
            + size_of_val(&self.saves[..])
            + size_of_val(&self.expression_ends[..])
            + self.expressions.len()
    }

    /// Appends the section, without rules that no row refers to and expressions that no such rule refers to.
    pub(super) fn put(
        &self,
        rows: impl Iterator<Item = RuleRow> + Clone,
        returns: Option<&[u64]>,
        out: &mut Vec<u8>,
    ) {
        let rules = numbered(rows.clone().map(|row| row.rule));
        let used = rules.keys().filter_map(|number| self.rule(*number));
        let of_places = used.clone().flat_map(|rule| self.saves(rule));
        let of_places = of_places.filter_map(|save| save.place.expression());
        let of_cfas = used.clone().filter_map(|rule| rule.cfa.expression());
        let expressions = numbered(of_places.chain(of_cfas));
        varint::put(out, expressions.len() as u64);
        for number in expressions.keys() {
            put_bytes(out, self.expression(*number));
        }
        varint::put(out, rules.len() as u64);
        used.for_each(|rule| self.put_rule(rule, &expressions, out));
        varint::put(out, rows.clone().count() as u64);
        let mut before = 0u64;
        for row in rows {
            varint::put(out, row.start.wrapping_sub(before));
            varint::put(out, row.end.wrapping_sub(row.start));
            varint::put(out, rules.get(&row.rule).copied().unwrap_or(0));
            before = row.end;
        }
        let Some(returns) = returns else { return };
        varint::put(out, returns.len() as u64);
        let mut before = 0;
        for address in returns {
            varint::put(out, address.wrapping_sub(before));
            before = *address;
        }
    }

    fn put_rule(&self, rule: &Rule, expressions: &BTreeMap<u32, u64>, out: &mut Vec<u8>) {
        let expression = |old: u32| expressions.get(&old).map_or(0, |new| new.cast_signed());
        let (kind, register, number) = match rule.cfa {
            Cfa::Register {
                register,
                offset_bytes,
            } => (CfaKind::Register, register, i64::from(offset_bytes)),
            Cfa::Expression(old) => (CfaKind::Expression, 0, expression(old)),
        };
        varint::put(out, u64::from(kind.number()));
        varint::put(out, u64::from(register));
        varint::put_delta(out, 0, number.cast_unsigned());
        varint::put(out, if rule.is_trap { IS_TRAP } else { 0 });
        varint::put(out, u64::from(rule.return_register));
        varint::put(out, u64::from(rule.saves_count));
        for save in self.saves(rule) {
            let (place, number) = save.place.encoded();
            let number = save.place.expression().map_or(number, expression);
            varint::put(out, u64::from(save.register));
            varint::put(out, u64::from(place.number()));
            varint::put_delta(out, 0, number.cast_unsigned());
        }
    }

    fn read_rule(&mut self, reader: &mut SectionReader<'_>) -> Result<(), Fault> {
        let kind = known(reader, "kind of a CFA", CfaKind::from_number)?;
        let register = register(reader)?;
        let number = reader.signed()?;
        let cfa = match kind {
            CfaKind::Register => Cfa::Register {
                register,
                offset_bytes: small(reader, number)?,
            },
            CfaKind::Expression => Cfa::Expression(self.known(reader, number)?),
        };
        let is_trap = reader.number()? & IS_TRAP != 0;
        let return_register = self::register(reader)?;
        let saves_start = self.saves.len() as u32;
        let rule = "a rule has 255 registers at the most";
        let saves_count = reader.up_to(MAX_SAVES, "number of registers", rule)? as u8;
        for _ in 0..saves_count {
            let save = Save {
                register: self::register(reader)?,
                place: self.read_place(reader)?,
            };
            self.saves.push(save);
        }
        self.rules.push(Rule {
            cfa,
            is_trap,
            return_register,
            saves_start,
            saves_count,
        });
        Ok(())
    }

    fn read_place(&self, reader: &mut SectionReader<'_>) -> Result<Place, Fault> {
        let kind = known(reader, "a place", PlaceKind::from_number)?;
        let number = reader.signed()?;
        Ok(match kind {
            PlaceKind::Lost => Place::Lost,
            PlaceKind::AtCfa => Place::AtCfa(small(reader, number)?),
            PlaceKind::IsCfa => Place::IsCfa(small(reader, number)?),
            PlaceKind::Register => {
                let register = u8::try_from(number).ok();
                let register = register.filter(|register| usize::from(*register) < REGISTERS_MAX);
                Place::Register(register.ok_or_else(|| beyond(reader, number))?)
            }
            PlaceKind::AtExpression => Place::AtExpression(self.known(reader, number)?),
            PlaceKind::IsExpression => Place::IsExpression(self.known(reader, number)?),
        })
    }

    /// The number of an existing expression.
    fn known(&self, reader: &SectionReader<'_>, number: i64) -> Result<u32, Fault> {
        let known = u32::try_from(number).ok();
        let known = known.filter(|known| (*known as usize) < self.expression_ends.len());
        known.ok_or_else(|| {
            let what = "number of an expression";
            reader.refuse(
                what,
                number.cast_unsigned(),
                "there are as many expressions",
            )
        })
    }
}

/// Renumbers `used` in ascending order.
fn numbered(used: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
    let mut numbers: BTreeMap<u32, u64> = used.map(|old| (old, 0)).collect();
    numbers
        .values_mut()
        .zip(0..)
        .for_each(|(number, next)| *number = next);
    numbers
}

/// Reads a tag.
fn known<T>(
    reader: &mut SectionReader<'_>,
    what: &'static str,
    from_number: fn(u8) -> Option<T>,
) -> Result<T, Fault> {
    let number = reader.number()?;
    let tag = u8::try_from(number).ok().and_then(from_number);
    tag.ok_or_else(|| reader.fault(Fault::Unknown { what, number }))
}

fn register(reader: &mut SectionReader<'_>) -> Result<u8, Fault> {
    let most = REGISTERS_MAX - 1;
    Ok(reader.up_to(most, "a register", "registers end below 33")? as u8)
}

#[cold]
fn beyond(reader: &SectionReader<'_>, register: i64) -> Fault {
    let value = register.cast_unsigned();
    reader.refuse("a register", value, "registers end below 33")
}

fn small(reader: &SectionReader<'_>, number: i64) -> Result<i32, Fault> {
    let value = number.cast_unsigned();
    let small = i32::try_from(number);
    small.map_err(|_| reader.refuse("an offset", value, "offsets have 32 bits"))
}

impl Cfa {
    fn expression(self) -> Option<u32> {
        match self {
            Cfa::Expression(number) => Some(number),
            Cfa::Register { .. } => None,
        }
    }

    /// A word that is different for different CFAs.
    pub fn word(self) -> u64 {
        match self {
            Cfa::Register {
                register,
                offset_bytes,
            } => word(0, register, offset_bytes as u32),
            Cfa::Expression(number) => word(1, 0, number),
        }
    }
}

impl Place {
    fn expression(self) -> Option<u32> {
        match self {
            Place::AtExpression(number) | Place::IsExpression(number) => Some(number),
            _ => None,
        }
    }

    /// Its kind and operand, as encoded in the section.
    pub fn encoded(self) -> (PlaceKind, i64) {
        match self {
            Place::Lost => (PlaceKind::Lost, 0),
            Place::AtCfa(offset) => (PlaceKind::AtCfa, i64::from(offset)),
            Place::IsCfa(offset) => (PlaceKind::IsCfa, i64::from(offset)),
            Place::Register(register) => (PlaceKind::Register, i64::from(register)),
            Place::AtExpression(number) => (PlaceKind::AtExpression, i64::from(number)),
            Place::IsExpression(number) => (PlaceKind::IsExpression, i64::from(number)),
        }
    }
}

impl Save {
    /// A word that is different for different saves.
    pub fn word(self) -> u64 {
        let (kind, number) = self.place.encoded();
        word(kind.number(), self.register, number as u32)
    }
}

fn word(kind: u8, register: u8, number: u32) -> u64 {
    u64::from(kind) << 40 | u64::from(register) << 32 | u64::from(number)
}
