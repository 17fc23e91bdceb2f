//! Address spaces over time: which image was mapped at an address when a sample was taken. Input: module
//! events. Output: a module, and an offset in its file.
//!
//! An address space has generations. A generation begins empty when a process runs another program, or as a
//! copy of another address space at a fork. Within a generation, the latest mapping that covers an address is
//! valid.

pub(crate) mod visible;

use self::visible::Visible;
use crate::work;
use std::collections::{BTreeMap, HashMap};
use uprof::WordMap;
use uprof::cold::{
    AddressSpace, GUEST_USER_PATH, MappedFile, Mapping, ModuleChange, ModuleEvent, space_of_guest,
};
use uprof::cpu::is_kernel_address;

/// Number of a module in [`Spaces::modules`].
pub(crate) type ModuleId = u32;

/// An image file as the recorder saw it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Module {
    /// Path, or a name in brackets.
    pub path: String,
    /// GNU build-id; empty if the image has none.
    pub build_id: Vec<u8>,
    /// Identity of the file if it has no build-id; without device and inode if its contents identify it.
    pub file: Option<MappedFile>,
}

impl Module {
    /// The image of a mapping. Copies of one build are the same module.
    pub fn of(mapping: &Mapping) -> Module {
        let file = mapping.file.filter(|_| mapping.build_id.is_empty());
        Module {
            path: mapping.path.clone(),
            build_id: mapping.build_id.clone(),
            file: file.map(|file| match file.contents {
                Some(_) => MappedFile::anywhere(file.contents),
                None => file,
            }),
        }
    }

    /// The key of its build in embedded tables (format-spec.md, section 7): the build-id, else a key of its
    /// contents; empty if neither is known.
    pub(crate) fn id(&self) -> Vec<u8> {
        let contents = self.file.and_then(|file| file.contents);
        match contents {
            Some(contents) => contents.as_id(),
            None => self.build_id.clone(),
        }
    }

    /// The last part of the path.
    pub(crate) fn short_name(&self) -> &str {
        let path = self.path.trim_end_matches(" (deleted)"); // older recordings have this suffix
        match path.rsplit_once('/') {
            Some((_, name)) if !name.is_empty() => name,
            _ => path,
        }
    }
}

/// The result of resolving an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The address, or the position in a file.
    pub at: At,
    /// Whether the address is in the kernel's half.
    pub kernel: bool,
    /// Whether the frame's own address is one higher: the byte before a return address is looked up, because
    /// it belongs to the call.
    pub is_return: bool,
}

/// The guest address or file position that an address resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// An address of the guest: in address space 0, where nothing moves, or in no module.
    Address {
        /// The guest address.
        address: u64,
        /// The module, if one was mapped there.
        module: Option<ModuleId>,
    },
    /// A byte of a module's file.
    File {
        /// The module.
        module: ModuleId,
        /// Offset in its file (bytes).
        offset: u64,
    },
}

/// What is known of the code that a process's guest ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestCode {
    /// Nothing: the recorder has not looked into the guest.
    Unknown,
    /// It was code of a process of the guest.
    User,
    /// It was here.
    At(Place),
}

impl Place {
    /// The position one byte further. For a frame that is looked up inside its call, that is the frame's own.
    pub(crate) fn after(self) -> Place {
        let at = match self.at {
            At::Address { address, module } => At::Address {
                address: address.wrapping_add(1),
                module,
            },
            At::File { module, offset } => At::File {
                module,
                offset: offset.wrapping_add(1),
            },
        };
        Place {
            at,
            is_return: false,
            ..self
        }
    }

    /// The module, if one was mapped there.
    pub(crate) fn module(self) -> Option<ModuleId> {
        match self.at {
            At::Address { module, .. } => module,
            At::File { module, .. } => Some(module),
        }
    }

    /// The guest address or the file offset, which identifies a frame without a name.
    pub(crate) fn number(self) -> u64 {
        match self.at {
            At::Address { address, .. } => address,
            At::File { offset, .. } => offset,
        }
    }
}

/// One mapping, for lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset of `start` in the file (bytes).
    pub file_offset: u64,
    /// The image.
    pub module: ModuleId,
    /// Time of the mapping (nanoseconds).
    pub since_ns: u64,
}

