//! The reason why a conversation with a stub failed, as a message to the user.

use super::packet::Fault;
use crate::guest::endpoint::{Endpoint, EndpointError};
use crate::source::SourceError;
use nix::errno::Errno;

/// The reason why a conversation with a stub failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GdbError {
    /// The target's text is not an address.
    #[error(
        "`{0}` is no address of a gdb stub: use HOST:PORT, for example gdb:localhost:1234, or the \
         path of a socket, for example gdb:/run/guest.gdb"
    )]
    Address(String),
    /// The host has no address.
    #[error("cannot find {0}: {1}")]
    Resolve(Endpoint, String),
    /// No connection.
    #[error("cannot connect to {0}: {why}; {advice}", why = .1.desc(), advice = advise(*.1))]
    Connect(Endpoint, Errno),
    /// Connected, but nothing answers.
    #[error(
        "{endpoint} did not answer {asked} within {seconds:.1} s; a stub serves one debugger at a \
         time: is another one attached? is it a gdb stub at all?"
    )]
    Silent {
        /// The stub.
        endpoint: Endpoint,
        /// Purpose of the request.
        asked: &'static str,
        /// How long we waited.
        seconds: f64,
    },
    /// The connection broke.
    #[error("the connection to {0} broke: {why}", why = .1.desc())]
    Broken(Endpoint, Errno),
    /// The stub closed the connection.
    #[error("{0} closed the connection: the guest or its monitor ended")]
    Closed(Endpoint),
    /// The bytes are not a packet.
    #[error("{0} does not speak the gdb protocol soundly: {1}")]
    Packet(Endpoint, Fault),
    /// The stub refused the request.
    #[error("{endpoint} refused {asked} ({reply}){advice}")]
    Refused {
        /// The stub.
        endpoint: Endpoint,
        /// Purpose of the request.
        asked: &'static str,
        /// The stub's reply.
        reply: String,
        /// Advice after a semicolon, or empty.
        advice: &'static str,
    },
    /// A reply that is not valid.
    #[error("{endpoint} answered {asked} with nonsense: {problem}")]
    Nonsense {
        /// The stub.
        endpoint: Endpoint,
        /// Purpose of the request.
        asked: &'static str,
        /// The parse error.
        problem: String,
    },
    /// The guest has another instruction set.
    #[error("the guest behind {0} is {1}, and uniprof samples x86-64 and 64-bit Arm guests only")]
    Arch(Endpoint, String),
}

impl From<GdbError> for SourceError {
    fn from(error: GdbError) -> Self {
        SourceError(error.to_string())
    }
}

impl From<EndpointError> for GdbError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::Address(text) => GdbError::Address(text),
            EndpointError::Resolve(endpoint, why) => GdbError::Resolve(endpoint, why),
            EndpointError::Connect(endpoint, errno) => GdbError::Connect(endpoint, errno),
        }
    }
}

fn advise(errno: Errno) -> &'static str {
    match errno {
        Errno::ECONNREFUSED => {
            "nobody listens there: start the guest with its gdb stub (QEMU: -s, or -gdb tcp::1234)"
        }
        Errno::ENOENT => {
            "there is no such socket: start the guest with its gdb stub (QEMU: -gdb \
             unix:PATH,server=on,wait=off)"
        }
        Errno::EACCES | Errno::EPERM => "run as the user that the guest runs as, or as root",
        Errno::ETIMEDOUT => {
            "it takes no connection in time: is the address right, and is no other debugger attached?"
        }
        _ => "is the address right?",
    }
}

/// A stub's reply, short and printable.
pub fn quote(reply: &[u8]) -> String {
    const MOST_BYTES: usize = 40;
    let text: String = reply
        .iter()
        .take(MOST_BYTES)
        .map(|&byte| match byte {
            b' '..=b'~' => byte as char,
            _ => '.',
        })
        .collect();
    match reply.len() {
        0 => "nothing".into(),
        length if length > MOST_BYTES => format!("{text}… ({length} bytes)"),
        _ => text,
    }
}
