//! A process that outlives the recorder and resumes the guest if the recorder can't.
//!
//! A SIGKILL between pause and resume would leave the guest paused for good. So a guardian is forked before the first
//! pause. Recorder and guardian share a word with the state of the freeze; a pipe tells the guardian when the
//! recorder is gone. The guardian also ends a freeze that lasts far too long (the recorder was stopped, or its
//! machine swaps); the recorder then finds the word changed and does not resume a second time. If both are killed at
//! once, the word stays in a [`mark`](crate::guest::mark), by which [`left_paused`](crate::guest::left_paused) finds
//! the guest.
//!
//! The backend's [`Rescuer`] resumes the guest.

use crate::guest::mark::{DISMISSED, FROZEN, Mark, RESCUED, RESUMING, RUNNING, is_amid_freeze};
use crate::source::SourceError;
use crate::sys::guardian_process::{ChildProcess, SharedWords, wait_for_end};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often the guardian checks for a freeze that is too long.
const CHECK_EVERY_MS: i32 = 250;
/// The guardian ends a freeze after this many checks: after 500 to 750 ms.
const PATIENCE: u32 = 2;

/// Index of the word that holds the state.
const STATE: usize = 0;
/// Index of the word that counts the guardian's rescues.
const RESCUES: usize = 1;
/// Index of the word with the current guest, if it is another than at the start.
const SUCCESSOR: usize = 2;

/// What the guardian does, in its own process, where failures can't be reported.
pub trait Rescuer {
    /// Resumes the guest after a freeze that is too long. The recorder is still there and may go on.
    fn resume(&mut self);

    /// Makes sure that the guest runs after the recorder has gone, in the middle of a freeze if `frozen`.
    fn release(&mut self, frozen: bool);

    /// Switches to the guest that succeeded the one at the start.
    fn turn_to(&mut self, _successor: u64) {}

    /// The guest's name in the mark, which [`crate::guest::left_paused`] reads.
    fn guest(&self) -> String;
}

/// The recorder's side. Dropping it ends the guardian.
#[derive(Debug)]
pub struct Guardian {
    shared: Arc<SharedWords>,
    freeze_number: u64,
    _child: ChildProcess,
    /// Dropped last.
    mark: Option<Mark>,
}

impl Guardian {
    /// Forks a guardian, which keeps the descriptors of `kept` open. Must be called before any thread is started.
    ///
    /// # Errors
    /// Why there can be no guardian.
    pub fn start(kept: &[RawFd], mut rescuer: impl Rescuer) -> Result<Self, SourceError> {
        let failed = |errno| {
            let doing =
                "cannot start the guardian process that resumes the guest after an accident";
            SourceError::system(doing, errno, "")
        };
        let mark = Mark::leave(&rescuer.guest());
        let file = mark.as_ref().map(Mark::file);
        let shared = Arc::new(SharedWords::new(file).map_err(failed)?);
        let kept: Vec<RawFd> = kept
            .iter()
            .copied()
            .chain(file.map(AsRawFd::as_raw_fd))
            .collect();
        let child = ChildProcess::start(&kept, |lifeline| {
            stand_by(&shared, &mut rescuer, lifeline);
            mark.iter().for_each(Mark::remove);
        });
        Ok(Guardian {
            shared,
            freeze_number: 0,
            _child: child.map_err(failed)?,
            mark,
        })
    }

    fn state(&self) -> &AtomicU64 {
        self.shared.word(STATE)
    }

    /// Must be called just before the pause.
    pub fn freezing(&mut self) {
        self.freeze_number += 1;
        let state = self.freeze_number << 2 | FROZEN;
        self.state().store(state, Ordering::SeqCst);
    }

    /// Whether the current freeze is still ours; `false` if the guardian has ended it.
    pub fn is_frozen(&self) -> bool {
        self.state().load(Ordering::SeqCst) == self.freeze_number << 2 | FROZEN
    }

