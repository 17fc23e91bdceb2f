//! Checks units of DWARF before addr2line reads them: it follows inlined functions recursively, and stores each
//! range, row and file name as often as it occurs. A compiler's units are small in relation to their sections; those
//! with more nesting or repetition are refused.

use crate::work;
use gimli::constants as dw;
use gimli::{DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, Reader, Section, Unit, UnitType};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Most functions inlined into one another; compilers stop far below.
const NESTED_MAX: usize = 512;
/// Most units with the same address; in an intact image it is one, and some that the linker dropped.
const SHARED_MAX: u64 = 64;
/// The cost of checking a unit, of a run's budget of steps.
const STEPS_PER_UNIT: u64 = 64;
/// Most attributes of an abbreviation; compilers write up to 30.
const ATTRIBUTES_MAX: usize = 100;
/// What small files may have beyond the limits for their sections: ranges, and bytes of lines.
const SLACK: usize = 1 << 16;
/// The largest length of all file names of a unit, with their folders, in lengths of their table.
const NAMES_PER_BYTE: usize = 64;

/// The units of one image's DWARF, by their addresses.
#[derive(Debug)]
pub(super) struct Units {
    /// Ascending by start: start, end, the largest end up to here, number of the unit.
    ranges: Vec<(u64, u64, u64, u32)>,
    units: Vec<(DebugInfoOffset, OnceLock<bool>)>,
    /// Whether one was refused.
    refused: AtomicBool,
}

impl Units {
    /// Reads the addresses of units. `None`: there are more ranges or names than fit into the sections, or a unit that
    /// may have any address is not to be read.
    pub(crate) fn of(dwarf: &Dwarf<Bytes<'_>>) -> Option<Units> {
        let mut found = Units {
            ranges: Vec::new(),
            units: Vec::new(),
            refused: AtomicBool::new(false),
        };
        let mut left = Left::of(dwarf);
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            let skipped = matches!(
                header.type_(),
                UnitType::Type { .. } | UnitType::SplitType { .. } | UnitType::Partial
            );
            if skipped {
                continue;
            }
            let Ok(unit) = dwarf.unit(header) else {
                continue;
            };
            left.take_names(&unit)?;
            let number = found.units.len() as u32;
            let mut has_addresses = false;
            if let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
                while let Ok(Some(range)) = ranges.next() {
                    left.take_range()?;
                    has_addresses |= range.begin < range.end;
                    found.ranges.push((range.begin, range.end, 0, number));
                }
            }
            left.take_lines(&unit)?;
            // addr2line then takes those of its lines, which are not known here. Such units are few and small.
            if !has_addresses && unit.line_program.is_some() && !is_tame(dwarf, &unit) {
                return None;
            }
            found.units.push((offset, OnceLock::new()));
        }
        // Units are mostly in order, for which the stable sort is fast.
        found.ranges.sort_by_key(|range| range.0);
        let mut largest = 0;
        for range in &mut found.ranges {
            largest = largest.max(range.1);
            range.2 = largest;
        }
        Some(found)
    }

    /// Whether all units with `address` may be read.
    pub(crate) fn may_read(&self, dwarf: &Dwarf<Bytes<'_>>, address: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let before = self.ranges[..after].iter().rev();
        let (mut near_count, mut mine_count) = (0, 0);
        let near = before.take_while(|range| range.2 > address);
        let mut mine = near
            .inspect(|_| near_count += 1)
            .filter(|range| address < range.1);
        let may = mine.all(|range| {
            mine_count += 1;
            if mine_count > SHARED_MAX {
                return false;
            }
            let (offset, known) = &self.units[range.3 as usize];
            *known.get_or_init(|| {
                let unit = dwarf.unit_header(*offset).and_then(|it| dwarf.unit(it));
                unit.is_ok_and(|unit| is_tame(dwarf, &unit))
            })
        });
        // addr2line goes through them again.
        work::take(2 * near_count + STEPS_PER_UNIT * mine_count);
        if !may {
            self.refused.store(true, Ordering::Relaxed);
        }
        may
    }

    /// Whether a unit was refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Whether tables of abbreviations don't overlap: each of 50,000 units could refer to almost all of a section of 1
/// MB, and all these tables are read and kept. Also checks the number of attributes of an abbreviation: some take no
/// bytes in an entry, but every entry is read with all of them.
pub(super) fn have_sane_abbreviations(dwarf: &Dwarf<Bytes<'_>>) -> bool {
    let mut starts = Vec::new();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        starts.push(header.debug_abbrev_offset().0);
    }
    starts.sort_unstable();
    starts.dedup();
    let section = dwarf.debug_abbrev.reader().slice();
    let mut end = 0;
    starts.into_iter().all(|start| {
        let is_apart = start >= end;
        let table = section.get(start..).unwrap_or_default();
        let bytes = is_apart.then(|| abbreviations_bytes(table)).flatten();
        end = start.saturating_add(bytes.unwrap_or(0));
        bytes.is_some()
    })
}

