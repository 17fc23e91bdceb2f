//! Wall time of vCPUs as a stack tree. Guest code's time is shared over the vCPU's samples, less what those stand for
//! that were taken while an exit was handled. Time in the hypervisor and in the monitor is above the function whose
//! exit caused it, with the callers that its samples have; all other time is at the root. The tree of a vCPU adds up to
//! its wall time. A comparison also learns when each part of it was spent.

mod moments;

use super::monitor::{HandlerStacks, MonitorStacks};
use super::{COUNTED_MAX, Each, Gathering, Naming, OnProgress, Options, Passed, Sampled};
use super::{gather_unit, names, naming};
use crate::profile::exit_names;
use crate::profile::labels::{LabelId, TextId};
use crate::profile::losses;
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::profile::vcpu_times::{self, WallTime, in_proportion, part_within};
use crate::profile::{Labels, OfRecording, Profile};
use crate::recording::Recording;
use crate::recording::processes::task_name;
use crate::recording::spaces::Place as CodePlace;
use crate::recording::unit::{Unit, Weight};
use crate::stacks::Tables;
use crate::stacks::symbolizer::Symbolizer;
use crate::work;
use moments::{Moments, Slices};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uprof::cold::{ExitKind, Exits, Place, TargetKind, VcpuTime};
use uprof::{State, Stop, Task};

/// Reasons that have a box of their own above one stack; those with less time share one.
const REASONS_MAX: usize = 64;
/// Most pairs of a stack at a site and a stack that handled its exits for a reason. If there would be more, the
/// handlers with the fewest samples are left out: their time is the place's own.
const PAIRS_MAX: usize = 1 << 16;
/// Stacks of handlers that are kept however many stacks are at the site.
const HANDLERS_MIN: usize = 64;
/// The box of what has no address.
const NO_ADDRESS: &str = "(address not known)";

/// Stacks with their samples, or time.
type Stacks = Vec<(NodeId, u64)>;

/// Frames of handlers from the outermost on, with the samples that they share a place's time by.
type Handlers = Vec<(Vec<LabelId>, u64)>;

/// Samples of one vCPU: their number, or the time that they stand for.
#[derive(Default)]
struct VcpuSamples {
    by_stack: BTreeMap<NodeId, u64>,
    /// The same by stack and slice of the recording's time, for a comparison.
    by_slice: BTreeMap<(NodeId, usize), u64>,
    by_address: HashMap<u64, BTreeMap<NodeId, u64>>,
}

/// Samples by number of the recording and vCPU.
type AllSamples = HashMap<(usize, u32), VcpuSamples>;

/// Gathers the wall time of the vCPUs that the filter selects.
pub(super) fn gather(
    recordings: &[&Recording],
    tables: &Tables<'_>,
    options: &Options,
    progress: &OnProgress<'_>,
    mut each: Option<&mut Each<'_>>,
) -> Profile {
    let mut profile = Profile {
        labels: Labels::new(),
        ..Profile::default()
    };
    profile.account.unit = Unit::VcpuTime;
    let mut samples = AllSamples::new();
    let mut stacks = StackTree::default();
    let mut monitor = MonitorStacks::default();
    let mut of_samples = Vec::new().into_iter();
    let slices: Vec<Slices> = recordings
        .iter()
        .map(|recording| Slices::new(recording, &options.filter, each.is_some()))
        .collect();
    if recordings.iter().any(|one| vcpu_times::has_any(one)) {
        let into = (&slices[..], &mut samples);
        let gathered = gather_samples(recordings, tables, options, progress, into);
        profile.labels = gathered.labels;
        profile.warnings = gathered.warnings;
        of_samples = gathered.of_recordings.into_iter();
        stacks = gathered.tree;
        monitor = MonitorStacks::gather(recordings, tables, options, progress);
    }
    let names = names(recordings);
    let mut flags = Vec::new();
    for (number, recording) in recordings.iter().enumerate() {
        let before = profile.begin_account();
        let symbolizer = Symbolizer::with(recording, tables, options.demangle);
        let mut gathering = Gathering {
            recording,
            number,
            options,
            naming: Naming::new(recording, &symbolizer, options),
            flags,
            base: ROOT,
            processes: None,
            path: Vec::new(),
        };
        gathering.begin(&names[number], &mut profile);
        let first = profile.vcpu_times.rows.len();
        (profile.vcpu_times).add(number, recording, &options.filter);
        let rows: Vec<WallTime> = profile.vcpu_times.rows[first..].to_vec();
        let mut records: HashMap<u32, Vec<&VcpuTime>> = HashMap::new();
        for record in recording.vcpu_times() {
            records.entry(record.task.vcpu).or_default().push(record);
        }
        let mut joining = Joining {
            joined: vec![None; stacks.nodes().len()],
            gathering,
            stacks: &stacks,
            samples: &samples,
            records,
            monitor: &monitor,
            slices: &slices[number],
            each: match &mut each {
                Some(each) => Some(&mut **each),
                None => None,
            },
            task: Task { space: 0, vcpu: 0 },
            laid_ns: HashMap::new(),
            part_ns: 0,
            profile: &mut profile,
        };
        joining.join(&rows);
        flags = joining.gathering.flags;
        let selected = losses::selected(recording, &options.filter);
        profile.account.add_recording(recording, &selected);
        let sampled = of_samples.next().unwrap_or_default();
        profile.account.forced = sampled.account.forced;
        profile.account.undecoded = sampled.account.undecoded;
        let account = profile.end_account(before);
        profile
            .of_recordings
            .push(OfRecording { account, ..sampled });
    }
    profile
}