impl Region {
    fn of(time_ns: u64, mapping: &Mapping, module: ModuleId) -> Self {
        Region {
            start: mapping.start,
            end: mapping.start.saturating_add(mapping.length),
            file_offset: mapping.file_offset,
            module,
            since_ns: time_ns,
        }
    }

    /// The file offset of an address in this mapping.
    pub(crate) fn file_offset_of(&self, address: u64) -> u64 {
        address
            .wrapping_sub(self.start)
            .wrapping_add(self.file_offset)
    }
}

#[derive(Debug, Default)]
struct Generation {
    since_ns: u64,
    /// The address space and the time that it was copied from, if it is a copy.
    copied: Option<(u32, u64)>,
    /// Sorted by start, then by age.
    regions: Vec<Region>,
    /// For each region, the highest end among the regions up to it.
    reach: Vec<u64>,
}

#[derive(Debug, Default)]
struct Space {
    generations: Vec<Generation>,
    /// When it began as a copy, and of which address space.
    forks: Vec<(u64, u32)>,
    /// All its events, in order of time.
    events: Vec<Event>,
}

/// A change of an address space.
#[derive(Debug)]
struct Event {
    time_ns: u64,
    /// The new mapping; `None` if a generation began.
    mapped: Option<Region>,
}

/// All address spaces of a recording.
#[derive(Debug, Default)]
pub struct Spaces {
    modules: Vec<Module>,
    spaces: WordMap<u32, Space>,
    /// The target is a guest: mappings of address space 0, in either half, are in all its address spaces.
    whole_guest: bool,
    /// For a guest that restarted in the same recording: its addresses belong to the address space of its
    /// boot.
    lives: bool,
    /// The boot of each address space of a guest.
    roots: WordMap<u32, u32>,
}

/// Most forks that are followed from one address space: a recording may claim cycles.
const COPIES_MAX: usize = 256;

impl Spaces {
    /// Sorts the module events of a recording. If `whole_guest` is set, address space 0 has all addresses,
    /// not only the kernel's.
    pub(crate) fn new(mut events: Vec<ModuleEvent>, whole_guest: bool) -> Self {
        events.sort_by_key(|event| event.time_ns);
        let mut spaces = Spaces {
            whole_guest,
            ..Spaces::default()
        };
        let mut numbers = HashMap::new();
        let mut by_space: BTreeMap<u32, (Space, Visible)> = BTreeMap::new();
        for event in events {
            let (space, visible) = by_space.entry(event.space).or_default();
            let copied = match event.what {
                ModuleChange::Mapped(mapping) => {
                    let module = spaces.module_id(&mut numbers, &mapping);
                    let region = Region::of(event.time_ns, &mapping, module);
                    // JIT compilers change the protection of their code all the time, and each change is an
                    // event.
                    if !visible.holds(&region) {
                        visible.map(region);
                        space.events.push(Event {
                            time_ns: event.time_ns,
                            mapped: Some(region),
                        });
                        space.map(region);
                    }
                    continue;
                }
                ModuleChange::Cleared => None,
                ModuleChange::CopiedFrom(parent) => Some((parent, event.time_ns)),
            };
            // A generation begins empty. A copy finds older mappings through its parent.
            *visible = Visible::default();
            space.events.push(Event {
                time_ns: event.time_ns,
                mapped: None,
            });
            let parent = copied.map(|(parent, _)| parent);
            space.forks.extend(parent.map(|it| (event.time_ns, it)));
            space.generations.push(Generation {
                since_ns: event.time_ns,
                copied,
                ..Generation::default()
            });
        }
        for (number, (mut space, _)) in by_space {
            space.generations.iter_mut().for_each(Generation::index);
            spaces.spaces.insert(number, space);
        }
        spaces
    }

    /// Marks these address spaces as boots of a guest, which have all of its addresses.
    #[must_use]
    pub(crate) fn of_lives(self, lives: bool) -> Self {
        Spaces { lives, ..self }
    }

    /// Sets the boot of each address space of a guest's processes.
    #[must_use]
    pub(crate) fn of_roots(self, roots: impl Iterator<Item = (u32, u32)>) -> Self {
        let roots = roots.collect();
        Spaces { roots, ..self }
    }

