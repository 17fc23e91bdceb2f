//! Where threads wait and for how long: pairs the kernel's records of threads that leave a processor with
//! those of threads that come back.
//!
//! Enters: records in the order of time. Leaves: a slot for each wait, when it is over. A thread's stack at
//! the switch is kept in a slot of our own until then. A length is told only where nothing was lost in
//! between. Must not allocate.

use super::records::{Fields, Reader, trailer};
use crate::ring::Sink;
use crate::slot::Slot;
use perf_event_open_sys::bindings as abi;
use uprof::cold::LossReason;
use uprof::{State, Stop, Task, Wait};

/// Most threads that are known at one time; waits of others are counted as lost.
const THREADS_MAX: usize = 16_384;
/// Most threads that may wait with a stack at one time; others wait without.
const STACKS_MAX: usize = 4096;
/// Memory that those stacks may take, where each is as large as was asked for.
const STACK_MEMORY_BYTES: usize = 256 << 20;
/// A wait shorter than this is told with its own stack if none of its thread was in as long a time; else its
/// time is added to that of the next one that is. However often threads switch, each has at most two thousand
/// rows a second, and the sum is exact.
const SHORT_NS: u64 = 1_000_000;

/// A thread that switches.
#[derive(Debug)]
struct Thread {
    task: Task,
    place: Place,
    /// With which it left the processor.
    stack: Option<Box<Slot>>,
    /// When the last short wait ended that was told with its own stack.
    told_ns: u64,
    /// Short waits without a stack: of a thread that was blocked, and of one that was ready.
    short: [Short; 2],
}

impl Thread {
    fn new(task: Task) -> Self {
        Thread {
            task,
            place: Place::Unknown,
            stack: None,
            told_ns: 0,
            short: Default::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// Not seen yet: what it waits for began before.
    Unknown,
    On,
    Off {
        since_ns: u64,
        state: State,
    },
}

/// Waits added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Short {
    count: u64,
    time_ns: u64,
    first_ns: u64,
}

impl Short {
    fn add(&mut self, since_ns: u64, time_ns: u64) {
        if self.count == 0 {
            self.first_ns = since_ns;
        }
        self.count += 1;
        self.time_ns = self.time_ns.saturating_add(time_ns);
    }
}

/// What was counted, for the end of the recording.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    waits: u64,
    merged: u64,
    bare: u64,
    begun_before: u64,
    unfinished: u64,
    never_switched: u64,
}

/// The threads of a recording, and what they wait for.
#[derive(Debug)]
pub struct Waits {
    reader: Reader,
    /// Ascending by thread id.
    threads: Vec<Thread>,
    #[expect(clippy::vec_box, reason = "they change places with the ring's boxes")]
    free: Vec<Box<Slot>>,
    counted: Counted,
}

fn index_of(state: State) -> usize {
    usize::from(state == State::Ready)
}

impl Waits {
    /// None yet; `stack_bytes`: how much of a stack a sample may have.
    pub fn new(reader: Reader, stack_bytes: usize) -> Self {
        let slot_bytes =
            size_of::<Slot>() + uprof::layout::MAX_FRAMES * size_of::<uprof::Frame>() + stack_bytes;
        let slots = (STACK_MEMORY_BYTES / slot_bytes).min(STACKS_MAX);
        Waits {
            reader,
            threads: Vec::with_capacity(THREADS_MAX),
            // Memory that no stack has been written to takes no room.
            free: (0..slots)
                .map(|_| Box::new(Slot::new(stack_bytes)))
                .collect(),
            counted: Counted::default(),
        }
    }

    /// A thread that is there before the first record. If none ever comes, that is told.
    pub fn expect(&mut self, task: Task) {
        let known = self
            .threads
            .binary_search_by_key(&task.vcpu, |thread| thread.task.vcpu);
        if let Err(index) = known
            && self.threads.len() < THREADS_MAX
        {
            self.threads.insert(index, Thread::new(task));
        }
    }

