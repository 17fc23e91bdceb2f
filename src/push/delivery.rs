//! Delivers messages: tries again with growing pauses, and ends. In: messages. Out: the fate of each. Nothing is tried
//! again after its deadline, and no message of a spool holds up the others.

use super::client::{Attempt, Client};
use super::deadline::Deadline;
use super::spool::Spool;
use crate::selection::{inform, say};
use anyhow::Context;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uniprof_report::push::Verdict;

/// First pause between attempts; each is twice as long as the one before, less up to a half.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// Longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often the spool is looked at while all that waits there is postponed.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest wait for an answer, even if the time is nearly up.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// What became of a message.
pub enum Fate {
    /// The server has accepted it.
    Delivered,
    /// The server will never accept it.
    Refused(String),
    /// Another attempt may succeed.
    Later(Failure),
    /// The server will never accept anything at this address.
    Unusable(String),
}

/// An attempt after which another one may succeed.
pub struct Failure {
    why: String,
    /// The pause before the next attempt.
    pause: Duration,
    /// For how long the server does not want this message again; `None` if it gave no answer.
    asked: Option<Duration>,
}

/// The deliveries of a run.
pub struct Delivery<'a> {
    client: &'a Client,
    deadline: &'a Deadline,
    /// The attempts since the last success.
    trouble: Option<Trouble>,
    /// Why the last attempt that was told of had no success, without the numbers in it.
    told: Option<String>,
    /// Messages of a spool that a server that answers did not take yet.
    postponed: HashMap<PathBuf, Postponed>,
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
    /// Whether one was told of.
    is_told: bool,
}

impl Trouble {
    fn begin() -> Trouble {
        Trouble {
            since: Instant::now(),
            pause: PAUSE_FIRST,
            is_told: false,
        }
    }
}

/// A message that is tried again.
struct Postponed {
    why: String,
    tried: Instant,
    again: Instant,
    /// The pause after the next attempt.
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
            told: None,
            postponed: HashMap::new(),
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

    /// Sends a message of the file `path` once. The pauses until another attempt grow until there is a success.
    pub fn attempt(&mut self, message: &[u8], path: &Path) -> Fate {
        let left = self.left();
        let attempt = self
            .client
            .send(message, left.clamp(ANSWER_MIN, ANSWER_MAX));
        match attempt {
            Attempt::Answered(Verdict::Accepted { warning }, _) => {
                if let Some(warning) = warning {
                    say(&format!("warning: {}: {warning}", self.client.url));
                }
                self.delivered += 1;
                self.repeated += u64::from(self.unanswered.remove(path));
                self.succeed(path);
                Fate::Delivered
            }
            Attempt::Answered(Verdict::Refused(why), _) => {
                self.unanswered.remove(path);
                self.succeed(path);
                self.refused += 1;
                Fate::Refused(why)
            }
            Attempt::Answered(Verdict::Unusable(why), _) => Fate::Unusable(why),
            Attempt::Answered(Verdict::Later(why), asked) => {
                self.fail(why, Some(asked.unwrap_or_default()))
            }
            Attempt::Unreached(why) => self.fail(why, None),
            Attempt::Unanswered(why) => {
                self.unanswered.insert(path.to_owned());
                self.fail(why, None)
            }
        }
    }

    fn succeed(&mut self, path: &Path) {
        self.trouble = None;
        self.postponed.remove(path);
        // A server that never takes one of many messages is told of once, and one that is away each time.
        if self.postponed.is_empty() {
            self.told = None;
        }
    }

    fn fail(&mut self, why: String, asked: Option<Duration>) -> Fate {
        let trouble = self.trouble.get_or_insert_with(Trouble::begin);
        Fate::Later(Failure {
            why,
            pause: next_pause(&mut trouble.pause),
            asked,
        })
    }

    /// The time that is left for attempts without success.
    fn left(&mut self) -> Duration {
        let trouble = self.trouble.get_or_insert_with(Trouble::begin);
        self.deadline.left(trouble.since)
    }

    /// Says once why it is tried again.
    fn tell(&mut self, why: &str) {
        let trouble = self.trouble.get_or_insert_with(Trouble::begin);
        let is_told = std::mem::replace(&mut trouble.is_told, true);
        let told = Some(without_numbers(why));
        if !is_told && told != self.told {
            inform(&format!("{}: {why}; trying again", self.client.url));
            self.told = told;
        }
    }

