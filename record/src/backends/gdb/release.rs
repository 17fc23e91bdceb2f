//! Resumes a stub's guest, whatever state the conversation was left in.
//!
//! Input: the connection, or an address for another. Output: a running guest and a stub without a debugger. QEMU's
//! stub stops the guest when a debugger connects, leaves it stopped when the connection closes, and treats the first
//! byte sent to a running guest as an interrupt, whatever it is. So the steps are: interrupt (harmless to a stopped
//! guest), discard the replies, then detach. Every stub resumes the guest when a debugger detaches.

use super::client::{MOST_LATE_READS, StopReply};
use super::packet::{Decoder, Event};
use crate::guest::endpoint::{Connection, Endpoint, EndpointError, deadline};
use crate::guest::left_paused::PausedGuest;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::fmt;
use std::time::Duration;

/// How long a stub may stay silent after an interrupt in the middle of a request.
const QUIET: Duration = Duration::from_millis(150);
/// How long a stub may take to detach, and to accept another connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of a guest that was to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Its stub confirmed it.
    Confirmed,
    /// Its stub has closed the connection, and nobody listens at its address. Another guest may, later.
    Ended,
    /// It may be stopped.
    Unsure,
}

/// Releases the guest over `connection`, or over a new one if that is broken.
pub fn release(connection: &Connection, endpoint: &Endpoint) -> Released {
    match detach(connection) {
        Ok(()) => Released::Confirmed,
        Err(Errno::ECONNRESET | Errno::EPIPE) => release_anew(endpoint),
        // A stub that serves one debugger doesn't listen while it has a connection.
        Err(_) => match release_anew(endpoint) {
            Released::Ended => Released::Unsure,
            released => released,
        },
    }
}

/// Releases the guest over a new connection, since there is no other any more.
pub fn release_anew(endpoint: &Endpoint) -> Released {
    match endpoint.connect(PATIENCE) {
        Ok(fresh) if detach(&fresh).is_ok() => Released::Confirmed,
        Err(EndpointError::Connect(_, Errno::ECONNREFUSED | Errno::ENOENT)) => Released::Ended,
        _ => Released::Unsure,
    }
}

/// The guest whose stub a mark names.
struct PausedStub(Endpoint);

/// The guest that a mark names, if it is behind a stub.
pub fn paused_guest(mark: &str) -> Option<Box<dyn PausedGuest>> {
    let endpoint = Endpoint::parse(mark.strip_prefix("gdb ")?).ok()?;
    Some(Box::new(PausedStub(endpoint)))
}

impl PausedGuest for PausedStub {
    fn is_paused(&self) -> Option<bool> {
        // A connection would pause it.
        self.0.has_ended().then_some(false)
    }

    fn resume(&mut self) -> bool {
        let fresh = self.0.connect(PATIENCE);
        fresh.is_ok_and(|fresh| detach(&fresh).is_ok())
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

fn detach(connection: &Connection) -> Result<(), Errno> {
    connection.send(b"\x03", deadline(QUIET))?;
    // Replies to abandoned requests, then silence or the stop reply.
    swallow(connection, QUIET, |payload| {
        StopReply::parse(payload).is_some()
    })?;
    // The acknowledgement is for stubs that wait for one; others skip it.
    connection.send(b"+$D#44", deadline(PATIENCE))?;
    if swallow(connection, PATIENCE, |payload| payload == b"OK")? {
        Ok(())
    } else {
        Err(Errno::ETIMEDOUT)
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
