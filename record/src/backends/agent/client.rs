//! A conversation with an agent: how it begins, and the frames in both directions.

use super::error::AgentError;
use super::frame::{Decoder, frame};
use super::line::{Line, LineError};
use super::message::{self, Hello, HelloError};
use crate::guest::endpoint::deadline;
use crate::sys::clock::monotonic_ns;
use std::time::Duration;

/// How long we wait for a connection, and for the first answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Size of the buffer for bytes that could not be sent at once.
const OUTBOX_BYTES: usize = 256;

/// Our side of a connection.
pub(super) struct Client {
    pub name: String,
    line: Box<dyn Line>,
    pub decoder: Decoder,
    outbox: [u8; OUTBOX_BYTES],
    waiting: usize,
    /// Why nothing can be sent any more.
    broken: Option<LineError>,
}

/// The result of reading the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamState {
    /// There are new bytes.
    Some,
    /// There are none at the moment.
    Nothing,
    /// The stream has ended; the error, if any, is the reason.
    End(Option<LineError>),
}

impl Client {
    /// Attaches, and returns the agent's description of its guest.
    pub fn attach(line: Box<dyn Line>, name: &str) -> Result<(Client, Hello), AgentError> {
        let mut client = Client {
            name: name.to_owned(),
            line,
            decoder: Decoder::new(),
            outbox: [0; OUTBOX_BYTES],
            waiting: 0,
            broken: None,
        };
        let nonce = client.say_attach();
        let end_ns = deadline(PATIENCE);
        while monotonic_ns() < end_ns {
            client.wait(50)?;
            let received = client.receive();
            while let Some((kind, payload)) = client.decoder.next_frame() {
                match kind {
                    message::BUSY => return Err(AgentError::Busy(client.name)),
                    message::HELLO => {
                        let nonsense = |error: HelloError| {
                            AgentError::Nonsense(name.to_owned(), error.to_string())
                        };
                        let version = payload.get(8).copied().unwrap_or(0);
                        let hello = Hello::read(payload).map_err(nonsense);
                        // A hello for an earlier client may be left on the line.
                        match hello {
                            Ok(hello) if Some(hello.nonce) != nonce => {}
                            Ok(hello) if hello.version != message::VERSION => {
                                return Err(AgentError::Version(client.name, hello.version));
                            }
                            Err(_) if u16::from(version) != message::VERSION => {
                                return Err(AgentError::Version(client.name, u16::from(version)));
                            }
                            hello => {
                                let hello = hello?;
                                // Frames before it were meant for an earlier client.
                                (client.decoder.damaged, client.decoder.garbage_bytes) = (0, 0);
                                return Ok((client, hello));
                            }
                        }
                    }
                    _ => {}
                }
            }
            client.check()?;
            match received {
                StreamState::End(None) => return Err(AgentError::Closed(client.name)),
                StreamState::End(Some(why)) => {
                    return Err(AgentError::Broken(client.name, why.to_string()));
                }
                _ => {}
            }
        }
        Err(AgentError::Silent(client.name, PATIENCE.as_secs()))
    }

    /// Asks the agent to accept us as its client. Returns the number that identifies its answer, or `None` if too many
    /// bytes wait to be sent already.
    pub fn say_attach(&mut self) -> Option<u64> {
        let nonce = fastrand::u64(..);
        let mut payload = [0; 16];
        payload[..2].copy_from_slice(&message::VERSION.to_le_bytes());
        payload[8..].copy_from_slice(&nonce.to_le_bytes());
        self.say(message::ATTACH, &payload).then_some(nonce)
    }

    /// Sends a frame, now or when there is room; false if too many bytes wait already.
    pub fn say(&mut self, kind: u8, payload: &[u8]) -> bool {
        let mut bytes = [0; 64];
        let length = frame(kind, payload, &mut bytes);
        let Some(room) = self.outbox.get_mut(self.waiting..self.waiting + length) else {
            return false;
        };
        room.copy_from_slice(&bytes[..length]);
        self.waiting += length;
        self.flush();
        true
    }

    /// Sends the waiting bytes. If that fails, the error is reported once everything that came before was received.
    pub fn flush(&mut self) {
        let sent = match self.line.send_some(&self.outbox[..self.waiting]) {
            Ok(sent) => sent,
            Err(why) => {
                self.broken.get_or_insert(why);
                0
            }
        };
        self.outbox.copy_within(sent..self.waiting, 0);
        self.waiting -= sent;
    }

    /// Receives as many bytes as there are and as there is room for.
    pub fn receive(&mut self) -> StreamState {
        let room = self.decoder.room();
        // The buffer is full: its frames must be taken first.
        if room.is_empty() {
            return StreamState::Some;
        }
        match self.line.receive_some(room) {
            Ok(Some(0)) => StreamState::End(None),
            Ok(Some(count)) => {
                self.decoder.grow(count);
                StreamState::Some
            }
            // A failed write is reported only now that everything received was read.
            Ok(None) => match self.broken.take() {
                None => StreamState::Nothing,
                why => StreamState::End(why),
            },
            Err(why) => StreamState::End(Some(why)),
        }
    }

    /// Waits until something comes.
    pub fn wait(&mut self, timeout_ms: u16) -> Result<(), AgentError> {
        let result = self.line.wait_to_receive(timeout_ms);
        result.map_err(|why| AgentError::Broken(self.name.clone(), why.to_string()))
    }

    /// Checks that the stream is the agent's protocol at all.
    pub fn check(&self) -> Result<(), AgentError> {
        let Decoder {
            damaged,
            garbage_bytes,
            ..
        } = &self.decoder;
        if self.decoder.gives_up() {
            let what = format!("{damaged} damaged frames, {garbage_bytes} bytes between frames");
            Err(AgentError::Garbage(self.name.clone(), what))
        } else {
            Ok(())
        }
    }
}
