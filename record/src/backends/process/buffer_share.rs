//! Estimates the target's share of the samples in a kernel buffer, and since when records of it are lost.
//!
//! Input: for each sample, whether it is the target's. Output: how many of the dropped records count as lost. The
//! kernel reports how many records it dropped, but not whose, and events of processors write those of all processes.
//! A full buffer ends with the samples from just before the loss, so their share is used.

use crate::sys::ring_buffer::Next;
use std::cell::Cell;

/// Samples of a block. The last block and the current one give the share; they are fewer than the smallest buffer
/// holds.
const BLOCK: u32 = 16;

/// The samples of one buffer.
#[derive(Debug, Default)]
pub struct BufferShare {
    now: Cell<Seen>,
    last: Cell<Seen>,
    /// The fraction of a record that was carried over.
    rest: Cell<f64>,
    others: Cell<u64>,
    passed_ns: Cell<u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    ours: u32,
    all: u32,
}

impl BufferShare {
    /// Takes note of the time of the next record, unless that is the one of a loss.
    pub fn pass(&self, next: &Next) {
        if !next.is_loss() {
            self.passed_ns.set(next.time_ns);
        }
    }

    /// The time of the last record before a loss: that of the loss itself is when there was room again.
    pub fn passed_ns(&self) -> u64 {
        self.passed_ns.get()
    }

    /// Counts a sample.
    pub fn see(&self, is_ours: bool) {
        let Seen { ours, all } = self.now.get();
        let now = Seen {
            ours: ours + u32::from(is_ours),
            all: all + 1,
        };
        if now.all < BLOCK {
            return self.now.set(now);
        }
        self.last.set(now);
        self.now.set(Seen::default());
    }

    /// How many of `count` dropped records count as the target's. None do before the first sample, as the buffer was
    /// then filled before the recording began.
    pub fn of(&self, count: u64) -> u64 {
        let (now, last) = (self.now.get(), self.last.get());
        let all = (now.all + last.all).max(1);
        let share = f64::from(now.ours + last.ours) / f64::from(all);
        let exact = count as f64 * share + self.rest.get();
        let ours = (exact as u64).min(count);
        self.rest.set(exact - ours as f64);
        self.others.set(self.others.get() + count - ours);
        ours
    }

    /// How many dropped records didn't count.
    pub fn others(&self) -> u64 {
        self.others.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_others_that_were_dropped_are_not_lost() {
        let share = BufferShare::default();
        assert_eq!(share.of(700), 0, "nothing was sampled yet");
        (0..100).for_each(|_| share.see(true));
        assert_eq!(share.of(10), 10);
        // Processes that ran before the recording must not count.
        (0..2 * BLOCK).for_each(|_| share.see(false));
        assert_eq!(share.of(765), 0);
        (0..2 * BLOCK).for_each(|at| share.see(at % 4 == 0));
        let lost: u64 = (0..100).map(|_| share.of(3)).sum();
        assert_eq!(lost, 75);
        assert_eq!(share.others(), 700 + 765 + 225);
    }
}
