//! The encoder thread: takes samples and notes from the ring and writes them.
//!
//! It may allocate, wait and fail without an effect on the sampler. A failed output ends the recording; blocks written
//! before stay readable.

use crate::guest::linux::Linux;
use crate::guest::linux::later::Found;
use crate::guest::vcpu_of;
use crate::source::control::Counters;
use crate::source::handled::HandledExits;
use crate::source::ring::Drain;
use crate::source::slot::{Note, NoteKind, Slot};
use crate::source::{Facts, HeldImage, Namer};
use crate::sys::clock::monotonic_ns;
use crate::writing::guest_kernels::{GuestKernels, StackSettings};
use crate::writing::monitor_part::MonitorPart;
use crate::writing::outlet::Outlet;
use crate::writing::pending::Pending;
use crate::writing::placement::{Boot, Placement};
use crate::writing::shared_observer::SharedObserver;
use crate::writing::wall_clock::WallClock;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use uprof::cold::{
    ClockPair, Code, DECOMPRESSOR, End, Loss, LossReason, Mapping, ModuleChange, ModuleEvent,
    SpaceChange, SpaceEvent, TaskChange, TaskEvent, space_of_root,
};
use uprof::due::is_late;
use uprof::{Durations, State, Task};

/// A killed recorder loses at most this much, plus the records in the kernel's buffers: less than a second in all, even
/// on a busy machine.
const FLUSH_NS: u64 = 400_000_000;
/// How long to sleep at most when there is nothing to do, unless a recording allows more; and at least.
pub const NAP: Duration = Duration::from_millis(5);
const SHORTEST_NAP: Duration = Duration::from_micros(100);
/// Most samples taken in one pass. Losses, names and flushes must not wait for a ring that fills as fast as it is
/// drained.
const TURN: usize = 1024;
/// Most address spaces of a guest that are recorded. Each one takes memory, and room in the file.
const MOST_SPACES: usize = 65_536;

/// How long to sleep for a quarter of the ring's `slots` to fill, at the rate of `gathered` samples since a sleep of
/// `last` began; at most `longest`, which may be shorter than the shortest nap.
fn nap(last: Duration, gathered: usize, slots: usize, longest: Duration) -> Duration {
    let share = slots as f64 / 4.0 / gathered.max(1) as f64;
    Duration::try_from_secs_f64(last.as_secs_f64() * share)
        .unwrap_or(longest)
        .min(longest)
        .max(SHORTEST_NAP)
}

/// Writes one recording.
pub struct Encoder<W: Write> {
    /// `None` after the output failed.
    outlet: Option<Outlet<W>>,
    observer: Arc<SharedObserver>,
    start_ns: u64,
    wall_clock: WallClock,
    /// Whether a sample's cost is a pause of the target.
    freezes: bool,
    pending: Pending,
    placement: Placement,
    /// The address spaces of this boot, and the page-table root of each.
    roots: HashMap<u32, u64>,
    namer: Option<Box<dyn Namer>>,
    /// The opened files that were mapped.
    pub(crate) held: Vec<HeldImage>,
    counted_ns: Option<u64>,
    kernels: GuestKernels,
    /// Where the times of samples are reported, if the target is a guest's monitor.
    pub(crate) reports: Option<HandledExits>,
    /// What the recording of the guest's monitor brings.
    pub(crate) monitor: Option<MonitorPart>,
}

/// The encoder's totals.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Samples written.
    pub samples: u64,
    /// Waits written, which are no samples.
    pub waits: u64,
    /// Samples whose vCPU was not running.
    pub not_running: u64,
    /// Samples taken more than [`uprof::due::LATE_NS`] after their deadline.
    pub late: u64,
    /// Samples lost, by reason.
    pub lost: Vec<(LossReason, u64)>,
    /// Freeze or sampling time, one entry for each round.
    pub cost: Durations,
    /// The error of the output, if any.
    pub output_error: Option<String>,
    /// Bytes and samples of the whole blocks before that error.
    pub sound: (u64, u64),
    /// Whether that error made the encoder stop the sampler.
    pub stopped_sampler: bool,
    /// Processor time that the kernel counted, where it was read.
    pub counted_ns: Option<u64>,
    last_round_ns: Option<u64>,
}

