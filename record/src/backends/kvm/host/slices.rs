//! Slices of time in which a vCPU's exits are recorded, where it has too many for all of them.
//!
//! Events come in; out comes which of them count, when to stop recording exits, and when to begin again. A vCPU with
//! twice as many exits as allowed is watched for half of the time. When a slice begins and ends is known before, and
//! doesn't depend on what the vCPU does then: if slices began or ended with exits, long ones would have too large or
//! too small a share. An exit that began in a slice is followed to its end, so that its length is known. The kernel
//! records again some milliseconds before a slice, so that it is known what the vCPU does when that begins. Otherwise,
//! only the switches of the vCPU's thread are known between slices.

use crate::guest::exits::ExitTable;
use crate::guest::pauses::Pauses;
use crate::guest::timeline::{Timeline, VcpuEvent};

/// A slice and the break after it.
const ROUND_NS: u64 = 40_000_000;
/// The shortest slice.
const SLICE_NS_MIN: u64 = 2_500_000;
/// So long before a slice the kernel records again: events are only read every few milliseconds.
const AHEAD_NS: u64 = 6_000_000;

/// One vCPU's slices.
#[derive(Debug)]
pub struct Slices {
    most_hz: u64,
    /// Whether the kernel records exits, and whether time is within a slice.
    records: bool,
    is_watched: bool,
    /// When that ends.
    until_ns: u64,
    began_ns: u64,
    /// Exits since then.
    exits: u64,
    /// Exits and time of slices that were, the older the less of them.
    past: (u128, u128),
    /// The length of the next slice.
    slice_ns: u64,
    /// The kernel goes on until an event shows what the vCPU was doing at the end of the slice.
    follows: bool,
    /// Whether an event has shown what the vCPU does since the kernel records.
    is_shown: bool,
    random: u64,
}

impl Slices {
    /// All exits are recorded from `now_ns` on, up to `most_hz` a second.
    pub fn new(most_hz: u64, now_ns: u64) -> Self {
        Slices {
            most_hz: most_hz.max(1),
            records: true,
            is_watched: true,
            until_ns: now_ns.saturating_add(ROUND_NS),
            began_ns: now_ns,
            exits: 0,
            past: (0, 0),
            slice_ns: ROUND_NS,
            follows: false,
            is_shown: false,
            random: now_ns,
        }
    }

    /// Whether there are breaks between them.
    pub fn are_apart(&self) -> bool {
        !self.is_watched || self.slice_ns < ROUND_NS
    }

    /// Handles the beginnings and ends of slices up to `time_ns`. To be called before an event of that time is handled.
    pub fn advance(
        &mut self,
        time_ns: u64,
        timeline: &mut Timeline,
        pauses: &Pauses,
        table: &mut ExitTable,
    ) {
        // Nearly always.
        if time_ns < self.until_ns {
            return;
        }
        while let Some((turn, at_ns)) = self.turn(time_ns, timeline.needs_event()) {
            timeline.handle(turn, at_ns, pauses, table);
        }
    }

    /// The next beginning or end of a slice, with its time. `needs_event`: whether one is to show what the vCPU does.
    fn turn(&mut self, time_ns: u64, needs_event: bool) -> Option<(VcpuEvent, u64)> {
        while self.until_ns <= time_ns {
            let at_ns = self.until_ns;
            if !self.is_watched && !self.records {
                // Nobody has read events for long: the kernel is told first.
                return None;
            }
            let was_watched = self.is_watched;
            if was_watched {
                let break_ns = self.break_ns();
                if break_ns == 0 {
                    (self.began_ns, self.exits) = (at_ns, 0);
                    self.until_ns = at_ns.saturating_add(ROUND_NS);
                    continue;
                }
                self.until_ns = at_ns.saturating_add(break_ns);
                self.follows = needs_event;
            } else {
                self.until_ns = at_ns.saturating_add(self.slice_ns);
            }
            self.is_watched = !was_watched;
            (self.began_ns, self.exits) = (at_ns, 0);
            let event = if was_watched {
                VcpuEvent::Unwatched
            } else {
                let known = std::mem::take(&mut self.follows) || self.is_shown;
                VcpuEvent::Watched { known }
            };
            return Some((event, at_ns));
        }
        None
    }

