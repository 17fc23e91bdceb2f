//! The schedule of guests that one process records: no two of them are paused at once.
//!
//! Each recording has a [`PeriodSlot`]. A period of the rate begins for all recordings at the same moment, and is
//! divided into as many parts as there are slots. Which recording has which part is drawn for each period; all draw
//! from the same seed, so they agree. A deadline is drawn from its own part. Freezes are thus spread over the period,
//! and yet each moment of the period is equally likely for each guest. A recording that is late, or takes longer than
//! its part, holds the lock meanwhile.

use crate::sys::clock::monotonic_ns;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The schedule of the guests of one process.
#[derive(Debug)]
pub struct Schedule {
    /// The start of one period, the same for all recordings.
    origin_ns: u64,
    seed: u64,
    still: Mutex<Still>,
    /// Notified when the paused guest runs again, if others wait for that.
    runs_again: Condvar,
    /// Slots in use, by number.
    taken: Mutex<Vec<bool>>,
    /// One more than the highest slot in use.
    count: AtomicUsize,
}

/// A recording's slot among the others.
#[derive(Debug)]
pub struct PeriodSlot {
    schedule: Arc<Schedule>,
    number: usize,
}

/// Whether a guest is paused, and how many recordings wait until it runs again.
#[derive(Debug, Default)]
struct Still {
    is_taken: bool,
    waiting: u32,
}

/// The right to pause a guest: while this value exists, no other guest of the schedule is paused.
#[derive(Debug)]
pub struct Turn(Arc<PeriodSlot>);

impl Schedule {
    /// A schedule without slots.
    pub fn new() -> Arc<Schedule> {
        Arc::new(Schedule {
            origin_ns: monotonic_ns(),
            seed: fastrand::u64(..),
            still: Mutex::default(),
            runs_again: Condvar::new(),
            taken: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
        })
    }

    /// Takes the first free slot. Dropping it frees it again.
    pub fn join(self: &Arc<Self>) -> Arc<PeriodSlot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.iter().position(|taken| !taken);
        let number = free.unwrap_or(taken.len());
        if number == taken.len() {
            taken.push(true);
        }
        taken[number] = true;
        self.count.store(taken.len(), Ordering::Relaxed);
        Arc::new(PeriodSlot {
            schedule: Arc::clone(self),
            number,
        })
    }

    fn still(&self) -> MutexGuard<'_, Still> {
        self.still.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sort key that orders slots in a period.
    fn key(&self, period: u64, slot: usize) -> u64 {
        // The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
        let odd = 0x9e37_79b9_7f4a_7c15_u64;
        let mut key = self.seed ^ period.wrapping_mul(odd);
        key = key.wrapping_add((slot as u64 + 1).wrapping_mul(odd.rotate_left(32)));
        key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        key ^ key >> 31
    }
}

impl PeriodSlot {
    /// The start of the first common period after `now_ns`, and its fraction of a nanosecond.
    pub fn first_period(&self, now_ns: u64, period_ns: f64) -> (u64, f64) {
        let passed_ns = now_ns.saturating_sub(self.schedule.origin_ns) as f64;
        let begins_ns = (passed_ns / period_ns).ceil() * period_ns;
        (
            self.schedule.origin_ns + begins_ns as u64,
            begins_ns.fract(),
        )
    }

    /// The start and the length of our part of the period that begins at `begins_ns`, in nanoseconds.
    pub fn part(&self, begins_ns: u64, period_ns: f64) -> (u64, u64) {
        let schedule = &*self.schedule;
        let passed_ns = begins_ns.saturating_sub(schedule.origin_ns) as f64;
        // Rounded, not truncated, as `begins_ns` has lost its fraction.
        let period = (passed_ns / period_ns).round() as u64;
        let count = schedule.count.load(Ordering::Relaxed).max(1);
        let key_of = |slot| (schedule.key(period, slot), slot);
        // Every recording computes the same order, so they need no communication.
        let own = key_of(self.number);
        let before = (0..count).filter(|&slot| key_of(slot) < own).count();
        let length_ns = period_ns / count as f64;
        ((length_ns * before as f64) as u64, length_ns as u64)
    }
}

