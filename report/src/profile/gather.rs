//! From blocks of samples to one stack tree: blocks are decoded, unwound and counted in parallel, a batch at a time,
//! then joined in file order, so that the result doesn't depend on the number of threads, nor memory on the size of
//! the recording.

mod chains;
mod block;
mod naming;
mod spans;
mod monitor;
mod vcpu_time;

use super::{OfRecording, Profile};

use crate::images::library::Library;
use crate::profile::advice::{Counts, advice};
use crate::profile::filter::Filter;
use crate::profile::labels::{LabelId, Labels};
use crate::profile::losses;
use crate::profile::slowest::Slowest;
use crate::profile::tree::{NodeId, ROOT};
use crate::recording::Recording;
use crate::recording::account::Account;
use crate::recording::processes::{Processes, task_name};
use crate::recording::rows::EffectiveRows;
use crate::recording::survey::Survey;
use crate::recording::unit::{Unit, Weight};
use crate::stacks::Tables;
use crate::stacks::idle::Idle;
use crate::stacks::symbolizer::Symbolizer;
use crate::stacks::unwinders::Unwinders;
use crate::work;
use block::{BlockStacks, LocalGuest, LocalRow};
use naming::Naming;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use uprof::{Found, Span, State, Stop, Task, WordMap};

/// The granularity of a view's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Functions.
    #[default]
    Function,
    /// Source lines.
    Line,
    /// Images.
    Module,
    /// Instructions.
    Address,
    /// Instructions, with separate functions and lines: for exports.
    Place,
    /// As [`By::Place`], with the lines on which functions are declared and the parts of lines.
    Declared,
}

/// What to gather.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which samples and frames.
    pub filter: Filter,
    /// The granularity.
    pub by: By,
    /// Show inlined functions as frames.
    pub inlines: bool,
    /// Demangle names.
    pub demangle: bool,
    /// How to unwind samples with raw stack bytes.
    pub unwind: crate::unwind::Options,
    /// A frame with the vCPU's or thread's name under every stack.
    pub by_task: bool,
    /// A frame with the process's name under every stack, where there are several processes.
    pub by_process: bool,
    /// A frame with the recording's name under every stack.
    pub by_recording: bool,
    /// How many of the slowest calls of a trace to keep, with what they called.
    pub slowest: usize,
    /// Survey the recordings, too.
    pub survey: bool,
    /// Whether recordings are only compared, and never added up: their rates may differ then.
    pub are_apart: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            filter: Filter::default(),
            by: By::Function,
            inlines: true,
            demangle: true,
            unwind: crate::unwind::Options::default(),
            by_task: false,
            by_process: false,
            by_recording: false,
            slowest: 0,
            survey: false,
            are_apart: false,
        }
    }
}

/// A counted sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// The number of its recording.
    pub recording: usize,
    /// Its time, in nanoseconds from the start of its recording.
    pub since_ns: u64,
    /// Its vCPU or thread.
    pub task: Task,
    /// Its address space: the task's, or that of the root of a guest's page tables.
    pub space: u32,
    /// The state of that.
    pub state: State,
    /// Why its stack ends.
    pub stop: Stop,
    /// Its stack.
    pub node: NodeId,
    /// The address of its innermost frame; `None` without frames, and for calls.
    pub address: Option<u64>,
    /// Its weight.
    pub weight: Weight,
    /// The unit of the weight: the profile's.
    pub unit: Unit,
    /// What is told of a call of a trace, its start from that of its recording.
    pub call: Option<Span<LabelId>>,
    /// Whether that call is hidden, so that its stack is its caller's.
    pub is_hidden: bool,
}

impl Sampled {
    /// The call of a trace, if it is to be shown by itself.
    pub(crate) fn shown_call(&self) -> Option<Span<LabelId>> {
        self.call.filter(|_| !self.is_hidden)
    }
}

/// Receives samples one by one, in file order, with the profile gathered so far.
pub type Each<'a> = dyn FnMut(&Sampled, &Profile) + 'a;

