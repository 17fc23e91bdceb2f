//! A file or pipe that is written in good order whatever mode it is in.
//!
//! Enters: bytes. Leaves: the same bytes. A pipe that someone else has put into non-blocking mode
//! (ssh and some shells do) says "try again" when it is full; to its writer that must not look like
//! an end.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};

/// A file, pipe or socket to write to.
#[derive(Debug)]
pub struct Output(File);

impl From<OwnedFd> for Output {
    fn from(descriptor: OwnedFd) -> Self {
        Output(descriptor.into())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room(&self.0)?,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Waits as a write would in blocking mode: for as long as it takes.
fn wait_for_room(file: &File) -> io::Result<()> {
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_full_pipe_in_non_blocking_mode_is_waited_for() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        // More than any socket holds, and a reader that takes its time.
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
