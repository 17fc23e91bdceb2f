//! The code of functions. Input: the place of a sample. Output: the function's name, start and bytes, from an image
//! on this machine that the library accepts as the recorded one. Bytes of another build are never returned;
//! instructions are decoded elsewhere.

use crate::images::ImageAddress;
use crate::images::library::Library;
use crate::images::symbols::Line;
use crate::recording::Recording;
use crate::recording::spaces::{At, Module, ModuleId, Place};
use crate::stacks::symbolizer::{LocatedSymbol, Symbolizer};
use crate::text::printable;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use uprof::Arch;
use uprof::cpu::is_kernel_address;

/// The largest function (bytes); the rest of a larger one is ignored.
pub(crate) const CODE_BYTES_MAX: u64 = 1 << 20;

/// The place of a sample, from a label of a profile gathered by [`By::Place`](crate::profile::gather::By::Place).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Where<'p> {
    /// Path of the image, printable.
    pub module: &'p str,
    /// Offset in the image's file, or the guest's address. Of a return address: one less.
    pub offset: u64,
    /// Its distance from the start of its function (bytes).
    pub into_bytes: u64,
}

/// Why there is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NoCode {
    /// The image isn't available.
    NoImage,
    /// No symbol gives the start of the function.
    NoSymbol,
    /// The available image has no bytes there.
    NoBytes,
    /// Several images with the same path were recorded.
    SeveralBuilds,
    /// It is of 32 bits.
    Narrow,
    /// Beyond the part of the function that is read.
    TooFar,
    /// There are too many functions.
    TooMany,
}

impl fmt::Display for NoCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoCode::NoImage => {
                "its image isn't here; give it with --elf IMAGE, or its folder with --image-path \
                 FOLDER"
            }
            NoCode::NoSymbol => "no symbol says where the function begins",
            NoCode::NoBytes => "its image holds no code there, as a debug file doesn't",
            NoCode::SeveralBuilds => "the samples are of several builds of it",
            NoCode::Narrow => "code of 32 bits is named, but not shown",
            NoCode::TooFar => "it is too far from the start of the function",
            NoCode::TooMany => "too many functions are meant; give a whole name",
        })
    }
}

/// The sampled code of some recordings.
#[derive(Debug)]
pub struct Codes<'a> {
    recordings: Vec<&'a Recording>,
    library: &'a Library,
    demangle: bool,
    /// Made when first needed.
    sources: OnceLock<Vec<Source<'a>>>,
    /// By printable path: the recordings' numbers and their modules, in this order. Made when first needed.
    modules: OnceLock<HashMap<String, Vec<(usize, ModuleId)>>>,
}

#[derive(Debug)]
struct Source<'a> {
    recording: &'a Recording,
    symbolizer: Symbolizer<'a, 'a>,
}

impl<'a> Codes<'a> {
    /// The sampled code of `recordings`, where `library` has its images.
    pub fn new(recordings: &[&'a Recording], library: &'a Library, demangle: bool) -> Codes<'a> {
        Codes {
            recordings: recordings.to_vec(),
            library,
            demangle,
            sources: OnceLock::new(),
            modules: OnceLock::new(),
        }
    }