impl Tally {
    /// Totals for the end record.
    pub fn totals(&self) -> Vec<(String, u64)> {
        vec![
            ("samples".into(), self.samples),
            ("not_running".into(), self.not_running),
            ("cost_rounds".into(), self.cost.count),
            (
                "cost_total_ns".into(),
                self.cost.sum_ns.try_into().unwrap_or(u64::MAX),
            ),
        ]
    }

    fn count(&mut self, slot: &Slot) {
        if slot.wait.is_some() {
            self.waits += 1;
        } else {
            self.samples += 1;
            self.not_running += u64::from(slot.state != State::Running);
            self.late += u64::from(is_late(slot.details.late_ns));
        }
        // All vCPUs of a round share one freeze.
        if let Some(cost_ns) = slot.details.cost_ns
            && self.last_round_ns != Some(slot.time_ns)
        {
            self.cost.add(cost_ns);
            self.last_round_ns = Some(slot.time_ns);
        }
    }

    fn lose(&mut self, reason: LossReason, count: u64) {
        match self.lost.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, total)) => *total += count,
            None => self.lost.push((reason, count)),
        }
    }

    fn dropped(&self) -> u64 {
        self.lost.iter().map(|(_, count)| count).sum()
    }
}

impl<W: Write> Encoder<W> {
    /// Writes the start of the recording.
    ///
    /// # Errors
    /// Those of the output.
    pub fn create(
        mut outlet: Outlet<W>,
        facts: &Facts,
        namer: Option<Box<dyn Namer>>,
        clock: ClockPair,
        observer: Arc<SharedObserver>,
    ) -> io::Result<Self> {
        let mut encoder = Encoder {
            outlet: None,
            observer,
            start_ns: clock.monotonic_ns,
            wall_clock: WallClock::new(clock),
            freezes: facts.freezes,
            pending: Pending::default(),
            placement: Placement::new(
                Arc::clone(&facts.images),
                Boot {
                    began_ns: clock.monotonic_ns,
                    space: 0,
                },
            ),
            roots: HashMap::new(),
            namer,
            held: Vec::new(),
            counted_ns: None,
            kernels: GuestKernels::default(),
            reports: None,
            monitor: None,
        };
        let everywhere = encoder.namer.as_mut().map(|namer| namer.begin(clock));
        encoder.pending.modules.extend(everywhere);
        for event in &facts.modules {
            encoder.add_module(event.clone());
        }
        encoder.pending.add_tasks(facts.tasks.iter().cloned());
        outlet.write(&mut encoder.pending, &[], clock.monotonic_ns)?;
        encoder.outlet = Some(outlet);
        Ok(encoder)
    }

    /// Sets the guest's Linux kernel, if it has one yet, and the channel that delivers those of its later boots.
    pub fn set_kernels(
        &mut self,
        first: Option<Linux>,
        later: Receiver<Found>,
        stacks: StackSettings,
    ) {
        self.kernels = GuestKernels::new(later, stacks);
        first.into_iter().for_each(|linux| self.add_kernel(linux));
    }

    /// Takes a kernel. Its processes are new events.
    #[cold]
    fn add_kernel(&mut self, linux: Linux) {
        let Boot {
            began_ns,
            space: boot,
        } = self.placement.boot;
        if linux.boot() != boot {
            return;
        }
        for (space, root) in &self.roots {
            self.pending
                .spaces
                .extend(linux.process_of(*root).map(|(pid, name)| SpaceEvent {
                    time_ns: began_ns,
                    space: *space,
                    root: *root,
                    what: SpaceChange::Named {
                        pid,
                        name: name.to_owned(),
                    },
                }));
        }
        if let Some(linux) = self.kernels.add(linux) {
            self.pending.modules.push(linux.module_event(began_ns));
            if let Some(outlet) = &mut self.outlet {
                outlet.add_kernel(linux);
            }
        }
    }

