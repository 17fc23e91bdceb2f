//! Finds and resumes guests that were left paused because their recorder and its guardian were killed together in the
//! middle of a freeze. They are found by their marks.

use super::mark::Abandoned;
use std::fmt;

/// A guest named by a mark; each kind of guest implements it.
pub trait PausedGuest: fmt::Display {
    /// Whether it is paused; `None` if finding out would change its state.
    fn is_paused(&self) -> Option<bool>;

    /// Resumes it; returns whether it runs.
    fn resume(&mut self) -> bool;

    /// If the guest stays paused for someone else after our pause was undone: says how.
    fn is_held_by_other(&self) -> Option<String>;
}

/// Reads the text that a rescuer (`guardian.rs`) of one kind of guest wrote; `None` if it is of another kind.
pub type ReadMark = fn(&str) -> Option<Box<dyn PausedGuest>>;

/// A guest that is or may be paused.
pub struct LeftPaused {
    guest: Box<dyn PausedGuest>,
    /// Whether it is paused; `None` if only resuming it would show.
    is_paused: Option<bool>,
    mark: Abandoned,
}

impl LeftPaused {
    /// All guests left by this user's recorders whose marks `kinds` can read.
    pub fn all(kinds: &[ReadMark]) -> Vec<LeftPaused> {
        let mut all = Vec::new();
        for mark in Abandoned::all() {
            let guest = kinds.iter().find_map(|read| read(&mark.guest));
            let found = guest.map(|guest| (guest.is_paused(), guest));
            match found.filter(|&(is_paused, _)| is_paused != Some(false)) {
                Some((is_paused, guest)) => all.push(LeftPaused {
                    guest,
                    is_paused,
                    mark,
                }),
                // The guest runs, or is gone.
                None => mark.settle(),
            }
        }
        all
    }

    /// Resumes the guest. Returns whether it runs, and a message.
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
        let how = match self.is_paused {
            Some(_) => "is",
            None => "may be",
        };
        write!(
            f,
            "{} {how} paused: its recorder and the guardian were killed together in the middle of a \
             sample; `uniprof doctor --resume` resumes it",
            self.guest
        )
    }
}