    fn sources(&self) -> &[Source<'a>] {
        self.sources.get_or_init(|| {
            let source = |recording: &&'a Recording| Source {
                recording,
                symbolizer: Symbolizer::new(recording, self.library, self.demangle),
            };
            self.recordings.iter().map(source).collect()
        })
    }

    /// The modules with this printable path.
    fn modules_at(&self, path: &str) -> &[(usize, ModuleId)] {
        let modules = self.modules.get_or_init(|| {
            let mut by_path: HashMap<String, Vec<(usize, ModuleId)>> = HashMap::new();
            for (source, recording) in self.recordings.iter().enumerate() {
                for (number, module) in recording.spaces().modules().iter().enumerate() {
                    let path = printable(&module.path).into_owned();
                    let at_path = by_path.entry(path).or_default();
                    at_path.push((source, number as ModuleId));
                }
            }
            by_path
        });
        modules.get(path).map(Vec::as_slice).unwrap_or_default()
    }

    /// The function at `spot`.
    ///
    /// # Errors
    /// [`NoCode`]: why there is none.
    pub(crate) fn function(&self, spot: Where<'_>) -> Result<Function<'_>, NoCode> {
        let mut build: Option<&Module> = None;
        let mut function = Err(NoCode::NoImage);
        for &(source_number, number) in self.modules_at(spot.module) {
            let source = &self.sources()[source_number];
            let module = &source.recording.spaces().modules()[number as usize];
            // Their samples are in one count.
            if build.is_some_and(|known| known.build_id != module.build_id) {
                return Err(NoCode::SeveralBuilds);
            }
            build = Some(module);
            if function.is_err() {
                function = source.function(number, spot);
                if let Ok(function) = &mut function {
                    function.source = source_number;
                }
            }
        }
        function
    }

    /// The name of `address` of the image of `function`: `parse`, `parse+0x10`, `read@plt`; within the function
    /// itself `+0x10`.
    pub(crate) fn name_of(&self, function: &Function<'_>, address: u64) -> Option<String> {
        let into_bytes = address.wrapping_sub(function.start);
        if into_bytes != 0 && into_bytes < function.bytes.len() as u64 {
            return Some(format!("+{into_bytes:#x}"));
        }
        let symbolizer = self.symbolizer(function)?;
        let place = place_of(symbolizer, function, address);
        let symbol = place.and_then(|place| symbolizer.find(place));
        let symbol = symbol
            .map(LocatedSymbol::symbol)
            .filter(|it| !it.name.is_empty())?;
        let name = symbolizer.readable(symbol.name);
        Some(match symbol.offset_bytes {
            0 => name,
            more => format!("{name}+{more:#x}"),
        })
    }

    /// The source line at `into_bytes` from the start of `function`: that of the innermost inlined function.
    pub(crate) fn line(&self, function: &Function<'_>, into_bytes: u64) -> Option<Line> {
        let symbolizer = self.symbolizer(function)?;
        let address = function.start.wrapping_add(into_bytes);
        let line = symbolizer
            .lines(place_of(symbolizer, function, address)?)
            .pop()?;
        (line.line > 0 && line.file.is_some()).then_some(line)
    }

    fn symbolizer(&self, function: &Function<'_>) -> Option<&Symbolizer<'a, 'a>> {
        let source = self.sources().get(function.source)?;
        Some(&source.symbolizer)
    }
}

/// The place of an address of the image of `function`.
fn place_of(
    symbolizer: &Symbolizer<'_, '_>,
    function: &Function<'_>,
    address: u64,
) -> Option<Place> {
    let place = function.place;
    let here = function.start.wrapping_add(function.into_bytes);
    let at = match place.at {
        At::Address {
            address: of,
            module,
        } => At::Address {
            address: of.wrapping_add(address.wrapping_sub(here)),
            module,
        },
        At::File { module, .. } => {
            let segments = symbolizer.image(place)?.segments();
            At::File {
                module,
                offset: segments.offset_of_address(ImageAddress(address))?,
            }
        }
    };
    Some(Place { at, ..place })
}

impl Source<'_> {
    fn function(&self, module: ModuleId, spot: Where<'_>) -> Result<Function<'_>, NoCode> {
        let spaces = self.recording.spaces();
        let (at, kernel) = if spaces.shared_region(module, spot.offset).is_some() {
            let (address, module) = (spot.offset, Some(module));
            (At::Address { address, module }, is_kernel_address(address))
        } else {
            let offset = spot.offset;
            (At::File { module, offset }, false)
        };
        let place = Place {
            at,
            kernel,
            is_return: false,
        };
        let image = self.symbolizer.image(place).ok_or(NoCode::NoImage)?;
        if image.is_narrow() {
            return Err(NoCode::Narrow);
        }
        let address = self.symbolizer.address(image.segments(), place);
        let address = address.ok_or(NoCode::NoBytes)?;
        let symbol = self.symbolizer.find(place).ok_or(NoCode::NoSymbol)?;
        let symbol = symbol.symbol();
        // The symbol must be the one that named the sample, else the code would be another function's.
        if symbol.offset_bytes != spot.into_bytes {
            return Err(NoCode::NoSymbol);
        }
        let start = address.0.checked_sub(spot.into_bytes);
        let start = start.ok_or(NoCode::NoBytes)?;
        let most_bytes = symbol.size_bytes.min(CODE_BYTES_MAX);
        let bytes = image.code_at(ImageAddress(start), most_bytes);
        Ok(Function {
            source: 0,
            place,
            arch: image.arch(),
            name: self.symbolizer.readable(symbol.name),
            start,
            into_bytes: spot.into_bytes,
            bytes: bytes.ok_or(NoCode::NoBytes)?,
        })
    }
}

/// A function of an image.
#[derive(Debug, Clone)]
pub(crate) struct Function<'c> {
    /// Number of its recording.
    source: usize,
    /// The place of a sample in it.
    place: Place,
    /// Its distance from the start (bytes).
    into_bytes: u64,
    /// The architecture of its code.
    pub arch: Arch,
    /// Its name; empty if known only from unwind rules.
    pub name: String,
    /// Its first address, as the image's headers state it.
    pub start: u64,
    /// Its code.
    pub bytes: &'c [u8],
}