    /// Names the page tables of the code that unpacks a kernel, from the start of the boot on.
    #[cold]
    fn name_decompressor(&mut self, boot: u32, root: u64) {
        if boot == self.placement.boot.space {
            self.pending.spaces.push(SpaceEvent {
                time_ns: self.placement.boot.began_ns,
                space: space_of_root(boot, root),
                root,
                what: SpaceChange::Named {
                    pid: 0,
                    name: DECOMPRESSOR.to_owned(),
                },
            });
        }
    }

    /// Runs until the sampler has ended and everything is written; sleeps for at most `longest_nap` at a time.
    pub fn run(&mut self, mut drain: Drain, counters: &Counters, longest_nap: Duration) -> Tally {
        let mut tally = Tally::default();
        let mut flushed_ns = self.start_ns;
        let (mut last_nap, mut gathered) = (NAP, 0);
        let mut sleeper = self.observer.sleeper();
        let (mut is_filled, mut has_taken) = (false, false);
        loop {
            let finished = drain.is_finished();
            let (samples, notes) = self.take(&mut drain, &mut tally);
            gathered += samples;
            has_taken |= samples + notes > 0;
            let until_read = self.observer.poll(is_filled);
            if std::mem::take(&mut is_filled) {
                self.take_handled(false);
            }
            let now_ns = monotonic_ns();
            let flush_due_ns = flushed_ns.saturating_add(self.flush_after_ns(has_taken));
            if finished || now_ns >= flush_due_ns {
                self.observe(now_ns, &mut tally);
                self.pending.clocks.extend(self.wall_clock.read());
                self.take_answer(finished, &mut tally);
                if self.freezes {
                    let p99_ns = tally.cost.percentile_ns(0.99).unwrap_or(0);
                    counters.pause_p99_ns.store(p99_ns, Ordering::Relaxed);
                }
                let result = self.flush(finished);
                self.check(result, &mut tally, counters);
                (flushed_ns, has_taken) = (now_ns, false);
            }
            self.publish(&tally, counters, now_ns);
            if finished {
                tally.counted_ns = self.counted_ns;
                return tally;
            }
            if samples + notes == 0 {
                let flush_due_ns = flushed_ns.saturating_add(self.flush_after_ns(has_taken));
                let until_flush = Duration::from_nanos(flush_due_ns.saturating_sub(now_ns));
                let longest = longest_nap.min(until_read).min(until_flush);
                last_nap = nap(last_nap, gathered, drain.slots(), longest);
                gathered = 0;
                is_filled = sleeper.sleep(last_nap);
            }
        }
    }

    /// How long after a flush the next one is due. What a monitor's recording has still has to wait for the guest's;
    /// when it has nothing, its sampler rings.
    fn flush_after_ns(&self, has_taken: bool) -> u64 {
        match (&self.reports, has_taken) {
            (Some(_), true) => FLUSH_NS / 4,
            (Some(_), false) => 2 * FLUSH_NS,
            (None, _) => FLUSH_NS,
        }
    }

    /// Takes what the monitor's samples handled, before exits of that time are forgotten.
    fn take_handled(&mut self, last: bool) {
        if let Some(monitor) = &self.monitor {
            self.pending
                .handled
                .extend(monitor.handled.meet().take(last));
        }
    }

    /// After a panic in [`Encoder::run`]: writes no more, and ends the recording, as all further samples would be
    /// dropped.
    pub fn panicked(&mut self, counters: &Counters) -> Tally {
        self.outlet = None;
        counters.stop();
        Tally {
            output_error: Some("the encoder thread failed; please report this".into()),
            stopped_sampler: true,
            ..Tally::default()
        }
    }

