//! The unwind rules of one image, function by function. Input: call frame information, of which first only the
//! functions' ranges are read. Output: the table of the function at an address, compiled when an address in it is
//! first asked for. A recording has addresses of few functions of a large library.

use super::compile::{Compiler, base, free_stubs};
use super::rows::{ROWS_MAX, Rows};
use super::signal;
use super::table::RuleTable;
use crate::images::call_frames::{FrameSections, Function, Skipped};
use crate::images::{Image, ImageAddress};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Set in the offset of a description in .debug_frame.
const IS_DEBUG_FRAME: u32 = 1 << 31;

/// The functions of one image in columns, and their tables.
#[derive(Debug)]
pub struct FunctionRules {
    image: Arc<Image>,
    debug: Option<Arc<Image>>,
    sections: FrameSections,
    base: u64,
    /// Start and end of each function, relative to `base`, ascending and without overlap.
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// Offsets of the descriptions in their sections.
    offsets: Vec<u32>,
    tables: Vec<OnceLock<Box<RuleTable>>>,
    /// Whether these are the functions that the image describes itself, and all of them.
    is_whole: bool,
    /// Stubs that no function describes.
    stubs: RuleTable,
    /// The rule of code that returns from a signal.
    signal: RuleTable,
    /// Rows that may still be compiled.
    rows_left: AtomicUsize,
}

impl FunctionRules {
    /// The functions of `image`, with `debug` as for [`RuleTable::compile`]; `None` if offsets in its sections have
    /// more than 31 bits.
    pub(super) fn of(image: &Arc<Image>, debug: Option<&Arc<Image>>) -> Option<FunctionRules> {
        let sections = FrameSections::of(image, debug.map(|debug| &**debug));
        let frames = sections.frames(image, debug.map(|debug| &**debug));
        let functions = frames.functions(image, &mut Skipped::default());
        let stubs = free_stubs(image, &functions);
        let base = base(&functions, &stubs);
        let mut rules = FunctionRules {
            image: Arc::clone(image),
            debug: debug.cloned(),
            base,
            starts: Vec::with_capacity(functions.len()),
            ends: Vec::with_capacity(functions.len()),
            offsets: Vec::with_capacity(functions.len()),
            tables: Vec::new(),
            is_whole: false,
            stubs: RuleTable::default(),
            signal: RuleTable::default(),
            rows_left: AtomicUsize::new(ROWS_MAX),
            sections,
        };
        for function in &functions {
            // A table has no rows further from its base either.
            let Ok(start) = u32::try_from(function.start - base) else {
                break;
            };
            let offset = u32::try_from(function.offset).ok();
            let offset = offset.filter(|offset| offset & IS_DEBUG_FRAME == 0)?;
            let section = if function.is_debug_frame {
                IS_DEBUG_FRAME
            } else {
                0
            };
            rules.starts.push(start);
            rules
                .ends
                .push(u32::try_from(function.end - base).unwrap_or(u32::MAX));
            rules.offsets.push(offset | section);
        }
        rules.tables.resize_with(rules.starts.len(), OnceLock::new);
        let has_frames = |debug: &&Arc<Image>| debug.section_range(".debug_frame").is_some();
        let is_near = |last: &Function| u32::try_from(last.end - base).is_ok();
        rules.is_whole = debug.filter(has_frames).is_none() && functions.last().is_none_or(is_near);
        let mut rows = Rows::new(base);
        for stubs in &stubs {
            rows.push_stubs(image.arch(), stubs);
        }
        rules.stubs = rows.finish(Skipped::default());
        signal::push(&mut rules.signal.set, image.arch())?;
        Some(rules)
    }

    /// The image and the file with its debug information.
    pub(super) fn files(&self) -> (&Image, Option<&Image>) {
        (&self.image, self.debug.as_deref())
    }

    /// The number of the table that has `address`.
    pub(super) fn part_of(&self, address: ImageAddress) -> u32 {
        let relative = u32::try_from(address.0.wrapping_sub(self.base));
        let number = relative.ok().and_then(|relative| {
            let after = self.starts.partition_point(|start| *start <= relative);
            let number = after.checked_sub(1)?;
            (relative < self.ends[number]).then_some(number)
        });
        number.unwrap_or(self.tables.len()) as u32
    }

    /// The table of this number.
    pub(super) fn part(&self, number: u32) -> &RuleTable {
        match self.tables.get(number as usize) {
            Some(table) => table.get_or_init(|| Box::new(self.compile(number as usize))),
            None if number as usize == self.tables.len() => &self.stubs,
            None => &self.signal,
        }
    }

