//! When the recorder had the guest paused, passed without a lock from the sampler's thread to the one that keeps the
//! time of vCPUs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pauses that may wait for the observer: at 10 kHz, those of 1.6 s. Time of further ones is unknown.
const PAUSES_MAX: usize = 16_384;
/// The sampler's end.
#[derive(Debug)]
pub struct PauseWriter {
    queue: rtrb::Producer<(u64, u64)>,
    /// Begin of the pause that has not ended; 0 if none.
    open_ns: Arc<AtomicU64>,
}

impl PauseWriter {
    /// Must be called before each pause.
    pub fn begin(&self, now_ns: u64) {
        self.open_ns.store(now_ns, Ordering::Release);
    }

    /// Must be called when the guest runs again.
    pub fn end(&mut self, now_ns: u64) {
        let open_ns = self.open_ns.load(Ordering::Relaxed);
        if open_ns > 0 {
            let _ = self.queue.push((open_ns, now_ns));
            self.open_ns.store(0, Ordering::Release);
        }
    }
}

/// The observer's end: pauses that may still matter.
#[derive(Debug)]
pub struct Pauses {
    queue: rtrb::Consumer<(u64, u64)>,
    open_ns: Arc<AtomicU64>,
    /// Begin and end, in order of time.
    known: VecDeque<(u64, u64)>,
    /// Begin of a pause that lasted at the last [`Pauses::take`]; 0 if none.
    lasting_ns: u64,
    slack_ns: u64,
}

/// Both ends, without pauses. Each pause counts as longer by `slack_ns` at both ends: so much may the clock of the
/// events differ from ours.
pub fn pauses(slack_ns: u64) -> (PauseWriter, Pauses) {
    let (producer, consumer) = rtrb::RingBuffer::new(PAUSES_MAX);
    let open_ns = Arc::new(AtomicU64::new(0));
    let writer = PauseWriter {
        queue: producer,
        open_ns: Arc::clone(&open_ns),
    };
    let reader = Pauses {
        queue: consumer,
        open_ns,
        known: VecDeque::new(),
        lasting_ns: 0,
        slack_ns,
    };
    (writer, reader)
}

impl Pauses {
    /// Takes the pauses that came. Must be called after the records of their time were read.
    pub fn take(&mut self) {
        // In this order: a pause that ends meanwhile is then known twice rather than not at all.
        self.lasting_ns = self.open_ns.load(Ordering::Acquire);
        while let Ok(pause) = self.queue.pop() {
            self.known.push_back(pause);
        }
    }

    /// Forgets pauses that ended before `now_ns`.
    pub fn forget_before(&mut self, now_ns: u64) {
        while let Some((_, end)) = self.known.front()
            && end.saturating_add(self.slack_ns) < now_ns
        {
            self.known.pop_front();
        }
    }

    /// Nanoseconds between two times in which the recorder had the guest paused.
    pub fn within(&self, first_ns: u64, last_ns: u64) -> u64 {
        let slack_ns = self.slack_ns;
        let last = self.known.back();
        if self.lasting_ns == 0
            && last.is_none_or(|(_, end)| end.saturating_add(slack_ns) <= first_ns)
        {
            return 0;
        }
        let ended = |pause: &(u64, u64)| pause.1.saturating_add(slack_ns) <= first_ns;
        let known = self.known.range(self.known.partition_point(ended)..);
        let lasting = (self.lasting_ns > 0).then_some((self.lasting_ns, u64::MAX));
        let mut covered_to_ns = first_ns;
        let mut total_ns = 0;
        for (begin, end) in known.copied().chain(lasting) {
            let begin = begin.saturating_sub(slack_ns).max(covered_to_ns);
            let end = end.saturating_add(slack_ns).min(last_ns);
            if begin >= last_ns {
                break;
            }
            if end > begin {
                total_ns += end - begin;
                covered_to_ns = end;
            }
        }
        total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SLACK_NS: u64 = 20_000;

    #[test]
    fn pauses_are_found_while_they_last_and_until_forgotten() {
        let (mut writer, mut pauses) = pauses(SLACK_NS);
        pauses.take();
        assert_eq!(pauses.within(0, 100 * MS), 0);
        writer.end(3 * MS);
        writer.begin(10 * MS);
        pauses.take();
        assert_eq!(pauses.within(0, 15 * MS), 5 * MS + SLACK_NS);
        writer.end(20 * MS);
        writer.begin(40 * MS);
        pauses.take();
        let both_ns = 10 * MS + 2 * SLACK_NS + 2 * MS + SLACK_NS;
        assert_eq!(pauses.within(0, 42 * MS), both_ns);
        assert_eq!(pauses.within(12 * MS, 14 * MS), 2 * MS);
        pauses.forget_before(30 * MS);
        assert_eq!(pauses.within(0, 30 * MS), 0);
    }

    #[test]
    fn pauses_beyond_the_room_are_left_out() {
        let (mut writer, mut pauses) = pauses(SLACK_NS);
        for number in 1..=PAUSES_MAX as u64 + 10 {
            writer.begin(number * MS);
            writer.end(number * MS + 100);
        }
        pauses.take();
        assert_eq!(pauses.known.len(), PAUSES_MAX);
        assert!(pauses.within(0, 2 * MS) > 0);
    }
}
