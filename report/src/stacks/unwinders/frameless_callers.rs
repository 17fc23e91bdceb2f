//! The callers of functions without a frame in the recorded chain of a program in Go ([`Frameless`]). The chain goes on
//! with the caller's caller, in a stack whose bytes are not recorded. Its call leads to the function that is missing,
//! and the place in it is the only call that leads on; of several, the one behind the closure that is passed. A
//! goroutine's function has no such caller, but its closures have its name. What is not certain ends the stack.
//!
//! [`Frameless`]: crate::unwind::Frameless

use super::missing_caller::Stitched;
use super::{UnwindState, Unwinders, View};
use crate::recording::spaces::ModuleId;
use crate::unwind::{CalledOn, enclosing};
use std::ops::Range;
use uprof::cpu::Call;
use uprof::image::MissedCaller;
use uprof::{Found, Frame, FrameKind, Row, Stop};

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
pub(super) enum Caller {
    /// With its caller.
    Next,
    /// With the caller of this one.
    Missing(Frame),
    Unknown,
}

impl Unwinders<'_, '_> {
    /// Adds the callers that the chain of a stack misses, from the last of its unwound frames on if that called with
    /// another stack (`is_switched`), and returns why it ends there if a caller is not known.
    pub(super) fn add_callers_of_frameless(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        stack: &mut Stitched<'_>,
        is_switched: bool,
    ) -> Option<Stop> {
        let Stitched {
            frames,
            chain,
            outer,
        } = stack;
        let from = &mut **outer;
        let (_, unwinder) = self.held(held, row, view);
        if !unwinder.has_frameless() {
            return None;
        }
        let is_frameless = |frame: &Frame| {
            let address = frame.lookup_address();
            frame.kind == FrameKind::Return && unwinder.frameless_at(address).is_some()
        };
        let rest = &chain[*from..];
        let is_last = frames.last().is_some_and(is_frameless) && !rest.is_empty();
        if !is_switched && !is_last {
            let first = 1 + rest.iter().position(is_frameless)?;
            frames.extend_from_slice(&rest[..first]);
            *from += first;
        }
        while let [before @ .., function] = frames.as_slice() {
            let next = chain.get(*from).copied();
            let (_, unwinder) = self.held(held, row, view);
            let stop = match unwinder.frameless_at(function.lookup_address()) {
                None => None,
                Some(CalledOn::Schedulers) => Some(Stop::Complete),
                Some(CalledOn::ForFrameless) => Some(Stop::BadRule),
                Some(stack) => {
                    let edge = Edge {
                        callee: before.last().copied().filter(|_| stack == CalledOn::Other),
                        function: *function,
                        next,
                    };
                    match self.caller_of(held, row, view, edge) {
                        Caller::Next => None,
                        Caller::Missing(caller) => {
                            frames.push(caller);
                            None
                        }
                        Caller::Unknown => Some(Stop::BadRule),
                    }
                }
            };
            if stop.is_some() {
                *from = chain.len();
                return stop;
            }
            frames.push(next?);
            *from += 1;
        }
        None
    }

    fn caller_of(&self, held: &mut UnwindState, row: &Row<'_>, view: View, edge: Edge) -> Caller {
        if let Some(known) = held.frameless_callers.get(&(view, edge)) {
            return *known;
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
        let stored = match caller {
            Some(Caller::Next) => Some(0),
            Some(Caller::Missing(caller)) => {
                let by = caller.address.wrapping_sub(edge.function.address);
                in_image.map(|(_, [_, function, _])| function.wrapping_add(by))
            }
            Some(Caller::Unknown) | None => None,
        };
        if let (Some((module, [callee, function, next])), Some(caller)) = (in_image, stored) {
            let stored = MissedCaller {
                callee,
                function,
                next,
                caller,
            };
            held.missed_callers.push((module, stored));
        }
        let caller = caller.unwrap_or(Caller::Unknown);
        held.frameless_callers.insert((view, edge), caller);
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
        let key = (view, [caller.start, frameless.start]);
        if !held.calls.contains_key(&key) {
            let (_, unwinder) = self.held(held, row, view);
            let found = unwinder.calls_in(caller.clone(), &frameless);
            held.calls.insert(key, found);
        }
        let calls = held.calls[&key].clone();
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