    /// Takes one record: its type, its `misc` field and the bytes after the header.
    /// Work on it begins at `now_ns`; returns when it ended, as far as a clock was read.
    pub fn record(
        &mut self,
        kind: u32,
        misc: u16,
        body: &[u8],
        now_ns: u64,
        sink: &mut Sink,
    ) -> u64 {
        self.reader.began_ns = now_ns;
        let done = match kind {
            abi::PERF_RECORD_SAMPLE => self.leaving(body, sink),
            abi::PERF_RECORD_SWITCH | abi::PERF_RECORD_SWITCH_CPU_WIDE => {
                self.switched(misc, body, sink)
            }
            abi::PERF_RECORD_FORK => self.forked(body, sink),
            abi::PERF_RECORD_EXIT => self.ended(body, sink),
            abi::PERF_RECORD_LOST => self.lost(body, sink),
            _ => Some(()),
        };
        if done.is_none() {
            sink.lose(LossReason::ReadFailed, 1, self.reader.began_ns);
        }
        self.reader.began_ns
    }

    /// Waits count from `now_ns` on.
    pub fn start(&mut self, now_ns: u64) {
        self.reader.since_ns = now_ns;
    }

    /// Where `task` stands among the threads; a new one is added.
    fn find(&mut self, task: Task, time_ns: u64, sink: &mut Sink) -> Option<usize> {
        match self
            .threads
            .binary_search_by_key(&task.vcpu, |thread| thread.task.vcpu)
        {
            Ok(index) => Some(index),
            Err(_) if self.threads.len() == THREADS_MAX => {
                sink.lose(LossReason::WaitsLost, 1, time_ns);
                None
            }
            Err(index) => {
                self.threads.insert(index, Thread::new(task));
                Some(index)
            }
        }
    }

    /// The stack of a thread that is about to leave its processor.
    fn leaving(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let (task, time_ns) = self.reader.of_sample(body)?;
        let Some(index) = self.find(task, time_ns, sink) else {
            return Some(());
        };
        let thread = &mut self.threads[index];
        let Some(mut slot) = thread.stack.take().or_else(|| self.free.pop()) else {
            return Some(());
        };
        let whole = self.reader.read_sample(body, State::Blocked, &mut slot);
        thread.stack = Some(slot);
        whole
    }

    fn switched(&mut self, misc: u16, body: &[u8], sink: &mut Sink) -> Option<()> {
        let (task, time_ns) = trailer(body)?;
        if task.vcpu == 0 {
            // A processor that has nothing to do.
            return Some(());
        }
        let Some(index) = self.find(task, time_ns, sink) else {
            return Some(());
        };
        let misc = u32::from(misc);
        if misc & abi::PERF_RECORD_MISC_SWITCH_OUT == 0 {
            self.back(index, time_ns, sink);
            return Some(());
        }
        let state = match misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT {
            0 => State::Blocked,
            _ => State::Ready,
        };
        self.threads[index].place = Place::Off {
            since_ns: time_ns.max(self.reader.since_ns),
            state,
        };
        Some(())
    }

    /// A thread that has a processor again.
    fn back(&mut self, index: usize, now_ns: u64, sink: &mut Sink) {
        let thread = &mut self.threads[index];
        match std::mem::replace(&mut thread.place, Place::On) {
            Place::Off { since_ns, state } => self.waited(index, since_ns, now_ns, state, sink),
            Place::Unknown => self.counted.begun_before += 1,
            Place::On => {}
        }
        self.free.extend(self.threads[index].stack.take());
    }

    /// Sends on a wait that is over.
    fn waited(&mut self, index: usize, since_ns: u64, now_ns: u64, state: State, sink: &mut Sink) {
        let thread = &mut self.threads[index];
        let time_ns = now_ns.saturating_sub(since_ns);
        let short = &mut thread.short[index_of(state)];
        let is_short = time_ns < SHORT_NS;
        self.counted.waits += 1;
        let too_soon = now_ns.saturating_sub(thread.told_ns) < SHORT_NS;
        if is_short && (too_soon || thread.stack.is_none()) {
            // What is left of a stack goes back to the others.
            short.add(since_ns, time_ns);
            return;
        }
        let Some(slot) = thread.stack.take() else {
            let wait = Wait { time_ns, count: 1 };
            let task = thread.task;
            return self.bare(task, since_ns, state, wait, sink);
        };
        if is_short {
            thread.told_ns = now_ns;
        }
        let mut wait = Wait { time_ns, count: 1 };
        let mut first_ns = since_ns;
        if is_short && short.count > 0 {
            let Short {
                count,
                time_ns,
                first_ns: earlier_ns,
            } = std::mem::take(short);
            self.counted.merged += count;
            wait.count += count;
            wait.time_ns = wait.time_ns.saturating_add(time_ns);
            first_ns = earlier_ns;
        }
        self.send(slot, first_ns, state, wait, sink);
    }

