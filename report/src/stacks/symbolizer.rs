//! Symbolization. Input: a module and an offset. Output: function names, outermost first where functions were
//! inlined. Tables are built when a module is first needed.

use crate::images::library::{ImageFound, Library, Mismatch, listed};
use crate::images::symbols::{
    FoundSymbol, Line, Lines, SymbolTable, declare, demangle, has_undeclared, is_go,
};
use crate::images::{Image, ImageAddress, Segments};
use crate::recording::Recording;
use crate::recording::spaces::{At, Module, Place};
use crate::stacks::embedded::Embedded;
use crate::stacks::runtimes;
use crate::stacks::tables::{ModuleTables, Tables};
use crate::unwind::{Frameless, RuleTable, UnwindRules, called_on};
use crate::work;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use uprof::Arch;
use uprof::image::{ImageIdentity, MissedCaller};

/// One function at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Named {
    /// Function name; `None` where only module and offset are known.
    pub function: Option<String>,
    /// Bytes from the function's start.
    pub into_bytes: u64,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not asked for.
    pub start_line: u32,
    /// Which of several parts of the line, as the compiler numbered them; 0 if there is one, or not asked for.
    pub discriminator: u32,
    /// Inlined into the function before it.
    pub inlined: bool,
}

/// The longest linker's name whose readable form is kept (bytes): images are hostile, and long names rare.
const KEPT_NAME_BYTES_MAX: usize = 1024;

/// Symbolizes the places of one recording.
#[derive(Debug)]
pub(crate) struct Symbolizer<'r, 'l> {
    recording: &'r Recording,
    library: &'l Library,
    /// Keeps the modules' tables for the next recording.
    tables: Option<&'r Tables<'l>>,
    modules: Vec<ModuleSymbols<'l>>,
    /// Embedded tables of guest addresses that belong to no mapping.
    loose: Vec<Embedded>,
    /// Descriptions of what can't be read of the embedded tables.
    damaged: Vec<String>,
    demangle: bool,
    /// Readable names by the linker's: a function is named once for each of its instructions that occurs.
    demangled: RwLock<HashMap<Box<str>, Box<str>>>,
    /// Whether the recording was made on this machine; asked once, as that reads files.
    is_here: bool,
}

#[derive(Debug, Default)]
struct ModuleSymbols<'l> {
    /// What is read of its image.
    tables: Arc<ModuleTables<'l>>,
    /// The embedded tables.
    embedded: Vec<Embedded>,
    /// Set if a place had no name.
    unnamed: OnceLock<()>,
    /// See [`Symbolizer::frameless`].
    frameless: OnceLock<Vec<Frameless>>,
    /// See [`Symbolizer::trampolines`].
    trampolines: OnceLock<Vec<(u64, u64)>>,
    /// See [`Symbolizer::is_of_go`].
    is_of_go: OnceLock<bool>,
}

impl ModuleSymbols<'_> {
    /// Whether its image is looked for, and not part of the recording.
    fn has_image_of_library(&self) -> bool {
        let mut embedded = self.embedded.iter();
        embedded.all(|embedded| embedded.image.is_none())
    }
}

/// The first module of each path and build.
#[derive(Debug, Default)]
struct ModuleNumbers<'m> {
    by_both: HashMap<(&'m str, Vec<u8>), usize>,
    by_path: HashMap<&'m str, usize>,
    by_id: HashMap<Vec<u8>, usize>,
}

impl<'m> ModuleNumbers<'m> {
    fn new(modules: &'m [Module]) -> Self {
        let mut numbers = ModuleNumbers::default();
        for (number, module) in modules.iter().enumerate() {
            let (path, id) = (&module.path[..], module.id());
            numbers.by_path.entry(path).or_insert(number);
            numbers.by_id.entry(id.clone()).or_insert(number);
            numbers.by_both.entry((path, id)).or_insert(number);
        }
        numbers
    }

    /// The module that an embedded table is of.
    fn find(&self, identity: &ImageIdentity) -> Option<usize> {
        let (path, id) = (&identity.path[..], &identity.build_id);
        // The same build may be mapped under several paths.
        if let Some(number) = self.by_both.get(&(path, id.clone())) {
            return Some(*number);
        }
        if id.is_empty() {
            return self.by_path.get(path).copied();
        }
        let of_build = self.by_id.get(id);
        let without_id = self.by_both.get(&(path, Vec::new()));
        of_build.into_iter().chain(without_id).min().copied()
    }
}

