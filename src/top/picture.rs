//! What `top` shows of a window. Enters: a recording of the window, and what is asked. Leaves: the lines of a view, the
//! load of vCPUs and threads, and what the numbers rest on: what `uniprof report` says of the same file.

use crate::images::Images;
use crate::memory;
use crate::terminal::in_columns;
use regex::Regex;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use uniprof_report::images::Library;
use uniprof_report::profile::load::{TaskLoad, cost, loads};
use uniprof_report::profile::{Filter, Options, Profile, gather_again};
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables;
use uniprof_report::text::{Screen, printable};
use uniprof_report::views::{Content, FlagValue, Form, VIEWS};

use super::feed::{Feed, Snapshot};

/// The views, in the order of their keys, with the name of their text in [`VIEWS`], if they have one.
pub const SHOWN: [(&str, Option<&str>); 4] = [
    ("Functions", Some("top")),
    ("Tree", Some("tree")),
    ("Threads", None),
    ("Notes", None),
];
/// The numbers of the views that are made here.
const THREADS: usize = 2;

/// Shortest and longest time between two pictures.
const PERIODS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// A picture is followed by this many times its own time without one, so that `top` takes a quarter of a processor or
/// less; the first picture, which reads all images, may take more.
const REST: u32 = 3;
/// Long enough for a picture that stays.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The number of the view.
    pub view: usize,
    /// Only stacks with a matching function.
    pub focus: Option<Regex>,
    /// Only threads whose name matches.
    pub thread: Option<Regex>,
    /// Columns of the terminal.
    pub columns: usize,
    /// Whether the window stays as it is.
    pub is_paused: bool,
    /// The length of the window.
    pub window_seconds: u64,
}

/// What is shown.
#[derive(Debug, Default)]
pub struct Picture {
    /// The recording of the window.
    pub bytes: Arc<Vec<u8>>,
    /// The number of the view that the rows are of.
    pub view: usize,
    /// What was recorded.
    pub subject: String,
    /// The length of the window in seconds.
    pub seconds: f64,
    /// Samples that count.
    pub samples: u64,
    /// The load of vCPUs or threads.
    pub loads: Vec<TaskLoad>,
    /// What sampling costs.
    pub cost: String,
    /// What the numbers rest on, and what is missing.
    pub notes: Vec<String>,
    /// The heading of the rows.
    pub heading: String,
    /// The rows of the view.
    pub rows: Vec<String>,
    /// Why nothing more comes.
    pub ended: Option<String>,
}

/// Hands over a picture. Returns whether somebody waits for more.
type HandOver<'a> = dyn Fn(anyhow::Result<Picture>) -> bool + 'a;

/// Makes pictures until nobody waits for them. `queries` brings what is asked from then on.
pub fn make(feed: &Feed, images: &Images, queries: &Receiver<Query>, hand_over: &HandOver<'_>) {
    let Ok(mut query) = queries.recv() else {
        return;
    };
    let mut goes_on = true;
    while goes_on {
        let made = images.library().map(|library| {
            let tables = Tables::new(&library);
            make_until_full(feed, &tables, &mut query, queries, hand_over)
        });
        goes_on = made.unwrap_or_else(|error| {
            hand_over(Err(error));
            false
        });
    }
}

