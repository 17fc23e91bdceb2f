//! The source: the guest takes the samples, and this end receives them.

#[cfg(test)]
mod tests;

use super::client::{Client, StreamState};
use super::clock::{OLD_NS, Pair};
use super::error::AgentError;
use super::intake::Intake;
use super::message::{self, Hello};
use crate::source::ring::Sink;
use crate::source::{Facts, Life, Observations, Observer, Pushed, SourceError};
use crate::sys::clock::{monotonic_ns, realtime_ns};
use std::time::Duration;
use uprof::cold::ClockPair;

/// Time between pings, in nanoseconds.
const PING_NS: u64 = 250_000_000;
/// Most of the time between two pings that counts as the agent's silence. For the rest we were held up ourselves.
const MOST_BETWEEN_PINGS_NS: u64 = 2 * PING_NS;
/// An agent that received nothing from us for this long assumes that we are gone (section 4). On a line that can't be
/// closed it then waits for the next client, so we attach again. If we know that we were silent, we do so at once.
const AGENTS_PATIENCE_NS: u64 = 5_000_000_000;
/// If we don't know, we attach again after this long without an answer.
const ATTACH_ANEW_NS: u64 = 3_000_000_000;
/// An agent that sends nothing for this long, not even an answer to a ping, is gone.
const SILENCE_NS: u64 = 10_000_000_000;
/// Longest wait for the last samples, in nanoseconds.
const LAST_NS: u64 = 2_000_000_000;
/// Most reads of the stream in one pass.
const LOOKS: usize = 16;
/// Longest total wait for free slots in one pass.
const PATIENCE: Duration = Duration::from_millis(50);

/// The backend.
pub(super) struct AgentSource {
    pub facts: Facts,
    pub client: Client,
    /// The agent's description of its guest.
    pub hello: Hello,
    pub intake: Intake,
    /// The request: period, callers, stack bytes.
    pub start: [u8; 16],
    pub pairs: rtrb::Producer<Pair>,
    /// The ping whose answer is waited for: its number, and when it was sent.
    pub ping: Option<(u64, u64)>,
    pub last_ping: (u64, u64),
    pub heard_ns: u64,
    /// How long the agent has been silent although it was asked.
    pub silent_ns: u64,
    /// Our number while we attach again, and how often we did.
    pub nonce: Option<u64>,
    pub attached_anew: u64,
    /// Whether a request to start is still to be sent.
    pub is_start_due: bool,
    pub told_damaged: u64,
    /// Whether the agent reports that it samples.
    pub is_sampling: bool,
    pub life: Life,
}

impl AgentSource {
    /// Asks for the guest's clock.
    pub fn ping(&mut self, now_ns: u64) {
        let (last, at_ns) = self.last_ping;
        self.silent_ns += now_ns.saturating_sub(at_ns).min(MOST_BETWEEN_PINGS_NS);
        let number = last + 1;
        self.last_ping = (number, now_ns);
        // An answer may take longer than the time to the next ping.
        let is_free = self
            .ping
            .is_none_or(|(_, sent_ns)| now_ns.saturating_sub(sent_ns) > OLD_NS);
        if self.client.say(message::PING, &number.to_le_bytes()) && is_free {
            self.ping = Some((number, now_ns));
        }
    }

    /// Continues with the guest that answers our second attachment, if it is the same guest.
    fn welcomed(&mut self, hello: &Hello, now_ns: u64, sink: &mut Sink) {
        if self.nonce != Some(hello.nonce) {
            return;
        }
        self.nonce = None;
        if !hello.is_of_the_same_guest(&self.hello) {
            self.life = Life::Ended("another guest answers where it was".to_owned());
            return;
        }
        self.attached_anew += 1;
        self.intake.interrupted(now_ns, hello.timer_hz, sink);
        // If the guest has restarted, so has its clock; the next answer is from the new one.
        self.ping = None;
        self.ping(now_ns);
        self.is_start_due = true;
    }

