//! From the text of a target to a connection that never waits longer than it is told to.

use super::error::AgentError;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Longest wait for a connection, in seconds.
const PATIENCE_SECONDS: i64 = 5;

/// A socket that doesn't block.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to `HOST:PORT`, `:PORT` (this host) or a path with a `/` in it.
    ///
    /// # Errors
    /// What is wrong with the text, or why there is no connection.
    pub fn open(target: &str) -> Result<Self, AgentError> {
        let addresses: Vec<Box<dyn SockaddrLike>> = if target.contains('/') {
            let address = UnixAddr::new(target);
            vec![Box::new(address.map_err(|errno| {
                AgentError::Connect(target.into(), errno)
            })?)]
        } else {
            let (host, port) = target.rsplit_once(':').unwrap_or_default();
            if !port.parse().is_ok_and(|port: u16| port > 0) {
                return Err(AgentError::Address(target.into()));
            }
            let host = if host.is_empty() { "localhost" } else { host };
            let found = format!("{host}:{port}");
            let found = found.to_socket_addrs();
            let found =
                found.map_err(|error| AgentError::Resolve(target.into(), error.to_string()))?;
            found
                .map(|address| Box::new(SockaddrStorage::from(address)) as _)
                .collect()
        };
        let mut last = Errno::EHOSTUNREACH;
        for address in addresses {
            match connect(&*address) {
                Ok(socket) => return Ok(Connection { socket }),
                Err(errno) => last = errno,
            }
        }
        Err(AgentError::Connect(target.into(), last))
    }

    /// Takes over a connected socket.
    ///
    /// # Errors
    /// What `fcntl` returns.
    pub fn over(socket: OwnedFd) -> Result<Self, Errno> {
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Connection { socket })
    }

    /// Sends what there is room for; 0 where there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match socket::send(
            self.socket.as_raw_fd(),
            bytes,
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        ) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            result => result,
        }
    }

    /// Receives what is there; `None` where there is nothing, 0 at the end of the stream.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        match socket::recv(self.socket.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Waits until there is something to receive, a signal comes or `timeout_ms` passed.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self, timeout_ms: u16) -> Result<(), Errno> {
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(timeout_ms)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn connect(address: &dyn SockaddrLike) -> Result<OwnedFd, Errno> {
    let family = address.family().ok_or(Errno::EAFNOSUPPORT)?;
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if family != AddressFamily::Unix {
        socket::setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
    }
    // Bounds the wait for a connection, too (socket(7)).
    socket::setsockopt(
        &socket,
        sockopt::SendTimeout,
        &TimeVal::new(PATIENCE_SECONDS, 0),
    )?;
    let began_ns = monotonic_ns();
    loop {
        match socket::connect(socket.as_raw_fd(), address) {
            Ok(()) => break,
            Err(Errno::EINTR)
                if monotonic_ns() - began_ns < PATIENCE_SECONDS as u64 * 1_000_000_000 => {}
            Err(Errno::EINPROGRESS | Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
            Err(errno) => return Err(errno),
        }
    }
    Connection::over(socket).map(|connection| connection.socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_never_accepts_costs_no_more_than_the_patience() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut open = Vec::new();
        // More than any queue's length.
        let error = (0..10_000).find_map(|_| match Connection::open(path.to_str().unwrap()) {
            Ok(connection) => {
                open.push(connection);
                None
            }
            Err(error) => Some(error),
        });
        assert!(
            matches!(error, Some(AgentError::Connect(_, Errno::ETIMEDOUT))),
            "{error:?}"
        );
    }

    #[test]
    fn what_is_no_address_is_told() {
        for wrong in ["", "localhost", "host:", "host:0", "host:99999", "host:x"] {
            let error = Connection::open(wrong).unwrap_err();
            assert_eq!(error, AgentError::Address(wrong.into()));
        }
    }
}
