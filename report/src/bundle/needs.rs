//! What a recording needs of its images. Input: all samples, unfiltered. Output: their addresses, and the
//! symbols, lines and unwind rules of each image for those addresses.

use super::ORIGIN;
use crate::images::symbols::SymbolTable;
use crate::images::{ImageAddress, Segments};
use crate::profile::advice::Counts;
use crate::recording::account::{is_cut, is_shallow};
use crate::recording::rows::EffectiveRows;
use crate::recording::spaces::{GuestCode, ModuleId, Place};
use crate::recording::{BlockError, Recording, SampleBlockPlace};
use crate::stacks::embedded::{Embedded, LineTable};
use crate::stacks::idle::Idle;
use crate::stacks::symbolizer::{LocatedSymbol, Symbolizer};
use crate::stacks::unwinders::Unwinders;
use crate::work;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uprof::cold::TargetKind;
use uprof::cpu::is_kernel_address;
use uprof::image::{ImageIdentity, MissedCaller};
use uprof::{Frame, FrameKind, State, Stop};

/// Steps of a run's budget for one frame.
const STEPS_PER_FRAME: u64 = 8;

/// The name of a table of guest addresses that belong to no module.
const LIST_NAME: &str = "[symbols]";

/// What the samples need.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// Every address that a report can look up: those of recorded chains and of unwound stacks.
    pub places: BTreeSet<Place>,
    /// Number of samples of each innermost address.
    innermost: BTreeMap<Place, u64>,
    counts: Counts,
    /// Callers that chains miss, by module.
    pub callers: BTreeMap<ModuleId, BTreeSet<MissedCaller>>,
}

impl Stacks {
    /// The counts from which the advice on poor samples is made.
    pub(super) fn counts(&self, symbolizer: &Symbolizer<'_, '_>, stack_bytes: u32) -> Counts {
        let nameless = |place: &Place| symbolizer.find(*place).is_none();
        let unnamed = self.innermost.iter().filter(|(place, _)| nameless(place));
        let unnamed = unnamed.map(|(_, count)| count).sum();
        Counts {
            unnamed,
            // This comes last, because the warnings are produced by the search for names.
            explains_unnamed: symbolizer.explains_unnamed(),
            stack_bytes,
            ..self.counts.clone()
        }
    }
}

/// Unwinds all samples.
pub(super) fn stacks<'s>(
    recording: &Recording,
    unwinders: &Unwinders<'_, 's>,
    idle: &Idle<'_, 's>,
) -> Result<Stacks, BlockError> {
    let of_block = |place: &SampleBlockPlace| stacks_of_block(recording, unwinders, idle, place);
    let blocks = recording.blocks().par_iter().map(of_block);
    let mut all = blocks.try_reduce(Stacks::default, |mut all, mut more| {
        all.places.append(&mut more.places);
        for (place, count) in more.innermost {
            *all.innermost.entry(place).or_default() += count;
        }
        for (module, callers) in more.callers {
            all.callers.entry(module).or_default().extend(callers);
        }
        all.counts.add(&more.counts);
        Ok(all)
    })?;
    // Code that caused exits of vCPUs may have no sample.
    let exits = recording.exits().iter();
    all.places
        .extend(exits.filter_map(|exits| recording.place_of_exits(exits)));
    Ok(all)
}

fn stacks_of_block<'s>(
    recording: &Recording,
    unwinders: &Unwinders<'_, 's>,
    idle: &Idle<'_, 's>,
    place: &SampleBlockPlace,
) -> Result<Stacks, BlockError> {
    let block = recording.samples(place)?;
    let (spaces, kind) = (recording.spaces(), recording.metadata().target.kind);
    let mut stacks = Stacks::default();
    let mut held = unwinders.state();
    let (mut chain, mut frames) = (Vec::new(), Vec::new());
    let mut rows = EffectiveRows::new(&block, idle);
    while let Some(row) = rows.next_row()? {
        let space = recording.guest_spaces().of_row(&row);
        chain.clear();
        chain.extend(block.chain(row.node));
        // A stack that is worse than the chain is added as well, so that a report makes the same choice.
        frames.clear();
        let stop = unwinders.unwind(&mut held, &row, unwinders.view(&row), &chain, &mut frames);
        let whole = if stop.is_some() { &frames } else { &chain };
        // Advice is about the rows that a report counts by default.
        let counts = row.wait.is_some() || row.state == State::Running;
        if let Some(first) = whole.first().filter(|_| counts) {
            let place = spaces.place(space, row.time_ns, first.address);
            *stacks.innermost.entry(place).or_default() += 1;
        }
        if let Some(address) = row.details.guest_ip
            && let GuestCode::At(place) = spaces.in_guest(row.task.space, row.time_ns, address)
        {
            stacks.places.insert(place);
        }
        let stop = stop.unwrap_or(row.stop);
        let paused = u64::from(row.state == State::Paused);
        let counts = counts_of(counts, stop, kind, whole);
        stacks.counts.add(&Counts { paused, ..counts });
        let all = chain.len() + frames.len() + held.unwound().len();
        work::take(STEPS_PER_FRAME * all as u64);
        for frame in chain.iter().chain(&frames).chain(held.unwound()) {
            let address = frame.lookup_address();
            stacks.places.insert(Place {
                is_return: frame.kind == FrameKind::Return,
                ..spaces.place(space, row.time_ns, address)
            });
        }
    }
    for (module, caller) in held.new_missed_callers() {
        stacks.callers.entry(module).or_default().insert(caller);
    }
    unwinders.keep(held);
    Ok(stacks)
}

