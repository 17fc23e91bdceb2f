//! The agent's side of a connection (docs/agent-protocol.md). Any thread that may do I/O drives it by calling
//! [`Session::serve`] repeatedly.
//!
//! Input: bytes from an untrusted client. Output: bytes. Never blocks, as [`Stream`] is non-blocking.

use crate::agent::{Agent, MOST_FRAMES, MOST_STACK_BYTES};
use crate::checksum::Checksum;
use crate::message::{self, HEADER_BYTES, Input, Request};
use crate::walk::Memory;

/// The other end has hung up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Number of bytes read or written; 0 if there is nothing to read, or no room, at the moment.
pub type Io = Result<usize, Gone>;

/// A non-blocking byte stream.
pub trait Stream {
    /// Reads available bytes into the beginning of `into`.
    ///
    /// # Errors
    /// [`Gone`] if the other end has closed the stream.
    fn read(&mut self, into: &mut [u8]) -> Io;

    /// Writes as many of `bytes` as there is room for.
    ///
    /// # Errors
    /// [`Gone`] if the other end has closed the stream.
    fn write(&mut self, bytes: &[u8]) -> Io;
}

/// The next action of the caller of [`Session::serve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Call again soon: there was work to do.
    Busy,
    /// Call again in some milliseconds, or when the stream is ready.
    Idle,
    /// Close the stream. The next connection, or a serial line that can't be closed, needs a new session.
    Ended,
}

/// Seconds without a valid message after which a client counts as gone.
const SILENCE_SECONDS: u64 = 5;
const OUTPUT_BYTES: usize = 1024;
/// Size limit of all messages but samples (bytes).
const ANSWER_BYTES: usize = 256;
const NAME_BYTES: usize = 64;
const BUILD_ID_BYTES: usize = 32;
/// Messages answered in one call.
const MOST_ANSWERS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No client has attached yet.
    Waiting,
    /// A client has attached.
    Attached,
    /// Sampling has stopped; earlier samples are still to be sent.
    Draining,
    /// Another client is attached. This one is sent a refusal, then the session ends.
    Refused,
}

/// A sample being sent.
#[derive(Clone, Copy)]
struct Sending {
    vcpu: u32,
    length: u64,
    next: u64,
}

/// One connection.
pub struct Session {
    state: State,
    input: Input,
    output: [u8; OUTPUT_BYTES],
    /// Start of the part of the output that is still to be written.
    from: usize,
    to: usize,
    sending: Option<Sending>,
    next_vcpu: u32,
    heard: Option<u64>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A session for the next client.
    pub const fn new() -> Self {
        Session {
            state: State::Waiting,
            input: Input::new(),
            output: [0; OUTPUT_BYTES],
            from: 0,
            to: 0,
            sending: None,
            next_vcpu: 0,
            heard: None,
        }
    }

    /// Reads, answers and writes as much as possible without blocking. A session that is dropped before [`Step::Ended`]
    /// needs [`Session::end`], or the agent continues to sample without a client.
    pub fn serve<M: Memory>(&mut self, agent: &Agent<'_, M>, stream: &mut impl Stream) -> Step {
        match self.pass(agent, stream) {
            Ok(step) => step,
            Err(Gone) => {
                self.end(agent);
                Step::Ended
            }
        }
    }

    /// Ends the session, and with it the sampling for its client.
    pub fn end<M: Memory>(&mut self, agent: &Agent<'_, M>) {
        if matches!(self.state, State::Attached | State::Draining) {
            agent.leave();
        }
        *self = Session::new();
    }

