//! One block of samples: its rows and its own small stack table, with addresses resolved to places by the mappings of
//! their time.

use super::chains::{self, Chains, LocalNode};
use super::{Options, TABLE_NODES_MAX};
use crate::profile::filter::{Filter, Verdict};
use crate::recording::account::{Account, is_shallow};
use crate::recording::rows::EffectiveRows;
use crate::recording::spaces::{GuestCode, Place};
use crate::recording::survey::{BlockSurvey, Survey, fault_of, survey_block};
use crate::recording::unit::{Unit, Weight};
use crate::recording::{Recording, SampleBlockPlace};
use crate::stacks::idle::Idle;
use crate::stacks::unwinders::{Believed, UnwindState, Unwinders, Unwound, View};
use crate::unwind::splice;
use crate::work;
use uprof::due::is_late;
use uprof::{Frame, FrameKind, Row, SampleBlock, State, Stop, Task, WordMap};

/// Stacks of one block.
#[derive(Debug, Default)]
pub(super) struct BlockStacks {
    /// The places of frames, in order of first use.
    pub places: Vec<Place>,
    /// The range of each place's labels, see `Naming::add`.
    pub ranges: Vec<(u32, u32)>,
    /// The frames; callers precede those that they called.
    pub nodes: Vec<LocalNode>,
    /// Samples that may count, in file order; if merged, each kind once.
    pub rows: Vec<LocalRow>,
    /// Samples read and left out.
    pub account: Account,
    /// Why some rows could not be read.
    pub fault: Option<String>,
    /// The block's survey, if the options ask for one.
    pub survey: Option<Survey>,
}

/// Samples with a stack of their block: one, or all with equal properties.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalRow {
    /// Their weight, and the number of samples or waits.
    pub weight: Weight,
    /// How much of that is of waits that were recorded with a later one's stack, or of that one.
    pub pooled: u64,
    pub time_ns: u64,
    pub task: Task,
    /// Its address space; for a guest's task, that of its page-table root.
    pub space: u32,
    pub state: State,
    pub stop: Stop,
    pub late: bool,
    /// Its stack is incomplete and ends after one or two frames.
    pub shallow: bool,
    /// The caller of its innermost function may be missing.
    pub lacks_caller: bool,
    /// Local number of the innermost frame.
    pub node: Option<u32>,
    /// The code of the guest that the thread ran there, which is not in the stack.
    pub guest: Option<LocalGuest>,
}

/// Code of a guest, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LocalGuest {
    /// It is not known.
    Unknown,
    /// Of a process of the guest.
    User,
    /// The number of its place.
    At(u32),
}

/// A recorded chain: its view, its node plus 1, and whether it is complete.
type ChainKey = (u32, u32, u8);

struct BlockReader<'a, 's> {
    recording: &'a Recording,
    block: &'a SampleBlock,
    stacks: BlockStacks,
    survey: Option<BlockSurvey>,
    /// Places by view, address, and whether it is a return address.
    places: WordMap<(u32, u64, bool), u32>,
    /// Places of guests that threads ran.
    guest_places: WordMap<Place, u32>,
    /// Views by number, and the one of the row before.
    views: WordMap<View, u32>,
    last_view: Option<(View, u32)>,
    /// For each of the first views, the local node of each node of the block. Of further views, as where a program
    /// maps something between each two samples, only the nodes that occur.
    known: Vec<Vec<Option<u32>>>,
    known_besides: WordMap<(u32, u32), u32>,
    unwinders: &'a Unwinders<'a, 's>,
    idle: &'a Idle<'a, 's>,
    held: UnwindState,
    /// Frames of the current sample: the valid ones as recorded, for which chain, and as unwound.
    chain: Vec<Frame>,
    chain_of: Option<ChainKey>,
    /// Whether all recorded ones are valid.
    is_whole: bool,
    frames: Vec<Frame>,
    /// What is valid of recorded chains.
    believed: WordMap<ChainKey, Believed>,
    /// Local nodes of unwound stacks.
    unwound: Chains,
    /// If samples are merged: the row of each stack, state, stop and lateness.
    merged: Option<WordMap<(u64, u64), usize>>,
}

