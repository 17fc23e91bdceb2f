//! A file or pipe to write to, in blocking or non-blocking mode.
//!
//! Another program, such as ssh or a shell, may put a pipe into non-blocking mode. A write to it fails with "try again"
//! when it is full, which must not end the recording.

use crate::sys::signal::stop_signal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes that a writable pipe takes without blocking (pipe(7): a page of it is free).
const PIECE_BYTES: usize = 4096;
/// How often a waiting writer checks for a signal (milliseconds).
const LOOK_EVERY_MS: u16 = 100;
/// How long to wait for the reader after a signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// A file, pipe or socket to write to.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// Whether a write may block.
    waits: bool,
}

impl From<OwnedFd> for Output {
    fn from(descriptor: OwnedFd) -> Self {
        let file = File::from(descriptor);
        let waits = !file.metadata().is_ok_and(|found| found.is_file());
        Output { file, waits }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut piece = bytes;
        loop {
            if self.waits {
                wait_for_room(&self.file)?;
                piece = &bytes[..bytes.len().min(PIECE_BYTES)];
            }
            match self.file.write(piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.waits = true,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Waits as a blocking write would, but only for a limited time after a signal.
fn wait_for_room(file: &File) -> io::Result<()> {
    let mut stop_at: Option<Instant> = None;
    loop {
        let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut polled, PollTimeout::from(LOOK_EVERY_MS)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        if stop_signal().is_some()
            && stop_at.get_or_insert_with(|| Instant::now() + PATIENCE) <= &mut Instant::now()
        {
            return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_full_pipe_in_non_blocking_mode_is_waited_for() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        // More bytes than any socket holds, and a slow reader.
        let bytes: Vec<u8> = (0..4_000_000u32).map(|number| number as u8).collect();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        let mut output = Output::from(OwnedFd::from(near));
        output.write_all(&bytes).unwrap();
        output.flush().unwrap();
        drop(output);
        assert!(reader.join().unwrap() == bytes);
    }

    #[test]
    fn a_reader_that_went_away_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        drop(far);
        let error = Output::from(OwnedFd::from(near)).write_all(b"x");
        assert_eq!(error.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