/// The running samples, and the stacks of each vCPU, whatever the filter says of frames.
fn gather_samples(
    recordings: &[&Recording],
    tables: &Tables<'_>,
    options: &Options,
    progress: &OnProgress<'_>,
    (slices, samples): (&[Slices], &mut AllSamples),
) -> Profile {
    let mut options = options.clone();
    let filter = &mut options.filter;
    let unit = super::unit_of_samples(recordings, true);
    filter.unit = Some(unit);
    filter.states.clear();
    (filter.focus, filter.ignore, filter.hide) = (None, None, None);
    let mut take = |sampled: &Sampled, _: &Profile| {
        let vcpu = samples.entry((sampled.recording, sampled.task.vcpu));
        let vcpu = vcpu.or_default();
        let add = |sum: &mut u64| *sum = sum.saturating_add(sampled.weight.amount);
        add(vcpu.by_stack.entry(sampled.node).or_default());
        if let Some(slice) = slices[sampled.recording].of(sampled.since_ns) {
            add(vcpu.by_slice.entry((sampled.node, slice)).or_default());
        }
        if let Some(address) = sampled.address {
            let stacks = vcpu.by_address.entry(address).or_default();
            add(stacks.entry(sampled.node).or_default());
        }
    };
    let how = (&options, unit);
    gather_unit(recordings, tables, how, progress, Some(&mut take))
}

/// Where in the tree exits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Site {
    /// Above the samples at the same address.
    Address(u64),
    /// Above the samples in the same function.
    Function(LabelId),
    /// Above the function at this address, without callers.
    Alone(u64),
    /// The address is not known.
    Unknown,
}

/// A record of exits, and where they are.
struct Placed<'r> {
    vcpu: u32,
    site: Site,
    reason: TextId,
    exits: &'r Exits,
    part: (u64, u64),
}

/// Time of exits for a reason.
#[derive(Debug, Clone, Copy, Default)]
struct Handled {
    hypervisor_ns: u64,
    monitor_ns: u64,
}

impl Handled {
    fn add(&mut self, other: Handled) {
        self.hypervisor_ns = self.hypervisor_ns.saturating_add(other.hypervisor_ns);
        self.monitor_ns = self.monitor_ns.saturating_add(other.monitor_ns);
    }

    fn sum_ns(self) -> u64 {
        self.hypervisor_ns.saturating_add(self.monitor_ns)
    }
}

impl Placed<'_> {
    fn handled(&self) -> Handled {
        let (part, whole) = self.part;
        let at = |wanted: Place| {
            let spent = self.exits.spent.iter();
            let spent = spent.filter(|(place, _)| *place == wanted);
            let sum = spent.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
            in_proportion(sum, part, whole)
        };
        Handled {
            hypervisor_ns: at(Place::Hypervisor),
            monitor_ns: at(Place::Monitor),
        }
    }
}

/// Hands out a total in parts, in proportion to their own sum where that is more.
struct Ration {
    total_ns: u64,
    sum_ns: u128,
    asked_ns: u128,
    given_ns: u64,
}

