//! Source lines and inlined functions from DWARF (addr2line). Input: an address of an image. Output: the functions
//! there, with file and line. Split DWARF is followed to .dwo and .dwp files, shared DWARF to dwz's file, unless only
//! named files may be opened.

use super::discriminators::Discriminators;
use super::line::Line;
use super::paths::Paths;
use super::sections::{Bytes, LineStore};
use super::units::{self, Units};
use crate::images::{BuildId, Image, ImageAddress};
use addr2line::{Context, Frame, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::constants as dw;
use gimli::{
    AbbreviationsCacheStrategy, Dwarf, DwarfFileType, DwarfPackage, SectionId, Unit, UnitOffset,
    UnitRef,
};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where distributions put debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Most missing split files that are counted.
const MISSING_MAX: usize = 100_000;
/// Most functions inlined into one another at one address; others are left out.
const INLINED_MAX: usize = 256;

/// The DWARF of one image.
pub(super) struct DwarfLines<'a> {
    /// The image's name in messages.
    name: String,
    store: &'a LineStore,
    dwarf: Arc<Dwarf<Bytes<'a>>>,
    package: Option<DwarfPackage<Bytes<'a>>>,
    /// `None` if they are implausible.
    units: Option<Units>,
    /// Whether to open split files.
    search: bool,
    /// A folder to search for them besides the compiler's.
    folder: Option<PathBuf>,
    /// Not shared between threads: each takes one and puts it back.
    contexts: Mutex<Vec<Context<Bytes<'a>>>>,
    paths: Paths<'a>,
    discriminators: Discriminators,
    /// The file that the DWARF shares with others, if it is missing.
    shared_missing: Option<MissingSupplement>,
    /// Missing split files.
    split_missing: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for DwarfLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DwarfLines")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl<'a> DwarfLines<'a> {
    /// The lines of `image`, whose DWARF may lie in the file `debug` split off it. `None` if there
    /// is none. `search`: whether to open files that DWARF names.
    pub(crate) fn new(
        store: &'a LineStore,
        image: &Arc<Image>,
        debug: Option<&Arc<Image>>,
        search: bool,
    ) -> Option<DwarfLines<'a>> {
        let has_dwarf = |image: &&Arc<Image>| image.section_range(".debug_info").is_some();
        let holder = Some(image)
            .filter(has_dwarf)
            .or_else(|| debug.filter(has_dwarf))?;
        let holder: &Image = store.images.keep(Arc::clone(holder));
        let load = |id: SectionId| {
            Ok::<_, gimli::Error>(match id {
                // Where variables are is not needed. Units have their own addresses; this second table of them could
                // lead to a unit that wasn't checked.
                SectionId::DebugLoc | SectionId::DebugLocLists | SectionId::DebugAranges => {
                    Bytes::default()
                }
                _ => store.section(holder, id.name()),
            })
        };
        let mut dwarf = Dwarf::load(load).ok()?;
        holder.release();
        let shared_missing = share(store, holder, search, &mut dwarf).err();
        let path = image.path();
        let package = path
            .filter(|_| search)
            .and_then(|path| package(store, path));
        let folder = path.map(|path| path.parent().unwrap_or(Path::new("/")).to_owned());
        let mut units = None;
        let shared = dwarf.sup();
        if [Some(&dwarf), shared]
            .into_iter()
            .flatten()
            .all(units::have_sane_abbreviations)
        {
            // Units are read more than once: here, and by the addr2line of each thread.
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::All);
            units = Units::of(&dwarf);
        }
        Some(DwarfLines {
            name: image.name().to_owned(),
            store,
            units,
            dwarf: Arc::new(dwarf),
            package,
            search,
            folder,
            contexts: Mutex::default(),
            paths: Paths::default(),
            discriminators: Discriminators::default(),
            shared_missing,
            split_missing: Mutex::default(),
        })
    }

    /// The functions at `address`, outermost first; empty if DWARF has none. `declared`: with the lines that they
    /// begin on and the parts of lines, for which whole units are read.
    pub(crate) fn find(&self, address: ImageAddress, declared: bool) -> Vec<Line> {
        // addr2line needs the next address too, and the last one has none.
        if address.0 == u64::MAX {
            return Vec::new();
        }
        let units = self.units.as_ref();
        if !units.is_some_and(|units| units.may_read(&self.dwarf, address.0)) {
            return Vec::new();
        }
        let pooled = self
            .contexts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let made = || Context::from_arc_dwarf(Arc::clone(&self.dwarf)).ok();
        let Some(context) = pooled.or_else(made) else {
            return Vec::new();
        };
        let mut lines = self
            .find_with(&context, address, declared)
            .unwrap_or_default();
        lines.reverse();
        self.contexts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(context);
        lines
    }

    /// Innermost first.
    fn find_with(
        &self,
        context: &Context<Bytes<'a>>,
        address: ImageAddress,
        declared: bool,
    ) -> Option<Vec<Line>> {
        let mut lookup = context.find_frames(address.0);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(found) => break found.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split(&load));
                }
            }
        };
        let mut lines = Vec::new();
        let mut outermost = None;
        // Of the innermost function, the table of lines has it; of those around it, the entry of what is inlined.
        let mut discriminator = 0;
        if declared && let Some(unit) = context.find_dwarf_and_unit(address.0).skip_all_loads() {
            discriminator = self.discriminators.find(unit, address.0);
        }
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location.as_ref();
            outermost = frame.dw_die_offset;
            let (start_line, around) = if declared {
                self.declared(context, address, &frame)
            } else {
                (0, 0)
            };
            lines.push(Line {
                start_line,
                discriminator: std::mem::replace(&mut discriminator, around),
                function: self.function(context, address, &frame),
                file: location
                    .and_then(|location| location.file)
                    .map(str::to_owned),
                line: location.and_then(|location| location.line).unwrap_or(0),
            });
            if lines.len() >= INLINED_MAX {
                break;
            }
        }
        // GNU ld sets the addresses of functions that it drops (--gc-sections) to 0, and small programs have other code
        // within their length. In an image with code at 0, the first function has no lines.
        let begin = outermost.and_then(|offset| {
            let unit = context.find_dwarf_and_unit(address.0).skip_all_loads()?;
            begin_of(unit, offset, address)
        });
        (begin != Some(0)).then_some(lines)
    }

    /// The line on which the function is declared, and the part of the line that it is inlined at; 0 if unknown.
    fn declared(
        &self,
        context: &Context<Bytes<'a>>,
        address: ImageAddress,
        frame: &Frame<'_, Bytes<'a>>,
    ) -> (u32, u32) {
        let found = frame.dw_die_offset.and_then(|offset| {
            let unit = context.find_dwarf_and_unit(address.0).skip_all_loads()?;
            let line = self.paths.start_line(unit, offset).unwrap_or(0);
            let part = self.paths.call_discriminator(unit, offset);
            Some((line, part.unwrap_or(0)))
        });
        found.unwrap_or_default()
    }

    /// The linkage name, or the name with its path.
    fn function(
        &self,
        context: &Context<Bytes<'a>>,
        address: ImageAddress,
        frame: &Frame<'_, Bytes<'a>>,
    ) -> Option<String> {
        let function = frame.function.as_ref()?;
        let name = function.raw_name().ok()?;
        if !has_paths(function.language) || name.starts_with("_Z") || name.starts_with("_R") {
            return Some(name.into_owned());
        }
        let whole = frame.dw_die_offset.and_then(|offset| {
            // The lookup before has loaded all files.
            let unit = context.find_dwarf_and_unit(address.0).skip_all_loads()?;
            self.paths.name(unit, offset)
        });
        // In another unit at the same address the offset would be of another entry.
        let whole = whole.filter(|whole| whole.ends_with(&*name) || whole.starts_with('_'));
        Some(whole.map_or_else(|| name.into_owned(), |whole| whole.to_string()))
    }

    /// Descriptions of missing parts of the DWARF; of split files, only those that were needed.
    pub(crate) fn missing(&self) -> Vec<String> {
        let split = self
            .split_missing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let split_text = split.first().map(|first| {
            format!(
                "{} is without lines and inlined functions where they are in files split off it: \
                 {} of them are missing or of another build, such as {first}; keep them where they were compiled or \
                 beside the image, or pack them with `dwp -e IMAGE -o IMAGE.dwp`",
                self.name,
                split.len()
            )
        });
        let bare = self.paths.are_bare().then(|| {
            format!(
                "inlined functions of {} are without namespaces and classes: it was built with line \
                 tables only; debug = \"limited\" (Cargo) or -fdebug-info-for-profiling (clang) \
                 adds them",
                self.name
            )
        });
        let refused = self.units.as_ref().is_none_or(Units::has_refused);
        let refused = refused.then(|| {
            format!(
                "lines and inlined functions of {} are left out, in part or all: its debug information \
                 nests or repeats itself as no compiler's does; it is damaged or malicious",
                self.name
            )
        });
        let missing = self
            .shared_missing
            .iter()
            .map(ToString::to_string)
            .chain(split_text)
            .chain(refused);
        missing.chain(bare).collect()
    }

    /// The part of the DWARF that is in a split file.
    fn split(&self, load: &SplitDwarfLoad<Bytes<'a>>) -> Option<Arc<Dwarf<Bytes<'a>>>> {
        if let Some(package) = &self.package
            && let Ok(Some(found)) = package.find_cu(load.dwo_id, &load.parent)
        {
            let is_tame = first_unit(&found).is_none_or(|unit| units::is_tame(&found, &unit));
            return is_tame.then(|| Arc::new(found));
        }
        let text = |bytes: Option<Bytes<'a>>| {
            bytes.map(|bytes| String::from_utf8_lossy(bytes.slice()).into_owned())
        };
        let named = text(load.path)?;
        let compiled_in = PathBuf::from(text(load.comp_dir).unwrap_or_default());
        let path = Path::new(&named);
        let beside = self.folder.as_ref().zip(path.file_name());
        let beside = beside.map(|(folder, name)| folder.join(name));
        let places = [Some(compiled_in.join(path)), beside].into_iter().flatten();
        let mut searched = places.filter(|_| self.search);
        let found = searched.find_map(|place| self.split_file(load, &place));
        if found.is_none() {
            let mut missing = self
                .split_missing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if missing.len() < MISSING_MAX {
                missing.insert(named);
            }
        }
        found
    }

    /// The split file at `path`, if it is of the same build.
    fn split_file(
        &self,
        load: &SplitDwarfLoad<Bytes<'a>>,
        path: &Path,
    ) -> Option<Arc<Dwarf<Bytes<'a>>>> {
        let image = Image::open_named(path).ok()?;
        let image: &'a Image = self.store.images.keep(Arc::new(image));
        let section = |id: SectionId| {
            let name = id.dwo_name();
            Ok::<_, gimli::Error>(match name {
                Some(name) => self.store.section(image, name),
                None => Bytes::default(),
            })
        };
        let mut dwarf = Dwarf::load(section).ok()?;
        dwarf.make_dwo(&load.parent);
        let unit = first_unit(&dwarf)?;
        let is_one = dwarf.file_type == DwarfFileType::Dwo && unit.dwo_id == Some(load.dwo_id);
        (is_one && units::is_tame(&dwarf, &unit)).then(|| Arc::new(dwarf))
    }
}

