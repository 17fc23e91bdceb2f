//! Questions and answers over one connection: batches of packets out, replies in order.
//!
//! Enters: packets to ask. Leaves: payloads. A batch is one write, however many questions it holds;
//! waiting for its answers is one round trip, counted. Once made, nothing here allocates except for
//! errors; nothing waits longer than the patience.

use super::endpoint::{Connection, Endpoint, deadline};
use super::error::{GdbError, quote};
use super::packet::{self, Decoder, Event};
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use std::time::Duration;

/// The largest batch: what a socket takes in at once even where its buffers are small.
const MOST_BATCH_BYTES: usize = 48 << 10;
/// Bytes received at a time.
const INCOMING_BYTES: usize = 64 << 10;
/// Reads after a deadline, of what had come before it: the recorder itself may have been stopped.
pub(super) const MOST_LATE_READS: u32 = 16;
/// The byte that interrupts a running guest.
const INTERRUPT: u8 = 3;

/// How many questions may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// One.
    OneByOne,
    /// All, once the guest stands still.
    InterruptFirst,
    /// All, the interrupt among them.
    AllAtOnce,
}

impl Pace {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Pace::OneByOne => "one question at a time",
            Pace::InterruptFirst => "questions in batches once the guest stands still",
            Pace::AllAtOnce => "interrupt and questions in one batch",
        }
    }
}

/// One conversation with a stub.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    connection: Connection,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that have been sent.
    sent: usize,
    /// Answers to what has been sent that have not come yet.
    due: usize,
    incoming: Box<[u8]>,
    unread: std::ops::Range<usize>,
    pace: Pace,
    /// Whether the two sides acknowledge packets. On a connection that loses nothing that is mere
    /// form; it is kept up because a stub may insist.
    acknowledges: bool,
    patience: Duration,
    deadline_ns: u64,
    /// When the conversation has lasted too long, however quick each answer is.
    end_ns: u64,
    asked: &'static str,
    /// Times that answers were waited for.
    pub round_trips: u64,
}

