//! Delivers messages: tries again with growing pauses, and ends. In: messages. Out: the fate of each. Never tries
//! longer than its deadline says, and no message of a spool holds up the others.

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
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
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
    /// Another attempt may succeed after this pause, and there is time for one.
    Later(Duration),
    /// The time is up.
    Undelivered(String),
    /// The server will never accept anything at this address.
    Unusable(String),
}

/// The deliveries of a run.
pub struct Delivery<'a> {
    client: &'a Client,
    deadline: &'a Deadline,
    /// The attempts since the last success.
    trouble: Option<Trouble>,
    /// Why the last attempt that was told of had no success.
    told: String,
    /// The files of messages that the server may have, as an attempt had no answer.
    unanswered: HashSet<PathBuf>,
    /// Messages that were accepted but could not be removed from the spool: they must not be sent again.
    unremoved: HashSet<PathBuf>,
    /// Messages that were accepted.
    pub delivered: u64,
    /// Messages that were accepted after an attempt without an answer.
    pub repeated: u64,
    /// Messages that were refused.
    pub refused: u64,
}

/// Attempts without success.
struct Trouble {
    /// When the first one began.
    since: Instant,
    /// The pause after the next one.
    pause: Duration,
}

/// What is left in a spool.
pub enum Left {
    Nothing,
    /// What another process is delivering.
    ToAnother,
    /// What was not accepted in time.
    Undelivered(String),
    /// Everything: the server will never accept anything at this address.
    Unusable(String),
}

impl<'a> Delivery<'a> {
    /// Deliveries by `client`, until `deadline`.
    pub fn new(client: &'a Client, deadline: &'a Deadline) -> Self {
        Delivery {
            client,
            deadline,
            refused: 0,
            trouble: None,
            told: String::new(),
            unanswered: HashSet::new(),
            unremoved: HashSet::new(),
            delivered: 0,
            repeated: 0,
        }
    }

    /// The way to the server.
    pub fn client(&self) -> &'a Client {
        self.client
    }

    /// Pauses, but not beyond the end of the recording.
    pub fn pause(&self, length: Duration) {
        self.deadline.pause(length);
    }

    /// Sends a message of the file `path` once. The pauses until another attempt grow until there is a success.
    pub fn attempt(&mut self, message: &[u8], path: &Path) -> Fate {
        let trouble = self.trouble.get_or_insert_with(|| Trouble {
            since: Instant::now(),
            pause: PAUSE_FIRST,
        });
        let left = self.deadline.left(trouble.since);
        let attempt = self
            .client
            .send(message, left.clamp(ANSWER_MIN, ANSWER_MAX));
        let (why, asked) = match attempt {
            Attempt::Answered(Verdict::Accepted { warning }, _) => {
                if let Some(warning) = warning {
                    say(&format!("warning: {}: {warning}", self.client.url));
                }
                self.delivered += 1;
                self.repeated += u64::from(self.unanswered.remove(path));
                self.trouble = None;
                return Fate::Delivered;
            }
            Attempt::Answered(Verdict::Refused(why), _) => {
                self.unanswered.remove(path);
                self.trouble = None;
                self.refused += 1;
                return Fate::Refused(why);
            }
            Attempt::Answered(Verdict::Unusable(why), _) => return Fate::Unusable(why),
            Attempt::Answered(Verdict::Later(why), asked) => (why, asked),
            Attempt::Unreached(why) => (why, None),
            Attempt::Unanswered(why) => {
                self.unanswered.insert(path.to_owned());
                (why, None)
            }
        };
        // A share of the pause is drawn, so that many machines don't come back at one moment.
        let drawn = trouble.pause.mul_f64(1.0 - fastrand::f64() / 2.0);
        let wait = asked.map_or(drawn, |asked| asked.max(drawn));
        if wait >= self.deadline.left(trouble.since) {
            let seconds = trouble.since.elapsed().as_secs_f64().ceil();
            return Fate::Undelivered(format!("{why}; tried for {seconds} s"));
        }
        // A server that never takes one of many messages is told of once.
        if why != self.told {
            inform(&format!("{}: {why}; trying again", self.client.url));
            self.told = why;
        }
        trouble.pause = (trouble.pause * 2).min(PAUSE_MAX);
        Fate::Later(wait)
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
                let fate = self.attempt(&message, &path);
                if matches!(
                    fate,
                    Fate::Later(_) | Fate::Undelivered(_) | Fate::Unusable(_)
                ) {
                    spool.put_back();
                }
                match fate {
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
                    // The next one follows: this may be the only one that the server can't take.
                    Fate::Later(pause) => self.pause(pause),
                    Fate::Undelivered(why) => return Ok(Left::Undelivered(why)),
                    Fate::Unusable(why) => return Ok(Left::Unusable(why)),
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
