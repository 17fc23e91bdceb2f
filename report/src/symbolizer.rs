//! Names for places: a module and an offset go in, function names come out, outermost first where
//! functions were inlined. Tables are built when a module is first asked for.

use crate::images::{Image, ImageAddress};
use crate::library::{ImageFound, Library};
use crate::recording::Recording;
use crate::spaces::{Module, Place};
use crate::symbols::{Line, Lines, SymbolTable, demangle};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// One function at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// Function name; `None` where only module and offset are known.
    pub function: Option<String>,
    /// Bytes from the function's start.
    pub into_bytes: u64,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
    /// Inlined into the function before it.
    pub inlined: bool,
}

/// Names the places of one recording.
#[derive(Debug)]
pub struct Symbolizer<'a> {
    recording: &'a Recording,
    library: &'a Library,
    modules: Vec<ModuleSymbols<'a>>,
    /// Embedded tables of guest addresses that belong to no mapping.
    loose: Vec<SymbolTable>,
    demangle: bool,
}

#[derive(Debug, Default)]
struct ModuleSymbols<'a> {
    found: OnceLock<ImageFound>,
    table: OnceLock<SymbolTable>,
    lines: OnceLock<Option<Lines<'a>>>,
    /// Symbols that travelled with the recording, and their load bias.
    embedded: Option<(SymbolTable, u64)>,
}

impl<'a> Symbolizer<'a> {
    /// A symbolizer for `recording`.
    pub fn new(recording: &'a Recording, library: &'a Library, demangle: bool) -> Self {
        let modules = recording.spaces().modules();
        let mut symbols: Vec<ModuleSymbols<'a>> =
            modules.iter().map(|_| ModuleSymbols::default()).collect();
        let mut loose = Vec::new();
        for ((path, build_id, bias), table) in embedded_tables(recording) {
            let is_it = |module: &Module| {
                let same_id = !build_id.is_empty() && module.build_id == build_id;
                let one_unknown = build_id.is_empty() || module.build_id.is_empty();
                same_id || one_unknown && module.path == path
            };
            match modules.iter().position(is_it) {
                Some(number) => symbols[number].embedded = Some((table, bias)),
                None => loose.push(table),
            }
        }
        Symbolizer {
            recording,
            library,
            modules: symbols,
            loose,
            demangle,
        }
    }

    /// The functions at `place`, outermost first; at least one.
    pub fn name(&self, place: Place) -> Vec<Named> {
        let symbol = self.find(place);
        let into_bytes = symbol.map_or(0, |(_, into_bytes)| into_bytes);
        let lines = self.lines(place);
        if lines.is_empty() {
            let function = symbol.map(|(name, _)| self.readable(name));
            return vec![Named {
                function,
                into_bytes,
                ..Named::default()
            }];
        }
        let named = lines.into_iter().enumerate().map(|(number, line)| {
            // The linker knows the parts of a function that a compiler has split; DWARF knows
            // what was inlined.
            let outermost = symbol.filter(|_| number == 0).map(|(name, _)| name);
            let function = outermost.or(line.function.as_deref());
            Named {
                function: function.map(|name| self.readable(name)),
                into_bytes,
                file: line.file,
                line: line.line,
                inlined: number > 0,
            }
        });
        named.collect()
    }

    /// What DWARF says of `place`, outermost first.
    fn lines(&self, place: Place) -> Vec<Line> {
        let of_module = || {
            let symbols = self.modules.get(place.module? as usize)?;
            let image = self.image(place)?;
            let address = self.image_address(image, place)?;
            let lines = symbols.lines.get_or_init(|| {
                let found = symbols.found.get()?;
                let (store, search) = (self.library.line_store(), !self.library.only_given);
                Lines::new(store, image, found.debug.as_ref(), search)
            });
            Some(lines.as_ref()?.find(address))
        };
        of_module().unwrap_or_default()
    }

    fn readable(&self, name: &str) -> String {
        match self.demangle {
            true => demangle(name).into_owned(),
            false => name.to_owned(),
        }
    }

