//! Counts over time: the samples of each function and call path in each block of time of each recording.

use super::DiffOptions;
use super::matching::{Kind, Match, Matching};
use super::modules::Images;
use crate::profile::gather::{self, By, Each, Options, Sampled};
use crate::profile::tree::{NodeId, ROOT, StackTree};
use crate::profile::{OfRecording, Profile};
use crate::recording::Recording;
use crate::recording::account::Account;
use crate::recording::unit::{Unit, Weight};
use crate::stacks::Tables;
use std::collections::BTreeMap;
use std::ops::Range;
use uprof::{State, WordMap};

/// Number of blocks of time that a recording is divided into. Blocks may be joined later.
pub const BLOCKS: usize = gather::SLICES;
/// Most call paths that are tested.
const PATHS_MAX: usize = 400;

/// Which samples of an item are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Samples whose innermost frame is the function.
    Own,
    /// Samples with the function in their stack.
    Total,
    /// Samples whose stack begins with the path.
    Path,
}

impl Quantity {
    /// One word for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quantity::Own => "self",
            Quantity::Total => "total",
            Quantity::Path => "path",
        }
    }
}

/// An item whose share is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which samples are counted.
    pub counted: Quantity,
    /// Index of the function; for a path, of its last function.
    pub function: u32,
    /// The path's node in [`Series::tree`]; [`ROOT`] for functions.
    pub node: NodeId,
}

/// Samples of one stack in one block of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// The block, below [`BLOCKS`].
    pub block: usize,
    /// The stack, as an index into [`Series::stacks`].
    pub stack: usize,
    /// Number of samples.
    pub count: f64,
}

/// Samples of one recording by block of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Samples by block and stack.
    pub cells: Vec<Cell>,
}

/// All recordings of one side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// The counts of each recording.
    pub recordings: Vec<Counts>,
}

impl Side {
    /// Number of all samples.
    pub fn total(&self) -> f64 {
        let cells = self.recordings.iter().flat_map(|counts| &counts.cells);
        cells.map(|cell| cell.count).sum()
    }
}

/// The counts of everything that is compared.
#[derive(Debug, Default)]
pub struct Series {
    /// The unit of the profile.
    pub unit: Unit,
    /// A count of 1, in the profile's unit: one sample, or a wait of mean length. Statistics depend on the
    /// number of waits, not on their nanoseconds. Samples of a changing rate are as uncertain as fewer of one weight
    /// (Kish, "Survey Sampling", 1965, section 11.7).
    pub one: f64,
    /// Functions of both sides.
    pub functions: Vec<Match>,
    /// Call paths of both sides. A label is an index into `functions`; the counts are B's.
    pub tree: StackTree,
    /// The node in that tree of each node that was gathered with a sample.
    pub joined: WordMap<NodeId, NodeId>,
    /// Samples that end at each node of the tree: A's and B's.
    pub ends: Vec<[u64; 2]>,
    /// The items that are compared.
    pub items: Vec<Item>,
    /// For each distinct set of items, their indices. Each stack has one set.
    pub stacks: Vec<Vec<usize>>,
    /// Counts of A and of B.
    pub sides: [Side; 2],
    /// What is known of each recording beside its stacks.
    pub of_recordings: Vec<OfRecording>,
}

/// Counts in the profile's unit, by recording, block of time and node.
type Cells = BTreeMap<(usize, usize, NodeId), u64>;

