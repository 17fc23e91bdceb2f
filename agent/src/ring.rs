//! A single-producer, single-consumer ring of 64-bit words per vCPU, in memory that the guest provides. The producer is
//! that vCPU's timer interrupt, and the consumer is the attached session.
//!
//! A record is a whole number of words, and the low 16 bits of its first word hold that number. The producer never
//! waits; records that don't fit are counted.

use core::sync::atomic::{AtomicU64, Ordering};

/// Header of a ring (words): counters that only grow, and the producer's own state.
pub(crate) const CONTROL_WORDS: usize = 8;
const HEAD: usize = 0;
const TAIL: usize = 1;
const LOST: usize = 2;
const TOLD: usize = 3;
const EPOCH: usize = 4;
const PERIOD_START: usize = 5;
const DUE: usize = 6;
const SEED: usize = 7;

/// The ring of one vCPU.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'m> {
    control: &'m [AtomicU64],
    words: &'m [AtomicU64],
}

impl<'m> Ring<'m> {
    /// A ring in `memory`, which uses the largest power of two of words; `None` if it is too small.
    pub fn over(memory: &'m [AtomicU64], least_words: usize) -> Option<Self> {
        let (control, words) = memory.split_at_checked(CONTROL_WORDS)?;
        let used = 1usize.checked_shl(words.len().checked_ilog2()?)?;
        let words = words
            .get(..used)
            .filter(|words| words.len() >= least_words)?;
        Some(Ring { control, words })
    }

    fn get(&self, index: usize) -> u64 {
        self.control[index].load(Ordering::Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.control[index].store(value, Ordering::Relaxed);
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        // The capacity is a power of two.
        &self.words[position as usize & (self.words.len() - 1)]
    }

    /// Producer: whether a sample is due at `now`. One is due in each period of `period` ticks, at a random moment in
    /// it, so that sampling doesn't run in step with periodic work.
    pub fn is_due(&self, epoch: u64, now: u64, period: u64) -> bool {
        if self.get(EPOCH) != epoch {
            self.set(EPOCH, epoch);
            self.begin_period(now, period);
        }
        let due = self.get(DUE);
        if now < due {
            // The clock was set back, so start over.
            if due - now > period.saturating_mul(2) {
                self.begin_period(now, period);
            }
            return false;
        }
        let next = self.get(PERIOD_START).saturating_add(period);
        let is_behind = now.saturating_sub(next) >= period;
        self.begin_period(if is_behind { now } else { next }, period);
        true
    }

    fn begin_period(&self, start: u64, period: u64) {
        // Marsaglia, "Xorshift RNGs", 2003.
        let mut seed = self.get(SEED) ^ start | 1;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.set(SEED, seed);
        let into = (u128::from(seed) * u128::from(period)) >> 64;
        self.set(PERIOD_START, start);
        self.set(DUE, start.saturating_add(into as u64));
    }

    /// Producer: begins a record.
    pub fn begin(self) -> Record<'m> {
        let head = self.get(HEAD);
        let used = head.wrapping_sub(self.control[TAIL].load(Ordering::Acquire));
        Record {
            ring: self,
            head,
            room: (self.words.len() as u64).saturating_sub(used),
            count: 0,
        }
    }

    /// Consumer: the length of the oldest record (words); `None` if the ring is empty.
    pub fn oldest(&self) -> Option<u64> {
        let head = self.control[HEAD].load(Ordering::Acquire);
        let there = head.wrapping_sub(self.get(TAIL));
        if there == 0 {
            return None;
        }
        let length = self.peek(0) & 0xffff;
        if length == 0 || length > there {
            // Something else has overwritten the memory.
            self.forget_all();
            return None;
        }
        Some(length)
    }

    /// Consumer: a word of the oldest record.
    pub fn peek(&self, index: u64) -> u64 {
        self.word(self.get(TAIL).wrapping_add(index))
            .load(Ordering::Relaxed)
    }

    /// Consumer: frees the oldest record.
    pub fn advance(&self, length: u64) {
        let tail = self.get(TAIL).wrapping_add(length);
        self.control[TAIL].store(tail, Ordering::Release);
    }

    /// Consumer: discards all records and the count of losses.
    pub fn forget_all(&self) {
        let head = self.control[HEAD].load(Ordering::Acquire);
        self.control[TAIL].store(head, Ordering::Release);
        self.set(TOLD, self.get(LOST));
    }

    /// Consumer: the number of records that didn't fit since the last call.
    pub fn take_lost(&self) -> u64 {
        let lost = self.get(LOST);
        let new = lost.wrapping_sub(self.get(TOLD));
        self.set(TOLD, lost);
        new
    }
}

