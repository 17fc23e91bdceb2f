//! The loop that takes samples: absolute deadlines, a little jitter, and nothing that could wait.
//!
//! Enters: a source. Leaves: filled slots. Must not allocate, lock, format or touch a file.

use crate::control::{Control, Ending};
use crate::ring::Sink;
use crate::slot::Slot;
use crate::source::{Frozen, Life, Pushed, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::{monotonic_ns, sleep_until};
use crate::sys::signal;
use crate::walk;
use crate::window::{Reader, Window};
use std::sync::atomic::Ordering;
use uprof::cold::LossReason;
use uprof::{Arch, Registers, Stop};

/// Losses and the source's own news are passed on this often.
const HOUSEKEEPING_NS: u64 = 250_000_000;
/// The longest sleep in one piece.
const NAP_NS: u64 = 20_000_000;
/// Bytes copied from a second stack.
const BEYOND_BYTES: usize = 4096;

/// What to take of each vCPU.
#[derive(Debug, Clone, Copy)]
pub struct Take {
    /// Nominal time between samples, with its fraction: whole nanoseconds would make the rate up to
    /// one in 10,000 too high.
    pub period_ns: f64,
    /// Stack bytes to copy for the walk or to keep; 0 for the instruction pointer only.
    pub window_bytes: usize,
    /// Whether the copied bytes become part of the sample.
    pub keep_stack: bool,
    /// Most frames of a chain.
    pub most_frames: usize,
    /// Most time that the guest may stand still for a sample.
    pub budget_ns: u64,
    /// Most share of time that the guest may stand still; the rate is lowered to keep it.
    pub most_overhead: Option<f64>,
}

/// Samples a guest that stands still for each sample, until something ends it.
pub fn stop_world(
    source: &mut dyn StopWorld,
    sink: &mut Sink,
    take: Take,
    control: &Control,
) -> Ending {
    let mut round = Round::new(source.facts().target.arch, sink, take);
    if let Some(ending) = look(source, sink) {
        return ending;
    }
    let mut pace = Pace::new(monotonic_ns(), take.period_ns, take.most_overhead);
    loop {
        if let Some(ending) = wait(source, sink, pace.wake_ns, control) {
            // A sampler that got no processor up to the end has missed what was due meanwhile.
            let end_ns = monotonic_ns().min(control.stop_at_ns.unwrap_or(u64::MAX));
            sink.lose(LossReason::Deadline, pace.unmet(end_ns), end_ns);
            return ending;
        }
        let now_ns = monotonic_ns();
        let frozen_ns = match round.sample(source, sink, pace.wake_ns) {
            Ok(frozen_ns) => frozen_ns,
            Err(error) => {
                // The guest may just be going away: that is the better message.
                return match look(source, sink) {
                    Some(Ending::Failed(_)) | None => Ending::Failed(error),
                    Some(ending) => ending,
                };
            }
        };
        pace.spent(frozen_ns, control);
        let missed = pace.next(monotonic_ns());
        if missed > 0 {
            sink.lose(LossReason::Deadline, missed, now_ns);
        }
        if pace.housekeeping_due(now_ns) {
            sink.tell_losses();
            if let Some(ending) = look(source, sink) {
                return ending;
            }
        }
    }
}

/// Lets the source look after its guest; returns the ending if there was one.
fn look(source: &mut dyn StopWorld, sink: &mut Sink) -> Option<Ending> {
    match source.between(sink) {
        Ok(Life::Alive) => None,
        Ok(life) => Some(Ending::of_life(life)),
        Err(error) => Some(Ending::Failed(error)),
    }
}

/// Sleeps until `wake_ns`, in short pieces, so that a child that reports something does not wait
/// long and someone who asks to stop doesn't either.
fn wait(
    source: &mut dyn StopWorld,
    sink: &mut Sink,
    wake_ns: u64,
    control: &Control,
) -> Option<Ending> {
    loop {
        if signal::take_wake()
            && let Some(ending) = look(source, sink)
        {
            return Some(ending);
        }
        let now_ns = monotonic_ns();
        if let Some(ending) = control.ending(now_ns) {
            return Some(ending);
        }
        if now_ns >= wake_ns {
            return None;
        }
        sleep_until(wake_ns.min(now_ns + NAP_NS));
    }
}

/// Passes on what the kernel samples, until something ends it.
pub fn pushed(source: &mut dyn Pushed, sink: &mut Sink, control: &Control) -> Ending {
    if let Err(error) = source.start() {
        return Ending::Failed(error);
    }
    loop {
        let ending = control.ending(monotonic_ns());
        // What came up to the end still belongs to the recording.
        let life = match source.drain(sink) {
            Ok(life) => life,
            Err(error) => return Ending::Failed(error),
        };
        sink.tell_losses();
        if let Some(ending) = ending {
            return ending;
        }
        if life != Life::Alive {
            return Ending::of_life(life);
        }
        let timeout_ms = control.milliseconds_left(monotonic_ns()).min(100);
        if let Err(error) = source.wait(timeout_ms as u16) {
            return Ending::Failed(error);
        }
    }
}

/// Memory for one round over all vCPUs.
struct Round {
    arch: Arch,
    take: Take,
    vcpus: Vcpus,
    /// A slot for each vCPU that is sampled in this round, and its place in `vcpus`.
    taken: Vec<(Box<Slot>, usize)>,
    /// Stacks, by place in `taken`.
    copied: Vec<Copied>,
}

impl Round {
    fn new(arch: Arch, sink: &Sink, take: Take) -> Self {
        // As many as there can be slots: a round never waits for the encoder.
        let most = Vcpus::MOST.min(sink.slots());
        Round {
            arch,
            take,
            vcpus: Vcpus::new(),
            taken: Vec::with_capacity(most),
            copied: (0..most).map(|_| Copied::new(take.window_bytes)).collect(),
        }
    }

    /// Takes one sample of every vCPU, due at `due_ns`; returns how long the guest stood still.
    fn sample(
        &mut self,
        source: &mut dyn StopWorld,
        sink: &mut Sink,
        due_ns: u64,
    ) -> Result<u64, SourceError> {
        let left_out = self.vcpus.clear();
        // One reading for both: a sample's time less its delay is its deadline, to the nanosecond.
        let start_ns = monotonic_ns();
        let late_ns = start_ns.saturating_sub(due_ns);
        if left_out > 0 {
            sink.lose(LossReason::ReadFailed, left_out, start_ns);
        }
        let mut frozen = Frozen::freeze(source, &mut self.vcpus)?;
        for place in 0..self.vcpus.all().len() {
            let vcpu = &self.vcpus.all()[place];
            let Some(mut slot) = sink.take(start_ns) else {
                continue;
            };
            slot.reset(start_ns, vcpu.task, vcpu.state);
            slot.late_ns = Some(late_ns);
            let copied = &mut self.copied[self.taken.len()];
            copied.clear();
            if vcpu.registers.mask() != 0 {
                let deadline_ns = start_ns + self.take.budget_ns;
                copied.copy(&mut frozen, vcpu, self.arch, self.take, deadline_ns);
            }
            self.taken.push((slot, place));
            if self.taken.len() == self.taken.capacity() {
                break;
            }
        }
        frozen.resume()?;
        let frozen_ns = monotonic_ns() - start_ns;
        self.walk_all(sink, frozen_ns);
        Ok(frozen_ns)
    }

    /// After the guest runs again: walks the copies and hands the slots over.
    fn walk_all(&mut self, sink: &mut Sink, frozen_ns: u64) {
        for (index, (mut slot, place)) in self.taken.drain(..).enumerate() {
            let vcpu = &self.vcpus.all()[place];
            slot.cost_ns = Some(frozen_ns);
            slot.registers = vcpu.registers;
            if vcpu.registers.mask() != 0 {
                let copied = &self.copied[index];
                slot.stop = copied.walk(&mut slot, self.arch, &vcpu.registers, self.take);
                let stack = copied.stack.raw();
                slot.keep_stack = self.take.keep_stack && !stack.bytes.is_empty();
                if slot.keep_stack {
                    slot.set_stack(stack.address, stack.bytes);
                }
            }
            sink.put(slot);
        }
    }
}

/// Copied stack of one vCPU: where its stack pointer is, and where its chain leads beyond that.
struct Copied {
    stack: Window,
    beyond: Window,
    /// Time was over before all was copied.
    cut: bool,
}

impl Copied {
    fn new(window_bytes: usize) -> Self {
        Copied {
            stack: Window::new(window_bytes),
            beyond: Window::new(BEYOND_BYTES.min(window_bytes)),
            cut: false,
        }
    }

    fn clear(&mut self) {
        self.stack.begin(0);
        self.beyond.begin(0);
        self.cut = false;
    }

    /// Copies the stack of `vcpu` while the guest is frozen: all that is to be kept, or what the walk
    /// needs.
    fn copy(
        &mut self,
        frozen: &mut Frozen<'_>,
        vcpu: &Vcpu,
        arch: Arch,
        take: Take,
        deadline_ns: u64,
    ) {
        let (_, sp, fp) = arch.special_registers();
        let (Some(sp), Some(fp)) = (vcpu.registers.get(sp), vcpu.registers.get(fp)) else {
            return;
        };
        let mut reader = InTime {
            frozen,
            vcpu,
            deadline_ns,
            late: false,
        };
        self.stack.begin(sp);
        if take.keep_stack {
            self.stack.fill(take.window_bytes, &mut reader);
        }
        if take.window_bytes > 0
            && let Some(address) = self.stack.follow(fp, take.most_frames, &mut reader)
            // A frame pointer that never was inside is some other number, in code that has none.
            && address != fp
        {
            self.beyond.begin(address);
            self.beyond.follow(address, take.most_frames, &mut reader);
        }
        self.cut = reader.late;
    }

    /// Walks the copy; returns why the chain ends.
    fn walk(&self, slot: &mut Slot, arch: Arch, registers: &Registers, take: Take) -> Stop {
        let windows = [self.stack.raw(), self.beyond.raw()];
        let count = if windows[1].bytes.is_empty() { 1 } else { 2 };
        let most = if take.window_bytes == 0 {
            1
        } else {
            take.most_frames
        };
        let stop = walk::frame_pointers(slot, arch, registers, &windows[..count], most);
        match stop {
            _ if take.window_bytes == 0 => Stop::NotWalked,
            // A chain that goes on elsewhere, where there was no time to look.
            Stop::Window | Stop::BadPointer | Stop::Cycle if self.cut => Stop::Budget,
            Stop::Window | Stop::BadPointer if windows[0].bytes.is_empty() => Stop::Unreadable,
            stop => stop,
        }
    }
}

/// Reads until time is over, but at least once: the innermost frames cost little.
struct InTime<'a, 'b> {
    frozen: &'a mut Frozen<'b>,
    vcpu: &'a Vcpu,
    deadline_ns: u64,
    late: bool,
}

impl Reader for InTime<'_, '_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        if self.late {
            return 0;
        }
        let read = self.frozen.read(self.vcpu, address, into);
        self.late = monotonic_ns() >= self.deadline_ns;
        read
    }
}

