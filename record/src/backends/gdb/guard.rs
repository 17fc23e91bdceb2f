//! Makes sure that a stub's guest runs, whatever happens to the recorder.
//!
//! The guardian process shares our socket from before it is connected, since connecting may stop the guest. When the
//! recorder is killed, the stub notices nothing, and the guardian ends the conversation properly. It makes another
//! connection only if this one is lost. What is to be done after that, it does as well: it has the rights that the
//! recorder has given up.

use super::client::Client;
use super::handshake::Continue;
use super::packet;
use super::release::{Released, release, release_anew};
use crate::guest::endpoint::{Connection, Endpoint, Sockets, deadline};
use crate::guest::guardian::{Guardian, Rescuer};
use crate::source::SourceError;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// The recorder's side. If it is dropped without [`Guard::release`], the guardian resumes the guest.
pub struct Guard {
    pub(super) guardian: Guardian,
    /// Whether the guest was released or given up.
    done: bool,
    /// Dropped after the guardian.
    afterwards: Option<Afterwards>,
}

/// An action for when the guest was released, or could not be opened. Dropping this does it.
pub struct Afterwards(Option<Action>);

type Action = Arc<dyn Fn() + Send + Sync>;

impl Afterwards {
    /// The action `act`.
    pub fn new(act: impl Fn() + Send + Sync + 'static) -> Self {
        Afterwards(Some(Arc::new(act)))
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        if let Some(act) = &self.0 {
            act();
        }
    }
}

struct StubRescuer {
    /// One of these is connected, or will be.
    connections: Vec<Connection>,
    endpoint: Endpoint,
    /// Whether a freeze ends with the conversation. Breakpoints would stop the guest again at once.
    detaches: bool,
    /// Whether that was done: `connections` are of no use any more.
    has_ended: bool,
    afterwards: Option<Action>,
}

impl StubRescuer {
    fn connection(&self) -> Option<&Connection> {
        self.connections.iter().find(|one| one.is_connected())
    }
}

impl Rescuer for StubRescuer {
    fn resume(&mut self) {
        if self.detaches {
            self.release(true);
            // The recorder may be in the middle of a request. Its next byte would stop the guest.
            if let Some(connection) = self.connection() {
                connection.end();
            }
            self.has_ended = true;
            return;
        }
        // The conversation goes on, so nothing may be read here. If a stub has no `vCont`, only the recorder sends `c`;
        // such stubs have one vCPU.
        // The acknowledgement is for a guest that runs, since the recorder was stopped just before its pause or just
        // after it: the first byte stops such a guest, and nobody reads it.
        let mut bytes = b"+".to_vec();
        packet::put(&mut bytes, format_args!("{}", Continue::All.payload()));
        if let Some(connection) = self.connection() {
            let _ = connection.send(&bytes, deadline(Duration::from_secs(1)));
        }
    }

    fn release(&mut self, _: bool) {
        // Done whether frozen or not, since a stub may mishandle a connection that just closes.
        match self.connection() {
            _ if self.has_ended => {
                release_anew(&self.endpoint);
            }
            Some(connection) => {
                release(connection, &self.endpoint);
            }
            None => {}
        }
    }

    fn clean_up(&mut self) {
        if let Some(act) = &self.afterwards {
            act();
        }
    }

    fn guest(&self) -> String {
        // The mark may be read in another folder, so the path must be absolute.
        let endpoint = match &self.endpoint {
            Endpoint::Unix(path) => std::path::absolute(path).map(Endpoint::Unix),
            endpoint => Ok(endpoint.clone()),
        };
        format!("gdb {}", endpoint.as_ref().unwrap_or(&self.endpoint))
    }
}

