//! Carries samples and notes from the sampler to the encoder without waiting.
//!
//! Boxes for a second's samples are allocated at the start and circulate through two wait-free queues: full ones to
//! the encoder, free ones back to the sampler. When none is free, the sampler drops the sample and counts it.

use crate::source::slot::{Note, NoteKind, Slot};
use crate::sys::bell::Bell;
use std::sync::Arc;
use std::time::Duration;
use uprof::Task;
use uprof::cold::LossReason;

/// Notes in the ring: many for processes, which report mappings, and few for a guest.
const NOTES: usize = 1024;
const GUEST_NOTES: usize = 64;
/// The slots hold samples of this many seconds and rounds, so the output may be delayed for as long.
const RESERVE_SECONDS: f64 = 1.0;
/// The same where a guest's stacks are recorded: each slot uses at least two pages even before it is filled.
const STACKS_RESERVE_SECONDS: f64 = 0.5;
/// Stack size in bytes from which on a recording counts as one with stacks.
const STACKS_BYTES: usize = 8 << 10;
const RESERVE_ROUNDS: usize = 4;
/// Fewest slots.
const SLOTS_MIN: usize = 64;
/// Most slots.
const SLOTS_MAX: usize = 8192;
/// Memory that the slots may take together.
const SLOT_MEMORY_BYTES: usize = 64 << 20;

/// The sampler's end.
pub struct Sink {
    samples: Out<Slot>,
    notes: Out<Note>,
    /// By the number of the reason.
    lost: [Lost; LossReason::ALL.len()],
    written: u64,
    /// How many samples and notes were sent since the encoder was woken.
    sent: [usize; 2],
    bell: Option<Arc<Bell>>,
}

/// The encoder's end.
pub struct Drain {
    samples: In<Slot>,
    notes: In<Note>,
}

struct Out<T> {
    /// Free boxes, the last returned one on top. So few boxes are used while few are in flight, and those stay in the
    /// processor's caches.
    at_hand: Vec<Box<T>>,
    /// Number of boxes to take before the next check for returned ones, which costs a cache line.
    looks_in: usize,
    takes_per_look: usize,
    free: rtrb::Consumer<Box<T>>,
    full: rtrb::Producer<Box<T>>,
}

/// Boxes taken between two checks for returned ones. Many are cheap, but fewer if they are large, since each one uses
/// memory.
const TAKES_PER_LOOK: usize = 32;
const LEAST_TAKES_PER_LOOK: usize = 4;
const TAKEN_BYTES_PER_LOOK: usize = 128 << 10;

impl<T> Out<T> {
    fn take(&mut self) -> Option<Box<T>> {
        if self.looks_in == 0 || self.at_hand.is_empty() {
            self.look();
        }
        self.looks_in -= 1;
        self.at_hand.pop()
    }

    /// Fetches the returned boxes.
    fn look(&mut self) {
        self.looks_in = self.takes_per_look;
        // There is room, since the queue has as many entries as there are boxes.
        while self.at_hand.len() < self.at_hand.capacity()
            && let Ok(item) = self.free.pop()
        {
            self.at_hand.push(item);
        }
    }
}

struct In<T> {
    full: rtrb::Consumer<Box<T>>,
    free: rtrb::Producer<Box<T>>,
}

