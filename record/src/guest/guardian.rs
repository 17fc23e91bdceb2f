//! A process that outlives the recorder and resumes the guest if the recorder can't.
//!
//! A SIGKILL between pause and resume would leave the guest paused for good. So a guardian is forked before the first
//! pause. Recorder and guardian share a word with the state of the freeze; a pipe shows the guardian when the recorder
//! is gone. The guardian also ends a freeze that lasts far too long, because the recorder was stopped, or its machine
//! swaps. The recorder then finds the word changed and does not resume a second time. If both are killed at once, the
//! word stays in a [`mark`](crate::guest::mark), by which [`left_paused`](crate::guest::left_paused) finds the guest.
//! If only the guardian is killed or stopped, [`Guardian::is_there`] fails before the next freeze, so that the guest is
//! not paused without it. Another guardian can't be forked, since the recorder has threads by then.
//!
//! The backend's [`Rescuer`] resumes the guest.

use crate::guest::mark::{
    DISMISSED, FROZEN, GUEST, Mark, RESCUED, RESUMING, RUNNING, STATE, is_amid_freeze,
};
use crate::source::SourceError;
use crate::sys::guardian_process::{Absence, ChildProcess, SharedWords, wait_for_end};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the guardian checks for a freeze that is too long.
const CHECK_EVERY_MS: i32 = 250;
/// The guardian ends a freeze after this many checks: after 500 to 750 ms.
const PATIENCE: u64 = 2;

/// Index of the word that counts the guardian's rescues.
const RESCUES: usize = 1;
/// Index of the word with the checks after which the guardian ends the current freeze; 0: [`PATIENCE`].
const CHECKS: usize = 3;

/// The guardian's actions. They run in its own process, where failures can't be reported.
pub trait Rescuer {
    /// Resumes the guest after a freeze that is too long. The recorder still exists and may go on.
    fn resume(&mut self);

    /// Does so once more, when the recorder has got no farther since then. Usually it does nothing, since someone else
    /// may have paused the guest meanwhile.
    fn resume_again(&mut self) {}

    /// Makes sure that the guest runs after the recorder has gone, in the middle of a freeze if `frozen`.
    fn release(&mut self, frozen: bool);

    /// Does what is left to do once the guest needs nothing more, whoever released it. Called last.
    fn clean_up(&mut self) {}

    /// Switches to another guest than the one at the start.
    fn turn_to(&mut self, _guest: u64) {}

    /// The guest's name in the mark, which [`crate::guest::left_paused`] reads. If it can switch guests, the last word
    /// of the name is the guest's number.
    fn guest(&self) -> String;
}

/// The recorder's side, for one guest. Dropping the last such value ends the guardian.
#[derive(Debug)]
pub struct Guardian {
    process: Arc<GuardianProcess>,
    /// The guest's number, if it is not the one at the start.
    guest: Option<u64>,
    freeze_number: u64,
    /// Rescues before the current freeze.
    rescues_before: u64,
}

#[derive(Debug)]
struct GuardianProcess {
    shared: Arc<SharedWords>,
    /// Freezes of all guests so far.
    freezes: AtomicU64,
    child: ChildProcess,
    /// Dropped last.
    _mark: Option<Mark>,
}

