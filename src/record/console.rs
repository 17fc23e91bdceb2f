//! The output of a guest's monitor, which is passed on, and ends the recording at a text.
//!
//! Input: a pipe that is the standard output of the command. Output: the same bytes on ours, and a stop request. It
//! must never keep the monitor waiting: who can't be written to is written to no more.

use crate::record::{Args, Recorded, record_beside};
use crate::target::{ExitStatus, Stdout};
use anyhow::bail;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use uniprof_record::Counters;

/// How much a monitor may print before its guest is open and somebody reads it.
const PIPE_BYTES: i32 = 1 << 20;
/// How often the end of the recording is noticed.
const EVERY_MS: u16 = 50;
/// Why the recording ended, in the file and in messages.
const REACHED: &str = "the guest has printed the text of --until-output";

/// The reading end.
struct Console {
    output: PipeReader,
    text: Text,
    to_stderr: bool,
}

/// Passes the output on; dropping it waits until all that is there was passed on.
struct ConsoleWatch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Looks for a text in a stream.
struct Text {
    bytes: Vec<u8>,
    /// The end of the stream, which may have the text's begin.
    end: Vec<u8>,
}

/// Records a boot until its monitor has printed `text`.
///
/// # Errors
/// As for any recording, or the command is not the monitor.
pub fn record(args: &Args, status: &ExitStatus, text: &str) -> anyhow::Result<Recorded> {
    if !args.targets.is_empty() {
        bail!(
            "--until-output looks at what the monitor prints, and a Xen domain's console is not there: use --until \
             FUNCTION or -d"
        );
    }
    let (console, stdout) = Console::open(text, args.file() == Path::new("-"))?;
    let mut console = Some(console);
    let recorded = record_beside(args, status, Some(stdout), |counters| {
        console.take().map(|console| console.watch(counters))
    });
    // What was printed by a command without a guest.
    console.into_iter().for_each(Console::empty);
    recorded
}

impl Console {
    fn open(text: &str, to_stderr: bool) -> io::Result<(Console, Stdout)> {
        let (output, input) = io::pipe()?;
        // A system that refuses has a shorter one.
        let _ = nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        let console = Console {
            output,
            text: Text::new(text.as_bytes()),
            to_stderr,
        };
        Ok((console, Stdout::Pipe(Arc::new(input))))
    }

    /// Starts to pass the output on. Must be called when the guest is open, since guardians are forked before.
    fn watch(mut self, counters: Arc<Counters>) -> ConsoleWatch {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || self.pass_on(&over, &counters));
        ConsoleWatch {
            is_over,
            thread: Some(thread),
        }
    }

    /// Passes on what is there.
    fn empty(mut self) {
        self.pass_on(&AtomicBool::new(true), &Counters::default());
    }

    fn pass_on(&mut self, is_over: &AtomicBool, counters: &Counters) {
        let mut buffer = [0; 4096];
        let mut is_heard = true;
        loop {
            // Read first: what was printed before the end is passed on.
            let was_over = is_over.load(Ordering::Acquire);
            let mut ready = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
            match poll(
                &mut ready,
                PollTimeout::from(if was_over { 0 } else { EVERY_MS }),
            ) {
                Ok(0) if was_over => return,
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(_) => return,
            }
            let length = match self.output.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => length,
            };
            let printed = buffer.get(..length).unwrap_or_default();
            is_heard = is_heard && self.print(printed).is_ok();
            if self.text.is_in(printed) {
                let _ = counters.stopped_by.set(REACHED);
                counters.stop();
            }
        }
    }

    fn print(&self, printed: &[u8]) -> io::Result<()> {
        if self.to_stderr {
            return io::stderr().write_all(printed);
        }
        let mut out = io::stdout();
        out.write_all(printed)?;
        out.flush()
    }
}

impl Drop for ConsoleWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Text {
    fn new(bytes: &[u8]) -> Self {
        Text {
            bytes: bytes.to_vec(),
            end: Vec::new(),
        }
    }

    /// Whether the text ends in this piece of the stream.
    fn is_in(&mut self, piece: &[u8]) -> bool {
        self.end.extend_from_slice(piece);
        let mut windows = self.end.windows(self.bytes.len().max(1));
        let is_found = windows.any(|window| window == self.bytes);
        let kept = self.bytes.len().saturating_sub(1).min(self.end.len());
        self.end.drain(..self.end.len() - kept);
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_the_stream_is_cut() {
        let stream = b"aab aabaab aabaabaa ready";
        for text in ["aabaabaa", "b a", "ready", "aabaac", "a"] {
            let start = stream
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            for piece_bytes in 1..=stream.len() {
                let mut looked = Text::new(text.as_bytes());
                let found = stream
                    .chunks(piece_bytes)
                    .position(|piece| looked.is_in(piece));
                let expected = start.map(|start| (start + text.len() - 1) / piece_bytes);
                assert_eq!(found, expected, "{text} in pieces of {piece_bytes}");
            }
        }
    }
}