    /// Writes the end record, and returns the size of the file in bytes.
    pub fn finish(&mut self, end: &End, tally: &mut Tally) -> u64 {
        if let Some(outlet) = &mut self.outlet
            && let Err(error) = outlet.flush()
        {
            self.give_up(&error, tally);
        }
        let Some(outlet) = self.outlet.take() else {
            return tally.sound.0;
        };
        tally.sound = (outlet.written_bytes(), outlet.written_samples());
        if outlet.lost() > 0 {
            tally.lose(LossReason::Unwritten, outlet.lost());
        }
        if let Err(error) = outlet.finish(end) {
            tally.output_error.get_or_insert(error.to_string());
        }
        tally.sound.0
    }

    /// Takes samples and notes from the ring, at most `TURN` samples; returns how many of each.
    fn take(&mut self, drain: &mut Drain, tally: &mut Tally) -> (usize, usize) {
        let (mut samples, mut notes) = (0, 0);
        // Those of a boot whose beginning is still among the notes.
        let mut early = Vec::new();
        while let Some(found) = self.kernels.delivered() {
            if found.boot() == self.placement.boot.space {
                self.add_found(found);
            } else {
                early.push(found);
            }
        }
        let Encoder {
            outlet,
            namer,
            kernels,
            roots,
            pending,
            reports,
            ..
        } = self;
        let mut failure = None;
        let mut take = |slot: &Slot| {
            tally.count(slot);
            if let Some(root) = slot.details.root {
                let kernel = kernels.of_boot(slot.task.space);
                pending.spaces.extend(new_space(roots, slot, root, kernel));
            }
            if let Some(namer) = namer {
                namer.see(slot.chain());
                if let Some(ip) = slot.details.guest_ip {
                    namer.see_guest(slot.time_ns, slot.task.space, ip);
                }
            }
            if let Some(reports) = reports {
                reports.meet().sampled(slot.task.vcpu, slot.time_ns);
            }
            let sample = kernels.sample(slot);
            outlet
                .as_mut()
                .map_or(Ok(()), |outlet| outlet.sample(&sample))
        };
        while samples < TURN
            && let Some(result) = drain.sample(&mut take)
        {
            samples += 1;
            if let Err(error) = result {
                failure = Some(error);
                break;
            }
        }
        if let Some(error) = failure {
            self.give_up(&error, tally);
        }
        while drain.note(|note| self.keep(note, tally)).is_some() {
            notes += 1;
        }
        early.into_iter().for_each(|found| self.add_found(found));
        (samples, notes)
    }

    fn add_found(&mut self, found: Found) {
        match found {
            Found::Kernel(kernel) => self.add_kernel(*kernel),
            Found::Decompressor { boot, root } => self.name_decompressor(boot, root),
        }
    }

    fn keep(&mut self, note: &Note, tally: &mut Tally) {
        let Note {
            time_ns,
            task,
            kind,
            ..
        } = *note;
        let ended = |task| TaskEvent {
            time_ns,
            task,
            what: TaskChange::Ended,
        };
        let module_event = |what| ModuleEvent {
            time_ns,
            space: task.space,
            what,
        };
        match kind {
            NoteKind::Named => {
                let named = TaskEvent::named(time_ns, task, note.text());
                self.pending.add_task(named);
            }
            NoteKind::StartedBy(starter) => self.pending.add_started(time_ns, task, starter),
            NoteKind::Code(address) => self.placement.add(Code {
                time_ns,
                space: task.space,
                address,
                bytes: note.bytes().to_vec(),
            }),
            NoteKind::Ended => self.pending.add_task(ended(task)),
            NoteKind::LifeEnded { vcpus } => {
                let all = (0..vcpus).map(|vcpu| ended(Task { vcpu, ..task }));
                self.pending.add_tasks(all);
                if let Some(outlet) = &mut self.outlet {
                    outlet.boot_ended(time_ns);
                }
            }
            NoteKind::LifeBegan { vcpus } => {
                let named = |vcpu| {
                    let name = vcpu_of(vcpu, &note.text());
                    TaskEvent::named(time_ns, Task { vcpu, ..task }, name)
                };
                self.pending.add_tasks((0..vcpus).map(named));
                self.begin_boot(Boot {
                    began_ns: time_ns,
                    space: task.space,
                });
            }
            NoteKind::Cleared => {
                self.add_module(module_event(ModuleChange::Cleared));
                self.observer.replaced(task.space, time_ns);
                // A mapping may be gone before the next regular observation.
                self.observe(time_ns, tally);
            }
            NoteKind::CopiedFrom(space) => {
                self.add_module(module_event(ModuleChange::CopiedFrom(space)));
                self.observer.replaced(task.space, time_ns);
            }
            NoteKind::Mapped {
                start,
                length,
                file_offset,
                file,
            } => {
                self.add_module(module_event(ModuleChange::Mapped(Mapping {
                    start,
                    length,
                    file_offset,
                    path: note.text(),
                    build_id: Vec::new(),
                    file,
                })));
            }
            NoteKind::Lost {
                reason,
                count,
                first_ns,
            } => {
                tally.lose(reason, count);
                let lost = Loss::new(reason, count, [first_ns, time_ns]);
                self.pending.losses.push(lost);
            }
        }
    }

