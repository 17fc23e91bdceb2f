//! Guests that were left standing: their recorder and its guardian were killed together, in the middle of
//! a freeze. Marks say which; here is looked whether they still stand, and they are let run.

use crate::gdb::endpoint::Endpoint;
use crate::gdb::release::release_anew;
use crate::guardian::Rescuer;
use crate::mark::Abandoned;
use crate::xen::domain::Xen;
use crate::xen::rescue::DomainRescuer;
use std::fmt;

/// A guest that stands still, or may.
#[derive(Debug)]
pub struct Standing {
    guest: Guest,
    mark: Abandoned,
}

#[derive(Debug)]
enum Guest {
    Domain(u16),
    Stub(Endpoint),
}

impl Guest {
    /// Reads what a rescuer wrote.
    fn read(text: &str) -> Option<Guest> {
        match text.split_once(' ')? {
            ("xen", number) => number.parse().ok().map(Guest::Domain),
            ("gdb", address) => Endpoint::parse(address).ok().map(Guest::Stub),
            _ => None,
        }
    }

    /// Whether it stands still, as far as can be told without touching it.
    fn may_stand(&self) -> bool {
        match self {
            Guest::Domain(domain) => is_paused(*domain),
            Guest::Stub(_) => true,
        }
    }

    /// Whether it was let go.
    fn resume(&self) -> bool {
        match self {
            Guest::Domain(domain) => {
                DomainRescuer { domain: *domain }.resume();
                !is_paused(*domain)
            }
            Guest::Stub(endpoint) => release_anew(endpoint),
        }
    }
}

fn is_paused(domain: u16) -> bool {
    let info = Xen::open().and_then(|mut xen| xen.domain_info(domain));
    info.is_ok_and(|info| info.is_paused())
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guest::Domain(domain) => write!(f, "domain {domain}"),
            Guest::Stub(endpoint) => write!(f, "the guest behind the gdb stub at {endpoint}"),
        }
    }
}

impl Standing {
    /// All that this user's recorders left.
    pub fn all() -> Vec<Standing> {
        let mut all = Vec::new();
        for mark in Abandoned::all() {
            match Guest::read(&mark.guest).filter(Guest::may_stand) {
                Some(guest) => all.push(Standing { guest, mark }),
                // It runs, or is gone.
                None => mark.settle(),
            }
        }
        all
    }

    /// Lets the guest run; says what came of it, and whether it runs.
    pub fn resume(&self) -> (bool, String) {
        if self.guest.resume() {
            self.mark.settle();
            return (true, format!("{} runs again", self.guest));
        }
        if let Guest::Domain(domain) = self.guest {
            // Our pause was taken back; another one remains.
            self.mark.settle();
            let text = format!(
                "{} stays paused, by someone else too: `xl unpause {domain}`",
                self.guest
            );
            return (false, text);
        }
        let text = format!(
            "{} doesn't answer: if it has ended, remove {}",
            self.guest,
            self.mark.path().display()
        );
        (false, text)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.guest {
            Guest::Domain(_) => "stands",
            Guest::Stub(_) => "may stand",
        };
        write!(
            f,
            "{} {how} still: its recorder and the guardian were killed together in the middle of a \
             sample; `uniprof doctor --resume` lets it run",
            self.guest
        )
    }
}
