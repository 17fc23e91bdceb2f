//! What carries the bytes to an agent and back: a socket, or a vchan.

use crate::guest::endpoint::Connection;
use nix::errno::Errno;

/// Both ways a stream of bytes that never blocks. Errors are why it broke, to a person.
pub(super) trait Line: Send {
    /// Sends as many of `bytes` as there is room for.
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, String>;

    /// Receives what is there; `None` if there is nothing at the moment, 0 at the end of the stream.
    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, String>;

    /// Waits until there is something to receive, a signal comes or `timeout_ms` passed.
    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), String>;
}

fn reason(errno: Errno) -> String {
    errno.desc().to_owned()
}

impl Line for Connection {
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, String> {
        Connection::send_some(self, bytes).map_err(reason)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, String> {
        Connection::receive_some(self, into).map_err(reason)
    }

    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), String> {
        Connection::wait_to_receive(self, timeout_ms).map_err(reason)
    }
}