impl Ration {
    /// For parts that add up to `sum_ns`. What they leave of the total is left over, unless `whole` is set.
    fn new(total_ns: u64, sum_ns: u128, whole: bool) -> Self {
        let least_ns = if whole { 1 } else { u128::from(total_ns) };
        Ration {
            total_ns,
            sum_ns: sum_ns.max(least_ns.max(1)),
            asked_ns: 0,
            given_ns: 0,
        }
    }

    fn take(&mut self, part_ns: u64) -> u64 {
        self.asked_ns += u128::from(part_ns);
        let due = share_of(self.total_ns, self.asked_ns, self.sum_ns);
        let now = due.saturating_sub(self.given_ns);
        self.given_ns += now;
        now
    }

    fn left_ns(&self) -> u64 {
        self.total_ns - self.given_ns
    }
}

/// `total` times `part` by `whole`, at most `total`. The sum of many times may need more than 64 bits.
fn share_of(total: u64, part: u128, whole: u128) -> u64 {
    let shift = 64_u32.saturating_sub(whole.leading_zeros());
    let (part, whole) = (part >> shift, (whole >> shift).max(1));
    let share = u128::from(total) * part.min(whole) / whole;
    u64::try_from(share).unwrap_or(total)
}

struct Joining<'j, 'a, 's, 'e> {
    gathering: Gathering<'a, 's>,
    /// The samples' stacks.
    stacks: &'j StackTree,
    samples: &'j AllSamples,
    /// The recorded wall times of each vCPU.
    records: HashMap<u32, Vec<&'a VcpuTime>>,
    monitor: &'j MonitorStacks,
    slices: &'j Slices,
    /// Receives each part of the time, if that is a comparison.
    each: Option<&'j mut Each<'e>>,
    /// The vCPU, and how much of its time in each slice has been told.
    task: Task,
    laid_ns: HashMap<(Task, usize), u64>,
    /// The part of a sample's time that no count stands for yet.
    part_ns: u64,
    /// Nodes of the new tree, by number in the samples' one.
    joined: Vec<Option<(NodeId, Passed)>>,
    profile: &'j mut Profile,
}

/// Samples of a vCPU by their innermost function.
type Leaves = HashMap<(u32, LabelId), Stacks>;