    /// The number of the table whose first rule is that of the code at `address`, if this returns from a signal.
    pub(super) fn signal_part(&self, address: ImageAddress) -> Option<u32> {
        signal::returns_at(&self.image, address).then_some(self.tables.len() as u32 + 1)
    }

    /// The ranges of all functions that the image describes itself, ascending, if they are known.
    pub(super) fn ranges(&self) -> Option<Vec<(u64, u64)>> {
        let functions = (0..self.starts.len()).map(|number| self.function(number));
        let ranges = functions.map(|function| (function.start, function.end));
        self.is_whole.then(|| ranges.collect())
    }

    fn compile(&self, number: usize) -> RuleTable {
        let (image, debug) = self.files();
        let frames = self.sections.frames(image, debug);
        let mut rows = Rows::new(self.base);
        if self.rows_left.load(Ordering::Relaxed) > 0 {
            Compiler::new(image, &frames).push(&mut rows, &self.function(number));
            let left = |left: usize| Some(left.saturating_sub(rows.len()));
            let _ = self
                .rows_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        }
        rows.finish(Skipped::default())
    }

    fn function(&self, number: usize) -> Function {
        let offset = self.offsets[number];
        Function {
            start: self.base + u64::from(self.starts[number]),
            end: self.base + u64::from(self.ends[number]),
            offset: (offset & !IS_DEBUG_FRAME) as usize,
            is_debug_frame: offset & IS_DEBUG_FRAME != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::UnwindRules;
    use crate::unwind::stored::tests::meaning_in;
    use uprof::image::{Cfa, Place, RuleSet, Save};

    /// Compares rules around every row, function by function and in one table; returns how many there were.
    fn compare(image: Image) -> usize {
        let image = Arc::new(image);
        let whole = RuleTable::compile(&image, None);
        let single = UnwindRules::of(&image, None);
        let mut compared = 0;
        // From the last to the first, so that no table profits from the one before.
        for start in whole.starts.iter().rev() {
            let start = whole.base.wrapping_add(u64::from(*start));
            for address in [start.wrapping_sub(1), start, start.wrapping_add(1)] {
                let address = ImageAddress(address);
                let one = single.find(address).and_then(|found| {
                    assert!(std::ptr::eq(single.set(found.part), found.set));
                    meaning_in(found.set, found.number)
                });
                let all = whole.find(address);
                let all = all.and_then(|number| meaning_in(&whole.set, number));
                assert_eq!(one, all, "{address:x?}");
                compared += usize::from(all.is_some());
            }
        }
        compared
    }

    #[test]
    fn single_functions_have_the_rules_of_the_whole_image() {
        let own = Image::open(&std::env::current_exe().unwrap()).unwrap();
        assert!(compare(own) > 10_000);
    }

    /// Damaged descriptions overlap, repeat, are cut short and lie outside the code.
    #[test]
    fn damaged_descriptions_give_the_same_rules() {
        let bytes = include_bytes!("../../../corpus/images/calls");
        let frames = Image::from_bytes("calls", bytes.to_vec()).unwrap();
        let frames = frames.section_in_file(".eh_frame").unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        let (mut compared, mut changed) = (0, 0);
        let intact = compare(Image::from_bytes("calls", bytes.to_vec()).unwrap());
        for round in 0..2000 {
            let mut damaged = bytes.to_vec();
            for _ in 0..=round % 8 {
                damaged[random.usize(frames.clone())] = random.u8(..);
            }
            let found = Image::from_bytes("calls", damaged).map_or(0, compare);
            compared += found;
            changed += usize::from(found != intact);
        }
        assert!(compared > 100_000 && changed > 500, "{compared} {changed}");
    }

    #[test]
    fn a_rule_needs_the_registers_that_it_reads() {
        let mut set = RuleSet::default();
        let cfa = Cfa::Register {
            register: 7,
            offset_bytes: 8,
        };
        let save = |register, place| Save { register, place };
        let saves = [
            save(3, Place::Register(12)),
            save(6, Place::AtCfa(-16)),
            save(16, Place::AtCfa(-8)),
        ];
        let number = set.push(cfa, false, 16, &saves).unwrap();
        let found = crate::unwind::rules::FoundRule {
            part: 0,
            set: &set,
            number,
        };
        assert_eq!(found.registers_needed(), 1 << 7 | 1 << 12);
    }
}