    fn find(&self, place: Place) -> Option<(&str, u64)> {
        let in_module = place.module.and_then(|module| {
            let symbols = self.modules.get(module as usize)?;
            self.find_embedded(symbols, place)
                .or_else(|| self.find_in_image(module, place))
        });
        let address = ImageAddress(place.offset);
        let lists = self.loose.iter().chain(self.library.texts());
        let in_list = || {
            lists
                .filter(|_| place.absolute)
                .find_map(|list| list.find(address))
        };
        in_module.or_else(|| in_list().map(|symbol| (symbol.name, symbol.offset_bytes)))
    }

    fn find_embedded<'s>(
        &self,
        symbols: &'s ModuleSymbols<'a>,
        place: Place,
    ) -> Option<(&'s str, u64)> {
        let (table, bias) = symbols.embedded.as_ref()?;
        let address = match place.absolute {
            true => ImageAddress(place.offset.wrapping_sub(*bias)),
            // Without the image nobody says where its file offsets go; text mostly lies at its
            // own offset.
            false => self
                .image(place)
                .and_then(|image| image.segments().address_of_offset(place.offset))
                .unwrap_or(ImageAddress(place.offset)),
        };
        let symbol = table.find(address)?;
        Some((symbol.name, symbol.offset_bytes))
    }

    fn find_in_image(&self, module: u32, place: Place) -> Option<(&str, u64)> {
        let image = self.image(place)?;
        let symbols = &self.modules[module as usize];
        let address = self.image_address(image, place)?;
        let table = symbols.table.get_or_init(|| {
            let found = self.found(module);
            let files = [found.image.as_deref(), found.debug.as_deref()];
            let files: Vec<&Image> = files.into_iter().flatten().collect();
            SymbolTable::from_images(&files)
        });
        let symbol = table.find(address)?;
        Some((symbol.name, symbol.offset_bytes))
    }

    /// The address of `place` as its image's own headers state it.
    pub fn image_address(&self, image: &Image, place: Place) -> Option<ImageAddress> {
        if !place.absolute {
            return image.segments().address_of_offset(place.offset);
        }
        let region = self.recording.spaces().region(0, u64::MAX, place.offset)?;
        let bias = image
            .segments()
            .bias_of_mapping(region.start, region.file_offset)?;
        Some(ImageAddress(place.offset.wrapping_sub(bias)))
    }

    /// The image of a place's module.
    pub fn image(&self, place: Place) -> Option<&Arc<Image>> {
        self.found(place.module?).image.as_ref()
    }

    /// What was found for a module.
    pub fn found(&self, module: u32) -> &ImageFound {
        static NOTHING: ImageFound = ImageFound {
            image: None,
            debug: None,
            mismatch: None,
        };
        let Some(symbols) = self.modules.get(module as usize) else {
            return &NOTHING;
        };
        symbols.found.get_or_init(|| {
            let modules = self.recording.spaces().modules();
            let alone = modules.len() == 1;
            modules
                .get(module as usize)
                .map_or_else(ImageFound::default, |found| self.library.find(found, alone))
        })
    }

    /// Images that were there but have another build-id, in words; only of modules that were asked
    /// for.
    pub fn mismatches(&self) -> Vec<String> {
        let found = self
            .modules
            .iter()
            .filter_map(|symbols| symbols.found.get());
        found.filter_map(|found| found.mismatch.clone()).collect()
    }
}

type TableKey = (String, Vec<u8>, u64);

/// The symbols of all parts of each embedded image, together.
fn embedded_tables(recording: &Recording) -> Vec<(TableKey, SymbolTable)> {
    let mut parts: BTreeMap<TableKey, Vec<&uprof::image::ImagePart>> = BTreeMap::new();
    for part in recording.images() {
        let identity = &part.identity;
        let key = (
            identity.path.clone(),
            identity.build_id.clone(),
            identity.load_bias,
        );
        parts.entry(key).or_default().push(part);
    }
    let tables = parts.into_iter().map(|(key, parts)| {
        let symbols = parts.iter().flat_map(|part| part.symbols());
        let symbols = symbols.map(|symbol| (symbol.address, symbol.size_bytes, symbol.name));
        (key, SymbolTable::from_symbols(symbols))
    });
    tables.filter(|(_, table)| !table.is_empty()).collect()
}