    fn observe(&mut self, now_ns: u64, tally: &mut Tally) {
        let seen = self.observer.look(now_ns);
        self.pending.add_tasks(seen.tasks);
        self.pending.clocks.extend(seen.clocks);
        self.pending.vcpu_times.extend(seen.vcpu_times);
        self.pending.exits.extend(seen.exits);
        for loss in seen.losses {
            tally.lose(loss.reason, loss.count);
            self.pending.losses.push(loss);
        }
        seen.modules
            .into_iter()
            .for_each(|event| self.add_module(event));
        if let Some(times) = seen.times {
            let counted = times.iter().map(|time| time.own_ns + time.ended_ns);
            *self.counted_ns.get_or_insert(0) += counted.sum::<u64>();
            self.pending.times.extend(times);
        }
    }

    /// Adds an event of an address space. The namer may complete it before it is written.
    fn add_module(&mut self, event: ModuleEvent) {
        let unasked = match &mut self.namer {
            Some(namer) => namer.ask(event),
            None => Some(event),
        };
        self.pending.modules.extend(unasked);
    }

    /// Begins another boot of the guest.
    #[cold]
    fn begin_boot(&mut self, boot: Boot) {
        let had_one_space = self.has_one_space();
        self.placement
            .begin(boot, had_one_space, &mut self.pending.modules);
        self.roots.clear();
        self.kernels.begin_boot();
    }

    fn has_one_space(&self) -> bool {
        self.roots.len() <= 1
    }

    /// Paths of images that were not found at their stated addresses; known at the end.
    pub fn unplaced(&self) -> Vec<PathBuf> {
        self.placement.unplaced()
    }

    /// Takes the namer's results; with `last`, waits for outstanding ones.
    fn take_answer(&mut self, last: bool, tally: &mut Tally) {
        let Some(namer) = &mut self.namer else {
            return;
        };
        let answer = namer.answer(last);
        self.held.extend(answer.held);
        self.pending.modules.extend(answer.modules);
        self.pending.parts.extend(answer.parts);
        if answer.lost > 0 {
            let now_ns = self.observer.now_ns();
            tally.lose(LossReason::EventsLost, answer.lost);
            let lost = Loss::new(LossReason::EventsLost, answer.lost, [now_ns; 2]);
            self.pending.losses.push(lost);
        }
    }

    /// Writes the gathered records.
    fn flush(&mut self, last: bool) -> io::Result<()> {
        self.take_handled(last);
        let now_ns = self.observer.now_ns();
        let has_one_space = self.has_one_space();
        let Encoder {
            pending, placement, ..
        } = self;
        if last {
            placement.place_last(has_one_space, &mut pending.modules);
        } else {
            placement.place_new(&mut pending.modules);
        }
        let Some(outlet) = &mut self.outlet else {
            return Ok(());
        };
        if let Some(monitor) = &self.monitor {
            outlet.monitor(&monitor.bytes.take(), now_ns)?;
        }
        self.pending.parts.extend(self.kernels.parts());
        let code = self.placement.take_code();
        outlet.write(&mut self.pending, code, now_ns)
    }

