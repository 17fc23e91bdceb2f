//! Where stubs, monitors and agents listen, and connections to them, with a time limit on every operation.
//!
//! Input: the text of a target. Output: a connection that never waits longer than its caller allows.

use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, SockaddrStorage,
    UnixAddr, sockopt,
};
use std::fmt;
use std::io::ErrorKind;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

/// Where a stub, a monitor or an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `HOST:PORT`.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "{address}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The reason why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointError {
    /// The text is no endpoint.
    Address(String),
    /// The host has no address.
    Resolve(Endpoint, String),
    /// Nothing accepts a connection.
    Connect(Endpoint, Errno),
}

impl Endpoint {
    /// Parses `HOST:PORT`, `:PORT` (this host) or a path with a `/` in it.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.contains('/') {
            return Ok(Endpoint::Unix(text.into()));
        }
        let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(1..)) if text.starts_with(':') => Ok(Endpoint::Tcp(format!("localhost{text}"))),
            Some(Ok(1..)) => Ok(Endpoint::Tcp(text.to_owned())),
            _ => Err(EndpointError::Address(text.to_owned())),
        }
    }

    /// Whether a program on this host is connected already, as far as the kernel shows.
    ///
    /// Must be checked before connecting. QEMU keeps a second debugger waiting, accepts its connection once the first
    /// has gone, even if it was closed by then, and stops the guest for it.
    pub fn is_taken(&self) -> bool {
        let rows = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        match self {
            // Flags, type, state 3 (SS_CONNECTED), inode, path. The path may contain spaces.
            Endpoint::Unix(path) => rows("/proc/net/unix").lines().any(|row| {
                row.split_ascii_whitespace().nth(5) == Some("03")
                    && row
                        .strip_suffix(&*path.to_string_lossy())
                        .is_some_and(|row| row.ends_with(' '))
            }),
            Endpoint::Tcp(address) => {
                let mut all = address.to_socket_addrs().into_iter().flatten();
                let Some(local) = all.find(|address| address.ip().is_loopback()) else {
                    return false;
                };
                // Number, local address and port, remote ones, state 1 (TCP_ESTABLISHED).
                let port = format!(":{:04X}", local.port());
                let taken = |row: &str| {
                    let mut fields = row.split_ascii_whitespace().skip(1);
                    let here = fields.next().is_some_and(|here| here.ends_with(&port));
                    here && fields.nth(1) == Some("01")
                };
                let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
                tables.iter().any(|table| rows(table).lines().any(taken))
            }
        }
    }

    /// Whether it is a socket's file whose program has ended. A program that listens doesn't notice the question:
    /// the kernel refuses a socket of another type before any connection (`EPROTOTYPE`).
    pub fn has_ended(&self) -> bool {
        let Endpoint::Unix(path) = self else {
            return false;
        };
        let asked = UnixDatagram::unbound().and_then(|probe| probe.connect(path));
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// Whether it is on this machine, as far as its address shows.
    pub fn is_here(&self) -> bool {
        match self {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(address) => {
                let mut all = address.to_socket_addrs().into_iter().flatten();
                all.all(|address| address.ip().is_loopback())
            }
        }
    }

    /// Connects within `patience`.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub fn connect(&self, patience: Duration) -> Result<Connection, EndpointError> {
        self.sockets()?.connect(patience)
    }

    /// Makes unconnected sockets for [`Sockets::connect`].
    ///
    /// # Errors
    /// Says why there can be no socket.
    pub fn sockets(&self) -> Result<Sockets, EndpointError> {
        let addresses: Vec<Box<dyn SockaddrLike>> = match self {
            Endpoint::Unix(path) => {
                let address = UnixAddr::new(path);
                vec![Box::new(address.map_err(|errno| {
                    EndpointError::Connect(self.clone(), errno)
                })?)]
            }
            Endpoint::Tcp(address) => {
                let all = address
                    .to_socket_addrs()
                    .map_err(|error| EndpointError::Resolve(self.clone(), error.to_string()))?;
                all.map(|address| Box::new(SockaddrStorage::from(address)) as _)
                    .collect()
            }
        };
        let (mut all, mut last) = (Vec::new(), Errno::EHOSTUNREACH);
        for address in addresses {
            match Connection::unconnected(&*address) {
                Ok(connection) => all.push((connection, address)),
                // For example, this machine may have no IPv6.
                Err(errno) => last = errno,
            }
        }
        if all.is_empty() {
            Err(EndpointError::Connect(self.clone(), last))
        } else {
            Ok(Sockets {
                endpoint: self.clone(),
                all,
            })
        }
    }
}