impl Client {
    /// Talks over a connection that is there already; `endpoint` is what messages call it.
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
        }
    }

    /// Whom we talk to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The socket, for whoever has to let the guest go when we can't.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How many questions may be under way at once.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Sets it.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Ends acknowledgements: both sides agreed.
    pub fn stop_acknowledging(&mut self) {
        self.acknowledges = false;
    }

    /// How long all answers together may take from now on; `None`: as long as each takes.
    pub fn set_end(&mut self, patience: Option<Duration>) {
        self.end_ns = patience.map_or(u64::MAX, deadline);
    }

    /// How long to wait for an answer from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Begins a batch. `asked` says what it is for, in errors.
    pub fn begin(&mut self, asked: &'static str) {
        self.asked = asked;
        self.outgoing.clear();
        self.sent = 0;
        self.due = 0;
    }

    /// Adds the byte that interrupts the guest; its answer is a stop reply.
    pub fn add_interrupt(&mut self) {
        self.outgoing.push(INTERRUPT);
    }

    /// Adds a question.
    pub fn add(&mut self, payload: std::fmt::Arguments<'_>) {
        if self.acknowledges && self.pace != Pace::OneByOne {
            // For the reply before, which this question does not wait for.
            self.outgoing.push(b'+');
        }
        packet::put(&mut self.outgoing, payload);
    }

    /// Whether another `bytes` bytes of questions fit into the batch.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.outgoing.len() + bytes <= MOST_BATCH_BYTES
    }

    /// The next reply. Sends what the pace allows first, if no answer is due.
    ///
    /// # Errors
    /// Why there is none.
    pub fn reply(&mut self) -> Result<&[u8], GdbError> {
        if self.due == 0 {
            self.send_more()?;
            self.round_trips += 1;
        }
        let mut late = 0;
        while !self.next_packet(self.deadline_ns)? {
            // Bytes without end are no answer.
            late += u32::from(monotonic_ns() > self.deadline_ns);
            if late > MOST_LATE_READS {
                return Err(self.failed(Errno::ETIMEDOUT));
            }
        }
        self.due = self.due.saturating_sub(1);
        Ok(self.decoder.payload())
    }

    /// One more reply than there were questions.
    ///
    /// # Errors
    /// Why there is none.
    pub fn extra_reply(&mut self) -> Result<&[u8], GdbError> {
        self.due += 1;
        self.reply()
    }

    /// One question and its answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask(
        &mut self,
        asked: &'static str,
        payload: std::fmt::Arguments<'_>,
    ) -> Result<&[u8], GdbError> {
        self.begin(asked);
        self.add(payload);
        self.reply()
    }

    /// A packet whose answer comes some day or never, such as `vCont`.
    ///
    /// # Errors
    /// Why it could not be sent.
    pub fn tell(&mut self, asked: &'static str, payload: &str) -> Result<(), GdbError> {
        self.begin(asked);
        self.add(format_args!("{payload}"));
        let sent = self
            .connection
            .send(&self.outgoing, deadline(self.patience));
        sent.map_err(|errno| self.failed(errno))
    }

    /// A packet that came unasked, if one has; does not wait.
    ///
    /// # Errors
    /// That the connection is gone.
    pub fn unasked(&mut self) -> Result<Option<&[u8]>, GdbError> {
        match self.next_packet(0) {
            Ok(true) => Ok(Some(self.decoder.payload())),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops a guest that may run or not, and forgets all answers that are due. Afterwards the guest
    /// stands still, and the conversation can go on.
    ///
    /// # Errors
    /// That the connection is gone.
    pub fn start_over(&mut self) -> Result<(), GdbError> {
        const QUIET: Duration = Duration::from_millis(150);
        self.begin("to stop");
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

    /// Sends as many of the questions as may be under way at once.
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
        let result = self.connection.send(&rest[..length], self.deadline_ns);
        self.sent += length;
        self.due = answers;
        result.map_err(|errno| self.failed(errno))
    }

    /// Works through received bytes up to the end of a packet (true) or of what is there (false).
    fn next_packet(&mut self, deadline_ns: u64) -> Result<bool, GdbError> {
        if self.unread.is_empty() {
            let count = match self.connection.receive(&mut self.incoming, deadline_ns) {
                // Nobody waited: that is no error, which would take memory at each sample.
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

    fn acknowledge(&self) -> Result<(), GdbError> {
        // In a batch, each question brings the acknowledgement of the reply before.
        if !self.acknowledges || self.pace != Pace::OneByOne {
            return Ok(());
        }
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

    /// The reply to the current question makes no sense.
    pub fn nonsense(&self, problem: impl Into<String>) -> GdbError {
        GdbError::Nonsense {
            endpoint: self.endpoint.clone(),
            asked: self.asked,
            problem: problem.into(),
        }
    }

    /// The stub said no to the current question; the reply is the last packet.
    pub fn refused(&self, advice: &'static str) -> GdbError {
        GdbError::Refused {
            endpoint: self.endpoint.clone(),
            asked: self.asked,
            reply: quote(self.decoder.payload()),
            advice,
        }
    }
}

/// `O` and hexadecimal text: what the guest prints, which nobody asked for.
fn is_console_output(payload: &[u8]) -> bool {
    let Some((b'O', text)) = payload.split_first() else {
        return false;
    };
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

/// A stop reply (appendix E.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReply {
    /// The guest stopped, with this signal's number; 2 and 0 stand for our interrupt.
    Stopped(u8),
    /// It ended, with this status.
    Exited(u8),
    /// It was ended by this signal.
    Killed(u8),
}

impl StopReply {
    /// Reads a packet; `None` if it is something else, such as console output.
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

    /// Whether the guest stopped because someone asked it to, rather than by a fault or breakpoint.
    pub fn is_interrupt(self) -> bool {
        // SIGINT, no signal, SIGSTOP and SIGTRAP of stubs that know no better than "stopped".
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
        for other in [&b""[..], b"OK", b"E01", b"O48", b"T", b"Tzz"] {
            assert_eq!(StopReply::parse(other), None);
        }
    }
}
