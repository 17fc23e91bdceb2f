//! Finds the image of a module: among those given by hand, where the recorder saw it, and in the folders of separate
//! debug files. An image with another build-id is refused with a warning.

mod held;
mod mismatch;
mod search;

pub(crate) use mismatch::{Mismatch, listed};

use crate::images::symbols::{LineStore, SymbolTable, TextError};
use crate::images::{BuildId, Image, ImageError};
use crate::mapped::read_at_most;
use crate::recording::spaces::Module;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uprof::cold::Contents;

/// The largest symbol list (bytes): that of Linux with all modules has 20 MB.
const SYMBOL_LIST_BYTES_MAX: u64 = 512 << 20;

/// Images and symbol lists to search.
#[derive(Debug, Default)]
pub struct Library {
    given: Vec<Given>,
    held: held::HeldFiles,
    texts: Vec<SymbolTable>,
    lines: LineStore,
    /// Folders with images and debug files, searched first.
    pub folders: Vec<PathBuf>,
    /// Don't open files that the user didn't name.
    pub only_given: bool,
    /// Take an image in spite of another build-id.
    pub force: bool,
}

/// An image given by hand.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// The image.
    pub image: Arc<Image>,
    /// Where its lowest page was loaded, if the user gave it.
    pub address: Option<u64>,
}

/// What a library has for a module.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageFound {
    /// The image.
    pub image: Option<Arc<Image>>,
    /// The debug file that was split off it.
    pub debug: Option<Arc<Image>>,
    /// Objections to an image, which was refused or, by request, used anyway.
    pub mismatch: Option<Mismatch>,
}

/// Why a symbol list can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file asked for.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It names no function.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl Library {
    /// Adds an image by hand.
    ///
    /// # Errors
    /// [`ImageError`] if it isn't one.
    pub fn add_image(&mut self, path: &Path) -> Result<(), ImageError> {
        self.add_image_at(path, None)
    }

    /// Adds an image by hand, and where its lowest page was loaded.
    ///
    /// # Errors
    /// [`ImageError`] if it isn't one.
    pub fn add_image_at(&mut self, path: &Path, address: Option<u64>) -> Result<(), ImageError> {
        let image = Arc::new(Image::open(path)?);
        self.given.push(Given { image, address });
        Ok(())
    }

    /// Adds a symbol list as `nm -n` prints it, with guest addresses.
    ///
    /// # Errors
    /// [`SymbolsError`] if it can't be read or names no function.
    pub fn add_symbols(&mut self, path: &Path) -> Result<(), SymbolsError> {
        let read = || {
            let bytes = read_at_most(File::open(path)?, SYMBOL_LIST_BYTES_MAX)?;
            bytes.ok_or_else(|| {
                let most_mib = SYMBOL_LIST_BYTES_MAX >> 20;
                io::Error::other(format!(
                    "it is larger than {most_mib} MiB, which no list of symbols is"
                ))
            })
        };
        let bytes = read().map_err(|source| SymbolsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let table = SymbolTable::from_text(&path.display().to_string(), &text)?;
        self.texts.push(table);
        Ok(())
    }

    /// Adds a file that was opened while a process had it mapped, with its module in the recording.
    pub fn hold(&mut self, module: Module, file: Arc<File>) {
        self.held.add(module, file);
    }

    /// Images added by hand.
    pub(crate) fn given(&self) -> &[Given] {
        &self.given
    }

    /// Holds unpacked sections for source lines.
    pub(crate) fn line_store(&self) -> &LineStore {
        &self.lines
    }

    /// Symbol lists added by hand.
    pub(crate) fn texts(&self) -> &[SymbolTable] {
        &self.texts
    }

    /// The image of `module`. `alone`: the guest has no other module, so that any image given by hand is meant for
    /// it. `is_here`: the recording was made on this machine. `objection`: why, according to the recording, an image
    /// isn't what the guest ran there.
    pub(crate) fn find(
        &self,
        module: &Module,
        alone: bool,
        is_here: bool,
        objection: &dyn Fn(&Image) -> Option<String>,
    ) -> ImageFound {
        let by_path = if is_here { By::OwnPath } else { By::Path };
        let mut found = self.find_image(module, alone, by_path, objection);
        if found.debug.is_none() {
            found.debug = self.debug_file(module, found.image.as_deref());
        } else if found.image.is_none() {
            // It has names at least.
            found.mismatch = None;
            found.image = found.debug.take();
        }
        found
    }

    fn find_image(
        &self,
        module: &Module,
        alone: bool,
        by_path: By,
        foreign: &dyn Fn(&Image) -> Option<String>,
    ) -> ImageFound {
        let mut found = ImageFound::default();
        for Given { image, .. } in &self.given {
            let same_id = image.build_id().is_some_and(|id| id.0 == module.build_id);
            let same_name = image.path().and_then(Path::file_name)
                == Some(std::ffi::OsStr::new(module.short_name()));
            let meant = || same_name || alone;
            if same_id || (meant() && self.accept(image, module, By::Hand, foreign, &mut found)) {
                if image.has_code() {
                    found.image = Some(image.clone());
                    return found;
                }
                // A debug file. The code may still be found elsewhere.
                found.debug.get_or_insert_with(|| image.clone());
            }
        }
        if let Some(image) = self.held.find(module) {
            found.mismatch = None;
            found.image = Some(image);
            return found;
        }
        for path in search::images(module, &self.folders, self.only_given) {
            let is_given = self.folders.iter().any(|folder| path.starts_with(folder));
            let by_path = if is_given { By::OwnPath } else { by_path };
            if let Ok(image) = Image::open_named(&path)
                && self.accept(&image, module, by_path, foreign, &mut found)
            {
                found.image = Some(Arc::new(image));
                return found;
            }
        }
        found
    }

    /// The debug file split off the image of `module`.
    fn debug_file(&self, module: &Module, image: Option<&Image>) -> Option<Arc<Image>> {
        let own = image.and_then(Image::build_id).map_or(&[][..], |id| &id.0);
        let id = if module.build_id.is_empty() {
            own
        } else {
            &module.build_id
        };
        let paths = search::debug_files(id, &self.folders, self.only_given);
        let by_id = paths.into_iter().find_map(|path| {
            let debug = Image::open_named(&path).ok()?;
            debug
                .build_id()
                .is_some_and(|found| found.0 == id)
                .then_some(debug)
        });
        let linked = || search::linked_debug_file(image.filter(|_| !self.only_given)?);
        by_id.or_else(linked).map(Arc::new)
    }

    /// Whether `image` may be used for `module`; objections go into `found`.
    fn accept(
        &self,
        image: &Image,
        module: &Module,
        by: By,
        foreign: &dyn Fn(&Image) -> Option<String>,
        found: &mut ImageFound,
    ) -> bool {
        let Some(objection) = objection(image, module, by).or_else(|| foreign(image)) else {
            // Another image may have been refused before.
            found.mismatch = None;
            return true;
        };
        found.mismatch = Some(Mismatch {
            image: image.name().to_owned(),
            is_used: self.force,
            objection,
        });
        self.force
    }
}

