//! Where and how long threads wait: pairs the kernel's records of switches out with those of switches in.
//!
//! Input: records in the order of time. Output: a slot for each wait, when it is over. A thread's stack at the switch
//! is kept in a slot until then. A length is recorded only if no records were lost in between. Must not allocate.

use super::records::{Fields, RecordReader, trailer};
use crate::source::ring::Sink;
use crate::source::slot::Slot;
use perf_event_open_sys::bindings as abi;
use std::collections::VecDeque;
use uprof::cold::LossReason;
use uprof::{State, Stop, Task, Wait};

/// Most threads at a time; waits of further ones are counted as lost.
const THREADS_MAX: usize = 16_384;
/// Most threads that wait with a stack at a time; further ones wait without a stack.
const STACKS_MAX: usize = 4096;
/// Most memory for those stacks, each of the requested size, in bytes.
const STACK_MEMORY_BYTES: usize = 256 << 20;
/// Short waits of all threads that are recorded with their own stacks, on average of a second. Beyond that, a short
/// wait is recorded only if its thread had no other one within [`SHORT_NS`]. Otherwise its time is added to the
/// thread's next recorded wait, whose stack may differ. So each thread adds at most two thousand rows a second, and
/// the sum is exact.
const SHORT_WAITS_A_SECOND: u64 = 10_000;
/// A wait shorter than this is short.
const SHORT_NS: u64 = 1_000_000;

/// Most threads that have ended and may still be switched out: on each processor it is the next switch.
const ENDED_MAX: usize = 1024;
/// The kernel's number for a thread that has none any more.
const REAPED: u32 = u32::MAX;

/// A thread that switches.
#[derive(Debug)]
struct Thread {
    task: Task,
    place: CpuState,
    /// The stack with which it was switched out.
    stack: Option<Box<Slot>>,
    /// When the last short wait that was recorded with its own stack ended.
    recorded_ns: u64,
    /// Short waits not recorded yet, while blocked and while ready.
    short: [Short; 2],
}

