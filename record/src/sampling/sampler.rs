//! The loop that takes samples at absolute deadlines, with nothing that could block. Late samples are taken, too;
//! `pace/shared_processor.rs` shows why.
//!
//! Input: a source. Output: filled slots. Must not allocate, format or touch a file. The loop waits only for the
//! deadline and, if only one of several guests may be paused at a time, for the others.

use crate::guest::call_sites::CallSites;
use crate::guest::leaf_caller;
use crate::guest::linux::{self, later::LaterKernels};
use crate::guest::walk;
use crate::sampling::codes::Codes;
use crate::sampling::pace::{Later, Pace};
use crate::sampling::window::{MemoryReader, PIECE_BYTES, Window};
use crate::source::control::{Control, Ending};
use crate::source::ring::Sink;
use crate::source::slot::Slot;
use crate::source::{Frozen, Life, Pushed, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::{monotonic_ns, sleep_exactly, sleep_until, start_promptly};
use crate::sys::signal;
use std::ops::Range;
use uprof::cold::{LossReason, Target, TargetKind};
use uprof::cpu::{SpecialRegisters, is_kernel_address};
use uprof::{Arch, Details, Registers, Stop};

/// Most bytes copied from a second stack.
const BEYOND_BYTES: usize = 4096;

/// Most pieces of code read in one freeze: each takes time, and a note.
const PIECES_AT_ONCE: usize = 8;

/// What to copy of each vCPU, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Take {
    /// Nominal time between samples, with a fraction: in whole nanoseconds, the rate could be 1/10,000 too high.
    pub period_ns: f64,
    /// Stack bytes to copy for the walk or to keep; 0 for the instruction pointer only.
    pub window_bytes: usize,
    /// How many of them become part of the sample.
    pub kept_bytes: usize,
    /// The same if the vCPU is in the kernel of a guest, for unwinding.
    pub kernel_bytes: usize,
    /// Most frames of a chain.
    pub most_frames: usize,
    /// Longest freeze for a sample.
    pub budget_ns: u64,
    /// Largest share of time that the guest may be frozen; the rate is lowered to keep it.
    pub most_overhead: Option<f64>,
    /// For a guest that has not begun.
    pub boot: Option<BootTake>,
}

/// How a boot is sampled.
#[derive(Debug, Clone, Copy)]
pub struct BootTake {
    /// When its first instruction is due.
    pub begins_ns: u64,
    /// Nominal time between samples at first, and how long that lasts.
    pub period_ns: f64,
    pub lasts_ns: u64,
    /// The largest share of that time that the guest may be frozen.
    pub most_overhead: f64,
    /// Whether further boots are sampled, too.
    pub follows: bool,
}

impl Take {
    /// Deadlines from `now_ns` on.
    fn pace(&self, now_ns: u64) -> Pace {
        let usual = (self.period_ns, self.most_overhead);
        self.boot.map_or_else(
            || Pace::new(now_ns, usual.0, usual.1),
            |boot| {
                let later = Later {
                    from_ns: now_ns.saturating_add(boot.lasts_ns),
                    period_ns: usual.0,
                    first_ns: boot.period_ns,
                    most_at_first: boot.most_overhead,
                    most_overhead: usual.1,
                };
                Pace::of_boot(now_ns, later)
            },
        )
    }

    /// Most bytes copied of a second stack.
    fn beyond_bytes(&self) -> usize {
        BEYOND_BYTES.max(self.kernel_bytes).min(self.window_bytes)
    }

    /// Stack bytes to keep of a vCPU at `ip`.
    fn kept_bytes(&self, ip: Option<u64>) -> usize {
        if ip.is_some_and(is_kernel_address) {
            self.kept_bytes.max(self.kernel_bytes)
        } else {
            self.kept_bytes
        }
    }
}