/// A record being written; the consumer sees it after [`Record::end`].
pub(crate) struct Record<'m> {
    ring: Ring<'m>,
    head: u64,
    room: u64,
    count: u64,
}

impl Record<'_> {
    /// Appends a word; `false` if there is no room.
    pub fn push(&mut self, word: u64) -> bool {
        if self.count == self.room {
            return false;
        }
        self.set(self.count, word);
        self.count += 1;
        true
    }

    /// Overwrites a word.
    pub fn set(&mut self, index: u64, word: u64) {
        self.ring
            .word(self.head.wrapping_add(index))
            .store(word, Ordering::Relaxed);
    }

    /// Words written so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Makes the record visible to the consumer.
    pub fn end(self) {
        let head = self.head.wrapping_add(self.count);
        self.ring.control[HEAD].store(head, Ordering::Release);
    }

    /// Discards the record for lack of room, and counts it.
    pub fn lose(self) {
        self.ring.set(LOST, self.ring.get(LOST).wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    fn put(ring: &Ring<'_>, words: u64) -> bool {
        let mut record = ring.begin();
        for index in 0..words {
            if !record.push(index << 16 | words) {
                record.lose();
                return false;
            }
        }
        record.end();
        true
    }

    #[test]
    fn what_finds_no_room_is_counted_and_never_seen() {
        let memory = memory(CONTROL_WORDS + 40);
        let ring = Ring::over(&memory, 32).unwrap();
        assert!(Ring::over(&memory, 33).is_none(), "a power of two is used");
        for turn in 0..100 {
            assert!(
                put(&ring, 20) && !put(&ring, 13) && put(&ring, 12) && !put(&ring, 1),
                "{turn}"
            );
            assert_eq!((ring.oldest(), ring.peek(19)), (Some(20), 19 << 16 | 20));
            ring.advance(20);
            assert_eq!((ring.oldest(), ring.peek(11)), (Some(12), 11 << 16 | 12));
            ring.advance(12);
            assert_eq!((ring.oldest(), ring.take_lost()), (None, 2));
        }
    }

    #[test]
    fn memory_that_somebody_wrote_over_is_given_up() {
        let memory = memory(CONTROL_WORDS + 32);
        let ring = Ring::over(&memory, 8).unwrap();
        for wrong in [0, 33, 0xffff, u64::MAX] {
            assert!(put(&ring, 4));
            ring.word(ring.get(TAIL)).store(wrong, Ordering::Relaxed);
            assert_eq!(ring.oldest(), None, "{wrong:#x}");
            assert!(put(&ring, 4) && ring.oldest() == Some(4));
            ring.advance(4);
        }
    }

    #[test]
    fn one_sample_in_each_period_anywhere_in_it() {
        let memory = memory(CONTROL_WORDS + 8);
        let ring = Ring::over(&memory, 8).unwrap();
        let mut due = Vec::new();
        for tick in 0..100_000u64 {
            let now = tick * 10;
            if ring.is_due(1, now, 1000) {
                due.push(now);
            }
        }
        assert!((995..=1000).contains(&due.len()), "{}", due.len());
        let gaps: Vec<u64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (1..2100).contains(gap)));
        assert!(gaps.iter().any(|&gap| gap < 300) && gaps.iter().any(|&gap| gap > 1700));
        // The period is shorter than the timer's, so each tick has a sample.
        assert_eq!(
            (0..100).filter(|tick| ring.is_due(3, tick * 10, 3)).count(),
            99
        );
        // Sampling goes on after the clock is set back.
        assert!((0..300).any(|tick| ring.is_due(3, tick, 100)));
    }

    #[test]
    fn a_reader_on_another_thread_sees_whole_records_in_order() {
        let memory = memory(CONTROL_WORDS + 64);
        let ring = Ring::over(&memory, 64).unwrap();
        const RECORDS: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..RECORDS {
                    let length = 2 + number % 5;
                    let mut record = ring.begin();
                    let mut is_whole = record.push(length);
                    for _ in 1..length {
                        is_whole &= record.push(number);
                    }
                    if is_whole {
                        record.end()
                    } else {
                        record.lose()
                    }
                }
            });
            let (mut last, mut seen, mut lost) = (None, 0, 0);
            while seen + lost < RECORDS {
                lost += ring.take_lost();
                let Some(length) = ring.oldest() else {
                    continue;
                };
                let number = ring.peek(1);
                assert!(last < Some(number) && length == 2 + number % 5);
                assert!((1..length).all(|index| ring.peek(index) == number));
                ring.advance(length);
                (last, seen) = (Some(number), seen + 1);
            }
            assert!(seen > 0);
        });
    }
}