    /// Stops writing after an error of the output.
    fn give_up(&mut self, error: &io::Error, tally: &mut Tally) {
        tally.output_error.get_or_insert(error.to_string());
        if let Some(outlet) = self.outlet.take() {
            tally.sound = (outlet.written_bytes(), outlet.written_samples());
        }
    }

    /// Ends the recording if the output failed.
    fn check(&mut self, result: io::Result<()>, tally: &mut Tally, counters: &Counters) {
        if let Err(error) = result {
            self.give_up(&error, tally);
        }
        if self.outlet.is_none() && !tally.stopped_sampler {
            tally.stopped_sampler = true;
            counters.stop();
        }
    }

    fn publish(&self, tally: &Tally, counters: &Counters, now_ns: u64) {
        counters.samples.store(tally.samples, Ordering::Relaxed);
        counters.dropped.store(tally.dropped(), Ordering::Relaxed);
        counters
            .passed_ns
            .store(now_ns.saturating_sub(self.start_ns), Ordering::Relaxed);
        if let Some(outlet) = &self.outlet {
            counters
                .bytes
                .store(outlet.written_bytes(), Ordering::Relaxed);
        }
    }
}

/// The event of the address space of a sample under `root`, if it is new.
fn new_space(
    known: &mut HashMap<u32, u64>,
    slot: &Slot,
    root: u64,
    linux: Option<&Linux>,
) -> Option<SpaceEvent> {
    let space = space_of_root(slot.task.space, root);
    let is_new = known.len() < MOST_SPACES && known.insert(space, root).is_none();
    let named = |(pid, name): (u32, &str)| SpaceChange::Named {
        pid,
        name: name.to_owned(),
    };
    is_new.then(|| SpaceEvent {
        time_ns: slot.time_ns,
        space,
        root,
        what: linux
            .and_then(|linux| linux.process_of(root))
            .map_or(SpaceChange::Seen, named),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::Wait;

    #[test]
    fn address_spaces_of_a_guest_that_are_told() {
        let mut known = HashMap::new();
        let mut slot = Slot::new(0);
        let mut tell = |root: usize| {
            slot.time_ns += 1;
            new_space(&mut known, &slot, (root as u64) << 12, None).is_some()
        };
        assert!((1..=MOST_SPACES).all(&mut tell));
        assert!(!tell(MOST_SPACES + 1));
        assert!(!tell(1), "known already");
    }

    #[test]
    fn a_wait_is_no_sample_but_its_cost_counts() {
        let (mut tally, mut slot) = (Tally::default(), Slot::new(0));
        slot.details.cost_ns = Some(700);
        for (time_ns, wait) in [(1, None), (2, Some(9)), (3, Some(9))] {
            slot.time_ns = time_ns;
            slot.state = State::Blocked;
            slot.wait = wait.map(|time_ns| Wait { time_ns, count: 1 });
            tally.count(&slot);
        }
        assert_eq!((tally.samples, tally.not_running, tally.waits), (1, 1, 2));
        assert_eq!(tally.cost.count, 3);
    }

    #[test]
    fn naps_are_short_where_the_ring_fills_fast() {
        // 640,000 samples a second: 3,200 in 5 ms, and a ring of 4,000.
        assert_eq!(nap(NAP, 5, 4000, Duration::ZERO), SHORTEST_NAP);
        let nap = |last, gathered| nap(last, gathered, 4000, NAP);
        let busy = nap(NAP, 3200);
        assert_eq!(busy.as_micros(), 1562);
        assert_eq!(nap(busy, 1000), busy);
        assert_eq!(nap(NAP, 1_000_000), SHORTEST_NAP);
        assert_eq!(nap(SHORTEST_NAP, 0), NAP);
        assert_eq!(nap(NAP, 5), NAP);
    }
}