/// Counts the samples of both sides.
pub(super) fn gather(
    [a, b]: [&[&Recording]; 2],
    tables: &Tables<'_>,
    options: &DiffOptions,
    progress: &dyn Fn(u64, u64),
    mut each: Option<&mut Each<'_>>,
) -> (Series, [Account; 2], Vec<String>) {
    let all: Vec<&Recording> = a.iter().chain(b).copied().collect();
    let mut cells = Cells::new();
    let filter = &options.gather.filter;
    let windows: Vec<_> = all.iter().map(|one| filter.window(one)).collect();
    let mut rows = vec![BTreeMap::new(); all.len()];
    let mut squares = 0.0;
    let mut take = |sampled: &Sampled, profile: &Profile| {
        if let Some(each) = &mut each {
            each(sampled, profile);
        }
        let block = block_of(sampled.since_ns, &windows[sampled.recording]);
        *cells
            .entry((sampled.recording, block, sampled.node))
            .or_default() += sampled.weight.amount;
        squares += (sampled.weight.amount as f64).powi(2);
        let by_state: &mut BTreeMap<State, Weight> = &mut rows[sampled.recording];
        by_state
            .entry(sampled.state)
            .or_default()
            .add(sampled.weight);
    };
    let how = Options {
        by: By::Function,
        by_recording: false,
        are_apart: true,
        ..options.gather.clone()
    };
    let mut profile = gather::gather_with(&all, tables, &how, progress, Some(&mut take));
    let unit = profile.unit();
    let of_recordings = std::mem::take(&mut profile.of_recordings);
    let account = |first, recordings| {
        let side = of_recordings.iter().zip(&rows);
        account_of(unit, side.skip(first).take(recordings))
    };
    let accounts = [account(0, a.len()), account(a.len(), b.len())];
    let images = [a, b].map(images);
    let mut series = Series {
        unit,
        one: one(&accounts, squares),
        ..Series::default()
    };
    let sizes = [a.len(), b.len()];
    let least_share = options.least_share;
    build(&mut series, &profile, &cells, sizes, least_share, &images);
    series.of_recordings = of_recordings;
    (series, accounts, profile.warnings)
}

/// The block of a time in `window`; both are nanoseconds from the start of the recording.
pub(super) fn block_of(since_ns: u64, window: &Range<u64>) -> usize {
    let into_ns = u128::from(since_ns.saturating_sub(window.start));
    let block = into_ns * BLOCKS as u128 / u128::from(window.end - window.start);
    (block as usize).min(BLOCKS - 1)
}

/// The account of a side, of its recordings' and of what counts of each by state.
fn account_of<'r>(
    unit: Unit,
    side: impl Iterator<Item = (&'r OfRecording, &'r BTreeMap<State, Weight>)>,
) -> Account {
    let mut account = Account::new(unit);
    // Of the time of vCPUs, the number of samples that it stands for, which is what chance depends on.
    let mut counted_rows: BTreeMap<State, Weight> = BTreeMap::new();
    for (recording, rows) in side {
        account.add(&recording.account);
        for (state, weight) in rows {
            counted_rows.entry(*state).or_default().add(*weight);
        }
    }
    Account {
        counted_rows,
        ..account
    }
}

/// The weight of a sample, or the mean weight of a wait. `squares` is the sum of the squares of all weights.
fn one(accounts: &[Account; 2], squares: f64) -> f64 {
    let amount: u64 = accounts.iter().map(|account| account.counted).sum();
    let counts = accounts.iter().map(Account::counted_samples);
    let count = counts.fold(0, u64::saturating_add);
    match accounts[0].unit {
        Unit::Samples => 1.0,
        Unit::Sampled => (squares / amount.max(1) as f64).max(1.0),
        Unit::OffCpu | Unit::Calls | Unit::VcpuTime => {
            (amount as f64 / count.max(1) as f64).max(1.0)
        }
    }
}

/// The images and the programs of a side.
pub(super) fn images(side: &[&Recording]) -> Images {
    let mut images = Images::default();
    for recording in side {
        for module in recording.spaces().modules() {
            // Printable, as the paths in labels are.
            let path = crate::text::printable(&module.path).into_owned();
            let builds = images.builds.entry(path).or_default();
            builds.insert(module.build_id.clone());
        }
        let command = recording.metadata().target.name.as_str();
        let program = command.split_whitespace().next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        images.programs.insert(name.to_owned());
    }
    images
}

