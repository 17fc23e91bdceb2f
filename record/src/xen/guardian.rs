//! Resumes the guest when the recorder can't: a process that outlives it.
//!
//! A SIGKILL between pause and resume would leave the guest standing for good. So before the first
//! pause a guardian is forked. Recorder and guardian share one word that says where in a freeze the
//! recorder is; a pipe tells the guardian when the recorder is gone. It also steps in when a freeze
//! lasts far too long (the recorder was stopped, or its machine swaps); the recorder then finds the
//! word changed and does not resume a second time.
//!
//! Xen counts pauses, and another tool may hold one of its own. The guardian resumes only if the word
//! says that ours may be held and Xen says that the domain is paused at all. What remains is a recorder
//! killed within the microseconds of its own pause or resume call while another tool pauses in the same
//! microseconds; then the other's pause could be undone.

use super::domain::Xen;
use crate::sys::xen::XenError;
use crate::sys::xen::guardian_process::{ChildProcess, SharedWords, wait_for_end};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often the guardian looks whether a freeze drags on.
const LOOK_EVERY_MS: i32 = 250;
/// Looks at one and the same freeze after which the guardian ends it: half a second to 750 ms.
const PATIENCE: u32 = 2;

/// Index of the word that holds the state.
const STATE: usize = 0;
/// Index of the word that counts what the guardian did.
const RESCUES: usize = 1;

/// Low bits of the state; the rest is the number of the freeze.
const RUNNING: u64 = 0;
const FROZEN: u64 = 1;
const RESUMING: u64 = 2;
const RESCUED: u64 = 3;

/// The recorder's side. Dropping it ends the guardian.
#[derive(Debug)]
pub struct Guardian {
    shared: Arc<SharedWords>,
    freeze_number: u64,
    _child: ChildProcess,
}

impl Guardian {
    /// Forks a guardian for `domain`. Must be called before any thread is started.
    pub fn start(domain: u16) -> Result<Self, XenError> {
        let shared = Arc::new(SharedWords::new()?);
        let child = ChildProcess::start(|lifeline| stand_by(&shared, domain, lifeline))?;
        Ok(Guardian {
            shared,
            freeze_number: 0,
            _child: child,
        })
    }

    fn state(&self) -> &AtomicU64 {
        self.shared.word(STATE)
    }

    /// To be called just before the pause.
    pub fn freezing(&mut self) {
        self.freeze_number += 1;
        let state = self.freeze_number << 2 | FROZEN;
        self.state().store(state, Ordering::SeqCst);
    }

    /// To be called before the resume: false means that the guardian has already done it.
    pub fn may_resume(&self) -> bool {
        let frozen = self.freeze_number << 2 | FROZEN;
        let resuming = self.freeze_number << 2 | RESUMING;
        self.state()
            .compare_exchange(frozen, resuming, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// To be called once the guest runs again, or was never paused.
    pub fn running(&self) {
        self.state().store(RUNNING, Ordering::SeqCst);
    }

    /// How often the guardian had to step in during the recording.
    pub fn rescues(&self) -> u64 {
        self.shared.word(RESCUES).load(Ordering::Relaxed)
    }
}

/// The guardian's life.
fn stand_by(shared: &SharedWords, domain: u16, lifeline: RawFd) {
    let state = shared.word(STATE);
    let mut seen = RUNNING;
    let mut looks = 0;
    while !wait_for_end(lifeline, LOOK_EVERY_MS) {
        let now = state.load(Ordering::SeqCst);
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        if now & 3 == FROZEN && looks >= PATIENCE {
            let rescued = now | RESCUED;
            let claimed = state.compare_exchange(now, rescued, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_ok() {
                shared.word(RESCUES).fetch_add(1, Ordering::Relaxed);
                resume_if_paused(domain);
            }
        }
    }
    let last = state.load(Ordering::SeqCst) & 3;
    if last == FROZEN || last == RESUMING {
        resume_if_paused(domain);
    }
}

fn resume_if_paused(domain: u16) {
    // Nobody is left to hear of a failure; the domain is then gone, or we may not act on it any more.
    if let Ok(mut xen) = Xen::open()
        && xen.domain_info(domain).is_ok_and(|info| info.is_paused())
    {
        let _ = xen.unpause(domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_that_was_ended_by_the_guardian_is_not_resumed_twice() {
        let mut guardian = Guardian {
            shared: Arc::new(SharedWords::new().unwrap()),
            freeze_number: 0,
            _child: ChildProcess::start(|lifeline| {
                wait_for_end(lifeline, 10_000);
            })
            .unwrap(),
        };
        guardian.freezing();
        assert!(guardian.may_resume());
        guardian.running();
        guardian.freezing();
        let state = guardian.state().load(Ordering::SeqCst);
        assert_eq!(state, 2 << 2 | FROZEN);
        guardian.state().store(state | RESCUED, Ordering::SeqCst);
        assert!(!guardian.may_resume());
    }
}