/// The size of the table of abbreviations at the start of `section` (bytes), up to the first damage (DWARF 5, 7.5.3).
/// `None` if one has more than [`ATTRIBUTES_MAX`].
fn abbreviations_bytes(section: &[u8]) -> Option<usize> {
    let mut rest = Bytes::new(section, LittleEndian);
    let mut is_sane = true;
    let mut one = || -> gimli::Result<bool> {
        if rest.read_uleb128()? == 0 {
            return Ok(false);
        }
        rest.read_uleb128()?; // the tag
        rest.read_u8()?; // whether there are children
        for number in 0.. {
            if number > ATTRIBUTES_MAX {
                is_sane = false;
                break;
            }
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(dw::DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            if name == 0 && form == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    };
    while one().unwrap_or(false) {}
    is_sane.then(|| section.len() - rest.len())
}

/// How much fits into the sections of an image.
struct Left {
    ranges: usize,
    line_bytes: usize,
    name_bytes: usize,
}

impl Left {
    fn of(dwarf: &Dwarf<Bytes<'_>>) -> Left {
        // A range takes at least two bytes; lists are sometimes shared.
        let lists = dwarf.ranges.debug_ranges().reader().len()
            + dwarf.ranges.debug_rnglists().reader().len();
        let info = dwarf.debug_info.reader().len();
        Left {
            ranges: SLACK + lists + info / 8,
            line_bytes: SLACK + 4 * dwarf.debug_line.reader().len(),
            name_bytes: names_max(dwarf).saturating_add(NAMES_PER_BYTE * info),
        }
    }

    /// Counts the names of a unit and its folder. Several units may refer to the same long text, whose end is looked
    /// for each time.
    fn take_names(&mut self, unit: &Unit<Bytes<'_>>) -> Option<()> {
        let names = [unit.name, unit.comp_dir].into_iter().flatten();
        let bytes = names.map(|name| name.len()).sum();
        self.name_bytes = self.name_bytes.checked_sub(bytes)?;
        Some(())
    }

    fn take_range(&mut self) -> Option<()> {
        self.ranges = self.ranges.checked_sub(1)?;
        Some(())
    }

    /// Counts a unit's table of lines; several units may refer to the same one.
    fn take_lines(&mut self, unit: &Unit<Bytes<'_>>) -> Option<()> {
        let Some(program) = &unit.line_program else {
            return Some(());
        };
        let header = program.header();
        let table = header.raw_program_buf().len() + header.header_length();
        self.line_bytes = self.line_bytes.checked_sub(table)?;
        Some(())
    }
}

/// Whether a unit's nesting and repetition are within limits.
pub(super) fn is_tame(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>) -> bool {
    has_sane_names(dwarf, unit).is_some() && has_sane_functions(dwarf, unit).is_some()
}

/// The largest length of all file names of a unit, and of all names of units.
fn names_max(dwarf: &Dwarf<Bytes<'_>>) -> usize {
    let tables = dwarf.debug_line.reader().len() + dwarf.debug_line_str.reader().len();
    (SLACK * 64).saturating_add(NAMES_PER_BYTE.saturating_mul(tables))
}

/// `None` if the file names, each with its folder, are beyond the limits for the sections. It stops there: many names
/// may be one long text, whose end is looked for each time.
fn has_sane_names(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>) -> Option<()> {
    let Some(program) = &unit.line_program else {
        return Some(());
    };
    let header = program.header();
    let mut left = names_max(dwarf);
    let mut take = |bytes: usize| {
        left = left.checked_sub(bytes)?;
        Some(bytes)
    };
    let length = |value| dwarf.attr_string(unit, value).map_or(0, |text| text.len());
    let folder = unit.comp_dir.map_or(0, |folder| folder.len());
    let mut folders = Vec::new();
    for directory in header.include_directories() {
        folders.push(take(length(*directory))?);
    }
    for file in header.file_names() {
        // Before version 5 the first folder has number 1.
        let index = file.directory_index() as usize;
        let longest = [index, index.wrapping_sub(1)]
            .into_iter()
            .filter_map(|it| folders.get(it))
            .max();
        let bytes = length(file.path_name()) + folder + longest.copied().unwrap_or(0);
        take(bytes)?;
    }
    Some(())
}

/// `None` if inlined functions nest too deep, or have more ranges than fit into the sections.
fn has_sane_functions(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>) -> Option<()> {
    let mut left = Left::of(dwarf);
    // Depths of the enclosing inlined functions.
    let mut around: Vec<isize> = Vec::new();
    // addr2line also stops at a damaged entry.
    let Ok(mut raw) = unit.entries_raw(None) else {
        return Some(());
    };
    while !raw.is_empty() {
        let depth = raw.next_depth();
        let Ok(read) = raw.read_abbreviation() else {
            break;
        };
        let Some(abbreviation) = read else { continue };
        while around.last().is_some_and(|outer| *outer >= depth) {
            around.pop();
        }
        let tag = abbreviation.tag();
        let is_inlined = tag == dw::DW_TAG_inlined_subroutine;
        if !is_inlined && tag != dw::DW_TAG_subprogram {
            if raw.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
            continue;
        }
        if is_inlined {
            around.push(depth);
            if around.len() > NESTED_MAX {
                return None;
            }
        }
        let attributes = abbreviation.attributes();
        // Most have none, and skipping is faster than reading.
        if attributes.iter().all(|it| it.name() != dw::DW_AT_ranges) {
            if raw.skip_attributes(attributes).is_err() {
                return Some(());
            }
            continue;
        }
        for specification in attributes {
            let Ok(attribute) = raw.read_attribute(*specification) else {
                return Some(());
            };
            if attribute.name() != dw::DW_AT_ranges {
                continue;
            }
            if let Ok(Some(mut ranges)) = dwarf.attr_ranges(unit, attribute.value()) {
                while let Ok(Some(_)) = ranges.next() {
                    left.take_range()?;
                }
            }
        }
    }
    Some(())
}