    /// Says that a freeze that has no end of its own is still looked after, at least twice a second; `false` if the
    /// guardian has ended it.
    pub fn still_freezing(&mut self) -> bool {
        let before = self.freeze_number << 2 | FROZEN;
        let next = (self.freeze_number + 1) << 2 | FROZEN;
        let state = self.state();
        let ours = state
            .compare_exchange(before, next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        self.freeze_number += u64::from(ours);
        ours
    }

    /// Must be called before the resume; `false` if the guardian has already resumed the guest.
    pub fn may_resume(&self) -> bool {
        let frozen = self.freeze_number << 2 | FROZEN;
        let resuming = self.freeze_number << 2 | RESUMING;
        self.state()
            .compare_exchange(frozen, resuming, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Must be called when the guest runs again, or was never paused.
    pub fn running(&self) {
        self.state().store(RUNNING, Ordering::SeqCst);
    }

    /// Must be called when the guest needs no guardian any more.
    pub fn dismiss(&self) {
        self.state().store(DISMISSED, Ordering::SeqCst);
    }

    /// Switches to another guest, whose number is not 0, while none is frozen; `name` is what [`Rescuer::guest`]
    /// would return for it.
    pub fn turn_to(&self, successor: u64, name: &str) {
        if let Some(mark) = &self.mark {
            mark.rename(name);
        }
        self.shared
            .word(SUCCESSOR)
            .store(successor, Ordering::SeqCst);
    }

    /// How many freezes the guardian has ended.
    pub fn rescues(&self) -> u64 {
        self.shared.word(RESCUES).load(Ordering::Relaxed)
    }
}

/// The guardian's main loop.
fn stand_by(shared: &SharedWords, rescuer: &mut impl Rescuer, lifeline: RawFd) {
    let state = shared.word(STATE);
    let mut seen = RUNNING;
    let mut checks = 0;
    while !wait_for_end(lifeline, CHECK_EVERY_MS) {
        let now = state.load(Ordering::SeqCst);
        checks = if now == seen { checks + 1 } else { 0 };
        seen = now;
        if now & 3 == FROZEN && checks >= PATIENCE {
            let rescued = now | RESCUED;
            let claimed = state.compare_exchange(now, rescued, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_ok() {
                shared.word(RESCUES).fetch_add(1, Ordering::Relaxed);
                turn(shared, rescuer);
                rescuer.resume();
            }
        }
    }
    match state.load(Ordering::SeqCst) {
        DISMISSED => {}
        last => {
            turn(shared, rescuer);
            rescuer.release(is_amid_freeze(last));
        }
    }
}

/// Tells the rescuer which guest is the current one.
fn turn(shared: &SharedWords, rescuer: &mut impl Rescuer) {
    match shared.word(SUCCESSOR).load(Ordering::SeqCst) {
        0 => {}
        successor => rescuer.turn_to(successor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_that_was_ended_by_the_guardian_is_not_resumed_twice() {
        let mut guardian = Guardian {
            shared: Arc::new(SharedWords::new(None).unwrap()),
            freeze_number: 0,
            _child: ChildProcess::start(&[], |lifeline| {
                wait_for_end(lifeline, 10_000);
            })
            .unwrap(),
            mark: None,
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

    #[test]
    fn a_freeze_that_is_looked_after_has_no_end() {
        let rescues = witnessed_for(|guardian| {
            guardian.freezing();
            for _ in 0..15 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                assert!(guardian.still_freezing() || guardian.rescues() > 0);
            }
        });
        // On a machine that is so busy that it sleeps for half a second, it may be ended.
        assert!(rescues <= 1, "{rescues}");
        witnessed_for(|guardian| {
            guardian.freezing();
            let begun = std::time::Instant::now();
            while guardian.rescues() == 0 && begun.elapsed().as_secs() < 30 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(!guardian.still_freezing());
            assert!(!guardian.may_resume());
        });
    }

    /// How many freezes the guardian of such a recorder ended.
    fn witnessed_for(life: impl FnOnce(&mut Guardian)) -> usize {
        witnessed(life).matches('r').count()
    }

    /// Writes what it is asked into a pipe.
    struct Witness(std::fs::File);

    impl Rescuer for Witness {
        fn resume(&mut self) {
            let _ = std::io::Write::write_all(&mut self.0, b"r");
        }

        fn release(&mut self, frozen: bool) {
            let _ = std::io::Write::write_all(&mut self.0, if frozen { b"F" } else { b"n" });
        }

        fn turn_to(&mut self, successor: u64) {
            let _ = std::io::Write::write_all(&mut self.0, successor.to_string().as_bytes());
        }

        fn guest(&self) -> String {
            "nobody".into()
        }
    }

    fn witnessed(life: impl FnOnce(&mut Guardian)) -> String {
        use std::os::fd::AsRawFd;
        let (read, write) = nix::unistd::pipe().unwrap();
        let kept = [write.as_raw_fd()];
        let mut guardian = Guardian::start(&kept, Witness(write.into())).unwrap();
        life(&mut guardian);
        drop(guardian);
        std::io::read_to_string(std::fs::File::from(read)).unwrap()
    }

    #[test]
    fn the_rescuer_is_asked_for_what_is_missing() {
        assert_eq!(witnessed(|_| {}), "n");
        assert_eq!(witnessed(Guardian::freezing), "F");
        assert_eq!(witnessed(|guardian| guardian.dismiss()), "");
        let succeeded = witnessed(|guardian| {
            guardian.turn_to(7, "somebody");
            guardian.freezing();
        });
        assert_eq!(succeeded, "7F");
        let dragging = witnessed(|guardian| {
            guardian.freezing();
            // Less than a second, unless the machine is busy.
            let begun = std::time::Instant::now();
            while guardian.rescues() == 0 && begun.elapsed().as_secs() < 30 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(!guardian.may_resume());
            assert_eq!(guardian.rescues(), 1);
            guardian.running();
        });
        assert_eq!(dragging, "rn");
    }
}
