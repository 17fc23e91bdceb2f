//! What is read of the image of a module: its symbols, unwind rules and lines. Input: a module's image. Output: tables,
//! built when first needed.
//!
//! [`Tables`] keeps them for the next recording that has the same images, and for who reads a recording again.

use crate::images::library::{ImageFound, Library};
use crate::images::symbols::{Lines, SymbolTable};
use crate::recording::spaces::Module;
use crate::unwind::UnwindRules;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The tables of a module.
#[derive(Debug, Default)]
pub(super) struct ModuleTables<'l> {
    pub found: OnceLock<ImageFound>,
    pub table: OnceLock<SymbolTable>,
    pub lines: OnceLock<Option<Lines<'l>>>,
    pub rules: OnceLock<Arc<UnwindRules>>,
}

impl ModuleTables<'_> {
    /// Bytes of the image and its debug file; `None` if there is no image, or an objection to it.
    fn kept_bytes(&self) -> Option<u64> {
        let found = self.found.get().filter(|found| found.mismatch.is_none())?;
        let image = found.image.as_ref()?;
        let debug = found.debug.as_ref();
        let files = [Some(image), debug].into_iter().flatten();
        Some(files.map(|file| file.file_bytes().len() as u64).sum())
    }
}

/// Most modules whose tables are kept.
pub const KEPT_MODULES_MAX: usize = 512;
/// Most bytes of their images.
pub const KEPT_IMAGE_BYTES_MAX: u64 = 4 << 30;

/// Tables of the images of a library that outlive a recording.
#[derive(Debug)]
pub struct Tables<'l> {
    library: &'l Library,
    kept: Mutex<KeptTables<'l>>,
    /// Only modules whose build the recording tells: of another recording, one at the same path may be another.
    only_builds: bool,
}

#[derive(Debug, Default)]
struct KeptTables<'l> {
    modules: HashMap<Module, Arc<ModuleTables<'l>>>,
    image_bytes: u64,
    is_full: bool,
}

impl<'l> Tables<'l> {
    /// No tables yet of the images of `library`, for recordings of one target.
    pub fn new(library: &'l Library) -> Self {
        Tables {
            library,
            kept: Mutex::default(),
            only_builds: false,
        }
    }

    /// No tables yet of the images of `library`, for any recordings.
    pub fn of_builds(library: &'l Library) -> Self {
        Tables {
            only_builds: true,
            ..Tables::new(library)
        }
    }

    /// The library.
    pub fn library(&self) -> &'l Library {
        self.library
    }

    fn lock(&self) -> MutexGuard<'_, KeptTables<'l>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no more fit. Their owner then begins anew, with another library, which drops what isn't used any more.
    pub fn are_full(&self) -> bool {
        self.lock().is_full
    }

    /// The tables of `module`, if they are kept.
    pub(super) fn find(&self, module: &Module) -> Option<Arc<ModuleTables<'l>>> {
        self.lock().modules.get(module).map(Arc::clone)
    }

    /// Keeps the tables of `module`, if an image was found beyond doubt.
    pub(super) fn keep(&self, module: &Module, tables: &Arc<ModuleTables<'l>>) {
        let mut kept = self.lock();
        let Some(bytes) = tables.kept_bytes() else {
            return;
        };
        if kept.modules.contains_key(module) || self.only_builds && module.id().is_empty() {
            return;
        }
        if kept.modules.len() >= KEPT_MODULES_MAX || kept.image_bytes + bytes > KEPT_IMAGE_BYTES_MAX
        {
            kept.is_full = true;
            return;
        }
        kept.image_bytes += bytes;
        kept.modules.insert(module.clone(), Arc::clone(tables));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Image;
    use crate::recording::Recording;
    use crate::stacks::embedded::Embedded;
    use crate::stacks::symbolizer::Symbolizer;

    #[test]
    fn of_other_recordings_only_known_builds_are_kept() {
        let library = Library::default();
        let image = Arc::new(Image::open(&std::env::current_exe().unwrap()).unwrap());
        let found = ImageFound {
            image: Some(image),
            ..ImageFound::default()
        };
        let of_module = ModuleTables::default();
        of_module.found.set(found).unwrap();
        let of_module = Arc::new(of_module);
        let module = |build_id: &[u8]| Module {
            path: "/kernel".to_owned(),
            build_id: build_id.to_vec(),
            ..Module::default()
        };
        for (tables, unknown_is_kept) in [
            (Tables::new(&library), true),
            (Tables::of_builds(&library), false),
        ] {
            for (module, is_kept) in [(module(&[7]), true), (module(&[]), unknown_is_kept)] {
                tables.keep(&module, &of_module);
                assert_eq!(tables.find(&module).is_some(), is_kept);
            }
        }
    }

    #[test]
    fn images_of_recordings_with_embedded_symbols_are_kept() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus");
        let folder = std::path::Path::new(folder);
        let recording = Recording::open(&folder.join("pack-stack.uprof")).unwrap();
        let mut library = Library::default();
        library.only_given = true;
        for image in ["images/pack", "images/libpack.so"] {
            library.add_image(&folder.join(image)).unwrap();
        }
        let tables = Tables::of_builds(&library);
        let embedded = Embedded::of(&recording, &mut Vec::new());
        assert!(
            embedded
                .iter()
                .any(|one| one.identity.path.ends_with("/libpack.so"))
        );
        let symbolizer = Symbolizer::with(&recording, &tables, true);
        let modules = recording.spaces().modules();
        (0..modules.len() as u32).for_each(|module| {
            symbolizer.found(module);
        });
        symbolizer.keep();
        let kept = modules
            .iter()
            .filter(|module| tables.find(module).is_some());
        let kept: Vec<&str> = kept.map(Module::short_name).collect();
        assert!(
            kept.contains(&"libpack.so") && kept.contains(&"pack"),
            "{kept:?}"
        );
    }

    #[test]
    fn tables_are_kept_up_to_a_number_of_modules() {
        let library = Library::default();
        let tables = Tables::new(&library);
        let image = Arc::new(Image::open(&std::env::current_exe().unwrap()).unwrap());
        let of_module = ModuleTables::default();
        let missing = Arc::new(ModuleTables::default());
        let found = ImageFound {
            image: Some(Arc::clone(&image)),
            ..ImageFound::default()
        };
        of_module.found.set(found).unwrap();
        let of_module = Arc::new(of_module);
        let bytes = image.file_bytes().len() as u64;
        let most = (KEPT_IMAGE_BYTES_MAX / bytes).min(KEPT_MODULES_MAX as u64);
        let module = |number: u64| Module {
            path: format!("/lib/{number}"),
            ..Module::default()
        };
        for number in 0..most {
            tables.keep(&module(number), &missing);
            assert!(tables.find(&module(number)).is_none());
            tables.keep(&module(number), &of_module);
            tables.keep(&module(number), &of_module);
            assert!(tables.find(&module(number)).is_some());
        }
        assert!(!tables.are_full());
        tables.keep(&module(most), &of_module);
        assert!(tables.are_full() && tables.find(&module(most)).is_none());
    }
}