impl BlockStacks {
    /// Reads the block at `place`. What can't be decoded is counted, never an error. `merge`: a sample's time and
    /// task need not be kept.
    pub(crate) fn read<'s>(
        recording: &Recording,
        unwinders: &Unwinders<'_, 's>,
        idle: &Idle<'_, 's>,
        place: &SampleBlockPlace,
        options: &Options,
        merge: bool,
    ) -> Self {
        let filter = &options.filter;
        let samples = u64::from(place.samples);
        if !filter.may_have(recording, place.first_ns, place.last_ns) {
            let mut skipped = BlockStacks {
                survey: (options.survey).then(|| survey_block(recording, place, idle)),
                ..BlockStacks::default()
            };
            skipped.account.read = samples;
            skipped.account.outside = rows_of_unit(recording, place, filter);
            return skipped;
        }
        let block = match recording.samples(place) {
            Ok(block) => block,
            Err(fault) => {
                let mut lost = BlockStacks::default();
                lost.account.undecoded = samples;
                let fault = fault.to_string();
                lost.survey = (options.survey).then(|| Survey::of_undecoded(place, fault.clone()));
                lost.fault = Some(fault);
                return lost;
            }
        };
        let mut reader = BlockReader {
            recording,
            block: &block,
            stacks: BlockStacks::default(),
            survey: options.survey.then(|| BlockSurvey::new(&block)),
            places: chains::with_room(block.len()),
            guest_places: WordMap::default(),
            views: WordMap::default(),
            last_view: None,
            known: Vec::new(),
            known_besides: WordMap::default(),
            unwinders,
            idle,
            held: unwinders.state(),
            chain: Vec::new(),
            chain_of: None,
            is_whole: false,
            frames: Vec::new(),
            believed: chains::with_room(block.len()),
            unwound: Chains::with_capacity(block.len()),
            merged: merge.then(|| chains::with_room(block.len())),
        };
        reader.read(place, filter);
        unwinders.keep(reader.held);
        BlockStacks {
            survey: reader.survey.map(|survey| survey.found),
            ..reader.stacks
        }
    }
}

/// How many rows of a block that is all before or after the selected time would else count. Of guests, all rows are
/// samples; among those of others are waits.
fn rows_of_unit(recording: &Recording, place: &SampleBlockPlace, filter: &Filter) -> u64 {
    let all = u64::from(place.samples);
    if recording.metadata().target.kind.is_guest() {
        return all;
    }
    let Ok(block) = recording.samples(place) else {
        return all;
    };
    let (mut rows, mut count) = (block.rows(), 0);
    while let Ok(Some(row)) = rows.next_row() {
        count += u64::from(filter.is_of_unit(&row));
    }
    count
}

impl BlockReader<'_, '_> {
    fn read(&mut self, place: &SampleBlockPlace, filter: &Filter) {
        let mut rows = EffectiveRows::new(self.block, self.idle);
        loop {
            match rows.next_row() {
                Ok(Some(row)) => {
                    if let Some(survey) = &mut self.survey {
                        survey.add(&row);
                    }
                    self.take(&row, filter);
                }
                Ok(None) => return,
                Err(fault) => {
                    let read = self.stacks.account.read;
                    self.stacks.account.undecoded = u64::from(place.samples).saturating_sub(read);
                    let what = fault_of(place, &fault);
                    if let Some(survey) = &mut self.survey {
                        survey.fail(what.clone());
                    }
                    self.stacks.fault = Some(what);
                    return;
                }
            }
        }
    }

