//! Xen's vchan from another domain, as its client (docs/agent-protocol.md, section 7).
//!
//! Input: `DOMID/PATH`, keys of xenstore. Output: a [`Line`] over pages that the guest shares ([`rings`]) and an event
//! channel. It needs neither dom0's rights nor any of Xen's libraries.

mod rings;
mod withdrawal;
#[cfg(test)]
mod tests;

use super::error::AgentError;
use super::line::{Line, LineError};
use crate::guest::xenstore::{Xenstore, XenstoreError};
use crate::sys::clock::monotonic_ns;
use crate::sys::xen::event_channel::EventChannel;
use crate::sys::xen::shared_pages::SharedPages;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rings::{CLIENT_LIVES, RingError, Rings};
use std::fmt;
use std::os::fd::AsFd;
use withdrawal::Withdrawal;

/// Prefix of a vchan's address.
pub(super) const PREFIX: &str = "vchan:";
/// Domain numbers are below this (DOMID_FIRST_RESERVED).
const MOST_DOMAINS: u16 = 0x7ff0;
/// Longest path below a domain's own in xenstore.
const MOST_PATH_BYTES: usize = 256;
/// After this long without a byte, in nanoseconds, xenstore is asked whether the server still exists.
const QUIET_NS: u64 = 1_000_000_000;

/// The address of a server in xenstore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    domain: u16,
    path: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}", self.domain, self.path)
    }
}

impl Address {
    /// Parses `DOMID/PATH`.
    ///
    /// # Errors
    /// The text is not such an address.
    pub fn parse(text: &str) -> Result<Self, AgentError> {
        let parsed = text.split_once('/').and_then(|(domain, path)| {
            let domain = domain
                .parse()
                .ok()
                .filter(|domain| *domain < MOST_DOMAINS)?;
            let is_letter =
                |letter: char| letter.is_ascii_alphanumeric() || "-/_@".contains(letter);
            let is_path =
                !path.is_empty() && path.len() <= MOST_PATH_BYTES && path.chars().all(is_letter);
            is_path.then(|| Address {
                domain,
                path: path.to_owned(),
            })
        });
        parsed.ok_or_else(|| AgentError::VchanAddress(format!("{PREFIX}{text}")))
    }

    /// The path of a key in xenstore.
    fn key(&self, name: &str) -> String {
        format!("/local/domain/{}/{}/{name}", self.domain, self.path)
    }

    fn number(&self, store: &mut Xenstore, name: &str) -> Result<u32, AgentError> {
        let key = self.key(name);
        let value = store.read(&key).map_err(|error| match error {
            XenstoreError::Refused { .. } => {
                AgentError::NoVchan(self.to_string(), error.to_string())
            }
            error => AgentError::Xenstore(error.to_string()),
        })?;
        value.trim().parse().map_err(|_| {
            let value: String = value
                .chars()
                .filter(char::is_ascii_graphic)
                .take(32)
                .collect();
            AgentError::Nonsense(self.to_string(), format!("`{value}` at {key} in xenstore"))
        })
    }
}

/// A connection to a server.
pub(super) struct Vchan {
    address: Address,
    // Unmapped before the channel is closed, so that the kernel can notify the server.
    rings: Rings<Box<SharedPages>>,
    channel: EventChannel,
    withdrawal: Withdrawal,
    heard_ns: u64,
}

impl Vchan {
    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub fn connect(address: Address) -> Result<Self, AgentError> {
        let name = address.to_string();
        let mut store =
            Xenstore::connect().map_err(|error| AgentError::Xenstore(error.to_string()))?;
        let reference = address.number(&mut store, "ring-ref")?;
        let port = address.number(&mut store, "event-channel")?;
        let channel = EventChannel::bind(address.domain, port)
            .map_err(|errno| AgentError::EventChannel(name.clone(), port, errno))?;
        let unmapped = |errno| AgentError::Grant(name.clone(), errno);
        let map = |references: &[u32]| SharedPages::map(address.domain, references).map(Box::new);
        let first = map(&[reference]).map_err(unmapped)?;
        let rings = Rings::open(first, map);
        let mut rings = rings.map_err(|refused| match refused {
            RingError::Nonsense(what) => AgentError::Nonsense(name.clone(), what),
            RingError::Unmapped(errno) => unmapped(errno),
        })?;
        if !rings.is_served() {
            return Err(AgentError::Closed(name));
        }
        rings
            .first()
            .tell_end(CLIENT_LIVES, channel.port())
            .map_err(unmapped)?;
        rings
            .enter()
            .map_err(|error| AgentError::Nonsense(name, error.to_string()))?;
        channel.notify();
        Ok(Vchan {
            withdrawal: Withdrawal::watch(&address, reference),
            address,
            rings,
            channel,
            heard_ns: monotonic_ns(),
        })
    }

    fn notify_if(&self, is_wanted: bool) {
        if is_wanted {
            self.channel.notify();
        }
    }

    /// Checks that the server still exists. A destroyed domain could not write its end into its pages, which exist for
    /// as long as we map them. But xenstore no longer has its keys.
    fn check(&mut self) -> Result<(), LineError> {
        let domain = self.address.domain;
        if !self.rings.is_served() {
            return Err(LineError::Closed(domain.into()));
        }
        if let Some(why) = self.withdrawal.found() {
            return Err(LineError::Withdrawn(why));
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.heard_ns) < QUIET_NS {
            return Ok(());
        }
        // Asks at most once in `QUIET_NS`.
        self.heard_ns = now_ns;
        self.withdrawal.ask();
        Ok(())
    }
}

impl Line for Vchan {
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, LineError> {
        let sent = self.rings.send(bytes)?;
        self.notify_if(sent.notify);
        Ok(sent.bytes)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, LineError> {
        let received = self.rings.receive(into)?;
        self.notify_if(received.notify);
        if received.bytes > 0 {
            self.heard_ns = monotonic_ns();
            return Ok(Some(received.bytes));
        }
        // A server may have written bytes before it closed, so these are read first.
        if !self.rings.has_some()? {
            self.check()?;
        }
        Ok(None)
    }

    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), LineError> {
        if self.rings.has_some()? {
            return Ok(());
        }
        let mut polled = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(timeout_ms)) {
            Ok(1..) => self.channel.acknowledge(),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(LineError::System(errno)),
        }
        Ok(())
    }
}
