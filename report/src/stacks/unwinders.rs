//! Unwinders for a whole recording. Input: samples with registers, stack bytes and chains. Output: stacks. There is
//! one unwinder for each state of an address space, made when first needed.

mod believed;
mod missing_caller;
mod frameless_callers;
mod frame_records;

pub(crate) use self::believed::Believed;
use self::frame_records::FrameRecord;
use self::frameless_callers::{Caller, Edge};
use self::missing_caller::Stitched;
use crate::recording::Recording;
use crate::recording::spaces::visible::Visible;
use crate::recording::spaces::{ModuleId, Region};
use crate::stacks::symbolizer::Symbolizer;
use crate::unwind::splice::{self, Recorded};
use crate::unwind::{Cache, Frameless, Landing, Module, Options, PIECE_MODULES, Stack, Unwinder};
use crate::work;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uprof::cold::{Loss, LossReason, TargetKind};
use uprof::cpu::is_kernel_address;
use uprof::image::MissedCaller;
use uprof::{Found, Frame, FrameKind, Row, Stop, WordMap};

/// The mappings that apply to a sample: its space, and the states of that and of the kernel's.
pub(crate) type View = (u32, u32, u32);

/// Unwinds the samples of one recording.
#[derive(Debug)]
pub(crate) struct Unwinders<'a, 's> {
    recording: &'a Recording,
    symbolizer: &'a Symbolizer<'a, 's>,
    options: Options,
    /// Whether events of mappings were lost.
    has_lost_events: bool,
    known: Mutex<Known>,
    /// States that no reader has.
    spare: Mutex<Vec<UnwindState>>,
}

/// What one reader of rows knows of addresses, which the next one can use ([`Unwinders::state`]). Most rows have the
/// same mappings as the row before; looking up the unwinder for each would make threads wait for one another.
#[derive(Debug, Default)]
pub(crate) struct UnwindState {
    cache: Cache,
    unwinder: Option<(View, Arc<Unwinder>)>,
    /// Frames of the current stack, without the kernel's.
    unwound: Vec<Frame>,
    /// What return addresses of recorded chains point to.
    landings: WordMap<(View, u64), Landing>,
    /// Whether the functions there keep a record.
    records: WordMap<(View, u64), FrameRecord>,
    /// Which functions the calls before return addresses lead to.
    called: WordMap<(View, u64), Option<Range<u64>>>,
    /// The callers of functions without a frame.
    frameless_callers: HashMap<(View, Edge), Caller>,
    /// Where functions call others: by view, and by the starts of both.
    calls: HashMap<(View, [u64; 2]), Vec<u64>>,
    /// Those of the callers that a bundle needs, and no block before needed.
    missed_callers: Vec<(ModuleId, MissedCaller)>,
}

/// A stack: frames that were unwound, and behind them outer frames of the recorded chain.
#[derive(Debug)]
pub(crate) struct Unwound {
    /// Why it ends; `None` if the recorded chain is better, and ends by itself.
    pub(crate) stop: Option<Stop>,
    /// Which frames of the chain the outer ones are.
    pub(crate) outer: Range<usize>,
}

/// No stack bytes.
const NOTHING: Stack<'static> = Stack {
    base: 0,
    bytes: &[],
};

impl UnwindState {
    /// The callers of functions without a frame that were found since they were last asked for.
    pub(crate) fn new_missed_callers(&mut self) -> impl Iterator<Item = (ModuleId, MissedCaller)> {
        self.missed_callers.drain(..)
    }

    /// The frames last unwound, even if the recorded ones are better.
    pub(crate) fn unwound(&self) -> &[Frame] {
        &self.unwound
    }
}

/// Most mappings of unwinders that are kept for samples of the same mappings, where a program maps all the time; those
/// in use are kept by their users.
const REGIONS_KEPT: usize = 1 << 18;
/// What an unwinder costs for each of its mappings.
const STEPS_PER_REGION: u64 = 16;

/// Most addresses of either kind that are remembered from one reader to the next.
const ADDRESSES_KEPT: usize = 1 << 14;

/// Pieces that it refers to and that weigh as much as a mapping.
const PIECES_OF_A_REGION: usize = 8;