/// A symbol, and how it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LocatedSymbol<'s> {
    /// In a module's tables.
    InModule(FoundSymbol<'s>),
    /// In a list of guest addresses.
    InList(FoundSymbol<'s>),
}

impl<'s> LocatedSymbol<'s> {
    pub(crate) fn symbol(self) -> FoundSymbol<'s> {
        match self {
            LocatedSymbol::InModule(symbol) | LocatedSymbol::InList(symbol) => symbol,
        }
    }
}

impl<'r, 'l> Symbolizer<'r, 'l> {
    /// A symbolizer for `recording`.
    pub(crate) fn new(recording: &'r Recording, library: &'l Library, demangle: bool) -> Self {
        Symbolizer::begin(recording, library, None, demangle)
    }

    /// As [`Symbolizer::new`], with the tables that are kept; [`Symbolizer::keep`] adds its own.
    pub(crate) fn with(recording: &'r Recording, tables: &'r Tables<'l>, demangle: bool) -> Self {
        Symbolizer::begin(recording, tables.library(), Some(tables), demangle)
    }

    fn begin(
        recording: &'r Recording,
        library: &'l Library,
        tables: Option<&'r Tables<'l>>,
        demangle: bool,
    ) -> Self {
        let modules = recording.spaces().modules();
        let mut symbols: Vec<ModuleSymbols<'l>> =
            modules.iter().map(|_| ModuleSymbols::default()).collect();
        let mut loose = Vec::new();
        let mut damaged = Vec::new();
        let all = Embedded::of(recording, &mut damaged);
        let numbers = ModuleNumbers::new(if all.is_empty() { &[] } else { modules });
        for embedded in all {
            match numbers.find(&embedded.identity) {
                Some(number) => symbols[number].embedded.push(embedded),
                None => loose.push(embedded),
            }
        }
        for (module, symbols) in modules.iter().zip(&mut symbols) {
            let kept = tables.filter(|_| symbols.has_image_of_library());
            if let Some(kept) = kept.and_then(|tables| tables.find(module)) {
                symbols.tables = kept;
            }
        }
        Symbolizer {
            recording,
            library,
            tables,
            modules: symbols,
            loose,
            damaged,
            demangle,
            demangled: RwLock::default(),
            is_here: recording.is_made_here(),
        }
    }

    /// The functions at `place`, outermost first; at least one.
    pub(crate) fn name(&self, place: Place) -> Vec<Named> {
        self.named(place, self.lines(place))
    }

    /// As [`Symbolizer::name`], with the lines on which the functions are declared, and the parts of lines. These are
    /// only in images: embedded tables don't have them.
    pub(crate) fn name_declared(&self, place: Place) -> Vec<Named> {
        let mut lines = self.lines(place);
        if has_undeclared(&lines)
            && let Some((of_image, address)) = self.lines_in_image(place)
        {
            declare(&mut lines, &of_image.find_declared(address));
        }
        self.named(place, lines)
    }

    fn named(&self, place: Place, lines: Vec<Line>) -> Vec<Named> {
        let symbol = self.find(place).map(LocatedSymbol::symbol);
        let into_bytes = symbol.map_or(0, |symbol| symbol.offset_bytes);
        let symbol = symbol.filter(|symbol| !symbol.name.is_empty());
        if lines.is_empty() {
            let function = symbol.map(|symbol| self.readable(symbol.name));
            return vec![Named {
                function,
                into_bytes,
                ..Named::default()
            }];
        }
        let named = lines.into_iter().enumerate().map(|(number, line)| {
            // Symbols have the parts of a function that a compiler has split; DWARF has inlined functions.
            let outermost = symbol.filter(|_| number == 0).map(|symbol| symbol.name);
            let function = outermost.or(line.function.as_deref());
            Named {
                function: function.map(|name| self.readable(name)),
                into_bytes,
                file: line.file,
                line: line.line,
                start_line: line.start_line,
                discriminator: line.discriminator,
                inlined: number > 0,
            }
        });
        named.collect()
    }

