//! Lets a stub's guest go, whatever state the conversation was left in.
//!
//! Enters: the connection, or where to make another. Leaves: a running guest and a stub without a
//! debugger. QEMU's stub, for one, stops the guest as soon as anybody connects, leaves it stopped
//! when a connection closes, and takes the first byte sent to a running guest for an interrupt,
//! whatever it is. So: interrupt (harmless to a guest that stands still), swallow what comes, then
//! detach, which every stub answers by letting the guest run.

use super::client::{MOST_LATE_READS, StopReply};
use super::endpoint::{Connection, Endpoint, deadline};
use super::packet::{Decoder, Event};
use crate::guest::left_paused::PausedGuest;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::fmt;
use std::time::Duration;

/// How long a stub that is interrupted in the middle of something may stay silent.
const QUIET: Duration = Duration::from_millis(150);
/// How long a stub may take to detach, and to take another connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets the guest go over `connection`, or where that is broken over a new one. Says whether the
/// stub confirmed it.
pub fn release(connection: &Connection, endpoint: &Endpoint) -> bool {
    detach(connection).is_ok() || release_anew(endpoint)
}

/// The guest behind a stub that a mark names.
struct PausedStub(Endpoint);

/// The guest that a mark names.
pub fn paused_guest(mark: &str) -> Option<Box<dyn PausedGuest>> {
    let endpoint = Endpoint::parse(mark.strip_prefix("gdb ")?).ok()?;
    Some(Box::new(PausedStub(endpoint)))
}

impl PausedGuest for PausedStub {
    fn stands(&self) -> Option<bool> {
        None
    }

    fn resume(&mut self) -> bool {
        release_anew(&self.0)
    }

    fn is_held_by_other(&self) -> Option<String> {
        None
    }
}

impl fmt::Display for PausedStub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest behind the gdb stub at {}", self.0)
    }
}

/// Lets the guest go over a connection of our own.
fn release_anew(endpoint: &Endpoint) -> bool {
    endpoint
        .connect(PATIENCE)
        .is_ok_and(|fresh| detach(&fresh).is_ok())
}

fn detach(connection: &Connection) -> Result<(), Errno> {
    connection.send(b"\x03", deadline(QUIET))?;
    // Answers to questions that nobody waits for any more, then silence or the stop reply.
    swallow(connection, QUIET, |payload| {
        StopReply::parse(payload).is_some()
    })?;
    // An acknowledgement first: a stub that waits for one takes it, others skip it.
    connection.send(b"+$D#44", deadline(PATIENCE))?;
    match swallow(connection, PATIENCE, |payload| payload == b"OK")? {
        true => Ok(()),
        false => Err(Errno::ETIMEDOUT),
    }
}

/// Reads until a packet satisfies `last` (true) or `patience` is over (false).
fn swallow(
    connection: &Connection,
    patience: Duration,
    last: impl Fn(&[u8]) -> bool,
) -> Result<bool, Errno> {
    let end_ns = deadline(patience);
    let mut decoder = Decoder::new();
    let mut bytes = [0; 4096];
    let mut late = 0;
    loop {
        late += u32::from(monotonic_ns() > end_ns);
        if late > MOST_LATE_READS {
            return Ok(false);
        }
        let count = match connection.receive(&mut bytes, end_ns) {
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(count) => count,
            Err(Errno::ETIMEDOUT) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        for &byte in &bytes[..count] {
            if let Ok(Some(Event::Packet)) = decoder.push(byte)
                && last(decoder.payload())
            {
                return Ok(true);
            }
        }
    }
}
