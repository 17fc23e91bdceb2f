//! Follows a guest that is rebooted, restored or migrated back, with a new number but the same name or UUID.
//!
//! Input: a domain's name and UUID. Output: the number of its successor, and notes for the recording.

use crate::guest::xenstore::Xenstore;
use crate::source::Life;
use crate::source::ring::Sink;
use crate::source::slot::NoteKind;
use crate::sys::clock::monotonic_ns;
use uprof::Task;

/// Most boots of a guest in one recording, since code of each is kept.
const MOST_LIVES: u32 = 64;
/// How often xenstore is queried, in nanoseconds. A query takes some requests for every domain.
const LOOK_EVERY_NS: u64 = 50_000_000;

/// A followed guest.
#[derive(Debug)]
pub struct Follow {
    name: String,
    uuid: Option<String>,
    /// Number of the current or last boot, from 0; it is the address space of its samples.
    pub life: u32,
    waits: bool,
    looked_ns: u64,
    notes: Vec<(u64, u32, NoteKind, u16)>,
}

impl Follow {
    /// A guest in its first boot; `None` if it has neither a name nor a UUID, by which it could be found again.
    pub fn new(name: &str, uuid: Option<String>) -> Option<Follow> {
        (!name.is_empty() || uuid.is_some()).then(|| Follow {
            name: name.to_owned(),
            uuid,
            life: 0,
            waits: false,
            looked_ns: 0,
            notes: Vec::new(),
        })
    }

    /// Whether there is currently no guest.
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Handles the end of a boot of the guest, as domain `domain` with `vcpus` vCPUs. Returns the state of the target
    /// for the recording.
    pub fn ended(&mut self, how: Life, domain: u16, vcpus: u32) -> Life {
        let (Life::Ended(text) | Life::Crashed(text)) = how else {
            return how;
        };
        if self.life + 1 == MOST_LIVES {
            return Life::Ended(format!(
                "{text}; that was the last of {MOST_LIVES} lives that are followed"
            ));
        }
        let note = NoteKind::LifeEnded { vcpus };
        self.notes.push((monotonic_ns(), self.life, note, domain));
        self.waits = true;
        Life::Alive
    }

    /// Searches a domain with the same name or UUID, if a search is due. `before` is the domain that has ended, unless
    /// it may run again.
    pub fn successor(&mut self, before: Option<u16>) -> Option<u16> {
        let now_ns = monotonic_ns();
        if now_ns - self.looked_ns < LOOK_EVERY_NS {
            return None;
        }
        self.looked_ns = now_ns;
        let mut store = Xenstore::connect().ok()?;
        let found = store.find(|store, id| {
            if id == 0 || Some(id) == before {
                return false;
            }
            let name = store.domain_name(id).unwrap_or_default();
            !name.is_empty() && name == self.name
                || self.uuid.is_some() && store.domain_uuid(id).ok() == self.uuid
        });
        found.ok()?
    }

    /// Begins the guest's next boot, as `domain`.
    pub fn begun(&mut self, domain: u16, vcpus: u32) {
        self.life += 1;
        self.waits = false;
        let note = NoteKind::LifeBegan { vcpus };
        self.notes.push((monotonic_ns(), self.life, note, domain));
    }

    /// Sends notes of the events since the last call.
    pub fn report(&mut self, sink: &mut Sink) {
        for (time_ns, space, note, domain) in self.notes.drain(..) {
            let task = Task { space, vcpu: 0 };
            sink.note(time_ns, task, note, format!("domain {domain}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;

    #[test]
    fn lives_that_are_followed() {
        assert!(Follow::new("", None).is_none());
        let mut follow = Follow::new("web", None).unwrap();
        let (mut sink, mut drain) = ring_of(64, 0);
        let crashed = || Life::Crashed("it crashed".into());
        assert_eq!(follow.ended(Life::Alive, 5, 2), Life::Alive);
        for life in 1..MOST_LIVES {
            assert_eq!(follow.ended(crashed(), 4, 2), Life::Alive);
            assert!(follow.is_waiting());
            follow.begun(5, 3);
            assert_eq!(follow.life, life);
            follow.report(&mut sink);
            let mut next = || drain.note(|note| (note.task.space, note.kind, note.text()));
            let ended = NoteKind::LifeEnded { vcpus: 2 };
            assert_eq!(next(), Some((life - 1, ended, "domain 4".into())));
            let began = NoteKind::LifeBegan { vcpus: 3 };
            assert_eq!(next(), Some((life, began, "domain 5".into())));
        }
        let last = follow.ended(crashed(), 5, 2);
        assert!(matches!(last, Life::Ended(text) if text.contains("last of 64 lives")));
    }
}