/// Losses for one reason that were not sent to the encoder yet.
#[derive(Debug, Clone, Copy, Default)]
struct Lost {
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

fn queue<T>(count: usize, item_bytes: usize, make: impl Fn() -> T) -> (Out<T>, In<T>) {
    let takes_per_look = TAKEN_BYTES_PER_LOOK / item_bytes.max(1);
    let takes_per_look = takes_per_look.clamp(LEAST_TAKES_PER_LOOK, TAKES_PER_LOOK);
    let (free_in, free_out) = rtrb::RingBuffer::new(count);
    let (full_in, full_out) = rtrb::RingBuffer::new(count);
    let out = Out {
        at_hand: (0..count).map(|_| Box::new(make())).collect(),
        looks_in: takes_per_look,
        takes_per_look,
        free: free_out,
        full: full_in,
    };
    let into = In {
        full: full_out,
        free: free_in,
    };
    (out, into)
}

/// Makes both ends, with slots of `stack_bytes` stack bytes each, enough for `most_at_once` samples at a time at
/// `rate_hz`, and with notes for processes or a guest.
pub fn ring(
    stack_bytes: usize,
    most_at_once: usize,
    rate_hz: f64,
    is_guest: bool,
) -> (Sink, Drain) {
    let slot_bytes =
        size_of::<Slot>() + uprof::layout::MAX_FRAMES * size_of::<uprof::Frame>() + stack_bytes;
    let most = (SLOT_MEMORY_BYTES / slot_bytes).clamp(SLOTS_MIN, SLOTS_MAX);
    let reserve_seconds = if is_guest && stack_bytes >= STACKS_BYTES {
        STACKS_RESERVE_SECONDS
    } else {
        RESERVE_SECONDS
    };
    let a_while = (most_at_once as f64 * rate_hz * reserve_seconds) as usize;
    let needed = a_while.max(most_at_once * RESERVE_ROUNDS);
    let notes = if is_guest { GUEST_NOTES } else { NOTES };
    make(needed.clamp(SLOTS_MIN, most), stack_bytes, notes)
}

/// Makes both ends, with `slots` slots.
pub fn ring_of(slots: usize, stack_bytes: usize) -> (Sink, Drain) {
    make(slots, stack_bytes, NOTES)
}

fn make(slots: usize, stack_bytes: usize, notes: usize) -> (Sink, Drain) {
    let (samples_out, samples_in) = queue(slots, stack_bytes, || Slot::new(stack_bytes));
    let (notes_out, notes_in) = queue(notes, size_of::<Note>(), Note::new);
    let sink = Sink {
        samples: samples_out,
        notes: notes_out,
        lost: Default::default(),
        written: 0,
        sent: [0; 2],
        bell: None,
    };
    let drain = Drain {
        samples: samples_in,
        notes: notes_in,
    };
    (sink, drain)
}

impl Sink {
    /// Lets [`Sink::wake`] ring `bell`. Without one, the encoder looks from time to time.
    pub fn set_bell(&mut self, bell: Arc<Bell>) {
        self.bell = Some(bell);
    }

    /// Wakes the encoder if something was sent since the last call. That takes a system call, which a guest that is
    /// paused must not wait for.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.sent) != [0; 2]
            && let Some(bell) = &self.bell
        {
            bell.ring();
        }
    }

    /// Wakes the encoder before all samples or notes are under way, in the middle of a burst.
    fn wake_in_time(&mut self) {
        let rooms = [self.slots(), self.notes.full.buffer().capacity()];
        if self.bell.is_some() && (self.sent[0] > rooms[0] / 4 || self.sent[1] > rooms[1] / 4) {
            self.wake();
        }
    }

    /// Takes a free slot; if there is none, counts a dropped sample at `time_ns`.
    pub fn take(&mut self, time_ns: u64) -> Option<Box<Slot>> {
        let slot = self.samples.take();
        if slot.is_none() {
            self.lose(LossReason::RingFull, 1, time_ns);
        }
        slot
    }

    /// Whether there is a free slot.
    pub fn has_room(&mut self) -> bool {
        if self.samples.at_hand.is_empty() {
            self.samples.look();
        }
        !self.samples.at_hand.is_empty()
    }

    /// Waits until a slot is free or `patience` is used up, since samples come in bursts; returns whether it had to
    /// wait.
    pub(crate) fn wait_for_room(&mut self, patience: &mut Duration) -> bool {
        const NAP: Duration = Duration::from_micros(500);
        let mut waited = false;
        while !self.has_room() && !patience.is_zero() {
            self.wake();
            std::thread::sleep(NAP);
            *patience = patience.saturating_sub(NAP);
            waited = true;
        }
        waited
    }