/// Samples a guest that is frozen for each sample, until something ends the recording.
// It runs once. Inlined into its caller, it would be compiled for size in the recorder for dom0.
#[inline(never)]
pub fn stop_world(
    source: &mut dyn StopWorld,
    sink: &mut Sink,
    take: Take,
    control: &mut Control,
    mut later_kernels: Option<LaterKernels>,
) -> Ending {
    let most = Vcpus::MOST.min(sink.slots());
    let mut room = room(most, take);
    let mut round = Round::new(&source.facts().target, most, take, &mut room);
    // Processes need no pieces of code, as their mapped files are known.
    round.codes = (source.facts().target.kind != TargetKind::Process).then(Codes::new);
    if !source.facts().freezes && take.window_bytes > 0 {
        round.sites = Some(CallSites::new(source.facts().target.arch));
    }
    round.until = std::mem::take(&mut control.until);
    if take.boot.is_some() {
        // Until there is one: other guests are at such addresses, too, and have frame pointers.
        round.take.kernel_bytes = 0;
    }
    sleep_exactly();
    start_promptly();
    if let Some(ending) = look(source, sink) {
        return ending;
    }
    if let Some(boot) = take.boot {
        sleep_until(boot.begins_ns);
    }
    let start_ns = monotonic_ns();
    // Any other guest runs already.
    if take.boot.is_some()
        && let Err(error) = source.begin()
    {
        return failed(source, sink, error);
    }
    control.begin(start_ns);
    let mut pace = take.pace(start_ns).in_turn(source.period_slot());
    let mut boot = 0;
    let ip = source.facts().target.arch.special_registers().ip;
    loop {
        if let Some(ending) = wait(source, sink, pace.wake_ns, control) {
            // A sampler that had no processor until the end has missed deadlines.
            let end_ns = monotonic_ns().min(control.stop_at_ns.unwrap_or(u64::MAX));
            let unmet = pace.unmet(end_ns) * round.vcpus_due();
            sink.lose_between(LossReason::Deadline, unmet, [pace.wake_ns, end_ns]);
            if let Some(kernels) = &mut later_kernels
                && matches!(ending, Ending::Duration | Ending::Stopped(_))
            {
                kernels.look_at_last(source);
            }
            return ending;
        }
        let now_ns = monotonic_ns();
        let due_ns = pace.wake_ns;
        // A process's account is of samples at one rate.
        let is_guest = source.facts().target.kind != TargetKind::Process;
        let may_change = take.boot.is_some() || take.most_overhead.is_some() && is_guest;
        let period_ns = may_change.then(|| pace.period_ns());
        match round.sample(source, sink, due_ns, period_ns) {
            Ok(frozen_ns) => pace.spent(frozen_ns, control),
            Err(error) => return failed(source, sink, error),
        }
        if round.is_reached {
            if let Some(kernels) = &mut later_kernels {
                kernels.look_at_last(source);
            }
            return Ending::Stopped("the guest has reached the function of --until".into());
        }
        if let Some(how) = take.boot
            && let Some(vcpu) = round.vcpus.all().first()
            && vcpu.task.space != boot
        {
            if !how.follows {
                let _ = look(source, sink);
                return Ending::TargetEnded("the guest was reset".into());
            }
            boot = vcpu.task.space;
            pace = take.pace(now_ns);
        }
        if let Some(kernels) = &mut later_kernels
            && let Some(vcpu) = round.vcpus.all().first()
            && kernels.after_sample(source, vcpu, vcpu.registers.get(ip), now_ns)
        {
            round.take.kernel_bytes = take.kernel_bytes;
        }
        // Deadlines after the end are not missed.
        let until_ns = monotonic_ns().min(control.stop_at_ns.unwrap_or(u64::MAX));
        let missed = pace.next(until_ns) * round.vcpus_due();
        // While the guest is absent, no deadline is missed.
        if !round.vcpus.are_absent() {
            sink.lose_between(LossReason::Deadline, missed, [due_ns, until_ns]);
        }
        if pace.housekeeping_due(now_ns) {
            sink.report_losses();
            if let Some(ending) = look(source, sink) {
                return ending;
            }
        }
    }
}

/// The ending of a recording whose guest could not be frozen or read because of `error`.
pub fn failed(source: &mut dyn StopWorld, sink: &mut Sink, error: SourceError) -> Ending {
    // If the guest is ending, that is the better message.
    match look(source, sink) {
        Some(Ending::Failed(_)) | None => Ending::Failed(error),
        Some(ending) => ending,
    }
}

/// Makes the source check its guest; returns the ending if there was one.
fn look(source: &mut dyn StopWorld, sink: &mut Sink) -> Option<Ending> {
    match source.between(sink) {
        Ok(Life::Alive) => None,
        Ok(life) => Some(Ending::of_life(life)),
        Err(error) => Some(Ending::Failed(error)),
    }
}