/// Unwinders that were made.
#[derive(Debug, Default)]
struct Known {
    /// By space and its shared epoch, then by its own.
    by_view: BTreeMap<(u32, u32, u32), Arc<Unwinder>>,
    /// Mappings of all of them.
    regions: usize,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, 's> Unwinders<'a, 's> {
    /// Unwinders for `recording`, whose images `symbolizer` finds.
    pub(crate) fn new(
        recording: &'a Recording,
        symbolizer: &'a Symbolizer<'a, 's>,
        options: Options,
    ) -> Self {
        let is_of_events = |loss: &Loss| loss.reason == LossReason::EventsLost;
        Unwinders {
            recording,
            symbolizer,
            options,
            has_lost_events: recording.losses().iter().any(is_of_events),
            known: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// A state for a reader of rows, with what another one left.
    pub(crate) fn state(&self) -> UnwindState {
        locked(&self.spare).pop().unwrap_or_default()
    }

    /// Takes back the state of a reader that is done.
    pub(crate) fn keep(&self, mut held: UnwindState) {
        if held.landings.len() > ADDRESSES_KEPT {
            held.landings.clear();
        }
        if held.records.len() > ADDRESSES_KEPT {
            held.records.clear();
        }
        if held.called.len() > ADDRESSES_KEPT {
            held.called.clear();
        }
        if held.frameless_callers.len() > ADDRESSES_KEPT {
            held.frameless_callers.clear();
            held.calls.clear();
        }
        held.missed_callers.clear();
        locked(&self.spare).push(held);
    }

    /// The mappings that apply to `row`.
    pub(crate) fn view(&self, row: &Row<'_>) -> View {
        let spaces = self.recording.spaces();
        let space = spaces.seen_as(self.recording.guest_spaces().of_row(row));
        let own = spaces.epoch(spaces.space_of(space, 0), row.time_ns);
        let shared = spaces.epoch(spaces.shared_of(space), row.time_ns);
        (space, own, shared)
    }

    /// Whether unwinding from registers may give more of the stack of `row` than its recorded chain.
    pub(crate) fn may_add_to(&self, row: &Row<'_>) -> bool {
        row.registers.is_some()
    }

    /// Unwinds `row` of `view` into `frames`, innermost first, and returns why it ended; `None` if the recorded `chain`
    /// is better, as it is without call frame information. Only the valid part of the chain counts.
    pub(crate) fn unwind(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        chain: &[Frame],
        frames: &mut Vec<Frame>,
    ) -> Option<Stop> {
        let mut valid = Vec::new();
        let recorded = chain.iter().copied();
        let believed = self.believed(held, row, view, recorded, &mut valid);
        let unwound = self.unwind_inner(held, row, view, (&valid, believed), frames);
        frames.extend_from_slice(&valid[unwound.outer]);
        unwound.stop
    }

    /// The same with the valid part of the chain, and without copying frames of it.
    pub(crate) fn unwind_inner(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        (chain, believed): (&[Frame], Believed),
        frames: &mut Vec<Frame>,
    ) -> Unwound {
        frames.clear();
        match chain.split_last() {
            Some((last, inner)) if believed.is_entered => {
                let kind = FrameKind::Exact;
                let entered = [inner, &[Frame { kind, ..*last }]].concat();
                let unwound = self.join(held, row, view, (&entered, believed), frames);
                frames.extend_from_slice(&entered[unwound.outer]);
                Unwound {
                    outer: 0..0,
                    ..unwound
                }
            }
            _ => self.join(held, row, view, (chain, believed), frames),
        }
    }

    fn join(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        (chain, believed): (&[Frame], Believed),
        frames: &mut Vec<Frame>,
    ) -> Unwound {
        let all = chain;
        let recorded = Unwound {
            stop: believed.stop,
            outer: 0..all.len(),
        };
        let Some(registers) = row.registers.filter(|_| !believed.by_rules) else {
            held.unwound.clear();
            return recorded;
        };
        let memory = row.stack.map_or(NOTHING, |stack| Stack {
            base: stack.address,
            bytes: stack.bytes,
        });
        // A process's registers are those at its entry to the kernel: the kernel's frames come first.
        let target = &self.recording.metadata().target;
        let is_process = target.kind == TargetKind::Process;
        let is_above = |frame: &&Frame| is_process && is_kernel_address(frame.address);
        let kernel = chain.iter().take_while(is_above).count();
        let (kernel, chain) = chain.split_at(kernel);
        let mut unwound = std::mem::take(&mut held.unwound);
        unwound.clear();
        let (cache, unwinder) = self.held(held, row, view);
        let end = unwinder.unwind_to_end(cache, registers, &memory, self.options, &mut unwound);
        let frame_pointer = target.arch.special_registers().fp;
        let recorded_chain = Recorded {
            chain,
            stop: believed.stop.unwrap_or(row.stop),
            frame_pointer: registers.get(frame_pointer),
        };
        let switch = unwinder.switch_in(&unwound);
        let switched =
            switch.and_then(|at| splice::go_on_after_switch(&mut unwound, at, &recorded_chain));
        let is_switched = switched.is_some();
        let mut rest =
            switched.unwrap_or_else(|| splice::go_on(&mut unwound, end, &recorded_chain, &memory));
        let is_joined = rest.known < chain.len();
        let mut kept = None;
        if is_joined {
            let found = self.kept_part(held, row, view, chain, rest.known);
            kept = found.map(|(frames, _)| frames);
            let why = if is_switched {
                Stop::BadPointer
            } else {
                end.stop
            };
            rest.stop = found.map_or(rest.stop, |(_, stop)| stop.unwrap_or(why));
        }
        let length = unwound.len() + kept.unwrap_or(chain.len()) - rest.from;
        // A rule that says where the return address is contradicts a chain that was not joined. Without any bytes all
        // that there is, is a chain of which callers may be missing.
        let is_better = length > 0
            && (is_switched
                || rest.stop == Stop::Complete
                || end.return_slot.is_some() && row.stack.is_some()
                || length > chain.len()
                || unwound.iter().any(|frame| frame.found == Found::Cfi));
        let (mut stop, mut from) = if is_better {
            frames.extend_from_slice(kernel);
            frames.extend_from_slice(&unwound);
            (Some(rest.stop), kernel.len() + rest.from)
        } else {
            let mut stop = recorded.stop;
            if !is_joined && let Some((frames, early)) = self.kept_part(held, row, view, chain, 1) {
                kept = Some(frames);
                stop = stop.or(early).or(Some(Stop::BadPointer));
            } else if kept.is_some() {
                stop = stop.or(Some(rest.stop));
            }
            (stop, recorded.outer.start)
        };
        let all = &all[..kernel.len() + kept.unwrap_or(chain.len())];
        held.unwound = unwound;
        let mut stack = Stitched {
            frames,
            chain: all,
            outer: &mut from,
        };
        let ended = self.add_callers_of_frameless(held, row, view, &mut stack, is_switched);
        stop = ended.or(stop);
        self.add_missing_caller(held, row, view, kernel.len(), &mut stack);
        if !frames.is_empty() {
            // Otherwise the recorded chain would be taken as it is.
            stop = stop.or(Some(row.stop));
        }
        Unwound {
            stop,
            outer: from..all.len(),
        }
    }

    fn held<'h>(
        &self,
        held: &'h mut UnwindState,
        row: &Row<'_>,
        view: View,
    ) -> (&'h mut Cache, &'h Unwinder) {
        let fits = held.unwinder.take().filter(|(known, _)| *known == view);
        let asked = || (view, self.unwinder(view, row.time_ns));
        let (_, unwinder) = held.unwinder.insert(fits.unwrap_or_else(asked));
        (&mut held.cache, unwinder)
    }

    fn unwinder(&self, view: View, time_ns: u64) -> Arc<Unwinder> {
        let (space, own, shared) = view;
        let mut known = locked(&self.known);
        let key = (space, shared, own);
        let before = known.by_view.range((space, shared, 0)..=key);
        let before = before
            .map(|(key, unwinder)| (*key, Arc::clone(unwinder)))
            .next_back();
        let (unwinder, regions) = match &before {
            Some(((.., epoch), unwinder)) if *epoch == own => return Arc::clone(unwinder),
            Some(((.., epoch), unwinder)) => self.later(unwinder, *epoch, view, time_ns),
            None => None,
        }
        .unwrap_or_else(|| self.anew(view, time_ns));
        if known.regions > REGIONS_KEPT {
            // The next one is likely to be made from this one.
            *known = Known::default();
        }
        known.regions += regions;
        let unwinder = Arc::new(unwinder);
        known.by_view.insert(key, Arc::clone(&unwinder));
        unwinder
    }

    /// The unwinder of `view`, and its mappings.
    fn anew(&self, view: View, time_ns: u64) -> (Unwinder, usize) {
        let mut regions = self.recording.spaces().regions_at(view.0, time_ns);
        let count = regions.len();
        work::take(STEPS_PER_REGION * count as u64);
        regions.sort_by_key(|region| region.since_ns);
        let mut visible = Visible::default();
        regions.into_iter().for_each(|region| visible.map(region));
        let mut frameless = Vec::new();
        let modules = visible
            .into_parts()
            .map(|region| self.module(region, &mut frameless))
            .collect();
        let arch = self.recording.metadata().target.arch;
        let is_guest = self.recording.metadata().target.kind != TargetKind::Process;
        let has_processes = !is_guest || self.recording.guest_spaces().are_several();
        let unwinder = Unwinder::new(arch, modules)
            .with_interrupts(is_guest)
            .with_processes(has_processes)
            .with_frameless(frameless)
            .with_all_code(self.has_all_code(view, time_ns));
        (unwinder, count)
    }

    /// The same, made from that of an earlier epoch of the space; `None` if more than mappings came since, or so many
    /// that it costs less to make it anew.
    fn later(
        &self,
        earlier: &Unwinder,
        before: u32,
        view: View,
        time_ns: u64,
    ) -> Option<(Unwinder, usize)> {
        let (space, own, _) = view;
        let spaces = self.recording.spaces();
        if spaces.space_of(space, 0) != space {
            return None;
        }
        let mapped = spaces.mapped_between(space, before, own)?;
        let count = mapped.len();
        if count > PIECE_MODULES + PIECES_OF_A_REGION * earlier.pieces() {
            return None;
        }
        let mut frameless = Vec::new();
        let modules = mapped.into_iter();
        let unwinder = earlier
            .after(modules.map(|region| self.module(region, &mut frameless)))
            .with_frameless(frameless);
        let has_all_code = earlier.has_all_code() || self.has_all_code(view, time_ns);
        let pieces = unwinder.pieces() / PIECES_OF_A_REGION;
        let steps = STEPS_PER_REGION * (PIECE_MODULES * count) as u64;
        work::take(steps / PIECES_OF_A_REGION as u64 + pieces as u64);
        let weight = pieces + PIECE_MODULES * count.clamp(1, unwinder.pieces().max(1));
        Some((unwinder.with_all_code(has_all_code), weight))
    }

    /// The module of `region`; its functions that call others without a frame are added to `frameless`.
    fn module(&self, region: Region, frameless: &mut Vec<Frameless>) -> Module {
        let known = self
            .symbolizer
            .unwinding(region.module)
            .and_then(|(segments, rules)| {
                let bias = segments.bias_of_mapping(region.start, region.file_offset)?;
                Some((bias, rules))
            });
        let made = || {
            let length = region.end.saturating_sub(region.start);
            let addresses = region.file_offset..region.file_offset.saturating_add(length);
            let rules = self.symbolizer.trampolines(region.module, addresses)?;
            Some((
                region.start.wrapping_sub(region.file_offset),
                Arc::new(rules),
            ))
        };
        let known = known.or_else(made);
        let image = self.symbolizer.found(region.module).image.as_ref();
        let image = image.filter(|_| known.is_some()).cloned();
        if let Some((bias, _)) = &known {
            let loaded = |one: &Frameless| {
                let (start, end) = (one.code.start, one.code.end);
                let code = start.wrapping_add(*bias)..end.wrapping_add(*bias);
                Frameless { code, ..*one }
            };
            let all = self.symbolizer.frameless(region.module).iter().map(loaded);
            let is_here = |one: &Frameless| (region.start..region.end).contains(&one.code.start);
            frameless.extend(all.filter(is_here));
        }
        let (bias, rules) = known.unwrap_or_default();
        Module {
            start: region.start,
            end: region.end,
            bias,
            rules,
            image,
        }
    }
}
