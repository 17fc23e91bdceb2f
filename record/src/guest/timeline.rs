//! Where each moment of a vCPU goes: from the events of its thread, in order of time, to nanoseconds by place.

use crate::guest::exits::{ExitTable, Spent};
use crate::guest::pauses::Pauses;
use crate::source::handled::ExitSpan;
use uprof::Task;
use uprof::cold::{ExitCause, ExitKind, Place};

/// An event of a vCPU or its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VcpuEvent {
    /// It left the guest.
    Exit(Exit),
    /// What the exit is about: a port, an address, a register.
    Argument(u64),
    /// KVM returned to the monitor.
    ToMonitor {
        /// Whether only a signal caused that, and nothing is asked of the monitor.
        interrupted: bool,
    },
    /// It enters the guest.
    Entry,
    /// Its thread lost the processor.
    SwitchedOut {
        /// Whether another thread took it; else, this one waits for something.
        preempted: bool,
    },
    /// Its thread has a processor again.
    SwitchedIn,
    /// Events were lost before this one.
    Lost,
    /// From now on exits are not recorded, but switches, and the next event if it shows what the vCPU does now.
    Unwatched,
    /// Exits are recorded again.
    Watched {
        /// Whether events have shown what it does now.
        known: bool,
    },
}

/// An exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Its cause.
    pub cause: ExitCause,
    /// Whether the vCPU has nothing to do until an interrupt comes.
    pub is_halt: bool,
    /// Whether an interrupt of the host caused it, so that the recorder may have.
    pub is_interrupt: bool,
}

/// The code that a vCPU's thread executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Unknown,
    Guest,
    Hypervisor,
    Monitor,
}

/// Whether a thread has a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cpu {
    On,
    Preempted,
    Asleep,
}

/// Nanoseconds whose place is not known because exits were not recorded on purpose, with a processor and asleep.
#[derive(Debug, Clone, Copy, Default)]
struct Unwatched {
    awake_ns: u64,
    asleep_ns: u64,
}

impl Unwatched {
    fn add(&mut self, cpu: Cpu, ns: u64) {
        match cpu {
            Cpu::On => self.awake_ns += ns,
            Cpu::Asleep => self.asleep_ns += ns,
            Cpu::Preempted => {}
        }
    }

    fn merge(&mut self, other: Unwatched) {
        self.awake_ns += other.awake_ns;
        self.asleep_ns += other.asleep_ns;
    }
}

/// The time of one vCPU.
#[derive(Debug)]
pub struct Timeline {
    task: Task,
    /// All time before this was spent.
    at_ns: u64,
    mode: Mode,
    cpu: Cpu,
    exit: Option<Exit>,
    /// Whether exits were recorded when it began: else it counts among those that were not.
    exit_is_watched: bool,
    /// When that began, and when KVM returned to the monitor.
    exit_ns: (u64, Option<u64>),
    /// Whether it has been in the guest.
    has_run: bool,
    /// Whether it went back to KVM after an interruption and has not run since: it is halted, or was never started.
    waits_from_start: bool,
    /// Since the exit.
    of_exit: Spent,
    /// Since the last [`Timeline::take`], and how much of it the thread was asleep.
    spent: Spent,
    asleep: Spent,
    /// Whether exits are recorded.
    is_watched: bool,
    /// How much of [`Place::Unknown`] it was not watched.
    unwatched: Unwatched,
    /// How much of it has been watched since then without an event; and how much of it an exit's end has shown to be in
    /// the hypervisor or the monitor.
    unclear: Option<Unwatched>,
    in_exits: Unwatched,
    /// How much of [`Place::Hypervisor`] was of exits that it ended by itself.
    ended_by_hypervisor_ns: u64,
    preempted_ns: u64,
    /// Time that the thread waited for a processor, by the kernel's count, and has not been moved to
    /// [`Place::Ready`] yet.
    pub(crate) delay_ns: i64,
}

fn index(place: Place) -> usize {
    usize::from(place.number())
}

impl Timeline {
    /// The time of a vCPU from `now_ns` on.
    pub fn new(task: Task, now_ns: u64) -> Self {
        Timeline {
            task,
            at_ns: now_ns,
            mode: Mode::Unknown,
            cpu: Cpu::On,
            exit: None,
            exit_is_watched: true,
            exit_ns: (0, None),
            has_run: false,
            waits_from_start: false,
            of_exit: Spent::default(),
            spent: Spent::default(),
            asleep: Spent::default(),
            is_watched: true,
            unwatched: Unwatched::default(),
            unclear: None,
            in_exits: Unwatched::default(),
            ended_by_hypervisor_ns: 0,
            preempted_ns: 0,
            delay_ns: 0,
        }
    }

