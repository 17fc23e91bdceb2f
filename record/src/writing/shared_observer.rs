//! The cold half of a backend. The encoder asks it periodically for changes. The session asks it at the start and at
//! the end of sampling, so that processor time is counted for exactly that time.

use crate::source::{Observations, Observer};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uprof::cold::ProcessTime;

/// An observer, and those of its results that were not taken yet.
pub struct SharedObserver(Mutex<Inner>);

struct Inner {
    /// `None` if there is no observer, and after its last call.
    observer: Option<Box<dyn Observer>>,
    /// Processor time that was not taken yet.
    marked: Option<Vec<ProcessTime>>,
}

impl SharedObserver {
    /// Shares `observer`, if there is one.
    pub fn new(observer: Option<Box<dyn Observer>>) -> Self {
        SharedObserver(Mutex::new(Inner {
            observer,
            marked: None,
        }))
    }

    /// Returns the changes since the last call.
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

    /// Reads processor time when sampling begins, and when it has ended (`last`). The next call of
    /// [`SharedObserver::look`] returns it.
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
