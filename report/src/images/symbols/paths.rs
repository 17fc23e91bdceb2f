//! Qualified names of functions in DWARF. Input: a function's entry. Output: its linkage name, or, where the compiler
//! wrote none, its name with those of the namespaces, classes and functions around it. DWARF entries don't refer to
//! their parents, so a unit is read once from its start when its first function is needed.

use crate::work;
use gimli::constants as dw;
use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, Unit, UnitOffset, UnitRef,
    UnitSectionOffset,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Most references to follow from one entry to another.
const HOPS_MAX: usize = 16;
/// Most names around a function; others are left out.
const LEVELS_MAX: usize = 64;
/// Most entries before a nameless one that are counted to number it.
const SIBLINGS_MAX: usize = 4096;
/// The cost of counting one, of a run's budget of steps.
const STEPS_PER_ENTRY: u64 = 32;
/// The longest qualified name (bytes); a longer one is not qualified.
const PATH_BYTES_MAX: usize = 16 << 10;

/// The part of the DWARF that a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The image's, or its debug file's.
    Main,
    /// The part that several files share (dwz).
    Shared,
    /// The split file with this identifier.
    Split(u64),
}

/// A unit, and the parents of its entries.
#[derive(Debug)]
struct Scopes<'a> {
    unit: Arc<Unit<Bytes<'a>>>,
    part: Part,
    /// Entries that can have children, and functions, by offset; with the number of the parent, or `u32::MAX`.
    entries: Vec<(UnitOffset, u32)>,
}

/// The functions of one image's DWARF.
#[derive(Debug, Default)]
pub(super) struct Paths<'a> {
    /// The starts of the units of the own and of the shared DWARF, ascending.
    starts: OnceLock<[Vec<usize>; 2]>,
    units: Mutex<HashMap<(Part, usize), Read<'a>>>,
    names: Mutex<HashMap<Entry, Option<Arc<str>>>>,
    /// Whether a function had only a name: there are only line tables.
    bare: AtomicBool,
}

/// An entry: the part, where its unit starts, and where it is in that.
type Entry = (Part, usize, UnitOffset);

/// A unit, once it is read; `None` if it is damaged.
type Read<'a> = Arc<OnceLock<Option<Arc<Scopes<'a>>>>>;

/// An entry's attributes of its function.
struct Said<'a> {
    linkage_name: Option<Bytes<'a>>,
    name: Option<Bytes<'a>>,
    /// The entry with further attributes.
    origin: Option<AttributeValue<Bytes<'a>>>,
    /// The source line of the function.
    line: Option<u32>,
    /// The part of the line that calls it, if it is inlined.
    call_discriminator: u32,
}

impl<'a> Paths<'a> {
    /// The qualified name of the function whose entry is at `offset` of `unit`. `None` if there is none, or if the
    /// DWARF is damaged.
    pub(crate) fn name(
        &self,
        unit: UnitRef<'_, Bytes<'a>>,
        offset: UnitOffset,
    ) -> Option<Arc<str>> {
        let (part, start) = key(&unit);
        let key = (part, start, offset);
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.get(&key) {
            return name.clone();
        }
        drop(known);
        let found = self.find(unit.dwarf, part, start, offset);
        let found = found.map(Arc::from);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(key, found.clone());
        found
    }

    /// The line on which the function whose entry is at `offset` of `unit` is declared: that of its definition rather
    /// than that of the declaration in its class.
    pub(crate) fn start_line(
        &self,
        unit: UnitRef<'_, Bytes<'a>>,
        offset: UnitOffset,
    ) -> Option<u32> {
        let (part, start) = key(&unit);
        let mut scopes = self.scopes(unit.dwarf, part, start)?;
        let mut at = offset;
        for _ in 0..HOPS_MAX {
            let said = scopes.said(unit.dwarf, at)?;
            if said.line.is_some() {
                return said.line;
            }
            (scopes, at) = self.follow(unit.dwarf, scopes, said.origin?)?;
        }
        None
    }

    /// The part of the line from which the function whose entry is at `offset` of `unit` is called, if it is inlined; 0
    /// if there is one.
    pub(crate) fn call_discriminator(
        &self,
        unit: UnitRef<'_, Bytes<'a>>,
        offset: UnitOffset,
    ) -> Option<u32> {
        let (part, start) = key(&unit);
        let scopes = self.scopes(unit.dwarf, part, start)?;
        Some(scopes.said(unit.dwarf, offset)?.call_discriminator)
    }

    /// Whether some functions had no qualified name because there are only line tables.
    pub(crate) fn are_bare(&self) -> bool {
        self.bare.load(Ordering::Relaxed)
    }