/// Receives the numbers of samples done and in all.
pub type OnProgress<'a> = dyn Fn(u64, u64) + 'a;

/// The cost of a sample that is handled by itself, of a run's budget of steps: a few kilobytes may have tens of
/// millions.
const STEPS_PER_SAMPLE: u64 = 32;
/// Number of slices of a recording that a comparison tells apart.
pub const SLICES: usize = 120;
/// Blocks in memory at a time.
const BATCH: usize = 16;
/// Elements of the tables that have one for each node of a block. There is a table for each process or thread that was
/// sampled; what does not fit is in maps, which are slower and have only the nodes that occur.
const TABLE_NODES_MAX: usize = 1 << 20;

/// Gathers the samples of `recordings`; their time off the processor, or in calls of a trace, where the filter says so,
/// or leaves it open and the recordings have nothing else; and the wall time of their vCPUs, if the filter says so.
pub fn gather(
    recordings: &[&Recording],
    library: &Library,
    options: &Options,
    progress: &OnProgress<'_>,
    each: Option<&mut Each<'_>>,
) -> Profile {
    let tables = Tables::of_builds(library);
    gather_with(recordings, &tables, options, progress, each)
}

/// As [`gather`], with the tables of images that were kept before.
pub(crate) fn gather_with(
    recordings: &[&Recording],
    tables: &Tables<'_>,
    options: &Options,
    progress: &OnProgress<'_>,
    mut each: Option<&mut Each<'_>>,
) -> Profile {
    let mut in_unit = |unit: Unit| {
        let mut options = options.clone();
        options.filter.unit = Some(unit);
        // A new borrow: if the first pass counts nothing, a second follows.
        let each: Option<&mut Each<'_>> = match &mut each {
            Some(each) => Some(&mut **each),
            None => None,
        };
        if unit == Unit::VcpuTime {
            return vcpu_time::gather(recordings, tables, &options, progress, each);
        }
        gather_unit(recordings, tables, (&options, unit), progress, each)
    };
    let wanted = options.filter.unit;
    let is_open = wanted.unwrap_or_default() == Unit::Samples;
    let are_several = recordings.len() > 1;
    if is_open && are_several && unit_of_samples(recordings, options.are_apart) == Unit::Sampled {
        return in_unit(Unit::Sampled);
    }
    let profile = in_unit(wanted.unwrap_or_default());
    if !is_open || profile.account.counted > 0 {
        return profile;
    }
    match unit_of(recordings, tables, options) {
        Unit::Samples => profile,
        Unit::Sampled => in_unit(Unit::Sampled),
        other if wanted.is_none() => in_unit(other),
        _ => profile,
    }
}

/// The unit of the samples of recordings: their time, if those of one stand for their own time each, or if there are
/// several rates and the recordings are not kept apart.
fn unit_of_samples(recordings: &[&Recording], are_apart: bool) -> Unit {
    let mut period_ns = None;
    for recording in recordings {
        match first_unit(recording) {
            Some(Unit::Sampled) => return Unit::Sampled,
            Some(_) if !are_apart => {
                let own_ns = recording.period_ns();
                if own_ns.is_some() && period_ns.is_some() && own_ns != period_ns {
                    return Unit::Sampled;
                }
                period_ns = period_ns.or(own_ns);
            }
            _ => {}
        }
    }
    Unit::Samples
}

/// The unit of a recording's first sample.
fn first_unit(recording: &Recording) -> Option<Unit> {
    recording.blocks().iter().find_map(|place| {
        let block = recording.samples(place).ok()?;
        let mut rows = block.rows();
        while let Ok(Some(row)) = rows.next_row() {
            let unit = Unit::of(&row);
            if unit.is_sampled() {
                return Some(unit);
            }
        }
        None
    })
}

