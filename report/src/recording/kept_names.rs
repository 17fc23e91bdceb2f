//! Names and mappings of a stream, for as long as their processes run. Input: blocks of tasks and of address spaces,
//! as they come. Output: blocks that say the same about what ran from a time on. So on a machine where processes come
//! and go, memory is bounded by what runs, and not by the length of the stream.

use super::kept_blocks::KeptBlocks;
use crate::work::payload;
use std::collections::{HashMap, HashSet};
use std::io;
use uprof::cold::{End, EndReason, ModuleChange, ModuleEvent, TaskChange, TaskEvent};
use uprof::{Block, BlockType, Item, Payload, SliceReader, Task, Writer};

/// What ended so long before the first sample that is kept is forgotten. Samples and records don't come in order.
const LATE_NS: u64 = 10_000_000_000;
/// Fewest bytes that are looked through, as they are stored.
const SWEPT_BYTES_MIN: u64 = 1 << 20;
/// Most bytes of what runs, as they are stored. Until they are looked through again there may be twice as many.
const NAMES_BYTES_MAX: u64 = 32 << 20;

/// Blocks of names and mappings.
#[derive(Debug, Default)]
pub(super) struct KeptNames {
    kept: KeptBlocks,
    /// The bytes that were left when they were last looked through.
    left_bytes: u64,
}

impl KeptNames {
    /// Adds a block. The first sample that is kept is of `needed_ns` or later, and all are in `samples`.
    pub fn push<'b>(
        &mut self,
        block: Block<'static>,
        needed_ns: u64,
        samples: impl Iterator<Item = &'b Block<'static>>,
    ) {
        self.kept.push(block, u64::MAX);
        // So each record is looked through a few times on average.
        if self.kept.bytes > (2 * self.left_bytes).max(SWEPT_BYTES_MIN) {
            self.sweep(needed_ns.saturating_sub(LATE_NS), &sampled(samples));
            self.kept.limit(NAMES_BYTES_MAX);
            self.left_bytes = self.kept.bytes;
        }
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block<'static>> {
        self.kept.blocks.iter()
    }

    /// Blocks that were dropped because what runs has too many names and mappings.
    pub fn dropped(&self) -> u64 {
        self.kept.dropped
    }

    /// Forgets what ended before `until_ns`, but not what is of the address spaces `sampled`.
    fn sweep(&mut self, until_ns: u64, sampled: &HashSet<u32>) {
        let (mut tasks, mut modules) = (Vec::new(), Vec::new());
        for block in &self.kept.blocks {
            match payload(block) {
                Ok(Payload::Tasks(events)) => tasks.extend(events),
                Ok(Payload::Modules(events)) => modules.extend(events),
                // What can't be read names nothing.
                _ => {}
            }
        }
        forget(&mut tasks, &mut modules, until_ns, sampled);
        // Without memory for it, all stays.
        if let Ok(blocks) = blocks_of(&tasks, &modules) {
            let dropped = self.kept.dropped;
            self.kept = KeptBlocks {
                dropped,
                ..KeptBlocks::default()
            };
            for block in blocks {
                self.kept.push(block, u64::MAX);
            }
        }
    }
}

/// The address spaces of these samples.
fn sampled<'b>(blocks: impl Iterator<Item = &'b Block<'static>>) -> HashSet<u32> {
    let mut spaces = HashSet::new();
    for block in blocks.filter(|block| block.samples > 0) {
        if let Ok(Payload::Samples(samples)) = payload(block) {
            spaces.extend(samples.tasks().iter().map(|task| task.space));
        }
    }
    spaces
}

