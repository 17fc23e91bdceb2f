//! Requests to save a flight recorder's window, from any thread to the encoder's.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most requests that wait; further ones are dropped, which closes their connections.
const MOST_WAITING: usize = 64;

/// Requests that wait for the encoder.
#[derive(Debug, Default)]
pub struct SaveRequests {
    is_asked: AtomicBool,
    asked: Mutex<Vec<(String, UnixStream)>>,
}

impl SaveRequests {
    /// Asks for a save for this reason; the result goes to `reply`.
    pub fn ask(&self, reason: String, reply: UnixStream) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < MOST_WAITING {
            asked.push((reason, reply));
        }
        self.is_asked.store(true, Ordering::Release);
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<(String, UnixStream)> {
        if !self.is_asked.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_up_to_a_number() {
        let requests = SaveRequests::default();
        for _ in 0..=MOST_WAITING {
            let (near, _) = UnixStream::pair().unwrap();
            requests.ask("test".into(), near);
        }
        assert_eq!(requests.take().len(), MOST_WAITING);
        assert!(requests.take().is_empty());
    }
}
