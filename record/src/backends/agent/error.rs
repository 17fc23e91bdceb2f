//! The reason why a conversation with an agent failed, as a message to the user.

use crate::guest::endpoint::{Endpoint, EndpointError};
use crate::source::SourceError;
use nix::errno::Errno;

/// The reason why a conversation with an agent failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AgentError {
    /// The target's text is not an address.
    #[error(
        "`{0}` is no address of an agent: use HOST:PORT, for example agent:10.0.0.7:4711, or the path of a socket, \
         for example agent:/run/guest.agent, or vchan:DOMID/PATH, for example agent:vchan:7/data/uniprof"
    )]
    Address(String),
    /// The text is not the address of a vchan.
    #[error(
        "`{0}` is no address of a vchan: use vchan:DOMID/PATH, a domain's number and where its server stands in \
         xenstore below /local/domain/DOMID, for example agent:vchan:7/data/uniprof"
    )]
    VchanAddress(String),
    /// Xenstore doesn't answer.
    #[error("{0}")]
    Xenstore(String),
    /// Xenstore has no such server, or doesn't show it to us.
    #[error(
        "there is no {0} for this domain: {1}; does the guest run, and does it serve a vchan at this path for the \
         domain that uniprof runs in?"
    )]
    NoVchan(String, String),
    /// The event channel is unavailable.
    #[error("cannot bind event channel {1} of {0}: {why}; {advice}", why = .2.desc(), advice = advise_channel(*.2))]
    EventChannel(String, u32, Errno),
    /// The pages can't be mapped.
    #[error("cannot map the pages of {0}: {why}; {advice}", why = .1.desc(), advice = advise_grant(*.1))]
    Grant(String, Errno),
    /// The host has no address.
    #[error("cannot find {0}: {1}")]
    Resolve(Endpoint, String),
    /// No connection.
    #[error("cannot connect to {0}: {why}; {advice}", why = .1.desc(), advice = advise(*.1))]
    Connect(Endpoint, Errno),
    /// Connected, but nothing answers.
    #[error(
        "{0} did not answer within {1} s; an agent serves one client at a time: is another one attached, and does the \
         guest call the agent's serve()?"
    )]
    Silent(String, u64),
    /// Another client is attached.
    #[error(
        "another client is attached to the agent behind {0}, and it serves one at a time; let that one end first"
    )]
    Busy(String),
    /// The connection broke.
    #[error("the connection to {0} broke: {1}")]
    Broken(String, String),
    /// It was closed.
    #[error("{0} closed the connection before it said what it is: is there an agent behind it?")]
    Closed(String),
    /// The bytes are not frames.
    #[error(
        "{0} does not speak the agent's protocol soundly ({1}); is it an agent of uniprof at all, and does \
         nothing else write to the same line?"
    )]
    Garbage(String, String),
    /// A hello with impossible values.
    #[error("the agent behind {0} says what can't be: {1}")]
    Nonsense(String, String),
    /// The agent has another version.
    #[error(
        "the agent behind {0} speaks version {1} of the protocol, and this uniprof version 1; use the agent of this \
         version"
    )]
    Version(String, u16),
    /// The image is not the guest's.
    #[error(
        "{image} is not the image of the guest behind {name}: its build-id is {own}, the guest's is {guest}"
    )]
    OtherImage {
        /// The agent's name in messages.
        name: String,
        /// The image's path.
        image: String,
        /// Its build-id.
        own: String,
        /// The guest's build-id.
        guest: String,
    },
    /// What is wrong with an image.
    #[error("{0}")]
    Image(String),
}

impl From<AgentError> for SourceError {
    fn from(error: AgentError) -> Self {
        SourceError(error.to_string())
    }
}

impl From<EndpointError> for AgentError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::Address(text) => AgentError::Address(text),
            EndpointError::Resolve(endpoint, why) => AgentError::Resolve(endpoint, why),
            EndpointError::Connect(endpoint, errno) => AgentError::Connect(endpoint, errno),
        }
    }
}

fn advise(errno: Errno) -> &'static str {
    match errno {
        Errno::ECONNREFUSED => {
            "nobody listens there: does the guest run, and does it carry the agent?"
        }
        Errno::ENOENT => "there is no such socket: is the guest's console or port connected to it?",
        Errno::EACCES | Errno::EPERM => "run as the user that the guest runs as, or as root",
        _ => "is the address right?",
    }
}

fn advise_device(errno: Errno, other: &'static str) -> &'static str {
    match errno {
        Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => {
            "run in a domain of Xen, with the kernel modules xen-evtchn and xen-gntdev loaded"
        }
        Errno::EACCES | Errno::EPERM => {
            "run as root, or as a user who may use /dev/xen/evtchn and /dev/xen/gntdev"
        }
        _ => other,
    }
}

fn advise_channel(errno: Errno) -> &'static str {
    advise_device(
        errno,
        "is another client attached? A vchan serves one at a time, of the domain that its server was made for",
    )
}

fn advise_grant(errno: Errno) -> &'static str {
    advise_device(
        errno,
        "was the guest's server made for the domain that uniprof runs in?",
    )
}