    /// The vCPU.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Whether it has been in the guest.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    fn place(&self) -> Place {
        let halts = self.exit.is_some_and(|exit| exit.is_halt) || self.waits_from_start;
        match (self.cpu, self.mode) {
            (Cpu::Preempted, _) => Place::Ready,
            (Cpu::Asleep, Mode::Hypervisor | Mode::Monitor | Mode::Unknown) if halts => {
                Place::Halted
            }
            (Cpu::On, Mode::Hypervisor) if halts => Place::Halted,
            (_, Mode::Unknown) => Place::Unknown,
            (_, Mode::Guest) => Place::Guest,
            (_, Mode::Hypervisor) => Place::Hypervisor,
            (_, Mode::Monitor) => Place::Monitor,
        }
    }

    /// Spends the time until `to_ns`; `pauses` has the recorder's.
    pub fn advance(&mut self, to_ns: u64, pauses: &Pauses) {
        let Some(ns) = to_ns.checked_sub(self.at_ns) else {
            return;
        };
        // A thread that waits for a processor would do so without the pause.
        let paused_ns = match self.cpu {
            Cpu::Preempted => 0,
            Cpu::On | Cpu::Asleep => pauses.within(self.at_ns, to_ns).min(ns),
        };
        self.at_ns = to_ns;
        let ran_ns = ns - paused_ns;
        let place = self.place();
        let mut counted = place;
        if !self.is_watched && self.cpu != Cpu::Preempted {
            counted = Place::Unknown;
            self.unwatched.add(self.cpu, ran_ns);
        } else if let (Some(unclear), Place::Unknown) = (&mut self.unclear, place) {
            unclear.add(self.cpu, ran_ns);
        }
        self.spend(place, counted, ran_ns);
        if paused_ns > 0 {
            self.spend(Place::Paused, Place::Paused, paused_ns);
        }
    }

    fn spend(&mut self, of_exit: Place, place: Place, ns: u64) {
        self.of_exit[index(of_exit)] += ns;
        self.spent[index(place)] += ns;
        match self.cpu {
            Cpu::On => {}
            Cpu::Preempted => self.preempted_ns += ns,
            Cpu::Asleep => self.asleep[index(place)] += ns,
        }
    }

    /// Handles an event at `time_ns`. Exits that end are added to `table`.
    pub fn handle(
        &mut self,
        event: VcpuEvent,
        time_ns: u64,
        pauses: &Pauses,
        table: &mut ExitTable,
    ) {
        self.advance(time_ns, pauses);
        match event {
            VcpuEvent::Exit(_) => self.clear(Mode::Guest),
            VcpuEvent::ToMonitor { interrupted: false } => self.clear(Mode::Hypervisor),
            // KVM handled the exit, or the monitor did.
            VcpuEvent::Entry => self.clear(Mode::Monitor),
            _ => {}
        }
        match event {
            VcpuEvent::Exit(exit) => {
                (self.mode, self.exit) = (Mode::Hypervisor, Some(exit));
                self.exit_is_watched = self.is_watched;
                self.exit_ns = (time_ns, None);
                // A thread that exits runs, even if the record of its switch was lost.
                self.cpu = Cpu::On;
                (self.has_run, self.waits_from_start) = (true, false);
                self.of_exit = Spent::default();
            }
            VcpuEvent::Argument(argument) => {
                if let Some(exit) = &mut self.exit {
                    exit.cause.argument.get_or_insert(argument);
                }
            }
            // It may be halted, and goes on with that.
            VcpuEvent::ToMonitor { interrupted: true } if self.unclear.is_some() => {}
            VcpuEvent::ToMonitor { interrupted } => {
                self.waits_from_start = interrupted && !self.has_run;
                // A KVM that doesn't say when it enters the guest would stay in the monitor.
                if self.has_run {
                    self.mode = Mode::Monitor;
                    self.exit_ns.1.get_or_insert(time_ns);
                }
            }
            VcpuEvent::Entry => {
                if let Some(exit) = self.exit.take().filter(|_| self.exit_is_watched) {
                    table.add(self.task, self.cause_of(exit), &self.of_exit);
                    if self.exit_ns.1.is_none() {
                        self.ended_by_hypervisor_ns += self.of_exit[index(Place::Hypervisor)];
                    }
                }
                (self.mode, self.cpu) = (Mode::Guest, Cpu::On);
                (self.has_run, self.waits_from_start) = (true, false);
            }
            VcpuEvent::SwitchedOut { preempted } => {
                self.cpu = if preempted {
                    Cpu::Preempted
                } else {
                    Cpu::Asleep
                };
            }
            VcpuEvent::SwitchedIn => self.cpu = Cpu::On,
            VcpuEvent::Lost => {
                (self.mode, self.exit) = (Mode::Unknown, None);
                self.waits_from_start = false;
            }
            VcpuEvent::Unwatched => self.is_watched = false,
            VcpuEvent::Watched { known } => {
                self.is_watched = true;
                if !known {
                    self.clear(Mode::Unknown);
                    (self.mode, self.exit) = (Mode::Unknown, None);
                    self.waits_from_start = false;
                    self.unclear = Some(Unwatched::default());
                }
            }
        }
    }

    /// Places the time since the vCPU was watched again, by the first event, which shows what it `was` doing.
    fn clear(&mut self, was: Mode) {
        let Some(unclear) = self.unclear.take() else {
            return;
        };
        let place = match was {
            Mode::Unknown => return self.unwatched.merge(unclear),
            Mode::Monitor => return self.in_exits.merge(unclear),
            Mode::Guest => index(Place::Guest),
            Mode::Hypervisor => index(Place::Hypervisor),
        };
        let unknown = index(Place::Unknown);
        let all_ns = unclear.awake_ns + unclear.asleep_ns;
        self.spent[unknown] -= all_ns;
        self.spent[place] += all_ns;
        self.asleep[unknown] -= unclear.asleep_ns;
        self.asleep[place] += unclear.asleep_ns;
    }

    /// The cause of an exit that ended: the recorder's stop is none of the guest's.
    fn cause_of(&self, exit: Exit) -> ExitCause {
        if exit.is_interrupt && self.of_exit[index(Place::Paused)] > 0 {
            return ExitCause {
                kind: ExitKind::Recorder,
                reason: 0,
                address: None,
                argument: None,
            };
        }
        exit.cause
    }

    /// The exit that is being handled; `None` if the vCPU waits for an interrupt.
    pub fn handles(&self) -> Option<ExitSpan> {
        let exit = self.exit.filter(|exit| !exit.is_halt)?;
        let (began_ns, to_monitor_ns) = self.exit_ns;
        Some(ExitSpan {
            cause: self.cause_of(exit),
            began_ns,
            to_monitor_ns,
        })
    }

    /// Whether the next event shows something of the time before: the end of an exit that counts, or what it did since
    /// it is watched again.
    pub fn needs_event(&self) -> bool {
        self.exit.is_some() && self.exit_is_watched || self.unclear.is_some()
    }

    /// Shares out the time in which exits were not recorded as the rest was spent, and returns for how much time with a
    /// processor the exits since then stand, and in how much of it they were recorded. `None` if that was all of it.
    pub fn share_out(&mut self) -> Option<(u64, u64)> {
        // What no event has shown yet: the time that was told can't be placed later.
        if let Some(unclear) = &mut self.unclear {
            let unclear = std::mem::take(unclear);
            self.unwatched.merge(unclear);
        }
        let in_exits = std::mem::take(&mut self.in_exits);
        let mut alike = self.divided(&[Place::Hypervisor, Place::Monitor, Place::Halted]);
        // KVM would have said if it had turned to the monitor.
        let by_hypervisor_ns = std::mem::take(&mut self.ended_by_hypervisor_ns);
        let of_hypervisor = &mut alike[0][index(Place::Hypervisor)];
        *of_hypervisor = by_hypervisor_ns.min(*of_hypervisor);
        self.share(in_exits, &alike);
        let unwatched = std::mem::take(&mut self.unwatched);
        let alike = self.divided(&[
            Place::Guest,
            Place::Hypervisor,
            Place::Monitor,
            Place::Halted,
        ]);
        self.share(unwatched, &alike);
        let (watched_ns, unwatched_ns) = (alike[0].iter().sum::<u64>(), unwatched.awake_ns);
        (unwatched_ns > 0 && watched_ns > 0).then(|| (watched_ns + unwatched_ns, watched_ns))
    }

    /// The time at these places since the last [`Timeline::take`], with a processor and asleep.
    fn divided(&self, places: &[Place]) -> [Spent; 2] {
        let [mut awake, mut asleep] = [Spent::default(); 2];
        for place in places.iter().map(|place| index(*place)) {
            awake[place] = self.spent[place] - self.asleep[place];
            asleep[place] = self.asleep[place];
        }
        [awake, asleep]
    }

    /// Moves unknown time to places in proportion to `alike`: time with a processor, and asleep. Without any, it stays.
    fn share(&mut self, unknown: Unwatched, [awake, asleep]: &[Spent; 2]) {
        let part = |ns: u64, of: &Spent, place: usize| {
            let all = of.iter().sum::<u64>().max(1);
            let part = u128::from(ns) * u128::from(of[place]) / u128::from(all);
            u64::try_from(part).unwrap_or(0)
        };
        for place in 0..awake.len() {
            let awake_ns = part(unknown.awake_ns, awake, place);
            let asleep_ns = part(unknown.asleep_ns, asleep, place);
            self.spent[place] += awake_ns + asleep_ns;
            self.spent[index(Place::Unknown)] -= awake_ns + asleep_ns;
            self.asleep[place] += asleep_ns;
            self.asleep[index(Place::Unknown)] -= asleep_ns;
        }
    }

    /// The time spent since the last call. `delay_ns` is for how long the thread waited for a processor, by the
    /// kernel's count since then: what it waited after it was woken looks like sleep until then.
    pub fn take(&mut self, delay_ns: u64) -> Spent {
        let (delay_ns, preempted_ns) = [delay_ns, std::mem::take(&mut self.preempted_ns)]
            .map(|ns| i64::try_from(ns).unwrap_or(i64::MAX))
            .into();
        self.delay_ns = (self.delay_ns.saturating_add(delay_ns)).saturating_sub(preempted_ns);
        let (mut spent, asleep) = (
            std::mem::take(&mut self.spent),
            std::mem::take(&mut self.asleep),
        );
        let all_ns: u64 = asleep.iter().sum();
        let wanted_ns = u64::try_from(self.delay_ns).unwrap_or(0).min(all_ns);
        let mut moved_ns = 0;
        for (place, ns) in asleep.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            let share = u128::from(wanted_ns) * u128::from(ns) / u128::from(all_ns);
            let part_ns = u64::try_from(share).unwrap_or(0).min(spent[place]);
            spent[place] -= part_ns;
            moved_ns += part_ns;
        }
        spent[index(Place::Ready)] += moved_ns;
        self.delay_ns -= moved_ns as i64;
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::pauses::pauses as both_ends;
    use uprof::cold::Exits;

    const TASK: Task = Task { space: 0, vcpu: 0 };

    fn exit(reason: u64) -> VcpuEvent {
        VcpuEvent::Exit(Exit {
            cause: ExitCause {
                kind: ExitKind::Svm,
                reason,
                address: Some(0x1000),
                argument: None,
            },
            is_halt: reason == 0x78,
            is_interrupt: reason == 0x60,
        })
    }

    /// Places and exits of events, at these times from 0 on.
    fn told(
        events: &[(u64, VcpuEvent)],
        pauses: &[(u64, u64)],
        delay_ns: u64,
        end_ns: u64,
    ) -> (Vec<(Place, u64)>, Vec<Exits>) {
        let mut timeline = Timeline::new(TASK, 0);
        let (mut table, (mut writer, mut paused)) = (ExitTable::default(), both_ends(0));
        for (first_ns, last_ns) in pauses {
            writer.begin(*first_ns);
            writer.end(*last_ns);
        }
        paused.take();
        for (time_ns, event) in events {
            timeline.handle(*event, *time_ns, &paused, &mut table);
        }
        timeline.advance(end_ns, &paused);
        let spent = timeline.take(delay_ns);
        assert_eq!(
            spent.iter().sum::<u64>(),
            end_ns,
            "every moment has one place"
        );
        (crate::guest::exits::places(&spent), table.take(0, end_ns))
    }

    /// Of a thread that runs and sleeps on while its exits are not recorded, twice as long as while they are.
    #[test]
    fn time_that_is_not_watched_is_shared_out_as_the_rest() {
        let (mut timeline, mut table) = (Timeline::new(TASK, 0), ExitTable::default());
        let (_, paused) = both_ends(0);
        let events = [
            (0, VcpuEvent::Entry),
            (60, exit(0x78)),
            (70, OUT),
            (100, VcpuEvent::SwitchedIn),
            (110, VcpuEvent::Entry),
            (150, exit(0x7b)),
            (160, ASKS),
            (200, VcpuEvent::Unwatched),
            (300, OUT),
            (360, VcpuEvent::SwitchedIn),
            (400, PREEMPTED),
            (450, VcpuEvent::SwitchedIn),
            (480, VcpuEvent::Watched { known: false }),
            (500, VcpuEvent::Entry),
        ];
        for (time_ns, event) in events {
            timeline.handle(event, time_ns, &paused, &mut table);
        }
        timeline.advance(510, &paused);
        // 200 of 370 ns awake were watched, the last 20 of an exit, and 30 of 90 asleep.
        let (all_ns, watched_ns) = timeline.share_out().unwrap();
        assert!((368..=370).contains(&all_ns) && (198..=200).contains(&watched_ns));
        assert_eq!(timeline.share_out(), None);
        let spent = timeline.take(50);
        assert_eq!(spent.iter().sum::<u64>(), 510);
        let places = crate::guest::exits::places(&spent);
        let found = |place| {
            places
                .iter()
                .find(|(one, _)| *one == place)
                .map(|one| one.1)
        };
        // Of 20 ns 2/3 are the monitor's and 1/3 halted, as KVM ended no exit by itself; then 170 ns as these 200 are.
        assert_eq!(found(Place::Guest), Some(110 + 93));
        assert_eq!(found(Place::Halted), Some(26 + 22 + 30 + 60));
        assert_eq!(found(Place::Monitor), Some(53 + 45));
        assert_eq!(found(Place::Ready), Some(50));
        assert!(found(Place::Unknown).unwrap_or(0) <= 6, "{places:?}");
    }

    #[test]
    fn a_halt_that_the_recorder_interrupts_is_not_the_monitors() {
        let (mut timeline, mut table) = (Timeline::new(TASK, 0), ExitTable::default());
        let (_, paused) = both_ends(0);
        let events = [
            (0, VcpuEvent::Entry),
            (100, exit(0x78)),
            (110, OUT),
            (200, VcpuEvent::Unwatched),
            (300, VcpuEvent::Watched { known: false }),
            (400, VcpuEvent::SwitchedIn),
            (400, SIGNAL),
            (400, OUT),
            (600, VcpuEvent::SwitchedIn),
            (600, VcpuEvent::Entry),
        ];
        for (time_ns, event) in events {
            timeline.handle(event, time_ns, &paused, &mut table);
        }
        timeline.share_out();
        let spent = timeline.take(0);
        let halted = spent[index(Place::Halted)];
        assert_eq!(
            (spent[index(Place::Guest)], halted),
            (100, 500),
            "{spent:?}"
        );
    }

    #[test]
    fn time_that_was_told_is_not_placed_again() {
        let (mut timeline, mut table) = (Timeline::new(TASK, 0), ExitTable::default());
        let (_, paused) = both_ends(0);
        let events = [
            (0, VcpuEvent::Entry),
            (100, VcpuEvent::Unwatched),
            (200, VcpuEvent::Watched { known: false }),
        ];
        for (time_ns, event) in events {
            timeline.handle(event, time_ns, &paused, &mut table);
        }
        for (end_ns, event) in [(300, None), (400, Some(exit(0x7b))), (500, None)] {
            if let Some(event) = event {
                timeline.handle(event, end_ns - 10, &paused, &mut table);
            }
            timeline.advance(end_ns, &paused);
            timeline.share_out();
            let since_ns = if end_ns == 300 { 0 } else { end_ns - 100 };
            assert_eq!(timeline.take(0).iter().sum::<u64>(), end_ns - since_ns);
        }
    }

    const OUT: VcpuEvent = VcpuEvent::SwitchedOut { preempted: false };
    const PREEMPTED: VcpuEvent = VcpuEvent::SwitchedOut { preempted: true };
    const ASKS: VcpuEvent = VcpuEvent::ToMonitor { interrupted: false };
    const SIGNAL: VcpuEvent = VcpuEvent::ToMonitor { interrupted: true };

    #[test]
    fn an_exit_that_the_monitor_handles() {
        let events = [
            (10, VcpuEvent::Entry),
            (110, exit(0x7b)),
            (112, VcpuEvent::Argument(0x3f8)),
            (112, VcpuEvent::Argument(0x3f9)),
            (115, ASKS),
            (145, VcpuEvent::Entry),
        ];
        let (places, exits) = told(&events, &[], 0, 200);
        let (guest, kvm) = ((Place::Guest, 155), (Place::Hypervisor, 5));
        let (monitor, unknown) = ((Place::Monitor, 30), (Place::Unknown, 10));
        assert_eq!(places, [guest, kvm, monitor, unknown]);
        assert_eq!(exits[0].spent, [kvm, monitor]);
        assert_eq!(exits[0].cause.argument, Some(0x3f8));
        assert_eq!((exits.len(), exits[0].count), (1, 1));
    }

    #[test]
    fn a_halt_is_halted_whoever_waits_for_its_end() {
        let kvm = [
            (0, VcpuEvent::Entry),
            (100, exit(0x78)),
            (110, OUT),
            (900, VcpuEvent::SwitchedIn),
            (910, VcpuEvent::Entry),
        ];
        let (places, exits) = told(&kvm, &[], 0, 1000);
        assert_eq!(places, [(Place::Guest, 190), (Place::Halted, 810)]);
        assert_eq!(exits[0].spent, [(Place::Halted, 810)]);
        // The recorder's stop interrupts the wait, which goes on without another exit.
        let stopped = [
            (0, VcpuEvent::Entry),
            (100, exit(0x78)),
            (110, OUT),
            (300, VcpuEvent::SwitchedIn),
            (302, SIGNAL),
            (304, OUT),
            (350, VcpuEvent::SwitchedIn),
            (351, OUT),
            (900, VcpuEvent::SwitchedIn),
            (910, VcpuEvent::Entry),
        ];
        let (places, _) = told(&stopped, &[(299, 349)], 0, 1000);
        let (paused, monitor) = ((Place::Paused, 50), (Place::Monitor, 2));
        assert!(places.contains(&paused), "{places:?}");
        let monitor_ns = places.iter().find(|(place, _)| *place == monitor.0);
        assert!(monitor_ns.is_none_or(|(_, ns)| *ns <= 12), "{places:?}");
    }

    #[test]
    fn waits_for_a_processor() {
        let events = [
            (0, VcpuEvent::Entry),
            (100, PREEMPTED),
            (160, VcpuEvent::SwitchedIn),
            (200, exit(0x78)),
            (210, OUT),
            (300, VcpuEvent::SwitchedIn),
            (300, VcpuEvent::Entry),
        ];
        // Of the 90 that look like sleep, the thread was awake for 40.
        let (places, _) = told(&events, &[], 60 + 40, 300);
        let (ready, halted) = ((Place::Ready, 100), (Place::Halted, 60));
        assert_eq!(places, [(Place::Guest, 140), ready, halted]);
    }

    #[test]
    fn what_the_recorder_causes_is_its_own() {
        let events = [
            (0, VcpuEvent::Entry),
            (100, exit(0x60)),
            (105, SIGNAL),
            (106, OUT),
            (150, VcpuEvent::SwitchedIn),
            (160, VcpuEvent::Entry),
        ];
        let (places, exits) = told(&events, &[(99, 149)], 0, 200);
        assert_eq!(exits[0].cause.kind, ExitKind::Recorder);
        assert!(places.contains(&(Place::Paused, 50)), "{places:?}");
        let (_, exits) = told(&events, &[], 0, 200);
        assert_eq!(exits[0].cause.kind, ExitKind::Svm);
    }

    #[test]
    fn after_a_loss_nothing_is_known_until_the_next_event() {
        let events = [
            (0, VcpuEvent::Entry),
            (100, VcpuEvent::Lost),
            (150, VcpuEvent::Entry),
            (160, exit(0x72)),
            (150, VcpuEvent::Entry),
        ];
        let (places, exits) = told(&events, &[], 0, 200);
        assert!(places.contains(&(Place::Unknown, 50)), "{places:?}");
        assert_eq!(exits[0].spent, [], "a time that runs back");
    }

    #[test]
    fn a_vcpu_that_was_never_started_is_halted() {
        let events = [
            (10, SIGNAL),
            (12, OUT),
            (20, VcpuEvent::SwitchedIn),
            (21, OUT),
        ];
        let (places, _) = told(&events, &[(9, 19)], 0, 1000);
        assert!(places.contains(&(Place::Halted, 980)), "{places:?}");
        assert!(places.contains(&(Place::Unknown, 10)), "{places:?}");
    }
}