/// Where the part with `address` of the function with the entry at `offset` begins.
fn begin_of(
    unit: UnitRef<'_, Bytes<'_>>,
    offset: UnitOffset,
    address: ImageAddress,
) -> Option<u64> {
    let entry = unit.entry(offset).ok()?;
    let Some(ranges) = entry.attr_value(dw::DW_AT_ranges) else {
        let begin = entry.attr_value(dw::DW_AT_low_pc)?;
        return unit.attr_address(begin).ok()?;
    };
    let mut ranges = unit.attr_ranges(ranges).ok()??;
    while let Some(range) = ranges.next().ok()? {
        if (range.begin..range.end).contains(&address.0) {
            return Some(range.begin);
        }
    }
    None
}

/// The unit of a split file that addr2line takes: the first.
fn first_unit<'a>(dwarf: &Dwarf<Bytes<'a>>) -> Option<Unit<Bytes<'a>>> {
    let header = dwarf.units().next().ok().flatten()?;
    dwarf.unit(header).ok()
}

/// The package of split files beside an image: `app.dwp` for `app`.
fn package<'a>(store: &'a LineStore, path: &Path) -> Option<DwarfPackage<Bytes<'a>>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    let image: &'a Image = store
        .images
        .keep(Arc::new(Image::open_named(Path::new(&name)).ok()?));
    let section = |id: SectionId| {
        Ok::<_, gimli::Error>(match id.dwo_name() {
            Some(name) => store.section(image, name),
            None => Bytes::default(),
        })
    };
    DwarfPackage::load(section, Bytes::default()).ok()
}