/// The unit of recordings if nobody chose one: that of the first sample in `states` (if empty: running), else
/// waits, else calls. What filters leave out counts here, so no filter changes the unit.
fn unit_of(recordings: &[&Recording], tables: &Tables<'_>, options: &Options) -> Unit {
    let states = &options.filter.states;
    let mut unit = Unit::Samples;
    for recording in recordings {
        if unit == Unit::Samples && !recording.span_blocks().is_empty() {
            unit = Unit::Calls;
        }
        let symbolizer = Symbolizer::with(recording, tables, options.demangle);
        let idle = Idle::new(recording, &symbolizer);
        for block in recording.blocks() {
            let Ok(block) = recording.samples(block) else {
                continue;
            };
            let mut rows = EffectiveRows::new(&block, &idle);
            while let Ok(Some(row)) = rows.next_row() {
                let is_chosen = states.contains(&row.state);
                match Unit::of(&row) {
                    Unit::OffCpu => unit = Unit::OffCpu,
                    _ if is_chosen || states.is_empty() && row.state == State::Running => {
                        return Unit::of(&row);
                    }
                    _ => {}
                }
            }
        }
    }
    unit
}

/// Gathers the samples of `recording`, or their time where their rate changed. It is one of several with the same
/// images, whose tables are kept for the next one.
pub fn gather_again(recording: &Recording, tables: &Tables<'_>, options: &Options) -> Profile {
    let mut options = options.clone();
    options.filter.unit = Some(Unit::Samples);
    gather_with(&[recording], tables, &options, &|_, _| (), None)
}

fn gather_unit(
    recordings: &[&Recording],
    tables: &Tables<'_>,
    (options, unit): (&Options, Unit),
    progress: &OnProgress<'_>,
    mut each: Option<&mut Each<'_>>,
) -> Profile {
    let mut profile = Profile {
        labels: Labels::new(),
        ..Profile::default()
    };
    profile.account.unit = unit;
    let mut flags = Vec::new();
    let mut slowest = Slowest::new(options.slowest);
    let mut stack_bytes = 0;
    let mut explains_unnamed = false;
    let names = names(recordings);
    let is_apart =
        |recording: &&Recording| options.by_process && Processes::new(recording).are_several();
    let any_apart = recordings.iter().any(is_apart);
    let merge = each.is_none() && !options.by_task && !any_apart;
    let mut done = 0;
    let blocks = recordings.iter().flat_map(|recording| recording.blocks());
    let total = blocks.map(|block| u64::from(block.samples)).sum();
    for (number, recording) in recordings.iter().enumerate() {
        let symbolizer = Symbolizer::with(recording, tables, options.demangle);
        let unwinders = Unwinders::new(recording, &symbolizer, options.unwind);
        let idle = Idle::new(recording, &symbolizer);
        let before = profile.begin_account();
        let mut gathering = Gathering {
            recording,
            number,
            options,
            naming: Naming::new(recording, &symbolizer, options),
            flags: std::mem::take(&mut flags),
            base: ROOT,
            processes: Some(Processes::new(recording))
                .filter(|known| options.by_process && known.are_several()),
            path: Vec::new(),
        };
        gathering.begin(&names[number], &mut profile);
        if unit == Unit::Calls {
            gathering.join_calls(&mut profile, &mut slowest, &mut each);
        }
        let samples = if unit == Unit::Calls {
            &[][..]
        } else {
            recording.blocks()
        };
        let is_surveyed = options.survey && unit != Unit::Calls;
        let mut survey = is_surveyed.then(|| Survey::begin(recording));
        for batch in samples.chunks(BATCH) {
            let mut stacks: Vec<BlockStacks> = batch
                .par_iter()
                .map(|place| BlockStacks::read(recording, &unwinders, &idle, place, options, merge))
                .collect();
            gathering.naming.add(&mut stacks, &mut profile.labels);
            for stacks in &stacks {
                gathering.join(stacks, &mut profile, &mut each);
                if let (Some(whole), Some(part)) = (&mut survey, &stacks.survey) {
                    whole.add(part);
                }
            }
            // Each batch reads code and unwind rules all over the images.
            symbolizer.release();
            done += batch
                .iter()
                .map(|block| u64::from(block.samples))
                .sum::<u64>();
            progress(done, total);
        }
        symbolizer.keep();
        flags = gathering.flags;
        profile.warnings.extend(symbolizer.warnings());
        explains_unnamed |= symbolizer.explains_unnamed();
        profile.account.forced += symbolizer.forced();
        stack_bytes = stack_bytes.max(recording.metadata().sampling.stack_bytes);
        let selected = losses::selected(recording, &options.filter);
        profile.account.add_recording(recording, &selected);
        let account = profile.end_account(before);
        profile.of_recordings.push(OfRecording {
            account,
            idle: idle.into_places(),
            survey,
        });
    }
    profile.slowest = slowest.into_found();
    let is_guest = |one: &&Recording| one.metadata().target.kind.is_guest();
    let counts = Counts {
        explains_unnamed,
        ..Counts::of(&profile, recordings.iter().all(is_guest), stack_bytes)
    };
    profile.warnings.extend(advice(&counts));
    profile
}

