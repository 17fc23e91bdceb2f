//! Compares the unwinder's frames with gdb's at one stop.

use super::Stopped;
use uniprof_report::unwind::{Cache, Options, Unwinder};
use uprof::FrameKind;

/// The result of the comparison at one stop.
pub enum Verdict {
    Same(uprof::Stop),
    /// The number of the first frame that differs, counted from the innermost.
    Differs(usize, String),
}

/// Compares the frames at a stop. `calls`: what gdb marks as the frame of a signal has called the one below, as a
/// guest's code for interrupts does, and is not entered at its first byte, as a process's trampoline is.
pub fn compare(unwinder: &Unwinder, cache: &mut Cache, stop: &Stopped, calls: bool) -> Verdict {
    let mut frames = Vec::new();
    let memory = stop.memory();
    let options = Options::default();
    let end = unwinder.unwind(cache, &stop.registers, &memory, options, &mut frames);
    let ours: Vec<u64> = frames.iter().map(|frame| frame.address).collect();
    if ours == stop.frames.iter().map(|frame| frame.pc).collect::<Vec<_>>() {
        // The frame above that of a signal was interrupted.
        for (index, pair) in stop.frames.windows(2).enumerate() {
            let wanted = if pair[0].is_signal || pair[1].is_signal && !calls {
                FrameKind::Exact
            } else {
                FrameKind::Return
            };
            if frames[index + 1].kind != wanted {
                return Verdict::Differs(index + 1, "kind of address".to_owned());
            }
        }
        return Verdict::Same(end);
    }
    let pairs = ours.iter().zip(&stop.frames);
    let at = pairs
        .take_while(|(ours, theirs)| **ours == theirs.pc)
        .count();
    let name = |index: usize| stop.frames.get(index).map_or("(end)", |frame| &frame.name);
    let below = stop
        .frames
        .get(at.wrapping_sub(1))
        .map_or(0, |frame| frame.pc);
    let text = format!(
        "above {} ({below:#x}) gdb has {} and we {:x?}; {}",
        name(at.wrapping_sub(1)),
        name(at),
        frames
            .get(at)
            .map(|frame| (frame.address, frame.found.name())),
        end.name(),
    );
    Verdict::Differs(at, text)
}