    /// How long exits are not recorded after a slice that is over; 0 if there were no more than are allowed. It and the
    /// next slice are as long as their number in about ten slices demands: a single one would say too much of the next.
    /// At random, so that no rhythm of a guest meets it.
    fn break_ns(&mut self) -> u64 {
        let (exits, length_ns) = self.past;
        let exits = exits - exits / 10 + u128::from(self.exits);
        let length_ns = length_ns - length_ns / 10 + u128::from(self.until_ns - self.began_ns);
        self.past = (exits, length_ns);
        let allowed = u128::from(self.most_hz) * length_ns / 1_000_000_000;
        if exits <= allowed.max(1) {
            self.slice_ns = ROUND_NS;
            return 0;
        }
        let slice_ns = u128::from(ROUND_NS) * allowed.max(1) / exits;
        let slice_ns = u64::try_from(slice_ns).unwrap_or(ROUND_NS);
        self.slice_ns = slice_ns.clamp(SLICE_NS_MIN, ROUND_NS);
        let break_ns = (ROUND_NS - self.slice_ns).max(AHEAD_NS);
        // Marsaglia's xorshift, Journal of Statistical Software 8, 2003.
        self.random |= 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        break_ns / 2 + self.random % break_ns
    }

    /// Whether an event counts.
    pub fn keeps(&mut self, event: VcpuEvent) -> bool {
        if let VcpuEvent::SwitchedOut { .. } | VcpuEvent::SwitchedIn = event {
            return true;
        }
        self.exits += u64::from(matches!(event, VcpuEvent::Exit(_)));
        match event {
            VcpuEvent::Exit(_) | VcpuEvent::Entry => {
                self.is_shown = true;
                self.follows &= self.is_watched;
            }
            // One that is only interrupted may be halted, or not.
            VcpuEvent::ToMonitor { interrupted: false } => self.is_shown = true,
            VcpuEvent::Lost => {
                (self.is_shown, self.follows) = (false, self.follows && self.is_watched)
            }
            _ => {}
        }
        self.records
    }

