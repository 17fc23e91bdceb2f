//! The callers of functions without a frame in the recorded chain of a program in Go ([`Frameless`]). The chain goes on
//! with the caller's caller, in a stack whose bytes are not recorded. Its call leads to the function that is missing,
//! and the place in it is the only call that leads on; of several, the one behind the closure that is passed. A
//! goroutine's function has no such caller, but its closures have its name. What is not certain ends the stack.
//!
//! [`Frameless`]: crate::unwind::Frameless

use super::{UnwindState, Unwinders, View};
use crate::recording::spaces::ModuleId;
use crate::unwind::splice::{Recorded, Rest};
use crate::unwind::{CalledOn, enclosing};
use std::ops::Range;
use uprof::cpu::Call;
use uprof::image::MissedCaller;
use uprof::{Found, Frame, Row, Stop};

/// A function without a frame in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    /// What it called with another stack.
    callee: Option<Frame>,
    function: Frame,
    /// The next frame of the chain.
    next: Option<Frame>,
}

/// How the chain goes on from it.
#[derive(Clone, Copy, Debug)]
enum Caller {
    /// With its caller.
    Next,
    /// With the caller of this one.
    Missing(Frame),
    Unknown,
}

/// The same, and what a bundle says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundCaller {
    caller: Caller,
    stored: Option<(ModuleId, MissedCaller)>,
}

impl UnwindState {
    /// The callers that were found of functions without a frame.
    pub(crate) fn missed_callers(&self) -> impl Iterator<Item = (ModuleId, MissedCaller)> {
        self.frameless_callers.values().filter_map(|one| one.stored)
    }
}

impl Unwinders<'_, '_> {
    /// Goes on from the last of `frames`, which has no frame of its own and called with another stack, with the chain
    /// from number `from` on.
    pub(super) fn go_on_from_frameless(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        frames: &mut Vec<Frame>,
        (recorded, mut from): (&Recorded<'_>, usize),
    ) -> Rest {
        let end = |stop| Rest {
            stop,
            from: recorded.chain.len(),
        };
        while let [before @ .., function] = frames.as_slice() {
            let next = recorded.chain.get(from).copied();
            let (_, unwinder) = self.held(held, row, view);
            match unwinder.frameless_at(function.lookup_address()) {
                None => {}
                Some(CalledOn::Schedulers) => return end(Stop::Complete),
                Some(stack) => {
                    let edge = Edge {
                        callee: before.last().copied().filter(|_| stack == CalledOn::Other),
                        function: *function,
                        next,
                    };
                    match self.caller_of(held, row, view, edge) {
                        Caller::Next => {}
                        Caller::Missing(caller) => frames.push(caller),
                        Caller::Unknown => return end(Stop::BadRule),
                    }
                }
            }
            let Some(next) = next else { break };
            frames.push(next);
            from += 1;
        }
        Rest {
            stop: recorded.stop,
            from,
        }
    }

    fn caller_of(&self, held: &mut UnwindState, row: &Row<'_>, view: View, edge: Edge) -> Caller {
        if let Some(known) = held.frameless_callers.get(&(view, edge)) {
            return known.caller;
        }
        let in_image = self.in_image(row, edge);
        let by_code = self.caller_by_code(held, row, view, edge);
        let caller = by_code.or_else(|| {
            let (module, addresses) = in_image?;
            let stored = self.symbolizer.missed_caller(module, addresses)?;
            let by = stored.wrapping_sub(addresses[1]);
            Some(match stored {
                0 => Caller::Next,
                _ => Caller::Missing(missed(edge.function.address.wrapping_add(by))),
            })
        });
        let stored = in_image.and_then(|(module, [callee, function, next])| {
            let caller = match caller? {
                Caller::Unknown => return None,
                Caller::Next => 0,
                Caller::Missing(caller) => {
                    let by = caller.address.wrapping_sub(edge.function.address);
                    function.wrapping_add(by)
                }
            };
            let stored = MissedCaller {
                callee,
                function,
                next,
                caller,
            };
            Some((module, stored))
        });
        let caller = caller.unwrap_or(Caller::Unknown);
        let found = FoundCaller { caller, stored };
        held.frameless_callers.insert((view, edge), found);
        caller
    }

    /// The module of the function of `edge`, and its addresses in that one's image; 0 for others.
    fn in_image(&self, row: &Row<'_>, edge: Edge) -> Option<(ModuleId, [u64; 3])> {
        let place = |frame: Frame| self.place(row, frame.lookup_address());
        let module = place(edge.function).module()?;
        let (segments, _) = self.symbolizer.unwinding(module)?;
        let address = |frame: Frame| {
            let place = Some(place(frame)).filter(|place| place.module() == Some(module))?;
            let address = self.symbolizer.address(segments, place)?.0;
            let behind = frame.address.wrapping_sub(frame.lookup_address());
            Some(address.wrapping_add(behind))
        };
        let function = address(edge.function)?;
        let of_other = |frame: Option<Frame>| frame.and_then(address).unwrap_or(0);
        Some((
            module,
            [of_other(edge.callee), function, of_other(edge.next)],
        ))
    }

    fn caller_by_code(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        Edge {
            callee,
            function,
            next,
        }: Edge,
    ) -> Option<Caller> {
        let function = function.lookup_address();
        let frameless = self.function_at(row, function)?;
        let (_, unwinder) = self.held(held, row, view);
        let call = next.and_then(|next| unwinder.call_before(next.address));
        let caller = match call {
            Some(Call::Direct(target)) => self.function_at(row, target)?,
            Some(Call::Indirect) | None => self.written_in(row, callee?.lookup_address())?,
        };
        if caller.contains(&function) {
            return Some(Caller::Next);
        }
        let (_, unwinder) = self.held(held, row, view);
        let calls = unwinder.calls_in(caller.clone(), &frameless);
        let address = match calls[..] {
            [one] => one,
            _ => {
                let closure = self.function_at(row, callee?.lookup_address())?;
                let (_, unwinder) = self.held(held, row, view);
                let passed = unwinder.address_taken_in(caller, closure.start)?;
                *calls.iter().find(|call| **call > passed)?
            }
        };
        Some(Caller::Missing(missed(address)))
    }

    /// The function that the closure at `address` was written in.
    fn written_in(&self, row: &Row<'_>, address: u64) -> Option<Range<u64>> {
        let place = self.place(row, address);
        let closure = self.symbolizer.find(place)?.symbol();
        let name = enclosing(closure.name)?;
        let (start, end) = self.symbolizer.function_beside(place, name)?;
        let bias = address
            .wrapping_sub(closure.offset_bytes)
            .wrapping_sub(closure.start.0);
        Some(start.0.wrapping_add(bias)..end.0.wrapping_add(bias))
    }
}

fn missed(address: u64) -> Frame {
    Frame {
        found: Found::Scan,
        ..Frame::return_address(address)
    }
}