    fn module_id(&mut self, numbers: &mut HashMap<Module, u32>, mapping: &Mapping) -> ModuleId {
        let module = Module::of(mapping);
        let next = self.modules.len() as u32;
        *numbers.entry(module).or_insert_with_key(|module| {
            self.modules.push(module.clone());
            next
        })
    }

    /// Adds a mapping that is valid from the start on, where the recording has none.
    pub(crate) fn assume(&mut self, space: u32, mapping: &Mapping) -> ModuleId {
        let mut numbers = HashMap::new();
        let known = self.modules.iter().cloned().enumerate();
        numbers.extend(known.map(|(number, module)| (module, number as u32)));
        let module = self.module_id(&mut numbers, mapping);
        let space = self.spaces.entry(space).or_default();
        space.map(Region::of(0, mapping, module));
        space.generations.iter_mut().for_each(Generation::index);
        module
    }

    /// All modules that were ever mapped; regions refer to them by index.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The address space that `space` shares with others: the kernel's, or that of a guest's boot.
    pub(crate) fn shared_of(&self, space: u32) -> u32 {
        let boot = AddressSpace::new(space, self.lives).boot();
        boot.unwrap_or_else(|| self.roots.get(&space).copied().unwrap_or(0))
    }

    /// The address space in which to look up `address` of a sample of `space`.
    pub(crate) fn space_of(&self, space: u32, address: u64) -> u32 {
        if self.whole_guest {
            // A guest's address spaces without mappings of their own are equal.
            let of_root = matches!(AddressSpace::new(space, true), AddressSpace::PageTables(_));
            let is_own = of_root && self.spaces.contains_key(&space);
            return if is_own && !is_kernel_address(address) {
                space
            } else {
                self.shared_of(space)
            };
        }
        match AddressSpace::new(space, false) {
            AddressSpace::GuestOf(_) => space,
            _ if is_kernel_address(address) => 0,
            _ => space,
        }
    }

    /// A number that is equal for address spaces with equal mappings.
    pub(crate) fn seen_as(&self, space: u32) -> u32 {
        if self.whole_guest {
            self.space_of(space, 0)
        } else {
            space
        }
    }

    /// The mapping that covered `address` for a sample of `space` at `time_ns`, and its address space: a
    /// guest's kernel may be in either half of all its address spaces.
    pub(crate) fn find(&self, space: u32, time_ns: u64, address: u64) -> Option<(u32, Region)> {
        let in_space = |space| Some((space, self.region(space, time_ns, address)?));
        let own = in_space(self.space_of(space, address));
        match own {
            None if self.whole_guest => in_space(self.shared_of(space)),
            _ => own,
        }
    }

    /// A number that stays the same as long as the mappings of `space` do.
    pub fn epoch(&self, space: u32, time_ns: u64) -> u32 {
        let events = self.spaces.get(&space).map(|space| &space.events[..]);
        let events = events.unwrap_or(&[]);
        events.partition_point(|event| event.time_ns <= time_ns) as u32
    }

    /// The mappings that were added to `space` between two epochs, in order of time; `None` if a generation
    /// began between them.
    pub(crate) fn mapped_between(&self, space: u32, from: u32, to: u32) -> Option<Vec<Region>> {
        let events = &self.spaces.get(&space)?.events;
        let events = events.get(from as usize..to as usize)?;
        events.iter().map(|event| event.mapped).collect()
    }

    /// Resolves `address` for a sample of `space` at `time_ns`.
    pub(crate) fn place(&self, space: u32, time_ns: u64, address: u64) -> Place {
        let kernel = is_kernel_address(address);
        let at = match self.find(space, time_ns, address) {
            Some((space, region)) if space != 0 => At::File {
                module: region.module,
                offset: region.file_offset_of(address),
            },
            found => At::Address {
                address,
                module: found.map(|(_, region)| region.module),
            },
        };
        Place {
            at,
            kernel,
            is_return: false,
        }
    }