    /// Sends a filled slot to the encoder.
    pub fn put(&mut self, slot: Box<Slot>) {
        // The queue can't be full, since it has as many entries as there are boxes.
        let _ = self.samples.full.push(slot);
        self.written += 1;
        self.sent[0] += 1;
        self.wake_in_time();
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.samples.full.buffer().capacity()
    }

    /// Number of samples sent to the encoder so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Sends a note. If none is free, it is counted as lost. Returns whether it was sent.
    pub fn note(&mut self, time_ns: u64, task: Task, kind: NoteKind, text: &[u8]) -> bool {
        let Some(mut note) = self.notes.take() else {
            self.lose(LossReason::EventsLost, 1, time_ns);
            return false;
        };
        note.set(time_ns, task, kind, text);
        let _ = self.notes.full.push(note);
        self.sent[1] += 1;
        self.wake_in_time();
        true
    }

    /// Counts samples that could not be kept; [`Sink::report_losses`] sends the counts.
    pub fn lose(&mut self, reason: LossReason, count: u64, time_ns: u64) {
        self.lose_between(reason, count, [time_ns; 2]);
    }

    /// As [`Sink::lose`], of samples that were due between two times.
    pub fn lose_between(&mut self, reason: LossReason, count: u64, [first_ns, last_ns]: [u64; 2]) {
        if count == 0 {
            return;
        }
        let lost = &mut self.lost[usize::from(reason.number())];
        if lost.count == 0 {
            lost.first_ns = first_ns;
        }
        lost.count += count;
        lost.last_ns = last_ns;
    }

    /// Sends the losses since the last call, as far as notes are free. Returns whether all were sent.
    pub fn report_losses(&mut self) -> bool {
        for &reason in LossReason::ALL {
            let lost = &mut self.lost[usize::from(reason.number())];
            let Lost {
                count,
                first_ns,
                last_ns,
            } = *lost;
            if count == 0 {
                continue;
            }
            // Without a free note, the counts stay for the next call.
            let Some(mut note) = self.notes.take() else {
                return false;
            };
            let kind = NoteKind::Lost {
                reason,
                count,
                first_ns,
            };
            note.set(last_ns, Task { space: 0, vcpu: 0 }, kind, &[]);
            let _ = self.notes.full.push(note);
            self.sent[1] += 1;
            *lost = Lost::default();
        }
        true
    }

    /// Whether the encoder has ended.
    pub fn is_abandoned(&self) -> bool {
        self.samples.full.is_abandoned()
    }
}

impl Drain {
    /// Passes the next sample to `use_slot` and returns its slot to the sampler; `None` if there is none.
    pub fn sample<T>(&mut self, use_slot: impl FnOnce(&Slot) -> T) -> Option<T> {
        let slot = self.samples.full.pop().ok()?;
        let result = use_slot(&slot);
        let _ = self.samples.free.push(slot);
        Some(result)
    }

    /// Passes the next note to `use_note` and returns it to the sampler; `None` if there is none.
    pub fn note<T>(&mut self, use_note: impl FnOnce(&Note) -> T) -> Option<T> {
        let note = self.notes.full.pop().ok()?;
        let result = use_note(&note);
        let _ = self.notes.free.push(note);
        Some(result)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.samples.full.buffer().capacity()
    }

