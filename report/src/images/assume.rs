//! Where the images given by hand are in a guest: at the given address; where the guest's code matches theirs
//! ([`uprof::placement`]); by a symbol that both the image and a list of the guest's symbols have; or, in a
//! recording without code, where they were linked.

use super::{BuildId, Image};
use crate::images::library::{Given, Library};
use crate::images::symbols::SymbolTable;
use crate::recording::spaces::{Module, Region};
use crate::recording::{LIVES_MAX, Recording};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::Path;
use uprof::cold::{AddressSpace, Code, Contents, MappedFile, Mapping, TargetKind};
use uprof::cpu::is_kernel_address;
use uprof::placement::{self, Agreement, Located, NotLocated};

/// Symbols that give the bias: at fixed places in kernels and unikernels.
const LANDMARKS: [&str; 5] = ["_text", "_stext", "_start", "start_kernel", "main"];

/// Most places of one image to search for: one for each life in which it moved.
const SEARCHES_MAX: usize = 16;

/// Why an image is at no address of a guest.
#[derive(Debug, thiserror::Error)]
enum NotPlaced {
    #[error("it is for {image}, the guest is {guest}")]
    OtherArch {
        image: &'static str,
        guest: &'static str,
    },
    #[error(
        "its code is not what the guest ran there: it differs at {} of {} pieces",
        .0.other, .0.compared()
    )]
    OtherCode(Agreement),
    #[error("it would lie over {path}, which is at {start:#x}")]
    Overlap { path: String, start: u64 },
    #[error(transparent)]
    NotLocated(#[from] NotLocated),
}

/// The bias of an image, and a sentence on how it was found if that is worth one.
type FoundPlace = (u64, Option<String>);

impl Recording {
    /// Adds mappings of the images in `library` that were given by hand, if this is a guest's recording and doesn't
    /// say where they are. Returns what was found and what was refused, a sentence each.
    pub fn assume_images(&mut self, library: &Library) -> Vec<String> {
        if self.metadata().target.kind == TargetKind::Process {
            return Vec::new();
        }
        let mut said = Vec::new();
        for given in library.given() {
            if self.guest_spaces().are_several() && !is_in_upper_half(&given.image) {
                said.extend(self.assume_in_spaces(given));
                continue;
            }
            said.extend(self.assume_in_lives(given, library));
        }
        // Lives are usually alike.
        let mut before = HashSet::new();
        said.retain(|text| before.insert(text.clone()));
        said
    }

    /// The images in `library` that were given by hand and have no part in any of these recordings of processes, which
    /// say what was mapped; a sentence each. That an image is refused whose file has no names in the recording is a
    /// warning of its own (`library::Mismatch`).
    pub fn unused_images(all: &[&Recording], library: &Library) -> Vec<String> {
        let is_process = |it: &&Recording| it.metadata().target.kind == TargetKind::Process;
        if !all.iter().all(is_process) {
            return Vec::new();
        }
        let unused = library.given().iter().filter_map(|given| {
            let reasons = all.iter();
            let reasons = reasons.map(|it| it.not_of_process(&given.image, library.force));
            let reasons: Vec<String> = reasons.collect::<Option<_>>()?;
            Some(refused(&given.image, reasons.first()?))
        });
        unused.collect()
    }