/// Removes what is said of threads that ended before `until_ns`, and of processes whose first thread did and that have
/// no other one: none with a name, and none in `sampled`, since threads without a name may outlive the first one. A
/// process may have begun as a copy of one that has ended: that is kept as long as the copy.
fn forget(
    tasks: &mut Vec<TaskEvent>,
    modules: &mut Vec<ModuleEvent>,
    until_ns: u64,
    sampled: &HashSet<u32>,
) {
    let mut ended: HashMap<Task, u64> = HashMap::new();
    for event in &*tasks {
        match event.what {
            TaskChange::Named(_) => {
                ended.remove(&event.task);
            }
            TaskChange::Ended if event.time_ns < until_ns => {
                ended.insert(event.task, event.time_ns);
            }
            TaskChange::Ended => {}
        }
    }
    let others = tasks.iter().map(|event| event.task);
    let others = others.filter(|task| !ended.contains_key(task));
    let mut running: HashSet<u32> = others.map(|task| task.space).collect();
    running.extend(sampled);
    // The first thread has the number of its process. Address space 0 is the kernel's.
    let is_first = |task: Task| task.vcpu == task.space;
    let mut over: HashMap<u32, u64> = HashMap::new();
    for (task, ended_ns) in &ended {
        if is_first(*task) && task.space > 0 && !running.contains(&task.space) {
            over.insert(task.space, *ended_ns);
        }
    }
    let is_over = |over: &HashMap<u32, u64>, space: u32, time_ns: u64| {
        let ended_ns = over.get(&space);
        ended_ns.is_some_and(|ended_ns| time_ns <= *ended_ns)
    };
    let mut needed = Vec::new();
    let mut parents: HashMap<u32, Vec<u32>> = HashMap::new();
    for event in &*modules {
        if let ModuleChange::CopiedFrom(parent) = event.what {
            if is_over(&over, event.space, event.time_ns) {
                parents.entry(event.space).or_default().push(parent);
            } else {
                needed.push(parent);
            }
        }
    }
    while let Some(space) = needed.pop() {
        if over.remove(&space).is_some() {
            needed.extend(parents.remove(&space).unwrap_or_default());
        }
    }
    modules.retain(|event| !is_over(&over, event.space, event.time_ns));
    tasks.retain(|event| {
        // The name of a process is that of its first thread.
        let ended_ns = ended.get(&event.task).filter(|_| !is_first(event.task));
        ended_ns.is_none_or(|ended_ns| event.time_ns > *ended_ns)
            && !is_over(&over, event.task.space, event.time_ns)
    });
    forget_replaced(tasks, modules, until_ns);
}

/// Removes names and mappings that others had replaced before `until_ns`, unless a copy of the process may have them.
fn forget_replaced(tasks: &mut Vec<TaskEvent>, modules: &mut Vec<ModuleEvent>, until_ns: u64) {
    let mut cleared: HashMap<u32, u64> = HashMap::new();
    let mut copied: HashMap<u32, u64> = HashMap::new();
    for event in &*modules {
        match event.what {
            ModuleChange::Cleared if event.time_ns < until_ns => {
                let last_ns = cleared.entry(event.space).or_default();
                *last_ns = event.time_ns.max(*last_ns);
            }
            ModuleChange::CopiedFrom(parent) => {
                let first_ns = copied.entry(parent).or_insert(u64::MAX);
                *first_ns = event.time_ns.min(*first_ns);
            }
            _ => {}
        }
    }
    let is_copied = |space: u32, before_ns: u64| {
        let first_ns = copied.get(&space);
        first_ns.is_some_and(|first_ns| *first_ns <= before_ns)
    };
    modules.retain(|event| {
        let last_ns = cleared.get(&event.space);
        last_ns.is_none_or(|last_ns| event.time_ns >= *last_ns || is_copied(event.space, *last_ns))
    });
    let mut named: HashMap<Task, u64> = HashMap::new();
    for event in &*tasks {
        if matches!(event.what, TaskChange::Named(_)) && event.time_ns < until_ns {
            let last_ns = named.entry(event.task).or_default();
            *last_ns = event.time_ns.max(*last_ns);
        }
    }
    tasks.retain(|event| {
        let last_ns = named.get(&event.task).copied().unwrap_or(0);
        let is_name = matches!(event.what, TaskChange::Named(_));
        !is_name || event.time_ns >= last_ns || is_copied(event.task.space, last_ns)
    });
}