impl<'a> Joining<'_, 'a, '_, '_> {
    fn join(&mut self, rows: &[WallTime]) {
        let vcpus: BTreeSet<u32> = rows.iter().map(|row| row.task.vcpu).collect();
        let leaves = self.leaves(&vcpus);
        let placed = self.place_exits(&vcpus, &leaves);
        for row in rows {
            let vcpu = row.task.vcpu;
            let from = placed.partition_point(|one| one.vcpu < vcpu);
            let to = placed.partition_point(|one| one.vcpu <= vcpu);
            self.join_vcpu(row, &placed[from..to], &leaves);
        }
    }

    fn samples_of(&self, vcpu: u32) -> Option<&VcpuSamples> {
        self.samples.get(&(self.gathering.number, vcpu))
    }

    fn leaves(&self, vcpus: &BTreeSet<u32>) -> Leaves {
        let mut leaves = Leaves::new();
        for vcpu in vcpus {
            let samples = self.samples_of(*vcpu).into_iter();
            for (node, count) in samples.flat_map(|samples| &samples.by_stack) {
                let label = self.stacks.label(*node);
                let stacks = leaves.entry((*vcpu, label)).or_default();
                stacks.push((*node, *count));
            }
        }
        leaves
    }

    /// The exits of these vCPUs, sorted by vCPU, site and reason. They are added to the table of exits.
    fn place_exits(&mut self, vcpus: &BTreeSet<u32>, leaves: &Leaves) -> Vec<Placed<'a>> {
        let recording = self.gathering.recording;
        let window = vcpu_times::window(recording, &self.gathering.options.filter);
        let exits = recording.exits().iter();
        let exits = exits.filter(|one| vcpus.contains(&one.task.vcpu));
        let exits: Vec<(&Exits, (u64, u64))> = exits
            .filter_map(|one| Some((one, part_within(one.first_ns, one.last_ns, window)?)))
            .collect();
        work::take(exits.len() as u64);
        let places: Vec<CodePlace> = exits
            .iter()
            .filter_map(|(one, _)| self.code_place(one))
            .collect();
        let labels = &mut self.profile.labels;
        self.gathering.naming.name_new(places.iter(), labels);
        let mut placed = Vec::new();
        for (exits, part) in exits {
            if exits.cause.kind == ExitKind::Recorder {
                self.profile.exits.interrupted.add_record(exits, part);
                continue;
            }
            let spent = &mut exits.spent.iter();
            let in_monitor = spent.any(|(place, ns)| *place == Place::Monitor && *ns > 0);
            let reason = exit_names::name(&exits.cause, in_monitor);
            let reason = self.profile.labels.text_id(&reason);
            let (site, function) = self.site(exits, leaves);
            self.profile.exits.add((function, reason), exits, part);
            placed.push(Placed {
                vcpu: exits.task.vcpu,
                site,
                reason,
                exits,
                part,
            });
        }
        placed.sort_by_key(|one| (one.vcpu, one.site, one.reason));
        placed
    }

    /// The place of the instruction that caused these exits, unless samples have it: those know their address space.
    fn code_place(&self, exits: &Exits) -> Option<CodePlace> {
        let address = exits.cause.address?;
        let sampled = self.samples_of(exits.task.vcpu);
        let is_sampled = sampled.is_some_and(|vcpu| vcpu.by_address.contains_key(&address));
        let place = self.gathering.recording.place_of_exits(exits);
        place.filter(|_| !is_sampled)
    }

    /// Where the exits of a record are, and the function that caused them.
    fn site(&self, exits: &Exits, leaves: &Leaves) -> (Site, Option<LabelId>) {
        let Some(address) = exits.cause.address else {
            return (Site::Unknown, None);
        };
        let vcpu = exits.task.vcpu;
        let Some(place) = self.code_place(exits) else {
            let stacks = self.samples_of(vcpu);
            let stacks = stacks.and_then(|samples| samples.by_address.get(&address));
            let most = stacks.and_then(|stacks| stacks.iter().max_by_key(|(_, count)| **count));
            let function = most.map(|(node, _)| self.stacks.label(*node));
            return (Site::Address(address), function);
        };
        let function = self.gathering.naming.labels_of(&place).last().copied();
        let leaf = function.filter(|label| leaves.contains_key(&(vcpu, *label)));
        let site = leaf.map_or(Site::Alone(address), Site::Function);
        (site, function)
    }

    /// Adds the wall time of a vCPU.
    fn join_vcpu(&mut self, row: &WallTime, exits: &[Placed<'_>], leaves: &Leaves) {
        self.profile.account.vcpus += 1;
        self.task = row.task;
        let vcpu = row.task.vcpu;
        let at = |place: Place| row.spent[place.number() as usize];
        let root = self.root(row);
        let stacks = self.guest_stacks(row, exits);
        self.join_guest(vcpu, root, at(Place::Guest), stacks);
        let all = exits.iter().map(Placed::handled);
        let (mut hypervisor_ns, mut monitor_ns) = (0_u128, 0_u128);
        for handled in all {
            hypervisor_ns += u128::from(handled.hypervisor_ns);
            monitor_ns += u128::from(handled.monitor_ns);
        }
        let mut rations = [
            Ration::new(at(Place::Hypervisor), hypervisor_ns, false),
            Ration::new(at(Place::Monitor), monitor_ns, false),
        ];
        for of_site in exits.chunk_by(|a, b| a.site == b.site) {
            self.join_site(root, of_site, leaves, &mut rations);
        }
        let [in_hypervisor, in_monitor] = rations;
        let rest = [
            (Place::Hypervisor, in_hypervisor.left_ns()),
            (Place::Monitor, in_monitor.left_ns()),
        ];
        let others = [Place::Ready, Place::Halted, Place::Paused, Place::Unknown];
        for (place, ns) in rest.into_iter().chain(others.map(|one| (one, at(one)))) {
            let moments = self.moments_at(vcpu, place);
            self.put_place(root, place, ns, &moments);
        }
    }

    /// The node where time without a stack is.
    fn root(&mut self, row: &WallTime) -> (NodeId, Passed) {
        let gathering = &self.gathering;
        let mut root = gathering.base;
        if gathering.options.by_task {
            let name = task_name(gathering.recording, row.task, u64::MAX);
            let label = naming::plain(&mut self.profile.labels, &name);
            root = self.profile.tree.child(root, label);
        }
        (root, Passed::default())
    }

    /// The stacks of guest code, each with the time that its samples stand for (nanoseconds). A vCPU whose exit is
    /// being handled runs, too, as far as samples know, at the instruction that caused it: that time is not the
    /// guest's.
    fn guest_stacks(&self, row: &WallTime, exits: &[Placed<'_>]) -> Stacks {
        let Some(samples) = self.samples_of(row.task.vcpu) else {
            return Stacks::new();
        };
        let running = [Place::Guest, Place::Hypervisor, Place::Monitor];
        let running = running.map(|place| row.spent[place.number() as usize]);
        let running_ns = running.into_iter().fold(0, u64::saturating_add);
        let count: u128 = samples.by_stack.values().map(|n| u128::from(*n)).sum();
        let time_of = |n: u64| share_of(running_ns, u128::from(n), count.max(1));
        let mut handled_ns: BTreeMap<NodeId, u64> = BTreeMap::new();
        for of_site in exits.chunk_by(|a, b| a.site == b.site) {
            let Site::Address(address) = of_site[0].site else {
                continue;
            };
            let nodes = samples.by_address.get(&address).into_iter().flatten();
            let nodes: Stacks = nodes.map(|(node, n)| (*node, time_of(*n))).collect();
            let here_ns = sum(&nodes);
            let times = of_site.iter().map(|one| one.handled().sum_ns());
            let all_ns = times.fold(0, u64::saturating_add);
            for (node, ns) in nodes {
                let handled = share_of(all_ns, u128::from(ns), here_ns.max(1)).min(ns);
                let sum_ns = handled_ns.entry(node).or_default();
                *sum_ns = sum_ns.saturating_add(handled);
            }
        }
        let stacks = samples.by_stack.iter().map(|(node, n)| {
            let handled = handled_ns.get(node).copied().unwrap_or(0);
            (*node, time_of(*n).saturating_sub(handled))
        });
        stacks.collect()
    }

    /// Shares the time of guest code over its stacks.
    fn join_guest(&mut self, vcpu: u32, root: (NodeId, Passed), guest_ns: u64, stacks: Stacks) {
        let mut ration = Ration::new(guest_ns, sum(&stacks), true);
        for (node, ns) in stacks {
            let ns = ration.take(ns);
            if ns > 0 {
                let here = self.joined(node);
                let moments = self.moments_of(vcpu, node);
                self.put(here, ns, &moments);
            }
        }
        let moments = self.moments_at(vcpu, Place::Guest);
        self.put_place(root, Place::Guest, ration.left_ns(), &moments);
    }

    /// When samples found this stack.
    fn moments_of(&self, vcpu: u32, node: NodeId) -> Moments {
        let samples = self.samples_of(vcpu).into_iter();
        let found = samples.flat_map(|one| one.by_slice.range((node, 0)..=(node, usize::MAX)));
        Moments::of(found.map(|((_, slice), count)| (*slice, *count)))
    }

    /// When the vCPU was at a place.
    fn moments_at(&self, vcpu: u32, place: Place) -> Moments {
        let records = self.records.get(&vcpu).into_iter().flatten();
        self.slices.moments(records.map(|one| {
            let spent = one.spent.iter().filter(|(at, _)| *at == place);
            let ns = spent.fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
            (one.first_ns, one.last_ns, ns)
        }))
    }

    /// Adds the exits of a site.
    fn join_site(
        &mut self,
        root: (NodeId, Passed),
        exits: &[Placed<'_>],
        leaves: &Leaves,
        rations: &mut [Ration; 2],
    ) {
        let (site, vcpu) = (exits[0].site, exits[0].vcpu);
        let vcpu_of_recording = (self.gathering.number, vcpu);
        let slices = self.slices;
        let moments_of = |exits: &[Placed<'_>]| {
            let spans = exits.iter().map(|one| {
                let ns = one.handled().sum_ns();
                (one.exits.first_ns, one.exits.last_ns, ns)
            });
            slices.moments(spans)
        };
        let mut reasons: Vec<(Option<TextId>, Handled, HandlerStacks, Moments)> = exits
            .chunk_by(|a, b| a.reason == b.reason)
            .map(|alike| {
                let mut sum = Handled::default();
                alike.iter().for_each(|one| sum.add(one.handled()));
                let causes = alike.iter().map(|one| one.exits.cause).collect();
                let handlers = self.monitor.of(vcpu_of_recording, &causes);
                (Some(alike[0].reason), sum, handlers, moments_of(alike))
            })
            .collect();
        if reasons.len() > REASONS_MAX {
            reasons.sort_by_key(|(reason, handled, ..)| {
                (std::cmp::Reverse(handled.sum_ns()), *reason)
            });
            let others = reasons.drain(REASONS_MAX..);
            let mut sum = Handled::default();
            others.for_each(|(_, handled, ..)| sum.add(handled));
            reasons.push((None, sum, HandlerStacks::new(), moments_of(exits)));
        }
        let stacks: Stacks = match site {
            Site::Address(address) => {
                let samples = self.samples_of(vcpu);
                let stacks = samples.and_then(|samples| samples.by_address.get(&address));
                let stacks = stacks.into_iter().flatten();
                stacks.map(|(node, count)| (*node, *count)).collect()
            }
            Site::Function(label) => leaves.get(&(vcpu, label)).cloned().unwrap_or_default(),
            Site::Alone(_) | Site::Unknown => Vec::new(),
        };
        let heres: Vec<((NodeId, Passed), u64)> = if stacks.is_empty() {
            vec![(self.alone(root, &exits[0]), 1)]
        } else {
            let stacks = stacks.into_iter();
            stacks
                .map(|(node, count)| (self.joined(node), count))
                .collect()
        };
        let is_alone = matches!(site, Site::Alone(_));
        let all: u128 = heres.iter().map(|(_, count)| u128::from(*count)).sum();
        work::take(heres.len() as u64 * reasons.len() as u64);
        for (reason, handled, handlers, moments) in reasons {
            let [in_hypervisor, in_monitor] = &mut *rations;
            let hypervisor_ns = in_hypervisor.take(handled.hypervisor_ns);
            let monitor_ns = in_monitor.take(handled.monitor_ns);
            let both_ns = hypervisor_ns.saturating_add(monitor_ns);
            if is_alone {
                let alone = &mut self.profile.account.exits_without_callers_ns;
                *alone = alone.saturating_add(both_ns);
            }
            let name = match reason {
                Some(reason) => vcpu_times::exit_box(self.profile.labels.text(reason)),
                None => vcpu_times::exit_box("other reasons"),
            };
            let labels = &mut self.profile.labels;
            let label = naming::of_place(labels, &name, Place::Hypervisor);
            let parts = [
                (Place::Hypervisor, hypervisor_ns),
                (Place::Monitor, monitor_ns),
            ];
            let parts = parts.into_iter().filter(|(_, ns)| *ns > 0);
            let parts = parts.map(|(place, ns)| {
                let handlers = self.handlers(place, &handlers, heres.len());
                (place, Ration::new(ns, all, true), handlers)
            });
            let mut parts: Vec<(Place, Ration, Handlers)> = parts.collect();
            for (here, count) in &heres {
                let here = self.step(*here, label);
                for (place, ration, handlers) in &mut parts {
                    let ns = ration.take(*count);
                    self.put_handlers((here, *place), ns, handlers, &moments);
                }
            }
        }
    }

    /// The node of the function of these exits, without callers.
    fn alone(&mut self, root: (NodeId, Passed), exits: &Placed<'_>) -> (NodeId, Passed) {
        let place = self.code_place(exits.exits);
        let known = place.map(|place| self.gathering.naming.labels_of(&place).to_vec());
        let labels =
            known.unwrap_or_else(|| vec![naming::plain(&mut self.profile.labels, NO_ADDRESS)]);
        labels
            .into_iter()
            .fold(root, |here, label| self.step(here, label))
    }

    /// The node of a stack of the samples.
    fn joined(&mut self, node: NodeId) -> (NodeId, Passed) {
        let mut path = Vec::new();
        let mut here = (ROOT, Passed::default());
        let mut at = node;
        while at != ROOT {
            if let Some(known) = self.joined[at as usize] {
                here = known;
                break;
            }
            path.push(at);
            at = self.stacks.nodes()[at as usize].parent;
        }
        for node in path.into_iter().rev() {
            let label = self.stacks.label(node);
            here = if self.profile.labels.get(label).made {
                // No filter matches a process or a thread.
                (self.profile.tree.child(here.0, label), here.1)
            } else {
                self.step(here, label)
            };
            self.joined[node as usize] = Some(here);
        }
        here
    }

    fn step(&mut self, from: (NodeId, Passed), label: LabelId) -> (NodeId, Passed) {
        self.gathering.ask(&self.profile.labels);
        self.gathering.step(from, label, self.profile)
    }

    /// Adds time at a place below `here`.
    fn put_place(&mut self, here: (NodeId, Passed), place: Place, ns: u64, moments: &Moments) {
        if ns > 0 {
            let here = self.box_of(here, place);
            self.put(here, ns, moments);
        }
    }

    /// The stacks of a place that each stack at a site has above it, if there are so many of these. Those left out are
    /// one without frames.
    fn handlers(&mut self, place: Place, stacks: &HandlerStacks, heres: usize) -> Handlers {
        let of_place = stacks.range((place, ROOT)..=(place, NodeId::MAX));
        let mut stacks: Stacks = of_place.map(|((_, node), count)| (*node, *count)).collect();
        let most = (PAIRS_MAX / heres.max(1)).max(HANDLERS_MIN);
        let mut others = u64::from(stacks.is_empty());
        if stacks.len() > most {
            stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            others = stacks.drain(most..).map(|(_, count)| count).sum();
        }
        let labels = &mut self.profile.labels;
        let named = stacks.into_iter();
        let named = named.map(|(node, count)| (self.monitor.frames(place, node, labels), count));
        named.chain([(Vec::new(), others)]).collect()
    }

    /// Adds time at a place below `here`, shared over the stacks that handled it there.
    fn put_handlers(
        &mut self,
        (here, place): ((NodeId, Passed), Place),
        ns: u64,
        handlers: &Handlers,
        moments: &Moments,
    ) {
        if ns == 0 {
            return;
        }
        work::take(handlers.len() as u64);
        let here = self.box_of(here, place);
        let all: u128 = handlers.iter().map(|(_, count)| u128::from(*count)).sum();
        let mut ration = Ration::new(ns, all, true);
        for (frames, count) in handlers {
            let ns = ration.take(*count);
            if ns > 0 {
                work::take(frames.len() as u64);
                let frames = frames.iter();
                let top = frames.fold(here, |here, label| self.step(here, *label));
                self.put(top, ns, moments);
            }
        }
    }

    fn box_of(&mut self, here: (NodeId, Passed), place: Place) -> (NodeId, Passed) {
        let name = vcpu_times::box_name(place, self.kind());
        let label = naming::of_place(&mut self.profile.labels, name, place);
        self.step(here, label)
    }

    fn kind(&self) -> TargetKind {
        self.gathering.recording.metadata().target.kind
    }

    fn put(&mut self, (node, passed): (NodeId, Passed), ns: u64, moments: &Moments) {
        let account = &mut self.profile.account;
        if passed.ignore || self.gathering.options.filter.focus.is_some() && !passed.focus {
            account.unfocused = account.unfocused.saturating_add(ns);
            return;
        }
        let amount = ns.min(COUNTED_MAX - account.counted);
        account.counted += amount;
        let rows = account.counted_rows.entry(State::Running).or_default();
        rows.add(Weight { amount, count: 1 });
        self.profile.tree.add(node, amount);
        let Some(each) = &mut self.each else {
            return;
        };
        for (slice, amount) in self.slices.shared_out(amount, moments) {
            work::take(1);
            let laid_ns = self.laid_ns.entry((self.task, slice)).or_default();
            let since_ns = self.slices.within(slice, *laid_ns);
            *laid_ns += amount;
            self.part_ns += amount;
            let count = self.part_ns / self.slices.period_ns;
            self.part_ns %= self.slices.period_ns;
            each(
                &Sampled {
                    recording: self.gathering.number,
                    since_ns,
                    task: self.task,
                    space: 0,
                    state: State::Running,
                    stop: Stop::Complete,
                    node,
                    address: None,
                    weight: Weight { amount, count },
                    unit: Unit::VcpuTime,
                    call: None,
                    is_hidden: false,
                },
                self.profile,
            );
        }
    }
}

fn sum(stacks: &[(NodeId, u64)]) -> u128 {
    stacks.iter().map(|(_, count)| u128::from(*count)).sum()
}
