//! Whether a vCPU was idle when it was sampled. Input: a sample. Output: its state.
//!
//! Most recorders are told so: by Xen, by QEMU's stub, by KVM's thread that sleeps. Other stubs don't tell. But a vCPU
//! that halts stands behind the instruction with which it does, and one that stands there has executed nothing since.
//! A byte of `hlt` may as well end another instruction, so that the function is decoded from its start. Nothing is
//! taken for idle whose code is not known.

use super::symbolizer::{LocatedSymbol, Symbolizer};
use crate::images::{ImageAddress, disassembly};
use crate::recording::Recording;
use crate::recording::rows::States;
use crate::recording::spaces::Place;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};
use uprof::cold::{Code, TargetKind};
use uprof::cpu::is_kernel_address;
use uprof::{Arch, Fault, FrameKind, Row, SampleBlock, State, WordMap};

/// How far into its function an idle instruction is looked for (bytes): idle loops are short, and all code before it is
/// decoded.
const INTO_BYTES_MAX: u64 = 64 << 10;

/// A place behind an instruction: its last byte, with the address space that it is read in.
type Behind = (u32, Place);

/// Tells idle samples of one recording.
#[derive(Debug)]
pub(crate) struct Idle<'a, 's> {
    recording: &'a Recording,
    symbolizer: &'a Symbolizer<'a, 's>,
    /// Whether the instruction before is one to idle with.
    known: RwLock<WordMap<Behind, bool>>,
}

/// Where a guest idled, as far as its code says so.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdlePlaces(BTreeSet<Behind>);

impl<'a, 's> Idle<'a, 's> {
    pub(crate) fn new(recording: &'a Recording, symbolizer: &'a Symbolizer<'a, 's>) -> Self {
        Idle {
            recording,
            symbolizer,
            known: RwLock::default(),
        }
    }

    /// Whether samples of the recording can be found to be idle by their code: not those of a process, which can't idle
    /// by itself, nor imported ones, which have no code.
    pub(crate) fn may_tell(recording: &Recording) -> bool {
        let kind = recording.metadata().target.kind;
        !matches!(kind, TargetKind::Process | TargetKind::Imported)
    }

    /// Whether it finds samples of `block` idle that were recorded as running.
    ///
    /// # Errors
    /// The first row that can't be read.
    pub(crate) fn changes(&self, block: &SampleBlock) -> Result<bool, Fault> {
        let mut rows = block.rows();
        while let Some(row) = rows.next_row()? {
            if self.state(block, &row) != row.state {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The places found so far.
    pub(crate) fn into_places(self) -> IdlePlaces {
        let known = self.known.into_inner();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let idle = known.into_iter().filter(|(_, is_idle)| *is_idle);
        IdlePlaces(idle.map(|(behind, _)| behind).collect())
    }

    /// Whether an idle instruction ends with the byte at `address`; `None` if its code is not known.
    fn is_idle(&self, (space, place): Behind, address: u64) -> Option<bool> {
        let arch = self.recording.metadata().target.arch;
        let length_bytes = match arch {
            Arch::Aarch64 => 4, // a word is an instruction, whatever comes before it
            Arch::X86_64 => {
                let symbol = self.symbolizer.find(place).map(LocatedSymbol::symbol)?;
                symbol.offset_bytes.checked_add(1)?
            }
        };
        if length_bytes > INTO_BYTES_MAX {
            return None;
        }
        if let Some(code) = self.recorded(space, address, length_bytes) {
            return Some(disassembly::ends_idle(arch, &code));
        }
        let image = self.symbolizer.image(place);
        let image = image.filter(|image| image.arch() == arch)?;
        let last = self.symbolizer.address(image.segments(), place)?;
        let code = image.code_at(ImageAddress(start(last.0, length_bytes)?), length_bytes)?;
        // What a kernel patches when it starts keeps the borders of instructions, but not the instructions.
        let is_known = code.len() as u64 == length_bytes && !image.is_written_over(last);
        is_known.then(|| disassembly::ends_idle(arch, code))
    }

    /// The guest's memory up to the byte at `last`, if the recording has all of it.
    fn recorded(&self, space: u32, last: u64, length_bytes: u64) -> Option<Vec<u8>> {
        let start = start(last, length_bytes)?;
        let pieces = self.recording.code().iter();
        let pieces: Vec<&Code> = pieces.filter(|piece| piece.space == space).collect();
        let mut code = Vec::new();
        while let Some(missing @ 1..) = length_bytes.checked_sub(code.len() as u64) {
            let at = start + code.len() as u64;
            let found = pieces.iter().find_map(|piece| {
                let into = usize::try_from(at.checked_sub(piece.address)?).ok()?;
                piece.bytes.get(into..).filter(|rest| !rest.is_empty())
            })?;
            code.extend(found.iter().take(missing as usize));
        }
        Some(code)
    }
}

impl States for Idle<'_, '_> {
    /// The recorded state, or [`State::Blocked`] if the vCPU ran by that and idles by its code.
    fn state(&self, block: &SampleBlock, row: &Row<'_>) -> State {
        let Some((behind, address)) = behind(self.recording, block, row) else {
            return row.state;
        };
        let read = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let known = read.get(&behind).copied();
        drop(read);
        let is_idle = known.unwrap_or_else(|| {
            let is_idle = self.is_idle(behind, address).unwrap_or(false);
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.insert(behind, is_idle);
            is_idle
        });
        if is_idle { State::Blocked } else { row.state }
    }
}

/// The first of `length_bytes` bytes that end with the one at `last`.
fn start(last: u64, length_bytes: u64) -> Option<u64> {
    last.checked_sub(length_bytes.checked_sub(1)?)
}

/// What a sample stands behind, if that may be an idle instruction, and its last byte's address in the guest.
fn behind(recording: &Recording, block: &SampleBlock, row: &Row<'_>) -> Option<(Behind, u64)> {
    let ran = row.state == State::Running && row.wait.is_none();
    if !ran || !Idle::may_tell(recording) {
        return None;
    }
    let frame = block.nodes().get(row.node? as usize)?.frame;
    let address = frame.address.checked_sub(1)?;
    let space = recording.guest_spaces().of_row(row);
    let place = recording.spaces().place(space, row.time_ns, address);
    let read_in = if is_kernel_address(address) {
        row.task.space
    } else {
        space
    };
    let is_next = frame.kind == FrameKind::Exact;
    is_next.then_some(((read_in, place), address))
}

impl IdlePlaces {
    /// The states of a recording of which all samples have been asked for.
    pub(crate) fn of<'a>(&'a self, recording: &'a Recording) -> IdleOf<'a> {
        IdleOf {
            recording,
            places: self,
        }
    }
}

/// Tells idle samples of a recording by the places that are known.
pub(crate) struct IdleOf<'a> {
    recording: &'a Recording,
    places: &'a IdlePlaces,
}

impl States for IdleOf<'_> {
    fn state(&self, block: &SampleBlock, row: &Row<'_>) -> State {
        let IdlePlaces(places) = self.places;
        if places.is_empty() {
            return row.state;
        }
        match behind(self.recording, block, row) {
            Some((behind, _)) if places.contains(&behind) => State::Blocked,
            _ => row.state,
        }
    }
}