    fn pass<M: Memory>(
        &mut self,
        agent: &Agent<'_, M>,
        stream: &mut impl Stream,
    ) -> Result<Step, Gone> {
        let now = (agent.guest.clock)();
        let heard = *self.heard.get_or_insert(now);
        let read = match self.input.room() {
            [] => 0,
            room => stream.read(room)?,
        };
        self.input.grow(read);
        for _ in 0..MOST_ANSWERS {
            if self.room() < ANSWER_BYTES || self.state == State::Refused {
                break;
            }
            let Some(asked) = self.input.next() else {
                break;
            };
            self.heard = Some(now);
            self.answer(agent, asked)?;
        }
        let limit = agent.guest.clock_hz.saturating_mul(SILENCE_SECONDS);
        // A clock that was set back doesn't count as silence.
        if self.heard == Some(heard) && now.saturating_sub(heard) > limit {
            return Err(Gone);
        }
        let is_sampling = agent.is_sampling() && self.state == State::Attached;
        if is_sampling || self.state == State::Draining {
            self.fill(agent);
        }
        let mut wrote = 0;
        if self.from < self.to {
            wrote = stream
                .write(&self.output[self.from..self.to])?
                .min(self.to - self.from);
            self.from += wrote;
        }
        match (self.state, self.from == self.to) {
            (State::Refused, true) => Err(Gone),
            _ if read > 0 || wrote > 0 => Ok(Step::Busy),
            _ => Ok(Step::Idle),
        }
    }

    fn answer<M: Memory>(&mut self, agent: &Agent<'_, M>, asked: Request) -> Result<(), Gone> {
        match (self.state, asked) {
            (State::Waiting, Request::Attach { nonce }) => {
                if agent.enter() {
                    self.state = State::Attached;
                    self.hello(agent, nonce);
                } else {
                    self.state = State::Refused;
                    self.put(message::BUSY, &[]);
                }
            }
            // On a line that can't be closed, this means that the previous client is gone.
            (State::Attached | State::Draining, Request::Attach { nonce }) => {
                agent.stop();
                self.state = State::Attached;
                self.hello(agent, nonce);
            }
            (
                State::Attached | State::Draining,
                Request::Start {
                    period_ns,
                    frames,
                    stack_bytes,
                },
            ) => {
                self.state = State::Attached;
                let (period_ns, frames, stack_bytes) = agent.start(period_ns, frames, stack_bytes);
                self.tell_state(1, period_ns, frames, stack_bytes);
            }
            (State::Attached, Request::Stop) => {
                agent.stop();
                self.state = State::Draining;
            }
            (State::Attached | State::Draining, Request::Ping { number }) => {
                let mut payload = [0; 16];
                payload[..8].copy_from_slice(&number.to_le_bytes());
                payload[8..].copy_from_slice(&(agent.guest.clock)().to_le_bytes());
                self.put(message::CLOCK, &payload);
            }
            (State::Attached | State::Draining, Request::Detach) => return Err(Gone),
            _ => {}
        }
        Ok(())
    }

