//! The cold half of a backend, which the encoder asks now and then what changed, and the session at the
//! start and at the end: what the kernel counted is for the time in which samples were taken.

use crate::source::{Observations, Observer};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uprof::cold::ProcessTime;

/// An observer, and what it saw that nobody took yet.
pub struct SharedObserver(Mutex<Inner>);

struct Inner {
    /// `None` where there is none, and after its last look.
    observer: Option<Box<dyn Observer>>,
    /// What was counted and not taken yet.
    marked: Option<Vec<ProcessTime>>,
}

impl SharedObserver {
    /// Asks `observer`, if there is one.
    pub fn new(observer: Option<Box<dyn Observer>>) -> Self {
        SharedObserver(Mutex::new(Inner {
            observer,
            marked: None,
        }))
    }

    /// What changed since the last call.
    pub fn look(&self, now_ns: u64) -> Observations {
        let mut inner = self.inner();
        let marked = inner.marked.take();
        let mut seen = Observations::default();
        if let Some(observer) = &mut inner.observer {
            seen = observer.look(now_ns);
        }
        if let Some(times) = marked {
            seen.times.get_or_insert_default().extend(times);
        }
        seen
    }

    /// Reads the kernel's count because sampling begins, or because it has just ended; then there is no
    /// other look. What is read waits for the next call of [`SharedObserver::look`].
    pub fn mark(&self, last: bool) {
        let mut inner = self.inner();
        if let Some(times) = inner.observer.as_mut().and_then(|one| one.count(last)) {
            inner.marked.get_or_insert_default().extend(times);
        }
        if last {
            inner.observer = None;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
