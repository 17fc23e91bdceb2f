//! Invented switches go in, and the resulting waits come out.

use super::*;
use crate::backends::process::members::Members;
use crate::source::ring::{Drain, ring_of};
use crate::source::slot::NoteKind;

const MS: u64 = 1_000_000;
/// The processor on which all threads run.
const CPU: u64 = 3;
const OUT: u16 = abi::PERF_RECORD_MISC_SWITCH_OUT as u16;
const PREEMPTED: u16 = OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16;

/// The recorder's side of a few threads of process 5.
struct World {
    waits: Waits,
    sink: Sink,
    drain: Drain,
}

/// A wait as it is sent: thread, beginning, state, length, number of waits, frames.
type WaitRow = (u32, u64, State, u64, u64, usize);

impl World {
    fn new() -> World {
        let (sink, drain) = ring_of(64, 0);
        let reader = RecordReader {
            members: Members::new(true),
            executing: Default::default(),
            repeats: Default::default(),
            with_stack: false,
            most_frames: 127,
            ip_only: false,
            since_ns: 0,
            began_ns: 0,
            leaves_out_guests: false,
        };
        World {
            waits: Waits::new(reader, 0),
            sink,
            drain,
        }
    }

    fn record(&mut self, kind: u32, misc: u16, words: &[u64]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.waits.record(kind, misc, &body, 0, &mut self.sink);
    }

    fn task(tid: u32) -> u64 {
        u64::from(tid) << 32 | 5
    }

    fn sample(&mut self, tid: u32, at_ns: u64) {
        let chain = [
            1,
            World::task(tid),
            at_ns,
            CPU,
            2,
            abi::PERF_CONTEXT_USER,
            0x40,
            0,
        ];
        self.record(abi::PERF_RECORD_SAMPLE, 0, &chain);
    }

    fn switch(&mut self, tid: u32, at_ns: u64, misc: u16) {
        self.record(
            abi::PERF_RECORD_SWITCH,
            misc,
            &[World::task(tid), at_ns, CPU],
        );
    }

    fn task_record(&mut self, kind: u32, tid: u32, at_ns: u64) {
        let both = u64::from(tid) << 32 | u64::from(tid);
        let words = [5 << 32 | 5, both, at_ns, World::task(tid), at_ns, CPU];
        self.record(kind, 0, &words);
    }

    fn recorded(&mut self) -> Vec<WaitRow> {
        let mut recorded = Vec::new();
        while let Some(one) = self.drain.sample(|slot| {
            let wait = slot.wait.unwrap();
            let frames = slot.chain().len();
            (
                slot.task.vcpu,
                slot.time_ns,
                slot.state,
                wait.time_ns,
                wait.count,
                frames,
            )
        }) {
            recorded.push(one);
        }
        recorded
    }

    fn lost(&mut self) -> u64 {
        self.sink.report_losses();
        let mut lost = 0;
        while let Some(count) = self.drain.note(|note| match note.kind {
            NoteKind::Lost {
                reason: LossReason::WaitsLost,
                count,
                ..
            } => count,
            _ => 0,
        }) {
            lost += count;
        }
        lost
    }

    fn total(&self, name: &str) -> u64 {
        let totals = self.waits.totals();
        let found = totals.iter().find(|(known, _)| known == name);
        found.map_or(0, |(_, count)| *count)
    }
}

#[test]
fn a_wait_is_from_leaving_to_coming_back() {
    let mut world = World::new();
    world.waits.expect(Task { space: 5, vcpu: 6 });
    world.switch(7, 1, 0);
    assert_eq!(world.total("waits_begun_before_and_left_out"), 1);
    world.sample(7, 10 * MS - 9);
    world.switch(7, 10 * MS, OUT);
    world.sample(8, 11 * MS - 9);
    world.switch(8, 11 * MS, PREEMPTED);
    world.switch(8, 15 * MS, 0);
    world.switch(7, 40 * MS, 0);
    let expected = [
        (8, 11 * MS, State::Ready, 4 * MS, 1, 1),
        (7, 10 * MS, State::Blocked, 30 * MS, 1, 1),
    ];
    assert_eq!(world.recorded(), expected);
    // Still waiting when the recording ends.
    world.sample(7, 50 * MS);
    world.switch(7, 50 * MS, OUT);
    world.waits.end(70 * MS, &mut world.sink, |_| ());
    assert_eq!(
        world.recorded(),
        [(7, 50 * MS, State::Blocked, 20 * MS, 1, 1)]
    );
    assert_eq!(world.total("waits_not_over_at_the_end"), 1);
    assert_eq!(world.total("threads_that_never_switched"), 1);
    assert_eq!(world.lost(), 0);
}

