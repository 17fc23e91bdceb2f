//! Shows whether the thread that identifies files makes progress. Foreign files may block it forever; on a busy machine
//! it may only be slow. A clock can't distinguish these.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The steps of the thread: events completed, and pieces of files read.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

/// The observer's end: when the last step was seen.
#[derive(Debug)]
pub struct Watch {
    progress: Progress,
    steps: u64,
    since: Instant,
}

impl Progress {
    /// Counts a step.
    pub fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Watches the steps from now on.
    pub fn watch(&self) -> Watch {
        Watch {
            progress: self.clone(),
            steps: 0,
            since: Instant::now(),
        }
    }
}

impl Watch {
    /// Whether there has been no step for `patience`.
    pub fn is_stuck(&mut self, patience: Duration) -> bool {
        let steps = self.progress.0.load(Ordering::Relaxed);
        if steps != self.steps {
            (self.steps, self.since) = (steps, Instant::now());
        }
        self.since.elapsed() >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_steps_is_not_stuck_however_long_it_takes() {
        let progress = Progress::default();
        let mut watch = progress.watch();
        assert!(watch.is_stuck(Duration::ZERO));
        let long = Duration::from_secs(3600);
        assert!(!watch.is_stuck(long));
        watch.since = Instant::now().checked_sub(long).unwrap();
        assert!(watch.is_stuck(long));
        progress.step();
        assert!(!watch.is_stuck(long));
    }
}