    /// Handles the frames that have come.
    pub fn take(&mut self, sink: Option<&mut Sink>) -> Result<(), AgentError> {
        let mut sink = sink;
        let mut patience = PATIENCE;
        for _ in 0..LOOKS {
            let received = self.client.receive();
            let now_ns = monotonic_ns();
            while let Some((kind, payload)) = self.client.decoder.next_frame() {
                (self.heard_ns, self.silent_ns) = (now_ns, 0);
                match (kind, &mut sink) {
                    (message::SAMPLE, Some(sink)) => {
                        sink.wait_for_room(&mut patience);
                        self.intake.sample(payload, now_ns, sink);
                    }
                    (message::LOSSES, Some(sink)) => self.intake.losses(payload, now_ns, sink),
                    (message::STATE, _) => self.is_sampling = payload.first() == Some(&1),
                    (message::CLOCK, _) => {
                        if let (Some((number, ticks)), Some((asked, sent_ns))) =
                            (message::pair(payload), self.ping)
                            && number == asked
                        {
                            self.ping = None;
                            let pair = self.intake.clock.answer(sent_ns, now_ns, ticks);
                            // If the encoder doesn't keep up, one pair is dropped.
                            pair.map(|pair| self.pairs.push(pair).ok());
                        }
                    }
                    (message::HELLO, Some(sink)) => {
                        if let Ok(hello) = Hello::read(payload) {
                            self.welcomed(&hello, now_ns, sink);
                        }
                    }
                    (message::BUSY, _) if self.nonce.is_some() => {
                        let why = "the agent took us for gone, and has another client now";
                        self.life = Life::Ended(why.to_owned());
                    }
                    _ => {}
                }
                if self.life != Life::Alive {
                    return Ok(());
                }
            }
            self.client.check()?;
            match received {
                StreamState::Some => {}
                StreamState::Nothing => break,
                StreamState::End(why) => {
                    self.life = Life::Ended(match why {
                        None => "the guest closed the connection".into(),
                        Some(why) => format!("the connection to the guest broke: {why}"),
                    });
                    break;
                }
            }
        }
        if let Some(sink) = sink {
            let damaged = self.client.decoder.damaged;
            Intake::damaged(damaged - self.told_damaged, self.heard_ns, sink);
            self.told_damaged = damaged;
        }
        Ok(())
    }
}

impl Pushed for AgentSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn start(&mut self) -> Result<(), SourceError> {
        let now_ns = monotonic_ns();
        self.intake.start(now_ns);
        self.heard_ns = now_ns;
        self.is_start_due = !self.client.say(message::START, &self.start);
        self.is_sampling = true;
        Ok(())
    }

    fn wait(&mut self, timeout_ms: u16) -> Result<(), SourceError> {
        Ok(self.client.wait(timeout_ms)?)
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.last_ping.1) >= PING_NS {
            let before_ns = self.silent_ns;
            let was_held_up = now_ns - self.last_ping.1 > AGENTS_PATIENCE_NS;
            self.ping(now_ns);
            if was_held_up || self.silent_ns / ATTACH_ANEW_NS > before_ns / ATTACH_ANEW_NS {
                self.nonce = self.client.say_attach();
            }
        }
        self.client.flush();
        if self.is_start_due && self.client.say(message::START, &self.start) {
            self.is_start_due = false;
        }
        self.take(Some(sink))?;
        if self.life == Life::Alive && self.silent_ns > SILENCE_NS {
            return Err(SourceError(format!(
                "{} has said nothing for {} s, though it was asked: the guest hangs, or does not call the agent's \
                 serve() any more",
                self.client.name,
                SILENCE_NS / 1_000_000_000
            )));
        }
        Ok(self.life.clone())
    }

    /// Asks the agent to stop, and waits for the samples that it still holds.
    fn finish(&mut self, sink: &mut Sink) {
        self.client.say(message::STOP, &[]);
        let end_ns = monotonic_ns() + LAST_NS;
        while self.is_sampling && self.life == Life::Alive && monotonic_ns() < end_ns {
            self.client.flush();
            if self.client.wait(20).is_err() || self.take(Some(sink)).is_err() {
                return;
            }
        }
    }

    fn totals(&self) -> Vec<(String, u64)> {
        let mut totals = self.intake.counts.totals();
        let damaged = self.client.decoder.damaged;
        totals.extend((damaged > 0).then(|| ("damaged_frames".into(), damaged)));
        let anew = self.attached_anew;
        totals.extend((anew > 0).then(|| ("attached_anew".into(), anew)));
        totals
    }
}

impl Drop for AgentSource {
    fn drop(&mut self) {
        self.client.say(message::DETACH, &[]);
    }
}

/// Reports the guest's clock to the encoder.
pub(super) struct ClockObserver(pub rtrb::Consumer<Pair>);

impl Observer for ClockObserver {
    fn look(&mut self, _: u64) -> Observations {
        let mut clocks = Vec::new();
        while let Ok(pair) = self.0.pop() {
            let ago_ns = monotonic_ns().saturating_sub(pair.monotonic_ns);
            clocks.push(ClockPair {
                monotonic_ns: pair.monotonic_ns,
                realtime_ns: realtime_ns() - ago_ns as i64,
                guest: Some(pair.ticks),
            });
        }
        Observations {
            clocks,
            ..Observations::default()
        }
    }
}