/// Which regular expressions match a label.
#[derive(Debug, Clone, Copy)]
struct Flags {
    focus: bool,
    ignore: bool,
    hide: bool,
}

/// What is known of the stacks up to a node.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    focus: bool,
    ignore: bool,
}

struct Gathering<'a, 's> {
    recording: &'a Recording,
    number: usize,
    options: &'a Options,
    naming: Naming<'a, 's>,
    /// By label number.
    flags: Vec<Flags>,
    /// The node at which the stacks of this recording begin.
    base: NodeId,
    /// Its processes, if they are distinguished.
    processes: Option<Processes>,
    /// Nodes of a stack that are not joined yet, for `node` alone.
    path: Vec<u32>,
}

/// A local node's place in the tree, and the matches on the way there.
type Here = (NodeId, Passed);

/// The local nodes of a block that are in the tree already, below one root.
struct Joined<'j> {
    root: NodeId,
    /// One element for each node, if the root is one of the first.
    table: Option<&'j mut Vec<Option<Here>>>,
    /// Those of all further roots.
    besides: &'j mut WordMap<(NodeId, u32), Here>,
}

impl Joined<'_> {
    fn get(&self, local: u32) -> Option<Here> {
        match &self.table {
            Some(table) => table[local as usize],
            None => self.besides.get(&(self.root, local)).copied(),
        }
    }

    fn insert(&mut self, local: u32, here: Here) {
        match &mut self.table {
            Some(table) => table[local as usize] = Some(here),
            None => {
                self.besides.insert((self.root, local), here);
            }
        }
    }
}

impl Gathering<'_, '_> {
    fn begin(&mut self, name: &str, profile: &mut Profile) {
        if self.options.by_recording {
            let label = naming::plain(&mut profile.labels, name);
            self.base = profile.tree.child(ROOT, label);
        }
    }

    /// Adds the stacks of one block.
    fn join(
        &mut self,
        stacks: &BlockStacks,
        profile: &mut Profile,
        each: &mut Option<&mut Each<'_>>,
    ) {
        self.ask(&profile.labels);
        profile.account.add(&stacks.account);
        if let Some(fault) = &stacks.fault {
            profile.warnings.push(fault.clone());
        }
        let mut tables: WordMap<NodeId, Vec<Option<Here>>> = WordMap::default();
        let mut besides = WordMap::default();
        let nodes = stacks.nodes.len();
        let filtered = self.options.filter.focus.is_some();
        for row in &stacks.rows {
            let root = self.root_of(row, profile);
            let fits = tables.is_empty() || (tables.len() + 1) * nodes <= TABLE_NODES_MAX;
            let table = match tables.entry(root) {
                Entry::Occupied(known) => Some(known.into_mut()),
                Entry::Vacant(new) if fits => Some(new.insert(vec![None; nodes])),
                Entry::Vacant(_) => None,
            };
            let mut joined = Joined {
                root,
                table,
                besides: &mut besides,
            };
            let mut top = self.node(stacks, &mut joined, row.node, profile);
            if let Some(guest) = row.guest {
                top = self.guest(stacks, top, guest, profile);
            }
            let (node, passed) = top;
            if passed.ignore || filtered && !passed.focus {
                let left_out = &mut profile.account.unfocused;
                *left_out = left_out.saturating_add(row.weight.count);
                continue;
            }
            let amount = count(row, &mut profile.account);
            profile.tree.add(node, amount);
            if row.pooled > 0 {
                let all = &mut profile.account.pooled;
                *all = all.saturating_add(row.pooled);
                let pooled = profile.pooled.entry(node).or_default();
                *pooled = pooled.saturating_add(row.pooled);
            }
            if let Some(each) = each {
                work::take(STEPS_PER_SAMPLE);
                let since_ns = row.time_ns.saturating_sub(self.recording.start_ns());
                // Of a wait, the part in the selected time is what counts.
                let from_ns = self.options.filter.from_ns.unwrap_or(0);
                let is_wait = profile.account.unit == Unit::OffCpu;
                let sampled = Sampled {
                    recording: self.number,
                    since_ns: if is_wait {
                        since_ns.max(from_ns)
                    } else {
                        since_ns
                    },
                    task: row.task,
                    space: row.space,
                    state: row.state,
                    stop: row.stop,
                    node,
                    address: (row.node.filter(|_| row.guest.is_none()))
                        .map(|leaf| stacks.nodes[leaf as usize].frame.address),
                    weight: Weight {
                        amount,
                        ..row.weight
                    },
                    unit: profile.account.unit,
                    call: None,
                    is_hidden: false,
                };
                each(&sampled, profile);
            }
        }
    }