impl Guard {
    /// Forks the guardian, before the sockets are connected. Must be called before any thread is started. If it
    /// `detaches`, it ends the conversation together with a freeze that lasts too long. At the end it does what is to
    /// be done `afterwards`.
    ///
    /// # Errors
    /// Says why there can be no guardian.
    pub fn start(
        sockets: &Sockets,
        detaches: bool,
        afterwards: Option<Afterwards>,
    ) -> Result<Self, SourceError> {
        let connections = sockets.share().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw);
            SourceError::system("cannot share the connection with a guardian", errno, "")
        })?;
        let kept: Vec<_> = connections
            .iter()
            .map(|one| one.as_fd().as_raw_fd())
            .collect();
        let rescuer = StubRescuer {
            connections,
            endpoint: sockets.endpoint().clone(),
            detaches,
            has_ended: false,
            afterwards: afterwards.as_ref().and_then(|all| all.0.clone()),
        };
        Ok(Guard {
            guardian: Guardian::start(&kept, rescuer)?,
            done: false,
            afterwards,
        })
    }

    /// Releases the guest for good; returns whether its stub confirmed that. If not, the guardian tries again, unless
    /// the stub has ended: another guest may have its address by then.
    pub fn release(&mut self, client: &Client) -> bool {
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        // It stops the guest first.
        self.guardian.freezing();
        let released = release(client.connection(), client.endpoint());
        if released != Released::Unsure {
            self.guardian.dismiss();
        }
        released == Released::Confirmed
    }

    /// Whether the guest was released or given up.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Gives the guest up without resuming it: it is gone, or someone else stopped it.
    pub fn forget(&mut self) {
        self.done = true;
        self.guardian.dismiss();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.guardian.is_there().is_ok() {
            // The guardian does it.
            self.afterwards.iter_mut().for_each(|all| all.0 = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::gdb::call_tracer::CallTracer;
    use crate::backends::gdb::error::GdbError;
    use crate::backends::gdb::open::Opening;
    use crate::source::plan::Plan;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::{Pid, gettid};
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn what_is_left_to_do_is_done_once_by_the_guardian_or_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let done = folder.path().join("done");
        // The guardian keeps no file open.
        let afterwards = || {
            let done = done.clone();
            Some(Afterwards::new(move || {
                let mut options = std::fs::OpenOptions::new();
                let file = options.create(true).append(true).open(&done);
                writeln!(file.unwrap(), "{}", std::process::id()).unwrap();
            }))
        };
        let done_by = || {
            let by = std::fs::read_to_string(&done).unwrap();
            std::fs::remove_file(&done).unwrap();
            by
        };
        let own = format!("{}\n", std::process::id());
        let stub = folder.path().join("stub").display().to_string();
        let opening = || Opening {
            afterwards: afterwards(),
            ..Opening::stub(&stub, Vec::new()).unwrap()
        };

        // Before there is a guardian: no image has the function.
        let plan = Plan {
            calls: vec!["absent".into()],
            ..Plan::default()
        };
        assert!(CallTracer::open(opening(), &plan).is_err());
        assert_eq!(done_by(), own);

        let sockets = opening().endpoint.sockets().unwrap();
        assert_eq!(done_by(), own);
        let guard = || Guard::start(&sockets, false, afterwards()).unwrap();
        let children = format!("/proc/self/task/{}/children", gettid());
        for is_forgotten in [true, false] {
            let mut guard = guard();
            let guardian = std::fs::read_to_string(&children).unwrap();
            if is_forgotten {
                guard.forget();
            }
            drop(guard);
            assert_eq!(done_by().trim(), guardian.trim());
        }

        let killed = guard();
        let guardian = std::fs::read_to_string(&children).unwrap();
        kill(
            Pid::from_raw(guardian.trim().parse().unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        while killed.guardian.is_there().is_ok() {
            std::thread::yield_now();
        }
        drop(killed);
        assert_eq!(done_by(), own);
    }

    /// Lets the other end of a connection release its guest, as QEMU's stub does; returns whether anything came after
    /// that.
    fn be_released(connection: &mut UnixStream) -> bool {
        let mut answer = |request: &[u8], reply: &str| {
            let mut read = vec![0; request.len()];
            connection.read_exact(&mut read).unwrap();
            assert_eq!(read, request);
            let mut bytes = Vec::new();
            packet::put(&mut bytes, format_args!("{reply}"));
            connection.write_all(&bytes).unwrap();
        };
        answer(b"\x03", "T02thread:01;");
        answer(b"+$D#44", "OK");
        connection.read(&mut [0]).unwrap() > 0
    }

    #[test]
    fn a_recorder_that_goes_on_after_the_guardian_has_detached_sends_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stub");
        let stub = UnixListener::bind(&path).unwrap();
        let endpoint = Endpoint::Unix(path);
        let sockets = endpoint.sockets().unwrap();
        let mut guard = Guard::start(&sockets, true, None).unwrap();
        let patience = Duration::from_secs(30);
        let connection = sockets.connect(patience).unwrap();
        let mut client = Client::over(connection, &endpoint, patience);
        guard.guardian.freezing();
        let mut connection = stub.accept().unwrap().0;
        assert!(!be_released(&mut connection));
        assert!(client.connection().await_end(patience));
        let asked = client.ask("for anything", format_args!("g"));
        assert!(matches!(asked, Err(GdbError::Closed(_))), "{asked:?}");
        assert!(!guard.guardian.still_freezing());
        // Not given up: something may have been sent in between.
        let next = std::thread::spawn(move || be_released(&mut stub.accept().unwrap().0));
        drop(guard);
        assert!(!next.join().unwrap());
    }

    #[test]
    fn a_guest_at_the_address_of_one_that_has_ended_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stub");
        let stub = UnixListener::bind(&path).unwrap();
        let endpoint = Endpoint::Unix(path.clone());
        let sockets = endpoint.sockets().unwrap();
        let mut guard = Guard::start(&sockets, false, None).unwrap();
        let patience = Duration::from_secs(1);
        let connection = sockets.connect(patience).unwrap();
        let client = Client::over(connection, &endpoint, patience);
        drop(stub.accept().unwrap());
        drop(stub);
        std::fs::remove_file(&path).unwrap();
        assert!(!guard.release(&client));
        let next = UnixListener::bind(&path).unwrap();
        next.set_nonblocking(true).unwrap();
        drop(guard);
        let nobody = next.accept().unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
    }
}
