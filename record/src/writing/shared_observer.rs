//! The cold half of a backend. The encoder asks it periodically for changes. The session asks it at the start and at
//! the end of sampling, so that processor time is counted for exactly that time.

use crate::source::{Observations, Observer};
use crate::sys::clock::monotonic_ns;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An observer, and those of its results that were not taken yet.
pub struct SharedObserver(Mutex<Inner>);

struct Inner {
    /// `None` if there is no observer, and after its last call.
    observer: Option<Box<dyn Observer>>,
    /// What was not taken yet.
    marked: Observations,
    /// When sampling ended.
    ended_ns: Option<u64>,
}

impl SharedObserver {
    /// Shares `observer`, if there is one.
    pub fn new(observer: Option<Box<dyn Observer>>) -> Self {
        SharedObserver(Mutex::new(Inner {
            observer,
            marked: Observations::default(),
            ended_ns: None,
        }))
    }

    /// Returns the changes since the last call.
    pub fn look(&self, now_ns: u64) -> Observations {
        let mut inner = self.inner();
        let mut seen = std::mem::take(&mut inner.marked);
        if let Some(observer) = &mut inner.observer {
            seen.join(observer.look(now_ns));
        }
        seen
    }

    /// Takes note that an address space has had other mappings since `time_ns`.
    pub fn replaced(&self, space: u32, time_ns: u64) {
        if let Some(observer) = &mut self.inner().observer {
            observer.replaced(space, time_ns);
        }
    }

    /// Reads what can't wait until the next look; returns how long the next call may wait.
    pub fn poll(&self) -> Duration {
        let observer = &mut self.inner().observer;
        observer
            .as_mut()
            .map_or(Duration::MAX, |observer| observer.poll())
    }

    /// Reads processor time when sampling begins, and when it has ended (`last`). The next call of
    /// [`SharedObserver::look`] returns it, and at the end the last observations.
    pub fn mark(&self, last: bool) {
        let inner = &mut *self.inner();
        if let Some(observer) = &mut inner.observer {
            inner.marked.join(Observations {
                times: observer.count(last),
                ..Observations::default()
            });
        }
        if last {
            if let Some(mut observer) = inner.observer.take() {
                inner.marked.join(observer.end());
            }
            inner.ended_ns = Some(monotonic_ns());
        }
    }

    /// The time of the recording, in nanoseconds: now, or when sampling ended. What the recorder does afterwards may
    /// take a minute, and is no part of it.
    pub fn now_ns(&self) -> u64 {
        let ended_ns = self.inner().ended_ns;
        ended_ns.unwrap_or_else(monotonic_ns)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