/// For each label, the shares of both sides' samples with it in their stacks.
fn shares(profile: &Profile, cells: &Cells, side_of: &dyn Fn(usize) -> usize) -> Vec<[f64; 2]> {
    let mut by_node: BTreeMap<NodeId, [u64; 2]> = BTreeMap::new();
    let mut totals = [0; 2];
    for ((recording, _, node), count) in cells {
        let side = side_of(*recording);
        by_node.entry(*node).or_default()[side] += *count;
        totals[side] += *count;
    }
    let mut shares = vec![[0.0; 2]; profile.labels.len()];
    for (node, counts) in by_node {
        // A recursive function has its label several times, but counts a sample once.
        let mut labels: Vec<u32> = profile.tree.outwards(node).collect();
        labels.sort_unstable();
        labels.dedup();
        for label in labels {
            if let Some(share) = shares.get_mut(label as usize) {
                for side in 0..2 {
                    share[side] += counts[side] as f64 / totals[side].max(1) as f64;
                }
            }
        }
    }
    shares
}

fn build(
    series: &mut Series,
    profile: &Profile,
    cells: &Cells,
    sizes: [usize; 2],
    least_share: f64,
    images: &[Images; 2],
) {
    let side_of = |recording: usize| usize::from(recording >= sizes[0]);
    let shares = shares(profile, cells, &side_of);
    let matching = Matching::new(&profile.labels, &shares, images);
    // The same stacks, with matched functions as labels.
    let mut nodes: WordMap<NodeId, NodeId> = WordMap::default();
    for ((recording, _, node), count) in cells {
        let joined = *nodes.entry(*node).or_insert_with(|| {
            let mut path: Vec<u32> = profile
                .tree
                .outwards(*node)
                .filter_map(|label| matching.function(label))
                .collect();
            path.reverse();
            path.into_iter()
                .fold(ROOT, |at, function| series.tree.child(at, function))
        });
        series.ends.resize(series.tree.nodes().len(), [0; 2]);
        series.ends[joined as usize][side_of(*recording)] += *count;
    }
    for (number, ends) in series.ends.iter().enumerate() {
        series.tree.add(number as NodeId, ends[1]);
    }
    series.functions = matching.functions;
    count_items(series, cells, &nodes, sizes, least_share);
    series.joined = nodes;
}

/// The nodes and functions that are items.
struct Selection {
    own: WordMap<u32, usize>,
    total: WordMap<u32, usize>,
    path: WordMap<NodeId, usize>,
}

fn count_items(
    series: &mut Series,
    cells: &Cells,
    nodes: &WordMap<NodeId, NodeId>,
    sizes: [usize; 2],
    least_share: f64,
) {
    let chosen = choose(series, least_share);
    let mut recordings = vec![Counts::default(); sizes[0] + sizes[1]];
    let mut stacks: WordMap<NodeId, usize> = WordMap::default();
    let mut kinds: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for ((recording, block, node), count) in cells {
        let Some(&joined) = nodes.get(node) else {
            continue;
        };
        let stack = *stacks.entry(joined).or_insert_with(|| {
            let mut items = items_of(series, &chosen, joined);
            items.sort_unstable();
            let next = kinds.len();
            *kinds.entry(items).or_insert(next)
        });
        recordings[*recording].cells.push(Cell {
            block: *block,
            stack,
            count: *count as f64 / series.one,
        });
    }
    series.stacks = vec![Vec::new(); kinds.len()];
    for (items, number) in kinds {
        series.stacks[number] = items;
    }
    let b = recordings.split_off(sizes[0]);
    series.sides = [Side { recordings }, Side { recordings: b }];
}

