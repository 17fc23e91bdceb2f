//! The transport of bytes to an agent and back: a socket, or a vchan.

use crate::guest::endpoint::Connection;
use nix::errno::Errno;

/// The reason why a line has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// The system's error.
    #[error("{}", .0.desc())]
    System(Errno),
    /// The position in a shared page is impossible.
    #[error("it says that {waiting} bytes wait in a ring of {ring}")]
    TooFull {
        /// Bytes between the two positions.
        waiting: u32,
        /// Bytes of the ring.
        ring: u32,
    },
    /// The same for the other side's read position.
    #[error(
        "it says that it has read what was not sent: {waiting} bytes are left in a ring of {ring}"
    )]
    ReadTooMuch {
        /// Bytes between the two positions.
        waiting: u32,
        /// Bytes of the ring.
        ring: u32,
    },
    /// The domain with this number no longer serves.
    #[error("domain {0} has closed its vchan")]
    Closed(u32),
    /// Xenstore no longer has the server.
    #[error("{0}")]
    Withdrawn(String),
}

/// A stream of bytes in both directions that never blocks.
pub(super) trait Line: Send {
    /// Sends as many of `bytes` as there is room for.
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, LineError>;

    /// Receives the bytes that are there; `None` if there are none at the moment, 0 at the end of the stream.
    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, LineError>;

    /// Waits until there is something to receive, a signal comes or `timeout_ms` passed.
    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), LineError>;
}

impl Line for Connection {
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, LineError> {
        Connection::send_some(self, bytes).map_err(LineError::System)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, LineError> {
        Connection::receive_some(self, into).map_err(LineError::System)
    }

    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), LineError> {
        Connection::wait_to_receive(self, timeout_ms).map_err(LineError::System)
    }
}
