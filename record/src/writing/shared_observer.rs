//! The cold half of a backend. The encoder asks it periodically for changes. The session asks it at the start and at
//! the end of sampling, so that processor time is counted for exactly that time.

use crate::source::{Observations, Observer};
use crate::sys::bell::{Bell, Sleeper};
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An observer, and those of its results that were not taken yet.
pub struct SharedObserver {
    inner: Mutex<Inner>,
    bell: Arc<Bell>,
}

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
    ///
    /// # Errors
    /// There are too many open files.
    pub fn new(observer: Option<Box<dyn Observer>>) -> Result<Self, Errno> {
        Ok(SharedObserver {
            inner: Mutex::new(Inner {
                observer,
                marked: Observations::default(),
                ended_ns: None,
            }),
            bell: Arc::new(Bell::new()?),
        })
    }

    /// The encoder, which sleeps until the observer has something to read or the bell rings.
    pub fn sleeper(&self) -> Sleeper {
        let inner = self.inner();
        let events = inner.observer.as_ref().map(|observer| observer.events());
        Sleeper {
            bell: Arc::clone(&self.bell),
            events: events.unwrap_or_default(),
        }
    }

    /// What wakes the encoder.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
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

    /// Reads what can't wait until the next look; returns how long the next call may wait. See [`Observer::poll`].
    pub fn poll(&self, is_filled: bool) -> Duration {
        let observer = &mut self.inner().observer;
        observer
            .as_mut()
            .map_or(Duration::MAX, |observer| observer.poll(is_filled))
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
