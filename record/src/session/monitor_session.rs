//! The recording of a guest's monitor, which is made beside the guest's, on a thread of its own, and whose bytes are
//! part of the guest's recording.

use crate::session::bounds;
use crate::session::sample_session::{self, Summary};
use crate::source::control::Counters;
use crate::source::{MonitorSource, SourceError};
use crate::writing::monitor_part::MonitorPart;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};

/// A recording of a monitor that is under way.
pub struct MonitorSession<'scope> {
    counters: Arc<Counters>,
    thread: ScopedJoinHandle<'scope, Option<Summary>>,
}

impl<'scope> MonitorSession<'scope> {
    /// Starts to record `source` into `part`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        monitor: MonitorSource,
        part: MonitorPart,
    ) -> Result<Self, SourceError> {
        let counters = Arc::new(Counters::default());
        let shared = Arc::clone(&counters);
        let thread = bounds::start_thread(scope, "monitor", move || {
            let MonitorSource { source, plan } = monitor;
            let MonitorPart { bytes, handled } = part;
            let run = || sample_session::record_into(*source, bytes, &plan, shared, Some(handled));
            // Whatever goes wrong here, the guest's recording goes on.
            catch_unwind(AssertUnwindSafe(run)).ok()?.ok()
        })?;
        Ok(MonitorSession { counters, thread })
    }

    /// Ends it.
    pub fn end(self) -> Option<Summary> {
        self.counters.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}