/// When to wake next.
struct Pace {
    /// The deadline without jitter, and its fraction of a nanosecond.
    grid_ns: u64,
    fraction_ns: f64,
    /// The deadline that counts.
    wake_ns: u64,
    period_ns: f64,
    random: u64,
    most_overhead: Option<f64>,
    housekeeping_ns: u64,
    checked_ns: u64,
    frozen_ns: u64,
}

impl Pace {
    fn new(now_ns: u64, period_ns: f64, most_overhead: Option<f64>) -> Self {
        let mut pace = Pace {
            grid_ns: now_ns,
            fraction_ns: 0.0,
            wake_ns: 0,
            period_ns,
            random: now_ns | 1,
            most_overhead,
            housekeeping_ns: now_ns,
            checked_ns: now_ns,
            frozen_ns: 0,
        };
        pace.advance(1);
        pace.wake_ns = pace.grid_ns;
        pace
    }

    /// Moves the grid on by so many periods.
    fn advance(&mut self, periods: u64) {
        let by_ns = self.fraction_ns + self.period_ns * periods as f64;
        self.grid_ns += by_ns as u64;
        self.fraction_ns = by_ns.fract();
    }

    /// How far from the grid a deadline may be, either way.
    fn jitter_ns(&self) -> u64 {
        self.period_ns as u64 / 8
    }