/// The counts of one sample, as a report makes them.
fn counts_of(counts: bool, stop: Stop, kind: TargetKind, frames: &[Frame]) -> Counts {
    if !counts {
        return Counts {
            waiting: 1,
            ..Counts::default()
        };
    }
    let kernel = frames
        .iter()
        .map(|frame| is_kernel_address(frame.lookup_address()));
    Counts {
        counted: 1,
        rows: 1,
        shallow: u64::from(is_shallow(stop, kind, kernel)),
        cut: u64::from(is_cut(stop) && stop != Stop::Moved),
        moved: u64::from(stop == Stop::Moved),
        window_ends: u64::from(stop == Stop::Window),
        ..Counts::default()
    }
}

/// The tables of each image for `places`.
pub(super) fn images(
    recording: &Recording,
    symbolizer: &Symbolizer<'_, '_>,
    stacks: &Stacks,
) -> Vec<Embedded> {
    let mut by_module: BTreeMap<ModuleId, Vec<Place>> = BTreeMap::new();
    let mut listed: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for place in &stacks.places {
        if let Some(LocatedSymbol::InList(symbol)) = symbolizer.find(*place) {
            listed.insert(symbol.start.0, (symbol.size_bytes, symbol.name));
        }
        if let Some(module) = place.module() {
            by_module.entry(module).or_default().push(*place);
        }
    }
    let modules = by_module.iter();
    let mut images: Vec<Embedded> = modules
        .filter_map(|(module, places)| {
            let callers: Vec<_> = stacks.callers.get(module).into_iter().flatten().collect();
            let edge = |one: &MissedCaller| (one.callee, one.function, one.next);
            // What is of other images is not told apart.
            let certain = callers.chunk_by(|a, b| edge(a) == edge(b));
            let certain = certain.filter(|same| same.len() == 1).flatten();
            Some(Embedded {
                callers: certain.map(|one| **one).collect(),
                ..image(recording, symbolizer, *module, places)?
            })
        })
        .collect();
    images.sort_by(|a, b| a.identity.path.cmp(&b.identity.path));
    if !listed.is_empty() {
        let symbols = listed
            .iter()
            .map(|(start, (size_bytes, name))| (*start, *size_bytes, *name));
        images.push(Embedded {
            identity: identity(recording, LIST_NAME, &[]),
            segments: Segments::default(),
            symbols: SymbolTable::from_symbols(symbols),
            lines: LineTable::default(),
            rules: Arc::default(),
            image: None,
            callers: Vec::new(),
        });
    }
    images
}

fn identity(recording: &Recording, path: &str, build_id: &[u8]) -> ImageIdentity {
    ImageIdentity {
        path: path.to_owned(),
        build_id: build_id.to_vec(),
        arch: recording.metadata().target.arch,
        load_bias: 0,
        origin: ORIGIN.to_owned(),
    }
}

fn image(
    recording: &Recording,
    symbolizer: &Symbolizer<'_, '_>,
    module: ModuleId,
    places: &[Place],
) -> Option<Embedded> {
    let (segments, rules) = symbolizer.unwinding(module)?;
    let known = recording.spaces().modules().get(module as usize)?;
    let mut addresses = BTreeSet::new();
    let mut symbols: BTreeMap<ImageAddress, (u64, &str)> = BTreeMap::new();
    let mut lines = LineTable::default();
    // The value is whether a function begins at the return address.
    let mut returns = BTreeMap::new();
    for place in places {
        if let Some(LocatedSymbol::InModule(symbol)) = symbolizer.find(*place) {
            symbols.insert(symbol.start, (symbol.size_bytes, symbol.name));
        }
        let Some(address) = symbolizer.address(segments, *place) else {
            continue;
        };
        addresses.insert(address);
        if place.is_return {
            let is_function = symbolizer.is_function(place.after());
            returns.insert(ImageAddress(address.0.wrapping_add(1)), is_function);
        }
        let found = symbolizer.lines(*place);
        if !found.is_empty() {
            lines.insert(address, &found);
        }
    }
    let symbols = symbols
        .iter()
        .map(|(start, (size_bytes, name))| (start.0, *size_bytes, *name));
    let is_guest = recording.metadata().target.kind != TargetKind::Process;
    let returns = match symbolizer.found(module).image.as_ref() {
        Some(image) => crate::unwind::returns(image, &rules, returns.keys().copied(), |at| {
            is_guest && returns.get(&at) == Some(&false)
        }),
        None => rules.returns().map(<[u64]>::to_vec),
    };
    Some(Embedded {
        identity: identity(recording, &known.path, &known.id()),
        segments: segments.clone(),
        symbols: SymbolTable::from_symbols(symbols),
        lines,
        rules: Arc::new(
            rules
                .table()
                .only_at(&addresses, symbolizer.found(module).image.as_deref())
                .with_returns(returns)
                .into(),
        ),
        image: None,
        callers: Vec::new(),
    })
}

/// Paths of sampled modules with neither unwind rules nor symbols.
pub(super) fn missing(
    recording: &Recording,
    symbolizer: &Symbolizer<'_, '_>,
    places: &BTreeSet<Place>,
) -> Vec<String> {
    // Whether a place of the module has a name.
    let mut named: BTreeMap<ModuleId, bool> = BTreeMap::new();
    for place in places {
        let Some(module) = place.module() else {
            continue;
        };
        let is_named = named.entry(module).or_default();
        *is_named = *is_named || symbolizer.find(*place).is_some();
    }
    let unknown = named.into_iter().filter(|(module, is_named)| {
        let nothing = || symbolizer.unwinding(*module).is_none();
        !is_named && nothing()
    });
    let modules = recording.spaces().modules();
    let paths = unknown.filter_map(|(module, _)| modules.get(module as usize));
    paths.map(|module| module.path.clone()).collect()
}