/// Sleeps until `wake_ns`, or until a child reports or someone asks to stop.
fn wait(
    source: &mut dyn StopWorld,
    sink: &mut Sink,
    wake_ns: u64,
    control: &Control,
) -> Option<Ending> {
    loop {
        let seen = signal::news();
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
        let end_ns = control.stop_at_ns.unwrap_or(u64::MAX);
        signal::sleep_unless_news(seen, wake_ns.min(end_ns));
    }
}

/// Forwards the kernel's samples until something ends the recording.
pub fn pushed(source: &mut dyn Pushed, sink: &mut Sink, control: &mut Control) -> Ending {
    let ending = pass_on(source, sink, control);
    source.finish(sink);
    ending
}

fn pass_on(source: &mut dyn Pushed, sink: &mut Sink, control: &mut Control) -> Ending {
    if let Err(error) = source.start() {
        return Ending::Failed(error);
    }
    control.begin(monotonic_ns());
    loop {
        let ending = control.ending(monotonic_ns());
        // Samples up to the end belong to the recording.
        let life = match source.drain(sink) {
            Ok(life) => life,
            Err(error) => return Ending::Failed(error),
        };
        sink.report_losses();
        sink.wake();
        if let Some(ending) = ending {
            return ending;
        }
        if life != Life::Alive {
            return Ending::of_life(life);
        }
        let timeout_ms = control
            .milliseconds_left(monotonic_ns())
            .min(control.longest_wait_ms);
        if let Err(error) = source.wait(timeout_ms as u16) {
            return Ending::Failed(error);
        }
    }
}

/// Memory for the stacks of `most` vCPUs: one allocation, whose pages the kernel provides on first use.
fn room(most: usize, take: Take) -> Vec<u8> {
    vec![0; most * (take.window_bytes + take.beyond_bytes())]
}

/// Memory for one round over all vCPUs.
struct Round<'a> {
    arch: Arch,
    take: Take,
    vcpus: Vcpus,
    /// Stacks, by index in `vcpus`.
    copied: Vec<Copied<'a>>,
    codes: Option<Codes>,
    /// Present if the guest runs on while its stacks are read.
    sites: Option<CallSites>,
    /// Code in which a sample ends the recording, and whether there was one.
    until: Vec<Range<u64>>,
    is_reached: bool,
}

impl<'a> Round<'a> {
    /// For `most` vCPUs; further ones are counted as lost. There are at least as many slots, so a round never waits for
    /// the encoder.
    fn new(target: &Target, most: usize, take: Take, mut room: &'a mut [u8]) -> Self {
        let mut window = |bytes| {
            let (own, rest) = std::mem::take(&mut room).split_at_mut(bytes);
            room = rest;
            Window::new(own)
        };
        let beyond_bytes = take.beyond_bytes();
        let copied = (0..most).map(|_| Copied {
            stack: window(take.window_bytes),
            beyond: window(beyond_bytes),
            cut: false,
            is_kernel: false,
            is_guest: target.kind.is_guest(),
        });
        Round {
            arch: target.arch,
            take,
            vcpus: Vcpus::new(),
            copied: copied.collect(),
            codes: None,
            sites: None,
            until: Vec::new(),
            is_reached: false,
        }
    }

    /// Number of samples that a missed deadline loses: as many as were due in the last round.
    fn vcpus_due(&self) -> u64 {
        (self.vcpus.all().len() as u64 + self.vcpus.missed()).max(1)
    }