    fn find(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        part: Part,
        start: usize,
        offset: UnitOffset,
    ) -> Option<String> {
        let mut scopes = self.scopes(dwarf, part, start)?;
        let mut at = offset;
        let (mut name, mut has_place) = (None, false);
        for _ in 0..HOPS_MAX {
            let said = scopes.said(dwarf, at)?;
            has_place |= said.line.is_some();
            if let Some(linkage_name) = said.linkage_name {
                return text(linkage_name);
            }
            name = name.or(said.name);
            let Some(origin) = said.origin else {
                break;
            };
            (scopes, at) = self.follow(dwarf, scopes, origin)?;
        }
        let name = text(name?)?;
        if !has_place && scopes.around(at) == u32::MAX {
            self.bare.store(true, Ordering::Relaxed);
        }
        Some(scopes.with_path(dwarf, at, name))
    }

    fn follow(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        scopes: Arc<Scopes<'a>>,
        to: AttributeValue<Bytes<'a>>,
    ) -> Option<(Arc<Scopes<'a>>, UnitOffset)> {
        let (part, offset) = match to {
            AttributeValue::UnitRef(offset) => return Some((scopes, offset)),
            AttributeValue::DebugInfoRef(offset) => (scopes.part, offset),
            AttributeValue::DebugInfoRefSup(offset) => (Part::Shared, offset),
            _ => return None,
        };
        let starts = self.starts.get_or_init(|| {
            let starts = |dwarf: &Dwarf<Bytes<'a>>| {
                let mut units = dwarf.units();
                let next = || units.next().ok().flatten();
                let starts = std::iter::from_fn(next);
                starts
                    .filter_map(|unit| Some(unit.debug_info_offset()?.0))
                    .collect()
            };
            let shared = dwarf.sup().map(starts).unwrap_or_default();
            [starts(dwarf), shared]
        });
        let starts = match part {
            Part::Main => &starts[0],
            Part::Shared => &starts[1],
            Part::Split(_) => return None,
        };
        let after = starts.partition_point(|start| *start <= offset.0);
        let start = *starts.get(after.checked_sub(1)?)?;
        let scopes = self.scopes(dwarf, part, start)?;
        let offset = offset.to_unit_offset(&scopes.unit.header)?;
        Some((scopes, offset))
    }

    /// The unit that starts at `start` of `part`; `dwarf` is the one that `part` is relative to.
    fn scopes(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        part: Part,
        start: usize,
    ) -> Option<Arc<Scopes<'a>>> {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        let unit = Arc::clone(units.entry((part, start)).or_default());
        // Other threads need not wait for this one.
        drop(units);
        let read = || Scopes::read(dwarf_of(dwarf, part)?, part, start).map(Arc::new);
        unit.get_or_init(read).clone()
    }
}

/// The part that a unit belongs to, and its start there.
fn key(unit: &UnitRef<'_, Bytes<'_>>) -> (Part, usize) {
    match (unit.dwo_id, unit.header.offset()) {
        (Some(id), start) if unit.dwarf.file_type == gimli::DwarfFileType::Dwo => {
            (Part::Split(id.0), start.0)
        }
        (_, start) => (Part::Main, start.0),
    }
}

fn dwarf_of<'d, 'a>(dwarf: &'d Dwarf<Bytes<'a>>, part: Part) -> Option<&'d Dwarf<Bytes<'a>>> {
    match part {
        Part::Shared => dwarf.sup(),
        Part::Main | Part::Split(_) => Some(dwarf),
    }
}