    /// Debug information of `place`, outermost first.
    pub(crate) fn lines(&self, place: Place) -> Vec<Line> {
        let Some(symbols) = place
            .module()
            .and_then(|module| self.modules.get(module as usize))
        else {
            return Vec::new();
        };
        let mut embedded = symbols.embedded.iter().inspect(|_| work::take(1));
        let embedded = embedded
            .find_map(|embedded| embedded.lines.find(self.embedded_address(embedded, place)?));
        let in_image = || {
            let (lines, address) = self.lines_in_image(place)?;
            Some(lines.find(address))
        };
        embedded.or_else(in_image).unwrap_or_default()
    }

    /// The lines of the image of `place`, and the place's address in it.
    fn lines_in_image(&self, place: Place) -> Option<(&Lines<'l>, ImageAddress)> {
        let module = place.module()?;
        let symbols = self.modules.get(module as usize)?;
        let address = self.image_address(module, place)?;
        let lines = symbols.tables.lines.get_or_init(|| {
            let found = symbols.tables.found.get()?;
            let image = found.image.as_ref().or(found.debug.as_ref())?;
            let (store, search) = (self.library.line_store(), !self.library.only_given);
            Lines::new(store, image, found.debug.as_ref(), search)
        });
        Some((lines.as_ref()?, address))
    }

    pub(crate) fn readable(&self, name: &str) -> String {
        if !self.demangle {
            return name.to_owned();
        }
        let known = self.demangled.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(readable) = known.get(name) {
            return readable.to_string();
        }
        drop(known);
        let readable = demangle(name).into_owned();
        if name.len() <= KEPT_NAME_BYTES_MAX {
            let known = self.demangled.write();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            known.insert(name.into(), readable.as_str().into());
        }
        readable
    }