#[test]
fn short_waits_are_told_with_the_next_stack() {
    let mut world = World::new();
    world.task_record(abi::PERF_RECORD_FORK, 7, 1);
    for start in [10, 20, 30] {
        world.switch(7, start * MS, OUT);
        world.switch(7, start * MS + 5_000, 0);
    }
    assert_eq!(world.recorded(), []);
    // A long wait keeps its own time, with a stack and without.
    world.sample(7, 40 * MS);
    world.switch(7, 40 * MS, OUT);
    world.switch(7, 42 * MS, 0);
    world.switch(7, 50 * MS, OUT);
    world.switch(7, 52 * MS, 0);
    world.sample(7, 60 * MS);
    world.switch(7, 60 * MS, OUT);
    world.switch(7, 60 * MS + 7_000, 0);
    let expected = [
        (7, 40 * MS, State::Blocked, 2 * MS, 1, 1),
        (7, 50 * MS, State::Blocked, 2 * MS, 1, 0),
        (7, 10 * MS, State::Blocked, 22_000, 4, 1),
    ];
    assert_eq!(world.recorded(), expected);
    assert_eq!(world.total("waits_begun_before_and_left_out"), 0);
    // Nor does a wait that comes a moment later have its own stack, where there were many.
    world.waits.allowance.left_ns = 0;
    world.waits.allowance.since_ns = 70 * MS;
    world.sample(7, 60 * MS + 100_000);
    world.switch(7, 60 * MS + 100_000, OUT);
    world.switch(7, 60 * MS + 109_000, 0);
    assert_eq!(world.recorded(), []);
    world.sample(7, 61 * MS + 100_000);
    world.switch(7, 61 * MS + 100_000, OUT);
    world.switch(7, 61 * MS + 101_000, 0);
    let both = (7, 60 * MS + 100_000, State::Blocked, 10_000, 2, 1);
    assert_eq!(world.recorded(), [both]);
    // If a thread ends before another stack comes, the time is not lost.
    world.switch(7, 70 * MS, PREEMPTED);
    world.switch(7, 70 * MS + 3_000, 0);
    world.task_record(abi::PERF_RECORD_EXIT, 7, 71 * MS);
    assert_eq!(world.recorded(), [(7, 70 * MS, State::Ready, 3_000, 1, 0)]);
    assert_eq!(world.waits.threads.len(), 0);
}

/// Events of processors go on to the last switch of a thread, after its end.
#[test]
fn a_thread_that_has_ended_waits_no_more() {
    let mut world = World::new();
    for tid in [7, u32::MAX] {
        world.task_record(abi::PERF_RECORD_FORK, 7, MS);
        world.switch(7, 2 * MS, 0);
        world.task_record(abi::PERF_RECORD_EXIT, 7, 3 * MS);
        world.sample(tid, 4 * MS);
        world.switch(tid, 4 * MS, OUT);
        assert_eq!(world.waits.threads.len(), 0, "{tid}");
    }
    // Another thread gets the number.
    world.task_record(abi::PERF_RECORD_FORK, 7, 5 * MS);
    world.sample(7, 6 * MS);
    world.switch(7, 6 * MS, OUT);
    world.switch(7, 8 * MS, 0);
    let own = (7, 6 * MS, State::Blocked, 2 * MS, 1, 1);
    assert_eq!(world.recorded(), [own]);
    // A thread gets the number of the first one, without a record, by executing another program.
    world.task_record(abi::PERF_RECORD_EXIT, 7, 9 * MS);
    for (at_ns, misc) in [(9 * MS + 1, PREEMPTED), (9 * MS + 2, 0), (9 * MS + 3, OUT)] {
        world.switch(7, at_ns, misc);
        assert_eq!(world.waits.threads.len(), 0);
    }
    world.sample(7, 9 * MS + 10);
    world.switch(7, 9 * MS + 10, OUT);
    world.switch(7, 9 * MS + 100_010, 0);
    let own = (7, 9 * MS + 10, State::Blocked, 100_000, 1, 1);
    assert_eq!(world.recorded(), [own]);
    // The record of an end is lost.
    world.switch(7, 9 * MS + 200_000, OUT);
    world.task_record(abi::PERF_RECORD_FORK, 7, 10 * MS);
    world.switch(7, 11 * MS, 0);
    assert_eq!(world.recorded(), []);
    assert_eq!(world.lost(), 0);
}

