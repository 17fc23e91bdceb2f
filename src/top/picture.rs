//! What `top` shows of a window. Enters: a recording of the window, and what is asked. Leaves: the lines of a view, the
//! load of vCPUs and threads, and what the numbers rest on: what `uniprof report` says of the same file.

use crate::images::Images;
use crate::memory;
use regex::Regex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use uniprof_report::images::Library;
use uniprof_report::profile::load::{TaskLoad, cost, loads};
use uniprof_report::profile::{Filter, Options, gather};
use uniprof_report::recording::Recording;
use uniprof_report::text::{Screen, printable};
use uniprof_report::views::{Content, FlagValue, Form, VIEWS};

use super::feed::{Feed, Moment};

/// The views, in the order of their keys, with the name of their text in [`VIEWS`], if they have one.
pub const SHOWN: [(&str, Option<&str>); 4] = [
    ("Functions", Some("top")),
    ("Tree", Some("tree")),
    ("Threads", None),
    ("Notes", None),
];
/// The numbers of the views that are made here.
const THREADS: usize = 2;

/// Shortest time between two pictures.
const PERIOD: Duration = Duration::from_millis(500);
/// A picture is followed by this many times its own time without one, so that `top` takes a quarter of a processor or
/// less.
const REST: u32 = 3;

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

/// Makes pictures until nobody waits for them. `queries` brings what is asked from then on.
pub fn make(
    feed: &Feed,
    images: &Images,
    queries: &Receiver<Query>,
    pictures: &Sender<anyhow::Result<Picture>>,
) {
    let library = match images.library() {
        Ok(library) => library,
        Err(error) => return drop(pictures.send(Err(error))),
    };
    let Ok(mut query) = queries.recv() else {
        return;
    };
    let mut kept: Option<Arc<Moment>> = None;
    loop {
        let begun = Instant::now();
        // A run of a report has these limits; this one makes many.
        memory::limit();
        let moment = match kept.take().filter(|_| query.is_paused) {
            Some(kept) => Ok(kept),
            None => feed.moment().map(Arc::new).map_err(anyhow::Error::from),
        };
        let picture = moment.and_then(|moment| {
            kept = Some(Arc::clone(&moment));
            draw(&moment, &library, &query)
        });
        if pictures.send(picture).is_err() {
            return;
        }
        let is_last = kept.as_ref().is_some_and(|kept| kept.ended.is_some());
        let pause = if query.is_paused || is_last {
            Duration::MAX
        } else {
            (begun.elapsed() * REST).max(PERIOD)
        };
        query = match queries.recv_timeout(pause) {
            // Only the last of several counts.
            Ok(next) => queries.try_iter().last().unwrap_or(next),
            Err(RecvTimeoutError::Timeout) => query,
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

/// The picture of a moment.
fn draw(moment: &Moment, library: &Library, query: &Query) -> anyhow::Result<Picture> {
    let bytes = Arc::clone(&moment.bytes);
    let mut recording = Recording::from_bytes("the stream", bytes.to_vec())?;
    let placed = recording.assume_images(library);
    let recordings = [recording];
    let [recording] = &recordings;
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
    let profile = gather(&[recording], library, &options, &|_, _| (), None);
    let form = Form {
        screen: Screen {
            columns: Some(query.columns.max(20)),
            colors: false,
        },
        ..Form::default()
    };
    let content = Content {
        recordings: &recordings,
        profile: &profile,
        places: None,
        library: Some(library),
        value: FlagValue::None,
        form: &form,
    };
    let mut picture = Picture {
        bytes,
        view: query.view,
        subject: printable(recording.subject()).into_owned(),
        seconds: recording.seconds(),
        samples: profile.account.counted,
        loads: loads(recording, &profile),
        cost: cost(recording, &profile),
        notes: moment.notes.clone(),
        ended: moment.ended.clone(),
        ..Picture::default()
    };
    let facts = profile.account.lines();
    picture.notes.extend(facts);
    picture
        .notes
        .extend(profile.warnings.iter().chain(&placed).cloned());
    let text = SHOWN.get(query.view).and_then(|(_, text)| *text);
    let view = VIEWS.iter().find(|view| Some(view.name) == text);
    if let Some(view) = view {
        let mut out = Vec::new();
        (view.begin)(&recordings).write(&content, &mut out)?;
        picture.set_table(&String::from_utf8_lossy(&out));
    } else if query.view == THREADS {
        picture.set_threads();
    } else {
        picture.rows = picture.notes.clone();
    }
    Ok(picture)
}

impl Picture {
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