    /// The code at `address` of the guest that process `pid` ran at `time_ns`.
    pub(crate) fn in_guest(&self, pid: u32, time_ns: u64, address: u64) -> GuestCode {
        let place = self.place(space_of_guest(pid), time_ns, address);
        let module = place.module().and_then(|id| self.modules.get(id as usize));
        match module {
            None => GuestCode::Unknown,
            Some(module) if module.path == GUEST_USER_PATH => GuestCode::User,
            Some(_) => GuestCode::At(place),
        }
    }

    /// The offset in its module's file; the address if no file is mapped there.
    pub(crate) fn file_offset(&self, place: Place) -> u64 {
        match place.at {
            At::Address { address, module } => module
                .and_then(|module| self.shared_region(module, address))
                .map_or(address, |region| region.file_offset_of(address)),
            At::File { offset, .. } => offset,
        }
    }

    /// The latest mapping of `module` in address space 0 that covered `address`, at any time. A [`Place`]
    /// keeps its module, and another module may have been loaded at the address since.
    pub(crate) fn shared_region(&self, module: ModuleId, address: u64) -> Option<Region> {
        let generations = self.spaces.get(&0)?.generations.iter().rev();
        let generations = generations.inspect(|_| work::take(1));
        let mut found = generations.flat_map(|generation| generation.over(address));
        found.find(|region| region.module == module)
    }

    /// The mappings of `space` at `time_ns`, with those of the kernel. A later mapping may overlap an earlier
    /// one.
    pub fn regions_at(&self, space: u32, time_ns: u64) -> Vec<Region> {
        let mut found = Vec::new();
        let shared = self.shared_of(space);
        let mut wanted = [(space, time_ns), (shared, time_ns)].into_iter();
        let mut next = wanted.next();
        for _ in 0..COPIES_MAX {
            let Some((space, time_ns)) = next else {
                break;
            };
            let generations = self.spaces.get(&space).map(|space| &space.generations);
            let generation = generations.and_then(|generations| {
                let after = generations.partition_point(|found| found.since_ns <= time_ns);
                generations.get(after.saturating_sub(1))
            });
            if let Some(generation) = generation {
                let there = generation.regions.iter();
                found.extend(there.filter(|region| region.since_ns <= time_ns));
            }
            let copied = generation.and_then(|generation| generation.copied);
            // The shared address space comes last, after all that this one was copied from.
            next = copied.or_else(|| wanted.next().filter(|(shared, _)| *shared != space));
        }
        found
    }

    /// The mapping that covered `address` of `space` at `time_ns`.
    pub(crate) fn region(&self, space: u32, time_ns: u64, address: u64) -> Option<Region> {
        let (mut space, mut time_ns) = (space, time_ns);
        for _ in 0..COPIES_MAX {
            let generations = &self.spaces.get(&space)?.generations;
            let after = generations.partition_point(|found| found.since_ns <= time_ns);
            // A sample may have an earlier time than the event that explains it, if they come from different CPUs.
            let generation = generations.get(after.saturating_sub(1))?;
            if let Some(region) = generation.find(time_ns, address) {
                return Some(region);
            }
            work::take(1);
            // Nothing was mapped here since the fork, so the parent's mapping at that time is still valid.
            (space, time_ns) = generation.copied?;
        }
        None
    }

    /// The address space that `space`, as it was at `time_ns`, began as a copy of, and when.
    pub(crate) fn fork_of(&self, space: u32, time_ns: u64) -> Option<(u32, u64)> {
        let forks = &self.spaces.get(&space)?.forks;
        let after = forks.partition_point(|(since_ns, _)| *since_ns <= time_ns);
        // A sample may have an earlier time than the fork.
        let (since_ns, parent) = *forks.get(after.saturating_sub(1))?;
        Some((parent, since_ns))
    }

