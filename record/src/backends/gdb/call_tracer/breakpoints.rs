//! The breakpoints of a stub: set, removed and set again.
//!
//! Hardware breakpoints (`Z1`) are preferred, as they change nothing in the guest's memory. If a stub has none left, a
//! software breakpoint (`Z0`) is used.

use crate::backends::gdb::client::{Client, StopReply};
use crate::backends::gdb::error::GdbError;
use uprof::Arch;

/// Most breakpoints: those of calls that the guest leaves without a return stay until a vCPU comes there. At the end
/// all are removed in one pause, which must be shorter than the guardian's patience.
const MOST_BREAKPOINTS: usize = 1 << 10;
/// Kinds of breakpoints, as in the packets.
const KINDS: [u8; 2] = [1, 0];

/// A stub's reply to a request for a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Set,
    Refused,
    Unknown,
}

/// A breakpoint.
#[derive(Debug)]
struct Breakpoint {
    address: u64,
    kind: u8,
    is_set: bool,
}

/// All breakpoints of a guest.
#[derive(Debug)]
pub struct Breakpoints {
    all: Vec<Breakpoint>,
    /// Which of [`KINDS`] the stub supports.
    known: [bool; 2],
    /// Length of a breakpoint for the packets.
    bytes: u8,
}

impl Breakpoints {
    /// No breakpoints yet.
    pub fn new(arch: Arch) -> Self {
        Breakpoints {
            all: Vec::new(),
            known: [true; 2],
            bytes: match arch {
                Arch::X86_64 => 1,
                Arch::Aarch64 => 4,
            },
        }
    }

    /// Whether a breakpoint is set at `address`.
    pub fn is_at(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    fn find(&self, address: u64) -> Option<usize> {
        self.all.iter().position(|each| each.address == address)
    }

    /// Whether one of them is a software breakpoint, which changes the guest's code.
    pub fn change_code(&self) -> bool {
        self.all.iter().any(|each| each.kind == 0)
    }

    /// Sets a breakpoint at `address`, if there is none; returns whether there is one now. There may be too many.
    ///
    /// # Errors
    /// Says why the stub can't be asked.
    pub fn set(&mut self, client: &mut Client, address: u64) -> Result<bool, GdbError> {
        if let Some(place) = self.find(address) {
            return self.set_again(client, place);
        }
        if self.all.len() >= MOST_BREAKPOINTS {
            return Ok(false);
        }
        for (kind, known) in KINDS.iter().zip(&mut self.known) {
            if !*known {
                continue;
            }
            match ask(client, 'Z', *kind, address, self.bytes)? {
                Answer::Set => {
                    self.all.push(Breakpoint {
                        address,
                        kind: *kind,
                        is_set: true,
                    });
                    return Ok(true);
                }
                Answer::Unknown => *known = false,
                Answer::Refused => {}
            }
        }
        Ok(false)
    }

    fn set_again(&mut self, client: &mut Client, place: usize) -> Result<bool, GdbError> {
        let Breakpoint {
            address,
            kind,
            is_set,
        } = self.all[place];
        if is_set {
            return Ok(true);
        }
        let answer = ask(client, 'Z', kind, address, self.bytes)?;
        self.all[place].is_set = answer == Answer::Set;
        Ok(answer == Answer::Set)
    }

    /// Removes the breakpoint at `address` until it is set again.
    ///
    /// # Errors
    /// Says why the stub can't be asked.
    pub fn lift(&mut self, client: &mut Client, address: u64) -> Result<(), GdbError> {
        if let Some(place) = self.find(address).filter(|place| self.all[*place].is_set) {
            ask(client, 'z', self.all[place].kind, address, self.bytes)?;
            self.all[place].is_set = false;
        }
        Ok(())
    }

    /// Removes the breakpoint at `address` for good.
    ///
    /// # Errors
    /// Says why the stub can't be asked.
    pub fn remove(&mut self, client: &mut Client, address: u64) -> Result<(), GdbError> {
        self.lift(client, address)?;
        self.all.retain(|each| each.address != address);
        Ok(())
    }

    /// Removes all breakpoints.
    ///
    /// # Errors
    /// Says why the stub can't be asked. It removes them itself when a debugger detaches.
    pub fn remove_all(&mut self, client: &mut Client) -> Result<(), GdbError> {
        while let Some(last) = self.all.last() {
            self.remove(client, last.address)?;
        }
        Ok(())
    }

    /// Whether the stub supports breakpoints of any kind.
    pub fn are_known(&self) -> bool {
        self.known.contains(&true)
    }
}

fn ask(
    client: &mut Client,
    letter: char,
    kind: u8,
    address: u64,
    bytes: u8,
) -> Result<Answer, GdbError> {
    client.begin("for a breakpoint");
    client.add(format_args!("{letter}{kind},{address:x},{bytes}"));
    let mut answer = answer_of(client.reply()?);
    while answer.is_none() {
        answer = answer_of(client.extra_reply()?);
    }
    Ok(answer.unwrap_or(Answer::Refused))
}

/// Parses a reply. Returns `None` for a stop: an interrupt may find the guest stopped at a breakpoint, and is answered
/// too.
fn answer_of(reply: &[u8]) -> Option<Answer> {
    match reply {
        b"OK" => Some(Answer::Set),
        b"" => Some(Answer::Unknown),
        stop if StopReply::parse(stop).is_some() => None,
        _ => Some(Answer::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::endpoint::{Connection, Endpoint};
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn breakpoints_up_to_the_last_and_past_it() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let connection = Connection::from(OwnedFd::from(near));
        let endpoint = Endpoint::Unix("stub".into());
        let mut client = Client::over(connection, &endpoint, Duration::from_secs(10));
        let mut breakpoints = Breakpoints::new(Arch::X86_64);
        let others = 1..MOST_BREAKPOINTS as u64;
        breakpoints.all.extend(others.map(|address| Breakpoint {
            address,
            kind: 1,
            is_set: true,
        }));
        // The stub answers one request.
        far.write_all(b"+$OK#9a").unwrap();
        assert!(breakpoints.set(&mut client, 0).unwrap());
        let last = MOST_BREAKPOINTS as u64;
        assert!(!breakpoints.set(&mut client, last).unwrap());
        assert!(breakpoints.set(&mut client, 1).unwrap(), "it is there");
    }
}