    fn take(&mut self, row: &Row<'_>, filter: &Filter) {
        let account = &mut self.stacks.account;
        account.read += 1;
        let weight = match filter.verdict(self.recording, row) {
            Verdict::Counts(weight) => weight,
            Verdict::OtherUnit(weight) => {
                let left_out = account.other_units.entry(Unit::of(row)).or_default();
                *left_out = left_out.saturating_add(weight.amount);
                return;
            }
            Verdict::Outside => {
                account.outside += u64::from(filter.is_of_unit(row));
                return;
            }
            Verdict::WrongState => {
                *account.by_state.entry(row.state).or_default() += 1;
                return;
            }
        };
        let view = self.unwinders.view(row);
        let number = self.view_number(view);
        let unwound = self.unwind(row, view, number);
        let node = match &unwound {
            Some(unwound) => self.local_unwound(row, number, unwound),
            None => row.node.map(|node| self.local(row, number, node)),
        };
        let lacks_caller = self.lacks_caller(row, unwound.as_ref());
        let guest = self.guest(row);
        let stop = match guest {
            // The guest's own callers are not known.
            Some(LocalGuest::User | LocalGuest::At(_)) => Stop::NotWalked,
            _ => unwound.and_then(|it| it.stop).unwrap_or(row.stop),
        };
        let late = is_late(row.details.late_ns);
        let is_pooled = row.wait.is_some_and(|wait| wait.count > 1);
        let pooled = if is_pooled { weight.amount } else { 0 };
        let rows = &mut self.stacks.rows;
        if let Some(merged) = &mut self.merged {
            let above = node.map_or(0, |node| u64::from(node) + 1);
            let tags = u64::from(row.state.number()) << 10 | u64::from(stop.number()) << 2;
            let flags = u64::from(late) << 1 | u64::from(lacks_caller);
            let code = match guest {
                None => 0,
                Some(LocalGuest::Unknown) => 1,
                Some(LocalGuest::User) => 2,
                Some(LocalGuest::At(place)) => u64::from(place) + 3,
            };
            let key = (above << 16 | tags | flags, code);
            let number = *merged.entry(key).or_insert(rows.len());
            if let Some(alike) = rows.get_mut(number) {
                alike.weight.add(weight);
                alike.pooled = alike.pooled.saturating_add(pooled);
                return;
            }
        }
        let shallow = self.is_shallow(node, stop);
        self.stacks.rows.push(LocalRow {
            weight,
            pooled,
            time_ns: row.time_ns,
            task: row.task,
            space: self.recording.guest_spaces().of_row(row),
            state: row.state,
            stop,
            late,
            shallow,
            lacks_caller,
            node,
            guest,
        });
    }

    fn view_number(&mut self, view: View) -> u32 {
        if let Some((last, number)) = self.last_view
            && last == view
        {
            return number;
        }
        let next = self.views.len() as u32;
        let number = *self.views.entry(view).or_insert(next);
        let nodes = self.block.nodes().len();
        if number == next && (self.known.len() + 1) * nodes <= TABLE_NODES_MAX {
            self.known.push(vec![None; nodes]);
        }
        self.last_view = Some((view, number));
        number
    }

    /// The local node of a node of the block, in the view of `row`, which has this number.
    fn local(&mut self, row: &Row<'_>, view: u32, leaf: u32) -> u32 {
        let nodes = self.block.nodes();
        let table = self.known.get(view as usize);
        let known = |node: u32| match table {
            Some(table) => table[node as usize],
            None => self.known_besides.get(&(view, node)).copied(),
        };
        if let Some(local) = known(leaf) {
            return local;
        }
        let mut path = Vec::new();
        let mut parent = None;
        let mut at = Some(leaf);
        while let Some(node) = at {
            if let Some(local) = known(node) {
                parent = Some(local);
                break;
            }
            path.push(node);
            at = nodes[node as usize].parent;
        }
        for node in path.into_iter().rev() {
            let local = self.add(row, view, parent, nodes[node as usize].frame);
            match self.known.get_mut(view as usize) {
                Some(known) => known[node as usize] = Some(local),
                None => {
                    self.known_besides.insert((view, node), local);
                }
            }
            parent = Some(local);
        }
        parent.unwrap_or(0)
    }

    /// A new local node.
    fn add(&mut self, row: &Row<'_>, view: u32, parent: Option<u32>, frame: Frame) -> u32 {
        let place = self.place(row, view, frame);
        let local = self.stacks.nodes.len() as u32;
        self.stacks.nodes.push(LocalNode {
            parent,
            place,
            frame,
            view,
        });
        local
    }

    fn lacks_caller(&self, row: &Row<'_>, unwound: Option<&Unwound>) -> bool {
        let kind = self.recording.metadata().target.kind;
        match unwound {
            Some(Unwound { stop, outer }) => {
                let outer = &self.chain[outer.clone()];
                let frames = self.frames.iter().chain(outer).copied();
                splice::lacks_caller(frames, stop.unwrap_or(row.stop), kind)
            }
            None => {
                let chain = self.block.chain(row.node).inspect(|_| work::take(1));
                splice::lacks_caller(chain, row.stop, kind)
            }
        }
    }

