//! The caller that a chain of frame pointers misses, found by the calls on both sides of it.
//!
//! Input: a stack whose innermost function has no call frame information, and its recorded bytes. Output: the stack
//! with the caller of that function. A function without a frame, or at its first or last instructions, has its
//! caller's frame pointer, so that the chain goes on with the caller's caller. That this happened is seen in the code:
//! the next caller's call leads to another function. A word above the stack pointer that is a return address in that
//! one is the missing caller. It is looked for nowhere else: a word that looks like any return address may be an old
//! one.

use super::{UnwindState, Unwinders, View};
use crate::recording::spaces::Place;
use crate::unwind::{Memory, Stack};
use std::ops::Range;
use uprof::cpu::{Call, SpecialRegisters};
use uprof::{Found, Frame, FrameKind, Row};

/// Most words above the stack pointer that are looked at: a function without a frame has few of its own.
const WORDS_MAX: u64 = 32;
const WORD_BYTES: u64 = 8;

/// A stack: unwound frames, and those of the recorded chain from one on.
pub(super) struct Stitched<'s> {
    pub(super) frames: &'s mut Vec<Frame>,
    pub(super) chain: &'s [Frame],
    pub(super) outer: &'s mut usize,
}

impl Unwinders<'_, '_> {
    /// Adds the caller of the frame `innermost` of a stack, where the chain misses it.
    pub(super) fn add_missing_caller(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        innermost: usize,
        stack: &mut Stitched<'_>,
    ) {
        let Stitched {
            frames,
            chain,
            outer,
        } = stack;
        let rest = &mut **outer;
        let mut after = frames.iter().chain(&chain[*rest..]).skip(innermost);
        let (Some(inner), Some(outer)) = (after.next().copied(), after.next().copied()) else {
            return;
        };
        if outer.kind != FrameKind::Return || outer.found != Found::FramePointer {
            return;
        }
        let (Some(stack), Some(registers)) = (row.stack, row.registers) else {
            return;
        };
        let called = match held.called.get(&(view, outer.address)) {
            Some(known) => known.clone(),
            None => {
                let found = self.called_by(held, row, view, outer.address);
                held.called.insert((view, outer.address), found.clone());
                found
            }
        };
        let Some(called) = called.filter(|called| !called.contains(&inner.address)) else {
            return;
        };
        let arch = self.recording.metadata().target.arch;
        let SpecialRegisters { sp, fp, .. } = arch.special_registers();
        let (Some(from), Some(record)) = (registers.get(sp), registers.get(fp)) else {
            return;
        };
        let memory = Stack {
            base: stack.address,
            bytes: stack.bytes,
        };
        let to = record.min(from.saturating_add(WORDS_MAX * WORD_BYTES));
        let words = (from..to).step_by(WORD_BYTES as usize);
        let inside = called.start + 1..=called.end;
        for word in words.map_while(|at| memory.word(at)) {
            if inside.contains(&word) && self.may_lead_to(held, row, view, word, inner.address) {
                let caller = Frame {
                    found: Found::Scan,
                    ..Frame::return_address(word)
                };
                let missing = (innermost + 1).saturating_sub(frames.len());
                frames.extend(&chain[*rest..][..missing]);
                *rest += missing;
                frames.insert(innermost + 1, caller);
                return;
            }
        }
    }

    /// The function that the call before `return_address` leads to; `None` if that isn't known.
    fn called_by(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        return_address: u64,
    ) -> Option<Range<u64>> {
        let (_, unwinder) = self.held(held, row, view);
        match unwinder.call_before(return_address)? {
            Call::Direct(target) => self.function_at(row, target),
            Call::Indirect => None,
        }
    }

    /// Whether the call before `return_address` may lead to the function at `inner`.
    fn may_lead_to(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        return_address: u64,
        inner: u64,
    ) -> bool {
        let (_, unwinder) = self.held(held, row, view);
        match unwinder.call_before(return_address) {
            Some(Call::Indirect) => true,
            Some(Call::Direct(target)) => self
                .function_at(row, target)
                .is_some_and(|function| function.contains(&inner)),
            None => false,
        }
    }

    /// From where to where the function at `address` goes.
    pub(super) fn function_at(&self, row: &Row<'_>, address: u64) -> Option<Range<u64>> {
        let symbol = self.symbolizer.find(self.place(row, address))?.symbol();
        let start = address.checked_sub(symbol.offset_bytes)?;
        Some(start..start.checked_add(symbol.size_bytes)?)
    }

    /// What `address` is at the time of `row`.
    pub(super) fn place(&self, row: &Row<'_>, address: u64) -> Place {
        let space = self.recording.guest_spaces().of_row(row);
        self.recording.spaces().place(space, row.time_ns, address)
    }
}