/// Whether functions of a language are inside of namespaces or classes.
fn has_paths(language: Option<gimli::DwLang>) -> bool {
    !matches!(
        language,
        Some(
            dw::DW_LANG_C
                | dw::DW_LANG_C89
                | dw::DW_LANG_C99
                | dw::DW_LANG_C11
                | dw::DW_LANG_C17
                | dw::DW_LANG_Go
                | dw::DW_LANG_Mips_Assembler
        )
    )
}

/// A file of shared debug information (DWARF 5, section 7.3.6) that is missing.
#[derive(Debug, thiserror::Error)]
#[error(
    "{image} shares debug information with {name} (build-id {id}), which isn't here: some inlined functions and files \
     have no name; install the rest of the package of debug files"
)]
struct MissingSupplement {
    image: String,
    name: String,
    id: BuildId,
}

/// Gives `dwarf` what `holder` shares with other files: the file that .gnu_debugaltlink names, with
/// its build-id (dwz -m; Debian's packages of debug files).
///
/// # Errors
/// The file is missing.
fn share<'a>(
    store: &'a LineStore,
    holder: &Image,
    search: bool,
    dwarf: &mut Dwarf<Bytes<'a>>,
) -> Result<(), MissingSupplement> {
    let Some(link) = holder.section(".gnu_debugaltlink") else {
        return Ok(());
    };
    let Some((name, id)) = link.iter().position(|byte| *byte == 0).map(|end| {
        let name = String::from_utf8_lossy(&link[..end]).into_owned();
        (name, BuildId(link[end + 1..].to_vec()))
    }) else {
        return Ok(());
    };
    let beside = holder.path().and_then(|path| path.canonicalize().ok());
    let beside = beside.as_deref().and_then(Path::parent);
    let beside = beside.map(|folder| folder.join(&name));
    let by_id = id.to_string();
    let (first, rest) = by_id.split_at_checked(2).unwrap_or_default();
    let by_id = Path::new(DEBUG_FOLDER)
        .join(".build-id")
        .join(first)
        .join(format!("{rest}.debug"));
    let opened = |path: PathBuf| {
        let image = Image::open_named(&path).ok()?;
        (image.build_id() == Some(&id)).then_some(image)
    };
    let mut places = beside.into_iter().chain([by_id]).filter(|_| search);
    let Some(image) = places.find_map(opened) else {
        return Err(MissingSupplement {
            image: holder.name().to_owned(),
            name,
            id,
        });
    };
    let image: &'a Image = store.images.keep(Arc::new(image));
    let load = |id: SectionId| Ok::<_, gimli::Error>(store.section(image, id.name()));
    // What can't be read refers to no file.
    let _ = dwarf.load_sup(load);
    Ok(())
}