    /// The function at `place`.
    pub(crate) fn find(&self, place: Place) -> Option<LocatedSymbol<'_>> {
        let in_module = place.module().and_then(|module| {
            let symbols = self.modules.get(module as usize)?;
            let mut embedded = symbols.embedded.iter().inspect(|_| work::take(1));
            let embedded = embedded.find_map(|embedded| {
                embedded
                    .symbols
                    .find(self.embedded_address(embedded, place)?)
            });
            match embedded {
                Some(symbol) if !symbol.name.is_empty() => embedded,
                _ => self.find_in_image(module, place).or(embedded),
            }
            .or_else(|| {
                symbols.unnamed.get_or_init(|| ());
                None
            })
        });
        // A name from a list is better than none.
        match in_module {
            Some(symbol) if !symbol.name.is_empty() => Some(LocatedSymbol::InModule(symbol)),
            _ => self
                .find_in_list(place)
                .or(in_module.map(LocatedSymbol::InModule)),
        }
    }

    /// Whether a function begins at `place`.
    pub(crate) fn is_function(&self, place: Place) -> bool {
        let found = self.find(place).map(LocatedSymbol::symbol);
        found.is_some_and(|symbol| symbol.offset_bytes == 0)
    }

    fn find_in_list(&self, place: Place) -> Option<LocatedSymbol<'_>> {
        let At::Address { address, .. } = place.at else {
            return None;
        };
        let mut loose = self.loose.iter().inspect(|_| work::take(1));
        let loose = loose.find_map(|embedded| {
            let address = address.wrapping_sub(embedded.identity.load_bias);
            embedded.symbols.find(ImageAddress(address))
        });
        let address = ImageAddress(address);
        let listed = || {
            self.library
                .texts()
                .iter()
                .find_map(|list| list.find(address))
        };
        loose.or_else(listed).map(LocatedSymbol::InList)
    }

    fn find_in_image(&self, module: u32, place: Place) -> Option<FoundSymbol<'_>> {
        let address = self.image_address(module, place)?;
        self.table(module).find(address)
    }

    /// The address of `place` in the image that was found. The headers of a debug file without code don't say what of
    /// it was mapped where; those in the recording do.
    fn image_address(&self, module: u32, place: Place) -> Option<ImageAddress> {
        let found = self.found(module);
        let image = found.image.as_ref().or(found.debug.as_ref())?;
        let embedded = || self.embedded_with_segments(module);
        let segments = match found.image.as_ref().filter(|image| image.has_code()) {
            Some(image) => image.segments(),
            None => embedded().map_or(image.segments(), |embedded| &embedded.segments),
        };
        self.address(segments, place)
    }

    /// What is embedded of a module with the headers of its image.
    fn embedded_with_segments(&self, module: u32) -> Option<&Embedded> {
        let embedded = &self.modules.get(module as usize)?.embedded;
        let mut listed = embedded.iter().inspect(|_| work::take(1));
        listed.find(|embedded| !embedded.segments.is_empty())
    }

    /// The functions of the image of a module.
    fn table(&self, module: u32) -> &SymbolTable {
        let tables = &self.modules[module as usize].tables;
        tables.table.get_or_init(|| {
            let found = self.found(module);
            let files = [found.image.as_deref(), found.debug.as_deref()];
            let files: Vec<&Image> = files.into_iter().flatten().collect();
            let functions = tables.rules.get().and_then(|rules| rules.function_ranges());
            let table = SymbolTable::with_functions(&files, functions);
            files.iter().for_each(|file| file.release());
            table
        })
    }

    /// What the embedded tables of a module say of a function without a frame: what is between `function`, which called
    /// `callee`, and `next`. By the addresses of its image.
    pub(crate) fn missed_caller(
        &self,
        module: u32,
        [callee, function, next]: [u64; 3],
    ) -> Option<u64> {
        let embedded = self.modules.get(module as usize)?.embedded.iter();
        let embedded = embedded.inspect(|_| work::take(1));
        let key = |one: &MissedCaller| (one.callee, one.function, one.next);
        let mut found = embedded.filter_map(|embedded| {
            let callers = &embedded.callers;
            let at = callers.binary_search_by_key(&(callee, function, next), key);
            Some(callers[at.ok()?].caller)
        });
        found.next()
    }

    /// Where the function called `name` starts and ends in the image of `place`.
    pub(crate) fn function_beside(
        &self,
        place: Place,
        name: &str,
    ) -> Option<(ImageAddress, ImageAddress)> {
        let mut all = self
            .table(place.module()?)
            .iter()
            .inspect(|_| work::take(1));
        let (start, end, _) = all.find(|(.., known)| *known == name)?;
        Some((start, end))
    }

    /// The functions of Go's runtime in a module that call others without a frame, by the addresses of its image.
    pub(crate) fn frameless(&self, module: u32) -> &[Frameless] {
        let Some(symbols) = self.modules.get(module as usize) else {
            return &[];
        };
        let find = || match &self.found(module).image {
            Some(image) if is_go(image) => frameless_in(self.table(module)).collect(),
            Some(_) => Vec::new(),
            None => {
                let embedded = symbols.embedded.iter();
                let placed = embedded.filter(|embedded| !embedded.segments.is_empty());
                let found = placed.flat_map(|embedded| frameless_in(&embedded.symbols));
                found.collect()
            }
        };
        symbols.frameless.get_or_init(find)
    }

    /// The address of `place` by the headers of an image with these segments.
    pub(crate) fn address(&self, segments: &Segments, place: Place) -> Option<ImageAddress> {
        let (address, module) = match place.at {
            At::Address { address, module } => (address, module?),
            At::File { offset, .. } => return segments.address_of_offset(offset),
        };
        let region = self.recording.spaces().shared_region(module, address)?;
        let bias = segments.bias_of_mapping(region.start, region.file_offset)?;
        Some(ImageAddress(address.wrapping_sub(bias)))
    }

    fn embedded_address(&self, embedded: &Embedded, place: Place) -> Option<ImageAddress> {
        if !embedded.segments.is_empty() {
            return self.address(&embedded.segments, place);
        }
        let offset = match place.at {
            At::Address { address, .. } => {
                let bias = embedded.identity.load_bias;
                return Some(ImageAddress(address.wrapping_sub(bias)));
            }
            At::File { offset, .. } => offset,
        };
        // Without segments the mapping of file offsets is unknown; the text is usually at its own offset.
        let image = self.image(place);
        let stated = image.and_then(|image| image.segments().address_of_offset(offset));
        stated.or(Some(ImageAddress(offset)))
    }

    /// The segments of a module and its unwind rules: those of its image, if it has code, else the embedded ones.
    pub(crate) fn unwinding(&self, module: u32) -> Option<(&Segments, Arc<UnwindRules>)> {
        let symbols = self.modules.get(module as usize)?;
        let found = self.found(module);
        let embedded = self.embedded_with_segments(module);
        let image = found.image.as_ref();
        if let Some(image) = image.filter(|image| image.has_code() || embedded.is_none()) {
            let compile = || {
                let rules = UnwindRules::of(image, found.debug.as_ref());
                let files = [Some(image), found.debug.as_ref()];
                files.into_iter().flatten().for_each(|file| file.release());
                Arc::new(rules)
            };
            return Some((
                image.segments(),
                Arc::clone(symbols.tables.rules.get_or_init(compile)),
            ));
        }
        embedded.map(|embedded| (&embedded.segments, Arc::clone(&embedded.rules)))
    }

    /// The rules of code that was made at run time between these addresses: of Python's trampolines, whose names say
    /// what they are. `None` if there are none.
    pub(crate) fn trampolines(&self, module: u32, addresses: Range<u64>) -> Option<UnwindRules> {
        let symbols = self.modules.get(module as usize)?;
        let find = || {
            let embedded = symbols
                .embedded
                .iter()
                .filter(|one| one.segments.is_empty());
            let all = embedded.flat_map(|embedded| embedded.symbols.iter());
            let of_python = all.filter(|(.., name)| name.starts_with("py::"));
            let found = of_python.map(|(start, end, _)| (start.0, end.0.saturating_sub(start.0)));
            let mut found: Vec<(u64, u64)> = found.collect();
            found.sort_unstable();
            found
        };
        if self.recording.metadata().target.arch != Arch::X86_64 {
            return None;
        }
        let all = symbols.trampolines.get_or_init(find);
        let before = |address: u64| all.partition_point(|(start, _)| *start < address);
        let here = all.get(before(addresses.start)..before(addresses.end))?;
        let table = RuleTable::of_python(here);
        (!table.is_empty()).then(|| table.into())
    }

    /// Whether a module is of a program in Go.
    pub(crate) fn is_of_go(&self, module: u32) -> bool {
        let Some(symbols) = self.modules.get(module as usize) else {
            return false;
        };
        let find = || match &self.found(module).image {
            Some(image) => is_go(image),
            None => {
                let embedded = symbols.embedded.iter();
                let placed = embedded.filter(|embedded| !embedded.segments.is_empty());
                let mut all = placed.flat_map(|embedded| embedded.symbols.iter());
                all.any(|(.., name)| name.starts_with("runtime."))
            }
        };
        *symbols.is_of_go.get_or_init(find)
    }

    /// The image of a place's module.
    pub(crate) fn image(&self, place: Place) -> Option<&Arc<Image>> {
        self.found(place.module()?).image.as_ref()
    }

    /// What was found for a module.
    pub(crate) fn found(&self, module: u32) -> &ImageFound {
        static NOTHING: ImageFound = ImageFound {
            image: None,
            debug: None,
            mismatch: None,
        };
        let Some(symbols) = self.modules.get(module as usize) else {
            return &NOTHING;
        };
        symbols.tables.found.get_or_init(|| {
            let mut embedded = symbols.embedded.iter();
            if let Some(image) = embedded.find_map(|embedded| embedded.image.clone()) {
                return ImageFound {
                    image: Some(image),
                    ..ImageFound::default()
                };
            }
            let modules = self.recording.spaces().modules();
            let alone = modules.len() == 1;
            modules
                .get(module as usize)
                .map_or_else(ImageFound::default, |found| {
                    let objection = |image: &Image| self.recording.objection(image, found);
                    self.library.find(found, alone, self.is_here, &objection)
                })
        })
    }

    /// Keeps the tables of its modules' images, if somebody wants them.
    pub(crate) fn keep(&self) {
        let Some(tables) = self.tables else {
            return;
        };
        for (module, symbols) in self.recording.spaces().modules().iter().zip(&self.modules) {
            if symbols.has_image_of_library() {
                tables.keep(module, &symbols.tables);
            }
        }
    }

    /// Gives back the memory of what was read of the images.
    pub(crate) fn release(&self) {
        let found = self
            .modules
            .iter()
            .filter_map(|symbols| symbols.tables.found.get());
        let files = found.flat_map(|found| [&found.image, &found.debug]);
        files.flatten().for_each(|file| file.release());
    }

    /// The number of images used in spite of a different build-id, of modules that were needed.
    pub(crate) fn forced(&self) -> u64 {
        let found = self
            .modules
            .iter()
            .filter_map(|symbols| symbols.tables.found.get());
        found
            .filter(|found| found.mismatch.is_some() && found.image.is_some())
            .count() as u64
    }

    /// Warnings about images and embedded tables, of modules that were needed.
    pub(crate) fn warnings(&self) -> Vec<String> {
        // A refused image matters only if nothing else names the module.
        let matters = |symbols: &&ModuleSymbols<'_>| {
            symbols.embedded.is_empty()
                || symbols
                    .tables
                    .found
                    .get()
                    .is_some_and(|it| it.image.is_some())
        };
        let found = self
            .modules
            .iter()
            .filter(matters)
            .filter_map(|symbols| symbols.tables.found.get());
        let mismatches = Mismatch::warnings(found.filter_map(|found| found.mismatch.as_ref()));
        let lines = self
            .modules
            .iter()
            .filter_map(|symbols| symbols.tables.lines.get());
        let missing = lines.flatten().flat_map(Lines::missing);
        let warnings = mismatches.into_iter().chain(missing);
        let warnings = warnings.chain(self.damaged.iter().cloned());
        let made = self
            .made_unnamed()
            .then(|| runtimes::advice(self.recording));
        warnings.chain(self.without_images()).chain(made).collect()
    }

    /// Whether a warning says why samples have no names.
    pub(crate) fn explains_unnamed(&self) -> bool {
        self.made_unnamed() || self.without_images().is_some()
    }

    /// Whether samples are in code without names that was generated at run time.
    fn made_unnamed(&self) -> bool {
        let modules = self.recording.spaces().modules().iter().zip(&self.modules);
        let mut made = modules.filter(|(module, _)| runtimes::is_made(&module.path));
        made.any(|(_, symbols)| symbols.unnamed.get().is_some() && symbols.embedded.is_empty())
    }

    /// Sampled files of which nothing is known, and what to do.
    fn without_images(&self) -> Option<String> {
        let modules = self.recording.spaces().modules().iter().zip(&self.modules);
        let unnamed = modules.filter(|(module, symbols)| {
            let is_file = module.path.starts_with('/') && !runtimes::is_made(&module.path);
            let found = symbols.tables.found.get();
            let refused = found.is_none_or(|it| it.image.is_some() || it.mismatch.is_some());
            is_file && !refused && symbols.embedded.is_empty() && symbols.unnamed.get().is_some()
        });
        let mut paths: Vec<&str> = unnamed.map(|(module, _)| module.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        (!paths.is_empty()).then(|| {
            format!(
                "no names for functions of {}: the image isn't here; give it with \
                 --elf IMAGE, or its folder with --image-path FOLDER",
                listed(&paths)
            )
        })
    }
}