    fn root_of(&mut self, row: &LocalRow, profile: &mut Profile) -> NodeId {
        let (task, time_ns) = (row.task, row.time_ns);
        let mut root = self.base;
        if let Some(processes) = &self.processes {
            let name = processes.label(self.recording, row.space, time_ns);
            let label = naming::plain(&mut profile.labels, &name);
            root = profile.tree.child(root, label);
        }
        if self.options.by_task {
            let name = task_name(self.recording, task, time_ns);
            let label = naming::plain(&mut profile.labels, &name);
            root = profile.tree.child(root, label);
        }
        root
    }

    /// The node of a local stack in the tree.
    fn node(
        &mut self,
        stacks: &BlockStacks,
        joined: &mut Joined<'_>,
        leaf: Option<u32>,
        profile: &mut Profile,
    ) -> (NodeId, Passed) {
        let root = joined.root;
        let Some(leaf) = leaf else {
            let label = naming::plain(&mut profile.labels, "[no frame]");
            return (profile.tree.child(root, label), Passed::default());
        };
        // Up to what is already joined, then down again.
        let mut at = Some(leaf);
        let mut here = (root, Passed::default());
        while let Some(local) = at {
            if let Some(known) = joined.get(local) {
                here = known;
                break;
            }
            self.path.push(local);
            at = stacks.nodes[local as usize].parent;
        }
        while let Some(local) = self.path.pop() {
            let local_node = stacks.nodes[local as usize];
            let (start, end) = stacks.ranges[local_node.place as usize];
            for index in start..end {
                let caller = here.0;
                here = self.step(here, self.naming.label(index), profile);
                // A hidden frame is none.
                if here.0 != caller {
                    profile.found.add(here.0, local_node.frame.found);
                }
            }
            joined.insert(local, here);
        }
        if here.0 == root {
            let label = naming::plain(&mut profile.labels, "[hidden]");
            here.0 = profile.tree.child(root, label);
        }
        here
    }

    /// Adds the time of a guest above the call that runs it, and what is known of its code.
    fn guest(
        &mut self,
        stacks: &BlockStacks,
        top: (NodeId, Passed),
        guest: LocalGuest,
        profile: &mut Profile,
    ) -> (NodeId, Passed) {
        let label = naming::plain(&mut profile.labels, GUEST);
        let user = match guest {
            LocalGuest::User => Some(naming::plain(&mut profile.labels, GUEST_USER)),
            _ => None,
        };
        self.ask(&profile.labels);
        let mut top = self.step(top, label, profile);
        if let Some(label) = user {
            top = self.step(top, label, profile);
        }
        if let LocalGuest::At(place) = guest {
            let (start, end) = stacks.ranges[place as usize];
            for index in start..end {
                let caller = top.0;
                top = self.step(top, self.naming.label(index), profile);
                if top.0 != caller {
                    profile.found.add(top.0, Found::FramePointer);
                }
            }
        }
        top
    }