    /// Hands a stack over, for an empty slot of the ring: there are as many here as before.
    fn send(
        &mut self,
        mut slot: Box<Slot>,
        time_ns: u64,
        state: State,
        wait: Wait,
        sink: &mut Sink,
    ) {
        let Some(other) = sink.take(time_ns) else {
            self.free.push(slot);
            return;
        };
        (slot.time_ns, slot.state, slot.wait) = (time_ns, state, Some(wait));
        sink.put(slot);
        self.free.push(other);
    }

    /// Tells of waits whose stack nobody took.
    fn bare(&mut self, task: Task, time_ns: u64, state: State, wait: Wait, sink: &mut Sink) {
        self.counted.bare += wait.count;
        if let Some(mut slot) = sink.take(time_ns) {
            slot.reset(time_ns, task, state);
            (slot.stop, slot.wait) = (Stop::Unsaid, Some(wait));
            sink.put(slot);
        }
    }

    /// Tells of the short waits of a thread that no stack came after.
    fn flush(&mut self, index: usize, sink: &mut Sink) {
        let thread = &mut self.threads[index];
        let (task, short) = (thread.task, std::mem::take(&mut thread.short));
        for state in [State::Blocked, State::Ready] {
            let Short {
                count,
                time_ns,
                first_ns,
            } = short[index_of(state)];
            if count > 0 {
                self.bare(task, first_ns, state, Wait { time_ns, count }, sink);
            }
        }
    }

    /// A thread that was not there before: what it waits for begins with its first switch.
    fn forked(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let mut fields = Fields(body);
        let (space, _, vcpu, _) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let time_ns = fields.u64()?;
        if let Some(index) = self.find(Task { space, vcpu }, time_ns, sink) {
            let thread = &mut self.threads[index];
            thread.task = Task { space, vcpu };
            if thread.place == Place::Unknown {
                thread.place = Place::On;
            }
        }
        Some(())
    }

    fn ended(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let mut fields = Fields(body);
        let (_, _, vcpu, _) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let found = self
            .threads
            .binary_search_by_key(&vcpu, |thread| thread.task.vcpu);
        if let Ok(index) = found {
            self.flush(index, sink);
            let thread = self.threads.remove(index);
            self.free.extend(thread.stack);
        }
        Some(())
    }

    /// Nobody knows who came back in what is lost: whoever was away may have run and left again. Waits
    /// that are not over are left out, and what their threads do next begins anew.
    fn lost(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let (_, time_ns) = trailer(body)?;
        let mut fields = Fields(body);
        fields.u64()?;
        let mut count = fields.u64()?;
        for index in 0..self.threads.len() {
            self.flush(index, sink);
            let thread = &mut self.threads[index];
            count += u64::from(matches!(thread.place, Place::Off { .. }));
            // Neither is what it came back from known, nor did it begin before the recording.
            thread.place = Place::On;
            self.free.extend(thread.stack.take());
        }
        sink.lose(LossReason::WaitsLost, count, time_ns);
        Some(())
    }

    /// Gives threads that still wait the time up to `now_ns`; `has_room` waits for a free slot.
    pub fn end(&mut self, now_ns: u64, sink: &mut Sink, mut has_room: impl FnMut(&mut Sink)) {
        for index in 0..self.threads.len() {
            has_room(sink);
            match self.threads[index].place {
                Place::Off { since_ns, state } => {
                    self.counted.unfinished += 1;
                    self.waited(index, since_ns, now_ns, state, sink);
                    has_room(sink);
                }
                Place::Unknown => self.counted.never_switched += 1,
                Place::On => {}
            }
            self.flush(index, sink);
        }
        self.threads.clear();
    }

