//! Guests that were left standing: their recorder and its guardian were killed together, in the middle of
//! a freeze. Marks say which; here is looked whether they still stand, and they are let run.

use super::mark::Abandoned;
use std::fmt;

/// A guest that a mark names: each kind of guest has one of its own.
pub trait PausedGuest: fmt::Display {
    /// Whether it stands still; `None` where that can't be told without touching it.
    fn stands(&self) -> Option<bool>;

    /// Lets it go; says whether it runs.
    fn resume(&mut self) -> bool;

    /// That our pause was taken back and another one remains, where the guest of this kind still stands for that.
    fn is_held_by_other(&self) -> Option<String>;
}

/// Reads what a rescuer (`guardian.rs`) of one kind of guest wrote; `None`: it is another kind's.
pub type ReadMark = fn(&str) -> Option<Box<dyn PausedGuest>>;

/// A guest that stands still, or may.
pub struct LeftPaused {
    guest: Box<dyn PausedGuest>,
    /// What was found; `None` where only resuming it would tell.
    stands: Option<bool>,
    mark: Abandoned,
}

impl LeftPaused {
    /// All that this user's recorders left, of the kinds of guests whose marks are read by `kinds`.
    pub fn all(kinds: &[ReadMark]) -> Vec<LeftPaused> {
        let mut all = Vec::new();
        for mark in Abandoned::all() {
            let guest = kinds.iter().find_map(|read| read(&mark.guest));
            let found = guest.map(|guest| (guest.stands(), guest));
            match found.filter(|&(stands, _)| stands != Some(false)) {
                Some((stands, guest)) => all.push(LeftPaused {
                    guest,
                    stands,
                    mark,
                }),
                // It runs, or is gone.
                None => mark.settle(),
            }
        }
        all
    }

    /// Lets the guest run; says what came of it, and whether it runs.
    pub fn resume(&mut self) -> (bool, String) {
        if self.guest.resume() {
            self.mark.settle();
            return (true, format!("{} runs again", self.guest));
        }
        if let Some(how) = self.guest.is_held_by_other() {
            self.mark.settle();
            return (false, format!("{} {how}", self.guest));
        }
        let text = format!(
            "{} doesn't answer: if it has ended, remove {}",
            self.guest,
            self.mark.path().display()
        );
        (false, text)
    }
}

impl fmt::Display for LeftPaused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.stands {
            Some(_) => "stands",
            None => "may stand",
        };
        write!(
            f,
            "{} {how} still: its recorder and the guardian were killed together in the middle of a \
             sample; `uniprof doctor --resume` lets it run",
            self.guest
        )
    }
}