    fn step(
        &mut self,
        from: (NodeId, Passed),
        label: LabelId,
        profile: &mut Profile,
    ) -> (NodeId, Passed) {
        let (parent, mut passed) = from;
        if let Some(flags) = self.flags.get(label as usize) {
            passed.focus |= flags.focus;
            passed.ignore |= flags.ignore;
            if flags.hide {
                return (parent, passed);
            }
        }
        let again =
            self.options.by == By::Module && parent != ROOT && profile.tree.label(parent) == label;
        if again {
            return (parent, passed);
        }
        (profile.tree.child(parent, label), passed)
    }

    /// Matches the regular expressions with new labels.
    fn ask(&mut self, labels: &Labels) {
        let filter = &self.options.filter;
        let is_time = filter.unit == Some(Unit::OffCpu);
        if !is_time && filter.focus.is_none() && filter.ignore.is_none() && filter.hide.is_none() {
            return;
        }
        for id in self.flags.len()..labels.len() {
            let name = labels.name(id as LabelId);
            let says =
                |rule: &Option<regex::Regex>| rule.as_ref().is_some_and(|rule| rule.is_match(name));
            self.flags.push(Flags {
                focus: says(&filter.focus),
                ignore: says(&filter.ignore),
                hide: says(&filter.hide)
                    || is_time && labels.get(id as LabelId).kernel && is_scheduler(name),
            });
        }
    }
}

/// The box of time in which a thread ran a guest: `record --host` shows the guest's functions.
const GUEST: &str = "[guest]";
/// The box above it of code of the guest's processes, of which no more is known.
const GUEST_USER: &str = "[guest user]";

/// The largest count of a profile: 146 years of nanoseconds. No sum of parts of it overflows, for any recording.
const COUNTED_MAX: u64 = 1 << 62;

/// Counts a row and returns its counted weight.
fn count(row: &LocalRow, account: &mut Account) -> u64 {
    let amount = row.weight.amount.min(COUNTED_MAX - account.counted);
    account.counted += amount;
    account.late += u64::from(row.late) * amount;
    account.shallow += u64::from(row.shallow) * amount;
    account.lacking += u64::from(row.lacks_caller) * amount;
    account.empty += u64::from(row.node.is_none()) * amount;
    if crate::recording::account::is_cut(row.stop) {
        *account.cut.entry(row.stop).or_default() += amount;
    }
    let rows = account.counted_rows.entry(row.state).or_default();
    rows.add(Weight {
        amount,
        ..row.weight
    });
    amount
}

/// Whether a kernel function is part of the scheduler's switch: every wait has it innermost, and only its callers
/// tell the reason.
fn is_scheduler(name: &str) -> bool {
    let function = name.split(['+', ' ']).next().unwrap_or(name);
    SCHEDULER.contains(&function)
}

/// Linux's, up to 6.18.
const SCHEDULER: [&str; 14] = [
    "__schedule",
    "__schedule_loop",
    "schedule",
    "schedule_timeout",
    "schedule_hrtimeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "schedule_rtlock",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "preempt_schedule_notrace",
    "__cond_resched",
];

/// The recordings' names in a view of several: file names, numbered where they are equal.
pub(crate) fn names(recordings: &[&Recording]) -> Vec<String> {
    let short = |recording: &Recording| {
        let name = recording.name();
        name.rsplit_once('/')
            .map_or(name, |(_, short)| short)
            .to_owned()
    };
    let all: Vec<String> = recordings.iter().map(|one| short(one)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &all {
        *counts.entry(name).or_default() += 1;
    }
    let numbered = all.iter().enumerate();
    numbered
        .map(|(number, name)| match counts.get(name.as_str()) {
            Some(1) => name.clone(),
            _ => format!("{name} ({})", number + 1),
        })
        .collect()
}
