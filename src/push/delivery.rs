//! Delivers messages: tries again with growing pauses, and ends. In: messages. Out: the fate of each. Never tries
//! longer than it was given after the last success.

use super::client::{Attempt, Client};
use crate::selection::{inform, say};
use std::thread;
use std::time::{Duration, Instant};
use uniprof_report::push::Verdict;

/// First pause between attempts; each is twice as long as the one before, less up to a half.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Shortest wait for an answer, even if the time is nearly up.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// What became of a message.
pub enum Fate {
    /// The server has accepted it.
    Delivered,
    /// The server will never accept it.
    Refused(String),
    /// The server accepts nothing now.
    Undelivered(String),
    /// The server will never accept anything at this address.
    Unusable(String),
}

/// The deliveries of a run.
pub struct Delivery<'a> {
    client: &'a Client,
    patience: Duration,
    /// When the first attempt since the last success began.
    since: Option<Instant>,
    /// Messages that were accepted.
    pub delivered: u64,
    /// Messages that were accepted after an attempt without an answer.
    pub repeated: u64,
}

impl<'a> Delivery<'a> {
    /// Deliveries by `client`, which end `patience` after the last success.
    pub fn new(client: &'a Client, patience: Duration) -> Self {
        Delivery {
            client,
            patience,
            since: None,
            delivered: 0,
            repeated: 0,
        }
    }

    /// The way to the server.
    pub fn client(&self) -> &'a Client {
        self.client
    }

    /// Sends a message until it is accepted or refused, or the time is up.
    pub fn deliver(&mut self, message: &[u8]) -> Fate {
        let since = *self.since.get_or_insert_with(Instant::now);
        let mut pause = PAUSE_FIRST;
        let (mut is_unanswered, mut is_told) = (false, false);
        loop {
            let left = self.patience.saturating_sub(since.elapsed());
            let attempt = self
                .client
                .send(message, left.clamp(ANSWER_MIN, ANSWER_MAX));
            let (why, asked) = match attempt {
                Attempt::Answered(Verdict::Accepted { warning }, _) => {
                    if let Some(warning) = warning {
                        say(&format!("warning: {}: {warning}", self.client.url));
                    }
                    self.delivered += 1;
                    self.repeated += u64::from(is_unanswered);
                    self.since = None;
                    return Fate::Delivered;
                }
                Attempt::Answered(Verdict::Refused(why), _) => {
                    self.since = None;
                    return Fate::Refused(why);
                }
                Attempt::Answered(Verdict::Unusable(why), _) => return Fate::Unusable(why),
                Attempt::Answered(Verdict::Later(why), asked) => (why, asked),
                Attempt::Unreached(why) => (why, None),
                Attempt::Unanswered(why) => {
                    is_unanswered = true;
                    (why, None)
                }
            };
            // A share of the pause is drawn, so that many machines don't come back at one moment.
            let drawn = pause.mul_f64(1.0 - fastrand::f64() / 2.0);
            let wait = asked.map_or(drawn, |asked| asked.max(drawn));
            let left = self.patience.saturating_sub(since.elapsed());
            if wait >= left {
                return Fate::Undelivered(format!(
                    "{why}; tried for {:.0} s",
                    self.patience.as_secs_f64()
                ));
            }
            if !is_told {
                inform(&format!("{}: {why}; trying again", self.client.url));
                is_told = true;
            }
            thread::sleep(wait);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
