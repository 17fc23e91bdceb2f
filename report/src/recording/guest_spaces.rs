//! Address spaces of a guest (format-spec.md, sections 5.7 and 6.7). Input: the recorder's records of them.
//! Output: the address space of a sample, and the names of address spaces.
//!
//! A guest with a single address space, such as a unikernel, needs no such records: every sample belongs to
//! the address space of its task.

use std::collections::{BTreeMap, BTreeSet};
use uprof::cold::{AddressSpace, DECOMPRESSOR, SpaceChange, SpaceEvent, space_of_root};
use uprof::{Row, Task};

/// The address spaces of one recording.
#[derive(Debug, Default)]
pub(crate) struct GuestSpaces {
    /// Root and names of each address space, by number.
    spaces: BTreeMap<u32, Space>,
    are_several: bool,
}

#[derive(Debug, Default)]
struct Space {
    root: u64,
    /// The address space of the guest's boot, which its tasks have.
    life: u32,
    names: Vec<(u64, Process)>,
    /// When it was seen first.
    seen_ns: Option<u64>,
    /// Whether that was in a boot, before anything that has a name: firmware, what unpacks the kernel, or the page
    /// tables of the kernel's first steps.
    is_early: bool,
}

/// A process of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number in the guest.
    pub pid: u32,
    /// Its name in the guest.
    pub name: String,
}

impl GuestSpaces {
    /// Sorts the events of a recording of a guest with fewer boots than `lives_max`. The first one is in the recording
    /// from its beginning if it `boots`, and later ones always are.
    pub(crate) fn new(mut events: Vec<SpaceEvent>, lives_max: u32, boots: bool) -> Self {
        events.sort_by_key(|event| event.time_ns);
        let mut found = GuestSpaces::default();
        for event in events {
            let space = found.spaces.entry(event.space).or_default();
            space.root = event.root;
            let is_its = |life: &u32| space_of_root(*life, event.root) == event.space;
            space.life = (0..lives_max).find(is_its).unwrap_or(0);
            match event.what {
                // Its name may be known later, and holds from the start of the boot.
                SpaceChange::Seen => space.seen_ns = Some(event.time_ns),
                SpaceChange::Named { pid, name } => {
                    space.names.push((event.time_ns, Process { pid, name }));
                }
            }
        }
        found.note_early(boots);
        let mut lives = BTreeSet::new();
        let mut spaces = found.spaces.values();
        found.are_several = spaces.any(|space| !lives.insert(space.life));
        found
    }

    fn note_early(&mut self, boots: bool) {
        let mut kernels: BTreeMap<u32, u64> = BTreeMap::new();
        for space in self.spaces.values() {
            let process = space.names.first();
            let process = process.filter(|(_, process)| process.name != DECOMPRESSOR);
            if let Some((named_ns, _)) = process {
                let first_ns = kernels.entry(space.life).or_insert(u64::MAX);
                *first_ns = space.seen_ns.unwrap_or(*named_ns).min(*first_ns);
            }
        }
        for space in self.spaces.values_mut() {
            let kernel_ns = kernels.get(&space.life).copied().unwrap_or(0);
            let is_first = space.seen_ns.is_some_and(|seen_ns| seen_ns < kernel_ns);
            space.is_early = is_first && space.names.is_empty() && (boots || space.life > 0);
        }
    }

    /// Whether a boot of the guest has more than one address space.
    pub(crate) fn are_several(&self) -> bool {
        self.are_several
    }

    /// The numbers of the address spaces, with their boots.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let spaces = self.spaces.iter();
        spaces.map(|(number, space)| (*number, space.life))
    }

    /// The boot of an address space. A number that isn't that of a root is itself a boot.
    pub(crate) fn life_of(&self, space: u32) -> u32 {
        match self.spaces.get(&space) {
            Some(known) => known.life,
            None => AddressSpace::new(space, true).boot().unwrap_or(0),
        }
    }

    /// The numbers of all address spaces.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.spaces.keys().copied()
    }

    /// The address space of a row; that of its task if the guest has only one.
    pub(crate) fn of_row(&self, row: &Row<'_>) -> u32 {
        self.of(row.task, row.details.root)
    }

    fn of(&self, task: Task, root: Option<u64>) -> u32 {
        match root.filter(|_| self.are_several()) {
            Some(root) => space_of_root(task.space, root),
            None => task.space,
        }
    }

    /// The process in an address space at a time; before the first process is known, that one.
    pub(crate) fn process_at(&self, space: u32, time_ns: u64) -> Option<&Process> {
        let names = &self.spaces.get(&space)?.names;
        let after = names.partition_point(|(since_ns, _)| *since_ns <= time_ns);
        let (_, process) = names.get(after.saturating_sub(1))?;
        Some(process)
    }

    /// The name of an address space: that of its process, or its root.
    pub(crate) fn name_at(&self, space: u32, time_ns: u64) -> String {
        match (self.process_at(space, time_ns), self.spaces.get(&space)) {
            (Some(process), _) => process.name.clone(),
            (None, Some(known)) if known.is_early => "early boot".to_owned(),
            (None, Some(known)) => format!("space {:#x}", known.root),
            (None, None) => "unknown space".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, root: u64, what: SpaceChange) -> SpaceEvent {
        SpaceEvent {
            time_ns,
            space: space_of_root(0, root),
            root,
            what,
        }
    }

    #[test]
    fn spaces_are_told_apart_where_there_are_several() {
        let task = Task { space: 0, vcpu: 1 };
        let one = GuestSpaces::new(vec![event(1, 0x1000, SpaceChange::Seen)], 4, true);
        assert_eq!(one.of(task, Some(0x1000)), 0);
        let named = SpaceChange::Named {
            pid: 7,
            name: "sh".into(),
        };
        let two = GuestSpaces::new(
            vec![
                event(5, 0x2000, named),
                event(1, 0x1000, SpaceChange::Seen),
                event(2, 0x2000, SpaceChange::Seen),
            ],
            4,
            false,
        );
        let [first, second] = [0x1000, 0x2000].map(|root| two.of(task, Some(root)));
        assert_ne!(first, second);
        assert_eq!(two.of(task, None), 0);
        assert_eq!(two.name_at(first, 9), "space 0x1000");
        assert_eq!(two.name_at(second, 9), "sh");
        assert_eq!(
            two.process_at(second, 9).map(|process| process.pid),
            Some(7)
        );
        assert_eq!(two.name_at(0, 9), "unknown space");
    }

    #[test]
    fn what_ran_in_a_boot_before_anything_with_a_name_is_early() {
        let named = |name: &str| SpaceChange::Named {
            pid: 0,
            name: name.into(),
        };
        // Names are known later than the spaces, and hold from the start of the boot.
        let events = vec![
            event(0, 0x2000, named("swapper")),
            event(0, 0x800, named(DECOMPRESSOR)),
            event(1, 0x800, SpaceChange::Seen),
            event(1, 0x1000, SpaceChange::Seen),
            event(2, 0x2000, SpaceChange::Seen),
            event(3, 0x3000, SpaceChange::Seen),
        ];
        for (boots, first) in [(true, "early boot"), (false, "space 0x1000")] {
            let spaces = GuestSpaces::new(events.clone(), 4, boots);
            let names = [0x800, 0x1000, 0x2000, 0x3000]
                .map(|root| spaces.name_at(space_of_root(0, root), 9));
            assert_eq!(names, [DECOMPRESSOR, first, "swapper", "space 0x3000"]);
        }
    }
}