/// How an image was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The user named it; what can't be checked is trusted.
    Hand,
    /// It is at a path where the module's image may be; but it may be any file.
    Path,
    /// The same, of a recording that was made on this machine, whose files are those that were there, or in a folder
    /// that the user named.
    OwnPath,
}

/// Why `image` is not, or may not be, the image of `module`.
fn objection(image: &Image, module: &Module, by: By) -> Option<String> {
    let wanted = BuildId(module.build_id.clone());
    match image.build_id() {
        Some(id) if !module.build_id.is_empty() => {
            return (id.0 != module.build_id)
                .then(|| format!("its build-id is {id}, the recorded one is {wanted}"));
        }
        None if !module.build_id.is_empty() => {
            return (by != By::Hand)
                .then(|| format!("it has no build-id, the recorded one is {wanted}"));
        }
        _ => {}
    }
    let file = match module.file.filter(|_| by != By::Hand) {
        Some(file) => file,
        None if by == By::Path => {
            return Some(
                "nothing tells that it is the recorded one: the recording was made on another machine, or before this \
                 one was started, or is not in a file of yours or of root; give it with --elf if it is"
                    .to_owned(),
            );
        }
        None => return None,
    };
    let Some(recorded) = file.contents else {
        return Some(
            "nothing tells that it is the file that was mapped, which the recorder could not \
             open; give it with --elf if it is"
                .to_owned(),
        );
    };
    let bytes = image.file_bytes();
    let found = Contents::of(bytes.len() as u64, bytes);
    (found.ok() != Some(recorded))
        .then(|| "its contents are not those of the file that was mapped".to_owned())
}