#[test]
fn ten_thousand_short_waits_a_second_have_stacks_of_their_own() {
    let mut world = World::new();
    world.task_record(abi::PERF_RECORD_FORK, 7, 1);
    let mut rows = 0;
    // Two threads alternate, with 25,000 waits of each a second for two seconds, of 3 and 9 us.
    for number in 1..=100_000_u64 {
        let at_ns = number * 20_000;
        world.sample(7, at_ns);
        world.switch(7, at_ns, OUT);
        world.switch(7, at_ns + 3_000 + number % 2 * 6_000, 0);
        let found = world.recorded();
        rows += found.len() as u64;
        // Each has its own time alone, as long as there are not too many.
        let own = number > 10_000 || found[0].4 == 1;
        assert!(own, "{number}: {found:?}");
    }
    let second = SHORT_WAITS_A_SECOND;
    assert!(
        (3 * second - 10..3 * second + 5_000).contains(&rows),
        "{rows}"
    );
}

#[test]
fn what_is_lost_makes_no_long_wait() {
    let mut world = World::new();
    let stacks = world.waits.free.len();
    for tid in [7, 8] {
        world.sample(tid, 10 * MS);
        world.switch(tid, 10 * MS, OUT);
    }
    world.record(abi::PERF_RECORD_LOST, 0, &[1, 6, World::task(9), 20 * MS]);
    world.switch(7, 9000 * MS, 0);
    assert_eq!(world.recorded(), []);
    assert_eq!(world.lost(), 6 + 2);
    // A thread whose switch-out was not seen, and one whose return was not seen, start afresh.
    world.sample(7, 9001 * MS);
    world.switch(7, 9001 * MS, OUT);
    world.switch(7, 9003 * MS, 0);
    assert_eq!(
        world.recorded(),
        [(7, 9001 * MS, State::Blocked, 2 * MS, 1, 1)]
    );
    world.waits.end(9999 * MS, &mut world.sink, |_| ());
    assert_eq!(world.recorded(), []);
    assert_eq!(world.waits.free.len(), stacks);
}

#[test]
fn threads_and_stacks_of_waits() {
    let mut world = World::new();
    for tid in 0..STACKS_MAX as u32 + 1 {
        world.sample(tid, 10);
        world.switch(tid, 10, OUT);
    }
    assert!(world.waits.free.is_empty());
    world.switch(STACKS_MAX as u32 - 1, 10 + 2 * MS, 0);
    world.switch(STACKS_MAX as u32, 10 + 2 * MS, 0);
    let expected = [
        (STACKS_MAX as u32 - 1, 10, State::Blocked, 2 * MS, 1, 1),
        (STACKS_MAX as u32, 10, State::Blocked, 2 * MS, 1, 0),
    ];
    assert_eq!(world.recorded(), expected);
    for tid in 0..THREADS_MAX as u32 {
        world.switch(tid, 20 + 2 * MS, OUT);
    }
    assert_eq!(world.lost(), 0);
    world.switch(THREADS_MAX as u32, 20 + 2 * MS, OUT);
    assert_eq!(world.lost(), 1);
}

#[test]
fn a_full_ring_keeps_no_stack() {
    let mut world = World::new();
    let stacks = world.waits.free.len();
    for round in 1..200 {
        world.sample(7, round * 10 * MS);
        world.switch(7, round * 10 * MS, OUT);
        world.switch(7, round * 10 * MS + 2 * MS, 0);
    }
    assert_eq!(world.recorded().len(), 64);
    assert_eq!(world.waits.free.len(), stacks);
}

#[test]
fn a_record_cut_anywhere_is_survived() {
    let words = [1, World::task(7), 99, 2, abi::PERF_CONTEXT_USER, 0x40, 0, 3];
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    for length in 0..=body.len() {
        let mut world = World::new();
        for kind in 0..24 {
            for misc in [0, OUT, PREEMPTED, u16::MAX] {
                let World { waits, sink, .. } = &mut world;
                waits.record(kind, misc, &body[..length], 0, sink);
            }
        }
        world.waits.end(u64::MAX, &mut world.sink, |_| ());
    }
}