    /// Sets the next deadline: on the grid, up to an eighth of a period early or late. Returns how
    /// many deadlines had passed already.
    fn next(&mut self, now_ns: u64) -> u64 {
        self.advance(1);
        let mut missed = 0;
        if now_ns > self.grid_ns + self.jitter_ns() {
            missed = ((now_ns - self.grid_ns) as f64 / self.period_ns).ceil() as u64;
            self.advance(missed);
        }
        let span = (self.jitter_ns() * 2).max(1);
        self.wake_ns = self.grid_ns - span / 2 + self.random() % span;
        missed
    }

    /// How many deadlines passed before `end_ns` without a sample.
    fn unmet(&self, end_ns: u64) -> u64 {
        match end_ns > self.grid_ns + self.jitter_ns() {
            true => ((end_ns - self.grid_ns) as f64 / self.period_ns) as u64 + 1,
            false => 0,
        }
    }

    /// xorshift64 (Marsaglia, "Xorshift RNGs", 2003): not to run in step with the guest needs no more.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Accounts for a freeze; once a second, lowers the rate if the guest stood still too long.
    fn spent(&mut self, frozen_ns: u64, control: &Control) {
        const CHECK_NS: u64 = 1_000_000_000;
        self.frozen_ns += frozen_ns;
        let passed_ns = self.wake_ns.saturating_sub(self.checked_ns);
        let Some(most) = self.most_overhead else {
            return;
        };
        if passed_ns < CHECK_NS {
            return;
        }
        let share = self.frozen_ns as f64 / passed_ns as f64;
        if share > most {
            self.period_ns = (self.period_ns * share / most).min(60e9);
            let slowed_to_ns = &control.progress.slowed_to_ns;
            slowed_to_ns.store(self.period_ns as u64, Ordering::Relaxed);
        }
        self.checked_ns = self.wake_ns;
        self.frozen_ns = 0;
    }

