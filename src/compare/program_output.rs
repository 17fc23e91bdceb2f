//! What a program that runs several times prints: whether it is the same each time, and its last messages.

use crate::terminal::printable_lines;
use anyhow::{Context, anyhow, bail};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// Most bytes of a program's messages that are quoted.
const QUOTED_BYTES: usize = 400;

/// How long the rest of the output may take to read after the program has ended.
const REST_WAIT: Duration = Duration::from_secs(10);

/// Reads the output of a program while it runs.
pub struct OutputReader(Receiver<io::Result<(u64, u64)>>);

impl OutputReader {
    /// Reads all that comes from `pipe`, on a thread of its own.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(pipe: impl Read + Send + 'static) -> io::Result<OutputReader> {
        let (sender, receiver) = channel();
        let thread = Builder::new().name("output".into());
        thread.spawn(move || sender.send(length_and_hash(pipe)))?;
        Ok(OutputReader(receiver))
    }

    /// Length and hash of the output of a program that has ended.
    ///
    /// # Errors
    /// It can't be read, or the program has left a process behind that still has it.
    pub fn finish(self) -> anyhow::Result<(u64, u64)> {
        match self.0.recv_timeout(REST_WAIT) {
            Ok(read) => read.context("cannot read the output of a run"),
            Err(RecvTimeoutError::Timeout) => bail!(
                "a run has ended, but has left a process behind that still has its output: end it within the run, or \
                 send its output elsewhere, as in 'server >log & ./bench'"
            ),
            Err(RecvTimeoutError::Disconnected) => {
                Err(anyhow!("the reader of a run's output failed"))
            }
        }
    }
}

/// Length and hash of all that can be read.
fn length_and_hash(mut from: impl Read) -> io::Result<(u64, u64)> {
    let (mut length, mut hasher) = (0, DefaultHasher::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((length, hasher.finish()));
        }
        length += read as u64;
        hasher.write(&buffer[..read]);
    }
}

/// The end of a file of messages, in one line.
pub fn last_messages(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(QUOTED_BYTES)..];
    let text = printable_lines(&String::from_utf8_lossy(end));
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