/// The items to which samples that end at `node` belong.
fn items_of(series: &Series, chosen: &Selection, node: NodeId) -> Vec<usize> {
    let mut items = Vec::new();
    if node == ROOT {
        return items;
    }
    items.extend(chosen.own.get(&series.tree.label(node)));
    let mut functions: Vec<u32> = series.tree.outwards(node).collect();
    functions.sort_unstable();
    functions.dedup();
    items.extend(
        functions
            .iter()
            .filter_map(|function| chosen.total.get(function)),
    );
    let mut at = node;
    while at != ROOT {
        items.extend(chosen.path.get(&at));
        at = series.tree.nodes()[at as usize].parent;
    }
    items
}

/// Chooses the items that have enough samples on both sides together. The choice is independent of the
/// difference, so it doesn't bias the result (independent filtering: Bourgon, Gentleman and Huber, PNAS 107,
/// 2010).
fn choose(series: &mut Series, least_share: f64) -> Selection {
    let whole: u64 = series.ends.iter().flatten().sum();
    // With fewer samples or waits, no change could be certain.
    let least = ((whole as f64 * least_share).ceil() as u64).max((16.0 * series.one) as u64);
    let mut own: BTreeMap<u32, u64> = BTreeMap::new();
    let mut total: BTreeMap<u32, u64> = BTreeMap::new();
    let mut below: Vec<u64> = series.ends.iter().map(|ends| ends[0] + ends[1]).collect();
    // Parents precede children, so backwards each branch is complete when it is read.
    for number in (1..below.len()).rev() {
        let node = series.tree.nodes()[number];
        let ends = series.ends[number][0] + series.ends[number][1];
        *own.entry(node.label).or_default() += ends;
        let again = series
            .tree
            .outwards(node.parent)
            .any(|label| label == node.label);
        if !again {
            *total.entry(node.label).or_default() += below[number];
        }
        below[node.parent as usize] += below[number];
    }
    let mut chosen = Selection {
        own: WordMap::default(),
        total: WordMap::default(),
        path: WordMap::default(),
    };
    let items = &mut series.items;
    let mut add = |counted, function, node| {
        items.push(Item {
            counted,
            function,
            node,
        });
        items.len() - 1
    };
    let owned = own.clone();
    for (function, _) in own.into_iter().filter(|(_, count)| *count >= least) {
        chosen
            .own
            .insert(function, add(Quantity::Own, function, ROOT));
    }
    // The share of a function that is in every stack can't change. The total of a leaf function is already
    // tested as its self samples.
    let varies = |count: u64| count >= least && whole - count >= least;
    for (function, count) in total.into_iter().filter(|(_, count)| varies(*count)) {
        if owned.get(&function) != Some(&count) {
            chosen
                .total
                .insert(function, add(Quantity::Total, function, ROOT));
        }
    }
    let mut paths: Vec<usize> = (1..below.len())
        .filter(|node| varies(below[*node]))
        .collect();
    paths.sort_by_key(|node| (std::cmp::Reverse(below[*node]), *node));
    paths.truncate(PATHS_MAX);
    for node in paths {
        let function = series.tree.nodes()[node].label;
        let node = node as NodeId;
        chosen
            .path
            .insert(node, add(Quantity::Path, function, node));
    }
    chosen
}

impl Series {
    /// Whether the samples of an item can be compared: each of its functions has been matched.
    pub(crate) fn is_matched(&self, item: &Item) -> bool {
        let is_matched = |function: u32| {
            let kind = self.functions.get(function as usize).map(|it| it.kind);
            kind != Some(Kind::Unmatched)
        };
        match item.counted {
            Quantity::Path => self.tree.outwards(item.node).all(is_matched),
            Quantity::Own | Quantity::Total => is_matched(item.function),
        }
    }

    /// An item's name: a function, or a path with `;` between its functions.
    pub fn item_name(&self, item: &Item) -> String {
        let name = |function: u32| self.functions[function as usize].name.as_str();
        if item.counted != Quantity::Path {
            return name(item.function).to_owned();
        }
        let mut path: Vec<&str> = self.tree.outwards(item.node).map(name).collect();
        path.reverse();
        path.join(";")
    }
}