impl Turn {
    /// Waits until no other guest is paused.
    pub fn take(slot: Arc<PeriodSlot>) -> Turn {
        let schedule = &slot.schedule;
        let mut still = schedule.still();
        while still.is_taken {
            still.waiting += 1;
            let woken = schedule.runs_again.wait(still);
            still = woken.unwrap_or_else(PoisonError::into_inner);
            still.waiting -= 1;
        }
        still.is_taken = true;
        drop(still);
        Turn(slot)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let schedule = &self.0.schedule;
        let mut still = schedule.still();
        still.is_taken = false;
        // Notifying is a system call, which most samples don't need.
        if still.waiting > 0 {
            schedule.runs_again.notify_one();
        }
    }
}

impl Drop for PeriodSlot {
    fn drop(&mut self) {
        let schedule = &self.schedule;
        let mut taken = schedule
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken[self.number] = false;
        while taken.last() == Some(&false) {
            taken.pop();
        }
        schedule.count.store(taken.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: f64 = 1e9 / 99.0;

    #[test]
    fn in_each_period_each_place_has_a_part_of_its_own_and_all_parts_in_time() {
        let schedule = Schedule::new();
        let slots: Vec<_> = (0..30).map(|_| schedule.join()).collect();
        let (mut begins_ns, _) = slots[0].first_period(monotonic_ns(), PERIOD_NS);
        let mut firsts = [0; 30];
        for _ in 0..3000 {
            let mut parts: Vec<_> = slots
                .iter()
                .enumerate()
                .map(|(number, slot)| (slot.part(begins_ns, PERIOD_NS), number))
                .collect();
            parts.sort_unstable();
            firsts[parts[0].1] += 1;
            let mut end_ns = 0;
            for ((from_ns, length_ns), _) in parts {
                assert!(from_ns >= end_ns, "{from_ns} begins before {end_ns}");
                end_ns = from_ns + length_ns;
            }
            assert!(end_ns as f64 <= PERIOD_NS);
            begins_ns += PERIOD_NS as u64;
        }
        // Each is expected 100 times, with a standard deviation of 10.
        assert!(
            firsts.iter().all(|times| (50..150).contains(times)),
            "{firsts:?}"
        );
    }

    #[test]
    fn places_that_were_left_are_given_out_again() {
        let schedule = Schedule::new();
        let [first, second, third] = [schedule.join(), schedule.join(), schedule.join()];
        drop(second);
        assert_eq!(schedule.count.load(Ordering::Relaxed), 3);
        let again = schedule.join();
        assert_eq!(again.number, 1);
        drop((again, third));
        assert_eq!(schedule.count.load(Ordering::Relaxed), 1);
        assert_eq!(first.part(schedule.origin_ns, 1000.0), (0, 1000));
    }

    #[test]
    fn who_starts_later_shares_the_periods_of_those_that_are_there() {
        let schedule = Schedule::new();
        let slot = schedule.join();
        for late_ns in [0, 1, 10_101_010, 10_101_011, 3_600_000_000_000] {
            let now_ns = schedule.origin_ns + late_ns;
            let (begins_ns, fraction_ns) = slot.first_period(now_ns, PERIOD_NS);
            assert!(begins_ns as f64 + fraction_ns >= now_ns as f64);
            let periods = ((begins_ns - schedule.origin_ns) as f64 + fraction_ns) / PERIOD_NS;
            assert!((periods - periods.round()).abs() < 1e-6, "{periods}");
        }
    }

    #[test]
    fn a_turn_ends_before_the_next_begins() {
        let schedule = Schedule::new();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let slot = schedule.join();
                    for _ in 0..1000 {
                        let _turn = Turn::take(Arc::clone(&slot));
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