    /// Free bytes of the output, after bytes already written are dropped.
    fn room(&mut self) -> usize {
        if self.from > 0 {
            self.output.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        // Answers are sent between samples.
        if self.sending.is_some() {
            0
        } else {
            OUTPUT_BYTES - self.to
        }
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.output.get_mut(self.to..self.to + bytes.len()) {
            room.copy_from_slice(bytes);
            self.to += bytes.len();
        }
    }

    fn put(&mut self, kind: u8, payload: &[u8]) {
        let header = message::header(kind, payload.len() as u32, |sum| sum.add(payload));
        self.put_bytes(&header);
        self.put_bytes(payload);
    }

    /// Sends the hello (section 5.1).
    fn hello<M: Memory>(&mut self, agent: &Agent<'_, M>, nonce: u64) {
        let guest = &agent.guest;
        let arch = if cfg!(target_arch = "aarch64") { 1 } else { 0 };
        let build_id = &guest.build_id[..guest.build_id.len().min(BUILD_ID_BYTES)];
        let name = &guest.name.as_bytes()[..guest.name.len().min(NAME_BYTES)];
        let mut payload = [0; 112 + NAME_BYTES];
        let mut to = 0;
        let mut add = |bytes: &[u8]| {
            payload[to..to + bytes.len()].copy_from_slice(bytes);
            to += bytes.len();
        };
        add(&nonce.to_le_bytes());
        add(&message::VERSION.to_le_bytes());
        add(&[arch, build_id.len() as u8]);
        add(&guest.vcpus.to_le_bytes());
        let code_bytes = guest.code.end.saturating_sub(guest.code.start);
        for number in [
            guest.clock_hz,
            guest.cycles_hz,
            guest.code.start,
            code_bytes,
            guest.code_offset,
        ] {
            add(&number.to_le_bytes());
        }
        for number in [
            guest.timer_hz,
            MOST_FRAMES,
            MOST_STACK_BYTES,
            name.len() as u32,
        ] {
            add(&number.to_le_bytes());
        }
        add(build_id);
        add(&[0; BUILD_ID_BYTES][build_id.len()..]);
        add(name);
        self.put(message::HELLO, &payload[..to]);
    }

    /// Sends the state (section 5.2).
    fn tell_state(&mut self, sampling: u8, period_ns: u64, frames: u32, stack_bytes: u32) {
        let mut payload = [0; 24];
        payload[0] = sampling;
        payload[8..16].copy_from_slice(&period_ns.to_le_bytes());
        payload[16..20].copy_from_slice(&frames.to_le_bytes());
        payload[20..].copy_from_slice(&stack_bytes.to_le_bytes());
        self.put(message::STATE, &payload);
    }

    /// Fills the output with samples and losses.
    fn fill<M: Memory>(&mut self, agent: &Agent<'_, M>) {
        let mut empty = 0;
        loop {
            if let Some(sending) = self.sending {
                if !self.fill_sample(agent, sending) {
                    return;
                }
                empty = 0;
                // Requests are answered between samples.
                if self.input.may_have_message() {
                    return;
                }
            }
            if self.room() < ANSWER_BYTES {
                return;
            }
            if empty == agent.guest.vcpus {
                break;
            }
            let vcpu = self.next_vcpu % agent.guest.vcpus;
            self.next_vcpu = vcpu + 1;
            empty += 1;
            let Some(ring) = agent.ring(vcpu) else {
                continue;
            };
            let lost = ring.take_lost();
            if lost > 0 {
                let mut payload = [0; 16];
                payload[..4].copy_from_slice(&vcpu.to_le_bytes());
                payload[8..].copy_from_slice(&lost.to_le_bytes());
                self.put(message::LOSSES, &payload);
            }
            if let Some(length) = ring.oldest() {
                let start = [u64::from(vcpu)];
                let words = (0..length).map(|index| ring.peek(index));
                let add = |sum: &mut Checksum| {
                    start
                        .into_iter()
                        .chain(words)
                        .for_each(|word| sum.add(&word.to_le_bytes()));
                };
                let header = message::header(message::SAMPLE, 8 * (length as u32 + 1), add);
                self.put_bytes(&header);
                self.put_bytes(&start[0].to_le_bytes());
                self.sending = Some(Sending {
                    vcpu,
                    length,
                    next: 0,
                });
            }
        }
        if self.state == State::Draining {
            self.state = State::Attached;
            self.tell_state(0, 0, 0, 0);
        }
    }

    /// Appends words of a sample; returns whether it is complete.
    fn fill_sample<M: Memory>(&mut self, agent: &Agent<'_, M>, sending: Sending) -> bool {
        let Some(ring) = agent.ring(sending.vcpu) else {
            self.sending = None;
            return true;
        };
        let Sending {
            vcpu,
            length,
            mut next,
        } = sending;
        while next < length && self.to + 8 <= OUTPUT_BYTES {
            self.put_bytes(&ring.peek(next).to_le_bytes());
            next += 1;
        }
        let is_whole = next == length;
        if is_whole {
            ring.advance(length);
        }
        self.sending = (!is_whole).then_some(Sending { vcpu, length, next });
        is_whole
    }
}

/// Proves that the longest hello, with its header, is within the limit.
const _: () = assert!(HEADER_BYTES + 112 + NAME_BYTES <= ANSWER_BYTES);
