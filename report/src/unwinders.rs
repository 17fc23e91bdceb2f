//! Unwinders for a whole recording: samples with registers and raw stack bytes go in, stacks come
//! out. There is one unwinder for each state of an address space, made when first
//! asked for.

use crate::recording::Recording;
use crate::spaces::{Region, is_kernel_address};
use crate::symbolizer::Symbolizer;
use crate::unwind::{Cache, Module, NoMemory, Options, Stack, Unwinder};
use crate::words::WordMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use uprof::cold::TargetKind;
use uprof::{Arch, Found, Frame, Row, Stop};

/// The mappings that a sample is seen under: its space, and how far that and the kernel's had got.
pub(crate) type View = (u32, u32, u32);

/// Unwinds the samples of one recording.
#[derive(Debug)]
pub(crate) struct Unwinders<'a, 's> {
    recording: &'a Recording,
    symbolizer: &'a Symbolizer<'s>,
    options: Options,
    by_view: Mutex<WordMap<View, Arc<Unwinder>>>,
}

/// What a reader of rows keeps to itself. Most rows are seen under the mappings of the row before;
/// if each asked for its unwinder anew, threads would wait for one another.
#[derive(Debug)]
pub(crate) struct Held {
    cache: Cache,
    unwinder: Option<(View, Arc<Unwinder>)>,
}

impl Held {
    /// Nothing yet.
    pub fn new() -> Self {
        Held {
            cache: Cache::new(),
            unwinder: None,
        }
    }
}

impl<'a, 's> Unwinders<'a, 's> {
    /// Unwinders for `recording`, whose images `symbolizer` finds.
    pub fn new(recording: &'a Recording, symbolizer: &'a Symbolizer<'s>, options: Options) -> Self {
        Unwinders {
            recording,
            symbolizer,
            options,
            by_view: Mutex::default(),
        }
    }

    /// The mappings that `row` is seen under.
    pub fn view(&self, row: &Row<'_>) -> View {
        let (spaces, space) = (self.recording.spaces(), row.task.space);
        let own = spaces.epoch(spaces.space_of(space, 0), row.time_ns);
        (space, own, spaces.epoch(0, row.time_ns))
    }

    /// Whether the recorded chain of `row` need not be all that can be known of its stack. Without
    /// stack bytes registers tell more only where calls leave the return address in one.
    pub fn may_add_to(&self, row: &Row<'_>) -> bool {
        let links = self.recording.metadata().target.arch != Arch::X86_64;
        row.registers.is_some() && (links || row.stack.is_some())
    }

    /// Unwinds `row` into `frames`, innermost first, and says why it ended; `None` if the recorded
    /// `chain` is the better one, as it is where neither stack bytes nor registers say more.
    pub fn unwind(
        &self,
        held: &mut Held,
        row: &Row<'_>,
        chain: &[Frame],
        frames: &mut Vec<Frame>,
    ) -> Option<Stop> {
        let registers = row.registers.filter(|_| self.may_add_to(row))?;
        let Some(stack) = row.stack else {
            return self.add_caller(held, row, chain, frames);
        };
        let memory = Stack {
            base: stack.address,
            bytes: stack.bytes,
        };
        frames.clear();
        // A process's registers are those it left for the kernel: the kernel's frames come first.
        let is_process = self.recording.metadata().target.kind == TargetKind::Process;
        let kernel = chain
            .iter()
            .take_while(|frame| is_kernel_address(frame.address));
        frames.extend(kernel.filter(|_| is_process));
        let kernel = frames.len();
        let (cache, unwinder) = self.held(held, row);
        let mut stop = unwinder.unwind(cache, registers, &memory, self.options, frames);
        if stop == Stop::Window && extend(frames, kernel, chain) {
            stop = row.stop;
        }
        let is_better = stop == Stop::Complete
            || frames.len() > chain.len()
            || frames.iter().any(|frame| frame.found == Found::Cfi);
        (is_better && frames.len() > kernel).then_some(stop)
    }

    /// Without stack bytes: the chain with the caller that it misses, if the registers tell it. A
    /// frame-pointer chain knows nothing of a function that hasn't made its frame yet, or makes
    /// none; where calls leave the return address in a register, that is the caller.
    fn add_caller(
        &self,
        held: &mut Held,
        row: &Row<'_>,
        chain: &[Frame],
        frames: &mut Vec<Frame>,
    ) -> Option<Stop> {
        let registers = row.registers?;
        frames.clear();
        let (cache, unwinder) = self.held(held, row);
        let options = Options {
            depth_max: 2,
            scan: false,
        };
        unwinder.unwind(cache, registers, &NoMemory, options, frames);
        let [innermost, caller] = frames[..] else {
            return None;
        };
        frames.clear();
        frames.extend_from_slice(chain);
        insert_caller(frames, innermost, caller).then_some(row.stop)
    }

