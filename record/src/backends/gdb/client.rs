//! Requests and replies over one connection: batches of packets out, replies in order.
//!
//! Input: requests. Output: payloads of replies. A batch is one write, however many requests it holds; waiting for
//! its replies is one round trip, which is counted. A client allocates only when it is made and for errors, and never
//! waits longer than `patience`.

use super::error::{GdbError, quote};
use super::packet::{self, Decoder, Event};
use crate::guest::endpoint::{Connection, Endpoint, deadline};
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::time::Duration;

/// The largest batch: a socket accepts this much at once even if its buffers are small.
const MOST_BATCH_BYTES: usize = 48 << 10;
/// Bytes received at a time.
const INCOMING_BYTES: usize = 64 << 10;
/// Most reads after a deadline, since the recorder itself may have been stopped while bytes arrived.
pub(super) const MOST_LATE_READS: u32 = 16;
/// The byte that interrupts a running guest.
const INTERRUPT: u8 = 3;

/// Number of requests that may be outstanding at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// One request.
    OneByOne,
    /// All requests, once the guest is stopped.
    InterruptFirst,
    /// All requests, the interrupt among them.
    AllAtOnce,
}

impl Pace {
    /// Description for users.
    pub fn describe(self) -> &'static str {
        match self {
            Pace::OneByOne => "one request at a time",
            Pace::InterruptFirst => "requests in batches once the guest has stopped",
            Pace::AllAtOnce => "interrupt and requests in one batch",
        }
    }
}

/// A conversation with a stub.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    connection: Connection,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that have been sent.
    sent: usize,
    /// Number of outstanding replies.
    due: usize,
    incoming: Box<[u8]>,
    unread: std::ops::Range<usize>,
    /// Number of requests that may be outstanding at once.
    pub pace: Pace,
    /// Whether packets are acknowledged. A reliable connection doesn't need that, but a stub may insist.
    pub(crate) acknowledges: bool,
    /// How long to wait for a reply.
    pub patience: Duration,
    deadline_ns: u64,
    /// End of the whole conversation, however quick each reply is.
    end_ns: u64,
    asked: &'static str,
    /// Number of round trips.
    pub round_trips: u64,
    /// How often something was sent.
    pub sends: u64,
}

impl Client {
    /// A client over an existing connection; `endpoint` is its name in messages.
    pub fn over(connection: Connection, endpoint: &Endpoint, patience: Duration) -> Self {
        Client {
            connection,
            endpoint: endpoint.clone(),
            decoder: Decoder::new(),
            outgoing: Vec::with_capacity(MOST_BATCH_BYTES),
            sent: 0,
            due: 0,
            incoming: vec![0; INCOMING_BYTES].into(),
            unread: 0..0,
            pace: Pace::OneByOne,
            acknowledges: true,
            patience,
            deadline_ns: 0,
            end_ns: u64::MAX,
            asked: "",
            round_trips: 0,
            sends: 0,
        }
    }

    /// The other end.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The socket.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Limits the time for all further replies together; `None` removes the limit.
    pub fn set_end(&mut self, patience: Option<Duration>) {
        self.end_ns = patience.map_or(u64::MAX, deadline);
    }

    /// Begins a batch. `asked` is its purpose, for errors.
    pub fn begin(&mut self, asked: &'static str) {
        self.asked = asked;
        self.outgoing.clear();
        self.sent = 0;
        self.due = 0;
    }

    /// Adds the byte that interrupts the guest; the stub answers it with a stop reply.
    pub fn add_interrupt(&mut self) {
        self.outgoing.push(INTERRUPT);
    }

    /// Adds a request.
    pub fn add(&mut self, payload: std::fmt::Arguments<'_>) {
        if self.acknowledges && self.pace != Pace::OneByOne {
            // Acknowledges the previous reply, for which this request does not wait.
            self.outgoing.push(b'+');
        }
        packet::put(&mut self.outgoing, payload);
    }

