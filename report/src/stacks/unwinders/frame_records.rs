//! What functions do with the frame pointer. A chain of frame pointers is walked while it is recorded, without any
//! rule: behind the caller of a function that keeps no record, it has who called that caller, or whatever a register
//! with data pointed to. Input: a frame. Output: whether the chain's next frame is its caller.

use super::{UnwindState, Unwinders, View};
use crate::unwind::RecordRule;
use uprof::cold::TargetKind;
use uprof::{Frame, FrameKind, Row, Stop};

/// Whether a function keeps a record of frame pointers: its caller's, and behind it the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameRecord {
    /// It does, or it isn't known.
    Kept,
    /// It doesn't.
    Missing,
    /// It doesn't, and has no name: it may be a beginning.
    Unnamed,
    /// It doesn't, as nothing does that stands before `main` or a thread's function: a chain ends there.
    Beginning,
}

/// The functions before `main`, or a thread's function, whose rules say that they have a caller. Those of Go are what
/// its runtime calls the top frames of goroutines and threads.
const BEGINNINGS: [&str; 7] = [
    "__libc_start_call_main",
    "__libc_start_main",
    "start_thread",
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mstart",
    "runtime.mstart.abi0",
];

impl Unwinders<'_, '_> {
    /// How much of `chain` can be believed, of which the first `known` frames are known otherwise, too: up to the first
    /// function that keeps no record. The second value is why it ends there, if that is known. `None` for all of it.
    pub(super) fn kept_part(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        chain: &[Frame],
        known: usize,
    ) -> Option<(usize, Option<Stop>)> {
        // In a guest's kernel a chain leads through interrupts, whose code keeps no record.
        if self.recording.metadata().target.kind != TargetKind::Process {
            return None;
        }
        let callers = chain.iter().enumerate().skip(known);
        let mut callers = callers.filter(|(_, frame)| frame.kind == FrameKind::Return);
        let (last, found) = callers.find_map(|(index, frame)| {
            let found = self.record_of(held, row, view, frame);
            (found != FrameRecord::Kept).then_some((index, found))
        })?;
        let is_end = last + 1 == chain.len();
        match found {
            // What is behind it is no caller.
            FrameRecord::Beginning if !is_end => Some((last + 1, Some(Stop::Unsaid))),
            FrameRecord::Beginning | FrameRecord::Unnamed if is_end => None,
            _ => Some((last + 1, None)),
        }
    }

    fn record_of(
        &self,
        held: &mut UnwindState,
        row: &Row<'_>,
        view: View,
        frame: &Frame,
    ) -> FrameRecord {
        if let Some(known) = held.records.get(&(view, frame.address)) {
            return *known;
        }
        let (_, unwinder) = self.held(held, row, view);
        let record = match unwinder.record_rule(frame) {
            RecordRule::Unsaid => FrameRecord::Kept,
            RecordRule::Begins => FrameRecord::Beginning,
            RecordRule::Missing => self.record_by_name(row, frame),
        };
        held.records.insert((view, frame.address), record);
        record
    }

    /// The same of a function whose rules don't count from the frame pointer.
    fn record_by_name(&self, row: &Row<'_>, frame: &Frame) -> FrameRecord {
        let place = self.place(row, frame.lookup_address());
        let found = self.symbolizer.find(place);
        let name = found.map_or("", |found| found.symbol().name);
        let is_of_go = || {
            let module = place.module();
            module.is_some_and(|module| self.symbolizer.is_of_go(module))
        };
        match name {
            // Libraries are shipped without the names of these.
            "" => FrameRecord::Unnamed,
            name if BEGINNINGS.contains(&name) => FrameRecord::Beginning,
            // The rules of Go and OCaml never count from the frame pointer, although functions keep it.
            name if has_package(name) && is_of_go() => FrameRecord::Kept,
            name if is_of_ocaml(name) => FrameRecord::Kept,
            _ => FrameRecord::Missing,
        }
    }
}

/// Whether a name is that of a function in OCaml, as in `camlStdlib__List.map_123`.
fn is_of_ocaml(name: &str) -> bool {
    let module = name.strip_prefix("caml");
    module.is_some_and(|module| module.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

/// Whether a name has a package, as all of Go's do. Compilers of C add their own endings to names of parts and copies.
fn has_package(name: &str) -> bool {
    const ENDINGS: [&str; 6] = ["part", "constprop", "isra", "cold", "lto_priv", "llvm"];
    let ending = name.split('.').nth(1);
    ending.is_some_and(|ending| !ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_go_have_a_package() {
        for name in [
            "main.main",
            "runtime.cgocallback.abi0",
            "a/b.(*T).f",
            "main._Cfunc_f",
        ] {
            assert!(has_package(name), "{name}");
        }
        for name in ["qsort_r", "msort_with_tmp.part.0", "f.cold", "f.isra.0"] {
            assert!(!has_package(name), "{name}");
        }
        assert!(is_of_ocaml("camlStdlib__List.map_123") && !is_of_ocaml("caml_alloc_shr"));
    }
}
