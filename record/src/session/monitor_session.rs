//! The recording of a guest's monitor, which is made beside the guest's, on a thread of its own. Input: how to make it.
//! Output: the number of its samples. Whatever goes wrong with it, the guest's recording goes on.

use crate::session::bounds;
use crate::source::SourceError;
use crate::source::control::Counters;
use crate::sys::bell::Bell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

/// A recording of a monitor that is under way.
pub struct MonitorSession<'scope> {
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    thread: ScopedJoinHandle<'scope, Option<u64>>,
}

impl<'scope> MonitorSession<'scope> {
    /// Starts it: `record` records until the counters say stop, for which the bell rings, and returns the number of
    /// samples.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        record: impl FnOnce(Arc<Counters>, Arc<Bell>) -> Option<u64> + Send + 'scope,
    ) -> Result<Self, SourceError> {
        let counters = Arc::new(Counters::default());
        let bell = Arc::new(Bell::new().map_err(bounds::no_bell)?);
        let shared = (Arc::clone(&counters), Arc::clone(&bell));
        let thread = bounds::start_thread(scope, "monitor", move || {
            catch_unwind(AssertUnwindSafe(|| record(shared.0, shared.1))).ok()?
        })?;
        Ok(MonitorSession {
            counters,
            bell,
            thread,
        })
    }

    /// Ends it. Returns its number of samples, if it was recorded to its end.
    pub fn end(self) -> Option<u64> {
        self.counters.stop();
        self.bell.ring();
        self.thread.join().ok().flatten()
    }
}
