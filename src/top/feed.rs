//! The stream that `top` shows: a pipe, or a file that is being written. Enters: bytes. Leaves: the window of the last
//! seconds, which a thread fills. Reading never waits for names or the screen, so no recorder waits for a report.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uniprof_report::recording::Window;
use uprof::StreamReader;

/// How often a file is looked at for new blocks.
const LOOK: Duration = Duration::from_millis(100);
/// How long to wait for the first block of a file, which a recorder writes at once.
const FIRST_BLOCK: Duration = Duration::from_secs(3);
/// A recorder writes a block at least every half second: without one for this long, time goes on without samples.
const SILENCE: Duration = Duration::from_millis(1500);

/// The window, and what is known of the stream.
struct Stream {
    window: Window,
    /// When the latest time in it arrived.
    arrived: Instant,
    /// Why nothing more comes.
    ended: Option<String>,
    /// Whether it could not be read to a sound end.
    is_broken: bool,
}

/// The stream at a moment.
pub struct Snapshot {
    /// A whole recording of the window.
    pub bytes: Arc<Vec<u8>>,
    /// Why nothing more comes; `None` while it goes on.
    pub ended: Option<String>,
    /// What is missing in it.
    pub notes: Vec<String>,
}

/// A stream that is being read.
#[derive(Clone)]
pub struct Feed {
    stream: Arc<Mutex<Stream>>,
    /// Whether more comes than was there at the start.
    is_live: Arc<AtomicBool>,
}

impl Feed {
    /// Follows the file `file`, called `name`.
    ///
    /// # Errors
    /// It is no recording.
    pub fn follow(file: File, name: &str, length_ns: u64) -> anyhow::Result<Feed> {
        let is_live = Arc::new(AtomicBool::new(false));
        let is_open = Arc::new(AtomicBool::new(false));
        let input = Followed {
            file,
            read_bytes: 0,
            was_at_end: false,
            is_open: Arc::clone(&is_open),
            is_live: Arc::clone(&is_live),
        };
        let feed = Feed::begin(input, name, length_ns, is_live)?;
        is_open.store(true, Ordering::Relaxed);
        Ok(feed)
    }

    /// Reads a pipe, called `name`.
    ///
    /// # Errors
    /// No recording comes.
    pub fn read(
        input: impl Read + Send + 'static,
        name: &str,
        length_ns: u64,
    ) -> anyhow::Result<Feed> {
        Feed::begin(input, name, length_ns, Arc::new(AtomicBool::new(true)))
    }

    fn begin(
        input: impl Read + Send + 'static,
        name: &str,
        length_ns: u64,
        is_live: Arc<AtomicBool>,
    ) -> anyhow::Result<Feed> {
        let reader = StreamReader::open(input).with_context(|| format!("cannot show {name}"))?;
        let uuid = reader.uuid();
        let uuid = uuid.unwrap_or_else(|| fastrand::u128(..).to_le_bytes());
        let stream = Arc::new(Mutex::new(Stream {
            window: Window::new(uuid, length_ns),
            arrived: Instant::now(),
            ended: None,
            is_broken: false,
        }));
        let filled = Arc::clone(&stream);
        let thread = std::thread::Builder::new().name("uniprof-stream".into());
        thread
            .spawn(move || fill(reader, &filled))
            .context("cannot start a thread")?;
        Ok(Feed { stream, is_live })
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the length of the window.
    pub fn set_length(&self, length_ns: u64) {
        self.lock().window.set_length(length_ns);
    }

    /// Whether parts of the stream are damaged or missing.
    pub fn is_lossy(&self) -> bool {
        let stream = self.lock();
        stream.is_broken || stream.window.damaged() > 0
    }

    /// The stream as it is now.
    ///
    /// # Errors
    /// The window can't be written.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let stream = self.lock();
        let silent = match &stream.ended {
            None if self.is_live.load(Ordering::Relaxed) => {
                stream.arrived.elapsed().saturating_sub(SILENCE)
            }
            _ => Duration::ZERO,
        };
        let until_ns = stream.window.latest_ns();
        let until_ns = until_ns.saturating_add(silent.as_nanos() as u64);
        let mut notes = Vec::new();
        let (samples, names) = stream.window.dropped();
        if samples {
            notes.push(
                "the window is shorter where its samples take more than 64 MiB: choose a lower -F"
                    .to_owned(),
            );
        }
        if names {
            notes.push(
                "some functions have no names: the oldest names and mappings of what runs are left out, as they are \
                 too many"
                    .to_owned(),
            );
        }
        if stream.window.damaged() > 0 {
            let damaged = stream.window.damaged();
            notes.push(format!("the stream is damaged at {damaged} places"));
        }
        Ok(Snapshot {
            bytes: Arc::new(stream.window.recording(until_ns)?),
            ended: stream.ended.clone(),
            notes,
        })
    }
}

/// Fills the window until the stream ends.
fn fill(mut reader: StreamReader<impl Read>, stream: &Mutex<Stream>) {
    let lock = || stream.lock().unwrap_or_else(PoisonError::into_inner);
    let (ended, is_broken) = loop {
        let item = reader.next_item();
        let mut stream = lock();
        match item {
            Ok(Some(item)) => {
                let before_ns = stream.window.latest_ns();
                stream.window.add(item);
                if stream.window.latest_ns() > before_ns {
                    stream.arrived = Instant::now();
                }
                if let Some(end) = stream.window.end() {
                    break (end.message.clone(), false);
                }
            }
            Ok(None) => {
                let why = "nothing more comes: the recorder or the connection was cut off";
                break (why.to_owned(), true);
            }
            Err(error) => break (format!("cannot read on: {error}"), true),
        }
    };
    let mut stream = lock();
    stream.ended = Some(ended);
    stream.is_broken = is_broken;
}

/// A file that is being written: its end is waited at.
struct Followed {
    file: File,
    read_bytes: u64,
    was_at_end: bool,
    is_open: Arc<AtomicBool>,
    is_live: Arc<AtomicBool>,
}

impl Read for Followed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            let read = self.file.read(buffer)?;
            if read > 0 {
                self.read_bytes += read as u64;
                self.is_live.fetch_or(self.was_at_end, Ordering::Relaxed);
                return Ok(read);
            }
            if self.file.metadata()?.len() < self.read_bytes {
                return Err(io::Error::other("the file was cut while it was read"));
            }
            if !self.is_open.load(Ordering::Relaxed) && begun.elapsed() > FIRST_BLOCK {
                return Ok(0);
            }
            self.was_at_end = true;
            std::thread::sleep(LOOK);
        }
    }
}
