//! The second half of compiling. Input: one function's call frame instructions. Output: rows and shared rules, each
//! stored once.

use super::edges::{Depth, edges};
use super::linkage::Stubs;
use super::table::{NO_RULE, RuleTable};
use crate::images::call_frames::{Bytes, Cies, Function, Skipped, common_entry};
use gimli::{BaseAddresses, CfaRule, RegisterRule, UnwindContext, UnwindExpression, UnwindSection};
use std::collections::HashMap;
use uprof::image::{Cfa, Place, REGISTERS_MAX, RuleSet, Save};
use uprof::{Arch, WordMap};

/// Most rows of one image; others are left out. librustc_driver has less than a million.
pub(super) const ROWS_MAX: usize = 32_000_000;
/// Most registers to restore, on any architecture; each row repeats all of them.
const SAVES_MAX: usize = 64;

/// The table under construction.
pub(super) struct Rows {
    table: RuleTable,
    known: WordMap<Vec<u64>, u32>,
    known_expressions: HashMap<Vec<u8>, u32>,
    context: UnwindContext<usize>,
    /// Of the current function: starts of rows, and their rules.
    function: Vec<(u64, u32)>,
    /// Of the current row; kept to reuse the allocation.
    key: Vec<u64>,
    saves: Vec<Save>,
}

type Row = gimli::UnwindTableRow<usize>;

impl Rows {
    pub(super) fn new(base: u64) -> Rows {
        Rows::onto(RuleSet::default(), base)
    }

    /// Rows for rules that are known.
    pub(super) fn onto(set: RuleSet, base: u64) -> Rows {
        Rows {
            table: RuleTable {
                base,
                set,
                ..RuleTable::default()
            },
            known: HashMap::default(),
            function: Vec::new(),
            key: Vec::new(),
            saves: Vec::new(),
            known_expressions: HashMap::new(),
            context: UnwindContext::new(),
        }
    }