impl Thread {
    fn new(task: Task) -> Self {
        Thread {
            task,
            place: CpuState::Unknown,
            stack: None,
            recorded_ns: 0,
            short: Default::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CpuState {
    /// Not seen yet; its current wait began before the recording.
    Unknown,
    On,
    Off {
        since_ns: u64,
        state: State,
    },
}

/// A sum of waits.
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

/// The number of short waits that may be recorded: those that were not used during the last second.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    left_ns: u64,
    since_ns: u64,
}

impl Allowance {
    const PERIOD_NS: u64 = 1_000_000_000;
    const WAIT_NS: u64 = Self::PERIOD_NS / SHORT_WAITS_A_SECOND;

    /// Uses one at `now_ns`, if there is one.
    fn take(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        self.left_ns = self.left_ns.saturating_add(passed_ns).min(Self::PERIOD_NS);
        let is_there = self.left_ns >= Self::WAIT_NS;
        self.left_ns -= if is_there { Self::WAIT_NS } else { 0 };
        is_there
    }
}

/// Totals for the end record.
#[derive(Debug, Clone, Copy, Default)]
struct WaitTotals {
    waits: u64,
    merged: u64,
    bare: u64,
    begun_before: u64,
    unfinished: u64,
    never_switched: u64,
}

/// The threads of a recording and their waits.
#[derive(Debug)]
pub struct Waits {
    reader: RecordReader,
    /// Ascending by thread id.
    threads: Vec<Thread>,
    /// The threads that ended last. Processors tell of their last switch after their end; it begins no wait.
    ended: VecDeque<u32>,
    #[expect(clippy::vec_box, reason = "they change places with the ring's boxes")]
    free: Vec<Box<Slot>>,
    allowance: Allowance,
    counted: WaitTotals,
}

fn index_of(state: State) -> usize {
    usize::from(state == State::Ready)
}

impl Waits {
    /// Without threads; `stack_bytes` is the size of a sample's stack.
    pub fn new(reader: RecordReader, stack_bytes: usize) -> Self {
        let slot_bytes =
            size_of::<Slot>() + uprof::layout::MAX_FRAMES * size_of::<uprof::Frame>() + stack_bytes;
        let slots = (STACK_MEMORY_BYTES / slot_bytes).min(STACKS_MAX);
        Waits {
            reader,
            threads: Vec::with_capacity(THREADS_MAX),
            ended: VecDeque::with_capacity(ENDED_MAX),
            // Memory that was never written to takes no room.
            free: (0..slots)
                .map(|_| Box::new(Slot::new(stack_bytes)))
                .collect(),
            allowance: Allowance {
                left_ns: Allowance::PERIOD_NS,
                since_ns: 0,
            },
            counted: WaitTotals::default(),
        }
    }

    /// Adds a thread that exists before the first record. If it never switches, it is still counted.
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

    /// Handles one record: its type, its `misc` field and the bytes after the header. Its processing begins at
    /// `now_ns`; returns when it ended, if a clock was read.
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

    /// Records waits from `now_ns` on.
    pub fn start(&mut self, now_ns: u64) {
        self.reader.since_ns = now_ns;
    }

    /// The index of `task`'s thread, which is added if it is new; `None` if it has ended, or there is no room.
    fn find(&mut self, task: Task, time_ns: u64, sink: &mut Sink) -> Option<usize> {
        match self
            .threads
            .binary_search_by_key(&task.vcpu, |thread| thread.task.vcpu)
        {
            Ok(index) => Some(index),
            Err(_) if task.vcpu == REAPED || self.ended.contains(&task.vcpu) => None,
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

    /// Keeps the stack of a thread that is about to be switched out.
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
            // The idle task doesn't wait.
            return Some(());
        }
        let misc = u32::from(misc);
        let ended = self.ended.iter().position(|ended| *ended == task.vcpu);
        if let Some(at) = ended {
            // Until it leaves by itself for the last time. Then a thread that executes another program may have its
            // number, without a record of that.
            let outs = abi::PERF_RECORD_MISC_SWITCH_OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
            if misc & outs == abi::PERF_RECORD_MISC_SWITCH_OUT {
                self.ended.remove(at);
            }
            return Some(());
        }
        let Some(index) = self.find(task, time_ns, sink) else {
            return Some(());
        };
        if misc & abi::PERF_RECORD_MISC_SWITCH_OUT == 0 {
            self.back(index, time_ns, sink);
            return Some(());
        }
        let state = match misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT {
            0 => State::Blocked,
            _ => State::Ready,
        };
        self.threads[index].place = CpuState::Off {
            since_ns: time_ns.max(self.reader.since_ns),
            state,
        };
        Some(())
    }

    /// Handles a thread that has a processor again.
    fn back(&mut self, index: usize, now_ns: u64, sink: &mut Sink) {
        let thread = &mut self.threads[index];
        match std::mem::replace(&mut thread.place, CpuState::On) {
            CpuState::Off { since_ns, state } => self.waited(index, since_ns, now_ns, state, sink),
            CpuState::Unknown => self.counted.begun_before += 1,
            CpuState::On => {}
        }
        self.free.extend(self.threads[index].stack.take());
    }

    /// Records a wait that is over.
    fn waited(&mut self, index: usize, since_ns: u64, now_ns: u64, state: State, sink: &mut Sink) {
        let thread = &mut self.threads[index];
        let time_ns = now_ns.saturating_sub(since_ns);
        let short = &mut thread.short[index_of(state)];
        let is_short = time_ns < SHORT_NS;
        self.counted.waits += 1;
        let is_next = now_ns.saturating_sub(thread.recorded_ns) >= SHORT_NS;
        if is_short && (thread.stack.is_none() || !self.allowance.take(now_ns) && !is_next) {
            // The caller frees the stack.
            short.add(since_ns, time_ns);
            return;
        }
        let Some(slot) = thread.stack.take() else {
            let wait = Wait { time_ns, count: 1 };
            let task = thread.task;
            return self.bare(task, since_ns, state, wait, sink);
        };
        if is_short {
            thread.recorded_ns = now_ns;
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

    /// Exchanges a slot with a stack for an empty slot of the ring.
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

    /// Records waits without a stack.
    fn bare(&mut self, task: Task, time_ns: u64, state: State, wait: Wait, sink: &mut Sink) {
        self.counted.bare += wait.count;
        if let Some(mut slot) = sink.take(time_ns) {
            slot.reset(time_ns, task, state);
            (slot.stop, slot.wait) = (Stop::Unsaid, Some(wait));
            sink.put(slot);
        }
    }

    /// Records the remaining short waits of a thread, without a stack.
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

    /// Handles a new thread, whose waits begin with its first switch.
    fn forked(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let mut fields = Fields(body);
        let (space, _, vcpu, _) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let time_ns = fields.u64()?;
        // The number may be that of a thread that has ended.
        self.ended.retain(|ended| *ended != vcpu);
        let task = Task { space, vcpu };
        if let Some(index) = self.find(task, time_ns, sink) {
            let thread = &mut self.threads[index];
            thread.task = task;
            thread.place = CpuState::On;
            self.free.extend(thread.stack.take());
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
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(vcpu);
        Some(())
    }

    /// Handles lost records, which may include switches. Current waits are left out, and their threads start afresh.
    fn lost(&mut self, body: &[u8], sink: &mut Sink) -> Option<()> {
        let (_, time_ns) = trailer(body)?;
        let mut fields = Fields(body);
        fields.u64()?;
        let mut count = fields.u64()?;
        for index in 0..self.threads.len() {
            self.flush(index, sink);
            let thread = &mut self.threads[index];
            count += u64::from(matches!(thread.place, CpuState::Off { .. }));
            // The next record of the thread must not end a wait.
            thread.place = CpuState::On;
            self.free.extend(thread.stack.take());
        }
        sink.lose(LossReason::WaitsLost, count, time_ns);
        Some(())
    }

    /// Ends unfinished waits at `now_ns`; `has_room` waits for a free slot.
    pub fn end(&mut self, now_ns: u64, sink: &mut Sink, mut has_room: impl FnMut(&mut Sink)) {
        for index in 0..self.threads.len() {
            has_room(sink);
            match self.threads[index].place {
                CpuState::Off { since_ns, state } => {
                    self.counted.unfinished += 1;
                    self.waited(index, since_ns, now_ns, state, sink);
                    has_room(sink);
                }
                CpuState::Unknown => self.counted.never_switched += 1,
                CpuState::On => {}
            }
            self.flush(index, sink);
        }
        self.threads.clear();
    }

    /// Totals: name and count.
    pub fn totals(&self) -> Vec<(String, u64)> {
        let WaitTotals {
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
        let counted = all.iter().filter(|(_, count)| *count > 0);
        counted
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests;