/// Sockets, one for each address of a host. One of them will be connected. A process forked before that shares the
/// connection from the start.
pub struct Sockets {
    endpoint: Endpoint,
    all: Vec<(Connection, Box<dyn SockaddrLike>)>,
}

impl Sockets {
    /// The endpoint that they will be connected to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Duplicates each socket's descriptor.
    ///
    /// # Errors
    /// The error of `fcntl`.
    pub fn share(&self) -> std::io::Result<Vec<Connection>> {
        let all = self.all.iter();
        all.map(|(connection, _)| Ok(connection.socket.try_clone()?.into()))
            .collect()
    }

    /// Connects one of them, and gives each `patience` to do so.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub fn connect(self, patience: Duration) -> Result<Connection, EndpointError> {
        let mut last = Errno::EHOSTUNREACH;
        for (connection, address) in self.all {
            match connection.connect(&*address, deadline(patience)) {
                Ok(()) => return Ok(connection),
                Err(errno) => last = errno,
            }
        }
        Err(EndpointError::Connect(self.endpoint, last))
    }
}

/// The time `patience` from now, on the monotonic clock.
pub fn deadline(patience: Duration) -> u64 {
    monotonic_ns().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX))
}

/// A socket that never blocks.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl From<OwnedFd> for Connection {
    /// Takes ownership of a socket that is in non-blocking mode.
    fn from(socket: OwnedFd) -> Self {
        Connection { socket }
    }
}