    /// What was counted: name and count.
    pub fn totals(&self) -> Vec<(String, u64)> {
        let Counted {
            waits,
            merged,
            bare,
            begun_before,
            unfinished,
            never_switched,
        } = self.counted;
        let all = [
            ("waits", waits),
            ("waits_told_with_a_later_stack", merged),
            ("waits_without_a_stack", bare),
            ("waits_begun_before_and_left_out", begun_before),
            ("waits_not_over_at_the_end", unfinished),
            ("threads_that_never_switched", never_switched),
        ];
        let told = all.iter().filter(|(_, count)| *count > 0);
        told.map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::members::Members;
    use crate::ring::{Drain, ring_of};
    use crate::slot::News;

    const MS: u64 = 1_000_000;
    const OUT: u16 = abi::PERF_RECORD_MISC_SWITCH_OUT as u16;
    const PREEMPTED: u16 = OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16;

    /// The recorder's side of a few threads of process 5.
    struct World {
        waits: Waits,
        sink: Sink,
        drain: Drain,
    }

    /// A wait as it is sent on: thread, beginning, state, length, how many, frames.
    type Told = (u32, u64, State, u64, u64, usize);

    impl World {
        fn new() -> World {
            let (sink, drain) = ring_of(64, 0);
            let reader = Reader {
                members: Members::new(true),
                with_stack: false,
                most_frames: 127,
                since_ns: 0,
                began_ns: 0,
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
                2,
                abi::PERF_CONTEXT_USER,
                0x40,
                0,
            ];
            self.record(abi::PERF_RECORD_SAMPLE, 0, &chain);
        }

        fn switch(&mut self, tid: u32, at_ns: u64, misc: u16) {
            self.record(abi::PERF_RECORD_SWITCH, misc, &[World::task(tid), at_ns]);
        }

        fn task_record(&mut self, kind: u32, tid: u32, at_ns: u64) {
            let both = u64::from(tid) << 32 | u64::from(tid);
            let words = [5 << 32 | 5, both, at_ns, World::task(tid), at_ns];
            self.record(kind, 0, &words);
        }

        fn told(&mut self) -> Vec<Told> {
            let mut told = Vec::new();
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
                told.push(one);
            }
            told
        }

        fn lost(&mut self) -> u64 {
            self.sink.tell_losses();
            let mut lost = 0;
            while let Some(count) = self.drain.note(|note| match note.news {
                News::Lost {
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
        assert_eq!(world.told(), expected);
        // Still away when the recording ends.
        world.sample(7, 50 * MS);
        world.switch(7, 50 * MS, OUT);
        world.waits.end(70 * MS, &mut world.sink, |_| ());
        assert_eq!(world.told(), [(7, 50 * MS, State::Blocked, 20 * MS, 1, 1)]);
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
        assert_eq!(world.told(), []);
        // A long one keeps its own time, with a stack and without.
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
        assert_eq!(world.told(), expected);
        assert_eq!(world.total("waits_begun_before_and_left_out"), 0);
        // Nor has one its own stack that comes a moment later.
        world.sample(7, 60 * MS + 100_000);
        world.switch(7, 60 * MS + 100_000, OUT);
        world.switch(7, 60 * MS + 109_000, 0);
        assert_eq!(world.told(), []);
        world.sample(7, 61 * MS + 100_000);
        world.switch(7, 61 * MS + 100_000, OUT);
        world.switch(7, 61 * MS + 101_000, 0);
        let both = (7, 60 * MS + 100_000, State::Blocked, 10_000, 2, 1);
        assert_eq!(world.told(), [both]);
        // Of a thread that ends before another stack comes, the time is not lost.
        world.switch(7, 70 * MS, PREEMPTED);
        world.switch(7, 70 * MS + 3_000, 0);
        world.task_record(abi::PERF_RECORD_EXIT, 7, 71 * MS);
        assert_eq!(world.told(), [(7, 70 * MS, State::Ready, 3_000, 1, 0)]);
        assert_eq!(world.waits.threads.len(), 0);
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
        assert_eq!(world.told(), []);
        assert_eq!(world.lost(), 6 + 2);
        // A thread that left unseen, and one whose return was not seen, begin anew.
        world.sample(7, 9001 * MS);
        world.switch(7, 9001 * MS, OUT);
        world.switch(7, 9003 * MS, 0);
        assert_eq!(world.told(), [(7, 9001 * MS, State::Blocked, 2 * MS, 1, 1)]);
        world.waits.end(9999 * MS, &mut world.sink, |_| ());
        assert_eq!(world.told(), []);
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
        assert_eq!(world.told(), expected);
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
        assert_eq!(world.told().len(), 64);
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
}