    fn housekeeping_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.housekeeping_ns;
        if due {
            self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_stay_on_the_grid_and_missed_ones_are_counted() {
        let mut pace = Pace::new(0, 1000.0, None);
        let mut missed = 0;
        for round in 2..1000 {
            missed += pace.next(pace.wake_ns + 10);
            let grid = round * 1000;
            assert!(
                pace.wake_ns.abs_diff(grid) <= 125,
                "{} against {grid}",
                pace.wake_ns
            );
        }
        assert_eq!(missed, 0);
        let before = pace.grid_ns;
        assert_eq!(pace.next(before + 5500), 5);
        assert_eq!(pace.grid_ns, before + 6000);
    }

    /// Four hours at a rate whose period is no whole number of nanoseconds.
    #[test]
    fn the_grid_does_not_drift_from_the_rate() {
        let rate_hz = 997.0;
        let mut pace = Pace::new(0, 1e9 / rate_hz, None);
        let mut deadlines = 1;
        while deadlines < 4 * 3600 * 997 {
            // Now and then, some are missed.
            let late_ns = if deadlines % 50_021 == 0 {
                1_000_000
            } else {
                0
            };
            deadlines += 1 + pace.next(pace.wake_ns + late_ns);
        }
        let due_ns = deadlines as f64 * 1e9 / rate_hz;
        let off_ns = pace.grid_ns as f64 - due_ns;
        assert!(off_ns.abs() < 1_000.0, "{off_ns} ns in four hours");
    }

    #[test]
    fn deadlines_that_pass_before_the_end_are_missed() {
        // Due at 1000, 2000, 3000, each up to 125 ns later.
        let pace = Pace::new(0, 1000.0, None);
        let unmet = [0, 999, 1125, 1126, 2500, 3001].map(|end_ns| pace.unmet(end_ns));
        assert_eq!(unmet, [0, 0, 0, 1, 2, 3]);
    }
}
