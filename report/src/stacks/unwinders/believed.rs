//! The valid part of a recorded chain. A walk along frame pointers takes the words beside them as return addresses;
//! where a frame pointer held data, those and all that follow are invalid.

use super::{UnwindState, Unwinders, View};
use crate::unwind::Landing;
use uprof::cold::TargetKind;
use uprof::cpu::is_kernel_address;
use uprof::{Found, Frame, FrameKind, Row, Stop};

/// The valid part of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Believed {
    /// How many frames it has, from the innermost on.
    pub(crate) frames: usize,
    /// Why it ends there, if it doesn't by itself.
    pub(crate) stop: Option<Stop>,
    /// Whether a return alone enters the last one, at its first instruction.
    pub(super) is_entered: bool,
    /// Whether call frame information found some of them: the recorder had it, as of a Linux guest's kernel, and more
    /// of the stack than was kept.
    pub(super) by_rules: bool,
}

impl Believed {
    /// All of `chain`.
    fn all(chain: &[Frame]) -> Self {
        Believed {
            frames: chain.len(),
            stop: None,
            is_entered: false,
            by_rules: has_rules(chain),
        }
    }

    fn cut(chain: &[Frame], stop: Stop) -> Self {
        Believed {
            stop: Some(stop),
            ..Believed::all(chain)
        }
    }
}

fn has_rules(chain: &[Frame]) -> bool {
    let by_rules = |frame: &Frame| matches!(frame.found, Found::Cfi | Found::TrapFrame);
    chain.iter().any(by_rules)
}

impl Unwinders<'_, '_> {
    /// What of the chain recorded for `row` of `view` is to be believed: the same for all rows of the view with this
    /// chain, of which all or none are [`Stop::Complete`]. Moves those frames from `recorded` into `chain`; often
    /// they are few of many.
    pub(crate) fn believed(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        recorded: impl Iterator<Item = Frame>,
        chain: &mut Vec<Frame>,
    ) -> Believed {
        chain.clear();
        let kind = self.recording.metadata().target.kind;
        if matches!(kind, TargetKind::Imported | TargetKind::Synthetic) {
            chain.extend(recorded);
            return Believed::all(chain);
        }
        let mut recorded = recorded.peekable();
        while let Some(frame) = recorded.next() {
            let index = chain.len();
            chain.push(frame);
            if frame.kind != FrameKind::Return || frame.found != Found::FramePointer {
                continue;
            }
            let landing = match held.landings.get(&(view, frame.address)) {
                Some(known) => *known,
                None => {
                    let found = self.landing(held, row, view, frame.address);
                    held.landings.insert((view, frame.address), found);
                    found
                }
            };
            let is_outermost = row.stop == Stop::Complete && recorded.peek().is_none();
            let (_, unwinder) = self.held(held, row, view);
            let inner = index.checked_sub(1).and_then(|inner| chain.get(inner));
            if inner.is_some_and(|inner| unwinder.is_kernel_above(inner.address, frame.address)) {
                chain.pop();
                return Believed::cut(chain, Stop::BadPointer);
            }
            if landing == Landing::Outermost {
                return Believed {
                    is_entered: true,
                    ..Believed::cut(chain, Stop::Complete)
                };
            }
            if !unwinder.accepts(landing, is_outermost) {
                // Two frames and a saved frame pointer of zero: what lies beside it is no caller of a guest's thread.
                let begins = is_outermost && index > 1 && kind.is_guest();
                let stop = if begins {
                    Stop::Complete
                } else {
                    Stop::BadPointer
                };
                chain.pop();
                return Believed::cut(chain, stop);
            }
        }
        Believed::all(chain)
    }

    fn landing(&self, held: &mut UnwindState, row: &Row<'_>, view: View, address: u64) -> Landing {
        let target = &self.recording.metadata().target;
        if target.kind == TargetKind::Process && is_kernel_address(address) {
            // The kernel's own frames are reliable.
            return if target.arch.can_be_code(address) {
                Landing::Unread
            } else {
                Landing::NoCode
            };
        }
        let (_, unwinder) = self.held(held, row, view);
        let landing = unwinder.landing(address);
        let spaces = self.recording.spaces();
        let space = self.recording.guest_spaces().of_row(row);
        // The event of a mapping may come later than a sample in it.
        let comes = || {
            spaces
                .find(space, row.time_ns, address.wrapping_sub(1))
                .is_some()
        };
        let here = || spaces.place(space, row.time_ns, address);
        match landing {
            Landing::Unmapped if comes() => Landing::Unread,
            // Code is hardly ever interrupted at a function's first instruction, but tables of functions, to which a
            // register with data may point, hold such addresses: `.init_array` for one.
            Landing::Elsewhere if self.symbolizer.is_function(here()) => Landing::NoFrame,
            other => other,
        }
    }

    /// Whether the recording has all mappings of the space of `view`, so that all code is in them.
    pub(super) fn has_all_code(&self, view: View, time_ns: u64) -> bool {
        let recording = self.recording;
        if recording.metadata().target.kind != TargetKind::Process || self.has_lost_events {
            return false;
        }
        // The list of all mappings takes longer than the rest.
        let mut regions = recording.spaces().regions_at(view.0, time_ns).into_iter();
        regions.any(|region| !is_kernel_address(region.start))
    }
}
