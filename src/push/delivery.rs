//! Delivers messages: tries again with growing pauses, and ends. In: messages. Out: the fate of each. Never tries
//! longer than its deadline says.

use super::client::{Attempt, Client};
use super::deadline::Deadline;
use super::spool::Spool;
use crate::selection::{inform, say};
use anyhow::Context;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
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
    deadline: &'a Deadline,
    /// When the first attempt since the last success began.
    since: Option<Instant>,
    /// Messages that were accepted but could not be removed from the spool: they must not be sent again.
    unremoved: HashSet<PathBuf>,
    /// Messages that were accepted.
    pub delivered: u64,
    /// Messages that were accepted after an attempt without an answer.
    pub repeated: u64,
    /// Messages that were refused.
    pub refused: u64,
}

/// What is left in a spool.
pub enum Left {
    Nothing,
    /// What another process is delivering.
    ToAnother,
    /// All messages from the first one that has this fate.
    From(Fate),
}

impl<'a> Delivery<'a> {
    /// Deliveries by `client`, until `deadline`.
    pub fn new(client: &'a Client, deadline: &'a Deadline) -> Self {
        Delivery {
            client,
            deadline,
            refused: 0,
            since: None,
            unremoved: HashSet::new(),
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
            let left = self.deadline.left(since);
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
                    self.refused += 1;
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
            let left = self.deadline.left(since);
            if wait >= left {
                let seconds = since.elapsed().as_secs_f64().ceil();
                return Fate::Undelivered(format!("{why}; tried for {seconds} s"));
            }
            if !is_told {
                inform(&format!("{}: {why}; trying again", self.client.url));
                is_told = true;
            }
            self.deadline.pause(wait);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Delivers what waits in the spool, whoever put it there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn deliver_all(&mut self, spool: &Spool) -> anyhow::Result<Left> {
        let Some(_deliverer) = spool.deliverer()? else {
            return Ok(Left::ToAnother);
        };
        loop {
            let waiting = spool.waiting().context("cannot read the spool")?;
            let (removable, waiting): (Vec<PathBuf>, Vec<PathBuf>) = waiting
                .into_iter()
                .partition(|path| self.unremoved.contains(path));
            if waiting.is_empty() {
                for path in removable {
                    spool.remove(&path).with_context(|| stays(&path))?;
                    self.unremoved.remove(&path);
                }
                return Ok(Left::Nothing);
            }
            for path in waiting {
                let cannot = || format!("cannot deliver {}", path.display());
                let Some(message) = spool.take(&path).with_context(cannot)? else {
                    continue;
                };
                match self.deliver(&message) {
                    Fate::Delivered => {
                        // What follows goes first; then this is tried again, unless what follows ends the work.
                        if let Err(error) = spool.remove(&path) {
                            say(&format!("warning: {}: {error}", stays(&path)));
                            self.unremoved.insert(path);
                        }
                    }
                    Fate::Refused(why) => {
                        let aside = spool.refuse(&path).with_context(cannot)?;
                        let (url, aside) = (&self.client.url, aside.display());
                        say(&format!("warning: {url} refuses {aside}: {why}"));
                    }
                    left => return Ok(Left::From(left)),
                }
            }
        }
    }

    /// Warns of messages that may count twice.
    pub fn say_repeated(&self) {
        if self.repeated > 0 {
            say(&format!(
                "warning: profiles sent again after an attempt without an answer: {}; a server that ignores their \
                 ids, as Pyroscope 2 does, may count them twice",
                self.repeated
            ));
        }
    }
}

/// What is to be said of a message that has arrived, but stays in the spool.
fn stays(path: &Path) -> String {
    format!(
        "{} is delivered but can't be removed; remove it, or it is delivered again",
        path.display()
    )
}
