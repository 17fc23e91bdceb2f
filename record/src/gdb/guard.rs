//! Who sees to it that a stub's guest runs, whatever happens to the recorder.
//!
//! The guardian process shares our connection from before it is made, since a stub may stop its guest for
//! that: when the recorder is killed, the stub notices nothing, and the guardian ends the conversation in
//! good order. Only where the connection itself is lost does it make another.

use super::client::Client;
use super::endpoint::{Connection, Endpoint, Sockets, deadline};
use super::handshake::Continue;
use super::packet;
use super::release::release;
use crate::guest::guardian::{Guardian, Rescuer};
use crate::source::SourceError;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The recorder's side. Where it is dropped without [`Guard::release`], the guardian lets the guest go.
#[derive(Debug)]
pub struct Guard {
    pub(super) guardian: Guardian,
    /// Whether the guest is out of our hands.
    done: bool,
}

struct StubRescuer {
    /// Of these one is connected, or will be.
    connections: Vec<Connection>,
    endpoint: Endpoint,
}

impl StubRescuer {
    fn connection(&self) -> Option<&Connection> {
        self.connections.iter().find(|one| one.is_connected())
    }
}

impl Rescuer for StubRescuer {
    fn resume(&mut self) {
        // The conversation goes on, so nothing may be read here. A stub without `vCont` gets `c`
        // from the recorder alone; it is older than any machine with several vCPUs.
        let mut bytes = Vec::new();
        packet::put(&mut bytes, format_args!("{}", Continue::All.payload()));
        if let Some(connection) = self.connection() {
            let _ = connection.send(&bytes, deadline(Duration::from_secs(1)));
        }
    }

    fn release(&mut self, _: bool) {
        // Whether frozen or not: a stub may take a connection that just closes amiss.
        if let Some(connection) = self.connection() {
            release(connection, &self.endpoint);
        }
    }

    fn guest(&self) -> String {
        // Whoever reads it may be in another folder.
        let endpoint = match &self.endpoint {
            Endpoint::Unix(path) => std::path::absolute(path).map(Endpoint::Unix),
            endpoint => Ok(endpoint.clone()),
        };
        format!("gdb {}", endpoint.as_ref().unwrap_or(&self.endpoint))
    }
}

impl Guard {
    /// Forks the guardian, before the sockets are connected. Must be called before any thread is started.
    ///
    /// # Errors
    /// Why there can be no guardian.
    pub fn start(sockets: &Sockets) -> Result<Self, SourceError> {
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
        };
        Ok(Guard {
            guardian: Guardian::start(&kept, rescuer)?,
            done: false,
        })
    }

    /// Lets the guest go for good; says whether its stub confirmed that.
    pub fn release(&mut self, client: &Client) -> bool {
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let confirmed = release(client.connection(), client.endpoint());
        self.guardian.dismiss();
        confirmed
    }

    /// Whether the guest is out of our hands.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The guest is gone, or not ours to resume.
    pub fn forget(&mut self) {
        self.done = true;
        self.guardian.dismiss();
    }
}