    /// Says that all events before `now_ns` were handled. Returns whether the kernel is to record exits from now on;
    /// `None` if nothing changes. It is told at once.
    pub fn records(&mut self, now_ns: u64) -> Option<bool> {
        let is_near = now_ns.saturating_add(AHEAD_NS) >= self.until_ns;
        let records = self.is_watched || self.follows || is_near;
        if records == self.records {
            return None;
        }
        self.records = records;
        self.is_shown = false;
        if records {
            self.until_ns = self.until_ns.max(now_ns.saturating_add(1));
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::exits::ExitTable;
    use crate::guest::pauses::pauses;
    use crate::guest::timeline::{Exit, Timeline};
    use uprof::Task;
    use uprof::cold::{ExitCause, ExitKind, Place};

    const TASK: Task = Task { space: 0, vcpu: 0 };
    const DRAIN_NS: u64 = 4_000_000;
    const SECONDS: u64 = 40;

    fn exit(reason: u64) -> VcpuEvent {
        VcpuEvent::Exit(Exit {
            cause: ExitCause {
                kind: ExitKind::Svm,
                reason,
                address: None,
                argument: None,
            },
            is_halt: false,
            is_interrupt: false,
        })
    }

    /// What was found of a vCPU.
    struct Found {
        /// The share of exits that is recorded.
        seen: f64,
        /// The shares of its time in the guest and in the monitor.
        guest: f64,
        monitor: f64,
        /// How many exits there are of each length.
        counts: Vec<u64>,
    }

    /// Of a vCPU whose exits take what `lengths` says in turn, the first 1 us in KVM and the rest in the monitor, with
    /// 1 us of guest code between two.
    fn found(most_hz: u64, lengths: &[u64]) -> Found {
        let (mut slices, mut timeline) = (Slices::new(most_hz, 0), Timeline::new(TASK, 0));
        let (mut table, paused) = (ExitTable::default(), pauses(0).1);
        let (mut now_ns, mut drained_ns, mut records) = (0, 0, true);
        let mut waiting: Vec<(VcpuEvent, u64)> = Vec::new();
        let lengths = lengths.iter().cycle();
        let asks = VcpuEvent::ToMonitor { interrupted: false };
        let steps = lengths.flat_map(|ns| {
            let left = (exit(*ns), 1_000);
            [left, (asks, 1_000), (VcpuEvent::Entry, *ns - 1_000)]
        });
        for (event, after_ns) in steps {
            now_ns += after_ns;
            if now_ns > SECONDS * 1_000_000_000 {
                break;
            }
            while drained_ns + DRAIN_NS < now_ns {
                drained_ns += DRAIN_NS;
                for (event, time_ns) in waiting.drain(..) {
                    slices.advance(time_ns, &mut timeline, &paused, &mut table);
                    if slices.keeps(event) {
                        timeline.handle(event, time_ns, &paused, &mut table);
                    }
                }
                slices.advance(drained_ns, &mut timeline, &paused, &mut table);
                timeline.advance(drained_ns, &paused);
                records = slices.records(drained_ns).unwrap_or(records);
            }
            if records {
                waiting.push((event, now_ns));
            }
        }
        if let Some((all_ns, watched_ns)) = timeline.share_out() {
            table.scale(TASK, all_ns, watched_ns);
        }
        let spent = timeline.take(0);
        let part = |place: Place| spent[usize::from(place.number())] as f64 / drained_ns as f64;
        let all = table.take(0, drained_ns);
        let sum = |of: &dyn Fn(&uprof::cold::Exits) -> u64| all.iter().map(of).sum::<u64>() as f64;
        let seen = sum(&|one| one.seen) / sum(&|one| one.count);
        Found {
            seen,
            guest: part(Place::Guest),
            monitor: part(Place::Monitor),
            counts: all.iter().map(|one| one.count).collect(),
        }
    }

    fn close(found: f64, wanted: f64, slack: f64) {
        assert!(
            (found / wanted - 1.0).abs() < slack,
            "{found}, and not {wanted}"
        );
    }

    #[test]
    fn what_is_watched_is_as_all_the_rest() {
        // 100,000 exits a second.
        let all = 100_000.0 * SECONDS as f64;
        for (most_hz, recorded) in [(200_000, 1.0), (50_000, 0.5), (10_000, 0.1)] {
            let found = found(most_hz, &[9_000]);
            close(found.seen, recorded, 0.1);
            close(1.0 - found.guest, 0.9, 0.01);
            close(found.monitor, 0.8, 0.01);
            close(found.counts[0] as f64, all, 0.02);
        }
    }

    #[test]
    fn exits_that_are_longer_than_a_slice_have_their_share() {
        // A thousand short ones and a long one.
        let mut lengths = vec![4_000; 999];
        lengths.push(30_000_000);
        let all_ns = lengths.iter().sum::<u64>() + 1_000 * lengths.len() as u64;
        let rounds = (SECONDS * 1_000_000_000 / all_ns) as f64;
        let found = found(5_000, &lengths);
        assert!(found.seen < 0.6, "{}", found.seen);
        let of_rounds = 1_000_000.0 / all_ns as f64;
        close(1.0 - found.guest, 1.0 - of_rounds, 0.02);
        close(found.monitor, 1.0 - 2.0 * of_rounds, 0.02);
        close(found.counts[0] as f64, rounds * 999.0, 0.15);
        close(found.counts[1] as f64, rounds, 0.15);
    }

    #[test]
    fn what_the_monitor_does_for_longer_than_a_slice_is_not_the_hypervisors() {
        let found = found(100, &[1_100, 9_000_000, 1_200]);
        assert!(found.seen < 0.6, "{}", found.seen);
        assert!(1.0 - found.monitor < 0.002, "{}", found.monitor);
    }
}