    /// The address spaces that began as copies of others.
    pub(crate) fn copies(&self) -> impl Iterator<Item = u32> + '_ {
        let copies = self
            .spaces
            .iter()
            .filter(|(_, space)| !space.forks.is_empty());
        copies.map(|(number, _)| *number)
    }

    /// Every mapping of every address space, in order of address space and address.
    pub(crate) fn regions(&self) -> Vec<(u32, Region)> {
        let mut all: Vec<(u32, Region)> = Vec::new();
        for &number in self.spaces.keys() {
            let regions = self.regions_of(number);
            all.extend(regions.map(|region| (number, *region)));
        }
        all.sort_by_key(|(number, region)| (*number, region.start, region.since_ns));
        all
    }

    /// Every mapping of an address space, in order of generation and address.
    pub(crate) fn regions_of(&self, space: u32) -> impl Iterator<Item = &Region> {
        let space = self.spaces.get(&space).into_iter();
        let generations = space.flat_map(|space| &space.generations);
        generations.flat_map(|generation| &generation.regions)
    }

    /// Whether nothing was ever mapped in `space`.
    pub(crate) fn is_empty(&self, space: u32) -> bool {
        self.regions_of(space).next().is_none()
    }
}

impl Space {
    fn map(&mut self, region: Region) {
        if self.generations.is_empty() {
            self.generations.push(Generation::default());
        }
        if let Some(generation) = self.generations.last_mut() {
            generation.regions.push(region);
        }
    }
}

impl Generation {
    fn index(&mut self) {
        // The sort is stable: of two mappings at the same time, the one recorded later wins.
        self.regions
            .sort_by_key(|region| (region.start, region.since_ns));
        let mut reach = 0;
        let ends = self.regions.iter().map(|region| {
            reach = reach.max(region.end);
            reach
        });
        self.reach = ends.collect();
    }

