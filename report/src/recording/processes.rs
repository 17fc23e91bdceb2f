//! The processes of a recording: the names of processes and threads, and their CPU time as the kernel and the
//! samples count it.

use crate::recording::Recording;
use crate::recording::survey::Survey;
use std::collections::{BTreeMap, BTreeSet};
use uprof::cold::{DECOMPRESSOR, TargetKind};
use uprof::{Due, Task};

/// If more processes than this have the same name, such as a build's thousand compilers, they are shown as
/// one.
const APART_MAX: usize = 16;

/// The names of a recording's processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// The address spaces of each name; a process is listed under its last name.
    names: BTreeMap<String, BTreeSet<u32>>,
    known: usize,
}

impl Processes {
    /// The processes of `recording`. Those of a guest are its address spaces.
    pub(crate) fn new(recording: &Recording) -> Self {
        let mut found = Processes::default();
        if recording.metadata().target.kind != TargetKind::Process {
            let spaces = recording.guest_spaces();
            let all = spaces.all().filter(|_| spaces.are_several());
            for space in all {
                let name = spaces.name_at(space, u64::MAX);
                found.names.entry(name).or_default().insert(space);
                found.known += 1;
            }
            return found;
        }
        let named = recording.tasks().iter().map(|task| task.space);
        let copied = recording.spaces().copies();
        let spaces: BTreeSet<u32> = named.chain(copied).filter(|space| *space > 0).collect();
        for &space in &spaces {
            let name = name_at(recording, space, u64::MAX);
            found.names.entry(name).or_default().insert(space);
        }
        found.known = spaces.len();
        found
    }

    /// Whether there is more than one process.
    pub(crate) fn are_several(&self) -> bool {
        self.known > 1
    }

    /// The name of the process with address space `space` at `time_ns`. Its number is added if few processes
    /// have that name.
    pub(crate) fn label(&self, recording: &Recording, space: u32, time_ns: u64) -> String {
        let name = name_at(recording, space, time_ns);
        let spaces = recording.guest_spaces();
        let pid = match recording.metadata().target.kind {
            TargetKind::Process => space,
            _ => match spaces.process_at(space, time_ns) {
                // It is no process.
                Some(process) if process.name == DECOMPRESSOR => return name,
                Some(process) => process.pid,
                None => return name,
            },
        };
        match self.names.get(&name).map_or(0, BTreeSet::len) {
            0..=APART_MAX => format!("{name} ({pid})"),
            _ => name,
        }
    }
}

/// Name of a process: that of its first thread, or of the process that it was forked from. For an address
/// space of a guest, it is the name of its process.
pub(crate) fn name_at(recording: &Recording, space: u32, time_ns: u64) -> String {
    if recording.metadata().target.kind != TargetKind::Process {
        return recording.guest_spaces().name_at(space, time_ns);
    }
    // The first thread of a process has the number of the process.
    let first = Task { space, vcpu: space };
    task_name(recording, first, time_ns)
}

/// The noun for the number of a task's address space.
pub(crate) fn space_is(recording: &Recording) -> &'static str {
    if recording.metadata().target.kind.is_guest() {
        "life"
    } else {
        "process"
    }
}

/// The noun for the number of a task.
pub(crate) fn task_is(recording: &Recording) -> &'static str {
    if recording.metadata().target.kind.is_guest() {
        "vcpu"
    } else {
        "thread_id"
    }
}

