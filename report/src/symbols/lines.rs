//! Source lines and inlined functions: an address of an image goes in, the functions there come
//! out with file and line, from the image's DWARF (addr2line). Split DWARF is followed to .dwo and
//! .dwp files, unless only named files may be looked at.

use crate::arena::Arena;
use crate::images::{Image, ImageAddress};
use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfFileType, DwarfPackage, EndianSlice, LittleEndian, SectionId};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Functions inlined into one another at one address beyond this many are left out.
const INLINED_MAX: usize = 256;

/// What DWARF says of one function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// As the linker would write it; `None` if only the line is known.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
}

/// Owns images and unpacked sections for as long as lines are asked for.
#[derive(Debug, Default)]
pub struct LineStore {
    images: Arena<Arc<Image>>,
    sections: Arena<Vec<u8>>,
}

/// The lines of one image.
pub struct Lines<'a> {
    store: &'a LineStore,
    dwarf: Arc<Dwarf<Bytes<'a>>>,
    package: Option<DwarfPackage<Bytes<'a>>>,
    /// Where split files may be besides where the compiler put them; `None`: don't look.
    folder: Option<PathBuf>,
    /// Not shared between threads; each takes one and puts it back.
    contexts: Mutex<Vec<Context<Bytes<'a>>>>,
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl LineStore {
    fn section<'a>(&'a self, image: &'a Image, name: &str) -> Bytes<'a> {
        let bytes = match image.section(name) {
            Some(Cow::Borrowed(bytes)) => bytes,
            Some(Cow::Owned(bytes)) => self.sections.keep(bytes),
            None => &[],
        };
        EndianSlice::new(bytes, LittleEndian)
    }
}

impl<'a> Lines<'a> {
    /// The lines of `image`, whose DWARF may lie in the file `debug` split off it. `None` if there
    /// is none. `search`: whether to open files that DWARF names.
    pub fn new(
        store: &'a LineStore,
        image: &Arc<Image>,
        debug: Option<&Arc<Image>>,
        search: bool,
    ) -> Option<Lines<'a>> {
        let has_dwarf = |image: &&Arc<Image>| image.section_range(".debug_info").is_some();
        let holder = Some(image)
            .filter(has_dwarf)
            .or_else(|| debug.filter(has_dwarf))?;
        let holder: &Image = store.images.keep(Arc::clone(holder));
        let load = |id: SectionId| Ok::<_, gimli::Error>(store.section(holder, id.name()));
        let dwarf = Arc::new(Dwarf::load(load).ok()?);
        let path = image.path().filter(|_| search);
        let package = path.and_then(|path| package(store, path));
        let folder = path.map(|path| path.parent().unwrap_or(Path::new("/")).to_owned());
        Some(Lines {
            store,
            dwarf,
            package,
            folder,
            contexts: Mutex::default(),
        })
    }

    /// The functions at `address`, outermost first; empty if DWARF says nothing.
    pub fn find(&self, address: ImageAddress) -> Vec<Line> {
        // addr2line looks for the range up to the next address, and here there is none.
        if address.0 == u64::MAX {
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
        let mut lines = self.find_with(&context, address).unwrap_or_default();
        lines.reverse();
        self.contexts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(context);
        lines
    }

    /// Innermost first.
    fn find_with(&self, context: &Context<Bytes<'a>>, address: ImageAddress) -> Option<Vec<Line>> {
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
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            lines.push(Line {
                function: name.map(Cow::into_owned),
                file: location
                    .and_then(|location| location.file)
                    .map(str::to_owned),
                line: location.and_then(|location| location.line).unwrap_or(0),
            });
            if lines.len() >= INLINED_MAX {
                break;
            }
        }
        Some(lines)
    }

    /// The part of the DWARF that the compiler put into a file of its own.
    fn split(&self, load: &SplitDwarfLoad<Bytes<'a>>) -> Option<Arc<Dwarf<Bytes<'a>>>> {
        if let Some(package) = &self.package
            && let Ok(Some(found)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(found));
        }
        let folder = self.folder.as_ref()?;
        let text = |bytes: Option<Bytes<'a>>| {
            bytes.map(|bytes| String::from_utf8_lossy(bytes.slice()).into_owned())
        };
        let path = PathBuf::from(text(load.path)?);
        let compiled_in = PathBuf::from(text(load.comp_dir).unwrap_or_default());
        let beside = folder.join(path.file_name()?);
        let image = [compiled_in.join(&path), beside]
            .iter()
            .find_map(|path| Image::open_named(path).ok())?;
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
        (dwarf.file_type == DwarfFileType::Dwo).then(|| Arc::new(dwarf))
    }
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
