//! Resumes the guest when the recorder can't: a process that outlives it.
//!
//! A SIGKILL between pause and resume would leave the guest standing for good. So before the first
//! pause a guardian is forked. Recorder and guardian share one word that says where in a freeze the
//! recorder is; a pipe tells the guardian when the recorder is gone. It also steps in when a freeze
//! lasts far too long (the recorder was stopped, or its machine swaps); the recorder then finds the
//! word changed and does not resume a second time. Where both are killed at once, the word stays in a
//! [`mark`](crate::guest::mark), and [`left_paused`](crate::guest::left_paused) finds the guest.
//!
//! How a guest is resumed is the backend's to say: it hands over a [`Rescuer`].

use crate::guest::mark::{DISMISSED, FROZEN, Mark, RESCUED, RESUMING, RUNNING, is_amid_freeze};
use crate::source::SourceError;
use crate::sys::guardian_process::{ChildProcess, SharedWords, wait_for_end};
use std::os::fd::{AsRawFd, RawFd};
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
/// Index of the word that says which guest it is by now, if another than at the start.
const SUCCESSOR: usize = 2;

/// What the guardian does, in a process of its own in which nobody hears of failures.
pub trait Rescuer {
    /// A freeze drags on: resume the guest. The recorder is there still and may go on.
    fn resume(&mut self);

    /// The recorder is gone, in the middle of a freeze if `frozen`: leave the guest running.
    fn release(&mut self, frozen: bool);

    /// From now on it is this guest instead, which came after the one at the start.
    fn turn_to(&mut self, _successor: u64) {}

    /// Which guest, for whoever finds it standing when recorder and guardian are gone: what
    /// [`crate::guest::left_paused`] reads.
    fn guest(&self) -> String;
}

/// The recorder's side. Dropping it ends the guardian.
#[derive(Debug)]
pub struct Guardian {
    shared: Arc<SharedWords>,
    freeze_number: u64,
    _child: ChildProcess,
    /// Goes last.
    mark: Option<Mark>,
}

impl Guardian {
    /// Forks a guardian, which keeps the descriptors of `kept` open. Must be called before any
    /// thread is started.
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

    /// To be called just before the pause.
    pub fn freezing(&mut self) {
        self.freeze_number += 1;
        let state = self.freeze_number << 2 | FROZEN;
        self.state().store(state, Ordering::SeqCst);
    }

    /// Whether the freeze under way is still ours: false means that the guardian has ended it.
    pub fn is_frozen(&self) -> bool {
        self.state().load(Ordering::SeqCst) == self.freeze_number << 2 | FROZEN
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

    /// To be called when the guest is out of our hands for good.
    pub fn dismiss(&self) {
        self.state().store(DISMISSED, Ordering::SeqCst);
    }

    /// To be called where no guest is frozen and another, not 0, takes the place of the one before; `name` is
    /// what [`Rescuer::guest`] would say of it.
    pub fn turn_to(&self, successor: u64, name: &str) {
        if let Some(mark) = &self.mark {
            mark.rename(name);
        }
        self.shared
            .word(SUCCESSOR)
            .store(successor, Ordering::SeqCst);
    }

    /// How often the guardian had to step in during the recording.
    pub fn rescues(&self) -> u64 {
        self.shared.word(RESCUES).load(Ordering::Relaxed)
    }
}

/// The guardian's life.
fn stand_by(shared: &SharedWords, rescuer: &mut impl Rescuer, lifeline: RawFd) {
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

/// Tells the rescuer which guest it is by now.
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