    fn is_shallow(&self, node: Option<u32>, stop: Stop) -> bool {
        let BlockStacks { nodes, places, .. } = &self.stacks;
        let chain = std::iter::successors(node, |node| nodes[*node as usize].parent);
        let kernel = chain.map(|node| places[nodes[node as usize].place as usize].kernel);
        is_shallow(stop, self.recording.metadata().target.kind, kernel)
    }

    /// The code of the guest that the thread of `row` ran, if it did.
    fn guest(&mut self, row: &Row<'_>) -> Option<LocalGuest> {
        let address = row.details.guest_ip?;
        let spaces = self.recording.spaces();
        let code = spaces.in_guest(row.task.space, row.time_ns, address);
        Some(match code {
            GuestCode::Unknown => LocalGuest::Unknown,
            GuestCode::User => LocalGuest::User,
            GuestCode::At(place) => {
                let places = &mut self.stacks.places;
                let known = self.guest_places.entry(place);
                LocalGuest::At(*known.or_insert_with(|| {
                    places.push(place);
                    places.len() as u32 - 1
                }))
            }
        })
    }

    /// The number of the place of `frame` of `row`, which has this view.
    fn place(&mut self, row: &Row<'_>, view: u32, frame: Frame) -> u32 {
        let is_return = frame.kind == FrameKind::Return;
        let places = &mut self.stacks.places;
        let known = self.places.entry((view, frame.address, is_return));
        *known.or_insert_with(|| {
            let spaces = self.recording.spaces();
            let space = self.recording.guest_spaces().of_row(row);
            places.push(Place {
                is_return,
                ..spaces.place(space, row.time_ns, frame.lookup_address())
            });
            places.len() as u32 - 1
        })
    }

    /// Unwinds a sample into `self.frames` and `self.chain`; `None` if the stack is its recorded chain.
    fn unwind(&mut self, row: &Row<'_>, view: View, number: u32) -> Option<Unwound> {
        let node = row.node.map_or(0, |node| node + 1);
        let key = (number, node, u8::from(row.stop == Stop::Complete));
        let known = self.believed.get(&key).copied();
        // A chain that was valid once is so again, under the same mappings.
        if !self.unwinders.may_add_to(row) && known.is_some_and(|known| known.stop.is_none()) {
            return None;
        }
        let recorded = self.block.chain(row.node);
        let believed = match known {
            Some(known) => {
                if self.chain_of != Some(key) {
                    self.chain.clear();
                    self.chain.extend(recorded.take(known.frames));
                }
                known
            }
            None => {
                let (held, chain) = (&mut self.held, &mut self.chain);
                let believed = self.unwinders.believed(held, row, view, recorded, chain);
                self.believed.insert(key, believed);
                believed
            }
        };
        self.chain_of = Some(key);
        self.is_whole = believed.stop.is_none();
        work::take(self.chain.len() as u64);
        let chain = (&self.chain[..], believed);
        let unwound =
            self.unwinders
                .unwind_inner(&mut self.held, row, view, chain, &mut self.frames);
        unwound.stop.is_some().then_some(unwound)
    }

    /// The local node of the stack in `self.frames` and the outer frames of `self.chain`.
    fn local_unwound(&mut self, row: &Row<'_>, view: u32, unwound: &Unwound) -> Option<u32> {
        let outer = unwound.outer.clone();
        let mut base = None;
        if !outer.is_empty() && self.is_whole && outer.end == self.chain.len() {
            // All callers from there on: they are a path of the block's own table.
            let nodes = self.block.nodes();
            let mut path = std::iter::successors(row.node, |node| nodes[*node as usize].parent);
            let node = path.nth(outer.start);
            base = node.map(|node| self.local(row, view, node));
        } else {
            self.frames.extend_from_slice(&self.chain[outer]);
        }
        let hash = chains::hash(view, base, &self.frames);
        let known = self
            .unwound
            .find(hash, &self.stacks.nodes, (view, base), &self.frames);
        if known.is_some() || self.frames.is_empty() {
            return known.or(base);
        }
        let mut local = base;
        for index in (0..self.frames.len()).rev() {
            let frame = self.frames[index];
            let child = self.unwound.child(view, local, frame);
            local = Some(child.unwrap_or_else(|| {
                let new = self.add(row, view, local, frame);
                self.unwound.add(view, local, frame, new);
                new
            }));
        }
        self.unwound.remember(hash, local);
        local
    }
}
