//! How `uniprof save` reaches running flight recorders: by a socket in Linux's abstract namespace, which leaves no file
//! behind. Each end believes only the other's credentials (unix(7), `SO_PEERCRED`), as anyone may bind any name.

use crate::writing::save_requests::SaveRequests;
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, UnixAddr, connect, getsockopt, shutdown, socket,
    sockopt::PeerCredentials,
};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// Names of all these sockets begin so; the process id and the recording's name follow.
const PREFIX: &str = "uniprof-keep/";
/// Most bytes of a recording's name in a socket's.
const NAME_BYTES_MAX: usize = 64;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 8192;
/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A flight recorder that runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningRecorder {
    /// Its process id.
    pub pid: i32,
    /// The name of its recording.
    pub name: String,
}

/// The name of a recording at a socket: letters, digits, `.`, `_` and `-` of its file's.
pub fn name_at_socket(stem: &str) -> String {
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    let kept = |letter| if is_kept(letter) { letter } else { '_' };
    stem.chars().take(NAME_BYTES_MAX).map(kept).collect()
}

impl RunningRecorder {
    fn address(&self) -> String {
        format!("{PREFIX}{}/{}", self.pid, self.name)
    }

    /// Reads a line of /proc/net/unix.
    fn of_line(line: &str) -> Option<Self> {
        let (pid, name) = line
            .rsplit_once(' ')?
            .1
            .strip_prefix('@')?
            .strip_prefix(PREFIX)?
            .split_once('/')?;
        Some(RunningRecorder {
            pid: pid.parse().ok()?,
            name: name_at_socket(name),
        })
    }

    /// Connects to it; `None` if it belongs to another user or is gone.
    fn connect(&self) -> Option<UnixStream> {
        // Not waiting: whoever bound the name may let nobody in.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let own = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
        let address = UnixAddr::new_abstract(self.address().as_bytes()).ok()?;
        connect(own.as_raw_fd(), &address).ok()?;
        let stream = UnixStream::from(own);
        stream.set_nonblocking(false).ok()?;
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        (is_trusted(peer.uid()) && peer.pid() == self.pid).then_some(stream)
    }

    /// Asks it to save, and waits for its answer.
    ///
    /// # Errors
    /// It is gone, or did not answer.
    pub fn save(&self) -> io::Result<String> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it is not there any more");
        let stream = self.connect().ok_or_else(gone)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = String::new();
        // Only a connection that is not used to look around is a request.
        io::Write::write_all(&mut &stream, b"save\n")?;
        let read = stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(error.kind(), "no answer came in 120 s; it may still save")
            }
            _ => error,
        })?;
        if answer.is_empty() {
            return Err(gone());
        }
        Ok(answer)
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// The flight recorders of this user and of root, by process id.
///
/// # Errors
/// The kernel's list of sockets can't be read.
pub fn running() -> io::Result<Vec<RunningRecorder>> {
    // Anyone may have bound a name that is not text.
    let listed = std::fs::read("/proc/net/unix")?;
    let listed = String::from_utf8_lossy(&listed);
    let mut all: Vec<_> = listed
        .lines()
        .filter_map(RunningRecorder::of_line)
        .collect();
    all.sort();
    all.dedup();
    all.retain(|one| one.connect().is_some());
    Ok(all)
}

/// A socket at which `uniprof save` is heard. Dropping it closes it.
#[derive(Debug)]
pub struct SaveSocket(UnixListener);

impl Drop for SaveSocket {
    fn drop(&mut self) {
        // The thread that waits at it gets an error.
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

/// Listens for `uniprof save` in a thread.
///
/// # Errors
/// The socket can't be bound, or the thread can't be started.
pub fn listen(stem: &str, requests: Arc<SaveRequests>) -> io::Result<SaveSocket> {
    let own = RunningRecorder {
        pid: std::process::id() as i32,
        name: name_at_socket(stem),
    };
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(own.address())?)?;
    let socket = SaveSocket(listener.try_clone()?);
    let thread = std::thread::Builder::new().name("uniprof-saves".into());
    thread.spawn(move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => take(&stream, &requests),
                // The socket is closed.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                // Out of descriptors, for example.
                Err(_) => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    })?;
    Ok(socket)
}

fn take(stream: &UnixStream, requests: &SaveRequests) {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else {
        return;
    };
    let mut word = [0; 5];
    let mut is_request = || {
        let mut stream = stream;
        let timeout = stream.set_read_timeout(Some(Duration::from_secs(1)));
        timeout.is_ok() && stream.read_exact(&mut word).is_ok() && word == *b"save\n"
    };
    if is_trusted(peer.uid())
        && is_request()
        && let Ok(reply) = stream.try_clone()
    {
        requests.ask(format!("uniprof save, process {}", peer.pid()), reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernels_list() {
        let line = |name: &str| {
            let start = "0000000000000000: 00000002 00000000 00010000 0001 01 12345";
            RunningRecorder::of_line(&format!("{start} {name}"))
        };
        let web = RunningRecorder {
            pid: 123,
            name: "web".into(),
        };
        assert_eq!(line("@uniprof-keep/123/web"), Some(web));
        for other in [
            "",
            "/run/x",
            "@uniprof-keep/",
            "@uniprof-keep/x/web",
            "uniprof-keep/1/web",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
        assert_eq!(name_at_socket("a b/../\n\u{1b}[2J").len(), 12);
        assert!(!name_at_socket("a\u{1b}/\n").contains(['\u{1b}', '/', '\n']));
    }

    #[test]
    fn a_request_reaches_the_recorder_and_its_answer_comes_back() {
        let requests = Arc::new(SaveRequests::default());
        let name = format!("test-{}", fastrand::u64(..));
        let socket = listen(&name, Arc::clone(&requests)).unwrap();
        let found = running().unwrap();
        let own = found.into_iter().find(|one| one.name == name).unwrap();
        assert!(requests.take().is_empty(), "looking around is no request");
        let answering = std::thread::spawn(move || {
            loop {
                if let Some((_, mut reply)) = requests.take().pop() {
                    return io::Write::write_all(&mut reply, b"saved").unwrap();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(own.save().unwrap(), "saved");
        answering.join().unwrap();
        drop(socket);
        let began = std::time::Instant::now();
        while running().unwrap().contains(&own) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "it is still heard"
            );
        }
    }
}