/// Blocks of these records.
///
/// # Errors
/// Memory for compressing is missing.
fn blocks_of(tasks: &[TaskEvent], modules: &[ModuleEvent]) -> io::Result<Vec<Block<'static>>> {
    let mut writer = Writer::without_metadata(Vec::new(), [0; 16])?;
    // Beyond the limit the first blocks are left out. Names of threads take the least.
    writer.modules(modules)?;
    writer.tasks(tasks)?;
    let bytes = writer.finish(&End {
        time_ns: 0,
        reason: EndReason::Stopped,
        message: String::new(),
        totals: Vec::new(),
    })?;
    let reader = SliceReader::open(&bytes).map_err(io::Error::other)?;
    let blocks = reader.blocks().filter_map(|item| match item {
        Item::Block(block) if block.known_type() != Some(BlockType::End) => {
            Some(block.into_owned())
        }
        Item::Block(_) | Item::Damage(_) => None,
    });
    Ok(blocks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use crate::recording::kept_blocks::recording;
    use crate::recording::processes::name_at;
    use uprof::cold::{Mapping, Metadata, TargetKind};

    const PROGRAM: u64 = 0x1000;
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    /// A process that never ends, and one that is forked by another one, which ends, and runs no program of its own.
    const SERVICE: u32 = 5000;
    const FORKER: u32 = 6000;
    const CHILD: u32 = 100_000;
    /// Each begins, runs a program and ends a tenth of a second after the one before.
    const PROCESSES: std::ops::RangeInclusive<u32> = 2..=12_000;

    fn task(pid: u32) -> Task {
        Task {
            space: pid,
            vcpu: pid,
        }
    }

    fn named(pid: u32, time_ns: u64) -> TaskEvent {
        TaskEvent::named(time_ns, task(pid), format!("p{pid}"))
    }

    fn mapped(space: u32, time_ns: u64, start: u64) -> ModuleEvent {
        let mapping = Mapping {
            start,
            length: 0x1000,
            path: format!("/bin/p{space}"),
            ..Mapping::default()
        };
        ModuleEvent::mapped(time_ns, space, mapping)
    }

    fn began_ns(pid: u32) -> u64 {
        u64::from(pid) * 100_000_000
    }

    /// The bytes of a recording of these processes.
    fn stream() -> Vec<u8> {
        let mut metadata = Metadata::default();
        metadata.target.kind = TargetKind::Process;
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1).unwrap();
        writer.tasks(&[named(1, 1)]).unwrap();
        let first = [mapped(0, 1, KERNEL), mapped(1, 1, PROGRAM)];
        writer.modules(&first).unwrap();
        for pid in PROCESSES {
            let at_ns = began_ns(pid);
            let event = |space, time_ns, what| ModuleEvent {
                time_ns,
                space,
                what,
            };
            let mut modules = vec![
                event(pid, at_ns, ModuleChange::CopiedFrom(1)),
                event(pid, at_ns + 1, ModuleChange::Cleared),
                mapped(pid, at_ns + 2, PROGRAM),
            ];
            if pid == FORKER {
                modules.push(event(CHILD, at_ns + 3, ModuleChange::CopiedFrom(FORKER)));
            }
            let mut tasks = vec![named(pid, at_ns + 1)];
            if pid != SERVICE {
                tasks.push(TaskEvent {
                    time_ns: at_ns + 4,
                    task: task(pid),
                    what: TaskChange::Ended,
                });
            }
            writer.modules(&modules).unwrap();
            writer.tasks(&tasks).unwrap();
        }
        writer.finish(&end()).unwrap()
    }

    #[test]
    fn what_threads_without_a_name_need_stays_and_what_was_replaced_goes() {
        let ended = |pid, time_ns| TaskEvent {
            time_ns,
            task: task(pid),
            what: TaskChange::Ended,
        };
        let event = |space, time_ns, what| ModuleEvent {
            time_ns,
            space,
            what,
        };
        let mut tasks = vec![named(1, 1), ended(1, 5), named(2, 1), ended(2, 5)];
        tasks.extend([named(3, 1), named(3, 2), named(3, 30), named(4, 1)]);
        tasks.push(named(4, 9));
        let mut modules = vec![mapped(1, 1, PROGRAM), mapped(2, 1, PROGRAM)];
        for space in [3, 4] {
            modules.push(mapped(space, 1, PROGRAM));
            modules.push(event(space, 8, ModuleChange::Cleared));
            modules.push(mapped(space, 9, PROGRAM));
        }
        // A copy of what was before.
        modules.push(event(5, 7, ModuleChange::CopiedFrom(4)));
        // A thread of the first process has samples.
        forget(&mut tasks, &mut modules, 20, &HashSet::from([1]));
        let left: Vec<_> = modules.iter().map(|it| (it.space, it.time_ns)).collect();
        let copied: [(u32, u64); 4] = [(4, 1), (4, 8), (4, 9), (5, 7)];
        assert_eq!(left, [&[(1, 1), (3, 8), (3, 9)][..], &copied].concat());
        let left: Vec<_> = tasks.iter().map(|it| (it.task.space, it.time_ns)).collect();
        let copied: [(u32, u64); 2] = [(4, 1), (4, 9)];
        assert_eq!(
            left,
            [&[(1, 1), (1, 5), (3, 2), (3, 30)][..], &copied].concat()
        );
    }

    fn end() -> End {
        End {
            time_ns: began_ns(*PROCESSES.end()),
            reason: EndReason::Stopped,
            message: String::new(),
            totals: Vec::new(),
        }
    }

    #[test]
    fn what_has_ended_is_forgotten_and_what_runs_keeps_its_names() {
        let bytes = stream();
        let mut names = KeptNames::default();
        let (mut metadata, mut most, mut pushed) = (None, 0, 0);
        for item in SliceReader::open(&bytes).unwrap().blocks() {
            let Item::Block(block) = item else {
                panic!("{item:?}")
            };
            match block.known_type() {
                Some(BlockType::Metadata) => metadata = Some(block.into_owned()),
                Some(BlockType::End) => {}
                _ => {
                    pushed += 1;
                    let needed_ns = block.last_ns;
                    names.push(block.into_owned(), needed_ns, std::iter::empty());
                    most = most.max(names.blocks().count());
                }
            }
        }
        assert!(most < pushed / 4, "{most} of {pushed}");
        assert_eq!(names.dropped(), 0);
        let bytes = recording([7; 16], (metadata.as_ref(), 1), names.blocks(), &[], &end());
        let recording = Recording::from_bytes("made", bytes.unwrap()).unwrap();
        let last_ns = end().time_ns;
        let path = |space, address| {
            let (_, region) = recording.spaces().find(space, last_ns, address)?;
            let module = &recording.spaces().modules()[region.module as usize];
            Some(module.path.as_str())
        };
        for (pid, name) in [(1, "p1"), (SERVICE, "p5000"), (CHILD, "p6000")] {
            assert_eq!(name_at(&recording, pid, last_ns), name);
            assert_eq!(path(pid, PROGRAM), Some(&*format!("/bin/{name}")));
            assert_eq!(path(pid, KERNEL), Some("/bin/p0"));
        }
        // One that ended in the last ten seconds may still have samples.
        assert_eq!(recording.tasks().last_name(task(3000)), None);
        let last = recording.tasks().last_name(task(*PROCESSES.end()));
        assert_eq!(last, Some("p12000"));
    }
}