/// Makes pictures until the tables are full. Returns whether somebody waits for more.
fn make_until_full(
    feed: &Feed,
    tables: &Tables<'_>,
    query: &mut Query,
    queries: &Receiver<Query>,
    hand_over: &HandOver<'_>,
) -> bool {
    let mut last: Option<Gathered> = None;
    let mut due = Instant::now();
    loop {
        let begun = Instant::now();
        // A run of a report has these limits; this one makes many.
        memory::limit();
        let gathered = match last.take() {
            Some(last) if last.is_of(query) && begun < due => Ok(last),
            Some(last) if query.is_paused => Gathered::of(last.snapshot, tables, query),
            _ => feed
                .snapshot()
                .map_err(anyhow::Error::from)
                .and_then(|snapshot| Gathered::of(snapshot, tables, query)),
        };
        let picture = gathered.and_then(|gathered| {
            let picture = gathered.draw(tables.library(), query);
            last = Some(gathered);
            picture
        });
        if !hand_over(picture) {
            return false;
        }
        let is_last = last
            .as_ref()
            .is_some_and(|last| last.snapshot.ended.is_some());
        if query.is_paused || is_last {
            due = begun + FOREVER;
        } else if begun >= due {
            due = Instant::now() + (begun.elapsed() * REST).clamp(PERIODS[0], PERIODS[1]);
        }
        match queries.recv_timeout(due.saturating_duration_since(Instant::now())) {
            // Only the last of several counts.
            Ok(next) => {
                let next = queries.try_iter().last().unwrap_or(next);
                if query.is_paused && !next.is_paused {
                    due = Instant::now();
                }
                *query = next;
            }
            Err(RecvTimeoutError::Timeout) if tables.are_full() => return true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// The samples of a snapshot that were asked for, gathered.
struct Gathered {
    snapshot: Snapshot,
    recordings: [Recording; 1],
    profile: Profile,
    /// The filters, and the length of the window.
    asked: ([Option<String>; 2], u64),
    /// Where the images given by hand are.
    placed: Vec<String>,
}

/// What a query asks for, which can be compared: filters, and the length of the window.
fn asked(query: &Query) -> ([Option<String>; 2], u64) {
    let rules = [&query.focus, &query.thread];
    let rules = rules.map(|rule| rule.as_ref().map(|rule| rule.as_str().to_owned()));
    (rules, query.window_seconds)
}

impl Gathered {
    fn of(snapshot: Snapshot, tables: &Tables<'_>, query: &Query) -> anyhow::Result<Gathered> {
        let mut recording = Recording::from_bytes("the stream", snapshot.bytes.to_vec())?;
        let placed = recording.assume_images(tables.library());
        let options = Options {
            filter: Filter {
                focus: query.focus.clone(),
                thread: query.thread.clone(),
                ..Filter::default()
            },
            by_process: true,
            survey: true,
            ..Options::default()
        };
        let profile = gather_again(&recording, tables, &options);
        Ok(Gathered {
            snapshot,
            recordings: [recording],
            profile,
            asked: asked(query),
            placed,
        })
    }

    /// Whether these are the samples that `query` asks for.
    fn is_of(&self, query: &Query) -> bool {
        self.asked == asked(query)
    }

    fn draw(&self, library: &Library, query: &Query) -> anyhow::Result<Picture> {
        let [recording] = &self.recordings;
        let profile = &self.profile;
        let form = Form {
            screen: Screen {
                columns: Some(query.columns.max(20)),
                colors: false,
            },
            ..Form::default()
        };
        let mut picture = Picture {
            bytes: Arc::clone(&self.snapshot.bytes),
            view: query.view,
            subject: printable(recording.subject()).into_owned(),
            seconds: recording.seconds(),
            samples: profile.account.counted_samples(),
            loads: loads(recording, profile),
            cost: cost(recording, profile),
            notes: self.snapshot.notes.clone(),
            ended: self
                .snapshot
                .ended
                .as_deref()
                .map(printable)
                .map(Cow::into_owned),
            ..Picture::default()
        };
        // The first line is what the screen's first line says, too.
        let mut facts = profile.account.lines();
        facts.rotate_left(1);
        let warnings = profile.warnings.iter().chain(&self.placed);
        picture.notes.extend(warnings.cloned().chain(facts));
        let text = SHOWN.get(query.view).and_then(|(_, text)| *text);
        let view = VIEWS.iter().find(|view| Some(view.name) == text);
        if let Some(view) = view {
            let mut out = Vec::new();
            let content = Content {
                recordings: &self.recordings,
                profile,
                places: None,
                library: Some(library),
                value: FlagValue::None,
                form: &form,
            };
            (view.begin)(&self.recordings).write(&content, &mut out)?;
            picture.set_table(&String::from_utf8_lossy(&out));
        } else if query.view == THREADS {
            picture.set_threads();
        } else {
            let notes = picture.notes.iter();
            let lines = notes.map(|note| in_columns(note, 2, form.screen.columns));
            let rows = lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
            picture.rows = rows.collect();
        }
        Ok(picture)
    }
}

impl Picture {
    /// Adds notes of others, also to the list of them.
    pub fn add_notes(&mut self, notes: Vec<String>) {
        if self.view + 1 == SHOWN.len() {
            self.rows.extend_from_slice(&notes);
        }
        self.notes.extend(notes);
    }

    /// Takes the table out of a view's text: what comes before it is among the notes.
    fn set_table(&mut self, text: &str) {
        let mut lines = text.lines().skip_while(|line| !line.is_empty()).skip(1);
        self.heading = lines.next().unwrap_or_default().to_owned();
        self.rows = lines.map(str::to_owned).collect();
    }

    fn set_threads(&mut self) {
        self.heading = "  load  samples  state     vCPU or thread".to_owned();
        let rows = self.loads.iter().map(|load| {
            format!(
                "{:>5.1}% {:>8}  {:<8}  {}",
                load.busy * 100.0,
                load.running,
                load.state,
                load.name
            )
        });
        self.rows = rows.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_window_has_other_samples_and_another_view_has_not() {
        let query = |view, window_seconds| Query {
            view,
            window_seconds,
            ..Query::default()
        };
        assert_eq!(asked(&query(0, 10)), asked(&query(1, 10)));
        assert_ne!(asked(&query(0, 10)), asked(&query(0, 20)));
    }
}
