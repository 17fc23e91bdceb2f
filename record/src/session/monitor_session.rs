//! The recording of a guest's monitor, which is made beside the guest's, on a thread of its own. Input: how to make it.
//! Output: the number of its samples. Whatever goes wrong with it, the guest's recording goes on.

use crate::session::bounds;
use crate::source::SourceError;
use crate::source::control::Counters;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};

/// A recording of a monitor that is under way.
pub struct MonitorSession<'scope> {
    counters: Arc<Counters>,
    thread: ScopedJoinHandle<'scope, Option<u64>>,
}

impl<'scope> MonitorSession<'scope> {
    /// Starts it: `record` records until the counters say stop, and returns the number of samples.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        record: impl FnOnce(Arc<Counters>) -> Option<u64> + Send + 'scope,
    ) -> Result<Self, SourceError> {
        let counters = Arc::new(Counters::default());
        let shared = Arc::clone(&counters);
        let thread = bounds::start_thread(scope, "monitor", move || {
            catch_unwind(AssertUnwindSafe(|| record(shared))).ok()?
        })?;
        Ok(MonitorSession { counters, thread })
    }

    /// Ends it. Returns its number of samples, if it was recorded to its end.
    pub fn end(self) -> Option<u64> {
        self.counters.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}