    /// Pauses before another attempt. If there is no time for one, returns why the last one failed.
    pub fn wait(&mut self, failure: &Failure) -> Option<String> {
        let pause = failure.pause.max(failure.asked.unwrap_or_default());
        if pause >= self.left() {
            return Some(self.time_is_up(&failure.why));
        }
        self.tell(&failure.why);
        self.deadline.pause(pause);
        None
    }

    fn time_is_up(&self, why: &str) -> String {
        let since = self.trouble.as_ref().map(|trouble| trouble.since);
        let tried = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        format!("{why}; tried for {} s", tried.ceil())
    }

    /// Leaves a message for later that a server did not take: it may be the only one.
    fn postpone(&mut self, path: PathBuf, failure: Failure, asked: Duration) {
        let known = self.postponed.get(&path);
        let mut pause = known.map_or(PAUSE_FIRST, |known| known.pause);
        if known.is_none() {
            self.tell(&failure.why);
        }
        let tried = Instant::now();
        let again = tried.checked_add(next_pause(&mut pause).max(asked));
        let postponed = Postponed {
            why: failure.why,
            tried,
            again: again.unwrap_or(tried + PAUSE_MAX),
            pause,
        };
        self.postponed.insert(path, postponed);
        let left = self.left();
        self.deadline.pause(failure.pause.min(left));
    }

    /// Whether it is time for a message. When the time is up, each is tried that wasn't since the last success.
    fn is_due(&mut self, path: &Path) -> bool {
        let left = self.left();
        let since = self.trouble.as_ref().map(|trouble| trouble.since);
        self.postponed.get(path).is_none_or(|one| {
            let is_untried = since.is_none_or(|since| one.tried < since);
            self.deadline.is_due(one.tried, one.again) && (is_untried || !left.is_zero())
        })
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
            let mut waiting = spool.waiting().context("cannot read the spool")?;
            waiting.retain(|path| !self.unremoved.contains(path));
            if waiting.is_empty() {
                for path in &self.unremoved {
                    match spool.remove(path) {
                        Err(error) if error.kind() != ErrorKind::NotFound => {
                            return Err(error).with_context(|| stays(path));
                        }
                        _ => {}
                    }
                }
                self.unremoved.clear();
                return Ok(Left::Nothing);
            }
            // Others may have been dropped, or delivered by another process.
            self.postponed
                .retain(|path, _| waiting.binary_search(path).is_ok());
            let due: Vec<PathBuf> = waiting
                .into_iter()
                .filter(|path| self.is_due(path))
                .collect();
            let next = self.postponed.values().min_by_key(|one| one.again);
            if let Some(next) = next.filter(|_| due.is_empty()) {
                let pause = next.again.saturating_duration_since(Instant::now());
                let why = next.why.clone();
                if pause >= self.left() {
                    return Ok(Left::Undelivered(self.time_is_up(&why)));
                }
                // Something new may come, and is not postponed.
                self.deadline.pause(pause.min(LOOK));
            }
            for path in due {
                let cannot = || format!("cannot deliver {}", path.display());
                let Some(message) = spool.take(&path).with_context(cannot)? else {
                    continue;
                };
                let fate = self.attempt(&message, &path);
                if matches!(fate, Fate::Later(_) | Fate::Unusable(_)) {
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
                    Fate::Later(failure) => match failure.asked {
                        Some(asked) if !self.deadline.is_hurried() => {
                            self.postpone(path, failure, asked);
                        }
                        _ => {
                            if let Some(why) = self.wait(&failure) {
                                return Ok(Left::Undelivered(why));
                            }
                        }
                    },
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

/// A pause, of which a share is drawn, so that many machines don't come back at one moment. The next one is twice as
/// long.
fn next_pause(pause: &mut Duration) -> Duration {
    let drawn = pause.mul_f64(1.0 - fastrand::f64() / 2.0);
    *pause = (*pause * 2).min(PAUSE_MAX);
    drawn
}

/// What is said, without what may differ the next time.
pub fn without_numbers(what: &str) -> String {
    what.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "")
}

/// What is to be said of a message that has arrived, but stays in the spool.
fn stays(path: &Path) -> String {
    format!(
        "{} is delivered but can't be removed; remove it, or it is delivered again",
        path.display()
    )
}