    /// Whether the sampler has ended and nothing is left to drain.
    pub fn is_finished(&self) -> bool {
        // Checked in this order, so that items sent before the sampler ended are still seen.
        self.samples.full.is_abandoned()
            && self.samples.full.is_empty()
            && self.notes.full.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_drops_and_counts() {
        let (mut sink, mut drain) = ring_of(2, 0);
        for time_ns in 10..15 {
            if let Some(slot) = sink.take(time_ns) {
                sink.put(slot);
            }
        }
        assert_eq!(sink.written(), 2);
        sink.report_losses();
        let expected = NoteKind::Lost {
            reason: LossReason::RingFull,
            count: 3,
            first_ns: 12,
        };
        assert_eq!(
            drain.note(|note| (note.kind, note.time_ns)),
            Some((expected, 14))
        );
        assert!(drain.sample(|_| ()).is_some());
        assert!(sink.take(20).is_some(), "a drained slot is free again");
    }

    #[test]
    fn a_burst_waits_for_slots_but_not_for_ever() {
        let (mut sink, mut drain) = ring_of(1, 0);
        // Long enough for a thread that gets no processor for a while.
        let mut patience = Duration::from_secs(10);
        assert!(!sink.wait_for_room(&mut patience), "there is a slot");
        let slot = sink.take(1).unwrap();
        sink.put(slot);
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            drain.sample(|_| ());
            drain
        });
        assert!(sink.wait_for_room(&mut patience));
        assert!(sink.has_room() && !patience.is_zero());
        let _drain = freed.join();
        let slot = sink.take(2).unwrap();
        sink.put(slot);
        patience = Duration::from_millis(50);
        assert!(sink.wait_for_room(&mut patience));
        assert!(!sink.has_room() && patience.is_zero());
    }

    #[test]
    fn losses_are_reported_whatever_the_reason() {
        let (mut sink, mut drain) = ring_of(2, 0);
        for (&reason, count) in LossReason::ALL.iter().zip(1..) {
            sink.lose(reason, count, 10);
        }
        sink.report_losses();
        for (&reason, count) in LossReason::ALL.iter().zip(1..) {
            let lost = NoteKind::Lost {
                reason,
                count,
                first_ns: 10,
            };
            assert_eq!(drain.note(|note| note.kind), Some(lost));
        }
    }

    #[test]
    fn a_loss_is_of_all_the_time_in_which_samples_were_due() {
        let (mut sink, mut drain) = ring_of(2, 0);
        sink.lose_between(LossReason::Deadline, 0, [1, 2]);
        sink.lose_between(LossReason::Deadline, 3, [10, 40]);
        sink.lose_between(LossReason::Deadline, 2, [50, 60]);
        sink.report_losses();
        let lost = NoteKind::Lost {
            reason: LossReason::Deadline,
            count: 5,
            first_ns: 10,
        };
        assert_eq!(
            drain.note(|note| (note.kind, note.time_ns)),
            Some((lost, 60))
        );
        assert!(drain.note(|_| ()).is_none());
    }

    #[test]
    fn losses_without_a_free_note_are_kept_for_the_next_call() {
        let (mut sink, mut drain) = ring_of(2, 0);
        let task = Task { space: 0, vcpu: 0 };
        while sink.note(1, task, NoteKind::Ended, &[]) {}
        assert!(!sink.report_losses());
        drain.note(|_| ());
        assert!(sink.report_losses());
        let mut last = None;
        while let Some(kind) = drain.note(|note| note.kind) {
            last = Some(kind);
        }
        let lost = NoteKind::Lost {
            reason: LossReason::EventsLost,
            count: 1,
            first_ns: 1,
        };
        assert_eq!(last, Some(lost));
    }

    #[test]
    fn few_slots_are_used_while_few_are_under_way() {
        let (mut sink, mut drain) = ring_of(1000, 0);
        let mut used = std::collections::HashSet::new();
        for time_ns in 0..5000 {
            let slot = sink.take(time_ns).unwrap();
            used.insert(std::ptr::from_ref(&*slot));
            sink.put(slot);
            assert!(drain.sample(|_| ()).is_some());
        }
        assert!(used.len() <= 2 * TAKES_PER_LOOK, "{} slots", used.len());
        assert_eq!(sink.written(), 5000);
    }

    #[test]
    fn the_end_is_seen_only_when_all_is_drained() {
        let (mut sink, mut drain) = ring_of(2, 0);
        let slot = sink.take(1).unwrap();
        sink.put(slot);
        drop(sink);
        assert!(!drain.is_finished());
        drain.sample(|_| ());
        assert!(drain.is_finished());
    }
}