fn frameless_in(table: &SymbolTable) -> impl Iterator<Item = Frameless> {
    table.iter().filter_map(|(start, end, name)| {
        Some(Frameless {
            code: start.0..end.0,
            stack: called_on(name)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::Arch;

    #[test]
    fn a_table_is_of_the_module_with_its_path_and_build_or_else_the_first_that_may_be_its() {
        let modules = [("a", ""), ("b", "1"), ("c", "1"), ("b", "2"), ("b", "")];
        let modules = modules.map(|(path, id)| Module {
            path: path.into(),
            build_id: id.into(),
            file: None,
        });
        let numbers = ModuleNumbers::new(&modules);
        let found = |path: &str, id: &str| {
            numbers.find(&ImageIdentity {
                path: path.into(),
                build_id: id.into(),
                arch: Arch::X86_64,
                load_bias: 0,
                origin: String::new(),
            })
        };
        // Both agree.
        assert_eq!(found("c", "1"), Some(2));
        assert_eq!(found("b", "2"), Some(3));
        assert_eq!(found("b", ""), Some(4));
        // The build is mapped elsewhere.
        assert_eq!(found("x", "1"), Some(1));
        assert_eq!(found("x", "3"), None);
        // The build of one of them is not known.
        assert_eq!(found("c", ""), Some(2));
        assert_eq!(found("a", "3"), Some(0));
        assert_eq!(found("a", "2"), Some(0));
        assert_eq!(found("b", "3"), Some(4));
    }
}