    /// Why an image has no part in a process's recording.
    fn not_of_process(&self, image: &Image, force: bool) -> Option<String> {
        let modules = self.spaces().modules();
        let id = image.build_id();
        let has_its_id = |module: &Module| id.is_some_and(|id| id.0 == module.build_id);
        // The only image is taken for the one that is meant.
        if modules.len() <= 1 || modules.iter().any(has_its_id) {
            return None;
        }
        let file_name = image.path().and_then(Path::file_name);
        let is_named_so = |module: &&Module| file_name == Some(OsStr::new(module.short_name()));
        let named_so: Vec<&Module> = modules.iter().filter(is_named_so).collect();
        let Some(other) = named_so.first() else {
            let why = "no image of its name or build-id was mapped; `report --by module` lists those with samples";
            return Some(why.to_owned());
        };
        let id = id.filter(|_| !force)?;
        if named_so.iter().any(|module| module.build_id.is_empty()) {
            return None;
        }
        let mut parts = self.images().iter().map(|placed| &placed.part.identity);
        let has_names = parts.any(|identity| identity.build_id == other.build_id);
        has_names.then(|| {
            let recorded = BuildId(other.build_id.clone());
            format!("its build-id is {id}, the recorded one is {recorded}")
        })
    }

    /// Adds mappings of an image to the guest's lives, in each of which it may be elsewhere.
    fn assume_in_lives(&mut self, given: &Given, library: &Library) -> Vec<String> {
        let (mut found, mut said, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        let lives = self.lives_of(given);
        for &life in &lives {
            let placed = self.place_in_life(given, library, life, &found);
            let placed = placed.and_then(|place| {
                let Some((bias, how)) = place else {
                    return Ok(());
                };
                self.assume(&given.image, bias, life)?;
                found.push(bias);
                said.extend(how);
                Ok(())
            });
            refusals.extend(placed.err().map(|why| (life, why)));
        }
        // Lives are usually alike.
        said.extend(refusals.iter().map(|(life, why)| {
            if found.is_empty() {
                return refused(&given.image, why);
            }
            let (name, boot) = (given.image.name(), life + 1);
            format!("{name} is not used in boot {boot} of the guest: {why}")
        }));
        said
    }

    /// The lives in which an image may be: where an address is given, and there is code, those that have its code
    /// there, as the others may have it elsewhere.
    fn lives_of(&self, given: &Given) -> BTreeSet<u32> {
        let lives = self.lives();
        let Some(address) = given.address else {
            return lives;
        };
        let image = &*given.image;
        let bias = image.segments().bias_of_load_address(address).unwrap_or(0);
        let has_it = |life: &&u32| {
            let agreement = placement::agreement(image, bias, &self.code_of(**life));
            agreement.same > 0 && !placement::contradicts(image, agreement)
        };
        let with_it: BTreeSet<u32> = lives.iter().filter(has_it).copied().collect();
        if with_it.is_empty() { lives } else { with_it }
    }

    /// The address spaces to search for images: a guest's lives.
    fn lives(&self) -> BTreeSet<u32> {
        let lives = self.code().iter().map(|code| code.space);
        let named = self.tasks().iter().map(|task| task.space);
        let all = [0].into_iter().chain(lives).chain(named);
        let all = all.filter(|space| AddressSpace::new(*space, true).boot().is_some());
        if self.metadata().target.kind.is_guest() {
            all.take(LIVES_MAX).collect()
        } else {
            BTreeSet::from([0])
        }
    }

    /// The code that was recorded in an address space.
    fn code_of(&self, space: u32) -> Vec<Code> {
        let code = self.code().iter().filter(|code| code.space == space);
        code.cloned().collect()
    }

    /// Adds mappings of a program to the guest's address spaces that have its code. It is normal that other spaces
    /// don't.
    fn assume_in_spaces(&mut self, given: &Given) -> BTreeSet<String> {
        let image = &*given.image;
        let (mut said, mut is_there) = (BTreeSet::new(), false);
        let spaces: BTreeSet<u32> = self.code().iter().map(|code| code.space).collect();
        for &space in &spaces {
            let code = self.code_of(space);
            let found = match given.address {
                Some(address) => {
                    let bias = image.segments().bias_of_load_address(address).unwrap_or(0);
                    let agreement = placement::agreement(image, bias, &code);
                    let is_seen = agreement.same > 0 && !placement::contradicts(image, agreement);
                    is_seen.then_some(bias)
                }
                None => placement::locate(image, &code).ok().map(|found| found.bias),
            };
            let Some(bias) = found else {
                continue;
            };
            is_there = true;
            if let Err(why) = self.assume(image, bias, space) {
                said.insert(refused(image, why));
            }
        }
        if !is_there && !spaces.iter().any(|space| self.has_place_of(image, *space)) {
            let why = "no address space of the guest has code of it among what was recorded";
            said.insert(refused(image, why));
        }
        said
    }

    /// As [`Recording::place_of`], where the image was `found` in earlier lives.
    fn place_in_life(
        &self,
        given: &Given,
        library: &Library,
        life: u32,
        found: &[u64],
    ) -> Result<Option<FoundPlace>, NotPlaced> {
        let code = self.code_of(life);
        let there = found.iter().find(|&&bias| {
            let agreement = placement::agreement(&*given.image, bias, &code);
            agreement.same > 0 && !placement::contradicts(&*given.image, agreement)
        });
        match there {
            Some(&bias) => Ok(Some((bias, None))),
            // Many searches with different results would take too long.
            None if found.len() >= SEARCHES_MAX => Ok(None),
            None => self.place_of(given, library, life, &code),
        }
    }

    /// The bias of a given image, and how it was found; `None` if the recording has its mappings, or if nothing gives
    /// a bias.
    fn place_of(
        &self,
        given: &Given,
        library: &Library,
        life: u32,
        code: &[Code],
    ) -> Result<Option<FoundPlace>, NotPlaced> {
        let image = &*given.image;
        let arch = self.metadata().target.arch;
        if image.arch() != arch && self.metadata().target.kind != TargetKind::Imported {
            return Err(NotPlaced::OtherArch {
                image: image.arch().name(),
                guest: arch.name(),
            });
        }
        if let Some(address) = given.address {
            let bias = image.segments().bias_of_load_address(address).unwrap_or(0);
            check_code(image, bias, code)?;
            let unseen = placement::agreement(image, bias, code).compared() == 0;
            let name = image.name();
            return Ok(Some((
                bias,
                (unseen && !code.is_empty()).then(|| {
                    format!(
                        "at {address:#x} none of the guest's code that was recorded is in {name}"
                    )
                }),
            )));
        }
        let landmark = || landmark(image, library).map(|bias| Some((bias, None)));
        let linked = || self.spaces().is_empty(life).then_some((0, None));
        if code.is_empty() {
            return Ok(landmark().unwrap_or_else(linked));
        }
        match placement::locate(image, code) {
            Ok(Located { bias, agreement }) => Ok(Some((
                bias,
                (bias != 0).then(|| {
                    format!(
                        "{} is at {:#x}: the guest's code is the image's there at {} of {} pieces",
                        image.name(),
                        placement::start(image, bias),
                        agreement.same,
                        agreement.compared()
                    )
                }),
            ))),
            // Only padding was recorded.
            Err(NotLocated::Foreign { pieces: 0 }) => Ok(landmark().unwrap_or_else(linked)),
            Err(error) => match landmark() {
                Some(place) => Ok(place),
                None if self.has_place_of(image, life) => Ok(None),
                None => Err(error.into()),
            },
        }
    }

    /// Whether a mapping of the recording is of this image.
    fn has_place_of(&self, image: &Image, life: u32) -> bool {
        let id = image.build_id().map(|id| &id.0[..]);
        let own = Module {
            path: image.name().to_owned(),
            ..Module::default()
        };
        let module_of = |region: &Region| &self.spaces().modules()[region.module as usize];
        let mut of_life = self.spaces().regions_of(life).map(module_of);
        of_life.any(|module| match &module.build_id[..] {
            [] => id.is_none() && module.short_name() == own.short_name(),
            its => id == Some(its),
        })
    }

    /// Why `image`, given for `module`, isn't what the guest ran there.
    pub(crate) fn objection(&self, image: &Image, module: &Module) -> Option<String> {
        if self.code().is_empty() {
            return None;
        }
        let regions = self.spaces().regions();
        let mut of_module = regions.iter().filter(|(_, region)| {
            let known = self.spaces().modules().get(region.module as usize);
            known == Some(module)
        });
        let (life, region) = of_module.next()?;
        let bias = image
            .segments()
            .bias_of_mapping(region.start, region.file_offset)?;
        let contradiction = check_code(image, bias, &self.code_of(*life)).err()?;
        Some(contradiction.to_string())
    }

    /// Adds the mappings of an image with `bias` to a space: a life, or a process's.
    fn assume(&mut self, image: &Image, bias: u64, own: u32) -> Result<(), NotPlaced> {
        let file = mapping(image);
        let module = Module::of(&file);
        let code = image.segments().iter().filter(|segment| segment.has_code);
        let mappings = code.map(|segment| Mapping {
            start: segment.address.wrapping_add(bias),
            length: segment.memory_bytes,
            file_offset: segment.file_offset,
            ..file.clone()
        });
        let mappings: Vec<Mapping> = mappings.collect();
        let spaces = BTreeSet::from([own, self.spaces().shared_of(own)]);
        for mapping in &mappings {
            let end = mapping.start.saturating_add(mapping.length);
            let over = spaces.iter().find_map(|space| {
                let here = self.spaces().regions_of(*space);
                let over = here.filter(|region| region.start < end && mapping.start < region.end);
                over.min_by_key(|region| (region.start, region.since_ns))
            });
            if let Some(region) = over {
                let there = &self.spaces().modules()[region.module as usize];
                let is_same = *there == module
                    || !module.build_id.is_empty() && there.build_id == module.build_id
                    || there.short_name() == module.short_name();
                if is_same && region.start == mapping.start {
                    // The recording has it already.
                    return Ok(());
                }
                return Err(NotPlaced::Overlap {
                    path: there.path.clone(),
                    start: region.start,
                });
            }
        }
        for mapping in mappings {
            self.add_mapping(own, mapping);
        }
        Ok(())
    }
}

/// Checks that the code of `image`, loaded with `bias`, is what the guest ran.
fn check_code(image: &Image, bias: u64, code: &[Code]) -> Result<(), NotPlaced> {
    let agreement = placement::agreement(image, bias, code);
    if placement::contradicts(image, agreement) {
        Err(NotPlaced::OtherCode(agreement))
    } else {
        Ok(())
    }
}

/// Whether an image is in the kernel's half of the address space.
fn is_in_upper_half(image: &Image) -> bool {
    let page = image.segments().lowest_page();
    page.is_some_and(is_kernel_address)
}

fn refused(image: &Image, why: impl Display) -> String {
    format!("{} is not used: {why}", image.name())
}

/// The mapping's description of `image` as a file.
fn mapping(image: &Image) -> Mapping {
    let build_id = image.build_id().map(|id| id.0.clone()).unwrap_or_default();
    let bytes = image.bytes();
    let contents = build_id
        .is_empty()
        .then(|| Contents::of(bytes.len() as u64, bytes));
    Mapping {
        path: image.name().to_owned(),
        build_id,
        file: contents
            .and_then(Result::ok)
            .map(|contents| MappedFile::anywhere(Some(contents))),
        ..Mapping::default()
    }
}

/// The bias of `image`, by a list of the guest's symbols.
fn landmark(image: &Image, library: &Library) -> Option<u64> {
    if library.texts().is_empty() {
        return None;
    }
    let own = SymbolTable::from_image(image);
    LANDMARKS.into_iter().find_map(|name| {
        let stated = own.address_of(name)?;
        let real = library
            .texts()
            .iter()
            .find_map(|text| text.address_of(name))?;
        let bias = real.0.wrapping_sub(stated.0);
        (bias % placement::PAGE_BYTES == 0).then_some(bias)
    })
}