/// The name of a vCPU or thread. If it has none, the name is that of its process, or of the process that this
/// was forked from; else it is its number.
pub(crate) fn task_name(recording: &Recording, task: Task, time_ns: u64) -> String {
    let tasks = recording.tasks();
    let is_process = recording.metadata().target.kind == TargetKind::Process;
    if !is_process {
        let name = tasks.name_at(task, time_ns).map(str::to_owned);
        return name.unwrap_or_else(|| format!("vcpu {}", task.vcpu));
    }
    if task.vcpu != task.space {
        let began_ns = tasks.end_before(task, time_ns).unwrap_or(0);
        if let Some(name) = tasks.name_since(task, began_ns, time_ns) {
            return name.to_owned();
        }
    }
    let (mut space, mut time_ns) = (task.space, time_ns);
    for _ in 0..FORKS_MAX {
        let main = Task { space, vcpu: space };
        let fork = recording.spaces().fork_of(space, time_ns);
        // A process may go on after its first thread has ended. A fork since then is another process of that number.
        let is_again = |(_, forked_ns): &(u32, u64)| {
            *forked_ns <= time_ns && tasks.end_before(main, *forked_ns).is_some()
        };
        let began_ns = fork.filter(is_again).map_or(0, |(_, forked_ns)| forked_ns);
        if let Some(name) = tasks.name_since(main, began_ns, time_ns) {
            return name.to_owned();
        }
        let Some(parent) = fork else { break };
        (space, time_ns) = parent;
    }
    format!("thread {}", task.vcpu)
}

/// Most forks that are followed to a name: a recording may claim cycles.
const FORKS_MAX: usize = 16;

/// Number of a process; `None` if it is unknown, as it may be in a guest, or if it is what unpacks a kernel, which is
/// no process.
pub(crate) fn pid_at(recording: &Recording, space: u32, time_ns: u64) -> Option<u32> {
    if recording.metadata().target.kind == TargetKind::Process {
        return Some(space);
    }
    let process = recording.guest_spaces().process_at(space, time_ns);
    let process = process.filter(|process| process.name != DECOMPRESSOR);
    process.map(|process| process.pid)
}

/// All samples of a recording, and the CPU time that the kernel or a guest's hypervisor counted. `None` if
/// that time wasn't recorded or the recording has no end.
pub(crate) fn due(recording: &Recording) -> Option<Due> {
    let totals = &recording.end()?.totals;
    let total = |wanted: &str| {
        let mut found = totals.iter().filter(|(name, _)| name == wanted);
        found.next().map(|(_, count)| *count)
    };
    let samples = total("samples")?.checked_sub(total("not_running")?)?;
    let rate_millihertz = recording.metadata().sampling.rate_millihertz;
    let times = recording.times();
    if times.is_empty() {
        return Due::of_guest(totals, samples, rate_millihertz);
    }
    let mut due = Due {
        samples,
        counted_ns: 0,
        rate_millihertz,
    };
    times.iter().for_each(|time| due.count(time));
    Some(due)
}

/// Samples of one process and the CPU time that the kernel counted for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Balance {
    /// The address space of the process; `None` for the sum of processes that ended.
    pub space: Option<u32>,
    /// Samples and CPU time.
    pub due: Due,
}

/// Compares samples with the kernel's count for each process. Processes with the most time come first, and
/// those that ended between two counts come last. Empty if the kernel's count wasn't recorded.
pub(crate) fn balances(recording: &Recording, survey: &Survey) -> Vec<Balance> {
    let times = recording.times();
    let rate_millihertz = recording.metadata().sampling.rate_millihertz;
    let empty = Due {
        rate_millihertz,
        ..Due::default()
    };
    let mut own: BTreeMap<u32, Due> = BTreeMap::new();
    let mut ended = empty;
    for time in times {
        let due = own.entry(time.space).or_insert(empty);
        due.counted_ns = due.counted_ns.saturating_add(time.own_ns);
        ended.counted_ns = ended.counted_ns.saturating_add(time.ended_ns);
    }
    for (task, count) in &survey.running {
        // A process without a count of its own ended between two counts.
        own.get_mut(&task.space).unwrap_or(&mut ended).samples += count;
    }
    let mut all: Vec<Balance> = own
        .into_iter()
        .map(|(space, due)| Balance {
            space: Some(space),
            due,
        })
        .collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.due.counted_ns), one.space));
    if !times.is_empty() && (ended.counted_ns > 0 || ended.samples > 0) {
        all.push(Balance {
            space: None,
            due: ended,
        });
    }
    all
}