    /// All mappings over `address`, by start. Of those with the same start, the latest comes first.
    fn over(&self, address: u64) -> impl Iterator<Item = Region> + '_ {
        let after = self
            .regions
            .partition_point(|region| region.start <= address);
        // Once no region up to some position reaches the address, none before it does.
        let reach = self.reach[..after].iter().rev();
        let near = reach.take_while(move |end| **end > address);
        let regions = near.zip(self.regions[..after].iter().rev());
        regions
            .inspect(|_| work::take(1))
            .map(|(_, region)| *region)
            .filter(move |region| address < region.end)
    }

    /// The latest mapping over `address` at `time_ns`; if there is none yet, the first one.
    fn find(&self, time_ns: u64, address: u64) -> Option<Region> {
        let mut then: Option<Region> = None;
        let mut later: Option<Region> = None;
        for region in self.over(address) {
            if region.since_ns <= time_ns {
                if then.is_none_or(|found| found.since_ns < region.since_ns) {
                    then = Some(region);
                }
            } else if later.is_none_or(|found| region.since_ns < found.since_ns) {
                later = Some(region);
            }
        }
        then.or(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, space: u32, what: ModuleChange) -> ModuleEvent {
        ModuleEvent {
            time_ns,
            space,
            what,
        }
    }

    fn mapped(start: u64, length: u64, path: &str) -> ModuleChange {
        ModuleChange::Mapped(Mapping {
            start,
            length,
            file_offset: 0x100,
            path: path.into(),
            build_id: Vec::new(),
            file: None,
        })
    }

    fn name_at(spaces: &Spaces, space: u32, time_ns: u64, address: u64) -> Option<String> {
        let place = spaces.place(space, time_ns, address);
        let path = |id| &spaces.modules()[id as usize].path;
        place
            .module()
            .map(|id| format!("{}+{:x}", path(id), place.number()))
    }

    #[test]
    fn each_life_of_a_guest_has_its_own_addresses() {
        let kernel = 0xffff_ffff_8100_0000;
        let events = vec![
            event(0, 0, mapped(kernel, 0x3000, "k")),
            event(20, 1, mapped(kernel + 0x2000, 0x3000, "k")),
        ];
        let spaces = Spaces::new(events, true).of_lives(true);
        let at = |space, address| name_at(&spaces, space, 30, address);
        assert_eq!(at(0, kernel), Some("k+ffffffff81000000".into()));
        assert_eq!(at(1, kernel), None);
        assert_eq!(at(1, kernel + 0x2000), Some("k+100".into()));
        assert_eq!(at(2, kernel), None);
        assert_eq!(spaces.regions_at(1, 30).len(), 1);
        assert!(spaces.is_empty(2) && !spaces.is_empty(1));
    }

    #[test]
    fn the_latest_mapping_wins_from_its_time_on() {
        let spaces = Spaces::new(
            vec![
                event(10, 7, mapped(0x1000, 0x3000, "a")),
                event(20, 7, mapped(0x2000, 0x1000, "b")),
            ],
            false,
        );
        assert_eq!(name_at(&spaces, 7, 15, 0x2010).as_deref(), Some("a+1110"));
        assert_eq!(name_at(&spaces, 7, 20, 0x2010).as_deref(), Some("b+110"));
        assert_eq!(name_at(&spaces, 7, 20, 0x3010).as_deref(), Some("a+2110"));
        assert_eq!(name_at(&spaces, 7, 20, 0x4000), None);
        assert_eq!(name_at(&spaces, 8, 20, 0x2010), None);
        assert_ne!(spaces.epoch(7, 19), spaces.epoch(7, 20));
    }

    #[test]
    fn a_page_that_becomes_executable_again_and_again_is_one_mapping() {
        let flips = (10..10_000).map(|time_ns| event(time_ns, 7, mapped(0x1000, 0x1000, "jit")));
        let other = event(5000, 7, mapped(0x1000, 0x1000, "other"));
        let spaces = Spaces::new(flips.chain([other]).collect(), false);
        assert_eq!(spaces.epoch(7, 10), spaces.epoch(7, 4999));
        assert_eq!(spaces.epoch(7, 9999), 3);
        assert_eq!(spaces.regions().len(), 3);
        for (time_ns, name) in [(4999, "jit"), (5000, "other"), (5001, "jit")] {
            let found = name_at(&spaces, 7, time_ns, 0x1000);
            assert_eq!(found, Some(format!("{name}+100")), "{time_ns}");
        }
    }

    #[test]
    fn exec_clears_and_fork_copies_what_was_there_then() {
        let spaces = Spaces::new(
            vec![
                event(10, 1, mapped(0x1000, 0x1000, "sh")),
                event(20, 2, ModuleChange::CopiedFrom(1)),
                event(25, 1, mapped(0x1000, 0x1000, "later")),
                event(30, 2, ModuleChange::Cleared),
                event(31, 2, mapped(0x8000, 0x1000, "xz")),
            ],
            false,
        );
        assert_eq!(name_at(&spaces, 2, 26, 0x1000).as_deref(), Some("sh+100"));
        assert_eq!(
            name_at(&spaces, 1, 26, 0x1000).as_deref(),
            Some("later+100")
        );
        assert_eq!(name_at(&spaces, 2, 40, 0x1000), None);
        assert_eq!(name_at(&spaces, 2, 40, 0x8004).as_deref(), Some("xz+104"));
    }

    #[test]
    fn kernel_addresses_are_looked_up_in_space_0() {
        let kernel = mapped(0xffff_ffff_8100_0000, 0x1000, "[kernel]");
        let spaces = Spaces::new(vec![event(0, 0, kernel)], false);
        let place = spaces.place(44, 9, 0xffff_ffff_8100_0010);
        assert!(place.kernel);
        assert_eq!(place.module(), Some(0));
    }

    /// A kernel module was unloaded, and another one has its addresses now.
    #[test]
    fn what_was_in_an_unloaded_module_stays_there() {
        let start = 0xffff_ffff_c000_0000;
        let spaces = Spaces::new(
            vec![
                event(10, 0, mapped(start, 0x3000, "first")),
                event(20, 0, mapped(start - 0x1000, 0x4000, "second")),
            ],
            false,
        );
        let offset_at = |time_ns| {
            let place = spaces.place(7, time_ns, start + 0x10);
            (place.module(), spaces.file_offset(place))
        };
        assert_eq!(offset_at(15), (Some(0), 0x110));
        assert_eq!(offset_at(25), (Some(1), 0x1110));
        assert_eq!(spaces.shared_region(2, start), None);
    }

    #[test]
    fn circles_of_copies_end() {
        let spaces = Spaces::new(
            vec![
                event(10, 1, ModuleChange::CopiedFrom(2)),
                event(10, 2, ModuleChange::CopiedFrom(1)),
            ],
            false,
        );
        assert_eq!(name_at(&spaces, 1, 20, 0x1000), None);
    }
}