impl Guardian {
    /// Forks a guardian, which keeps the descriptors of `kept` open. Must be called before any thread is started.
    ///
    /// # Errors
    /// Says why there can be no guardian.
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
        let process = GuardianProcess {
            shared,
            freezes: AtomicU64::new(0),
            child: child.map_err(failed)?,
            _mark: mark,
        };
        Ok(Guardian {
            process: Arc::new(process),
            guest: None,
            freeze_number: 0,
            rescues_before: 0,
        })
    }

    /// Uses the same process for the guest numbered `guest`, too. Only one of its guests may be frozen at a time.
    pub fn also_for(&self, guest: u64) -> Self {
        Guardian {
            process: Arc::clone(&self.process),
            guest: Some(guest),
            freeze_number: 0,
            rescues_before: 0,
        }
    }

    fn state(&self) -> &AtomicU64 {
        self.process.shared.word(STATE)
    }

    /// A number that no freeze had before.
    fn next_freeze(&self) -> u64 {
        self.process.freezes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Checks that the guardian is able to resume the guest. Must be called before each freeze, while the guest runs,
    /// since it is a system call.
    ///
    /// # Errors
    /// Says why it is not able to. The guest must not be paused any more.
    pub fn is_there(&self) -> Result<(), SourceError> {
        let child = &self.process.child;
        let how = match child.absence() {
            None => return Ok(()),
            Some(Absence::Killed(signal)) => format!("was killed by {signal}"),
            Some(Absence::Stopped(signal)) => format!("was stopped by {signal}"),
            Some(Absence::Ended) => "has ended".into(),
        };
        Err(SourceError(format!(
            "the guardian (process {}, uprof-guardian) {how}: without it the guest would stay paused if the \
             recorder were killed, too; the guest runs, and what was recorded until then is sound",
            child.pid()
        )))
    }

    /// The guardian resumes a guest that has not begun after this time, in steps of [`CHECK_EVERY_MS`], so that what is
    /// read before its first instruction may take longer than a freeze. For this guest, which is paused already.
    pub fn holding(&mut self, patience: Duration) {
        self.freeze(patience.as_millis() as u64 / CHECK_EVERY_MS as u64);
    }

    /// Must be called just before the pause.
    pub fn freezing(&mut self) {
        self.freeze(0);
    }

    /// The guardian ends it after so many checks; 0: [`PATIENCE`].
    fn freeze(&mut self, checks: u64) {
        // The state, which is set last, makes the other words visible.
        let word = self.process.shared.word(CHECKS);
        word.store(checks, Ordering::Relaxed);
        self.freeze_number = self.next_freeze();
        self.rescues_before = self.rescues();
        if let Some(guest) = self.guest {
            let word = self.process.shared.word(GUEST);
            word.store(guest, Ordering::SeqCst);
        }
        // The number makes each state unique, so that the guardian can't end a later freeze by mistake.
        let state = self.freeze_number << 2 | FROZEN;
        let before = self.state().swap(state, Ordering::SeqCst);
        debug_assert!(
            self.guest.is_none() || !is_amid_freeze(before),
            "two are frozen"
        );
    }

    /// Whether the current freeze is still ours; `false` if the guardian has ended it.
    pub fn is_frozen(&self) -> bool {
        self.state().load(Ordering::SeqCst) == self.freeze_number << 2 | FROZEN
    }

    /// Reports that the recorder is still in control of a freeze of unlimited length. Must be called at least twice a
    /// second. Returns `false` if the guardian has ended the freeze.
    pub fn still_freezing(&mut self) -> bool {
        self.freeze_anew(FROZEN)
    }

    /// Must be called when a resume has failed: the guardian then ends the freeze, unless another try does.
    pub fn not_resumed(&mut self) {
        let word = self.process.shared.word(CHECKS);
        word.store(0, Ordering::Relaxed);
        self.freeze_anew(RESUMING);
    }

    /// Goes on with the freeze, if it is in this state. Its new number makes the guardian count its checks from 0
    /// again.
    fn freeze_anew(&mut self, state: u64) -> bool {
        let before = self.freeze_number << 2 | state;
        let number = self.next_freeze();
        let next = number << 2 | FROZEN;
        let ours = self
            .state()
            .compare_exchange(before, next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if ours {
            self.freeze_number = number;
        }
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

    /// Must be called after the resume that [`Guardian::may_resume`] allowed; `false` if the guardian has resumed the
    /// guest as well.
    pub fn resumed(&self) -> bool {
        let resuming = self.freeze_number << 2 | RESUMING;
        self.state()
            .compare_exchange(resuming, RUNNING, Ordering::SeqCst, Ordering::SeqCst)
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

    /// Switches to the guest numbered `guest`, which is not 0, while ours is not frozen.
    pub fn turn_to(&mut self, guest: u64) {
        self.guest = Some(guest);
    }

    /// Number of freezes that the guardian has ended, of all its guests.
    pub fn rescues(&self) -> u64 {
        self.process.shared.word(RESCUES).load(Ordering::SeqCst)
    }

    /// Waits until the guardian, which has begun to end the current freeze, has resumed the guest; for two seconds at
    /// most, in which a guardian that still exists has done it.
    pub fn await_rescue(&self) {
        for _ in 0..2000 {
            if self.rescues() != self.rescues_before {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
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
        let patience = match shared.word(CHECKS).load(Ordering::Relaxed) {
            0 => PATIENCE,
            checks => checks,
        };
        let is_stuck = match now & 3 {
            FROZEN => checks >= patience,
            // The recorder was stopped just before it resumed the guest, or just after.
            RESUMING => checks >= PATIENCE,
            _ => false,
        };
        if is_stuck {
            // The guest's number is read before the freeze is claimed; afterwards the next freeze may begin.
            turn(shared, rescuer);
            let rescued = now | RESCUED;
            let claimed = state.compare_exchange(now, rescued, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_ok() {
                rescuer.resume();
                shared.word(RESCUES).fetch_add(1, Ordering::SeqCst);
            }
        } else if now & 3 == RESCUED && now != DISMISSED && checks >= PATIENCE {
            rescuer.resume_again();
            checks = 0;
        }
    }
    match state.load(Ordering::SeqCst) {
        DISMISSED => {}
        last => {
            turn(shared, rescuer);
            rescuer.release(is_amid_freeze(last));
        }
    }
    rescuer.clean_up();
}

/// Switches the rescuer to the current guest.
fn turn(shared: &SharedWords, rescuer: &mut impl Rescuer) {
    match shared.word(GUEST).load(Ordering::SeqCst) {
        0 => {}
        guest => rescuer.turn_to(guest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};

    #[test]
    fn a_freeze_that_was_ended_by_the_guardian_is_not_resumed_twice() {
        let process = GuardianProcess {
            shared: Arc::new(SharedWords::new(None).unwrap()),
            freezes: AtomicU64::new(0),
            child: ChildProcess::start(&[], |lifeline| {
                wait_for_end(lifeline, 10_000);
            })
            .unwrap(),
            _mark: None,
        };
        let mut guardian = Guardian {
            process: Arc::new(process),
            guest: None,
            freeze_number: 0,
            rescues_before: 0,
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
    fn a_guest_that_could_not_be_resumed_is_resumed_by_the_guardian() {
        let rescues = witnessed_for(|guardian| {
            guardian.freezing();
            assert!(guardian.may_resume());
            guardian.not_resumed();
            assert!(guardian.may_resume(), "it may be tried again");
            guardian.not_resumed();
            std::thread::sleep(Duration::from_millis(1500));
            assert!(!guardian.may_resume(), "the guardian was first");
        });
        assert_eq!(rescues, 1);
    }

    #[test]
    fn a_recorder_that_is_stopped_as_it_resumes_its_guest_leaves_it_to_the_guardian() {
        let asked = witnessed(|guardian| {
            guardian.freezing();
            assert!(guardian.may_resume());
            assert!(guardian.resumed());
            guardian.freezing();
            assert!(guardian.may_resume());
            guardian.await_rescue();
            assert!(!guardian.resumed());
            // Until it goes on.
            std::thread::sleep(Duration::from_secs(3));
            guardian.running();
        });
        assert!(asked.starts_with("ra"), "{asked}");
    }

    #[test]
    fn a_freeze_that_is_looked_after_has_no_end() {
        let rescues = witnessed_for(|guardian| {
            guardian.freezing();
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(guardian.still_freezing() || guardian.rescues() > 0);
            }
        });
        // If the machine is so busy that this thread sleeps for half a second, the freeze may be ended.
        assert!(rescues <= 1, "{rescues}");
        witnessed_for(|guardian| {
            guardian.freezing();
            let begun = std::time::Instant::now();
            while guardian.rescues() == 0 && begun.elapsed().as_secs() < 30 {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!guardian.still_freezing());
            assert!(!guardian.may_resume());
        });
    }

    #[test]
    fn a_guest_that_has_not_begun_may_be_held_for_longer() {
        let rescues = witnessed_for(|guardian| {
            guardian.holding(Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1500));
            assert!(guardian.is_frozen());
            assert!(guardian.may_resume());
            guardian.running();
        });
        assert_eq!(rescues, 0);
        witnessed_for(|guardian| {
            guardian.holding(Duration::from_secs(1));
            let begun = std::time::Instant::now();
            while guardian.rescues() == 0 && begun.elapsed().as_secs() < 30 {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!guardian.may_resume());
        });
    }

    /// Number of freezes that the guardian of a recorder with this lifetime ended.
    fn witnessed_for(life: impl FnOnce(&mut Guardian)) -> usize {
        witnessed(life).matches('r').count()
    }

    /// Writes a letter for each request into a pipe.
    struct Witness(std::fs::File);

    impl Rescuer for Witness {
        fn resume(&mut self) {
            let _ = std::io::Write::write_all(&mut self.0, b"r");
        }

        fn resume_again(&mut self) {
            let _ = std::io::Write::write_all(&mut self.0, b"a");
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

    /// Waits until the guardian is found to be gone; returns the message about it.
    fn missing(guardian: &Guardian) -> String {
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs() < 30 {
            if let Err(error) = guardian.is_there() {
                return error.0;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("freezes went on")
    }

    #[test]
    fn without_its_guardian_no_guest_is_paused() {
        for (signal, how) in [
            (Signal::SIGKILL, "was killed by SIGKILL"),
            (Signal::SIGSTOP, "was stopped by SIGSTOP"),
        ] {
            let asked = witnessed(|guardian| {
                guardian.is_there().unwrap();
                let other = guardian.also_for(7);
                kill(guardian.process.child.pid(), signal).unwrap();
                for guardian in [&*guardian, &other] {
                    let said = missing(guardian);
                    assert!(said.contains(how), "{said}");
                }
            });
            // A stopped guardian ends in good order, and nobody waits for it forever.
            assert_eq!(asked, if signal == Signal::SIGKILL { "" } else { "n" });
        }
    }

    #[test]
    fn the_rescuer_is_asked_for_what_is_missing() {
        assert_eq!(witnessed(|_| {}), "n");
        assert_eq!(witnessed(Guardian::freezing), "F");
        assert_eq!(witnessed(|guardian| guardian.dismiss()), "");
        let succeeded = witnessed(|guardian| {
            guardian.turn_to(7);
            guardian.freezing();
        });
        assert_eq!(succeeded, "7F");
        let several = witnessed(|guardian| {
            let mut others = [5, 6].map(|guest| guardian.also_for(guest));
            for other in &mut others {
                other.freezing();
                assert!(other.may_resume());
                other.running();
            }
            others[0].freezing();
        });
        assert_eq!(several, "5F");
        let dragging = witnessed(|guardian| {
            guardian.freezing();
            // This takes less than a second, unless the machine is busy.
            let begun = std::time::Instant::now();
            while guardian.rescues() == 0 && begun.elapsed().as_secs() < 30 {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!guardian.may_resume());
            assert_eq!(guardian.rescues(), 1);
            guardian.running();
            // As `pkill -USR1 uniprof` sends it, which is for the recorder.
            for signal in [Signal::SIGUSR1, Signal::SIGUSR2] {
                kill(guardian.process.child.pid(), signal).unwrap();
            }
        });
        assert_eq!(dragging.replace('a', ""), "rn");
    }
}
