//! A client for xenstore's wire protocol (xen/io/xs_wire.h): enough to read.
//!
//! Input: paths. Output: values and lists. Replies are bounded in size and in time.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const DIRECTORY: u32 = 1; // XS_DIRECTORY
const READ: u32 = 2; // XS_READ
const WATCH_EVENT: u32 = 15; // XS_WATCH_EVENT
const ERROR: u32 = 16; // XS_ERROR
/// XENSTORE_PAYLOAD_MAX.
const MOST_PAYLOAD_BYTES: usize = 4096;
/// Longest wait for the whole of one reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's sockets and the kernel's devices. Only the devices exist if the daemon runs in another domain.
const SOCKETS: [&str; 2] = ["/run/xenstored/socket", "/var/run/xenstored/socket"];
const DEVICES: [&str; 2] = ["/dev/xen/xenbus", "/proc/xen/xenbus"];

/// The reason why xenstore did not answer.
#[derive(Debug, thiserror::Error)]
pub enum XenstoreError {
    /// No daemon.
    #[error(
        "cannot reach xenstore ({0}): run as root, in dom0 with xenstored running, or in a domain of Xen; dom0 also \
         takes a domain's number"
    )]
    Unreachable(io::Error),
    /// The connection broke, or the wait was too long.
    #[error("cannot read {path} from xenstore: {error}")]
    Broken {
        /// The requested path.
        path: String,
        /// The error of the connection.
        error: io::Error,
    },
    /// xenstore returned an error.
    #[error("xenstore has no {path}: {reason}")]
    Refused {
        /// The requested path.
        path: String,
        /// The error's name, such as `ENOENT`.
        reason: String,
    },
    /// A reply that is not valid.
    #[error("xenstore's reply about {path} makes no sense ({problem})")]
    Nonsense {
        /// The requested path.
        path: String,
        /// The parse error.
        problem: &'static str,
    },
}

/// A connection.
pub struct Xenstore<S = Box<dyn Stream>> {
    stream: S,
    request: u32,
}

/// A stream to read and write.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// The kernel's device. Waiting for its answers has a time limit, as with a socket.
struct Device(File);

impl Read for Device {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, patience)? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.0.read(out),
        }
    }
}

impl Write for Device {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Xenstore {
    /// Connects to the store of this host.
    pub fn connect() -> Result<Self, XenstoreError> {
        let mut first = None;
        for path in SOCKETS {
            match UnixStream::connect(path).and_then(|socket| {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(socket)
            }) {
                Ok(socket) => return Ok(Xenstore::over(Box::new(socket))),
                Err(error) => first = first.or(Some(error)),
            }
        }
        for path in DEVICES.map(Path::new) {
            if let Ok(device) = OpenOptions::new().read(true).write(true).open(path) {
                return Ok(Xenstore::over(Box::new(Device(device))));
            }
        }
        let error = first.unwrap_or_else(|| io::ErrorKind::NotFound.into());
        Err(XenstoreError::Unreachable(error))
    }
}

impl<S: Read + Write> Xenstore<S> {
    /// A client over an open stream.
    pub fn over(stream: S) -> Self {
        Xenstore { stream, request: 0 }
    }

    /// The value at `path`.
    pub fn read(&mut self, path: &str) -> Result<String, XenstoreError> {
        let payload = self.ask(READ, path)?;
        Ok(String::from_utf8_lossy(&payload).into_owned())
    }

    /// The names below `path`.
    pub fn list(&mut self, path: &str) -> Result<Vec<String>, XenstoreError> {
        let payload = self.ask(DIRECTORY, path)?;
        let names = payload.split(|byte| *byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect())
    }