impl Connection {
    /// The process that listened at the other end, if it is on this host and the kernel reports it.
    pub fn listener(&self) -> Option<i32> {
        let peer = socket::getsockopt(&self.socket, sockopt::PeerCredentials).ok()?;
        (peer.pid() > 0).then(|| peer.pid())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// A socket that can be connected to `address`.
    fn unconnected(address: &dyn SockaddrLike) -> Result<Self, Errno> {
        let family = address.family().ok_or(Errno::EAFNOSUPPORT)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket::socket(family, SockType::Stream, flags, None)?;
        if family != AddressFamily::Unix {
            // Each batch is one write, which must not be delayed.
            socket::setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
        }
        Ok(Connection { socket })
    }

    /// Connects before `deadline_ns`, even if the listener's queue is full for a long time.
    fn connect(&self, address: &dyn SockaddrLike, deadline_ns: u64) -> Result<(), Errno> {
        loop {
            let is_late = monotonic_ns() > deadline_ns;
            match socket::connect(self.socket.as_raw_fd(), address) {
                Ok(()) => return Ok(()),
                Err(Errno::EINPROGRESS | Errno::EALREADY) => {
                    self.wait(PollFlags::POLLOUT, deadline_ns)?;
                }
                Err(Errno::EAGAIN | Errno::EINTR) if is_late => return Err(Errno::ETIMEDOUT),
                Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(20)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether it is or was connected.
    pub fn is_connected(&self) -> bool {
        socket::getpeername::<SockaddrStorage>(self.socket.as_raw_fd()).is_ok()
    }

    /// Sends all of `bytes` before `deadline_ns`.
    ///
    /// # Errors
    /// `ETIMEDOUT` at the deadline, otherwise the system's error.
    pub fn send(&self, mut bytes: &[u8], deadline_ns: u64) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match self.send_some(bytes)? {
                0 => self.wait(PollFlags::POLLOUT, deadline_ns)?,
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    /// Sends as many of `bytes` as there is room for; 0 if there is none at the moment.
    ///
    /// # Errors
    /// The system's error.
    pub fn send_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match socket::send(self.socket.as_raw_fd(), bytes, flags) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            result => result,
        }
    }

    /// Receives at least a byte before `deadline_ns`; 0 at the end of the stream.
    ///
    /// # Errors
    /// `ETIMEDOUT` at the deadline, otherwise the system's error.
    pub fn receive(&self, into: &mut [u8], deadline_ns: u64) -> Result<usize, Errno> {
        loop {
            match self.receive_some(into)? {
                Some(count) => return Ok(count),
                None => self.wait(PollFlags::POLLIN, deadline_ns)?,
            }
        }
    }

    /// Receives the bytes that are there; `None` if there are none at the moment, 0 at the end of the stream.
    ///
    /// # Errors
    /// The system's error.
    pub fn receive_some(&self, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        match socket::recv(self.socket.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Ends it for all processes that share it: nobody sends anything over it any more.
    pub fn end(&self) {
        // It fails where the other side has ended it.
        let _ = socket::shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }

    /// Waits until it has ended, and discards what comes before that; `false` after `patience`.
    pub fn await_end(&self, patience: Duration) -> bool {
        let end_ns = deadline(patience);
        let mut bytes = [0; 4096];
        loop {
            match self.receive(&mut bytes, end_ns) {
                Ok(0) => return true,
                Ok(_) if monotonic_ns() < end_ns => {}
                Ok(_) | Err(Errno::ETIMEDOUT) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Waits until there is something to receive, a signal comes or `timeout_ms` passed.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_to_receive(&self, timeout_ms: u16) -> Result<(), Errno> {
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(timeout_ms)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Waits until the socket is ready. Signals don't interrupt it, since a freeze must first be ended properly.
    fn wait(&self, what: PollFlags, deadline_ns: u64) -> Result<(), Errno> {
        loop {
            let left_ns = deadline_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Err(Errno::ETIMEDOUT);
            }
            let left_ms = u16::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(u16::MAX);
            let mut polled = [PollFd::new(self.socket.as_fd(), what)];
            match poll(&mut polled, PollTimeout::from(left_ms)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_paths() {
        let tcp = |text: &str| Ok(Endpoint::Tcp(text.into()));
        assert_eq!(Endpoint::parse("localhost:1234"), tcp("localhost:1234"));
        assert_eq!(Endpoint::parse(":1234"), tcp("localhost:1234"));
        assert_eq!(Endpoint::parse("[::1]:1234"), tcp("[::1]:1234"));
        let path = Endpoint::Unix("/run/gdb.sock".into());
        assert_eq!(Endpoint::parse("/run/gdb.sock"), Ok(path));
        for wrong in ["", "localhost", "host:", "host:0", "host:99999", "host:x"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_debugger_that_is_connected_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stub");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        for endpoint in [Endpoint::Unix(path), Endpoint::Tcp(address)] {
            assert!(!endpoint.is_taken(), "{endpoint}");
            let _first = endpoint.connect(Duration::from_secs(1)).unwrap();
            let _accepted: (Option<_>, Option<_>) = match endpoint {
                Endpoint::Unix(_) => (listener.accept().ok(), None),
                Endpoint::Tcp(_) => (None, tcp.accept().ok()),
            };
            assert!(endpoint.is_taken(), "{endpoint}");
        }
    }

    #[test]
    fn a_program_that_has_ended_leaves_a_socket_that_says_so_and_one_that_runs_notices_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stub");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = Endpoint::Unix(path);
        assert!(!endpoint.has_ended());
        let accepted = listener.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(ErrorKind::WouldBlock));
        drop(listener);
        assert!(endpoint.has_ended());
        let elsewhere = Endpoint::Unix(folder.path().join("other"));
        assert!(!elsewhere.has_ended());
    }

    #[test]
    fn a_listener_that_never_accepts_costs_no_more_than_the_patience() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let endpoint = Endpoint::Unix(path);
        let mut open = Vec::new();
        let start = std::time::Instant::now();
        // More attempts than the length of any queue.
        let error = (0..10_000).find_map(|_| match endpoint.connect(Duration::from_millis(100)) {
            Ok(connection) => {
                open.push(connection);
                None
            }
            Err(error) => Some(error),
        });
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(
            matches!(error, Some(EndpointError::Connect(_, Errno::ETIMEDOUT))),
            "{error:?}"
        );
    }
}