    /// Takes one sample of every vCPU, due at `due_ns`; returns how long the guest was frozen.
    fn sample(
        &mut self,
        source: &mut dyn StopWorld,
        sink: &mut Sink,
        due_ns: u64,
        period_ns: Option<u64>,
    ) -> Result<u64, SourceError> {
        // The last round's stacks are cleared before the freeze, to keep the pause short.
        let used = self.vcpus.all().len();
        self.copied.iter_mut().take(used).for_each(Copied::clear);
        let left_out = self.vcpus.clear();
        let mut frozen = Frozen::freeze(source, &mut self.vcpus)?;
        // One reading for both, so that a sample's time minus its delay is exactly its deadline.
        let start_ns = frozen.since_ns;
        let late_ns = start_ns.saturating_sub(due_ns);
        let mut pieces = 0;
        for (vcpu, copied) in self.vcpus.all().iter().zip(&mut self.copied) {
            if vcpu.registers.mask() != 0 {
                let deadline_ns = start_ns + self.take.budget_ns;
                copied.copy(&mut frozen, vcpu, self.arch, self.take, deadline_ns);
                if let Some(codes) = &mut self.codes
                    && !copied.cut
                    && pieces < PIECES_AT_ONCE
                {
                    let read = codes.read(&mut frozen, vcpu, self.arch, sink, start_ns);
                    pieces += usize::from(read);
                }
            }
        }
        let frozen_ns = frozen.resume()?;
        let cost_ns = (!source.was_left_alone()).then_some(frozen_ns);
        source.complete(&mut self.vcpus);
        let beyond = self.vcpus.all().len().saturating_sub(self.copied.len()) as u64;
        if left_out + beyond > 0 {
            sink.lose(LossReason::ReadFailed, left_out + beyond, start_ns);
        }
        let missed = self.vcpus.missed();
        if missed > 0 {
            sink.lose(LossReason::Deadline, missed, start_ns);
        }
        let details = Details {
            cost_ns,
            late_ns: Some(late_ns),
            period_ns,
            ..Details::default()
        };
        self.walk_all(source, sink, start_ns, details);
        Ok(cost_ns.unwrap_or(0))
    }

    /// After the guest runs again: walks the copies and puts them into slots, as many as are free. `measured` holds the
    /// cost of this round and its delay.
    fn walk_all(
        &mut self,
        source: &mut dyn StopWorld,
        sink: &mut Sink,
        start_ns: u64,
        measured: Details,
    ) {
        for (vcpu, copied) in self.vcpus.all().iter().zip(&self.copied) {
            let Some(mut slot) = sink.take(start_ns) else {
                continue;
            };
            slot.reset(start_ns, vcpu.task, vcpu.state);
            slot.details = Details {
                cost_ns: measured.cost_ns,
                late_ns: measured.late_ns,
                period_ns: measured.period_ns,
                ..vcpu.details
            };
            slot.registers = vcpu.registers;
            if vcpu.registers.mask() != 0 {
                slot.stop = copied.walk(&mut slot, self.arch, &vcpu.registers, self.take);
                // Its stack bytes are then inconsistent, and no unwind rule may be applied to them.
                let has_moved = source.has_moved(vcpu);
                match &mut self.sites {
                    Some(sites) => {
                        if has_moved {
                            copied.keep_fitting(&mut slot, sites, source, vcpu);
                        }
                        if let (Stop::Complete, Some(end)) = (slot.stop, slot.chain().last())
                            && !sites.ends_usually(vcpu, end.address)
                            && has_moved
                        {
                            slot.stop = Stop::Moved;
                        }
                    }
                    None if has_moved && slot.stop != Stop::NotWalked => {
                        slot.keep_frames(1);
                        slot.stop = Stop::Moved;
                    }
                    _ => {}
                }
                if let Some(codes) = &mut self.codes {
                    codes.want(vcpu, self.arch, slot.chain());
                }
                let chain = slot.chain();
                let is_end =
                    |code: &Range<u64>| chain.iter().any(|frame| code.contains(&frame.address));
                self.is_reached |= self.until.iter().any(is_end);
                let stack = copied.stack.raw();
                let ip = self.arch.special_registers().ip;
                let kept_bytes = self.take.kept_bytes(vcpu.registers.get(ip));
                let kept_bytes = kept_bytes.min(stack.bytes.len());
                slot.keep_stack = kept_bytes > 0 && !has_moved;
                if slot.keep_stack {
                    slot.set_stack(stack.address, &stack.bytes[..kept_bytes]);
                    if copied.is_kernel {
                        slot.add_beyond(copied.beyond.raw());
                    }
                }
            }
            sink.put(slot);
        }
    }
}

/// The copied stack of a vCPU: a part at its stack pointer, and a part where its chain continues elsewhere.
struct Copied<'a> {
    stack: Window<'a>,
    beyond: Window<'a>,
    /// Whether the time budget ended before everything was copied.
    cut: bool,
    /// Whether the stack was copied entirely, for a walk by the kernel's rules.
    is_kernel: bool,
    /// Whether it is a guest's.
    is_guest: bool,
}

