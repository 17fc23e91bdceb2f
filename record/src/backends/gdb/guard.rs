//! Makes sure that a stub's guest runs, whatever happens to the recorder.
//!
//! The guardian process shares our socket from before it is connected, since connecting may stop the guest. When the
//! recorder is killed, the stub notices nothing, and the guardian ends the conversation properly. It makes another
//! connection only if this one is lost.

use super::client::Client;
use super::handshake::Continue;
use super::packet;
use super::release::release;
use crate::guest::endpoint::{Connection, Endpoint, Sockets, deadline};
use crate::guest::guardian::{Guardian, Rescuer};
use crate::source::SourceError;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The recorder's side. If it is dropped without [`Guard::release`], the guardian resumes the guest.
#[derive(Debug)]
pub struct Guard {
    pub(super) guardian: Guardian,
    /// Whether the guest was released or given up.
    done: bool,
}

struct StubRescuer {
    /// One of these is connected, or will be.
    connections: Vec<Connection>,
    endpoint: Endpoint,
    /// Whether a freeze ends with the conversation. Breakpoints would stop the guest again at once.
    detaches: bool,
}

impl StubRescuer {
    fn connection(&self) -> Option<&Connection> {
        self.connections.iter().find(|one| one.is_connected())
    }
}

impl Rescuer for StubRescuer {
    fn resume(&mut self) {
        if self.detaches {
            return self.release(true);
        }
        // The conversation goes on, so nothing may be read here. If a stub has no `vCont`, only the recorder sends `c`;
        // such stubs have one vCPU.
        let mut bytes = Vec::new();
        packet::put(&mut bytes, format_args!("{}", Continue::All.payload()));
        if let Some(connection) = self.connection() {
            let _ = connection.send(&bytes, deadline(Duration::from_secs(1)));
        }
    }

    fn release(&mut self, _: bool) {
        // Done whether frozen or not, since a stub may mishandle a connection that just closes.
        if let Some(connection) = self.connection() {
            release(connection, &self.endpoint);
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
    /// `detaches`, it ends the conversation together with a freeze that lasts too long.
    ///
    /// # Errors
    /// Says why there can be no guardian.
    pub fn start(sockets: &Sockets, detaches: bool) -> Result<Self, SourceError> {
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
        };
        Ok(Guard {
            guardian: Guardian::start(&kept, rescuer)?,
            done: false,
        })
    }

    /// Releases the guest for good; returns whether its stub confirmed that.
    pub fn release(&mut self, client: &Client) -> bool {
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let confirmed = release(client.connection(), client.endpoint());
        self.guardian.dismiss();
        confirmed
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