    /// Whether another `bytes` bytes of requests fit into the batch.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.outgoing.len() + bytes <= MOST_BATCH_BYTES
    }

    /// Returns the next reply. If none is outstanding, first sends as many requests as the pace allows.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn reply(&mut self) -> Result<&[u8], GdbError> {
        if self.due == 0 {
            self.send_more()?;
            self.round_trips += 1;
        }
        let mut late = 0;
        while !self.next_packet(self.deadline_ns)? {
            // An endless stream of bytes is not a reply.
            late += u32::from(monotonic_ns() > self.deadline_ns);
            if late > MOST_LATE_READS {
                return Err(self.failed(Errno::ETIMEDOUT));
            }
        }
        self.due = self.due.saturating_sub(1);
        Ok(self.decoder.payload())
    }

    /// Returns a reply beyond the number of requests.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn extra_reply(&mut self) -> Result<&[u8], GdbError> {
        self.due += 1;
        self.reply()
    }

    /// Sends one request and returns its reply.
    ///
    /// # Errors
    /// Says why there is no reply.
    pub fn ask(
        &mut self,
        asked: &'static str,
        payload: std::fmt::Arguments<'_>,
    ) -> Result<&[u8], GdbError> {
        self.begin(asked);
        self.add(payload);
        self.reply()
    }

    /// Sends a packet whose reply comes at any time or never, such as `vCont`.
    ///
    /// # Errors
    /// Says why it could not be sent.
    pub fn tell(&mut self, asked: &'static str, payload: &str) -> Result<(), GdbError> {
        self.begin(asked);
        self.add(format_args!("{payload}"));
        self.sends += 1;
        let sent = self
            .connection
            .send(&self.outgoing, deadline(self.patience));
        sent.map_err(|errno| self.failed(errno))
    }

    /// A packet that came without a request, if there is one; does not wait.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn unasked(&mut self) -> Result<Option<&[u8]>, GdbError> {
        match self.next_packet(0) {
            Ok(true) => Ok(Some(self.decoder.payload())),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops a guest in an unknown state and discards all outstanding replies. Afterwards the guest is stopped, and
    /// the conversation can go on.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn start_over(&mut self) -> Result<(), GdbError> {
        const QUIET: Duration = Duration::from_millis(150);
        self.begin("to stop");
        self.sends += 1;
        let sent = self.connection.send(&[INTERRUPT], deadline(self.patience));
        sent.map_err(|errno| self.failed(errno))?;
        let last_ns = deadline(self.patience).min(self.end_ns);
        let mut end_ns = deadline(QUIET);
        loop {
            if monotonic_ns() > last_ns {
                return Err(self.failed(Errno::ETIMEDOUT));
            }
            match self.next_packet(end_ns) {
                Ok(true) => end_ns = deadline(QUIET),
                Ok(false) | Err(GdbError::Packet(..)) => {}
                Err(GdbError::Silent { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends as many requests as may be outstanding at once.
    fn send_more(&mut self) -> Result<(), GdbError> {
        let rest = &self.outgoing[self.sent..];
        let alone = match self.pace {
            Pace::OneByOne => true,
            Pace::InterruptFirst => rest.first() == Some(&INTERRUPT),
            Pace::AllAtOnce => false,
        };
        let ends = rest
            .iter()
            .enumerate()
            .filter_map(|(at, byte)| match *byte {
                INTERRUPT => Some(at + 1),
                b'#' => Some((at + 3).min(rest.len())),
                _ => None,
            });
        let (mut length, mut answers) = (0, 0);
        for end in ends {
            length = end;
            answers += 1;
            if alone {
                break;
            }
        }
        self.deadline_ns = deadline(self.patience).min(self.end_ns);
        self.sends += 1;
        let result = self.connection.send(&rest[..length], self.deadline_ns);
        self.sent += length;
        self.due = answers;
        result.map_err(|errno| self.failed(errno))
    }

    /// Decodes received bytes up to the end of a packet (`true`) or of the bytes (`false`).
    fn next_packet(&mut self, deadline_ns: u64) -> Result<bool, GdbError> {
        if self.unread.is_empty() {
            let count = match self.connection.receive(&mut self.incoming, deadline_ns) {
                // A poll without data is returned as false, since an error would allocate at each sample.
                Err(Errno::ETIMEDOUT) if deadline_ns == 0 => return Ok(false),
                received => received.map_err(|errno| self.failed(errno))?,
            };
            if count == 0 {
                return Err(GdbError::Closed(self.endpoint.clone()));
            }
            self.unread = 0..count;
        }
        while let Some(at) = self.unread.next() {
            match self.decoder.push(self.incoming[at]) {
                Ok(Some(Event::Packet)) => {
                    self.acknowledge()?;
                    if !is_console_output(self.decoder.payload()) {
                        return Ok(true);
                    }
                }
                Ok(Some(Event::Nack)) if self.acknowledges => {
                    return Err(self.nonsense("it says that our packet came damaged"));
                }
                Ok(_) => {}
                Err(fault) => return Err(GdbError::Packet(self.endpoint.clone(), fault)),
            }
        }
        Ok(false)
    }

    fn acknowledge(&mut self) -> Result<(), GdbError> {
        // In a batch, each request carries the acknowledgement of the previous reply.
        if !self.acknowledges || self.pace != Pace::OneByOne {
            return Ok(());
        }
        self.sends += 1;
        let sent = self.connection.send(b"+", deadline(self.patience));
        sent.map_err(|errno| self.failed(errno))
    }

    fn failed(&self, errno: Errno) -> GdbError {
        match errno {
            Errno::ETIMEDOUT => GdbError::Silent {
                endpoint: self.endpoint.clone(),
                asked: self.asked,
                seconds: self.patience.as_secs_f64(),
            },
            Errno::ECONNRESET | Errno::EPIPE => GdbError::Closed(self.endpoint.clone()),
            _ => GdbError::Broken(self.endpoint.clone(), errno),
        }
    }

    /// The error for an invalid reply to the current request.
    pub fn nonsense(&self, problem: impl Into<String>) -> GdbError {
        GdbError::Nonsense {
            endpoint: self.endpoint.clone(),
            asked: self.asked,
            problem: problem.into(),
        }
    }

    /// The error for a refused request; the reply is the last packet.
    pub fn refused(&self, advice: &'static str) -> GdbError {
        GdbError::Refused {
            endpoint: self.endpoint.clone(),
            asked: self.asked,
            reply: quote(self.decoder.payload()),
            advice,
        }
    }
}

/// `O` and hexadecimal text: console output of the guest.
fn is_console_output(payload: &[u8]) -> bool {
    let Some((b'O', text)) = payload.split_first() else {
        return false;
    };
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

/// A stop reply (appendix E.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReply {
    /// The guest stopped with this signal number; 2 and 0 stand for our interrupt.
    Stopped(u8),
    /// The guest exited with this status.
    Exited(u8),
    /// This signal killed the guest.
    Killed(u8),
}

impl StopReply {
    /// Parses a packet; `None` if it is something else, such as console output.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (&kind, rest) = payload.split_first()?;
        let number = packet::number(rest.get(..2)?)? as u8;
        match kind {
            b'S' | b'T' => Some(StopReply::Stopped(number)),
            b'W' => Some(StopReply::Exited(number)),
            b'X' => Some(StopReply::Killed(number)),
            _ => None,
        }
    }

    /// The vCPU or thread that a stop reply names.
    pub fn thread(payload: &[u8]) -> Option<&str> {
        let pairs = payload.strip_prefix(b"T")?.get(2..)?;
        let mut pairs = pairs.split(|&byte| byte == b';');
        let id = pairs.find_map(|pair| pair.strip_prefix(b"thread:"))?;
        std::str::from_utf8(id).ok()
    }

    /// Whether the guest stopped on request, rather than by a fault or breakpoint.
    pub fn is_interrupt(self) -> bool {
        // SIGINT, no signal, and SIGSTOP and SIGTRAP of stubs that don't distinguish them.
        matches!(self, StopReply::Stopped(0 | 2 | 5 | 17 | 19))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_replies() {
        assert_eq!(
            StopReply::parse(b"T02thread:01;"),
            Some(StopReply::Stopped(2))
        );
        assert_eq!(StopReply::parse(b"W00"), Some(StopReply::Exited(0)));
        assert_eq!(
            StopReply::parse(b"X0b;process:1"),
            Some(StopReply::Killed(11))
        );
        assert_eq!(
            StopReply::thread(b"T05swbreak:;thread:p1.2f;core:0;"),
            Some("p1.2f")
        );
        assert_eq!(StopReply::thread(b"S05"), None);
        for other in [&b""[..], b"OK", b"E01", b"O48", b"T", b"Tzz"] {
            assert_eq!(StopReply::parse(other), None);
        }
    }
}