impl<'a> Scopes<'a> {
    fn read(dwarf: &Dwarf<Bytes<'a>>, part: Part, start: usize) -> Option<Scopes<'a>> {
        let header = dwarf.unit_header(DebugInfoOffset(start)).ok()?;
        debug_assert_eq!(header.offset(), UnitSectionOffset(start));
        let unit = Arc::new(dwarf.unit(header).ok()?);
        let mut entries: Vec<(UnitOffset, u32)> = Vec::new();
        // Depth and number of the enclosing entries.
        let mut around: Vec<(isize, u32)> = Vec::new();
        let mut raw = unit.entries_raw(None).ok()?;
        while !raw.is_empty() {
            let (offset, depth) = (raw.next_offset(), raw.next_depth());
            let Ok(read) = raw.read_abbreviation() else {
                break;
            };
            let Some(abbreviation) = read else { continue };
            while around.last().is_some_and(|(outer, _)| *outer >= depth) {
                around.pop();
            }
            let (tag, has_children) = (abbreviation.tag(), abbreviation.has_children());
            if is_scope(tag) {
                let Ok(number) = u32::try_from(entries.len()) else {
                    break;
                };
                let outer = around.last().map_or(u32::MAX, |(_, number)| *number);
                entries.push((offset, outer));
                if has_children {
                    around.push((depth, number));
                }
            }
            if raw.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
        }
        Some(Scopes {
            unit,
            part,
            entries,
        })
    }

    fn said(&self, dwarf: &Dwarf<Bytes<'a>>, offset: UnitOffset) -> Option<Said<'a>> {
        let dwarf = dwarf_of(dwarf, self.part)?;
        let mut said = Said {
            linkage_name: None,
            name: None,
            origin: None,
            line: None,
            call_discriminator: 0,
        };
        let mut raw = self.unit.entries_raw(Some(offset)).ok()?;
        let abbreviation = raw.read_abbreviation().ok()??;
        let string = |value| dwarf.attr_string(&self.unit, value).ok();
        for specification in abbreviation.attributes() {
            let attribute = raw.read_attribute(*specification).ok()?;
            match attribute.name() {
                dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => {
                    said.linkage_name = string(attribute.value());
                }
                dw::DW_AT_name => said.name = string(attribute.value()),
                dw::DW_AT_abstract_origin | dw::DW_AT_specification => {
                    said.origin = Some(attribute.value());
                }
                dw::DW_AT_decl_line => {
                    let line = attribute.udata_value().unwrap_or(0);
                    said.line = Some(u32::try_from(line).unwrap_or(0));
                }
                dw::DW_AT_GNU_discriminator => {
                    let number = attribute.udata_value().unwrap_or(0);
                    said.call_discriminator = u32::try_from(number).unwrap_or(0);
                }
                _ => {}
            }
        }
        Some(said)
    }

    /// `name`, which the entry at `offset` has, after the names of its parents.
    fn with_path(&self, dwarf: &Dwarf<Bytes<'a>>, offset: UnitOffset, name: String) -> String {
        let mut at = self.around(offset);
        let is_call = name.starts_with("operator()");
        let mut path = name;
        for level in 0..LEVELS_MAX {
            let Some((offset, outer)) = self.entries.get(at as usize) else {
                break;
            };
            // An entry that refers to another has its name and parents there; only those of the same unit are found.
            let (name, outer) = self.name_of(dwarf, *offset, *outer);
            let unnamed = || self.unnamed(dwarf, at, is_call && level == 0);
            let around = name.unwrap_or_else(unnamed);
            if path.len() + around.len() > PATH_BYTES_MAX {
                break;
            }
            path = format!("{around}::{path}");
            at = outer;
        }
        path
    }

    /// The number of the parent of the entry at `offset`.
    fn around(&self, offset: UnitOffset) -> u32 {
        let entry = self
            .entries
            .binary_search_by_key(&offset.0, |entry| entry.0.0);
        entry.map_or(u32::MAX, |number| self.entries[number].1)
    }

    /// The name of an entry, and the number of its parent.
    fn name_of(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        mut offset: UnitOffset,
        mut outer: u32,
    ) -> (Option<String>, u32) {
        for _ in 0..HOPS_MAX {
            let Some(said) = self.said(dwarf, offset) else {
                break;
            };
            if let Some(name) = said.name.and_then(text) {
                return (Some(name), outer);
            }
            let Some(AttributeValue::UnitRef(origin)) = said.origin else {
                break;
            };
            offset = origin;
            outer = self.around(offset);
        }
        (None, outer)
    }

    /// A name for entry `number`, which has none. gcc gives none to lambdas: they are numbered among the nameless
    /// entries of their function, which doesn't change when lines move.
    fn unnamed(&self, dwarf: &Dwarf<Bytes<'a>>, number: u32, is_lambda: bool) -> String {
        let tag = |offset| self.unit.entry(offset).map(|entry| entry.tag());
        let (offset, outer) = self.entries[number as usize];
        if tag(offset) == Ok(dw::DW_TAG_namespace) {
            return "(anonymous namespace)".to_owned();
        }
        let before = self.entries[..number as usize].iter().rev();
        let siblings = before.take(SIBLINGS_MAX).filter(|entry| entry.1 == outer);
        let nameless = siblings.filter(|(offset, _)| {
            work::take(STEPS_PER_ENTRY);
            let said = self.said(dwarf, *offset);
            said.is_some_and(|said| said.name.is_none() && said.origin.is_none())
        });
        let kind = if is_lambda { "lambda" } else { "unnamed" };
        format!("{{{kind}#{}}}", nameless.count() + 1)
    }
}

/// Whether functions can be inside it.
fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_namespace
            | dw::DW_TAG_module
            | dw::DW_TAG_class_type
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_interface_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_subprogram
    )
}

fn text(bytes: Bytes<'_>) -> Option<String> {
    let text = String::from_utf8_lossy(bytes.slice());
    (!text.is_empty()).then(|| text.into_owned())
}
