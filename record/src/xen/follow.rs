//! A guest that comes back: rebooted, restored or migrated here again, with a new number but the same name
//! or UUID.
//!
//! Enters: what a domain was called. Leaves: the number of the one that came after it, and what the
//! recording is told of it.

use super::xenstore::Xenstore;
use crate::ring::Sink;
use crate::slot::NoteKind;
use crate::source::Life;
use crate::sys::clock::monotonic_ns;
use uprof::Task;

/// Lives of a guest in one recording: code is kept of each.
const MOST_LIVES: u32 = 64;
/// The store is asked this often: each look is some questions for every domain there is.
const LOOK_EVERY_NS: u64 = 50_000_000;

/// Which guest is followed, and where it is in its lives.
#[derive(Debug)]
pub struct Follow {
    name: String,
    uuid: Option<String>,
    /// The life that it is in, or was in last, from 0: the address space of its samples.
    pub life: u32,
    waits: bool,
    looked_ns: u64,
    news: Vec<(u64, u32, NoteKind, u16)>,
}

impl Follow {
    /// A guest in its first life; `None` where nothing would tell that it came back.
    pub fn new(name: &str, uuid: Option<String>) -> Option<Follow> {
        (!name.is_empty() || uuid.is_some()).then(|| Follow {
            name: name.to_owned(),
            uuid,
            life: 0,
            waits: false,
            looked_ns: 0,
            news: Vec::new(),
        })
    }

    /// Whether there is no guest at the moment.
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Domain `domain`, of so many vCPUs, is at the end of a life: what that means for the recording.
    pub fn ended(&mut self, how: Life, domain: u16, vcpus: u32) -> Life {
        let (Life::Ended(text) | Life::Crashed(text)) = how else {
            return how;
        };
        if self.life + 1 == MOST_LIVES {
            return Life::Ended(format!(
                "{text}; that was the last of {MOST_LIVES} lives that are followed"
            ));
        }
        let news = NoteKind::LifeEnded { vcpus };
        self.news.push((monotonic_ns(), self.life, news, domain));
        self.waits = true;
        Life::Alive
    }

    /// Looks for a domain of the same name or UUID other than `before`, if it is time to.
    pub fn successor(&mut self, before: u16) -> Option<u16> {
        let now_ns = monotonic_ns();
        if now_ns - self.looked_ns < LOOK_EVERY_NS {
            return None;
        }
        self.looked_ns = now_ns;
        let mut store = Xenstore::connect().ok()?;
        let found = store.find(|store, id| {
            if id == 0 || id == before {
                return false;
            }
            let name = store.domain_name(id).unwrap_or_default();
            !name.is_empty() && name == self.name
                || self.uuid.is_some() && store.domain_uuid(id).ok() == self.uuid
        });
        found.ok()?
    }

    /// `domain` is the guest's next life.
    pub fn begun(&mut self, domain: u16, vcpus: u32) {
        self.life += 1;
        self.waits = false;
        let news = NoteKind::LifeBegan { vcpus };
        self.news.push((monotonic_ns(), self.life, news, domain));
    }

    /// Passes on what happened since the last call.
    pub fn tell(&mut self, sink: &mut Sink) {
        for (time_ns, space, news, domain) in self.news.drain(..) {
            let task = Task { space, vcpu: 0 };
            sink.note(time_ns, task, news, format!("domain {domain}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::ring_of;

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
            follow.tell(&mut sink);
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