    fn held<'h>(&self, held: &'h mut Held, row: &Row<'_>) -> (&'h mut Cache, &'h Unwinder) {
        let view = self.view(row);
        let fits = held.unwinder.take().filter(|(known, _)| *known == view);
        let asked = || (view, self.unwinder(view, row.time_ns));
        let (_, unwinder) = held.unwinder.insert(fits.unwrap_or_else(asked));
        (&mut held.cache, unwinder)
    }

    fn unwinder(&self, view: View, time_ns: u64) -> Arc<Unwinder> {
        let mut known = self.by_view.lock().unwrap_or_else(PoisonError::into_inner);
        let unwinder = known.entry(view).or_insert_with(|| {
            let regions = visible(self.recording.spaces().regions_at(view.0, time_ns));
            let modules = regions
                .into_iter()
                .map(|region| self.module(region))
                .collect();
            Arc::new(Unwinder::new(
                self.recording.metadata().target.arch,
                modules,
            ))
        });
        Arc::clone(unwinder)
    }

    fn module(&self, region: Region) -> Module {
        let known = self
            .symbolizer
            .unwinding(region.module)
            .and_then(|(segments, rules)| {
                let bias = segments.bias_of_mapping(region.start, region.file_offset)?;
                Some((bias, rules))
            });
        let image = self.symbolizer.found(region.module).image.as_ref();
        let image = image.filter(|_| known.is_some()).cloned();
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

/// Puts `caller` behind `innermost`, unless the chain has it there already, or lacks `innermost`.
fn insert_caller(frames: &mut Vec<Frame>, innermost: Frame, caller: Frame) -> bool {
    let Some(at) = frames
        .iter()
        .position(|frame| frame.address == innermost.address)
    else {
        return false;
    };
    let is_there = frames
        .get(at + 1)
        .is_some_and(|frame| frame.address == caller.address);
    if is_there || caller.found != Found::Cfi {
        return false;
    }
    frames.insert(at + 1, caller);
    true
}

/// Where the stack bytes end, the recorded chain may go on: it was walked on the whole stack.
/// Appends what it has beyond the last frame, if it has that frame.
fn extend(frames: &mut Vec<Frame>, kernel: usize, chain: &[Frame]) -> bool {
    let Some(last) = frames.get(kernel..).and_then(|unwound| unwound.last()) else {
        return false;
    };
    let Some(at) = chain
        .iter()
        .rposition(|frame| frame.address == last.address)
    else {
        return false;
    };
    frames.extend_from_slice(&chain[at + 1..]);
    true
}

/// What is seen of mappings that lie over one another: of two, the later.
fn visible(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| region.since_ns);
    let mut seen: BTreeMap<u64, Region> = BTreeMap::new();
    for region in regions {
        let below = seen
            .range(..region.start)
            .next_back()
            .map(|(_, below)| *below);
        if let Some(below) = below.filter(|below| below.end > region.start) {
            seen.insert(
                below.start,
                Region {
                    end: region.start,
                    ..below
                },
            );
            keep_end(&mut seen, below, region.end);
        }
        while let Some((start, covered)) = seen
            .range(region.start..region.end)
            .next()
            .map(|(start, covered)| (*start, *covered))
        {
            seen.remove(&start);
            keep_end(&mut seen, covered, region.end);
        }
        if region.start < region.end {
            seen.insert(region.start, region);
        }
    }
    seen.into_values().collect()
}

/// Keeps the part of `region` from `start` on.
fn keep_end(seen: &mut BTreeMap<u64, Region>, region: Region, start: u64) {
    if region.end > start {
        let file_offset = region.file_offset_of(start);
        seen.insert(
            start,
            Region {
                start,
                file_offset,
                ..region
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, module: u32) -> Region {
        Region {
            start,
            end,
            file_offset: start,
            module,
            since_ns: u64::from(module),
        }
    }

    #[test]
    fn a_later_mapping_cuts_a_hole() {
        let seen = visible(vec![region(5, 7, 1), region(0, 10, 0), region(9, 12, 2)]);
        let seen: Vec<_> = seen
            .iter()
            .map(|region| (region.start, region.end, region.file_offset, region.module))
            .collect();
        assert_eq!(
            seen,
            [(0, 5, 0, 0), (5, 7, 5, 1), (7, 9, 7, 0), (9, 12, 9, 2)]
        );
    }

    #[test]
    fn a_caller_is_added_once_and_only_by_a_rule() {
        let chain = vec![Frame::exact(1), Frame::return_address(3)];
        let caller = Frame {
            found: Found::Cfi,
            ..Frame::return_address(2)
        };
        let mut frames = chain.clone();
        assert!(insert_caller(&mut frames, Frame::exact(1), caller));
        assert_eq!(frames, [Frame::exact(1), caller, Frame::return_address(3)]);
        assert!(!insert_caller(&mut frames, Frame::exact(1), caller));
        assert!(!insert_caller(&mut frames, Frame::exact(9), caller));
        assert!(!insert_caller(
            &mut frames,
            Frame::exact(1),
            Frame::return_address(7)
        ));
    }

    #[test]
    fn a_chain_goes_on_where_the_bytes_end() {
        let chain = [
            Frame::exact(1),
            Frame::return_address(3),
            Frame::return_address(4),
        ];
        let mut frames = vec![
            Frame::exact(1),
            Frame::return_address(2),
            Frame::return_address(3),
        ];
        assert!(extend(&mut frames, 0, &chain));
        assert_eq!(frames.last(), Some(&Frame::return_address(4)));
        let mut foreign = vec![Frame::exact(9)];
        assert!(!extend(&mut foreign, 0, &chain));
    }
}