    /// Reads the rows of `function`. `None` if its description is damaged; rows before the damage stay.
    pub(super) fn expand<'a, S>(
        &mut self,
        section: &S,
        bases: &BaseAddresses,
        function: &Function,
        cies: &mut Cies<'a>,
    ) -> Option<()>
    where
        S: UnwindSection<Bytes<'a>>,
    {
        self.function.clear();
        let offset = S::Offset::from(function.offset);
        let entry = section
            .fde_from_offset(bases, offset, |section, bases, offset| {
                common_entry(cies, section, bases, offset)
            })
            .ok()?;
        let is_trap = entry.is_signal_trampoline();
        let return_register = u8::try_from(entry.cie().return_address_register().0).ok()?;
        // The context is taken out during the loop, since rows are interned in `self`.
        let mut context = std::mem::take(&mut self.context);
        let mut whole = None;
        if let Ok(mut rows) = entry.rows(section, bases, &mut context) {
            whole = loop {
                match rows.next_row() {
                    Ok(None) => break Some(()),
                    Err(_) => break None,
                    Ok(Some(row)) if row.start_address() >= function.end => break Some(()),
                    Ok(Some(row)) => {
                        let saves_count = row.registers().take(SAVES_MAX + 1).count();
                        if saves_count > SAVES_MAX || row.start_address() < function.start {
                            break None;
                        }
                        let rule = self.rule(section, row, is_trap, return_register);
                        let start = row.start_address();
                        self.function.push((start, rule.unwrap_or(NO_RULE)));
                    }
                }
            };
        }
        self.context = context;
        whole
    }

    /// Appends the rows of `function`, corrected by its `code` if given.
    pub(super) fn push_function(&mut self, function: &Function, code: Option<&[u8]>) {
        let rows = std::mem::take(&mut self.function);
        let mended = code.map_or_else(Vec::new, |code| self.mended(function.start, code, &rows));
        let mut mended = mended.into_iter().peekable();
        for (index, &(start, rule)) in rows.iter().enumerate() {
            let end = rows.get(index + 1).map_or(function.end, |next| next.0);
            self.push(start, rule);
            while let Some((at, depth)) = mended.next_if(|(at, _)| *at < end) {
                let other = self.depth_rule(&depth);
                self.push(at, other.unwrap_or(NO_RULE));
                if at + 4 < end {
                    self.push(at + 4, rule);
                }
            }
        }
        self.push(function.end, NO_RULE);
        self.function = rows;
    }

    /// The instructions of a function of aarch64 at which its `rows` are wrong.
    fn mended(&self, start: u64, code: &[u8], rows: &[(u64, u32)]) -> Vec<(u64, Depth)> {
        let stated = |at: u64| {
            let after = rows.partition_point(|(start, _)| *start <= at);
            let rule = self.table.set.rule(rows.get(after.checked_sub(1)?)?.1)?;
            (!rule.is_trap).then(|| (rule.cfa, self.table.set.saves(rule)))
        };
        edges(start, code, rows.iter().map(|row| row.0), stated)
    }

    /// The rule for an aarch64 stack of this state.
    fn depth_rule(&mut self, depth: &Depth) -> Option<u32> {
        let place = |&(register, at): &(u8, i32)| Save {
            register,
            place: Place::AtCfa(at),
        };
        let mut saves: Vec<Save> = depth.saved.iter().map(place).collect();
        saves.sort_unstable_by_key(|save| save.register);
        self.intern(depth.cfa(), false, 30, &saves)
    }

    /// Appends a row that holds from `start` on, unless the one before says the same.
    pub(super) fn push(&mut self, start: u64, rule: u32) {
        let Ok(start) = u32::try_from(start.wrapping_sub(self.table.base)) else {
            return;
        };
        let table = &mut self.table;
        // An empty row is replaced by the next one.
        if table.starts.last() == Some(&start) {
            table.starts.pop();
            table.row_rules.pop();
        }
        // One row is kept back for the end of the last function.
        let is_full = table.starts.len() >= ROWS_MAX && rule != NO_RULE;
        if table.row_rules.last() != Some(&rule) && !is_full {
            table.starts.push(start);
            table.row_rules.push(rule);
        }
    }

    /// Appends the rows of stubs, which save only the return address.
    pub(super) fn push_stubs(&mut self, arch: Arch, stubs: &Stubs) {
        // Where calls leave the return address in x30, it is saved last.
        let (return_register, stack_pointer) = match arch {
            Arch::X86_64 => (16, 7),
            Arch::Aarch64 => (30, 31),
        };
        for (start, depth_bytes) in &stubs.rows {
            let cfa = Cfa::Register {
                register: stack_pointer,
                offset_bytes: *depth_bytes,
            };
            let saved = Save {
                register: return_register,
                place: Place::AtCfa(-8),
            };
            let saves = if *depth_bytes == 0 { &[][..] } else { &[saved] };
            let rule = self.intern(cfa, false, return_register, saves);
            self.push(*start, rule.unwrap_or(NO_RULE));
        }
        self.push(stubs.end, NO_RULE);
    }

    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.table.starts.len()
    }

    pub(super) fn finish(mut self, skipped: Skipped) -> RuleTable {
        self.table.skipped = skipped;
        self.table.starts.shrink_to_fit();
        self.table.row_rules.shrink_to_fit();
        self.table.set.shrink_to_fit();
        self.table
    }

    /// The number of the rule of `row`; `None` if it can't be expressed.
    fn rule<'a, S>(
        &mut self,
        section: &S,
        row: &Row,
        is_trap: bool,
        return_register: u8,
    ) -> Option<u32>
    where
        S: UnwindSection<Bytes<'a>>,
    {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register {
                register: register_number(register.0)?,
                offset_bytes: i32::try_from(*offset).ok()?,
            },
            CfaRule::Expression(expression) => {
                Cfa::Expression(self.expression(section, expression)?)
            }
        };
        let mut saves = std::mem::take(&mut self.saves);
        saves.clear();
        for (register, rule) in row.registers() {
            let Some(register) = register_number(register.0) else {
                continue;
            };
            if let Some(place) = self.place(section, rule)? {
                saves.push(Save { register, place });
            }
        }
        saves.sort_unstable_by_key(|save| save.register);
        let number = self.intern(cfa, is_trap, return_register, &saves);
        self.saves = saves;
        number
    }

    fn intern(
        &mut self,
        cfa: Cfa,
        is_trap: bool,
        return_register: u8,
        saves: &[Save],
    ) -> Option<u32> {
        self.key.clear();
        self.key
            .push(u64::from(is_trap) << 8 | u64::from(return_register));
        self.key.push(cfa.word());
        self.key.extend(saves.iter().map(|save| save.word()));
        if let Some(known) = self.known.get(&self.key) {
            return Some(*known);
        }
        let number = self.table.set.push(cfa, is_trap, return_register, saves)?;
        self.known.insert(self.key.clone(), number);
        Some(number)
    }

    /// Where a register is: `Some(None)` if it kept its value, `None` if that can't be expressed.
    fn place<'a, S>(&mut self, section: &S, rule: &RegisterRule<usize>) -> Option<Option<Place>>
    where
        S: UnwindSection<Bytes<'a>>,
    {
        Some(Some(match rule {
            RegisterRule::SameValue => return Some(None),
            RegisterRule::Undefined => Place::Lost,
            RegisterRule::Offset(offset) => Place::AtCfa(i32::try_from(*offset).ok()?),
            RegisterRule::ValOffset(offset) => Place::IsCfa(i32::try_from(*offset).ok()?),
            RegisterRule::Register(register) => Place::Register(register_number(register.0)?),
            RegisterRule::Expression(expression) => {
                Place::AtExpression(self.expression(section, expression)?)
            }
            RegisterRule::ValExpression(expression) => {
                Place::IsExpression(self.expression(section, expression)?)
            }
            // Constants are pseudo-registers such as the state of return address signing, which the address itself
            // shows.
            RegisterRule::Constant(_) | RegisterRule::Architectural => return Some(None),
        }))
    }

    fn expression<'a, S>(
        &mut self,
        section: &S,
        expression: &UnwindExpression<usize>,
    ) -> Option<u32>
    where
        S: UnwindSection<Bytes<'a>>,
    {
        let bytes = expression.get(section).ok()?.0.slice();
        if let Some(known) = self.known_expressions.get(bytes) {
            return Some(*known);
        }
        let number = self.table.set.push_expression(bytes)?;
        self.known_expressions.insert(bytes.to_vec(), number);
        Some(number)
    }
}

fn register_number(number: u16) -> Option<u8> {
    u8::try_from(number)
        .ok()
        .filter(|number| usize::from(*number) < REGISTERS_MAX)
}