impl Copied<'_> {
    fn clear(&mut self) {
        self.stack.begin(0);
        self.beyond.begin(0);
        self.cut = false;
        self.is_kernel = false;
    }

    /// Copies the stack of `vcpu` while the guest is frozen: the bytes to keep, or those that the walk needs.
    fn copy(
        &mut self,
        frozen: &mut Frozen<'_>,
        vcpu: &Vcpu,
        arch: Arch,
        take: Take,
        deadline_ns: u64,
    ) {
        let SpecialRegisters { ip, sp, fp } = arch.special_registers();
        let (Some(sp), Some(fp)) = (vcpu.registers.get(sp), vcpu.registers.get(fp)) else {
            return;
        };
        let ip = vcpu.registers.get(ip);
        self.is_kernel = take.kernel_bytes > 0 && ip.is_some_and(is_kernel_address);
        let mut reader = InTime {
            frozen,
            vcpu,
            deadline_ns,
            has_read: false,
            late: false,
        };
        self.stack.begin(sp);
        if self.is_kernel {
            self.stack
                .fill(linux::stack_bytes(sp, take.kernel_bytes), &mut reader);
            let from = linux::interrupted_stack(sp, self.stack.raw().bytes);
            if let Some(from) = from.filter(|_| !reader.late) {
                self.beyond.begin(from);
                let bytes = linux::stack_bytes(from, take.kernel_bytes);
                self.beyond.fill(bytes, &mut reader);
            }
            self.cut = reader.late;
            return;
        }
        // A walk begins by reading a piece of this size anyway; reading less before it would be an extra read.
        if take.kept_bytes > PIECE_BYTES {
            self.stack.fill(take.kept_bytes, &mut reader);
        }
        if take.window_bytes > 0
            && let Some(address) = self.stack.follow(fp, take.most_frames, &mut reader)
            // If the chain never was inside, the code has no frame pointers.
            && address != fp
        {
            self.beyond.begin(address);
            self.beyond.follow(address, take.most_frames, &mut reader);
        }
        self.cut = reader.late;
    }

    /// Keeps the frames that are consistent, for a vCPU that ran on while its stack was copied.
    fn keep_fitting(
        &self,
        slot: &mut Slot,
        sites: &mut CallSites,
        source: &mut dyn StopWorld,
        vcpu: &Vcpu,
    ) {
        let mut read = |address, into: &mut [u8]| source.read(vcpu, address, into);
        let mut fitting = sites.fitting(vcpu, slot.chain(), &mut read);
        if fitting == 1 && !self.is_kernel {
            fitting = leaf_caller::add(slot, sites, vcpu, self.stack.raw().bytes, read);
        }
        // The kernel's rules would follow inconsistent bytes.
        if fitting < slot.chain().len() || self.is_kernel {
            slot.keep_frames(fitting);
            slot.stop = Stop::Moved;
        }
    }

    /// Walks the copy; returns why the chain ends.
    fn walk(&self, slot: &mut Slot, arch: Arch, registers: &Registers, take: Take) -> Stop {
        // A kernel with unwind rules of its own has no frame pointers.
        let most_frames = if self.is_kernel { 1 } else { take.most_frames };
        let windows = [self.stack.raw(), self.beyond.raw()];
        let count = if windows[1].bytes.is_empty() { 1 } else { 2 };
        let most = if take.window_bytes == 0 {
            1
        } else {
            most_frames
        };
        let stop = walk::frame_pointers(
            slot,
            arch,
            registers,
            &windows[..count],
            most,
            self.is_guest,
        );
        let sp = arch.special_registers().sp;
        match stop {
            _ if take.window_bytes == 0 => Stop::NotWalked,
            // 32-bit code.
            _ if registers.get(sp).is_none() => Stop::NotWalked,
            _ if self.is_kernel && self.cut => Stop::Budget,
            // The chain continues in memory that there was no time to read.
            Stop::Window | Stop::BadPointer | Stop::Cycle if self.cut => Stop::Budget,
            Stop::Window | Stop::BadPointer if windows[0].bytes.is_empty() => Stop::Unreadable,
            stop => stop,
        }
    }
}

/// Reads until the deadline, but at least once. The innermost frames cost little, and most chains need no more, so the
/// clock is read only before a second piece.
struct InTime<'a, 'b> {
    frozen: &'a mut Frozen<'b>,
    vcpu: &'a Vcpu,
    deadline_ns: u64,
    has_read: bool,
    late: bool,
}

impl MemoryReader for InTime<'_, '_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        if std::mem::replace(&mut self.has_read, true) {
            self.late = self.late || monotonic_ns() >= self.deadline_ns;
        }
        if self.late {
            return 0;
        }
        self.frozen.read(self.vcpu, address, into)
    }
}
