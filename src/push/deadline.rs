//! When delivering has to end. In: that a recording goes on, that it is over, that something new waits. Out: the time
//! that is left, and pauses that end early if that changes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The end of delivering. While a recording goes on there is none.
pub struct Deadline {
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// When the recording was over.
    closed: Option<Instant>,
    /// Whether nobody wants to wait any more.
    is_hurried: bool,
    /// Whether something new waits.
    has_news: bool,
}

impl Deadline {
    /// Delivering ends `patience` after the last success.
    pub fn closed(patience: Duration) -> Deadline {
        let deadline = Deadline::open(patience);
        deadline.close();
        deadline
    }

    /// Delivering goes on until [`Self::close`], and ends `patience` after that or after the last later success.
    pub fn open(patience: Duration) -> Deadline {
        Deadline {
            patience,
            state: Mutex::new(State {
                closed: None,
                is_hurried: false,
                has_news: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recording is over.
    pub fn close(&self) {
        self.change(|state| state.closed = Some(Instant::now()));
    }

    /// Nobody wants to wait any more once the recording is over.
    pub fn hurry(&self) {
        self.change(|state| state.is_hurried = true);
    }

    /// Something new waits.
    pub fn announce(&self) {
        self.change(|state| state.has_news = true);
    }

    /// Whether the recording is over.
    pub fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// The time that is left for what is tried since `since`.
    pub fn left(&self, since: Instant) -> Duration {
        let state = self.lock();
        match state.closed {
            None => Duration::MAX,
            Some(_) if state.is_hurried => Duration::ZERO,
            Some(closed) => self.patience.saturating_sub(since.max(closed).elapsed()),
        }
    }

    /// Pauses, but not beyond the end of the recording: then there is one more attempt.
    pub fn pause(&self, length: Duration) {
        let before = self.lock();
        let (closed, is_hurried) = (before.closed, before.is_hurried);
        let same = |state: &mut State| state.closed == closed && state.is_hurried == is_hurried;
        drop(self.changed.wait_timeout_while(before, length, same));
    }

    /// Pauses, but not once the recording is over.
    pub fn pause_while_open(&self, length: Duration) {
        let open = |state: &mut State| state.closed.is_none();
        drop(self.changed.wait_timeout_while(self.lock(), length, open));
    }

    /// Whether what was tried at `tried` is to be tried again now: it is time, or the recording has ended since.
    pub fn is_due(&self, tried: Instant, again: Instant) -> bool {
        let ended = |closed: Instant| closed > tried;
        Instant::now() >= again || self.lock().closed.is_some_and(ended)
    }

    /// Whether the recording is over and nobody wants to wait any more.
    pub fn is_hurried(&self) -> bool {
        let state = self.lock();
        state.closed.is_some() && state.is_hurried
    }

    /// Waits until something new is there or the recording is over, at most for `length`.
    pub fn wait_for_news(&self, length: Duration) {
        let idle = |state: &mut State| !state.has_news && state.closed.is_none();
        let waited = self.changed.wait_timeout_while(self.lock(), length, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.has_news = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_goes_on_has_no_end_and_its_end_ends_a_pause() {
        let deadline = Deadline::open(Duration::from_secs(60));
        let began = Instant::now();
        assert_eq!(deadline.left(began), Duration::MAX);
        std::thread::scope(|scope| {
            scope.spawn(|| deadline.pause(Duration::from_secs(3600)));
            std::thread::sleep(Duration::from_millis(20));
            deadline.close();
        });
        deadline.pause_while_open(Duration::from_secs(3600));
        assert!(began.elapsed() < Duration::from_secs(1800));
        let later = Instant::now() + Duration::from_secs(3600);
        assert!(deadline.is_due(began, later) && !deadline.is_due(Instant::now(), later));
        let left = deadline.left(began);
        assert!(left > Duration::from_secs(1) && left <= Duration::from_secs(60));
        deadline.hurry();
        assert_eq!(deadline.left(Instant::now()), Duration::ZERO);
    }
}
