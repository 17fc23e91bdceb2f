//! The recording that comes on standard input, in intervals. In: bytes. Out: a recording of each interval. Reading
//! never waits for names or a server, so no recorder waits for them: beyond a limit, the oldest interval is dropped. A
//! file is read as fast as it is pushed.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uniprof_report::recording::{Interval, Intervals};
use uprof::StreamReader;

/// A recorder writes a block at least every half second if there is anything to write.
const SILENCE: Duration = Duration::from_millis(1500);

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// With its end record.
    Sound,
    /// Without it.
    CutOff,
    /// By an error.
    Failed(String),
}

struct Flow {
    intervals: Intervals,
    /// When the last interval was taken.
    taken: Instant,
    end: Option<StreamEnd>,
}

/// A stream that is read.
pub struct Inlet {
    length: Duration,
    /// Whether its writer must not wait.
    is_live: bool,
    flow: Mutex<Flow>,
    changed: Condvar,
}

impl Inlet {
    /// Opens standard input, for intervals of this length.
    ///
    /// # Errors
    /// It is no recording.
    pub fn open(length: Duration) -> anyhow::Result<(Inlet, StreamReader<File>)> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let is_live = !input.metadata()?.is_file();
        let reader = StreamReader::open(input).context("cannot push standard input")?;
        let uuid = reader.uuid();
        let uuid = uuid.unwrap_or_else(|| fastrand::u128(..).to_le_bytes());
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let flow = Flow {
            intervals: Intervals::new(uuid, length_ns),
            taken: Instant::now(),
            end: None,
        };
        let inlet = Inlet {
            length,
            is_live,
            flow: Mutex::new(flow),
            changed: Condvar::new(),
        };
        Ok((inlet, reader))
    }

    fn lock(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stream to its end.
    pub fn fill(&self, mut reader: StreamReader<impl Read>) {
        let end = loop {
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break StreamEnd::CutOff,
                Err(error) => break StreamEnd::Failed(error.to_string()),
            };
            let mut flow = self.lock();
            flow.intervals.add(item);
            if flow.intervals.end().is_some() {
                break StreamEnd::Sound;
            }
            while flow.intervals.is_full() {
                if self.is_live {
                    flow.intervals.drop_oldest();
                } else {
                    let waited = self.changed.wait(flow);
                    flow = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
            drop(flow);
            self.changed.notify_all();
        };
        let mut flow = self.lock();
        flow.intervals.cut();
        flow.end = Some(end);
        drop(flow);
        self.changed.notify_all();
    }

    /// The next interval, if it is complete within `patience`.
    ///
    /// # Errors
    /// Memory for it is missing.
    pub fn next(&self, patience: Duration) -> io::Result<Option<Interval>> {
        let idle = |flow: &mut Flow| !flow.intervals.has_one() && flow.end.is_none();
        let waited = (self.changed).wait_timeout_while(self.lock(), patience, idle);
        let (mut flow, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // Time passes, too, if nothing comes.
        if flow.taken.elapsed() >= self.length.saturating_add(SILENCE) {
            flow.intervals.cut();
            flow.taken = Instant::now();
        }
        let taken = flow.intervals.take();
        if let Ok(Some(_)) = &taken {
            flow.taken = Instant::now();
        }
        drop(flow);
        self.changed.notify_all();
        taken
    }

    /// How the stream ended, once every interval is taken.
    pub fn end(&self) -> Option<StreamEnd> {
        let flow = self.lock();
        flow.end.clone().filter(|_| !flow.intervals.has_one())
    }

    /// What is missing of the stream.
    pub fn missing(&self) -> Vec<String> {
        let flow = self.lock();
        let mut missing = Vec::new();
        match &flow.end {
            None | Some(StreamEnd::Sound) => {}
            Some(StreamEnd::CutOff) => missing.push(
                "the recording was cut off: its recorder was killed, or the connection to it"
                    .to_owned(),
            ),
            Some(StreamEnd::Failed(why)) => {
                missing.push(format!("the recording cannot be read on: {why}"));
            }
        }
        let damaged = flow.intervals.damaged();
        if damaged > 0 {
            missing.push(format!("the recording is damaged at {damaged} places"));
        }
        let (samples, dropped) = flow.intervals.samples();
        if dropped > 0 {
            missing.push(format!(
                "{dropped} of {samples} samples were dropped, as they came faster than this machine could name them: \
                 choose a lower -F"
            ));
        }
        missing
    }

    /// Whether names had to be forgotten.
    pub fn lacks_names(&self) -> bool {
        self.lock().intervals.lacks_names()
    }
}