    fn ask(&mut self, kind: u32, path: &str) -> Result<Vec<u8>, XenstoreError> {
        let broken = |error| XenstoreError::Broken {
            path: path.to_owned(),
            error,
        };
        let nonsense = |problem| XenstoreError::Nonsense {
            path: path.to_owned(),
            problem,
        };
        if path.len() >= MOST_PAYLOAD_BYTES || path.contains('\0') {
            return Err(nonsense("the path itself is too long or has a zero in it"));
        }
        self.request = self.request.wrapping_add(1);
        let mut message = Vec::with_capacity(16 + path.len() + 1);
        for word in [kind, self.request, 0, path.len() as u32 + 1] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(path.as_bytes());
        message.push(0);
        self.stream.write_all(&message).map_err(broken)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut header = [[0u8; 4]; 4];
            self.stream
                .read_exact(header.as_flattened_mut())
                .map_err(broken)?;
            let [reply, request, _, length] = header.map(u32::from_le_bytes);
            if length as usize > MOST_PAYLOAD_BYTES {
                return Err(nonsense("it is longer than the protocol allows"));
            }
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).map_err(broken)?;
            match reply {
                WATCH_EVENT => {}
                _ if request != self.request => {
                    return Err(nonsense("it answers another question"));
                }
                ERROR => {
                    let word = payload.split(|byte| *byte == 0).next().unwrap_or(&[]);
                    // A name such as ENOENT; anything else must not reach a terminal.
                    let graphic = word.iter().filter(|byte| byte.is_ascii_graphic());
                    return Err(XenstoreError::Refused {
                        path: path.to_owned(),
                        reason: graphic.take(32).map(|&byte| char::from(byte)).collect(),
                    });
                }
                _ if reply == kind => return Ok(payload),
                _ => return Err(nonsense("it is of another type")),
            }
        }
        Err(broken(io::ErrorKind::TimedOut.into()))
    }

    /// The domain with this name, else the one with this UUID, or `None`.
    pub fn domain_by_name(&mut self, name: &str) -> Result<Option<u16>, XenstoreError> {
        let by_name =
            self.find(|store, id| store.domain_name(id).is_ok_and(|found| found == name))?;
        if by_name.is_some() || !is_uuid(name) {
            return Ok(by_name);
        }
        self.find(|store, id| {
            let found = store.domain_uuid(id);
            found.is_ok_and(|found| found.eq_ignore_ascii_case(name))
        })
    }

    /// The first domain for which `is_it` returns `true`.
    pub fn find(
        &mut self,
        mut is_it: impl FnMut(&mut Self, u16) -> bool,
    ) -> Result<Option<u16>, XenstoreError> {
        // A domain may disappear between the list and the request.
        let entries = self.list("/local/domain")?;
        let mut ids = entries.iter().filter_map(|entry| entry.parse().ok());
        Ok(ids.find(|&id| is_it(self, id)))
    }

    /// The name of a domain.
    pub fn domain_name(&mut self, id: u16) -> Result<String, XenstoreError> {
        self.read(&format!("/local/domain/{id}/name"))
    }

    /// The UUID of a domain, which outlives its number.
    pub fn domain_uuid(&mut self, id: u16) -> Result<String, XenstoreError> {
        let path = self.read(&format!("/local/domain/{id}/vm"))?;
        Ok(path.trim_start_matches("/vm/").to_owned())
    }
}

/// Whether `text` has the form of a UUID.
fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_right = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    bytes.len() == 36 && bytes.iter().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepared replies, whatever the request.
    struct Script {
        replies: io::Cursor<Vec<u8>>,
        asked: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.replies.read(out)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.asked.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reply(kind: u32, request: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [kind, request, 0, payload.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    fn store(replies: &[Vec<u8>]) -> Xenstore<Script> {
        Xenstore::over(Script {
            replies: io::Cursor::new(replies.concat()),
            asked: Vec::new(),
        })
    }

    #[test]
    fn a_value_is_read_past_watch_events() {
        let mut store = store(&[reply(WATCH_EVENT, 0, b"x\0y\0"), reply(READ, 1, b"guest-a")]);
        assert_eq!(store.read("/local/domain/7/name").unwrap(), "guest-a");
        let asked = &store.stream.asked;
        assert_eq!(asked[..16], *reply(READ, 1, &[0; 21]).split_at(16).0);
        assert_eq!(&asked[16..], b"/local/domain/7/name\0");
    }

    #[test]
    fn a_name_is_found_among_domains_that_come_and_go() {
        let mut store = store(&[
            reply(DIRECTORY, 1, b"0\x003\x007\0"),
            reply(READ, 2, b"Domain-0"),
            reply(ERROR, 3, b"ENOENT\0"),
            reply(READ, 4, b"web"),
        ]);
        assert_eq!(store.domain_by_name("web").unwrap(), Some(7));
    }

    #[test]
    fn a_uuid_is_looked_for_where_no_domain_has_it_for_a_name() {
        const UUID: &str = "0f3e2c1a-0000-4000-8000-0123456789ab";
        let mut store = store(&[
            reply(DIRECTORY, 1, b"0\x007\0"),
            reply(READ, 2, b"Domain-0"),
            reply(READ, 3, b"web"),
            reply(DIRECTORY, 4, b"0\x007\0"),
            reply(ERROR, 5, b"ENOENT\0"),
            reply(READ, 6, format!("/vm/{UUID}").as_bytes()),
        ]);
        let found = store.domain_by_name(&UUID.to_uppercase()).unwrap();
        assert_eq!(found, Some(7));
        assert!(!is_uuid("web") && !is_uuid(&UUID.replace('-', "0")));
    }

    #[test]
    fn replies_that_lie_are_errors() {
        let message = |bytes: Vec<u8>| store(&[bytes]).read("/x").unwrap_err().to_string();
        assert!(message(reply(ERROR, 1, b"EACCES\0")).contains("EACCES"));
        assert!(message(reply(READ, 9, b"x")).contains("another question"));
        assert!(message(reply(DIRECTORY, 1, b"x")).contains("another type"));
        let mut long = reply(READ, 1, b"");
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(message(long).contains("longer than"));
        assert!(message(reply(READ, 1, b"cut")[..17].to_vec()).contains("cannot read /x"));
    }
}
